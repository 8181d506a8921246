//! Jobs in words: a line, a few lines with a bar, a table. Pure functions of what is known of them.

use std::time::Duration;

use stage::job::Remedy;
use stage::{JobStatus, Level, State, Verb};

use crate::paint;

/// Columns of a bar.
const BAR: usize = 24;

/// What a running job is at.
pub fn phase(job: &JobStatus) -> &'static str {
    match job.state {
        State::Queued => "queued",
        State::Committed => "finishing",
        State::Done => "done",
        State::Failed => "failed",
        State::Cancelled => "cancelled",
        State::Running if !job.walked && job.bytes_written == 0 => "looking",
        State::Running if !job.walked || job.bytes_written < job.bytes_total => "copying",
        State::Running if job.bytes_verified < job.bytes_total => "verifying",
        State::Running => "committing",
    }
}

/// The time left at the present rate.
pub fn left(job: &JobStatus) -> Option<Duration> {
    let rate = job.bytes_per_s.filter(|rate| *rate >= 1.0)?;
    if job.state != State::Running || !job.walked {
        return None;
    }
    let bytes = job.bytes_total.saturating_sub(job.bytes_written);
    (bytes > 0).then(|| Duration::from_secs_f64((bytes as f64 / rate).min(1e9)))
}

/// The part of the whole that `bytes` are.
fn share(bytes: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { (bytes as f64 / total as f64).min(1.0) }
}

/// A whole percentage that is 100 only at the end.
fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).floor())
}

/// How far a job is: what was read back, what is written, what is left.
pub fn bar(job: &JobStatus, width: usize) -> String {
    let cells = |bytes| (share(bytes, job.bytes_total) * width as f64).floor() as usize;
    let (verified, written) = (cells(job.bytes_verified), cells(job.bytes_written));
    let written = written.max(verified);
    let (sure, unsure) = ("━".repeat(verified), "╌".repeat(written - verified));
    let rest = "─".repeat(width - written);
    format!("{}{}{}", paint::good(&sure), unsure, paint::dim(&rest))
}

/// Where a job goes from and to, in `room` columns: names are cut in front, because ends tell them apart.
pub fn places(job: &JobStatus, room: usize) -> String {
    let (from, to) = (job.spec.source.shown(), job.spec.destination.shown());
    let room = room.saturating_sub(" → ".chars().count());
    let (a, b) = (from.chars().count(), to.chars().count());
    // Each has half, and what the other does not need.
    let half = room / 2;
    let (most_a, most_b) = if a + b <= room {
        (a, b)
    } else if a <= half {
        (a, room - a)
    } else if b <= half {
        (room - b, b)
    } else {
        (half, room - half)
    };
    format!("{} → {}", end_of(&from, most_a), end_of(&to, most_b))
}

/// The end of a text, in `room` columns.
pub fn end_of(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(count - room.saturating_sub(1)).collect();
    if room == 0 { String::new() } else { format!("…{kept}") }
}

fn word(verb: Verb) -> &'static str {
    match verb {
        Verb::Copy => "cp",
        Verb::Move => "mv",
    }
}

/// A word in the colour of its meaning.
fn state(job: &JobStatus) -> String {
    let word = phase(job);
    match job.state {
        State::Failed => paint::bad(word),
        State::Done if job.error.is_some() => paint::warn(word),
        State::Done => paint::good(word),
        State::Queued | State::Cancelled => paint::dim(word),
        State::Running | State::Committed => word.to_owned(),
    }
}

/// What a job moves, in a few words: `12 files, 1.50 GiB`.
pub fn amount(job: &JobStatus) -> String {
    let files = job.files_total.max(job.files_done);
    let plural = if files == 1 { "file" } else { "files" };
    let count = if files >= 100_000 { units::count(files as f64) } else { files.to_string() };
    let more = if job.walked || job.state.is_final() { "" } else { " so far" };
    format!("{count} {plural}, {}{more}", units::bytes(job.bytes_total.max(job.bytes_written)))
}

