//! Backs off when the fast tier slows down: a controller that is fed latencies and says a rate. It does no I/O and has no
//! clock, so that its behaviour is tested against simulated tiers in virtual time.
//!
//! **At rest.** Once a minute, and before anything else, the drain is held for a moment and [`BLOCK`] probes are taken;
//! their median is one block. The latency at rest is the lowest of the last [`HISTORY`] blocks but one (the lowest of all
//! while there are few). An application that is busy whenever the drain is held does not pass for the tier at rest, if
//! it pauses twice in half an hour; a tier that really has become slower does after that time, and one that has become
//! faster with the second block.
//!
//! **At work.** Probes are judged in windows of [`WINDOW`]. A window is *over* as soon as most of its probes could be no
//! more than `factor` times the latency at rest only if all others were: four of seven, which is when the median is
//! settled. From the moment at which every probe is slow it takes at most seven probes to that verdict (three that are
//! left of the window under way, four of the next; a rest waits for the end of the window under way).
//!
//! - Over: the limit falls to a share of itself (of what was really moved, where there was none), the more the further
//!   over, between a half and nine tenths; never below the floor. The probes after it are left out until what was in
//!   flight is through.
//! - Well below (under [`CALM`] of the factor): the limit rises by a step, a sixteenth of what it fell to. While it is
//!   below half of what was last too much, and the latency is nearer to rest than to the factor, each step is twice the
//!   last, so that full speed is back within seconds once the application is done.
//! - In between: one step in [`PATIENCE`] windows. That is why the limit settles instead of sawing: just above the factor it
//!   falls by a tenth, and takes seconds to come back. It may not stay for good, because an application that alone
//!   keeps the tier there would pin the drain to wherever it happened to be.
//! - A limit that has not been what holds the drain back for three windows is dropped.

use std::collections::VecDeque;
use std::time::Duration;

use super::rate::GovernorConfig;

/// Probes of a moment at rest.
const BLOCK: usize = 15;
/// Mean time between them.
const REST_INTERVAL: Duration = Duration::from_millis(5);
/// After the drain is held, what is in flight goes through first: probes within this, and the first few, are left out.
const SETTLE: Duration = Duration::from_millis(100);
const SETTLE_PROBES: u32 = 3;
/// The drain is held no longer than this, however slow the probes are.
const REST_MOST: Duration = Duration::from_secs(2);
/// Probes that make a block worth having, where time was up.
const BLOCK_LEAST: usize = 5;
/// From one rest to the next.
const RENEW: Duration = Duration::from_secs(60);
/// Blocks that are remembered.
const HISTORY: usize = 32;
/// With fewer than this the lowest counts: one moment at rest may be all that there was before the application came.
const FEW: usize = HISTORY / 2;
/// And for how long, if there are newer ones.
const HISTORY_AGE: Duration = Duration::from_secs(3600);
/// Probes that are judged together.
const WINDOW: usize = 7;
/// Below this share of the factor the limit rises.
const CALM: f64 = 0.85;
/// Windows for a step where the latency is close to the factor.
const PATIENCE: u32 = 3;
/// Windows after which a limit that held no request back is dropped.
const UNUSED_WINDOWS: u32 = 3;

/// What a tier's governor sees and does, for metrics. Times are nanoseconds, rates bytes a second.
#[derive(Debug, Clone, PartialEq)]
pub struct GovernorStatus {
    /// Median of the last window of probes.
    pub latency_ns_p50: Option<u64>,
    /// The median by the latency at rest.
    pub slower: Option<f64>,
    /// The rate that the drain is held to; none: full speed.
    pub limit_bytes_per_s: Option<f64>,
    /// Probes made.
    pub probes: u64,
    /// How often the limit was lowered.
    pub backoffs: u64,
}

#[derive(Debug)]
enum Phase {
    Rest { since: Duration, seen: u32, taken: Vec<u64> },
    Watch,
}

/// The controller of one tier.
#[derive(Debug)]
pub(super) struct Governor {
    config: GovernorConfig,
    phase: Phase,
    /// Median of each moment at rest, and when it was.
    blocks: VecDeque<(Duration, u64)>,
    next_rest: Duration,
    window: Vec<u64>,
    /// Probes to leave out after the limit was lowered.
    skip: u32,
    limit: Option<f64>,
    step: f64,
    /// Calm windows in a row.
    calm: u32,
    /// Windows since the last step in which the latency was close to the factor.
    close: u32,
    /// The limit at which it was last too much.
    too_much: Option<f64>,
    /// The limit has held a request back since the last verdict.
    binding: bool,
    /// Verdicts in a row before which it held no request back.
    unused: u32,
    /// When throughput was last looked at, and the bytes so far.
    mark: Option<(Duration, u64)>,
    throughput: f64,
    /// Median of the last window.
    last_ns_p50: Option<u64>,
    probes: u64,
    backoffs: u64,
    random: u64,
}

