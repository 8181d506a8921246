//! Makes a report of a sweep of layouts that no drive has run: the papers' Table 1, 16,800 runs, on sixteen drives that
//! are a formula (`tests/report_data/layouts.rs`):
//! `cargo run -p flashwright-sweep --example layout_report -- DIRECTORY [small]`.
//!
//! So the report can be looked at, and its size and time measured, without the drives and the two days.

#[path = "../tests/report_data/mod.rs"]
mod report_data;

use std::path::PathBuf;
use std::time::Instant;

use report_data::layouts::{FULL, SMALL, layouts};
use sweep::report::{Report, csv, html, json, markdown};

/// How a report becomes text.
type Form = fn(&Report) -> String;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory")?);
    let data = layouts(if arguments.next().is_some() { &SMALL } else { &FULL });
    let begun = Instant::now();
    let report = Report::new(&data)?;
    println!("{} runs analysed in {:.2?}", data.runs.len(), begun.elapsed());
    std::fs::create_dir_all(&directory)?;
    let forms: [(&str, Form); 4] =
        [("report.html", html), ("report.md", markdown), ("runs.csv", csv), ("results.json", json)];
    for (name, form) in forms {
        let begun = Instant::now();
        let text = form(&report);
        println!("{name}: {} in {:.2?}", units::bytes(text.len() as u64), begun.elapsed());
        std::fs::write(directory.join(name), text)?;
    }
    println!("{}", report.headline);
    Ok(())
}
