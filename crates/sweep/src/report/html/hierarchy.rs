//! The page of one ladder of memory and storage, in the report's clothes.

use std::fmt::Write;

use measure::Warning;
use measure::ladder::{Ladder, Level};
use measure::stats::Estimate;

use super::super::sheet::Sheet;
use super::super::time;
use super::{escape, figures, head, sections};

/// The page: one self-contained file. `answer` is what it says in a sentence, `facts` are names and values of how it
/// was measured.
#[must_use]
pub fn ladder(ladder: &Ladder, answer: &str, facts: &[(String, String)]) -> String {
    let figures = figures::hierarchy(ladder);
    let mut page = String::with_capacity(1 << 17);
    let title = "The ladder of memory and storage";
    head(&mut page, title);
    page.push_str(
        "<nav aria-label=\"Page\"><div class=\"page\"><ul></ul><button type=\"button\" id=\"theme\" hidden \
         aria-label=\"Switch between light and dark\"></button></div></nav>\n<div class=\"page\">\n",
    );
    let about = format!(
        "{} · Linux {} · {}",
        ladder.host.cpu_model,
        ladder.host.kernel,
        time::utc(ladder.started_unix_ns)
    );
    let _ = writeln!(
        page,
        "<header><p class=\"eyebrow\">flashwright probe --ladder</p><h1>{title}</h1><p class=\"answer\">{}</p>\
         <p class=\"meta\">{}</p></header>",
        escape::prose(answer),
        escape::text(&about)
    );
    page.push_str("<main id=\"main\">\n");
    if ladder.interrupted {
        page.push_str(
            "<div class=\"notice\"><p>The measurement was stopped; these are the figures of the time before.</p></div>\n",
        );
    }
    sections::figures(&mut page, "ladder", "From the first cache to the last drive", &figures);
    section(&mut page, "levels", "Latency, capacity and gaps");
    sections::table(&mut page, &levels(ladder));
    page.push_str("</section>\n");
    section(&mut page, "four", "Four figures of each level");
    page.push_str(
        "<p class=\"lede\">As in DASH’s Tables 4, 7 and 8. Memory by one CPU, in cache lines where it is random.</p>\n",
    );
    sections::table(&mut page, &four(ladder));
    page.push_str("</section>\n");
    remarks(&mut page, ladder);
    method(&mut page, facts);
    page.push_str("</main>\n");
    let _ = writeln!(
        page,
        "<footer>{} · this file needs no network · “DASH” is He et al., <cite>DASH: a Recipe for a Flash-based Data \
         Intensive Supercomputer</cite>, SC 2010.</footer>\n</div>",
        escape::text(&ladder.schema)
    );
    let _ = writeln!(page, "\n<script>\n{}</script>\n</body>\n</html>", super::SCRIPT);
    page
}

fn section(page: &mut String, id: &str, title: &str) {
    let _ = writeln!(page, "<section id=\"{id}\" aria-labelledby=\"h-{id}\"><h2 id=\"h-{id}\">{title}</h2>");
}

const NONE: &str = "–";

fn of(estimate: Option<Estimate>, write: impl Fn(f64) -> String) -> String {
    estimate.map_or(NONE.to_owned(), |estimate| write(estimate.value))
}

/// `±2 %`, where there is an interval.
fn spread(estimate: Option<Estimate>) -> String {
    let half = estimate.and_then(|e| e.interval?.relative_half_width(e.value));
    half.map_or(NONE.to_owned(), |half| format!("±{}", units::percent(half)))
}

