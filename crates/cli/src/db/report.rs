//! `db report`: what a comparison found, again, in each form that `report` has.

use std::path::{Path, PathBuf};

use database::store::{self, Kept};
use sweep::report::{page_markdown, page_svg, push_row};

use super::args::ReportArgs;
use super::document::DbCompareDocument;
use super::page;
use crate::failure::Failure;
use crate::forms::{self, ReportFormat};
use crate::output::{self, Sink};
use crate::plan;

/// Columns of the form for a spreadsheet; `output` knows our files by the first of them.
const COLUMNS: [&str; 17] = [
    "block",
    "tier",
    "query",
    "temperature",
    "key",
    "elapsed_ns",
    "cpu_ns",
    "io_ns",
    "blocks_read",
    "blocks_hit",
    "block_bytes",
    "device_bytes",
    "rows",
    "hash",
    "read_bytes",
    "read_runs",
    "scattered_bytes",
];

/// Shows what was kept.
pub fn report(args: &ReportArgs) -> Result<(), Failure> {
    let format = forms::format(args.format, args.output.as_deref())?;
    match format.or(args.output.as_ref().map(|_| ReportFormat::Html)) {
        Some(format) => one_form(args, format),
        None => screen(args),
    }
}

/// On the terminal, and as a page where `--html` says so.
fn screen(args: &ReportArgs) -> Result<(), Failure> {
    let sink = |path| {
        Sink::of_flag("html", Some(path), false)
            .map_err(|failure| failure.hint("name another file, or move that one away"))
    };
    let sink = args.html.as_deref().map(sink).transpose()?;
    if args.json && sink == Some(Sink::Stdout) {
        return Err(Failure::invalid("--html=-: standard output takes the JSON document").hint("name a file"));
    }
    let document = DbCompareDocument::of(&store::read(&args.results)?, None);
    if let Some(sink) = &sink {
        sink.write(&sweep::report::page(&page::whole(&document)))?;
    }
    match sink {
        _ if args.json => output::print_document(&document),
        Some(Sink::Stdout) => Ok(()),
        _ => output::print(&plan::screen::text(&page::of_compare(&document))),
    }
}

fn one_form(args: &ReportArgs, format: ReportFormat) -> Result<(), Failure> {
    let results = file_of(&args.results);
    let sink = Sink::of(args.output.as_deref(), args.force)?;
    sink.is_none_of([results.as_path()])?;
    forms::check_extension(args.format, args.output.as_deref())?;
    let kept = store::read(&results)?;
    let document = DbCompareDocument::of(&kept, None);
    let page = page::whole(&document);
    let text = match format {
        ReportFormat::Html => sweep::report::page(&page),
        ReportFormat::Md => page_markdown(&page),
        ReportFormat::Csv => csv(&kept),
        ReportFormat::Json => output::document_text(&document)?,
        ReportFormat::Svg => page_svg(&page),
    };
    match (&args.output, format) {
        (None, ReportFormat::Html) => forms::beside(&results, &text, args.force),
        _ => sink.write(&text),
    }
}

fn file_of(results: &Path) -> PathBuf {
    if results.is_dir() { results.join(store::FILE_NAME) } else { results.to_owned() }
}

/// Every run; what was not measured is empty.
fn csv(kept: &Kept) -> String {
    let mut text = String::new();
    push_row(&mut text, &COLUMNS.map(str::to_owned));
    for run in &kept.runs {
        let (cost, pages) = (&run.asked.cost, run.asked.pages);
        let known = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        push_row(
            &mut text,
            &[
                run.block.to_string(),
                kept.meta.tiers[run.tier].name.clone(),
                run.query.word().to_owned(),
                run.temperature.word().to_owned(),
                run.key.to_string(),
                cost.elapsed_ns.to_string(),
                known(cost.cpu_ns),
                known(cost.io_ns),
                known(cost.blocks_read),
                known(cost.blocks_hit),
                cost.block_bytes.to_string(),
                known(cost.device_bytes),
                run.asked.answer.rows.to_string(),
                format!("{:016x}", run.asked.answer.hash),
                known(pages.map(|pages| pages.bytes)),
                known(pages.map(|pages| pages.runs)),
                known(pages.map(|pages| pages.scattered_bytes)),
            ],
        );
    }
    text
}
