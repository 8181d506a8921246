//! A ladder for people: a table with bars, the four figures, and what bears on them.
//!
//! Bars are of the logarithm, so that a level ten times as far is one step longer wherever it stands. They take what is
//! left of the terminal's width; where that is too little they are left out, and the words remain.

use std::time::Duration;

use measure::ladder::{Kind, Ladder, Level, MEMORY_SHARE, times};
use measure::stats::Estimate;

use crate::bench::figures::BenchWarning;
use crate::bench::text::{warning_lines, wrapped};
use crate::{output, paint};

/// A bar that is shorter shows nothing.
const SHORTEST_BAR: usize = 12;
/// A longer one is no clearer.
const LONGEST_BAR: usize = 60;
const NONE: &str = "–";

/// Everything on a screen.
pub fn text(ladder: &Ladder) -> String {
    let width = output::width();
    let mut text = format!("{}\n", paint::dim(&wrapped(&machine(ladder), 0)));
    text += &format!("\n{}\n", hierarchy(ladder, width));
    text += &format!("{}\n", four(ladder, width));
    text += &format!("{}\n", paint::title(&wrapped(&answer(ladder), 0)));
    let remarks = remarks(ladder);
    if !remarks.is_empty() {
        text.push('\n');
        text.extend(remarks.iter().map(|line| format!("{}\n", paint::dim(&wrapped(line, 0)))));
    }
    text.push('\n');
    text + &warning_lines(&warnings(ladder))
}

/// What the ladder says, in a sentence.
pub fn answer(ladder: &Ladder) -> String {
    match &ladder.widest {
        Some(gap) => format!("The widest gap is {}.", gap.words()),
        None => "Too little was measured to have a gap.".to_owned(),
    }
}

fn machine(ladder: &Ladder) -> String {
    let clock = ladder
        .method
        .frequency_hz
        .map(|hz| format!(", CPU {} at {:.2} GHz{}", ladder.method.cpu, hz.value / 1e9, spread(Some(hz))));
    format!("{}{}, {}", ladder.host.cpu_model, clock.unwrap_or_default(), ladder.method.pages)
}

/// How it was measured: names and values, for the page.
pub fn method(ladder: &Ladder) -> Vec<(String, String)> {
    let m = &ladder.method;
    let runtime = Duration::from_nanos(m.runtime_ns);
    let rows = [
        ("CPU", machine(ladder)),
        (
            "latency of memory",
            format!(
                "a cycle in random order through lines of {} bytes, each load waiting for the one before; sets from {} to {}, in {}",
                m.line_bytes,
                ladder.curve.first().map_or(NONE.to_owned(), |p| units::bytes(p.bytes)),
                ladder.curve.last().map_or(NONE.to_owned(), |p| units::bytes(p.bytes)),
                m.pages
            ),
        ),
        (
            "clock",
            "a chain of operations of one cycle each, before and after every chase; not what /proc/cpuinfo says".to_owned(),
        ),
        (
            "figures of memory",
            format!(
                "one CPU; sequential in vectors of {} bytes, random in lines of 64 bytes at computed places; of the parts of a round \
                 the fastest",
                m.vector_bytes
            ),
        ),
        (
            "devices",
            "latency: random reads of 4 KiB, one at a time, their mean; sequential requests of 1 MiB at depth 8, random ones of \
             4 KiB at depth 32; O_DIRECT where there is any"
                .to_owned(),
        ),
        (
            "rounds",
            format!(
                "{} of everything, one after the other; {} a measurement of a device, {} one of memory; medians, with intervals between \
                 order statistics",
                m.rounds,
                units::seconds(runtime),
                units::nanoseconds((runtime / MEMORY_SHARE).as_nanos() as f64)
            ),
        ),
    ];
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// ` ± 2 %`, where there is an interval.
fn spread(estimate: Option<Estimate>) -> String {
    let half = estimate.and_then(|e| e.interval?.relative_half_width(e.value));
    half.map_or(String::new(), |half| format!(" ± {}", units::percent(half)))
}

fn value(estimate: Option<Estimate>, write: impl Fn(f64) -> String) -> String {
    estimate.map_or(NONE.to_owned(), |e| write(e.value))
}

fn hierarchy(ladder: &Ladder, width: usize) -> String {
    let rows: Vec<Vec<String>> = ladder
        .levels
        .iter()
        .map(|level| {
            let gap = ladder.gaps.iter().find(|gap| gap.farther == level.name);
            vec![
                level.name.clone(),
                capacity(level),
                format!("{}{}", value(level.latency_ns, units::nanoseconds), spread(level.latency_ns)),
                value(level.latency_cycles, units::count),
                gap.map_or(String::new(), |gap| format!("{}×", times(gap.ratio))),
            ]
        })
        .collect();
    let titles = ["level", "capacity", "latency", "cycles", "gap"];
    let widest = ladder.widest.as_ref().map(|gap| gap.farther.as_str());
    let (head, lines) = aligned(&titles, &rows);
    let used = head.chars().count() + 2;
    let room = width.saturating_sub(used).min(LONGEST_BAR);
    let bars = (room >= SHORTEST_BAR).then(|| bars(ladder, room)).flatten();
    let scale = bars.as_ref().map_or("", |(scale, _)| scale);
    let mut text = format!("{}\n", paint::dim(format!("{head}  {scale}").trim_end()));
    for (i, (level, line)) in ladder.levels.iter().zip(lines).enumerate() {
        let line = if widest == Some(level.name.as_str()) { paint::warn(&line) } else { line };
        let bar = bars.as_ref().map_or("", |(_, bars)| &bars[i]);
        text += &format!("{}\n", format!("{line}  {bar}").trim_end());
    }
    text
}

/// What a level holds: as the kernel says, or as the chase shows where it says nothing or less is there.
fn capacity(level: &Level) -> String {
    match (level.capacity_bytes, level.knee_bytes) {
        (Some(told), Some(knee)) if knee < told / 2 => {
            format!("{} of {}", units::bytes(knee), units::bytes(told))
        }
        (Some(told), _) => units::bytes(told),
        (None, Some(knee)) => format!("~{}", units::bytes(knee)),
        (None, None) => NONE.to_owned(),
    }
}

/// A scale and a bar for each level, `room` columns wide. None where nothing has a latency.
fn bars(ladder: &Ladder, room: usize) -> Option<(String, Vec<String>)> {
    let logs: Vec<Option<f64>> = ladder
        .levels
        .iter()
        .map(|level| level.latency_ns.map(|e| e.value.log10()).filter(|log| log.is_finite()))
        .collect();
    let low = logs.iter().flatten().copied().fold(f64::INFINITY, f64::min).floor();
    let high = logs.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max).ceil().max(low + 1.0);
    if !low.is_finite() {
        return None;
    }
    let column = |log: f64| (((log - low) / (high - low)) * room as f64).round() as usize;
    let bar = |log: &Option<f64>, level: &Level| match log {
        Some(log) => {
            let marks = "━".repeat(column(*log).clamp(1, room));
            if level.kind == Kind::Cache || level.kind == Kind::Memory { paint::good(&marks) } else { marks }
        }
        None => String::new(),
    };
    let bars = logs.iter().zip(&ladder.levels).map(|(log, level)| bar(log, level)).collect();
    Some((scale(low as i32, high as i32, room, &column), bars))
}

