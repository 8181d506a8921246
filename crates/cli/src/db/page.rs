//! The documents of `db` as answers, tables and charts, for a terminal and for a page.

use database::ask::Temperature;
use database::dataset::Workload;
use database::engine::EngineFacts;
use database::figures::{Contest, QueryFigures};
use database::query::Query;
use database::stream::Latencies;
use measure::decide::Answer;
use sweep::report::{Page, PageChart, PageMark, PageTable};

use super::document::{
    DbAdviseDocument, DbCompareDocument, DbIngestDocument, DbLoadDocument, DbRunDocument, DbStreamDocument,
};
use super::{load, plans};
use crate::plan::screen::{NONE, figure, grouped, known, table};

/// What is computed how.
const FORMULAS: [[&str; 3]; 4] = [
    ["Time", "from the request until the last row", "DASH, Tables 10 and 11; medians over blocks"],
    [
        "I/O time",
        "SQLite: time - CPU time - time in the run queue of the thread that asks; PostgreSQL: the server's waits for reads",
        "CLOCK_THREAD_CPUTIME_ID, /proc/thread-self/schedstat; track_io_timing",
    ],
    [
        "Random share",
        "bytes read in runs below 64 KiB / bytes read, read-ahead included",
        "mincore(2) after a cold query",
    ],
    ["Speed-up", "time on the last tier / time, within blocks", "docs/methodology.md"],
];

fn page(title: &str, answer: String, tables: Vec<PageTable>, notes: Vec<String>) -> Page {
    Page { title: title.to_owned(), answer, tables, charts: Vec::new(), notes, formulas: FORMULAS.to_vec() }
}

fn settings(engine: &EngineFacts) -> String {
    let settings: Vec<_> = engine.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{}: {}", engine.version, settings.join(", "))
}

/// Of `db load`.
pub fn of_load(document: &DbLoadDocument) -> Page {
    let loaded = &document.loaded;
    let rows: u64 = loaded.tables.iter().map(|table| table.rows).sum();
    let seconds: f64 = loaded.tables.iter().map(|table| table.load_s + table.index_s).sum();
    let size = units::bytes(loaded.size_bytes);
    let path =
        document.path.as_ref().map_or("the server's database".into(), |path| path.display().to_string());
    let answer = match loaded.was_complete {
        true => format!("{path} is complete: {size}"),
        false => format!(
            "{path}: {} rows in {} s, {size}",
            grouped(rows as f64),
            figure(seconds + loaded.finish_s)
        ),
    };
    let tables = if loaded.tables.is_empty() { Vec::new() } else { vec![load::tables(document)] };
    let formulas =
        vec![["µs a row", "time of making and storing a table's rows / rows, without indexes", "this load"]];
    Page { formulas, ..page("db load", answer, tables, vec![settings(&document.engine)]) }
}

/// Of `db run`.
pub fn of_run(document: &DbRunDocument) -> Page {
    let titles = [
        "Query",
        "",
        ">Time (ms)",
        ">I/O (ms)",
        ">CPU (ms)",
        ">Rows",
        ">Blocks read",
        ">Read",
        ">Random share",
        "Hash",
    ];
    let mut sheet = table("Each query cold, then warm with the same key", &titles);
    let mut plans = table("Plans", &["Query", "Steps"]);
    for query in &document.queries {
        let (cost, pages) = (&query.asked.cost, query.asked.pages);
        let ms = |ns: Option<u64>| known(ns.map(|ns| ns as f64 / 1e6), figure);
        sheet.rows.push(vec![
            query.query.word().to_owned(),
            query.temperature.word().to_owned(),
            ms(Some(cost.elapsed_ns)),
            ms(cost.io_ns),
            ms(cost.cpu_ns),
            grouped(query.asked.answer.rows as f64),
            known(cost.blocks_read.map(|blocks| blocks as f64), grouped),
            pages.map_or(NONE.to_owned(), |pages| units::bytes(pages.bytes)),
            known(pages.and_then(|pages| pages.random_share()), units::percent),
            format!("{:016x}", query.asked.answer.hash),
        ]);
        if let Some(plan) = &query.plan {
            plans.rows.extend(plan.lines().map(|step| vec![query.query.word().to_owned(), step.to_owned()]));
        }
    }
    let answer = format!(
        "{} of {} rows: {} queries, cold and warm",
        document.workload.word(),
        grouped(document.rows as f64),
        document.queries.len() / 2
    );
    let mut tables = vec![sheet];
    tables.extend((!plans.rows.is_empty()).then_some(plans));
    page("db run", answer, tables, [document.notes.clone(), vec![settings(&document.engine)]].concat())
}

