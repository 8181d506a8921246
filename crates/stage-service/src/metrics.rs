//! Figures for Prometheus: one table of names, and what they are taken from.
//!
//! Names follow Prometheus' rules (a unit in full, `_total` for what only grows). Labels come from short lists of words in
//! this file and never from users: no path, no job, no user, so that the number of series has a bound. Of pools the
//! label is the name that the server's configuration gives them. Counters start at
//! zero with the process; of what the journal holds from before nothing is counted. Values are doubles, as Prometheus has
//! them: whole numbers to 2^53.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use crate::pools::PoolStatus;
use crate::qos::GovernorStatus;
use stage::error::Cause;
use stage::job::{JobId, JobStatus, State};

/// The type of what is served, as Prometheus' exposition format names itself.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How a figure behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process lives.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A series: a name, its labels, what it means.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    /// The metric's name.
    pub family: &'static str,
    /// Its label, with its value, as they are written between braces; empty without one.
    pub labels: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it means, one sentence.
    pub help: &'static str,
}

macro_rules! figures {
    ($($field:ident $family:literal $labels:literal $kind:ident $help:literal;)*) => {
        /// All figures of a process.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct Figures {
            $(#[doc = $help] pub $field: f64,)*
        }

        /// Every series there is, in the order in which it is written.
        pub const SERIES: &[Series] =
            &[$(Series { family: $family, labels: $labels, kind: Kind::$kind, help: $help },)*];

        impl Figures {
            /// The values, in the order of [`SERIES`].
            #[must_use]
            pub fn values(&self) -> [f64; SERIES.len()] {
                [$(self.$field,)*]
            }
        }
    };
}

figures! {
    queued "flashwright_stage_jobs" r#"state="queued""# Gauge "Jobs in the journal, by state.";
    running "flashwright_stage_jobs" r#"state="running""# Gauge "Jobs in the journal, by state.";
    committed "flashwright_stage_jobs" r#"state="committed""# Gauge "Jobs in the journal, by state.";
    done "flashwright_stage_jobs" r#"state="done""# Gauge "Jobs in the journal, by state.";
    failed "flashwright_stage_jobs" r#"state="failed""# Gauge "Jobs in the journal, by state.";
    cancelled "flashwright_stage_jobs" r#"state="cancelled""# Gauge "Jobs in the journal, by state.";
    held_back "flashwright_stage_jobs_held_back" "" Gauge "Running jobs that a limit, a governor or a deadline holds back now.";
    jobs_submitted "flashwright_stage_jobs_submitted_total" "" Counter "Requests to move something that were accepted.";
    jobs_done "flashwright_stage_jobs_ended_total" r#"state="done""# Counter "Jobs that ended, by how.";
    jobs_failed "flashwright_stage_jobs_ended_total" r#"state="failed""# Counter "Jobs that ended, by how.";
    jobs_cancelled "flashwright_stage_jobs_ended_total" r#"state="cancelled""# Counter "Jobs that ended, by how.";
    failed_space "flashwright_stage_job_failures_total" r#"cause="no-space""# Counter "Jobs that failed, by cause.";
    failed_fsync "flashwright_stage_job_failures_total" r#"cause="fsync-failed""# Counter "Jobs that failed, by cause.";
    failed_corrupt "flashwright_stage_job_failures_total" r#"cause="verification-failed""# Counter "Jobs that failed, by cause.";
    failed_changed "flashwright_stage_job_failures_total" r#"cause="source-changed""# Counter "Jobs that failed, by cause.";
    failed_permission "flashwright_stage_job_failures_total" r#"cause="permission""# Counter "Jobs that failed, by cause.";
    failed_exists "flashwright_stage_job_failures_total" r#"cause="destination-exists""# Counter "Jobs that failed, by cause.";
    failed_other "flashwright_stage_job_failures_total" r#"cause="other""# Counter "Jobs that failed, by cause.";
    files "flashwright_stage_files_total" "" Counter "Files that became durable and verified at their destination.";
    bytes_written "flashwright_stage_written_bytes_total" "" Counter "Bytes written to destinations.";
    bytes_verified "flashwright_stage_verified_bytes_total" "" Counter "Bytes read back from destinations and found right.";
    bytes_remaining "flashwright_stage_remaining_bytes" "" Gauge "Bytes found at the sources of jobs under way and not yet verified at their destinations.";
    write_rate "flashwright_stage_write_bytes_per_second" "" Gauge "Bytes a second written lately by all running jobs.";
    oldest_waiting "flashwright_stage_oldest_queued_seconds" "" Gauge "Age of the oldest job that has not begun.";
    oldest_open "flashwright_stage_oldest_open_seconds" "" Gauge "Age of the oldest job that is not durable, has not failed and was not cancelled.";
    governed_tiers "flashwright_stage_governed_tiers" "" Gauge "Fast tiers whose latency a governor watches.";
    governor_slower "flashwright_stage_governor_latency_ratio" "" Gauge "Latency of a fast tier as the governor's probes see it, by its latency at rest; the worst tier's.";
    governor_latency "flashwright_stage_governor_latency_seconds" "" Gauge "Median latency of the governor's last probes; the worst tier's.";
    governor_backoffs "flashwright_stage_governor_backoffs_total" "" Counter "How often a governor lowered its rate.";
    fsync_failures "flashwright_stage_fsync_failures_total" "" Counter "Calls of fsync, fdatasync and syncfs that failed.";
    requests "flashwright_stage_requests_total" "" Counter "Requests that clients made over the socket.";
    request_errors "flashwright_stage_request_errors_total" "" Counter "Requests that were answered by an error.";
    connections "flashwright_stage_connections" "" Gauge "Connections of clients that are open.";
    connections_refused "flashwright_stage_connections_refused_total" "" Counter "Connections that were turned away.";
}

