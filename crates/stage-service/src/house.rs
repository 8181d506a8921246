//! What the sessions of a server share: the desk, the pools, the bounds on clients, and what is counted.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stage::error::StageError;
use stage::job::JobStatus;
use stage::pace::Stop;

use crate::desk::Desk;
use crate::doctor::{self, Finding};
use crate::full;
use crate::metrics::{Figures, Ledger, pools_text};
use crate::pool_desk::PoolDesk;
use crate::protocol::{EXPECTED_BYTES, ServerFacts};
use crate::qos::Qos;

/// How long a server that stops waits for the answers under way.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a line may take from its first byte on, and an answer to be taken.
pub(crate) const LINE_TIME: Duration = Duration::from_secs(30);

/// What clients may take up.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Jobs that have not ended.
    pub jobs: usize,
    /// Bytes of lists that wait for their job, of all connections together.
    pub expected_bytes: usize,
    /// How long a request's line may take from its first byte to its last.
    pub line: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 128, jobs: 100_000, expected_bytes: EXPECTED_BYTES, line: LINE_TIME }
    }
}

/// What is counted as it happens.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub requests: AtomicU64,
    pub request_errors: AtomicU64,
    pub refused: AtomicU64,
    pub submitted: AtomicU64,
    pub connections: AtomicUsize,
    /// Jobs that have not ended, as of the last look at the journal, and those accepted since.
    pub open_jobs: AtomicUsize,
    /// Bytes of lists that wait for their job, of all connections.
    pub expected_bytes: AtomicUsize,
    /// How often the accepting thread has gone round: it lives.
    pub rounds: AtomicU64,
}

/// What all sessions share.
pub struct House {
    pub(crate) desk: Arc<dyn Desk>,
    pub(crate) facts: ServerFacts,
    pub(crate) limits: Limits,
    pub(crate) stop: Stop,
    pub(crate) counts: Counts,
    /// Held while a request is taken apart.
    pub(crate) reading: Mutex<()>,
    pub(crate) ledger: Ledger,
    pub(crate) pools: Option<Arc<dyn PoolDesk>>,
    qos: Option<Arc<Qos>>,
}

impl House {
    /// With a desk that takes jobs, until `stop` is asked for.
    #[must_use]
    pub fn new(desk: Arc<dyn Desk>, facts: ServerFacts, limits: Limits, stop: Stop) -> Self {
        let (counts, ledger) = (Counts::default(), Ledger::default());
        let reading = Mutex::default();
        Self { desk, facts, limits, stop, counts, reading, ledger, pools: None, qos: None }
    }

    /// With pools, where there are any.
    #[must_use]
    pub fn with_pools(mut self, pools: Option<Arc<dyn PoolDesk>>) -> Self {
        self.facts.pools = pools.is_some();
        Self { pools, ..self }
    }

    /// With the figures of what holds jobs back.
    #[must_use]
    pub fn governed_by(self, qos: &Arc<Qos>) -> Self {
        Self { qos: Some(Arc::clone(qos)), ..self }
    }

    /// What is stuck, as this process sees it.
    pub(crate) fn examine(&self) -> Result<Vec<Finding>, StageError> {
        let jobs = self.desk.status(None)?;
        let full = match &self.pools {
            Some(pools) => match pools.list() {
                Ok(pools) => full::findings(&pools, &jobs, self.facts.uid),
                Err(error) => vec![full::unknown(&error)],
            },
            None => Vec::new(),
        };
        let mut findings = doctor::diagnose(&doctor::scene_of(&self.facts.state.0, jobs));
        findings.extend(full);
        findings.sort_by_key(|finding| !finding.stuck);
        Ok(findings)
    }

    /// Counts the jobs that have not ended, for the limit on them.
    pub(crate) fn count_open(&self, jobs: &[JobStatus]) -> usize {
        let open = jobs.iter().filter(|job| !job.state.is_final()).count();
        self.counts.open_jobs.store(open, Relaxed);
        open
    }

    /// The figures as they are now.
    pub(crate) fn figures(&self) -> Result<Figures, StageError> {
        let jobs = self.desk.status(None)?;
        let now = stage::runner::now();
        let mut figures = self.ledger.take_in(&jobs, now);
        self.count_open(&jobs);
        if let Some(qos) = &self.qos {
            figures.govern(qos.governors().into_iter().map(|(_, governor)| governor));
        }
        figures.fsync_failures = stage::calls::failed_syncs() as f64;
        figures.requests = self.counts.requests.load(Relaxed) as f64;
        figures.request_errors = self.counts.request_errors.load(Relaxed) as f64;
        figures.connections_refused = self.counts.refused.load(Relaxed) as f64;
        figures.jobs_submitted = self.counts.submitted.load(Relaxed) as f64;
        figures.connections = self.counts.connections.load(Relaxed) as f64;
        Ok(figures)
    }

    /// The figures as text, followed by those of the pools that this process keeps. Pools that cannot be read are left
    /// out.
    pub(crate) fn metrics(&self) -> Result<String, StageError> {
        let pools = self.pools.as_ref().map_or(Ok(Vec::new()), |pools| pools.figures());
        let pools = pools.inspect_err(|error| tracing::warn!(%error, "no figures of pools"));
        Ok(self.figures()?.text() + &pools_text(&pools.unwrap_or_default()))
    }

    /// Waits for the sessions under way, but not for ever.
    pub(crate) fn farewell(&self) {
        let since = Instant::now();
        while self.counts.connections.load(Relaxed) > 0 && since.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