fn latencies(sheet: &mut PageTable, name: &str, of: &Latencies) {
    let figures = [of.p50_ms, of.p90_ms, of.p99_ms, of.p999_ms, of.max_ms].map(figure);
    sheet.rows.push([vec![name.to_owned()], figures.to_vec()].concat());
}

fn interruption(lasted_s: f64) -> String {
    format!("interrupted after {} s: the figures are of what came until then", figure(lasted_s))
}

const PERCENTILES: [&str; 6] = ["Milliseconds", ">p50", ">p90", ">p99", ">p99.9", ">longest"];

/// Of `db run --rate`.
pub fn of_stream(document: &DbStreamDocument) -> Page {
    let stream = &document.stream;
    let mut sheet = table("Latencies", &PERCENTILES);
    latencies(&mut sheet, "from the intended start", &stream.from_due);
    latencies(&mut sheet, "from the request", &stream.service);
    let mut reads = table("A query, on average", &["", ">"]);
    let each = |value: Option<f64>| known(value, figure);
    reads.rows.push(vec!["Rows".to_owned(), figure(stream.rows as f64 / stream.queries as f64)]);
    reads.rows.push(vec!["Blocks read".to_owned(), each(stream.blocks_read)]);
    reads.rows.push(vec!["Bytes from the device".to_owned(), each(stream.device_bytes)]);
    let answer = format!(
        "{}: {} queries at {} a second of {} due, p99 {} ms from the intended start",
        stream.query.word(),
        grouped(stream.queries as f64),
        figure(stream.achieved),
        figure(stream.rate),
        figure(stream.from_due.p99_ms)
    );
    let mut notes = document.notes.clone();
    if !stream.are_distinct {
        notes.push("there are fewer keys than queries: some were asked twice".to_owned());
    }
    notes.extend(stream.is_interrupted.then(|| interruption(stream.lasted_s)));
    notes.push(settings(&document.engine));
    let formulas = vec![[
        "Latency",
        "from the time that the query was due until its last row",
        "fio's rate_iops, open loop",
    ]];
    Page { formulas, ..page("db run", answer, vec![sheet, reads], notes) }
}

/// Of `db ingest`.
pub fn of_ingest(document: &DbIngestDocument) -> Page {
    let ingested = &document.ingested;
    let mut sheet = table("From the intended start", &PERCENTILES);
    latencies(&mut sheet, "a second's alerts durable", &ingested.durable);
    latencies(&mut sheet, "cone of 5″", &ingested.arcseconds.from_due);
    latencies(&mut sheet, "cone of 1′", &ingested.arcminute.from_due);
    let answer = format!(
        "{} alerts at {} a second of {} due; cones: p99 {} ms of 5″, {} ms of 1′",
        grouped(ingested.alerts as f64),
        figure(ingested.achieved),
        grouped(ingested.rate as f64),
        figure(ingested.arcseconds.from_due.p99_ms),
        figure(ingested.arcminute.from_due.p99_ms)
    );
    let mut notes = document.notes.clone();
    notes.extend(ingested.is_interrupted.then(|| interruption(ingested.lasted_s)));
    notes.push(format!("{} rows before the first alert", grouped(ingested.history as f64)));
    notes.push(settings(&document.engine));
    let formulas = vec![["Latency", "from the time that it was due until it was done", "open loop"]];
    Page { formulas, ..page("db ingest", answer, vec![sheet], notes) }
}

/// Of `db compare`, with what each query asks and how it is answered, for whoever was not there.
pub fn whole(document: &DbCompareDocument) -> Page {
    let mut page = of_compare(document);
    page.tables.push(plans::asks(document));
    page.tables.extend(plans::plans(document));
    page
}