impl Figures {
    /// With what the governors see.
    pub fn govern(&mut self, governors: impl Iterator<Item = GovernorStatus>) {
        for governor in governors {
            self.governed_tiers += 1.0;
            self.governor_slower = self.governor_slower.max(governor.slower.unwrap_or_default());
            let latency = governor.latency_ns_p50.unwrap_or_default() as f64 / 1e9;
            self.governor_latency = self.governor_latency.max(latency);
            self.governor_backoffs += governor.backoffs as f64;
        }
    }

    /// In Prometheus' exposition format, with which version of the program says so.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for (series, value) in SERIES.iter().zip(self.values()) {
            if series.family != last {
                head(&mut text, series.family, series.kind, series.help);
                last = series.family;
            }
            let braces =
                if series.labels.is_empty() { String::new() } else { format!("{{{}}}", series.labels) };
            let _ = writeln!(text, "{}{braces} {value}", series.family);
        }
        let build = "flashwright_stage_build_info";
        head(&mut text, build, Kind::Gauge, "1, with the program's version.");
        let _ = writeln!(text, "{build}{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        text
    }
}

/// A series of a pool.
struct PoolSeries {
    family: &'static str,
    value: fn(&PoolStatus) -> u64,
    help: &'static str,
}

macro_rules! pool_series {
    ($($value:expr, $family:literal $help:literal;)*) => {
        &[$(PoolSeries { family: $family, value: $value, help: $help },)*]
    };
}

/// The series of each pool, with its name as the label: the server's configuration names them.
const POOL_SERIES: &[PoolSeries] = pool_series! {
    |pool| pool.quota, "flashwright_stage_pool_quota_bytes" "Bytes that a pool may hold.";
    |pool| pool.used, "flashwright_stage_pool_used_bytes" "Bytes on the disk in a pool, reserved or not.";
    |pool| pool.reserved, "flashwright_stage_pool_reserved_bytes" "Bytes reserved in a pool and not yet used.";
    |pool| pool.free, "flashwright_stage_pool_free_bytes" "Bytes free in a pool's file system.";
    |pool| pool.high, "flashwright_stage_pool_high_watermark_bytes" "Bytes in a pool above which sets are to be evicted.";
    |pool| pool.low, "flashwright_stage_pool_low_watermark_bytes" "Bytes in a pool down to which sets are to be evicted.";
    |pool| pool.reservations.len() as u64, "flashwright_stage_pool_reservations" "Reservations in a pool.";
    |pool| pool.waiting, "flashwright_stage_pool_waiting_requests" "Requests that wait for room in a pool.";
    |pool| pool.waiting_bytes, "flashwright_stage_pool_waiting_bytes" "Bytes that requests wait for in a pool.";
};

/// Pools in Prometheus' exposition format, to follow [`Figures::text`]; empty where there are none.
#[must_use]
pub fn pools_text(pools: &[PoolStatus]) -> String {
    let mut text = String::new();
    for series in POOL_SERIES.iter().filter(|_| !pools.is_empty()) {
        head(&mut text, series.family, Kind::Gauge, series.help);
        for pool in pools {
            // The name has letters, digits, - and _ alone.
            let _ = writeln!(text, "{}{{pool=\"{}\"}} {}", series.family, pool.name, (series.value)(pool));
        }
    }
    text
}

