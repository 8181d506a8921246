//! `flashwright plan hierarchy`.

use std::path::{Path, PathBuf};

use measure::ladder::{Gap, Ladder, SCHEMA, times};
use planner::Formula;
use planner::hierarchy::{self, PricedLevel};
use schemars::JsonSchema;
use serde::Serialize;
use sweep::report::{Page, PageChart, PageMark};

use super::args::HierarchyArgs;
use super::screen::{figure, grouped, known, sources, table, without_empty_columns};
use super::{prices, read, show};
use crate::failure::Failure;

/// `plan hierarchy --json` (`flashwright.plan-hierarchy/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct HierarchyDocument {
    /// `flashwright.plan-hierarchy/1`.
    schema: &'static str,
    /// What prices are in; null without a price file.
    currency: Option<String>,
    /// The levels, nearest first.
    levels: Vec<PricedLevel>,
    /// The widest gap.
    widest: Option<Gap>,
    /// What was computed how.
    formulas: &'static [Formula],
}

/// Shows a ladder with prices and watts.
pub fn hierarchy(args: &HierarchyArgs) -> Result<(), Failure> {
    let wrong = |problem: String| {
        Failure::invalid(format!("{}: {problem}", args.ladder.display()))
            .hint("the output of `flashwright probe --ladder --json`")
    };
    let ladder: Ladder = serde_json::from_str(&read(&args.ladder)?)
        .map_err(|error| wrong(format!("is no ladder: {error}")))?;
    if ladder.schema != SCHEMA {
        return Err(wrong(format!("is a document of {}", ladder.schema)));
    }
    let prices = args.prices.as_deref().map(prices).transpose()?;
    let document = HierarchyDocument {
        schema: "flashwright.plan-hierarchy/1",
        levels: hierarchy::priced(&ladder, prices.as_ref()),
        currency: prices.map(|prices| prices.currency),
        widest: ladder.widest,
        formulas: &hierarchy::FORMULAS,
    };
    let inputs: Vec<&Path> =
        [Some(&args.ladder), args.prices.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    show(&args.form, &inputs, &document, &page(&document))
}

fn page(document: &HierarchyDocument) -> Page {
    let currency = document.currency.as_deref().unwrap_or("$");
    let titles = [
        "Level",
        "Kind",
        ">Capacity",
        ">Latency",
        ">Cycles",
        ">Gap",
        ">$/GB",
        ">Price ($)",
        ">Active W",
        ">IOPS/$",
        "Product",
    ];
    let mut rows = table(
        "From the nearest level to the farthest",
        &titles.map(|t| t.replace('$', currency)).each_ref().map(String::as_str),
    );
    for level in &document.levels {
        rows.rows.push(vec![
            level.name.clone(),
            level.kind.to_owned(),
            known(level.capacity_bytes, |bytes| units::bytes(bytes as u64)),
            known(level.latency_ns, units::nanoseconds),
            known(level.cycles, units::count),
            known(level.gap, |gap| format!("{}×", times(gap))),
            known(level.price_per_gb, figure),
            known(level.price, grouped),
            known(level.active_w, figure),
            known(level.iops_per_price, figure),
            level.product.clone().unwrap_or(super::screen::NONE.to_owned()),
        ]);
    }
    let mark = |level: &PricedLevel| {
        let ns = level.latency_ns?;
        let cycles = level.cycles.map(|cycles| format!(" · {} cycles", units::count(cycles)));
        let words = units::nanoseconds(ns) + &cycles.unwrap_or_default();
        Some(PageMark { label: level.name.clone(), x: 0.0, y: ns, words })
    };
    let chart = PageChart {
        title: "How long one access takes (logarithmic)".to_owned(),
        x: None,
        y: "Latency (ns)",
        is_logarithmic: true,
        marks: document.levels.iter().filter_map(mark).collect(),
    };
    let answer = document.widest.as_ref().map_or("There is no gap between levels".to_owned(), |gap| {
        format!("The widest gap is {}", gap.words())
    });
    let is_priced = document.levels.iter().any(|level| level.product.is_some());
    let unpriced =
        "no product of the price file has the name or the kind of a level: prices and watts are not known";
    let notes = match document.currency {
        Some(_) if !is_priced => vec![unpriced.to_owned()],
        _ => Vec::new(),
    };
    Page {
        title: "plan hierarchy".to_owned(),
        answer,
        tables: vec![without_empty_columns(rows)],
        charts: (!chart.marks.is_empty()).then_some(chart).into_iter().collect(),
        notes,
        formulas: sources(document.formulas),
    }
}