fn levels(ladder: &Ladder) -> Sheet {
    let mut sheet = Sheet::new(
        "Medians of the rounds with their 95 % intervals, or as near to that as the rounds allow",
        &[
            "Level",
            "Kind",
            ">Capacity",
            ">Knee",
            ">Latency",
            ">Interval",
            ">Cycles",
            ">To the level before",
            "About",
        ],
    );
    for level in &ladder.levels {
        let gap = ladder.gaps.iter().find(|gap| gap.farther == level.name);
        sheet.push(vec![
            level.name.clone(),
            level.kind.words().to_owned(),
            level.capacity_bytes.map_or(NONE.to_owned(), units::bytes),
            level.knee_bytes.map_or(NONE.to_owned(), units::bytes),
            of(level.latency_ns, units::nanoseconds),
            spread(level.latency_ns),
            of(level.latency_cycles, units::count),
            gap.map_or(NONE.to_owned(), |gap| format!("{}×", measure::ladder::times(gap.ratio))),
            level.about.clone(),
        ]);
    }
    sheet.without_empty_columns()
}

fn four(ladder: &Ladder) -> Sheet {
    let mut sheet = Sheet::new(
        "Bandwidth of sequential, requests a second of random reads and writes",
        &["Level", ">Sequential write", ">Sequential read", ">Random write", ">Random read", "Requests"],
    );
    for level in &ladder.levels {
        let f = &level.figures;
        sheet.push(vec![
            level.name.clone(),
            of(f.sequential_write_bytes_per_s, units::bandwidth),
            of(f.sequential_read_bytes_per_s, units::bandwidth),
            of(f.random_write_iops, units::iops),
            of(f.random_read_iops, units::iops),
            requests(level),
        ]);
    }
    sheet
}

/// How a level's figures were taken, in words.
fn requests(level: &Level) -> String {
    let r = &level.requests;
    let set = r.set_bytes.map(|set| format!(", over {}", units::bytes(set))).unwrap_or_default();
    match (r.sequential_bytes, r.sequential_depth, r.random_depth) {
        (Some(bytes), Some(depth), Some(random)) => {
            format!("{} × {depth}, {} × {random}{set}", units::bytes(bytes), units::bytes(r.random_bytes))
        }
        _ => format!("{}{set}", units::bytes(r.random_bytes)),
    }
}

/// Notes, what is absent, and warnings.
fn remarks(page: &mut String, ladder: &Ladder) {
    let notes = ladder.levels.iter().flat_map(|l| l.notes.iter().map(move |n| format!("{}: {n}", l.name)));
    let absent = ladder.absent.iter().map(|a| format!("Not on the ladder: {} ({})", a.what, a.why));
    let lines: Vec<String> = notes.chain(absent).collect();
    let of_levels = ladder.levels.iter().flat_map(|l| l.warnings.iter().map(move |w| (l.name.as_str(), w)));
    let warnings: Vec<(&str, &Warning)> =
        ladder.warnings.iter().map(|w| ("caches and memory", w)).chain(of_levels).collect();
    if lines.is_empty() && warnings.is_empty() {
        return;
    }
    section(page, "remarks", "What bears on these figures");
    if !lines.is_empty() {
        page.push_str("<ul class=\"plain\">");
        for line in &lines {
            let _ = write!(page, "<li>{}</li>", escape::prose(line));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("<div class=\"warnings\">\n");
    for (level, warning) in warnings {
        let (word, class) = sections::severity(warning.code.explain().severity);
        let _ = writeln!(
            page,
            "<div class=\"warning\"><div><h3>{}</h3><p class=\"count\"><span class=\"tag {class}\">{word}</span> {}</p></div>\
             <div><p>{}</p><p><strong>What to do:</strong> {}</p></div></div>",
            warning.code,
            escape::text(level),
            escape::prose(&warning.message),
            escape::text(warning.code.explain().remedy)
        );
    }
    page.push_str("</div>\n</section>\n");
}

fn method(page: &mut String, facts: &[(String, String)]) {
    section(page, "method", "How it was measured");
    page.push_str("<div class=\"scroll\"><table><tbody>\n");
    for (name, value) in facts {
        let (name, value) = (escape::text(name), escape::prose(value));
        let _ = writeln!(page, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    page.push_str("</tbody></table></div></section>\n");
}
