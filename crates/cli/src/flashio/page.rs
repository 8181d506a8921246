//! The document as an answer, tables and charts, for a terminal and for a page.

use ::flashio::Way;
use ::flashio::figures::{Contest, DrainFigures, Figure, RESTORE_MARGIN, RestartFigures, WayFigures};
use measure::decide::{Answer, Bounds, Outcome};
use sweep::report::{Page, PageChart, PageMark, PageTable};

use super::document::FlashioDocument;
use crate::plan::screen::{NONE, figure, known, table};

/// What is computed how.
const FORMULAS: [[&str; 3]; 6] = [
    [
        "Stall of a task",
        "its write with fsync + publishing of the checkpoint",
        "the task cannot compute in this time",
    ],
    [
        "I/O time",
        "from the first byte of any task until the checkpoint is published, summed",
        "one clock; Cray: flash as a burst tier, Table II",
    ],
    ["Write B/W", "bytes of all tasks / I/O time", "Cray, Table II; MB are 10^6 bytes"],
    [
        "Slow-down ω",
        "compute time with a drain / without - 1, within blocks",
        "slowest task of each interval",
    ],
    [
        "Restoring by reading",
        "geometric means of pairs in alternating order, within restarts",
        "page cache dropped before each",
    ],
    ["Ratios and verdicts", "blocks of all ways in random order, as of sweep", "docs/methodology.md"],
];

/// The page.
pub fn page(document: &FlashioDocument) -> Page {
    let mut tables = vec![ways_table(document), stalls_table(&document.ways), contests_table(document)];
    if let Some(drain) = &document.drain {
        tables.push(drain_table(document, drain));
    }
    tables.extend(document.restart.as_ref().map(restart_table));
    let mut notes = document.notes.clone();
    notes.extend(document.ended.as_ref().map(|why| format!("ended early: {why}")));
    if let Some([fast, slow]) = &document.kept {
        notes.push(format!("checkpoints are kept in {} and {}", fast.0.display(), slow.0.display()));
    }
    let charts = [
        chart(document, "Run time (s)", |way| way.run_s),
        chart(document, "Write bandwidth (MB/s)", |way| way.write_bytes_per_s / 1e6),
        chart(document, "Longest stall of a checkpoint (s)", |way| way.stall_slowest_s),
    ];
    Page {
        title: "flashio".to_owned(),
        answer: answer(document),
        tables,
        charts: charts.into_iter().filter(|chart| !chart.marks.is_empty()).collect(),
        notes,
        formulas: FORMULAS.to_vec(),
    }
}

fn answer(document: &FlashioDocument) -> String {
    if [Way::Slow, Way::Drained, Way::Fast].iter().any(|way| document.ways.iter().all(|of| of.way != *way)) {
        return "Not every way came to its end".to_owned();
    }
    let [gain, cost, _] = &document.contests;
    let kept_up = match &document.drain {
        Some(drain) if drain.kept_up => "the drain kept up",
        _ => "the drain did not keep up",
    };
    let within = |contest: &Contest| units::percent(contest.outcome.rules.equivalence);
    let gain = compared(
        gain,
        |times| format!("{times:.2}× as fast as slow"),
        &format!("as fast as slow, within ± {}", within(gain)),
        "undecided against slow",
    );
    let cost = compared(
        cost,
        |times| format!("{times:.3}× the time of fast alone"),
        &format!("the time of fast alone, within ± {}", within(cost)),
        "undecided against fast alone",
    );
    format!("Fast + drain: {gain}; {cost}; {kept_up}")
}

/// What the verdict allows to say: the ratio stands alone only where it is decided, else beside how far it may be off.
fn compared(contest: &Contest, better: impl Fn(f64) -> String, alike: &str, open: &str) -> String {
    match (&contest.outcome.answer, contest.estimate()) {
        (Answer::Better { .. }, Some(times)) => better(times),
        (Answer::Equivalent { .. }, _) => alike.to_owned(),
        _ => format!("{open}, run time {}", ratio(contest.ratio, contest.median)),
    }
}

fn chart(document: &FlashioDocument, title: &str, of: impl Fn(&WayFigures) -> f64) -> PageChart {
    let mark = |(n, way): (usize, &WayFigures)| PageMark {
        label: way.way.label().to_owned(),
        x: n as f64,
        y: of(way),
        words: figure(of(way)),
    };
    PageChart {
        title: title.to_owned(),
        x: None,
        y: "",
        is_logarithmic: false,
        marks: document.ways.iter().enumerate().map(mark).collect(),
    }
}