fn head(text: &mut String, family: &str, kind: Kind, help: &str) {
    let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
    let _ = write!(text, "# HELP {family} {help}\n# TYPE {family} {kind}\n");
}

/// What was seen of a job the last time.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    state: Option<State>,
    attempts: u32,
    written: u64,
    verified: u64,
    files: u64,
}

#[derive(Debug, Default)]
struct Book {
    /// The journal was read once; what was in it then is not counted.
    opened: bool,
    jobs: HashMap<JobId, Seen>,
    sums: Figures,
}

/// Makes counters that only grow of jobs' states that come and go.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Book>);

impl Ledger {
    /// Takes in all jobs as they are now (seconds since 1970), tells in the log which have ended, and gives the figures.
    pub fn take_in(&self, jobs: &[JobStatus], now: u64) -> Figures {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = std::mem::replace(&mut book.opened, true);
        let mut seen = HashMap::with_capacity(jobs.len());
        for job in jobs {
            let before = match book.jobs.get(&job.id) {
                Some(before) => *before,
                None if opened => Seen::default(),
                None => now_seen(job),
            };
            count(&mut book.sums, &before, job);
            seen.insert(job.id, now_seen(job));
        }
        book.jobs = seen;
        let mut figures = book.sums.clone();
        drop(book);
        for job in jobs {
            gauge(&mut figures, job, now);
        }
        figures
    }
}

fn now_seen(job: &JobStatus) -> Seen {
    Seen {
        state: Some(job.state),
        attempts: job.attempts,
        written: job.bytes_written,
        verified: job.bytes_verified,
        files: job.files_done,
    }
}

/// What has grown since. A job that was retried counts from nothing.
fn count(sums: &mut Figures, before: &Seen, job: &JobStatus) {
    let grown = |before: u64, now: u64| (if now >= before { now - before } else { now }) as f64;
    sums.bytes_written += grown(before.written, job.bytes_written);
    sums.bytes_verified += grown(before.verified, job.bytes_verified);
    sums.files += grown(before.files, job.files_done);
    let retried = job.attempts > before.attempts;
    if !job.state.is_final() || (before.state == Some(job.state) && !retried) {
        return;
    }
    let what = job.error.as_ref().map(|why| why.message.as_str());
    let seconds = job.finished.map(|finished| finished.saturating_sub(job.created));
    let (source, destination) = (job.spec.source.shown(), job.spec.destination.shown());
    let span = tracing::info_span!("job", id = job.id, source, destination);
    let _inside = span.enter();
    match job.state {
        State::Done => {
            sums.jobs_done += 1.0;
            tracing::info!(bytes = job.bytes_verified, files = job.files_done, seconds, error = what, "done");
        }
        State::Cancelled => {
            sums.jobs_cancelled += 1.0;
            tracing::info!(bytes = job.bytes_verified, seconds, "cancelled");
        }
        _ => {
            sums.jobs_failed += 1.0;
            *by_cause(sums, job) += 1.0;
            tracing::error!(bytes = job.bytes_verified, seconds, error = what, "failed");
        }
    }
}

fn by_cause<'a>(sums: &'a mut Figures, job: &JobStatus) -> &'a mut f64 {
    match job.error.as_ref().map(|why| why.cause) {
        Some(Cause::NoSpace) => &mut sums.failed_space,
        Some(Cause::FsyncFailed) => &mut sums.failed_fsync,
        Some(Cause::VerificationFailed | Cause::SourceCorrupt) => &mut sums.failed_corrupt,
        Some(Cause::SourceChanged) => &mut sums.failed_changed,
        Some(Cause::Permission | Cause::ReadOnly) => &mut sums.failed_permission,
        Some(Cause::DestinationExists) => &mut sums.failed_exists,
        Some(Cause::Request | Cause::Busy | Cause::Other) | None => &mut sums.failed_other,
    }
}

