//! `flashwright plan checkpoint`: rules for the interval, their waste, the tiers to buy, and failures simulated.

use std::path::Path;

use planner::Formula;
use planner::checkpoint::hybrid::{Demand, Purchase, Target, alone, cheapest, hybrid, price};
use planner::checkpoint::levels::{self, Levels, Schedule};
use planner::checkpoint::simulate::{Failures, Pattern, Simulated, simulate};
use planner::checkpoint::{self, Machine, Rule, time};
use planner::prices::Product;
use schemars::JsonSchema;
use serde::Serialize;
use sweep::report::{Page, PageTable};

use super::args::CheckpointArgs;
use super::model::{CurvePoint, Model, Sensitivity, curve_chart, sensitivity_chart};
use super::records::Measured;
use super::screen::{NONE, grouped, known, sources, table, without_empty_columns};
use super::values::{Bandwidth, results};
use super::{in_prices, prices, records, show};
use crate::failure::Failure;

/// `plan checkpoint --json` (`flashwright.plan-checkpoint/1`). Times are seconds, rates bytes per second.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckpointDocument {
    /// `flashwright.plan-checkpoint/1`.
    schema: &'static str,
    /// What checkpoints and fails; null without a time between failures.
    machine: Option<Machine>,
    /// The period that the rest is about: the one that was asked for, or that of the least waste; of two levels the mean.
    period_s: Option<f64>,
    /// Its waste; of two levels to first order.
    waste: Option<f64>,
    /// What each rule gives for one level.
    rules: Vec<RuleResult>,
    /// Two levels, where failures lose the fast tier.
    levels: Option<LevelsResult>,
    /// The tiers that were described, and the slow tier alone.
    purchases: Vec<NamedPurchase>,
    /// Waste over the period.
    curve: Vec<CurvePoint>,
    /// The best period and its waste as one input changes.
    sensitivity: Vec<Sensitivity>,
    /// Bandwidths that come from results.
    measured: Vec<Measured>,
    /// What was computed how.
    formulas: Vec<Formula>,
}

/// What a rule gives.
#[derive(Debug, Serialize, JsonSchema)]
struct RuleResult {
    rule: Rule,
    /// Time of computing between the end of a checkpoint and the start of the next.
    compute_s: f64,
    /// From one checkpoint to the next.
    period_s: f64,
    /// Waste by the first-order formula.
    first_order_waste: f64,
    /// Whether that formula's assumptions hold.
    is_first_order: bool,
    /// Waste with exponential failures.
    waste: f64,
    /// Waste of simulated failures.
    simulated: Option<Simulated>,
}

/// Two levels.
#[derive(Debug, Serialize, JsonSchema)]
struct LevelsResult {
    levels: Levels,
    schedule: Schedule,
    /// Waste of simulated failures.
    simulated: Option<Simulated>,
}

/// Tiers with what they are called here.
#[derive(Debug, Serialize, JsonSchema)]
struct NamedPurchase {
    /// `hybrid`, `slow alone`, `cheapest hybrid`, `cheapest slow alone`.
    name: &'static str,
    #[serde(flatten)]
    purchase: Purchase,
    /// Share of the time that goes into checkpoints.
    io_share: f64,
    /// Share of the time that checkpoints and failures waste; null without a time between failures.
    waste: Option<f64>,
    /// The price of both tiers.
    price: Option<f64>,
}

