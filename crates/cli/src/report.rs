//! `flashwright report`: a sweep's report, made again from its results.

use std::path::{Path, PathBuf};

use sweep::report::{csv, figures_csv, html, json, markdown, svg};
use sweep::store::Store;

use crate::args::{ReportArgs, ReportFormat};
use crate::failure::Failure;
use crate::output::{self, Sink};
use crate::sweep::loaded;

/// Makes a report.
pub fn report(args: &ReportArgs) -> Result<(), Failure> {
    let named = by_name(args.output.as_deref());
    if let (Some(format), Some(named), Some(path)) = (args.format, named, &args.output)
        && format != named
    {
        return Err(Failure::invalid(format!("--output={}: its name says another format", path.display()))
            .hint("leave --format out, or name a file with an extension that fits it"));
    }
    let format = args.format.or(named).unwrap_or(ReportFormat::Html);
    if args.figures && format != ReportFormat::Csv {
        return Err(Failure::invalid("--figures: is a form of CSV")
            .hint("say --format csv; the other forms have the figures anyway"));
    }
    let sink = Sink::of(args.output.as_deref(), args.force)?;
    let store = Store::open_read_only(&args.sweep)?;
    sink.is_none_of([store.path()])?;
    let report = loaded(&store)?;
    let text = match format {
        ReportFormat::Html => html(&report),
        ReportFormat::Md => markdown(&report),
        ReportFormat::Csv if args.figures => figures_csv(&report),
        ReportFormat::Csv => csv(&report),
        ReportFormat::Json => json(&report),
        ReportFormat::Svg => svg(&report),
    };
    match (&args.output, format) {
        (None, ReportFormat::Html) => {
            let path = store.path().with_file_name("report.html");
            Sink::of(Some(&path), args.force)?;
            output::write_file(&path, &text)?;
            output::print(&format!("{}\n", path.display()))
        }
        _ => sink.write(&text),
    }
}

/// The form that a file's name asks for.
fn by_name(path: Option<&Path>) -> Option<ReportFormat> {
    let extension = PathBuf::from(path?).extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "html" | "htm" => Some(ReportFormat::Html),
        "md" | "markdown" => Some(ReportFormat::Md),
        "csv" => Some(ReportFormat::Csv),
        "json" => Some(ReportFormat::Json),
        "svg" => Some(ReportFormat::Svg),
        _ => None,
    }
}
