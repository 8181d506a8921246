//! A queue depth that is searched while a job runs: fio's `latency_target`.
//!
//! Each thread begins with one request in flight. After every window it counts how many of the window's requests took
//! longer than the target. As long as they are few enough the depth is doubled, and once it was too deep it is halved
//! between what was good and what was not. Where a window leaves the depth as it is, the counts begin anew, so that the
//! figures are of that depth alone; the job ends when the next window leaves it as well. Before a new depth
//! is judged, or counts begin anew, all that was in flight is answered. The steps are those of fio 3.33 (`lat_target_check`), but that a depth of
//! `iodepth` which was too deep is not tried again and again.

use std::time::Duration;

/// What is searched for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyGoal {
    /// How long a request may take.
    pub target: Duration,
    /// How long a depth is tried.
    pub window: Duration,
    /// How many of the requests may take no longer, percent.
    pub percentile: f64,
    /// Go on to the job's own end at the depth that was found (`latency_run`).
    pub goes_on: bool,
}

/// What searches came to; of several threads the least counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Searched {
    /// One request in flight already took longer than it may.
    NotHeld,
    /// The run ended before the search did.
    Unfinished,
    /// The greatest depth that holds the target.
    Found(u32),
}

impl Searched {
    /// The depth, where one was found.
    #[must_use]
    pub fn depth(self) -> Option<u32> {
        match self {
            Self::Found(depth) => Some(depth),
            Self::NotHeld | Self::Unfinished => None,
        }
    }
}

/// What a look at a thread's search comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing has changed.
    Same,
    /// The depth may be the one, and what is counted from now on is its own.
    Restart,
    /// The depth was found, and the job ends.
    Found,
    /// A request took longer than any may, with one in flight.
    Failed,
}

/// A thread's search.
#[derive(Debug)]
pub(super) struct Search {
    goal: LatencyGoal,
    most: u32,
    low: u32,
    high: u32,
    depth: u32,
    /// A depth was too deep.
    has_failed: bool,
    /// The depth stayed where it was in the last window; unless the job goes on, the next time is the end.
    is_settled: bool,
    /// The next window is the first of those that are counted.
    is_restart: bool,
    /// It was the end.
    is_over: bool,
    /// The last window showed that one request in flight is too many.
    has_missed: bool,
    /// What was in flight at another depth is waited for.
    is_draining: bool,
    /// When the window began, in ticks; None before the first.
    since: Option<u64>,
    window_ticks: u64,
    ios: u64,
    late: u64,
}

impl Search {
    /// A search for a depth of at most `most`, in windows of so many ticks.
    pub fn new(goal: LatencyGoal, most: u32, window_ticks: u64) -> Self {
        Self {
            goal,
            most,
            low: 1,
            high: most,
            depth: 1,
            has_failed: false,
            is_settled: false,
            is_restart: false,
            is_over: false,
            has_missed: false,
            is_draining: false,
            since: None,
            window_ticks,
            ios: 0,
            late: 0,
        }
    }

    /// The depth being tried.
    #[cfg(test)]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether it goes on, and is to end the job.
    pub fn is_under_way(&self) -> bool {
        !self.is_over && !self.goal.goes_on
    }

    /// What it came to.
    pub fn outcome(&self) -> Searched {
        match () {
            () if self.is_over || self.goal.goes_on && self.is_settled => Searched::Found(self.depth),
            () if self.has_missed => Searched::NotHeld,
            () => Searched::Unfinished,
        }
    }

    /// How many more requests may be issued.
    pub fn room(&self, in_flight: u32) -> u32 {
        if self.is_draining { 0 } else { self.depth.saturating_sub(in_flight) }
    }

    /// A request was answered.
    pub fn saw(&mut self, latency_ns: u64) {
        self.ios += 1;
        self.late += u64::from(u128::from(latency_ns) > self.goal.target.as_nanos());
    }

    /// Looks at the clock, and at the end of a window at what was seen in it.
    pub fn look(&mut self, now: u64, in_flight: u32) -> Step {
        if self.is_draining && in_flight > 0 {
            return Step::Same;
        }
        let Some(since) = self.since.filter(|_| !self.is_draining) else {
            self.begin(now);
            return if std::mem::take(&mut self.is_restart) { Step::Restart } else { Step::Same };
        };
        let is_strict = self.goal.percentile >= 100.0;
        if is_strict && self.late > 0 {
            return self.failed();
        }
        if now.saturating_sub(since) < self.window_ticks || self.ios == 0 {
            return Step::Same;
        }
        let in_time = (self.ios - self.late) as f64 / self.ios as f64 * 100.0;
        if in_time >= self.goal.percentile { self.succeeded(now) } else { self.failed() }
    }

    fn begin(&mut self, now: u64) {
        (self.since, self.is_draining, self.ios, self.late) = (Some(now), false, 0, 0);
    }

    fn failed(&mut self) -> Step {
        self.is_settled = false;
        if self.depth == 1 {
            self.has_missed = true;
            // Nothing less can be tried. fio ends the job where no request may be late, and else goes on.
            self.is_draining = true;
            return if self.goal.percentile >= 100.0 { Step::Failed } else { Step::Same };
        }
        (self.high, self.has_failed) = (self.depth, true);
        // What was good before is not any more.
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = ((self.depth + self.low) / 2).max(1);
        self.is_draining = true;
        Step::Same
    }

