//! `flashwright plan endurance`.

use std::path::Path;

use planner::Formula;
use planner::checkpoint::time;
use planner::endurance::{self, Life, Wear, Worn, YEAR_S, between_bit_errors};
use planner::smart::Smart;
use schemars::JsonSchema;
use serde::Serialize;
use sweep::report::{Page, PageChart, PageMark, PageTable};

use super::args::EnduranceArgs;
use super::records::Measured;
use super::screen::{NONE, figure, known, sources, table};
use super::values::{Amplification, Bandwidth, results};
use super::{in_prices, prices, read, records, show};
use crate::failure::Failure;

/// `plan endurance --json` (`flashwright.plan-endurance/1`). Times are seconds, rates bytes per second.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EnduranceDocument {
    /// `flashwright.plan-endurance/1`.
    schema: &'static str,
    /// The drive and its load; null where they are not known.
    wear: Option<Wear>,
    /// How long a new one lasts.
    life: Option<Life>,
    /// Seconds that the drive of `smart` lasts, of which a part of the life is used.
    left_s: Option<f64>,
    /// How long it lasts with other write amplifications.
    by_write_amplification: Vec<Amplified>,
    /// Time from one uncorrectable bit to the next.
    between_bit_errors_s: Option<f64>,
    /// What the drive's own counters come to.
    smart: Option<Worn>,
    /// Rates, and a write amplification, that come from results.
    measured: Vec<Measured>,
    /// What was computed how.
    formulas: &'static [Formula],
}

/// Life with a write amplification.
#[derive(Debug, Serialize, JsonSchema)]
struct Amplified {
    write_amplification: f64,
    life_s: f64,
}

/// Plans endurance.
pub fn endurance(args: &EnduranceArgs) -> Result<(), Failure> {
    let given = Given::read(args)?;
    let wear = given.wear(args)?;
    let life = wear.map(|wear| wear.life()).transpose()?;
    let between_bit_errors_s = match given.uber.zip(given.read_rate) {
        Some((uber, rate)) => Some(between_bit_errors(uber, rate)?),
        None if given.read_rate.is_some() => {
            return Err(Failure::invalid("plan endurance needs --uber beside --read-rate")
                .hint("of the drive's data sheet, such as 1e-17, or --prices and --product"));
        }
        None => None,
    };
    let used = given.smart.as_ref().and_then(|smart| smart.counters.percentage_used);
    let document = EnduranceDocument {
        schema: "flashwright.plan-endurance/1",
        wear,
        life,
        left_s: life.zip(used).map(|(life, used)| life.life_s * (1.0 - used / 100.0).max(0.0)),
        by_write_amplification: wear.map(|wear| amplified(&wear)).transpose()?.unwrap_or_default(),
        between_bit_errors_s,
        smart: given.smart,
        measured: given.measured,
        formulas: &endurance::FORMULAS,
    };
    if document.life.is_none() && document.between_bit_errors_s.is_none() && document.smart.is_none() {
        return Err(Failure::invalid("plan endurance needs a drive and its load")
            .hint("--capacity, --pe-cycles and --write-rate; or --uber and --read-rate; or --smart FILE"));
    }
    let read = results([&args.write_rate, &args.read_rate]);
    let amplified = match &args.write_amplification {
        Some(Amplification::Results(path)) => Some(path.as_path()),
        _ => None,
    };
    let inputs: Vec<&Path> =
        read.chain(amplified).chain(args.smart.as_deref()).chain(args.prices.as_deref()).collect();
    show(&args.form, &inputs, &document, &page(&document))
}

/// What is known of the drive and its load, from flags, the price file and the drive itself.
struct Given {
    capacity: Option<f64>,
    pe_cycles: Option<f64>,
    write_rate: Option<f64>,
    uber: Option<f64>,
    read_rate: Option<f64>,
    write_amplification: Option<f64>,
    smart: Option<Worn>,
    measured: Vec<Measured>,
}

