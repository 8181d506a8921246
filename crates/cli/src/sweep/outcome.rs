//! What a session leaves: results.json, report.html, and the gist on standard output.

use std::path::Path;

use base::ErrorClass;
use sweep::load::{LoadError, load};
use sweep::report::{Report, html, json, table};
use sweep::run::{Ended, Outcome};
use sweep::store::{RecordOf, Store};

use super::session::{Session, shell_word};
use crate::failure::Failure;
use crate::{output, paint};

/// The report for people.
pub const HTML: &str = "report.html";
/// The report for programs.
pub const JSON: &str = "results.json";

/// The report of a results file.
pub fn loaded(store: &Store) -> Result<Report, Failure> {
    let told = |error: LoadError| match error {
        LoadError::Store(error) => error.into(),
        LoadError::Analysis(_) => Failure::of(ErrorClass::Failed, &error).about(store.path().display()),
    };
    let data = load(store).map_err(told)?;
    Report::new(&data).map_err(|error| told(error.into()))
}

/// Writes the reports and prints the gist.
pub fn report(session: &Session<'_>, store: &mut Store, outcome: Option<&Outcome>) -> Result<(), Failure> {
    if outcome.is_some_and(|outcome| outcome.completeness.done == 0) {
        return Ok(());
    }
    let report = loaded(store)?;
    let document = json(&report);
    let beside = |name: &str| session.folder.join(name);
    // Printed even where nothing can be written: a full disk is no reason to lose sight of what was measured.
    let written = output::write_file(&beside(JSON), &document)
        .and_then(|()| output::write_file(&beside(HTML), &html(&report)))
        .and_then(|()| Ok(store.set_fates(fates(&report))?))
        .map_err(|failure| unwritten(failure, session));
    if session.json {
        output::print(&document)?;
        return written;
    }
    let mut text = String::new();
    // Of half a sweep nothing is concluded, and whoever stopped it knows that it is half.
    if outcome.is_none_or(|outcome| outcome.ended != Ended::Interrupted) {
        for line in table(&report, output::width()) {
            text += paint::line(&line).trim_end();
            text.push('\n');
        }
        text.insert(0, '\n');
    }
    if let Err(failure) = written {
        output::print(&text)?;
        return Err(failure);
    }
    text += &format!("\n{} {}\n", paint::dim("report"), paint::title(&shown(&beside(HTML))));
    text += &format!("{}   {}, {}\n", paint::dim("data"), shown(store.path()), shown(&beside(JSON)));
    output::print(&text)
}

/// What became of each run, for whoever asks results.db itself.
fn fates(report: &Report) -> impl Iterator<Item = (RecordOf, &'static str)> {
    report.runs.iter().map(|judged| {
        let id = judged.run.id;
        (if judged.repeated { RecordOf::Voided(id) } else { RecordOf::Run(id) }, judged.fate.label())
    })
}

/// What to do about a report that could not be written: the runs themselves are in results.db.
fn unwritten(failure: Failure, session: &Session<'_>) -> Failure {
    let folder = shell_word(&session.folder.display().to_string());
    failure.hint(format!(
        "all runs are kept; make room, then `flashwright report {folder}`, or write it elsewhere with --output FILE"
    ))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Prints the report as JSON.
pub fn print_json(store: &Store) -> Result<(), Failure> {
    output::print(&json(&loaded(store)?))
}
