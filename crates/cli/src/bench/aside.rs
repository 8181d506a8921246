//! What a job file asks for beside figures: logs in fio's format, and how steady a job was that ended once it was.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bench::run::log::{Log, Quantity};
use bench::run::search::{LatencyGoal, Searched};
use bench::run::steady::{Criterion, Steadiness, SteadyPlan};

use super::request::Request;
use super::run::{Done, Run};
use crate::failure::Failure;
use crate::{output, paint};

/// Refuses logs that would replace what is no log, before anything runs.
pub fn check(request: &Request, force: bool) -> Result<(), Failure> {
    let logs = request.jobs().filter_map(|job| job.fio.as_ref()).flat_map(|fio| fio.log_files()).flatten();
    for (path, _) in logs {
        let there = std::fs::symlink_metadata(&path).is_ok();
        if there && !(path.is_file() && (force || is_log(&path))) {
            return Err(Failure::refused(format!("{}: is there already, and is no log", path.display()))
                .hint("name the log otherwise, or move this away"));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(Failure::invalid(format!(
                "{}: there is no directory {}",
                path.display(),
                folder.display()
            ))
            .hint("make it first, or name the log otherwise"));
        }
    }
    Ok(())
}

/// Whether a file is empty, or begins with a line of a log.
fn is_log(path: &Path) -> bool {
    use std::io::Read as _;
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(256).read_to_end(&mut start));
    let text = String::from_utf8_lossy(&start);
    let line = text.lines().next().unwrap_or_default();
    let is_number = |field: &str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    let fields: Vec<&str> = line.split(", ").collect();
    read.is_ok() && (start.is_empty() || (5..=6).contains(&fields.len()) && fields.into_iter().all(is_number))
}

/// Writes the logs of what has run, and says how steady it was.
pub fn tell(run: &Run<'_>) -> Result<(), Failure> {
    for done in &run.done {
        if let Some(steadiness) = &done.aside.steadiness {
            let note = format!("{}: {}", done.job.name, steadiness_words(steadiness));
            output::tell(&format!("{} {note}\n", paint::dim("note:")));
        }
        let goal = done.job.fio.as_ref().and_then(|fio| fio.conduct.latency);
        if let Some((goal, searched)) = goal.zip(done.aside.searched) {
            let note = format!("{}: {}", done.job.name, search_words(&goal, searched));
            output::tell(&format!("{} {note}\n", paint::dim("note:")));
        }
        write_logs(done)?;
    }
    Ok(())
}

fn write_logs(done: &Done<'_>) -> Result<(), Failure> {
    let Some(fio) = &done.job.fio else { return Ok(()) };
    for (files, log) in fio.log_files().iter().zip(&done.aside.logs) {
        for (path, quantity) in files {
            write(log, *quantity, path).map_err(|error| {
                Failure::failed(format!("{}: cannot write the log: {error}", path.display()))
            })?;
        }
    }
    Ok(())
}

fn write(log: &Log, quantity: Quantity, path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)?;
    let mut out = BufWriter::new(file.as_file_mut());
    log.write(quantity, &mut out)?;
    out.flush()?;
    drop(out);
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// A criterion with its limit and window: `IOPS within 10 % over 30 s`.
pub fn limit(plan: &SteadyPlan) -> String {
    let what = match plan.criterion {
        Criterion::Iops => "IOPS",
        Criterion::Bandwidth => "bandwidth",
        Criterion::Latency => "mean latency",
    };
    let how = if plan.slope { "slope below" } else { "within" };
    let unit = if plan.percent { " %" } else { "" };
    format!("{what} {how} {}{unit} over {}", plan.limit, units::seconds(plan.window))
}

/// What a search for a depth came to.
fn search_words(goal: &LatencyGoal, searched: Searched) -> String {
    let target = units::nanoseconds(goal.target.as_nanos() as f64);
    let wanted = format!("{} % of requests within {target}", goal.percentile);
    match searched {
        Searched::Found(depth) if goal.goes_on => {
            format!(
                "iodepth={depth} is what its search for {wanted} came to; the figures are of all depths it tried"
            )
        }
        Searched::Found(depth) => format!("iodepth={depth} is what its search for {wanted} came to"),
        Searched::NotHeld => {
            format!("no depth holds {wanted}: with one request in flight more of them take longer")
        }
        Searched::Unfinished => format!(
            "no depth was found for {wanted}: the run ended before the search, and its figures may be of several depths"
        ),
    }
}

fn steadiness_words(steadiness: &Steadiness) -> String {
    let plan = &steadiness.plan;
    let unit = if plan.percent { " %" } else { "" };
    let limit = limit(plan);
    match (steadiness.attained, steadiness.criterion) {
        (true, reached) => format!("ended because it was steady: {limit}; it came to {reached:.3}{unit}"),
        // Nothing was compared yet.
        (false, 0.0) => format!("ended before it could be judged whether it is steady: {limit}"),
        (false, reached) => format!("not steady: {limit}; it came to {reached:.3}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_log_is_taken_for_one() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("x_bw.1.log");
        for (text, expected) in [
            ("", true),
            ("203, 38896, 0, 0, 0\n", true),
            ("1, 2, 1, 4096, 8192, 0\n5, 6", true),
            ("1, 2, 3\n", false),
            ("a, 2, 1, 4096, 0\n", false),
            ("my diary\n", false),
        ] {
            std::fs::write(&path, text).expect("writes");
            assert_eq!(is_log(&path), expected, "{text:?}");
        }
    }
}