/// Plans checkpoints.
pub fn checkpoint(args: &CheckpointArgs) -> Result<(), Failure> {
    let rates = Rates::read(args)?;
    let machine = machine(args, &rates)?;
    let interval = args.interval.map(|interval| interval.as_secs_f64());
    if let (Some(period), Some(machine)) = (interval, machine)
        && period <= machine.write_s
    {
        let message = format!("--interval={}: a checkpoint takes {}", time(period), time(machine.write_s));
        return Err(Failure::invalid(message).hint(format!("above {}", time(machine.write_s))));
    }
    let mut formulas = Vec::new();
    if machine.is_some() {
        formulas.extend(checkpoint::FORMULAS);
    }
    let levels = machine.map(|machine| two_levels(args, &rates, &machine)).transpose()?.flatten();
    if levels.is_some() {
        formulas.push(levels::FORMULA);
    }
    let model = machine.map(|machine| Model { machine, levels: levels.as_ref().map(|two| two.levels) });
    let point = model.map(|model| model.at(interval)).transpose()?;
    let period_s = point.map(|point| point.period_s).or(interval);
    let (purchases, currency) = purchases(args, &rates, period_s, levels.as_ref())?;
    if machine.is_none() && purchases.is_empty() {
        return Err(Failure::invalid("plan checkpoint needs --mtbf, or tiers to compare").hint(
            "the time between failures, such as --mtbf 24h; or --slow, --alone or --prices beside --interval",
        ));
    }
    let sizes = [
        ("keep", args.keep > 0),
        ("fast-capacity", args.fast_capacity.is_some()),
        ("slow-capacity", args.slow_capacity.is_some()),
    ];
    if let (true, Some((flag, _))) = (purchases.is_empty(), sizes.iter().find(|(_, is_given)| *is_given)) {
        return Err(Failure::invalid(format!("--{flag} needs tiers"))
            .hint("--size with --slow, --alone or --prices; or leave it out"));
    }
    if !purchases.is_empty() {
        formulas.extend(checkpoint::hybrid::FORMULAS);
    }
    let document = CheckpointDocument {
        schema: "flashwright.plan-checkpoint/1",
        rules: machine.map(|m| rules(args, &m, interval)).transpose()?.unwrap_or_default(),
        curve: model.map(|m| m.curve()).transpose()?.unwrap_or_default(),
        sensitivity: model.map(|m| m.sensitivity()).unwrap_or_default(),
        machine,
        period_s,
        waste: point.map(|point| point.waste),
        levels,
        purchases,
        measured: rates.measured,
        formulas,
    };
    let inputs: Vec<&Path> =
        results([&args.fast, &args.slow, &args.alone]).chain(args.prices.as_deref()).collect();
    show(&args.form, &inputs, &document, &screen(&document, &currency))
}

/// The bandwidths, as given or as measured.
struct Rates {
    fast: Option<f64>,
    slow: Option<f64>,
    alone: Option<f64>,
    measured: Vec<Measured>,
}

impl Rates {
    fn read(args: &CheckpointArgs) -> Result<Self, Failure> {
        let mut measured = Vec::new();
        let mut of =
            |flag, given: &Option<Bandwidth>| records::rate(flag, given.as_ref(), true, &mut measured);
        Ok(Self {
            fast: of("fast", &args.fast)?,
            slow: of("slow", &args.slow)?,
            alone: of("alone", &args.alone)?,
            measured,
        })
    }
}

/// What checkpoints and fails; None without a time between failures, or if only tiers are searched.
fn machine(args: &CheckpointArgs, rates: &Rates) -> Result<Option<Machine>, Failure> {
    let needs = |what: &str, hint: &str| Failure::invalid(what.to_owned()).hint(hint.to_owned());
    if args.mtbf.is_none() && args.interval.is_none() {
        return Err(needs(
            "plan checkpoint needs --mtbf or --interval",
            "the time between failures of the whole machine, such as --mtbf 24h",
        ));
    }
    let by_size = args.size.zip(rates.fast).map(|(size, fast)| size as f64 / fast);
    let write_s = args.write_time.map(|time| time.as_secs_f64()).or(by_size);
    let Some(write_s) = write_s else {
        return match args.target_waste.is_some() || args.size.is_some() && rates.alone.is_some() {
            true => Ok(None),
            false => Err(needs(
                "plan checkpoint needs --write-time, or --size and --fast",
                "how long a checkpoint takes: --write-time 5m, or --size 2TB --fast 10GB/s",
            )),
        };
    };
    let machine = machine_of(args, write_s);
    machine.map(|machine| machine.check()).transpose().map_err(|error| {
        let failure = Failure::from(error);
        // The time that is too long may come of a size or a rate without its unit.
        match (args.write_time, args.size, rates.fast) {
            (None, Some(size), Some(fast)) => failure.details([format!(
                "--size={} by --fast={} is a checkpoint of {}",
                units::bytes(size),
                units::bandwidth(fast),
                time(write_s)
            )]),
            _ => failure,
        }
    })?;
    Ok(machine)
}