/// Powers of ten where their bars end, as many as have room.
fn scale(low: i32, high: i32, room: usize, column: &dyn Fn(f64) -> usize) -> String {
    let mut text = String::new();
    for decade in low..=high {
        let ns = 10f64.powi(decade);
        let label = match decade {
            d if d < 3 => format!("{ns} ns"),
            d if d < 6 => format!("{} µs", ns / 1e3),
            d if d < 9 => format!("{} ms", ns / 1e6),
            _ => format!("{} s", ns / 1e9),
        };
        // The label ends where the bar of that latency ends.
        let ends = column(f64::from(decade));
        let begins = ends.saturating_sub(label.chars().count());
        let at = text.chars().count();
        let gap = usize::from(!text.is_empty());
        if ends <= room && begins >= at + gap && ends > 0 {
            text += &" ".repeat(begins - at);
            text += &label;
        }
    }
    text
}

fn four(ladder: &Ladder, width: usize) -> String {
    let titles = ["level", "seq. write", "seq. read", "random write", "random read", "requests"];
    let rows: Vec<Vec<String>> = ladder
        .levels
        .iter()
        .map(|level| {
            let f = &level.figures;
            vec![
                level.name.clone(),
                value(f.sequential_write_bytes_per_s, units::bandwidth),
                value(f.sequential_read_bytes_per_s, units::bandwidth),
                value(f.random_write_iops, units::iops),
                value(f.random_read_iops, units::iops),
                requests(level),
            ]
        })
        .collect();
    let (head, lines) = aligned(&titles, &rows);
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    if longest <= width {
        let body: String = lines.iter().map(|line| format!("{}\n", line.trim_end())).collect();
        return format!("{}\n{body}", paint::dim(head.trim_end()));
    }
    // What the requests were is told in the documentation as well.
    let short: Vec<Vec<String>> = rows.iter().map(|row| row[..5].to_vec()).collect();
    let (head, lines) = aligned(&titles[..5], &short);
    let body: String = lines.iter().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("{}\n{body}", paint::dim(&head))
}

/// How a level's four figures were taken.
fn requests(level: &Level) -> String {
    let r = &level.requests;
    let bytes = units::bytes;
    match (r.sequential_bytes, r.sequential_depth, r.random_depth) {
        (Some(sequential), Some(depth), Some(random)) => {
            format!("{} × {depth}, {} × {random}", bytes(sequential), bytes(r.random_bytes))
        }
        _ => r.set_bytes.map_or(String::new(), |set| format!("{} in {}", bytes(r.random_bytes), bytes(set))),
    }
}