/// Of `db compare`.
pub fn of_compare(document: &DbCompareDocument) -> Page {
    let mut tables = vec![times(document, Temperature::Cold), times(document, Temperature::Warm)];
    tables.retain(|table| !table.rows.is_empty());
    tables.extend([why(document), verdicts(document)]);
    tables.extend((!document.reasons.is_empty()).then(|| reasons(document)));
    tables.push(tiers(document));
    let mut notes = document.notes.clone();
    notes.extend(document.tiers.first().map(|tier| settings(&tier.engine)));
    notes.extend(document.ended.as_ref().map(|why| format!("ended early: {why}")));
    let charts = [speedups(document)].into_iter().filter(|chart| !chart.marks.is_empty()).collect();
    Page { charts, ..page("db compare", answer(document), tables, notes) }
}

/// Of `db advise`.
pub fn of_advise(document: &DbAdviseDocument) -> Page {
    let titles = [
        "Setting",
        "Query",
        "",
        ">Unchanged (ms)",
        ">With it (ms)",
        ">Speed-up",
        ">Blocks read",
        ">With it",
        "Verdict",
        ">Blocks",
    ];
    let last = document.settings.len() - 1;
    let mut sheet = table("Each setting beside the unchanged server: medians", &titles);
    let mut contests: Vec<_> = document.contests.iter().collect();
    contests.sort_by_key(|of| of.tier);
    for of in contests {
        let at = |place: usize| {
            let is_it = |figures: &&QueryFigures| {
                (figures.query, figures.temperature, figures.tier) == (of.query, of.temperature, place)
            };
            document.figures.iter().find(is_it)
        };
        let (before, with) = (at(last), at(of.tier));
        let ms = |figures: Option<&QueryFigures>| known(figures.map(|of| of.elapsed_ms), figure);
        let blocks = |figures: Option<&QueryFigures>| known(figures.and_then(|of| of.blocks_read), grouped);
        let name = &document.settings[of.tier];
        sheet.rows.push(vec![
            name.clone(),
            of.query.word().to_owned(),
            of.temperature.word().to_owned(),
            ms(before),
            ms(with),
            speedup(of),
            blocks(before),
            blocks(with),
            verdict(of, [name, &document.settings[last]]),
            of.blocks.to_string(),
        ]);
    }
    let sentences =
        document.settings[..last].iter().enumerate().map(|(place, name)| advice(document, place, name));
    let answer = sentences.collect::<Vec<_>>().join("; ");
    let mut notes = document.notes.clone();
    notes.push("one setting at a time: settings that help alone may not help each other".to_owned());
    notes.push(settings(&document.engine));
    notes.extend(document.ended.as_ref().map(|why| format!("ended early: {why}")));
    let formulas = vec![[
        "Speed-up",
        "time on the unchanged server / time with it, within blocks",
        "docs/methodology.md",
    ]];
    Page { formulas, ..page("db advise", answer, vec![sheet], notes) }
}

/// What a setting does.
fn advice(document: &DbAdviseDocument, place: usize, name: &str) -> String {
    let of: Vec<_> = document.contests.iter().filter(|of| of.tier == place).collect();
    let is_moved = |of: &&&Contest| matches!(of.outcome.answer, Answer::Better { .. });
    let size = |of: &Contest| of.estimate().map_or(0.0, |ratio| ratio.ln().abs());
    let most = of.iter().filter(is_moved).max_by(|a, b| size(a).total_cmp(&size(b)));
    match most {
        Some(most) => {
            let (query, temperature) = (most.query.word(), most.temperature.word());
            let ratio = known(most.estimate(), figure);
            let moved = of.iter().filter(is_moved).count();
            format!("{name} moves {moved} of {}, {query} {temperature} most: {ratio}× as fast", of.len())
        }
        None if of.iter().all(|of| matches!(of.outcome.answer, Answer::Equivalent { .. })) => {
            let margin = units::percent(database::figures::EQUIVALENCE);
            format!("{name} moves nothing by {margin}")
        }
        None => format!("{name}: nothing is decided yet"),
    }
}

fn figures(
    document: &DbCompareDocument,
    query: Query,
    temperature: Temperature,
    tier: usize,
) -> Option<&QueryFigures> {
    document.figures.iter().find(|of| (of.query, of.temperature, of.tier) == (query, temperature, tier))
}

