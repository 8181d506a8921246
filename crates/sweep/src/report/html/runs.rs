//! Every run in a table: the first of them as HTML, all of them as compact JSON for the page's script, which
//! sorts, filters and turns pages. So a hundred thousand runs cost some megabytes and no time to lay out.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use serde_json::{Value, json};

use crate::analysis::{Fate, JudgedRun};

use super::super::{Report, sheets};
use super::escape;

/// Rows on a page; the script's `PAGE`.
const PAGE: usize = 100;

/// The class of a column of codes, by which the script knows it as well.
const CODES: &str = "codes";
/// Title and class of each column.
const COLUMNS: [(&str, &str); 13] = [
    ("Position", "n"),
    ("No.", "n"),
    ("Test", "w"),
    ("Pass", "n"),
    ("Verdict", ""),
    ("MB/s", "n"),
    ("IOPS", "n"),
    ("p50 µs", "n"),
    ("p99 µs", "n"),
    ("p99.9 µs", "n"),
    ("Max µs", "n"),
    ("z", "n"),
    ("Warnings", CODES),
];

/// A verdict's number in the data, its word and its class.
fn fate(run: &JudgedRun) -> (usize, &'static str) {
    match (run.fate, run.repeated) {
        (Fate::Kept, _) => (0, ""),
        (Fate::FirstPass, _) => (1, "aside"),
        (Fate::Chauvenet, _) => (2, "rejected"),
        (Fate::Void | Fate::Cut, false) => (3, "isvoid"),
        (Fate::Void | Fate::Cut, true) => (4, "isvoid"),
    }
}

const FATES: [&str; 5] = ["kept", "first pass", "rejected", "void", "void, repeated"];

/// The section's body.
pub(super) fn table(report: &Report) -> String {
    let mut html = String::from(
        "<form class=\"tools\" id=\"runs-tools\" hidden onsubmit=\"return false\">\
         <label>Find <input type=\"search\" id=\"runs-find\" placeholder=\"test, setting or code\"></label>\
         <label>Verdict <select id=\"runs-verdict\"><option value=\"\">all</option>",
    );
    for (i, word) in FATES.iter().enumerate() {
        if report.runs.iter().any(|run| fate(run).0 == i) {
            let _ = write!(html, "<option value=\"{i}\">{word}</option>");
        }
    }
    html.push_str(
        "</select></label><button type=\"button\" id=\"runs-previous\">Previous</button>\
         <button type=\"button\" id=\"runs-next\">Next</button><output id=\"runs-status\" aria-live=\"polite\"></output></form>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All runs\">\
         <table class=\"runs fixed\" id=\"runs-table\"><caption>",
    );
    let shown = report.runs.len().min(PAGE);
    let _ = write!(
        html,
        "{} runs in the order in which they ran{}. z: distance from the mean of the passes that were judged together, in \
         their sample deviations.</caption><thead><tr>",
        report.runs.len(),
        if shown < report.runs.len() {
            format!("; without scripts, the first {shown}")
        } else {
            String::new()
        }
    );
    for (title, class) in COLUMNS {
        let _ = write!(html, "<th scope=\"col\" class=\"{class}\">{title}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for run in report.runs.iter().take(PAGE) {
        row(&mut html, report, run);
    }
    html.push_str("</tbody></table></div>\n");
    html
}

fn row(html: &mut String, report: &Report, judged: &JudgedRun) {
    let run = &judged.run;
    let (number, label) =
        report.point(run.point).map_or_else(Default::default, |p| (sheets::number(p), p.label.clone()));
    let (verdict, class) = fate(judged);
    let us = |ns: u64| grouped(ns as f64 / 1e3, 1);
    let tail = |ns: u64, needs: u64| if run.ios < needs { "–".to_owned() } else { us(ns) };
    let cells = [
        run.position.to_string(),
        number,
        label,
        run.pass.to_string(),
        FATES[verdict].to_owned(),
        grouped(run.bandwidth_bytes_per_s / 1e6, 1),
        grouped(run.iops, 0),
        us(run.latency_ns_p50),
        tail(run.latency_ns_p99, 100),
        tail(run.latency_ns_p99_9, 1000),
        us(run.latency_ns_max),
        deviations(judged),
        codes(judged),
    ];
    let _ = write!(html, "<tr class=\"{class}\">");
    for (cell, (_, class)) in cells.iter().zip(COLUMNS) {
        let cell = if class == CODES { escape::codes(cell) } else { escape::text(cell) };
        let _ = write!(html, "<td class=\"{class}\">{cell}</td>");
    }
    html.push_str("</tr>\n");
}

fn deviations(judged: &JudgedRun) -> String {
    let z = judged.deviations.map_or_else(String::new, |z| format!("{z:.2}").replace('-', "−"));
    if judged.mad_outlier { format!("{z} MAD") } else { z }
}

fn codes(judged: &JudgedRun) -> String {
    let codes: Vec<&str> = judged.run.warnings.iter().map(|code| code.code()).collect();
    codes.join(" ")
}

/// `12 345.6`: thousands apart by a narrow space.
fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').map_or((text.as_str(), None), |(w, p)| (w, Some(p)));
    let mut grouped = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 && whole.as_bytes()[i - 1].is_ascii_digit() {
            grouped.push('\u{202f}');
        }
        grouped.push(c);
    }
    match part {
        Some(part) => format!("{grouped}.{part}"),
        None => grouped,
    }
}

/// All runs, for the script. A row is an array; see the script for its order.
pub(super) fn data(report: &Report) -> String {
    let mut code_sets: Vec<String> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut rows = String::with_capacity(report.runs.len() * 72 + 64);
    for judged in &report.runs {
        let run = &judged.run;
        let text = codes(judged);
        let set = *numbers.entry(text).or_insert_with_key(|text| {
            code_sets.push(text.clone());
            code_sets.len() - 1
        });
        let us = |ns: u64| ns as f64 / 1e3;
        let tail =
            |ns: u64, needs: u64| if run.ios < needs { "null".to_owned() } else { format!("{:.1}", us(ns)) };
        let z = judged.deviations.map_or_else(|| "null".to_owned(), |z| format!("{z:.2}"));
        if !rows.is_empty() {
            rows.push(',');
        }
        let _ = write!(
            rows,
            "[{},{},{},{},{:.1},{:.0},{:.1},{},{},{:.1},{z},{},{set}]",
            run.position,
            run.point,
            run.pass,
            fate(judged).0,
            run.bandwidth_bytes_per_s / 1e6,
            run.iops,
            us(run.latency_ns_p50),
            tail(run.latency_ns_p99, 100),
            tail(run.latency_ns_p99_9, 1000),
            us(run.latency_ns_max),
            u8::from(judged.mad_outlier),
        );
    }
    let used: BTreeMap<u32, Value> =
        report.points.iter().map(|p| (p.point, json!([p.point, sheets::number(p), p.label]))).collect();
    let points = json!(used.into_values().collect::<Vec<_>>());
    format!(
        "{{\"fates\":{},\"codes\":{},\"points\":{points},\"rows\":[{rows}]}}",
        json!(FATES),
        json!(code_sets)
    )
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(1_234_567.84, 1), "1\u{202f}234\u{202f}567.8");
        assert_eq!(grouped(123.0, 0), "123");
        assert_eq!(grouped(0.04, 1), "0.0");
    }
}