/// The machine that the flags describe, with checkpoints of so many seconds.
fn machine_of(args: &CheckpointArgs, write_s: f64) -> Option<Machine> {
    Some(Machine {
        mtbf_s: args.mtbf?.as_secs_f64(),
        write_s,
        restart_s: args.restart.map_or(write_s, |restart| restart.as_secs_f64()),
        downtime_s: args.downtime.as_secs_f64(),
        overlap: args.overlap,
    })
}

/// How failures are drawn; None where nothing is simulated.
fn failures(args: &CheckpointArgs) -> Result<Option<Failures>, Failure> {
    let range = 0.2..=10.0;
    match args.weibull {
        _ if !args.simulate => Ok(None),
        _ if args.runs < 2 => Err(Failure::invalid(format!("--runs={}: too few for an interval", args.runs))
            .hint("2 at least; 100000 by default")),
        None => Ok(Some(Failures::Exponential)),
        Some(shape) if range.contains(&shape) => Ok(Some(Failures::Weibull(shape))),
        Some(shape) => Err(Failure::invalid(format!("--weibull={shape}: is out of range"))
            .hint("0.2 to 10; below 1 failures come in clusters, as they do in logs (0.5 to 0.8)")),
    }
}

fn simulated(args: &CheckpointArgs, pattern: &Pattern) -> Result<Option<Simulated>, Failure> {
    let Some(failures) = failures(args)? else { return Ok(None) };
    let seen = simulate(pattern, failures, args.runs, args.seed);
    seen.map(Some).ok_or_else(|| {
        Failure::invalid("--simulate: the machine fails so often that its runs do not end")
            .hint("a longer --mtbf, a shorter --interval, or fewer --runs")
    })
}

fn rules(
    args: &CheckpointArgs,
    machine: &Machine,
    interval: Option<f64>,
) -> Result<Vec<RuleResult>, Failure> {
    let all = [Rule::Young, Rule::Daly, Rule::Aupy, Rule::Exact].map(|rule| (rule, machine.period(rule)));
    let given = interval.map(|period| (Rule::Given, Some(period)));
    let of = |(rule, period): (Rule, Option<f64>)| {
        let period_s = period?;
        let result = |simulated| RuleResult {
            rule,
            compute_s: period_s - machine.write_s,
            period_s,
            first_order_waste: machine.first_order_waste(period_s),
            is_first_order: machine.is_first_order(period_s),
            waste: machine.waste(period_s),
            simulated,
        };
        Some(simulated(args, &Pattern::of(machine, period_s)).map(result))
    };
    all.into_iter().chain(given).filter_map(of).collect()
}

fn two_levels(
    args: &CheckpointArgs,
    rates: &Rates,
    machine: &Machine,
) -> Result<Option<LevelsResult>, Failure> {
    let Some(((slow_share, size), slow)) = args.slow_failures.zip(args.size).zip(rates.slow) else {
        return Ok(None);
    };
    if !(0.0..1.0).contains(&args.drain_overlap) {
        let message = format!("--drain-overlap={}: is not a share below 1", args.drain_overlap);
        return Err(Failure::invalid(message).hint("at 1 a drain costs nothing, and every checkpoint drains"));
    }
    if args.overlap > 0.0 {
        let message = format!("--overlap={}: two levels wait for their fast checkpoints", args.overlap);
        return Err(Failure::invalid(message).hint("leave out --overlap, or --slow-failures"));
    }
    let drain_s = size as f64 / slow;
    let levels = Levels {
        mtbf_s: machine.mtbf_s,
        slow_share,
        fast_write_s: machine.write_s,
        slow_write_s: (1.0 - args.drain_overlap) * drain_s,
        fast_restart_s: machine.restart_s,
        slow_restart_s: drain_s,
        downtime_s: machine.downtime_s,
    };
    let schedule = levels.schedule(args.interval.map(|interval| interval.as_secs_f64()))?;
    let simulated = simulated(args, &Pattern::of_levels(&levels, &schedule))?;
    Ok(Some(LevelsResult { levels, schedule, simulated }))
}

