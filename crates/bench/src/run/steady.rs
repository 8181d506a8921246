//! A job that ends once its figures are steady: fio's `steadystate`.
//!
//! Its rates are taken every so often, over a window that moves along. The job ends when all of them lie within a limit of
//! their mean, or when the line through them (least squares) rises or falls by less than the limit from one to the next.
//! Each rate is of the very time that the threads have counted, whenever the coordinator looks.

use std::collections::VecDeque;
use std::time::Duration;

/// What is to be steady.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion {
    /// Requests a second.
    Iops,
    /// Bytes a second.
    Bandwidth,
    /// Mean latency, nanoseconds.
    Latency,
}

/// When a job ends before its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyPlan {
    /// What is to be steady.
    pub criterion: Criterion,
    /// The slope of the line is judged, and not the largest distance from the mean.
    pub slope: bool,
    /// Below what it counts as steady.
    pub limit: f64,
    /// The limit is in percent of the mean.
    pub percent: bool,
    /// How long the window is (`ss_dur`).
    pub window: Duration,
    /// How long nothing is taken at first (`ss_ramp`).
    pub ramp: Duration,
    /// The time between two (`ss_interval`).
    pub interval: Duration,
}

/// How steady a job was when it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Steadiness {
    /// What was asked.
    pub plan: SteadyPlan,
    /// Whether the criterion was met.
    pub attained: bool,
    /// What was compared with the limit; 0 before the window was full for the first time.
    pub criterion: f64,
    /// The largest distance from the mean.
    pub max_deviation: f64,
    /// The slope of the line.
    pub slope: f64,
    /// Requests a second, oldest first.
    pub iops: Vec<f64>,
    /// Bytes a second.
    pub bandwidth: Vec<f64>,
    /// Mean latencies, nanoseconds.
    pub latency: Vec<f64>,
}

/// What one thread has done up to its last step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Seen {
    /// Nanoseconds of the clock.
    pub at_ns: u64,
    pub bytes: u64,
    pub ios: u64,
    /// All latencies added up, nanoseconds.
    pub latency_ns: f64,
}

/// The rates of all threads between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rates {
    iops: f64,
    bandwidth: f64,
    latency: f64,
}

impl Rates {
    /// None where a thread has not counted since.
    fn between(before: &[Seen], now: &[Seen]) -> Option<Self> {
        let (mut iops, mut bandwidth, mut sum, mut ios) = (0.0, 0.0, 0.0, 0.0);
        for (before, now) in before.iter().zip(now) {
            let seconds = now.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)? as f64 / 1e9;
            iops += (now.ios - before.ios) as f64 / seconds;
            bandwidth += (now.bytes - before.bytes) as f64 / seconds;
            sum += now.latency_ns - before.latency_ns;
            ios += (now.ios - before.ios) as f64;
        }
        Some(Self { iops, bandwidth, latency: if ios > 0.0 { sum / ios } else { 0.0 } })
    }
}

/// A job being watched.
#[derive(Debug)]
pub(super) struct SteadyWatch {
    plan: SteadyPlan,
    last: Option<Vec<Seen>>,
    next: Duration,
    window: VecDeque<Rates>,
    steadiness: Steadiness,
}

impl SteadyWatch {
    pub fn new(plan: SteadyPlan) -> Self {
        let steadiness = Steadiness {
            plan,
            attained: false,
            criterion: 0.0,
            max_deviation: 0.0,
            slope: 0.0,
            iops: Vec::new(),
            bandwidth: Vec::new(),
            latency: Vec::new(),
        };
        Self { plan, last: None, next: plan.ramp, window: VecDeque::new(), steadiness }
    }

    /// How many rates the window holds.
    fn capacity(&self) -> usize {
        (self.plan.window.as_nanos() / self.plan.interval.as_nanos().max(1)).max(1) as usize
    }

    /// Looks at the threads' counts, `elapsed` after the interval began. True once the job is steady.
    pub fn look(&mut self, elapsed: Duration, threads: impl FnOnce() -> Vec<Seen>) -> bool {
        if elapsed < self.next || self.steadiness.attained {
            return self.steadiness.attained;
        }
        let now = threads();
        let Some(last) = &self.last else {
            // Every thread has counted once, or there is nothing yet to count from.
            if now.iter().all(|seen| seen.at_ns > 0) {
                (self.last, self.next) = (Some(now), elapsed + self.plan.interval);
            }
            return false;
        };
        let Some(rates) = Rates::between(last, &now) else { return false };
        self.last = Some(now);
        // A look that comes late does not put off the later ones.
        self.next += self.plan.interval;
        if self.window.len() == self.capacity() {
            self.window.pop_front();
        }
        self.window.push_back(rates);
        if self.window.len() == self.capacity() {
            self.judge();
        }
        self.steadiness.attained
    }