impl Given {
    fn read(args: &EnduranceArgs) -> Result<Self, Failure> {
        let product = match args.prices.as_deref().zip(args.product.as_deref()) {
            None => None,
            Some((path, name)) => {
                let prices = prices(path)?;
                Some(in_prices(path, prices.product("--product", name).cloned())?)
            }
        };
        let smart = args.smart.as_deref().map(|path| {
            let parsed = Smart::parse(&read(path)?);
            parsed.map_err(|error| {
                Failure::invalid(format!("--smart={}: {error}", path.display())).hint(error.hint())
            })
        });
        let smart = smart.transpose()?;
        let of_product = |key: fn(&planner::prices::Product) -> Option<f64>| product.as_ref().and_then(key);
        let pe_cycles = args.pe_cycles.or(of_product(|p| p.pe_cycles));
        let smart = smart.map(|smart| Worn::of(smart, pe_cycles));
        let counted = smart.as_ref().and_then(|smart| smart.write_bytes_per_s);
        let mut measured = Vec::new();
        let mut rate = |flag, given: &Option<Bandwidth>, is_of_writes| {
            records::rate(flag, given.as_ref(), is_of_writes, &mut measured)
        };
        let write_rate = rate("write-rate", &args.write_rate, true)?.or(counted);
        let read_rate = rate("read-rate", &args.read_rate, false)?;
        let write_amplification = records::amplification(args.write_amplification.as_ref(), &mut measured)?;
        Ok(Self {
            capacity: args
                .capacity
                .map(|bytes| bytes as f64)
                .or(of_product(|p| p.capacity_gb).map(|gb| gb * planner::prices::GB))
                .or(smart.as_ref().and_then(|smart| smart.counters.capacity_bytes)),
            pe_cycles,
            write_rate,
            uber: args.uber.or(of_product(|p| p.uber)),
            read_rate,
            write_amplification,
            smart,
            measured,
        })
    }

    /// The drive and its load, if all of it is known.
    fn wear(&self, args: &EnduranceArgs) -> Result<Option<Wear>, Failure> {
        let parts = [
            ("--capacity", self.capacity),
            ("--pe-cycles", self.pe_cycles),
            ("--write-rate", self.write_rate),
        ];
        let lacking: Vec<&str> =
            parts.iter().filter(|(_, value)| value.is_none()).map(|(flag, _)| *flag).collect();
        if !lacking.is_empty() && args.write_rate.is_some() {
            return Err(Failure::invalid(format!(
                "plan endurance needs {} beside --write-rate",
                lacking.join(" and ")
            ))
            .hint("of the drive's data sheet, or --prices and --product"));
        }
        let [Some(capacity_bytes), Some(pe_cycles), Some(write_bytes_per_s)] = parts.map(|(_, value)| value)
        else {
            return Ok(None);
        };
        let counted =
            self.smart.as_ref().and_then(|smart| smart.write_amplification).filter(|ratio| *ratio >= 1.0);
        Ok(Some(Wear {
            capacity_bytes,
            pe_cycles,
            write_amplification: self.write_amplification.or(counted).unwrap_or(1.0),
            write_bytes_per_s,
            duty: args.duty,
            years: args.years,
        }))
    }
}

fn amplified(wear: &Wear) -> Result<Vec<Amplified>, Failure> {
    let mut all = vec![1.0, 1.5, 2.0, 3.0, 5.0, 10.0, wear.write_amplification];
    all.sort_by(f64::total_cmp);
    all.dedup();
    let of = |write_amplification: f64| {
        let life = Wear { write_amplification, ..*wear }.life()?;
        Ok(Amplified { write_amplification, life_s: life.life_s })
    };
    all.into_iter().map(of).collect()
}

