//! `flashwright report`: a sweep's report, made again from its results.

use sweep::report::{csv, figures_csv, html, json, markdown, svg};
use sweep::store::Store;

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::forms::{ReportFormat, beside, check_extension, format};
use crate::output::Sink;
use crate::sweep::loaded;

/// Makes a report.
pub fn report(args: &ReportArgs) -> Result<(), Failure> {
    let format = format(args.format, args.output.as_deref())?.unwrap_or(ReportFormat::Html);
    if args.figures && format != ReportFormat::Csv {
        return Err(Failure::invalid("--figures: is a form of CSV")
            .hint("say --format csv; the other forms have the figures anyway"));
    }
    let sink = Sink::of(args.output.as_deref(), args.force)?;
    let store = Store::open_read_only(&args.sweep)?;
    sink.is_none_of([store.path()])?;
    check_extension(args.format, args.output.as_deref())?;
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
        (None, ReportFormat::Html) => beside(store.path(), &text, args.force),
        _ => sink.write(&text),
    }
}