    fn judge(&mut self) {
        let value = |rates: &Rates| match self.plan.criterion {
            Criterion::Iops => rates.iops,
            Criterion::Bandwidth => rates.bandwidth,
            Criterion::Latency => rates.latency,
        };
        let values: Vec<f64> = self.window.iter().map(value).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let deviation = values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
        let slope = slope(&values);
        let judged = if self.plan.slope { slope.abs() } else { deviation };
        let criterion = if self.plan.percent { judged / mean * 100.0 } else { judged };
        let s = &mut self.steadiness;
        (s.criterion, s.max_deviation, s.slope) = (criterion, deviation, slope);
        // Where nothing was done at all nothing is steady.
        s.attained = mean > 0.0 && criterion < self.plan.limit;
    }

    /// How steady it was.
    pub fn close(mut self) -> Steadiness {
        let rates = || self.window.iter();
        self.steadiness.iops = rates().map(|rates| rates.iops).collect();
        self.steadiness.bandwidth = rates().map(|rates| rates.bandwidth).collect();
        self.steadiness.latency = rates().map(|rates| rates.latency).collect();
        self.steadiness
    }
}

/// The slope of the line through values at distances of one, by least squares.
fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / n;
    let (mut products, mut squares) = (0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        let x = at as f64 - middle;
        products += x * (value - mean);
        squares += x * x;
    }
    if squares > 0.0 { products / squares } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(criterion: Criterion, slope: bool, limit: f64) -> SteadyPlan {
        SteadyPlan {
            criterion,
            slope,
            limit,
            percent: true,
            window: Duration::from_secs(3),
            ramp: Duration::from_secs(2),
            interval: Duration::from_secs(1),
        }
    }

    /// After how many seconds a job is steady that does so many requests in each.
    fn steady_after(plan: SteadyPlan, each_second: &[u64]) -> (Option<usize>, Steadiness) {
        let mut watch = SteadyWatch::new(plan);
        let mut ios = 0;
        let mut after = None;
        for (second, more) in each_second.iter().enumerate() {
            ios += more;
            let seconds = second as u64 + 1;
            let seen = Seen {
                at_ns: seconds * 1_000_000_000,
                bytes: ios * 4096,
                ios,
                latency_ns: (ios * 500) as f64,
            };
            if watch.look(Duration::from_secs(seconds), || vec![seen]) {
                after = Some(second + 1);
                break;
            }
        }
        (after, watch.close())
    }

    #[test]
    fn a_job_ends_when_all_of_the_window_is_near_its_mean() {
        let seconds = [900, 900, 500, 700, 1000, 1000, 1010, 990, 1000];
        let (after, steadiness) = steady_after(plan(Criterion::Iops, false, 2.0), &seconds);
        assert_eq!(after, Some(7), "seconds 5 to 7");
        assert_eq!(steadiness.iops, [1000.0, 1000.0, 1010.0]);
        assert!(steadiness.attained && (0.6..0.7).contains(&steadiness.criterion), "{steadiness:?}");
        let (after, steadiness) = steady_after(plan(Criterion::Bandwidth, false, 0.1), &seconds);
        assert_eq!((after, steadiness.attained), (None, false));
        assert_eq!(steadiness.bandwidth.len(), 3);
    }

    #[test]
    fn a_slope_lets_figures_jump_and_a_limit_may_be_a_number() {
        let jumping = [1000, 1000, 1200, 800, 1200, 800, 1200];
        assert_eq!(steady_after(plan(Criterion::Iops, false, 5.0), &jumping).0, None);
        assert_eq!(steady_after(plan(Criterion::Iops, true, 5.0), &jumping).0, Some(5));
        let rising = [1000, 1100, 1200, 1300, 1400, 1500];
        assert_eq!(steady_after(plan(Criterion::Iops, true, 5.0), &rising).0, None);
        let absolute = SteadyPlan { percent: false, ..plan(Criterion::Iops, true, 101.0) };
        assert_eq!(steady_after(absolute, &rising).0, Some(5));
    }

    #[test]
    fn what_stands_still_is_not_steady_and_latency_is_a_mean() {
        assert_eq!(steady_after(plan(Criterion::Iops, false, 50.0), &[5, 5, 0, 0, 0, 0]).0, None);
        let (after, steadiness) = steady_after(plan(Criterion::Latency, false, 1.0), &[5, 9, 2, 7, 4, 1]);
        assert_eq!((after, steadiness.latency), (Some(5), vec![500.0; 3]));
    }
}