fn ways_table(document: &FlashioDocument) -> PageTable {
    let caption = format!(
        "{} of {} a task; medians of {} (the paper's Table II)",
        units::counted(document.checkpoints.into(), "checkpoint"),
        units::bytes(document.work.checkpoint_bytes),
        units::counted(document.blocks as u64, "block")
    );
    let titles = ["Way", ">Tasks", ">Write B/W (MB/s)", ">Run time (s)", ">I/O time (s)", ">Compute (s)"];
    let mut sheet = table(caption, &titles);
    for way in &document.ways {
        sheet.rows.push(vec![
            way.way.label().to_owned(),
            document.tasks.to_string(),
            figure(way.write_bytes_per_s / 1e6),
            figure(way.run_s),
            figure(way.io_s),
            figure(way.compute_s),
        ]);
    }
    sheet
}

fn stalls_table(ways: &[WayFigures]) -> PageTable {
    let mut sheet = table("Stall per checkpoint", &["Way", ">Slowest task (s)", ">Median (s)"]);
    for way in ways {
        let label = way.way.label().to_owned();
        sheet.rows.push(vec![label, figure(way.stall_slowest_s), figure(way.stall_median_s)]);
    }
    sheet
}

fn contests_table(document: &FlashioDocument) -> PageTable {
    let titles = ["Time of", "By", ">Ratio, with 95 % interval", "Verdict", ">Blocks"];
    let mut sheet = table("Compared within blocks", &titles);
    for contest in &document.contests {
        let what = match contest.figure {
            Figure::RunTime => "run",
            Figure::ComputeTime => "compute",
        };
        sheet.rows.push(vec![
            format!("{what}, {}", contest.of.label()),
            contest.by.label().to_owned(),
            ratio(contest.ratio, contest.median),
            verdict(&contest.outcome, [contest.of, contest.by].map(Way::label)),
            contest.blocks.to_string(),
        ]);
    }
    sheet
}

fn ratio(ratio: Option<Bounds>, median: Option<f64>) -> String {
    match (ratio, median) {
        // Beyond a hundredfold an interval tells nothing yet.
        (Some(bounds), _) if bounds.low > 0.01 && bounds.high < 100.0 => {
            format!("{:.3}× ({:.3}–{:.3})", bounds.ratio, bounds.low, bounds.high)
        }
        (_, median) => known(median, |ratio| format!("{ratio:.3}× (no interval yet)")),
    }
}

/// The answer about two settings with these names.
fn verdict(outcome: &Outcome, names: [&str; 2]) -> String {
    outcome.words_of_two(names).unwrap_or_else(|| NONE.to_owned())
}

fn drain_table(document: &FlashioDocument, drain: &DrainFigures) -> PageTable {
    let mut sheet = table("The drain", &["", ">"]);
    let mut row = |name: &str, value: String| sheet.rows.push(vec![name.to_owned(), value]);
    row("Bandwidth", units::bandwidth(drain.bytes_per_s));
    let behind = match drain.kept_up {
        true => "yes".to_owned(),
        false => format!("no: up to {} checkpoints behind", drain.most_behind),
    };
    row("Kept up", behind);
    let slowdown = document.contests[2].estimate();
    row("Slow-down ω of computing", known(slowdown.map(|ratio| ratio - 1.0), units::percent));
    row("Until durable and verified, median", format!("{} s", figure(drain.durable_median_s)));
    row("Until durable and verified, longest", format!("{} s", figure(drain.durable_slowest_s)));
    row("Drained", units::bytes(drain.bytes));
    row("Read back by the drain", units::bytes(drain.verified_bytes));
    row("Compared on the slow tier by the tasks", units::bytes(drain.checked_bytes));
    sheet
}

fn restart_table(restart: &RestartFigures) -> PageTable {
    let caption = format!("Restart from the fast tier after kill -9; medians of {}", restart.restarts);
    let mut sheet = table(caption, &["", ">"]);
    let mut row = |name: &str, value: String| sheet.rows.push(vec![name.to_owned(), value]);
    row("Kill to all tasks running", format!("{} s", figure(restart.started_s)));
    row("Kill to all bytes restored", format!("{} s", figure(restart.restored_s)));
    row("Kill to the first new iteration done", format!("{} s", figure(restart.first_step_s)));
    row("Restoring alone", format!("{} s", figure(restart.restore_s)));
    row("The fast tier's own time to read them", format!("{} s", figure(restart.read_s)));
    let by = format!("Restoring by that, {} pairs in alternating order", restart.pairs);
    row(&by, ratio(restart.ratio, Some(restart.by_read)));
    row("Verdict", verdict(&restart.outcome, ["restoring", "reading"]));
    let aim = format!("At most {:.1}×", 1.0 + RESTORE_MARGIN);
    let reached = match restart.within_aim {
        Some(true) => "yes",
        Some(false) => "no",
        None => "undecided",
    };
    row(&aim, reached.to_owned());
    sheet
}
