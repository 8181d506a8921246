//! `flashwright plan cost` and `plan power`.

use std::path::Path;

use planner::Formula;
use planner::efficiency::{self, Discrepancy, Efficiency, Operation, Performance, discrepancies};
use planner::prices::Prices;
use schemars::JsonSchema;
use serde::Serialize;
use sweep::report::{Page, PageChart, PageMark, PageTable};

use super::args::EfficiencyArgs;
use super::screen::{figure, grouped, known, sources, table, without_empty_columns};
use super::{prices, records, show};
use crate::failure::Failure;

/// `plan cost --json` and `plan power --json` (`flashwright.plan-efficiency/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct EfficiencyDocument {
    /// `flashwright.plan-efficiency/1`.
    schema: &'static str,
    /// What the price file is about.
    prices: String,
    /// Its currency.
    currency: String,
    /// How the products are operated.
    operation: Operation,
    /// The products that have a price, or of `plan power` watts.
    products: Vec<Efficiency>,
    /// Figures that differ from what the price file says that its sources print.
    discrepancies: Vec<Discrepancy>,
    /// What was computed how.
    formulas: &'static [Formula],
}

/// What products cost.
pub fn cost(args: &EfficiencyArgs) -> Result<(), Failure> {
    let document = document(args, "price", |product| product.price.is_some())?;
    let money = &document.currency;
    let best = best(&document.products, |p| p.iops_per_price);
    let answer = best.map_or("No product has IOPS.".to_owned(), |(name, value)| {
        format!("Most IOPS for the money: {name}, {} for each {money}", figure(value))
    });
    let mut efficiency = table(
        format!("{} (prices in {money})", document.prices),
        &["Product", ">Price", ">GB", ">MB/s/$", ">$/GB", ">IOPS/$", ">IOPS/GB", "As of"],
    );
    let mut years = table(
        format!("A year of operation, price over {} years, active {:.0} %", args.years, args.duty * 100.0),
        &["Product", ">$/year", ">of it electricity", ">$/GB/year", ">IOPS/($/year)"],
    );
    for p in &document.products {
        let row =
            [p.mb_per_s_per_price, p.price_per_gb, p.iops_per_price, p.iops_per_gb].map(|v| known(v, figure));
        let mut cells = vec![
            p.name.clone(),
            known(p.price, grouped),
            known(p.capacity_bytes, |b| figure(b / planner::prices::GB)),
        ];
        cells.extend(row);
        cells.push(p.date.clone());
        efficiency.rows.push(cells);
        let year =
            [p.price_per_year, p.electricity_per_year, p.price_per_gb_per_year, p.iops_per_price_per_year];
        years.rows.push(std::iter::once(p.name.clone()).chain(year.map(|v| known(v, figure))).collect());
    }
    let charts = chart("IOPS for the money", "IOPS/$", &document.products, |p| p.iops_per_price);
    finish(args, &document, "plan cost", answer, vec![efficiency, without_empty_columns(years)], charts)
}

/// What products draw.
pub fn power(args: &EfficiencyArgs) -> Result<(), Failure> {
    let document = document(args, "active_w", |product| product.active_w.is_some())?;
    let best = best(&document.products, |p| p.iops_per_w);
    let answer = best.map_or("No product has IOPS.".to_owned(), |(name, value)| {
        format!("Most IOPS for the power: {name}, {} for each watt", figure(value))
    });
    let mut efficiency = table(
        document.prices.clone(),
        &["Product", ">Active W", ">Idle W", ">IOPS/W", ">MB/s/W", ">kWh/year", ">electricity/year", "As of"],
    );
    for p in &document.products {
        let row =
            [p.active_w, p.idle_w, p.iops_per_w, p.mb_per_s_per_w, p.kwh_per_year, p.electricity_per_year];
        let mut cells: Vec<String> =
            std::iter::once(p.name.clone()).chain(row.map(|v| known(v, figure))).collect();
        cells.push(p.date.clone());
        efficiency.rows.push(cells);
    }
    let charts = chart("IOPS for the power", "IOPS/W", &document.products, |p| p.iops_per_w);
    finish(args, &document, "plan power", answer, vec![without_empty_columns(efficiency)], charts)
}