fn contest(
    document: &DbCompareDocument,
    query: Query,
    temperature: Temperature,
    tier: usize,
) -> Option<&Contest> {
    document.contests.iter().find(|of| (of.query, of.temperature, of.tier) == (query, temperature, tier))
}

/// The queries in their order, each once.
fn queries(document: &DbCompareDocument) -> Vec<Query> {
    let mut queries: Vec<Query> = document.figures.iter().map(|of| of.query).collect();
    queries.dedup();
    queries
}

/// What the verdicts allow to say: a ratio stands as a fact only where it is decided.
fn answer(document: &DbCompareDocument) -> String {
    let names: Vec<_> = document.tiers.iter().map(|tier| tier.name.as_str()).collect();
    let Some((last, others)) = names.split_last() else { return "No tier was measured".to_owned() };
    let of = |(tier, name): (usize, &&str)| {
        let contests = queries(document).into_iter().filter_map(|query| {
            let temperature = if figures(document, query, Temperature::Cold, tier).is_some() {
                Temperature::Cold
            } else {
                Temperature::Warm
            };
            let contest = contest(document, query, temperature, tier)?;
            let is_decided =
                matches!(contest.outcome.answer, Answer::Better { .. } | Answer::Equivalent { .. });
            Some((query, contest.estimate()?, is_decided))
        });
        let (decided, open): (Vec<_>, Vec<_>) = contests.partition(|(.., is_decided)| *is_decided);
        let shown = if decided.is_empty() { &open } else { &decided };
        let least = shown.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let most = shown.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let times = match shown.len() {
            1 => format!("{}× ({})", figure(least.1), least.0.word()),
            _ => format!(
                "{}× ({}) to {}× ({})",
                figure(least.1),
                least.0.word(),
                figure(most.1),
                most.0.word()
            ),
        };
        Some(match (decided.len(), open.len()) {
            (0, _) => format!("{name} against {last}: nothing is decided yet, {times} so far"),
            (_, 0) => format!("{name} is {times} as fast as {last}"),
            (_, open) => format!("{name} is {times} as fast as {last}; {open} queries are undecided"),
        })
    };
    let sentences: Vec<_> = others.iter().enumerate().filter_map(of).collect();
    if sentences.is_empty() { "No block came to its end".to_owned() } else { sentences.join("; ") }
}

/// The paper's table: each query's time on each tier, and its speed-up.
fn times(document: &DbCompareDocument, temperature: Temperature) -> PageTable {
    let last = document.tiers.last().map_or("", |tier| tier.name.as_str());
    let mut titles = vec!["Query".to_owned()];
    titles.extend(document.tiers.iter().map(|tier| format!(">{} (ms)", tier.name)));
    let others = document.tiers.len().saturating_sub(1);
    titles.extend(document.tiers[..others].iter().map(|tier| format!(">{} over {last}", tier.name)));
    titles.push(">DASH: disk, flash, RAM (ms)".to_owned());
    let number = if document.workload == Workload::Ptf { "10" } else { "11" };
    let blocks = if document.blocks == 1 {
        "one block".to_owned()
    } else {
        format!("medians of {} blocks", document.blocks)
    };
    let temperature_word = match temperature {
        Temperature::Cold => "Cold",
        Temperature::Warm => "Warm",
    };
    let caption = format!("{temperature_word}: {blocks} (DASH, Table {number})");
    let mut rows = Vec::new();
    for query in queries(document) {
        let times: Vec<_> =
            (0..document.tiers.len()).map(|tier| figures(document, query, temperature, tier)).collect();
        if times.iter().all(Option::is_none) {
            continue;
        }
        let mut row = vec![query.word().to_owned()];
        row.extend(times.iter().map(|of| known(of.map(|of| of.elapsed_ms), figure)));
        row.extend(
            (0..others)
                .map(|tier| contest(document, query, temperature, tier).map_or(NONE.to_owned(), speedup)),
        );
        row.push(paper(query));
        rows.push(row);
    }
    PageTable { caption, titles, rows }
}