/// The tiers that the flags describe and ask for, and the currency of their prices.
fn purchases(
    args: &CheckpointArgs,
    rates: &Rates,
    period_s: Option<f64>,
    levels: Option<&LevelsResult>,
) -> Result<(Vec<NamedPurchase>, String), Failure> {
    let Some(size) = args.size else { return Ok((Vec::new(), String::new())) };
    let prices = args.prices.as_deref().map(|path| Ok::<_, Failure>((path, prices(path)?))).transpose()?;
    let products = |()| -> Result<Option<(&Product, &Product)>, Failure> {
        let Some((path, prices)) = &prices else { return Ok(None) };
        let fast = prices.product("--fast-product", &args.fast_product);
        let slow = prices.product("--slow-product", &args.slow_product);
        Ok(Some((in_prices(path, fast)?, in_prices(path, slow)?)))
    };
    let products = products(())?;
    let demand = Demand {
        keep: args.keep,
        slow_capacity_bytes: args.slow_capacity.map_or(0.0, |bytes| bytes as f64),
        overlap: args.overlap,
        ..Demand::new(size as f64, period_s.unwrap_or(0.0))
    };
    let mut all = Vec::new();
    if let (Some(fast), Some(_)) = (rates.fast, period_s)
        && (rates.slow.is_some() || rates.alone.is_some() || products.is_some())
    {
        let (drain_every, drain_overlap) =
            levels.map_or((1, 1.0), |two| (two.schedule.slow_every, args.drain_overlap));
        let demand = Demand { drain_every, drain_overlap, ..demand };
        all.push((
            "hybrid",
            hybrid(&demand, fast, rates.slow, args.fast_capacity.map(|bytes| bytes as f64))?,
        ));
    }
    if let Some(bandwidth) = rates.alone {
        all.push((
            "slow alone",
            alone(&Demand { period_s: own_period(args, bandwidth)?, ..demand }, bandwidth)?,
        ));
    }
    if let (Some((fast, slow)), Some(path)) = (products, &args.prices) {
        for (_, purchase) in &mut all {
            *purchase = in_prices(path, purchase.priced(fast, slow))?;
        }
        if let Some((waste, mtbf)) = args.target_waste.zip(args.mtbf) {
            let target = Target {
                waste,
                mtbf_s: mtbf.as_secs_f64(),
                downtime_s: args.downtime.as_secs_f64(),
                restart_s: args.restart.map(|restart| restart.as_secs_f64()),
                overlap: args.overlap,
            };
            in_prices(path, price(fast, 1.0, 1.0).and(price(slow, 1.0, 1.0)))?;
            let (mix, single) = cheapest(&demand, &target, fast, slow)?;
            all.extend([("cheapest hybrid", mix), ("cheapest slow alone", single)]);
        }
    }
    let named = |(name, purchase): (&'static str, Purchase)| NamedPurchase {
        name,
        io_share: purchase.io_share(),
        waste: match levels.filter(|_| name == "hybrid") {
            Some(two) => Some(two.schedule.waste),
            None => machine_of(args, purchase.write_s).map(|machine| machine.waste(purchase.period_s)),
        },
        price: purchase.price(),
        purchase,
    };
    Ok((all.into_iter().map(named).collect(), prices.map(|(_, prices)| prices.currency).unwrap_or_default()))
}

/// The period of a slow tier alone: the one that was asked for, or the best one for its own checkpoints.
fn own_period(args: &CheckpointArgs, bandwidth: f64) -> Result<f64, Failure> {
    if let Some(interval) = args.interval {
        return Ok(interval.as_secs_f64());
    }
    let write_s = args.size.unwrap_or(0) as f64 / bandwidth;
    let Some(machine) = machine_of(args, write_s) else { return Ok(0.0) };
    machine.check()?;
    Ok(machine.exact_period())
}