impl Governor {
    /// Begins at rest.
    pub(super) fn new(config: GovernorConfig, seed: u64, now: Duration) -> Self {
        Self {
            config,
            phase: Phase::Rest { since: now, seen: 0, taken: Vec::new() },
            blocks: VecDeque::new(),
            next_rest: now,
            window: Vec::new(),
            skip: 0,
            limit: None,
            step: 0.0,
            calm: 0,
            close: 0,
            too_much: None,
            binding: false,
            unused: 0,
            mark: None,
            throughput: 0.0,
            last_ns_p50: None,
            probes: 0,
            backoffs: 0,
            random: seed | 1,
        }
    }

    /// A drain begins after there was none: what was learnt about the tier at rest stays, the rest is seen anew.
    pub(super) fn begin(&mut self, now: Duration) {
        self.phase = Phase::Rest { since: now, seen: 0, taken: Vec::new() };
        self.window.clear();
        self.limit = None;
        self.too_much = None;
        self.mark = None;
        self.throughput = 0.0;
        self.last_ns_p50 = None;
    }

    /// Is the drain to be held for the moment?
    pub(super) fn resting(&self) -> bool {
        matches!(self.phase, Phase::Rest { .. })
    }

    /// The rest has lasted long enough, even if probes do not come back: the drain must not hang with them.
    pub(super) fn give_up_rest(&mut self, now: Duration) {
        if let Phase::Rest { since, .. } = self.phase
            && now >= since + REST_MOST
        {
            self.end_rest(now);
        }
    }

    /// When a rest ends at the latest.
    pub(super) fn rest_ends(&self) -> Option<Duration> {
        match self.phase {
            Phase::Rest { since, .. } => Some(since + REST_MOST),
            Phase::Watch => None,
        }
    }

    /// The rate that the drain is held to, bytes a second; none: full speed.
    pub(super) fn limit(&self) -> Option<f64> {
        self.limit
    }

    fn floor(&self) -> f64 {
        self.config.floor.max(1) as f64
    }

