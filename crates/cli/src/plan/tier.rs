//! `flashwright plan tier`.

use planner::Formula;
use planner::tier::{self, Curve, Demand, Mix, PricedTier, cheapest};
use schemars::JsonSchema;
use serde::Serialize;
use sweep::report::{Page, PageChart, PageMark, PageTable};

use super::args::TierArgs;
use super::screen::{figure, grouped, known, sources, table, without_empty_columns};
use super::{in_prices, prices, read, show};
use crate::failure::Failure;

/// `plan tier --json` (`flashwright.plan-tier/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct TierDocument {
    /// `flashwright.plan-tier/1`.
    schema: &'static str,
    /// What prices are in.
    currency: String,
    /// What was asked for.
    demand: Demand,
    /// The products that may be tiers, fastest first.
    tiers: Vec<PricedTier>,
    /// The cheapest mix of each choice of them that does what is asked, cheapest first.
    mixes: Vec<Mix>,
    /// The cheapest price over the mean access time.
    curve: Vec<PricePoint>,
    /// What was computed how.
    formulas: &'static [Formula],
}

/// The cheapest price for a mean access time.
#[derive(Debug, Serialize, JsonSchema)]
struct PricePoint {
    /// Nanoseconds.
    access_ns: f64,
    price: f64,
}

/// Steps of the curve of prices.
const POINTS: u32 = 12;

/// Plans tiers.
pub fn tier(args: &TierArgs) -> Result<(), Failure> {
    let curve = Curve::parse(&read(&args.curve)?)
        .map_err(|error| Failure::invalid(format!("{}: {error}", args.curve.display())).hint(error.hint()))?;
    let prices = prices(&args.prices)?;
    let of = |name: &String| {
        let product = in_prices(&args.prices, prices.product("--tiers", name))?;
        in_prices(&args.prices, PricedTier::of(product))
    };
    let tiers = args.tiers.iter().map(of).collect::<Result<Vec<PricedTier>, Failure>>()?;
    if args.rate.is_some_and(|rate| rate <= 0.0) {
        let rate = args.rate.unwrap_or_default();
        return Err(Failure::invalid(format!("--rate={rate}: must be above zero")).hint("requests a second"));
    }
    let demand = Demand {
        total_bytes: args.size.map_or(curve.last_bytes(), |bytes| bytes as f64),
        access_ns: args.access_time.map(|time| time.as_secs_f64() * 1e9),
        rate: args.rate,
    };
    let mixes = cheapest(&curve, &tiers, &demand)?;
    let document = TierDocument {
        schema: "flashwright.plan-tier/1",
        curve: price_curve(&curve, &tiers, &demand)?,
        currency: prices.currency,
        demand,
        tiers,
        mixes,
        formulas: &tier::FORMULAS,
    };
    show(&args.form, &[&args.curve, &args.prices], &document, &page(&document))
}

/// The cheapest price from the access time of the fastest tier to that of the slowest.
fn price_curve(curve: &Curve, tiers: &[PricedTier], demand: &Demand) -> Result<Vec<PricePoint>, Failure> {
    let (fastest, slowest) = (tiers[0].access_ns, tiers[tiers.len() - 1].access_ns);
    let mut points = Vec::new();
    for n in 0..=POINTS {
        let access_ns = fastest * (slowest / fastest).powf(f64::from(n) / f64::from(POINTS)) * (1.0 + 1e-9);
        let mixes = cheapest(curve, tiers, &Demand { access_ns: Some(access_ns), ..*demand })?;
        points.extend(mixes.first().map(|mix| PricePoint { access_ns, price: mix.price }));
    }
    Ok(points)
}

fn page(document: &TierDocument) -> Page {
    let mark = |point: &PricePoint| PageMark {
        label: units::nanoseconds(point.access_ns),
        x: point.access_ns,
        y: point.price,
        words: grouped(point.price),
    };
    let chart = PageChart {
        title: "Cheapest price over the mean access time (logarithmic)".to_owned(),
        x: Some("Mean access time (ns)"),
        y: "Price",
        is_logarithmic: true,
        marks: document.curve.iter().map(mark).collect(),
    };
    let best = document.mixes.first();
    let answer = best.map_or("No mix does what is asked".to_owned(), |best| {
        let tiers: Vec<String> = best
            .tiers
            .iter()
            .map(|tier| format!("{} of {}", units::decimal_bytes(tier.bytes), tier.name))
            .collect();
        format!(
            "{}: {}{}, mean access {}",
            tiers.join(", "),
            document.currency,
            grouped(best.price),
            units::nanoseconds(best.access_ns)
        )
    });
    let mut tables: Vec<PageTable> = best.map(|best| tiers_table(document, best)).into_iter().collect();
    tables.push(mixes_table(document));
    Page {
        title: "plan tier".to_owned(),
        answer,
        tables,
        charts: vec![chart],
        notes: Vec::new(),
        formulas: sources(document.formulas),
    }
}

fn tiers_table(document: &TierDocument, best: &Mix) -> PageTable {
    let mut rows = table(
        format!("The cheapest mix (prices in {})", document.currency),
        &["Tier", ">Bytes", ">Accesses", ">Requests/s", ">Price", "Decided by", ">Active W"],
    );
    for tier in &best.tiers {
        rows.rows.push(vec![
            tier.name.clone(),
            units::decimal_bytes(tier.bytes),
            format!("{:.2} %", tier.share * 100.0),
            known(document.demand.rate, |rate| grouped(rate * tier.share)),
            grouped(tier.price),
            if tier.is_by_requests { "requests" } else { "bytes" }.to_owned(),
            known(tier.active_w, figure),
        ]);
    }
    without_empty_columns(rows)
}

fn mixes_table(document: &TierDocument) -> PageTable {
    let mut rows =
        table("Every choice of tiers that does what is asked", &["Tiers", ">Price", ">Mean access", "Bytes"]);
    for mix in &document.mixes {
        let names: Vec<&str> = mix.tiers.iter().map(|tier| tier.name.as_str()).collect();
        let bytes: Vec<String> = mix.tiers.iter().map(|tier| units::decimal_bytes(tier.bytes)).collect();
        rows.rows.push(vec![
            names.join(" + "),
            grouped(mix.price),
            units::nanoseconds(mix.access_ns),
            bytes.join(" + "),
        ]);
    }
    rows
}