fn screen(document: &CheckpointDocument, currency: &str) -> Page {
    let mut screen = Page {
        title: "plan checkpoint".to_owned(),
        answer: answer(document, currency),
        formulas: sources(&document.formulas),
        ..Page::default()
    };
    if let Some(machine) = &document.machine {
        screen.tables.push(rules_table(document, machine));
        screen.notes.extend(notes(document));
    }
    screen.notes.extend(records::notes(&document.measured));
    if let Some(levels) = &document.levels {
        screen.tables.push(levels_table(levels));
    }
    if !document.purchases.is_empty() {
        screen.tables.push(purchases_table(&document.purchases, currency));
    }
    if document.machine.is_some() {
        screen.charts.extend([curve_chart(&document.curve), sensitivity_chart(&document.sensitivity)]);
    }
    screen
}

fn answer(document: &CheckpointDocument, currency: &str) -> String {
    let cheapest = document.purchases.iter().filter(|p| p.name.starts_with("cheapest"));
    if let Some(best) = cheapest.min_by(|a, b| a.price.unwrap_or(0.0).total_cmp(&b.price.unwrap_or(0.0))) {
        return format!(
            "The {} that wastes {} costs {currency}{}, with a checkpoint every {}",
            best.name,
            known(best.waste, units::percent),
            known(best.price, grouped),
            time(best.purchase.period_s)
        );
    }
    if let (Some(machine), Some(period), Some(waste)) = (document.machine, document.period_s, document.waste)
    {
        let levels = document.levels.as_ref();
        let slow = levels
            .map(|two| format!(", one in {} also to the slow tier", two.schedule.slow_every))
            .unwrap_or_default();
        return format!(
            "A checkpoint every {}, of {}{slow}: {} of the time is wasted",
            time(period),
            time(machine.write_s),
            units::percent(waste)
        );
    }
    let of = |p: &NamedPurchase| {
        format!(
            "{} {}, with a checkpoint every {}",
            p.name,
            units::percent(p.waste.unwrap_or(p.io_share)),
            time(p.purchase.period_s)
        )
    };
    let rows: Vec<String> = document.purchases.iter().map(of).collect();
    let what = match document.purchases.iter().all(|p| p.waste.is_some()) {
        true => "is wasted",
        false => "goes into checkpoints",
    };
    format!("Share of the time that {what}: {}", rows.join(", "))
}

fn notes(document: &CheckpointDocument) -> Vec<String> {
    let mut notes = Vec::new();
    let spent = |m: &Machine| m.write_s + m.restart_s + m.downtime_s;
    if let Some(machine) = document.machine.filter(|m| m.mtbf_s < spent(m)) {
        notes.push(format!(
            "the MTBF of {} is shorter than a checkpoint and its recovery ({}); half of the time is left from an MTBF of {} on",
            time(machine.mtbf_s),
            time(spent(&machine)),
            time(machine.mtbf_for(0.5))
        ));
    }
    if document.rules.iter().any(|rule| !rule.is_first_order) {
        notes.push(
            "the first-order waste of the rules marked (!) is off by more than 2 %: failures are too frequent for it"
                .to_owned(),
        );
    }
    if let Some(seen) = document.rules.iter().find_map(|rule| rule.simulated) {
        notes.push(format!(
            "simulated: {} runs of {} of work, {} failures in all",
            grouped(f64::from(seen.runs)),
            time(seen.work_s),
            grouped(seen.failures as f64)
        ));
    }
    notes
}

fn against(simulated: Option<Simulated>, formula: f64) -> [String; 2] {
    match simulated {
        None => [NONE.to_owned(), NONE.to_owned()],
        Some(seen) => [
            format!("{:.2} % ± {:.2}", seen.waste * 100.0, seen.half_width * 100.0),
            format!("{:+.1} %", (formula / seen.waste - 1.0) * 100.0),
        ],
    }
}