/// Reads prices and results, and computes the columns of the products that count, which have `key`.
fn document(
    args: &EfficiencyArgs,
    key: &str,
    counts: impl Fn(&planner::prices::Product) -> bool,
) -> Result<EfficiencyDocument, Failure> {
    let prices = prices(&args.prices)?;
    let energy = prices.energy.as_ref();
    let operation = Operation {
        years: args.years,
        duty: args.duty,
        pue: args.pue.or(energy.map(|e| e.pue)).unwrap_or(1.0),
        price_per_kwh: args.kwh_price.or(energy.map(|e| e.price_per_kwh)),
    };
    operation.check()?;
    let measured = measured(&args.results, &prices)?;
    let of = |product: &planner::prices::Product| {
        let figures = measured.iter().find(|(name, _)| *name == product.name);
        Efficiency::of(product, figures.map(|(_, figures)| figures.clone()).unwrap_or_default(), &operation)
    };
    let products: Vec<Efficiency> = prices.products.iter().filter(|p| counts(p)).map(of).collect();
    if products.is_empty() {
        let message = format!("--prices={}: no product has {key}", args.prices.display());
        return Err(Failure::invalid(message).hint(format!("add {key} to a product")));
    }
    Ok(EfficiencyDocument {
        schema: "flashwright.plan-efficiency/1",
        discrepancies: discrepancies(&prices, &products),
        prices: prices.name,
        currency: prices.currency,
        operation,
        products,
        formulas: &efficiency::FORMULAS,
    })
}

/// `NAME=RESULTS` for products of the price file.
fn measured(results: &[String], prices: &Prices) -> Result<Vec<(String, Performance)>, Failure> {
    let name_of = |given: &String| given.split_once('=').map(|(name, _)| name.to_owned());
    for (at, given) in results.iter().enumerate() {
        if results[..at].iter().any(|before| name_of(before) == name_of(given)) {
            return Err(Failure::invalid(format!("{given}: results of this product are given before"))
                .hint("one file or directory for each product"));
        }
    }
    let of = |given: &String| {
        let Some((name, path)) =
            given.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty())
        else {
            return Err(Failure::invalid(format!("{given}: is not NAME=RESULTS"))
                .hint("a product of the price file and where it was measured: nvme=results/"));
        };
        prices.product(given, name).map_err(|error| {
            Failure::invalid(format!("{given}: {name} is no product of the price file")).hint(error.hint())
        })?;
        Ok((name.to_owned(), records::performance(given, Path::new(path), name)?))
    };
    results.iter().map(of).collect()
}

fn best(products: &[Efficiency], of: impl Fn(&Efficiency) -> Option<f64>) -> Option<(&str, f64)> {
    let known = products.iter().filter_map(|p| Some((p.name.as_str(), of(p)?)));
    known.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn chart(
    title: &str,
    y: &'static str,
    products: &[Efficiency],
    of: impl Fn(&Efficiency) -> Option<f64>,
) -> Vec<PageChart> {
    let mark = |p: &Efficiency| {
        let y = of(p)?;
        Some(PageMark { label: p.name.clone(), x: 0.0, y, words: figure(y) })
    };
    let marks: Vec<PageMark> = products.iter().filter_map(mark).collect();
    let chart =
        PageChart { title: format!("{title} (logarithmic)"), x: None, y, is_logarithmic: true, marks };
    (!chart.marks.is_empty()).then_some(chart).into_iter().collect()
}

fn finish(
    args: &EfficiencyArgs,
    document: &EfficiencyDocument,
    title: &str,
    answer: String,
    mut tables: Vec<PageTable>,
    charts: Vec<PageChart>,
) -> Result<(), Failure> {
    let mut notes = Vec::new();
    for p in &document.products {
        let four = &p.performance;
        let all = [&four.sequential_read, &four.sequential_write, &four.random_read, &four.random_write];
        let measured: Vec<String> =
            all.into_iter().flatten().filter(|f| f.from != "price file").map(|f| f.from.clone()).collect();
        if !measured.is_empty() {
            notes.push(format!("{}: measured: {}", p.name, measured.join("; ")));
        }
        if document.operation.price_per_kwh.is_some() && p.kwh_per_year.is_none() {
            notes.push(format!(
                "{}: without active_w its electricity, and so a year, has no known price",
                p.name
            ));
        }
        if p.is_of_writes {
            notes.push(format!("{}: figures of writes stand where reads are not known", p.name));
        }
    }
    notes.extend(document.discrepancies.iter().map(|d| {
        let computed = figure(d.computed);
        format!("{}: the source prints {} for {}; its inputs give {computed}", d.product, d.printed, d.figure)
    }));
    for title in tables.iter_mut().flat_map(|table| &mut table.titles) {
        *title = title.replace('$', &document.currency);
    }
    let formulas = sources(document.formulas);
    let results = args.results.iter().filter_map(|given| Some(Path::new(given.split_once('=')?.1)));
    let inputs: Vec<&Path> = results.chain([args.prices.as_path()]).collect();
    show(
        &args.form,
        &inputs,
        document,
        &Page { title: title.to_owned(), answer, tables, charts, notes, formulas },
    )
}