    /// How long to wait before the next probe: jittered by half either way, so that probes do not fall into step with
    /// what an application does periodically.
    pub(super) fn next_probe(&mut self) -> Duration {
        // xorshift64 (Marsaglia, 2003)
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = 0.5 + (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        let mean = if self.resting() { REST_INTERVAL } else { self.config.interval };
        mean.mul_f64(share)
    }

    /// The latency at rest, nanoseconds.
    pub(super) fn baseline(&self) -> Option<u64> {
        let mut blocks: Vec<u64> = self.blocks.iter().map(|(_, block)| *block).collect();
        blocks.sort_unstable();
        blocks.get(usize::from(blocks.len() >= FEW)).copied()
    }

    /// What it sees and does.
    pub(super) fn status(&self) -> GovernorStatus {
        let baseline = self.baseline();
        let slower = |p50: u64| baseline.map(|baseline| p50 as f64 / baseline as f64);
        GovernorStatus {
            latency_ns_p50: self.last_ns_p50,
            slower: self.last_ns_p50.and_then(slower),
            limit_bytes_per_s: self.limit,
            probes: self.probes,
            backoffs: self.backoffs,
        }
    }

    /// A probe was answered after `latency_ns`; `moved` is all that the drain has moved from or to the tier so far, and
    /// `binding` says whether the limit has delayed a request since the probe before.
    pub(super) fn observe(&mut self, latency_ns: u64, moved: u64, binding: bool, now: Duration) {
        self.probes += 1;
        self.binding |= binding;
        let latency_ns = latency_ns.max(1);
        if let Phase::Rest { since, seen, taken } = &mut self.phase {
            *seen += 1;
            if *seen > SETTLE_PROBES && now >= *since + SETTLE {
                taken.push(latency_ns);
            }
            if taken.len() >= BLOCK || now >= *since + REST_MOST {
                self.end_rest(now);
            }
            return;
        }
        if self.mark.is_none() {
            self.mark = Some((now, moved));
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.window.push(latency_ns);
        self.judge(moved, now);
        // A rest would throw away the window under way: where probes take seconds, no window would ever be judged.
        if now >= self.next_rest && self.window.is_empty() {
            self.phase = Phase::Rest { since: now, seen: 0, taken: Vec::new() };
        }
    }

    fn end_rest(&mut self, now: Duration) {
        if let Phase::Rest { taken, .. } = &mut self.phase
            && taken.len() >= BLOCK_LEAST
        {
            let block = median(taken);
            self.blocks.retain(|(at, _)| *at + HISTORY_AGE >= now);
            if self.blocks.len() == HISTORY {
                self.blocks.pop_front();
            }
            self.blocks.push_back((now, block));
        }
        self.phase = Phase::Watch;
        self.next_rest = now + RENEW;
        self.window.clear();
        // The rest is no time in which the drain could have moved anything.
        self.mark = None;
    }

    fn judge(&mut self, moved: u64, now: Duration) {
        let Some(baseline) = self.baseline() else {
            if self.window.len() >= WINDOW {
                self.window.clear();
                // Without a latency at rest there is nothing to judge by: the next rest comes at once.
                self.next_rest = now;
            }
            return;
        };
        let most = baseline as f64 * self.config.factor;
        let slow = self.window.iter().filter(|latency| **latency as f64 > most).count();
        let settled = slow > WINDOW / 2;
        if !settled && self.window.len() < WINDOW {
            return;
        }
        let p50 = median(&mut self.window);
        // Settled early, the slow ones speak: the others could no longer outvote them.
        let p50 = if settled { p50.max(slowest_majority(&self.window)) } else { p50 };
        self.last_ns_p50 = Some(p50);
        self.window.clear();
        self.measure_throughput(moved, now);
        let slower = p50 as f64 / baseline as f64;
        let binding = std::mem::take(&mut self.binding);
        if settled {
            self.back_off(slower, binding);
        } else {
            self.recover(slower, binding);
        }
    }

    fn measure_throughput(&mut self, moved: u64, now: Duration) {
        if let Some((at, before)) = self.mark.replace((now, moved)) {
            let seconds = now.saturating_sub(at).as_secs_f64().max(1e-3);
            let lately = moved.saturating_sub(before) as f64 / seconds;
            self.throughput =
                if self.throughput == 0.0 { lately } else { f64::midpoint(self.throughput, lately) };
        }
    }

    fn back_off(&mut self, slower: f64, binding: bool) {
        let floor = self.floor();
        let from = match self.limit {
            Some(limit) if binding => limit,
            // A limit far above what is moved would take many steps down before it took effect.
            Some(limit) => limit.min(self.throughput * 1.5),
            None => self.throughput,
        };
        let to = (from * (self.config.factor / slower).clamp(0.5, 0.9)).max(floor);
        self.too_much = Some(from.max(floor));
        self.step = to / 16.0;
        self.calm = 0;
        self.close = 0;
        self.unused = 0;
        self.skip = 2;
        self.limit = Some(to);
        self.backoffs += 1;
    }

    fn recover(&mut self, slower: f64, binding: bool) {
        let Some(limit) = self.limit else { return };
        if !binding {
            self.unused += 1;
            if self.unused >= UNUSED_WINDOWS {
                self.limit = None;
            }
            return;
        }
        self.unused = 0;
        if slower >= self.config.factor * CALM {
            self.calm = 0;
            self.close += 1;
            if self.close < PATIENCE {
                return;
            }
        }
        self.close = 0;
        if self.too_much.is_some_and(|too_much| limit > too_much * 1.2) {
            // It was too much then, and is not now.
            self.too_much = None;
        }
        let near_rest = slower < f64::midpoint(1.0, self.config.factor);
        let far_below = self.too_much.is_none_or(|too_much| limit * 2.0 < too_much);
        self.calm = if near_rest && far_below { self.calm + 1 } else { 0 };
        let doubled = self.step * f64::from(1_u32 << self.calm.min(20).saturating_sub(1));
        self.limit = Some(limit + doubled.min(limit));
    }
}

/// The median by the nearest rank. Sorts the values.
fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len().div_ceil(2).saturating_sub(1)).copied().unwrap_or(0)
}

/// Of the slower half of a full window, the fastest; `sorted` may be shorter than a window.
fn slowest_majority(sorted: &[u64]) -> u64 {
    sorted.len().checked_sub(WINDOW / 2 + 1).and_then(|at| sorted.get(at)).copied().unwrap_or(0)
}