fn paper(query: Query) -> String {
    let Some(times) = query.paper_ms() else { return NONE.to_owned() };
    times.map(|time| known(time, grouped)).join(", ")
}

fn speedup(contest: &Contest) -> String {
    match contest.interval() {
        Some(bounds) => format!("{}× ({}–{})", figure(bounds.ratio), figure(bounds.low), figure(bounds.high)),
        None => known(contest.estimate(), |ratio| format!("{}× (no interval yet)", figure(ratio))),
    }
}

/// What explains the times.
fn why(document: &DbCompareDocument) -> PageTable {
    let titles = [
        "Query",
        "",
        "Tier",
        ">Time (ms)",
        ">I/O (ms)",
        ">CPU (ms)",
        ">Rows",
        ">Blocks read",
        ">Read",
        ">Random share",
    ];
    let mut sheet = table("Why: medians", &titles);
    for of in &document.figures {
        sheet.rows.push(vec![
            of.query.word().to_owned(),
            of.temperature.word().to_owned(),
            document.tiers[of.tier].name.clone(),
            figure(of.elapsed_ms),
            known(of.io_ms, figure),
            known(of.cpu_ms, figure),
            grouped(of.rows),
            known(of.blocks_read, grouped),
            known(of.bytes_in, |bytes| units::bytes(bytes as u64)),
            known(of.random_share, units::percent),
        ]);
    }
    sheet
}

/// Why queries gained what they gained, in words.
fn reasons(document: &DbCompareDocument) -> PageTable {
    let mut sheet = table("What each was gained by", &["Query", "", "Tier", "~Why"]);
    for reason in &document.reasons {
        sheet.rows.push(vec![
            reason.query.word().to_owned(),
            reason.temperature.word().to_owned(),
            document.tiers[reason.tier].name.clone(),
            reason.words.clone(),
        ]);
    }
    sheet
}

fn verdicts(document: &DbCompareDocument) -> PageTable {
    let mut sheet = table("Compared within blocks", &["Query", "", "Tier", "Over", "~Verdict", ">Blocks"]);
    let last = document.tiers.last().map_or("", |tier| tier.name.as_str());
    for contest in &document.contests {
        let tier = &document.tiers[contest.tier].name;
        sheet.rows.push(vec![
            contest.query.word().to_owned(),
            contest.temperature.word().to_owned(),
            tier.clone(),
            last.to_owned(),
            verdict(contest, [tier, last]),
            contest.blocks.to_string(),
        ]);
    }
    sheet
}

fn verdict(contest: &Contest, tiers: [&str; 2]) -> String {
    contest.outcome.words_of_two(tiers).unwrap_or_else(|| NONE.to_owned())
}

fn tiers(document: &DbCompareDocument) -> PageTable {
    let titles =
        ["Tier", "Directory", ">Database", ">Load (s)", ">Direct 4 KiB random (µs)", ">Direct sequential"];
    let mut sheet = table("Tiers", &titles);
    for tier in &document.tiers {
        let seconds: f64 = tier.loaded.tables.iter().map(|table| table.load_s + table.index_s).sum();
        sheet.rows.push(vec![
            tier.name.clone(),
            tier.directory.display().to_string(),
            units::bytes(tier.loaded.size_bytes),
            if tier.loaded.was_complete {
                "was there".to_owned()
            } else {
                figure(seconds + tier.loaded.finish_s)
            },
            known(tier.direct.map(|direct| direct.random_us), figure),
            known(tier.direct.map(|direct| direct.sequential_bytes_per_s), units::bandwidth),
        ]);
    }
    sheet
}

fn speedups(document: &DbCompareDocument) -> PageChart {
    let mut marks = Vec::new();
    for contest in document.contests.iter().filter(|contest| contest.temperature == Temperature::Cold) {
        let Some(ratio) = contest.estimate() else { continue };
        marks.push(PageMark {
            label: format!("{}, {}", contest.query.word(), document.tiers[contest.tier].name),
            x: marks.len() as f64,
            y: ratio,
            words: format!("{}×", figure(ratio)),
        });
    }
    let last = document.tiers.last().map_or("", |tier| tier.name.as_str());
    PageChart { title: format!("Speed-up over {last}, cold"), x: None, y: "", is_logarithmic: true, marks }
}