/// How a job goes, in parts that a line is made of, the most important first.
pub fn progress(job: &JobStatus) -> Vec<String> {
    let mut parts = Vec::new();
    if job.walked && job.bytes_total > 0 {
        parts.push(percent(share(job.bytes_written, job.bytes_total)));
    }
    if let Some(rate) = job.bytes_per_s.filter(|rate| *rate >= 1.0) {
        parts.push(units::bandwidth(rate));
    }
    if let Some(left) = left(job) {
        parts.push(format!("{} left", units::seconds(left)));
    }
    parts.push(amount(job));
    if job.bytes_total > 0 && job.walked {
        parts.push(format!("verified {}", percent(share(job.bytes_verified, job.bytes_total))));
    }
    parts
}

/// As many parts as fit into `room` columns.
pub fn joined(parts: &[String], room: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let gap = if line.is_empty() { 0 } else { 2 };
        if line.chars().count() + gap + part.chars().count() > room {
            break;
        }
        line.push_str(&" ".repeat(gap));
        line.push_str(part);
    }
    line
}

/// A job for a person, in `width` columns: what it is, a bar where it is at work, and what there is to say.
pub fn block(job: &JobStatus, width: usize, now: u64) -> Vec<String> {
    let id = format!("{:>4}", job.id);
    let head = format!("{id}  {:<10} {}  ", phase(job), word(job.spec.verb));
    let room = width.saturating_sub(head.chars().count());
    let pad = " ".repeat(10_usize.saturating_sub(phase(job).chars().count()));
    let mut lines = vec![format!("{id}  {}{pad} {}  {}", state(job), word(job.spec.verb), places(job, room))];
    let indent = "      ";
    let room = width.saturating_sub(indent.len());
    match job.state {
        State::Running | State::Committed => {
            let bar_width = BAR.min(room / 3);
            let rest = room.saturating_sub(bar_width + 2);
            lines.push(format!("{indent}{}  {}", bar(job, bar_width), joined(&progress(job), rest)));
        }
        State::Done => {
            // Of a copy that was lost since, that is no comfort.
            let durable = job.durable.filter(|_| !job.has_left_its_source());
            let took = durable.map(|at| at.saturating_sub(job.created));
            let mut parts = vec![amount(job)];
            parts.extend((job.level == Level::InMemory).then(|| job.promise().to_owned()));
            parts.extend(took.map(|took| format!("durable after {}", whole_seconds(took))));
            parts.extend(job.finished.map(|at| ago(at, now)));
            lines.push(paint::dim(&format!("{indent}{}", joined(&parts, room))));
        }
        State::Queued | State::Failed | State::Cancelled => {}
    }
    if let Some(by) = job.held_back_by.as_ref().filter(|_| !job.state.is_final()) {
        lines.extend(wrapped(&format!("held back by {by}"), indent, width, paint::warn));
    }
    if let Some(why) = &job.error {
        lines.extend(wrapped(&why.message, indent, width, paint::bad));
        if let Some(hint) = &why.hint {
            let hint = Remedy::Retry(job.id).spell(hint);
            lines.extend(wrapped(&format!("hint: {hint}"), indent, width, paint::dim));
        }
    }
    for note in &job.notes {
        lines.extend(wrapped(&format!("note: {note}"), indent, width, paint::dim));
    }
    lines
}

/// A time that is known to the second, for which no fraction is printed.
fn whole_seconds(seconds: u64) -> String {
    if seconds < 10 { format!("{seconds} s") } else { units::seconds(Duration::from_secs(seconds)) }
}