/// A waste to first order, marked where its assumptions do not hold.
fn first_order(waste: f64, holds: bool) -> String {
    format!("{:.2} %{}", waste * 100.0, if holds { "" } else { " (!)" })
}

fn rules_table(document: &CheckpointDocument, machine: &Machine) -> PageTable {
    let mut rows = table(
        format!(
            "Rules{}, MTBF {}, checkpoint {}",
            if document.levels.is_some() { " for the fast tier alone, if no failure lost it" } else { "" },
            time(machine.mtbf_s),
            time(machine.write_s)
        ),
        &[
            "Rule",
            ">Compute",
            ">Period",
            ">Waste",
            ">First order",
            ">Simulated",
            ">Waste off by",
            ">First order off by",
        ],
    );
    for rule in &document.rules {
        let [seen, exact_off] = against(rule.simulated, rule.waste);
        let [_, first_off] = against(rule.simulated, rule.first_order_waste);
        rows.rows.push(vec![
            rule.rule.words().to_owned(),
            time(rule.compute_s),
            time(rule.period_s),
            format!("{:.2} %", rule.waste * 100.0),
            first_order(rule.first_order_waste, rule.is_first_order),
            seen,
            exact_off,
            first_off,
        ]);
    }
    without_empty_columns(rows)
}

fn levels_table(result: &LevelsResult) -> PageTable {
    let (levels, schedule) = (&result.levels, &result.schedule);
    let caption = format!("Two levels: {} of failures lose the fast tier", units::percent(levels.slow_share));
    let mut rows = table(
        caption,
        &["Compute", "Period", "Slow every", ">One in", ">Waste, first order", ">Simulated", ">Off by"],
    );
    let [seen, off] = against(result.simulated, schedule.waste);
    rows.rows.push(vec![
        time(schedule.fast_interval_s),
        time(schedule.period_s),
        time(schedule.period_s * f64::from(schedule.slow_every)),
        schedule.slow_every.to_string(),
        first_order(schedule.waste, schedule.is_first_order),
        seen,
        off,
    ]);
    without_empty_columns(rows)
}

fn purchases_table(purchases: &[NamedPurchase], currency: &str) -> PageTable {
    let caption = match currency {
        "" => "Tiers".to_owned(),
        currency => format!("Tiers (prices in {currency}, the dearer of bandwidth and capacity)"),
    };
    let mut rows = table(
        caption,
        &[
            "",
            ">Period",
            ">Checkpoint",
            ">Compute",
            ">In I/O",
            ">Waste",
            ">Fast",
            ">Capacity",
            ">Slow",
            ">Capacity",
            ">Fast price",
            ">Slow price",
            ">Price",
            ">More compute",
        ],
    );
    // Useful work, where it is known what failures leave of it.
    let useful = |p: &NamedPurchase| 1.0 - p.waste.unwrap_or(p.io_share);
    let least = purchases.iter().map(useful).fold(f64::INFINITY, f64::min);
    for p in purchases {
        let tiers = &p.purchase;
        let positive = |value: f64, write: &dyn Fn(f64) -> String| match value {
            0.0 => NONE.to_owned(),
            value => write(value),
        };
        let more = useful(p) / least - 1.0;
        rows.rows.push(vec![
            p.name.to_owned(),
            time(tiers.period_s),
            time(tiers.write_s),
            time(tiers.compute_s),
            units::percent(p.io_share),
            known(p.waste, units::percent),
            positive(tiers.fast_bandwidth, &units::bandwidth),
            positive(tiers.fast_capacity, &units::decimal_bytes),
            units::bandwidth(tiers.slow_bandwidth),
            positive(tiers.slow_capacity, &units::decimal_bytes),
            known(tiers.fast_price.filter(|_| tiers.fast_bandwidth > 0.0), grouped),
            known(tiers.slow_price, grouped),
            known(p.price, grouped),
            if more > 1e-9 { units::percent(more) } else { NONE.to_owned() },
        ]);
    }
    without_empty_columns(rows)
}