    fn succeeded(&mut self, now: u64) -> Step {
        let before = self.depth;
        self.has_missed = false;
        self.low = before;
        self.depth = match self.has_failed {
            false => before.saturating_mul(2).min(self.most),
            true => (before + self.high) / 2,
        };
        if self.depth != before {
            (self.is_draining, self.is_settled) = (true, false);
            return Step::Same;
        }
        if self.goal.goes_on {
            self.is_settled = true;
            self.begin(now);
            return Step::Same;
        }
        self.is_over = self.is_settled;
        (self.is_settled, self.is_draining, self.is_restart) = (true, true, !self.is_over);
        if self.is_over { Step::Found } else { Step::Same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 100;

    /// The depths that are tried where depths of up to `good` hold the target, and how it ended.
    fn tried(good: u32, most: u32, percentile: f64) -> (Vec<u32>, Step) {
        let goal = LatencyGoal {
            target: Duration::from_micros(1),
            window: Duration::from_secs(1),
            percentile,
            goes_on: false,
        };
        let mut search = Search::new(goal, most, WINDOW);
        let (mut now, mut depths) = (0, Vec::new());
        assert_eq!(search.look(now, 0), Step::Same);
        loop {
            depths.push(search.depth());
            for _ in 0..10 {
                search.saw(if search.depth() <= good { 900 } else { 1100 });
            }
            now += WINDOW;
            match search.look(now, 0) {
                Step::Same if depths.len() < 30 => {}
                step => return (depths, step),
            }
            // What was in flight is answered, and the next window begins.
            let (step, seen) = (search.look(now, 0), depths.len());
            let stays = search.depth() == depths[seen - 1] && depths[seen - 1] <= good;
            assert_eq!(step == Step::Restart, stays, "counts begin anew where a good depth stays");
        }
    }

    #[test]
    fn the_depth_is_doubled_while_it_is_good_and_halved_between_good_and_bad() {
        assert_eq!(tried(100, 4, 99.9), (vec![1, 2, 4, 4], Step::Found));
        assert_eq!(tried(100, 1, 99.9), (vec![1, 1], Step::Found));
        assert_eq!(tried(5, 64, 99.9), (vec![1, 2, 4, 8, 6, 5, 5], Step::Found));
        assert_eq!(tried(5, 64, 100.0), (vec![1, 2, 4, 8, 6, 5, 5], Step::Found));
        assert_eq!(tried(7, 8, 99.9), (vec![1, 2, 4, 8, 6, 7, 7], Step::Found));
        assert_eq!(tried(4, 64, 99.9), (vec![1, 2, 4, 8, 6, 5, 4, 4], Step::Found));
    }

    #[test]
    fn a_target_that_one_request_misses_is_an_error_only_where_none_may() {
        assert_eq!(tried(0, 8, 100.0), (vec![1], Step::Failed));
        assert_eq!(tried(0, 8, 99.0).1, Step::Same, "it goes on to the job's own end");
    }

    /// The outcome after windows whose requests take so long each.
    fn outcome(latencies: &[u64], goes_on: bool) -> Searched {
        let second = Duration::from_secs(1);
        let goal =
            LatencyGoal { target: Duration::from_micros(1), window: second, percentile: 90.0, goes_on };
        let mut search = Search::new(goal, 2, WINDOW);
        let mut now = 0;
        search.look(now, 0);
        for latency in latencies {
            search.saw(*latency);
            now += WINDOW;
            search.look(now, 0);
            search.look(now, 0);
        }
        search.outcome()
    }

    #[test]
    fn a_depth_is_found_only_where_it_was_held_to_the_end() {
        assert_eq!(outcome(&[], false), Searched::Unfinished);
        assert_eq!(outcome(&[1100], false), Searched::NotHeld);
        assert_eq!(outcome(&[1100, 900], false), Searched::Unfinished);
        assert_eq!(outcome(&[900, 900], false), Searched::Unfinished, "depth 2 may yet be too deep");
        assert_eq!(outcome(&[900, 900, 900], false), Searched::Found(2));
        assert_eq!(outcome(&[900, 900, 1100], false), Searched::Unfinished);
        assert_eq!(outcome(&[900, 900], true), Searched::Found(2));
        assert_eq!(outcome(&[900, 900, 1100], true), Searched::Unfinished);
        assert_eq!(outcome(&[1100, 1100], true), Searched::NotHeld);
        assert!(Searched::NotHeld < Searched::Unfinished && Searched::Unfinished < Searched::Found(1));
    }

    #[test]
    fn a_new_depth_waits_until_nothing_is_in_flight() {
        let goal = LatencyGoal {
            target: Duration::from_secs(1),
            window: Duration::from_secs(1),
            percentile: 50.0,
            goes_on: true,
        };
        let mut search = Search::new(goal, 8, WINDOW);
        search.look(0, 0);
        assert_eq!(search.room(0), 1);
        search.saw(1);
        search.look(WINDOW, 1);
        assert_eq!((search.depth(), search.room(1)), (2, 0));
        search.look(2 * WINDOW, 1);
        assert_eq!(search.room(1), 0);
        search.look(2 * WINDOW, 0);
        assert_eq!(search.room(0), 2);
    }
}