/// What is so now.
fn gauge(figures: &mut Figures, job: &JobStatus, now: u64) {
    let age = now.saturating_sub(job.created) as f64;
    match job.state {
        State::Queued => {
            figures.queued += 1.0;
            figures.oldest_waiting = figures.oldest_waiting.max(age);
        }
        State::Running => figures.running += 1.0,
        State::Committed => figures.committed += 1.0,
        State::Done => figures.done += 1.0,
        State::Failed => figures.failed += 1.0,
        State::Cancelled => figures.cancelled += 1.0,
    }
    if matches!(job.state, State::Queued | State::Running) {
        figures.oldest_open = figures.oldest_open.max(age);
        figures.bytes_remaining += job.bytes_total.saturating_sub(job.bytes_verified) as f64;
        figures.write_rate += job.bytes_per_s.filter(|rate| rate.is_finite()).unwrap_or_default();
        figures.held_back += f64::from(u8::from(job.held_back_by.is_some()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;

    #[test]
    fn counters_count_what_happens_and_not_what_was_there() {
        let ledger = Ledger::default();
        let mut old = job(1, State::Failed);
        old.bytes_written = 500;
        let first = ledger.take_in(&[old.clone()], 100);
        assert_eq!((first.bytes_written, first.jobs_failed, first.failed), (0.0, 0.0, 1.0));

        let mut new = job(2, State::Running);
        new.bytes_written = 70;
        ledger.take_in(&[old.clone(), new.clone()], 101);
        new.bytes_written = 100;
        new.state = State::Done;
        for _ in 0..2 {
            let figures = ledger.take_in(&[old.clone(), new.clone()], 102);
            assert_eq!((figures.bytes_written, figures.jobs_done, figures.done), (100.0, 1.0, 1.0));
        }
        // The failed one is retried and fails between two reads of the journal: that is one more failure.
        old.attempts += 1;
        old.bytes_written = 20;
        let figures = ledger.take_in(&[old.clone(), new], 103);
        assert_eq!((figures.bytes_written, figures.jobs_failed), (120.0, 1.0));
        // Jobs that the journal has forgotten take nothing away.
        assert_eq!(ledger.take_in(&[], 104).bytes_written, 120.0);
    }

    #[test]
    fn names_follow_the_rules_and_each_family_stands_together() {
        let mut families: Vec<&str> = Vec::new();
        for series in SERIES {
            if families.last() != Some(&series.family) {
                assert!(!families.contains(&series.family), "{} is in two places", series.family);
                families.push(series.family);
            }
            assert_eq!(series.family.ends_with("_total"), series.kind == Kind::Counter, "{}", series.family);
            assert!(series.family.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", series.family);
            assert!(!series.help.contains('\n') && series.help.ends_with('.'));
        }
        let text = Figures { bytes_written: 1e15, ..Figures::default() }.text();
        assert!(text.contains("\nflashwright_stage_written_bytes_total 1000000000000000\n"), "{text}");
        assert!(
            text.contains(
                "# TYPE flashwright_stage_jobs gauge\nflashwright_stage_jobs{state=\"queued\"} 0\n"
            )
        );
    }

    /// Names of metrics in a text, with what is between the braces after each.
    fn named(text: &str) -> Vec<(&str, &str)> {
        let starts = text.match_indices("flashwright_stage_").map(|(at, _)| &text[at..]);
        starts
            .map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
                let labels = rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
                (&rest[..end], labels.map_or("", |(labels, _)| labels))
            })
            .collect()
    }

    #[test]
    fn the_dashboard_asks_for_all_figures_and_for_no_others() {
        let dashboard = include_str!("../../../examples/grafana/flashwright-stage.json");
        let document: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let mut expressions = Vec::new();
        for panel in document["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                expressions.push(target["expr"].as_str().unwrap());
            }
        }
        let mut pool = crate::testing::pool();
        (pool.used, pool.reserved) = (40, 30);
        let text = Figures::default().text() + &pools_text(&[pool]);
        assert!(text.contains("\nflashwright_stage_pool_reserved_bytes{pool=\"scratch\"} 30\n"), "{text}");
        let asked: Vec<(&str, &str)> = expressions.iter().flat_map(|expression| named(expression)).collect();
        for (family, labels) in &asked {
            assert!(text.contains(&format!("# TYPE {family} ")), "{family} is no figure");
            for wanted in labels.split(',').filter(|label| !label.starts_with("instance")) {
                let (label, values) = wanted.split_once(['=', '!']).unwrap();
                for value in values.trim_start_matches(['~', '=']).trim_matches('"').split('|') {
                    let series = format!("{family}{{{label}=\"{value}\"}} ");
                    assert!(text.contains(&series), "there is no {series}");
                }
            }
        }
        let families = SERIES.iter().map(|series| series.family);
        for family in families.chain(POOL_SERIES.iter().map(|series| series.family)) {
            assert!(asked.iter().any(|(asked, _)| *asked == family), "no panel shows {family}");
        }
    }
}