fn page(document: &EnduranceDocument) -> Page {
    let mut tables = Vec::new();
    if let Some((wear, life)) = document.wear.zip(document.life) {
        tables.push(life_table(&wear, &life));
    }
    tables.extend(document.smart.as_ref().map(smart_table));
    let mark = |a: &Amplified| PageMark {
        label: figure(a.write_amplification),
        x: a.write_amplification,
        y: a.life_s / YEAR_S,
        words: time(a.life_s),
    };
    let chart = PageChart {
        title: "Life over write amplification".to_owned(),
        x: Some("Write amplification"),
        y: "Years",
        is_logarithmic: false,
        marks: document.by_write_amplification.iter().map(mark).collect(),
    };
    Page {
        title: "plan endurance".to_owned(),
        answer: answer(document),
        tables,
        charts: (!chart.marks.is_empty()).then_some(chart).into_iter().collect(),
        notes: records::notes(&document.measured).collect(),
        formulas: sources(document.formulas),
    }
}

fn answer(document: &EnduranceDocument) -> String {
    let mut parts = Vec::new();
    match (&document.life, document.left_s) {
        (Some(life), Some(left)) => parts.push(format!(
            "a new drive lasts {} at this load, and this one, as worn as it is, {}",
            time(life.life_s),
            time(left)
        )),
        (Some(life), None) => parts.push(format!("the flash lasts {}", time(life.life_s))),
        (None, _) => {}
    }
    if let Some(seconds) = document.between_bit_errors_s {
        parts.push(format!("a bit is read wrong every {}", time(seconds)));
    }
    let own = document.smart.as_ref().filter(|_| document.life.is_none());
    if let Some((left, range)) = own.and_then(|smart| smart.left_s.zip(smart.left_range_s)) {
        parts.push(format!("by its own count {} of power-on time are left ({})", time(left), between(range)));
    }
    let text =
        if parts.is_empty() { "the drive has counted no wear yet".to_owned() } else { parts.join("; ") };
    text[..1].to_uppercase() + &text[1..]
}

/// A range in words: its upper end may be unknown.
fn between((least, most): (f64, Option<f64>)) -> String {
    match most {
        Some(most) => format!("{} to {}", time(least), time(most)),
        None => format!("{} or more", time(least)),
    }
}

fn life_table(wear: &Wear, life: &Life) -> PageTable {
    let mut rows = table("Wear", &["", ">"]);
    for (name, value) in [
        ("capacity", units::decimal_bytes(wear.capacity_bytes)),
        ("P/E cycles", figure(wear.pe_cycles)),
        ("write amplification", figure(wear.write_amplification)),
        ("write rate", units::bandwidth(wear.write_bytes_per_s)),
        ("share of the time", units::percent(wear.duty)),
        ("bytes that can be written", units::decimal_bytes(life.writable_bytes)),
        ("life of a new drive", time(life.life_s)),
        ("drive writes a day", format!("{} for {} years", figure(life.drive_writes_per_day), wear.years)),
        ("write amplification to last them", figure(life.largest_write_amplification)),
    ] {
        rows.rows.push(vec![name.to_owned(), value]);
    }
    rows
}

fn smart_table(worn: &Worn) -> PageTable {
    let counters = &worn.counters;
    let mut rows = table(format!("SMART: {}", counters.model.as_deref().unwrap_or("the drive")), &["", ">"]);
    let percent = |percent: f64| format!("{percent:.0} %");
    for (name, value) in [
        ("written", known(counters.written_bytes, units::decimal_bytes)),
        ("read", known(counters.read_bytes, units::decimal_bytes)),
        ("power-on time", known(counters.power_on_s, time)),
        ("life used", known(counters.percentage_used, percent)),
        ("spare blocks left", known(counters.available_spare, percent)),
        ("mean write rate", known(worn.write_bytes_per_s, units::bandwidth)),
        ("power-on time left at that rate", known(worn.left_s, time)),
        ("as wear is counted in whole percents", worn.left_range_s.map_or(NONE.to_owned(), between)),
        ("bytes that can be written", known(worn.writable_bytes, units::decimal_bytes)),
        ("write amplification, from P/E cycles", known(worn.write_amplification, figure)),
    ] {
        rows.rows.push(vec![name.to_owned(), value]);
    }
    rows
}