/// A head and lines with columns as wide as they need to be; all but the first and the last of more than five to the
/// right.
fn aligned(titles: &[&str], rows: &[Vec<String>]) -> (String, Vec<String>) {
    let length = |text: &str| text.chars().count();
    let width = |c: usize| rows.iter().map(|row| length(&row[c])).max().unwrap_or(0).max(length(titles[c]));
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |cells: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = (0..titles.len())
            .map(|c| {
                let (cell, width) = (cells(c), widths[c]);
                if c == 0 || c == 5 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            })
            .collect();
        cells.join("  ")
    };
    let head = line(&|c| titles[c].to_owned());
    (head, rows.iter().map(|row| line(&|c| row[c].clone())).collect())
}

fn remarks(ladder: &Ladder) -> Vec<String> {
    let notes = ladder.levels.iter().flat_map(|l| l.notes.iter().map(move |n| format!("{}: {n}", l.name)));
    let absent = ladder.absent.iter().map(|a| format!("not on the ladder: {} ({})", a.what, a.why));
    notes.chain(absent).collect()
}

/// The warnings of all levels, each with the level that it is about.
fn warnings(ladder: &Ladder) -> Vec<BenchWarning> {
    let of_memory = ladder.warnings.iter().map(BenchWarning::of);
    let of_levels = ladder.levels.iter().flat_map(|level| {
        level.warnings.iter().map(|warning| {
            let warning = BenchWarning::of(warning);
            BenchWarning { message: format!("{}, {}", level.name, warning.message), ..warning }
        })
    });
    let mut all: Vec<BenchWarning> = of_memory.chain(of_levels).collect();
    all.sort_by_key(|warning| (std::cmp::Reverse(warning.severity), warning.code));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::ladder::{FourFigures, Method, Requests, SCHEMA, gaps, widest};
    use measure::record::HostFacts;

    fn level(name: &str, kind: Kind, ns: Option<f64>) -> Level {
        let estimate = |value| Estimate { value, samples: 5, interval: None };
        Level {
            name: name.into(),
            kind,
            about: String::new(),
            capacity_bytes: Some(32 << 10),
            knee_bytes: None,
            sighting: None,
            latency_ns: ns.map(estimate),
            latency_cycles: ns.map(|ns| estimate(ns * 2.5)),
            figures: FourFigures {
                sequential_read_bytes_per_s: ns.map(|ns| estimate(1e12 / ns)),
                ..FourFigures::default()
            },
            requests: Requests { set_bytes: Some(16 << 10), random_bytes: 64, ..Requests::default() },
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn ladder() -> Ladder {
        let levels = vec![
            level("L1", Kind::Cache, Some(2.0)),
            level("DRAM", Kind::Memory, Some(100.0)),
            level("sda", Kind::Disk, Some(8e6)),
            level("sdb", Kind::Disk, None),
        ];
        let gaps = gaps(&levels);
        Ladder {
            schema: SCHEMA.into(),
            interrupted: false,
            started_unix_ns: 0,
            host: HostFacts { cpu_model: "A CPU".into(), ..HostFacts::default() },
            method: Method::default(),
            curve: Vec::new(),
            widest: widest(&gaps).cloned(),
            gaps,
            levels,
            absent: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn bars_are_of_the_logarithm_and_fit_the_width() {
        assert_eq!(
            plain(&hierarchy(&ladder(), 80)),
            "\
level  capacity  latency  cycles     gap  10 ns       1 µs 10 µs       1 ms
L1       32 KiB     2 ns       5          ━━
DRAM     32 KiB   100 ns     250     50×  ━━━━━━━━━━━
sda      32 KiB  8.00 ms   20.0M  80.0k×  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
sdb      32 KiB        –       –
"
        );
        for width in [20, 40, 60, 72, 100, 200] {
            let text = plain(&hierarchy(&ladder(), width));
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(longest <= width.max(43), "{width}: {text}");
        }
    }

    #[test]
    fn a_ladder_without_a_figure_can_be_printed() {
        let mut empty = ladder();
        empty.levels.iter_mut().for_each(|level| level.latency_ns = None);
        empty.gaps.clear();
        empty.widest = None;
        assert!(!hierarchy(&empty, 100).contains('━'));
        assert!(answer(&empty).contains("Too little"));
        empty.levels.clear();
        assert_eq!(plain(&hierarchy(&empty, 100)).lines().count(), 1);
        assert_eq!(plain(&four(&empty, 100)).lines().count(), 1);
    }

    #[test]
    fn a_cache_of_which_a_part_is_there_says_so() {
        let seen = Level { knee_bytes: Some(8 << 10), ..level("L3", Kind::Cache, None) };
        assert_eq!(capacity(&seen), "8 KiB of 32 KiB");
        assert_eq!(capacity(&Level { capacity_bytes: None, ..seen }), "~8 KiB");
    }

    #[test]
    fn the_requests_are_left_out_where_there_is_no_room() {
        assert!(plain(&four(&ladder(), 120)).contains("64 B in 16 KiB"));
        assert!(!plain(&four(&ladder(), 60)).contains("64 B in 16 KiB"));
    }
}
