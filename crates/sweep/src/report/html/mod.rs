//! The report as one HTML file that opens offline.
//!
//! Everything is inside: style, script, the figures as SVG ([`chart`]) and the data. A content security policy
//! forbids the page to fetch anything, so "offline" is enforced rather than hoped for. The recommendation comes
//! first, then what it rests on, in order of how many readers want it. Every figure has its numbers
//! as a table beside it; without scripts the tables remain.
//!
//! All text from outside goes through [`escape`]: as HTML, as JSON inside a script element, or as a label of a figure.

mod chart;
mod escape;
mod figures;
mod hierarchy;
mod limits;
mod page;
mod picture;
mod runs;
mod saturation;
mod sections;

use std::fmt::Write;

use super::Report;

pub use hierarchy::ladder;
pub use page::{Page, PageChart, PageMark, PageTable, page};
pub use picture::{page_svg, svg};
pub use saturation::{SaturationPage, saturation};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What the page may do: run what is in it, and show images made on it. Nothing may be fetched.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; \
                      base-uri 'none'; form-action 'none'";

/// The page.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut ladders = figures::ladders(report);
    let mut measured = figures::measured(report);
    let latency = figures::latency(report);
    // The papers' numbers help only whoever compares with the papers.
    if !report.is_papers() {
        ladders.iter_mut().chain(&mut measured).for_each(|figure| figure.papers = None);
    }
    let mut page = String::with_capacity(1 << 20);
    head(&mut page, &report.title());
    sections::navigation(&mut page, report, &ladders, &measured, &latency);
    page.push_str("<div class=\"page\">\n");
    sections::header(&mut page, report);
    page.push_str("<main id=\"main\">\n");
    sections::recommendation(&mut page, report);
    sections::compromise(&mut page, report);
    sections::figures(&mut page, "recipe", "From the baseline to the best, one setting at a time", &ladders);
    sections::figures(&mut page, "figures", "What was measured", &measured);
    sections::figures(&mut page, "latency", "Latency", &latency);
    limits::section(&mut page, report);
    sections::configurations(&mut page, report);
    sections::warnings(&mut page, report);
    sections::machine(&mut page, report);
    sections::method(&mut page, report);
    sections::all_runs(&mut page, report);
    page.push_str("</main>\n");
    sections::footer(&mut page, report);
    page.push_str("</div>\n");
    scripts(&mut page, report);
    page.push_str("</body>\n</html>\n");
    page
}

fn head(page: &mut String, title: &str) {
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"flashwright\">\n\
         <title>{} – flashwright</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        escape::text(title)
    );
}

/// The data of the runs, and the page's own script.
fn scripts(page: &mut String, report: &Report) {
    let data = escape::script_json(&runs::data(report));
    let _ = writeln!(page, "<script type=\"application/json\" id=\"runs-data\">{data}</script>");
    let _ = writeln!(page, "<script>\n{SCRIPT}</script>");
}
