//! The forms of a report, of sweeps and of databases: which one is asked for, and where a page goes.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::failure::Failure;
use crate::output::{self, Sink};

/// The forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// One self-contained file that opens offline
    Html,
    /// Markdown, for a ticket or a wiki
    Md,
    /// Every run, for a spreadsheet
    Csv,
    /// The report itself, for programs
    Json,
    /// The answer and its first figures as one picture
    Svg,
}

/// Writes a page as `report.html` beside results, and says where it is.
pub fn beside(results: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let path = results.with_file_name("report.html");
    Sink::of(Some(&path), force)?;
    output::write_file(&path, text)?;
    output::print(&format!("{}\n", path.display()))
}

/// The form that `--format` or the name of `--output` asks for; None if neither does.
pub fn format(format: Option<ReportFormat>, output: Option<&Path>) -> Result<Option<ReportFormat>, Failure> {
    let named = by_name(output);
    if let (Some(format), Some(named), Some(path)) = (format, named, output)
        && format != named
    {
        return Err(Failure::invalid(format!("--output={}: its name says another format", path.display()))
            .hint("leave --format out, or name a file with an extension that fits it"));
    }
    Ok(format.or(named))
}

/// Refuses a file whose extension names no form, where `--format` does not say which.
pub fn check_extension(format: Option<ReportFormat>, output: Option<&Path>) -> Result<(), Failure> {
    match (format, by_name(output), output, output.and_then(Path::extension)) {
        (None, None, Some(path), Some(extension)) => {
            let extension = extension.display();
            Err(Failure::invalid(format!(
                "--output={}: no form has the extension .{extension}",
                path.display()
            ))
            .hint("html, md, csv, json and svg are known; or say which by --format"))
        }
        _ => Ok(()),
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