/// How long ago that was.
fn ago(at: u64, now: u64) -> String {
    match now.saturating_sub(at) {
        0..=1 => "just now".to_owned(),
        seconds @ 2..=86_399 => format!("{} ago", whole_seconds(seconds)),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// A text in lines of `width` columns, broken at blanks where there are any.
fn wrapped(text: &str, indent: &str, width: usize, colour: fn(&str) -> String) -> Vec<String> {
    let room = width.saturating_sub(indent.len()).max(20);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        loop {
            let gap = usize::from(!line.is_empty());
            let count = word.chars().count();
            if line.chars().count() + gap + count <= room {
                line.push_str(if gap == 1 { " " } else { "" });
                line.push_str(&word);
                break;
            }
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
                continue;
            }
            // A path longer than a line.
            lines.push(word.chars().take(room).collect());
            word = word.chars().skip(room).collect();
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines.into_iter().map(|line| format!("{indent}{}", colour(&line))).collect()
}

/// All jobs in a line: how many there are in each state, and what is moved a second.
pub fn summary(jobs: &[JobStatus]) -> String {
    let mut parts = Vec::new();
    for (word, states) in [
        ("running", &[State::Running, State::Committed][..]),
        ("queued", &[State::Queued]),
        ("failed", &[State::Failed]),
        ("cancelled", &[State::Cancelled]),
        ("done", &[State::Done]),
    ] {
        let count = jobs.iter().filter(|job| states.contains(&job.state)).count();
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    if parts.is_empty() {
        return "no jobs".to_owned();
    }
    let rate: f64 = jobs.iter().filter_map(|job| job.bytes_per_s).sum();
    if rate >= 1.0 {
        parts.push(units::bandwidth(rate));
    }
    parts.join(", ")
}

/// Those worth a person's attention: what is under way or failed, and of what has ended well the newest `recent`; in the
/// order of their numbers. And how many are left out.
pub fn worth_showing(jobs: &[JobStatus], recent: usize) -> (Vec<&JobStatus>, usize) {
    let ended = |job: &&JobStatus| matches!(job.state, State::Done | State::Cancelled);
    let total = jobs.iter().filter(ended).count();
    let mut old = total.saturating_sub(recent);
    let left_out = old;
    let shown = jobs.iter().filter(|job| {
        let drop = ended(job) && old > 0;
        old -= usize::from(drop);
        !drop
    });
    (shown.collect(), left_out)
}

/// One job's state in one plain line, for logs.
pub fn line(job: &JobStatus) -> String {
    format!("job {} ({}): {}", job.id, job.spec.destination.shown(), how(job))
}

/// The same of a command's own job, which has no number for a user.
pub fn unnumbered_line(job: &JobStatus) -> String {
    format!("{}: {}", job.spec.destination.shown(), how(job))
}

fn how(job: &JobStatus) -> String {
    let mut parts = vec![phase(job).to_owned()];
    if job.state == State::Running {
        parts.extend(progress(job));
    } else if job.state == State::Done {
        parts.push(amount(job));
    }
    if let Some(by) = job.held_back_by.as_ref().filter(|_| !job.state.is_final()) {
        parts.push(format!("held back by {by}"));
    }
    let why = job.error.as_ref().map_or_else(String::new, |why| format!(": {}", why.message));
    format!("{}{why}", parts.join(", "))
}

/// What a job that has come to its end did, for whoever waited.
pub fn ended(job: &JobStatus, level: Level) -> String {
    let to = job.spec.destination.shown();
    let what = match (job.state, level) {
        (_, Level::Staged) => return format!("job {}: accepted", job.id),
        (_, Level::Local) if !job.level.is_committed() => {
            return format!("{}: synced where it is; job {} goes on", job.spec.source.shown(), job.id);
        }
        _ => format!("{to}: {}, {}", job.promise(), amount(job)),
    };
    let took = job.durable.map(|at| at.saturating_sub(job.created)).filter(|seconds| *seconds > 0);
    match took {
        Some(seconds) => format!("{what}, in {}", whole_seconds(seconds)),
        None => what,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use stage::job::Why;
    use stage::{ErrorClass, JobSpec, Options, Place};

    /// A job of 100 MiB at some point.
    pub fn job(state: State) -> JobStatus {
        let path = |path: &str| Place::of_path(std::path::Path::new(path)).expect("a path");
        JobStatus {
            id: 7,
            spec: JobSpec {
                verb: Verb::Move,
                source: path("/flash/run/ckpt-7"),
                destination: path("/lustre/project/run/ckpt-7"),
                options: Options::default(),
            },
            state,
            level: Level::Staged,
            error: None,
            notes: Vec::new(),
            attempts: 1,
            created: 1000,
            durable: None,
            finished: None,
            files_total: 12,
            files_done: 3,
            bytes_total: 100 << 20,
            bytes_written: 62 << 20,
            bytes_verified: 50 << 20,
            walked: true,
            bytes_per_s: Some(1e6),
            held_back_by: None,
            in_memory: false,
            source: None,
        }
    }

    fn plain(lines: &[String]) -> String {
        anstream::adapter::strip_str(&lines.join("\n")).to_string()
    }

    #[test]
    fn a_running_job_is_shown_with_bar_rate_and_time_left() {
        let mut running = job(State::Running);
        running.held_back_by = Some("bwlimit 1 MB/s".to_owned());
        assert_eq!(
            plain(&block(&running, 80, 2000)),
            "   7  copying    mv  /flash/run/ckpt-7 → /lustre/project/run/ckpt-7
      ━━━━━━━━━━━━╌╌──────────  62 %  1.00 MB/s  40 s left  12 files, 100 MiB
      held back by bwlimit 1 MB/s"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut failed = job(State::Failed);
        failed.error = Some(Why {
            message: format!("/{}: cannot write: No space left on device", "x".repeat(200)),
            hint: Some("make room at the destination, then: stage retry".to_owned()),
            class: ErrorClass::Failed,
            errno: Some(28),
            cause: stage::error::Cause::NoSpace,
        });
        failed.notes = vec!["12 owners could not be kept".to_owned()];
        let mut done = job(State::Done);
        (done.durable, done.finished) = (Some(1042), Some(1043));
        for width in [40, 60, 80, 120, 200] {
            for job in [job(State::Running), job(State::Queued), failed.clone(), done.clone()] {
                for line in block(&job, width, 2000) {
                    let columns = plain(std::slice::from_ref(&line)).chars().count();
                    assert!(columns <= width, "{columns} > {width}: {line}");
                }
            }
        }
        assert!(plain(&block(&failed, 80, 0)).contains("flashwright stage retry 7"));
    }

    #[test]
    fn what_has_ended_says_when_and_for_how_long() {
        let mut done = job(State::Done);
        (done.durable, done.finished, done.bytes_per_s) = (Some(1042), Some(1043), None);
        for (seconds, words) in [(1, "1 s"), (9, "9 s"), (42, "42 s"), (65, "1 min 05 s")] {
            assert_eq!(whole_seconds(seconds), words);
        }
        let text = plain(&block(&done, 80, 1100));
        assert!(text.ends_with("12 files, 100 MiB  durable after 42 s  57 s ago"), "{text}");
        let lost = stage::StageError::refused("is not there any more", "move it again");
        let lost = JobStatus { error: Some(Why::of(&lost)), ..done.clone() };
        assert!(!plain(&block(&lost, 80, 1100)).contains("durable"));
        assert_eq!(
            ended(&done, Level::Durable),
            "/lustre/project/run/ckpt-7: durable and verified, 12 files, 100 MiB, in 42 s"
        );
    }

    #[test]
    fn a_hundred_percent_is_said_at_the_end_only_and_no_time_is_left_without_a_rate() {
        let mut nearly = job(State::Running);
        nearly.bytes_written = (100 << 20) - 1;
        assert_eq!(progress(&nearly)[0], "99 %");
        nearly.bytes_per_s = None;
        assert_eq!(left(&nearly), None);
        nearly.bytes_written = 100 << 20;
        assert_eq!(phase(&nearly), "verifying");
        nearly.bytes_verified = 100 << 20;
        assert_eq!(phase(&nearly), "committing");
        let mut empty = job(State::Running);
        (empty.bytes_total, empty.bytes_written, empty.bytes_verified) = (0, 0, 0);
        assert_eq!(plain(&[bar(&empty, 4)]), "────");
    }

    #[test]
    fn what_is_under_way_or_failed_is_always_shown() {
        let mut jobs: Vec<JobStatus> = (1..=5).map(|id| JobStatus { id, ..job(State::Done) }).collect();
        jobs.insert(0, JobStatus { id: 0, ..job(State::Failed) });
        jobs.push(JobStatus { id: 6, ..job(State::Running) });
        let (shown, left_out) = worth_showing(&jobs, 2);
        assert_eq!(shown.iter().map(|job| job.id).collect::<Vec<_>>(), [0, 4, 5, 6]);
        assert_eq!(left_out, 3);
        assert_eq!(summary(&jobs), "1 running, 1 failed, 5 done, 7.00 MB/s");
        assert_eq!(summary(&[]), "no jobs");
    }

    #[test]
    fn names_are_cut_in_front() {
        assert_eq!(end_of("/lustre/run/ckpt-7", 8), "…/ckpt-7");
        assert_eq!(end_of("ckpt-7", 6), "ckpt-7");
        assert_eq!(places(&job(State::Queued), 30), "…h/run/ckpt-7 → …ct/run/ckpt-7");
    }
}
