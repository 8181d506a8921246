//! Who moves the phases on, and when: see [`super::control`].

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use std::sync::Arc;

use storage::clock::Clock;

use super::control::{Control, Phase, Pulse};
use super::share::Share;
use super::{BenchError, Progress, RunOptions};

/// How long the coordinator sleeps at most before it looks for a wish to stop.
const LOOK: Duration = Duration::from_millis(50);

/// By how much the coordinator sleeps too long where the process was stopped, and not merely late to be scheduled.
const STOP_MIN: Duration = Duration::from_secs(1);

/// How long threads that can end may take, once another waits in vain.
const GRACE: Duration = Duration::from_secs(1);

/// Moves the jobs through their phases.
pub(super) struct Coordinator<'a> {
    pub controls: &'a [Arc<Control>],
    pub shares: &'a [Vec<Share>],
    pub options: RunOptions<'a>,
}

impl Coordinator<'_> {
    pub fn wants_stop(&self) -> bool {
        self.options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn failed(&self) -> bool {
        self.controls.iter().any(|c| c.phase() == Phase::Stop)
    }

    /// Whether there is nothing more to wait for.
    fn over(&self) -> bool {
        self.wants_stop() || self.failed()
    }

    /// Waits until every job has its queues full, or is so short that it is done before.
    pub fn wait_until_filled(&self) {
        let mut last = (Instant::now(), 0, 0);
        while !self.over() && !self.controls.iter().all(|c| c.all_filled() || c.any_done()) {
            self.pause();
            self.tell(None, &mut last);
        }
    }

    /// Begins the interval of each job that has work left.
    pub fn measure(&self) {
        if !self.over() {
            self.controls.iter().filter(|c| !c.any_done()).for_each(|c| c.advance(Phase::Measure));
        }
    }

    /// Waits until the interval of the first job ends, and calls `watch` all the while.
    pub fn wait_until_one_is_done(&self, mut watch: impl FnMut(Instant)) {
        let begun = Instant::now();
        let mut last = (begun, 0, 0);
        let measured: Vec<_> = self.controls.iter().filter(|c| c.phase() == Phase::Measure).collect();
        while !self.over() && !measured.is_empty() && !measured.iter().any(|c| c.any_done()) {
            self.pause();
            watch(Instant::now());
            self.tell(Some(begun), &mut last);
        }
    }

    /// Tells the watcher about the last second.
    fn tell(&self, measuring: Option<Instant>, last: &mut (Instant, u64, u64)) {
        let Some(progress) = self.options.progress else { return };
        let step = last.0.elapsed();
        if step < Duration::from_secs(1) {
            return;
        }
        let (bytes, ios) = self.controls.iter().map(|c| c.seen()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        progress(&Progress {
            measuring: measuring.map(|begun| begun.elapsed()),
            step,
            bytes: bytes - last.1,
            ios: ios - last.2,
        });
        *last = (Instant::now(), bytes, ios);
    }

    /// Ends each job's interval when its first thread is done, and waits until all threads have left. False if some will
    /// not leave, because they wait for a drive that does not answer; the run has failed then.
    pub fn wait_for_the_end(&self, stop: bool) -> bool {
        let stop_all = || self.controls.iter().for_each(|c| c.advance(Phase::Stop));
        if stop || self.failed() {
            stop_all();
        }
        let mut stuck_since: Option<Instant> = None;
        while !self.controls.iter().all(|c| c.all_left()) {
            for control in self.controls.iter().filter(|c| c.any_done()) {
                control.advance(Phase::Tail);
            }
            if self.over() {
                stop_all();
            }
            if self.pause() && stuck_since.get_or_insert_with(Instant::now).elapsed() >= GRACE {
                return false;
            }
        }
        true
    }

    /// Waits until something may have changed. True if a thread waits in vain; its job has failed then.
    fn pause(&self) -> bool {
        let clock = Clock::get();
        let asleep = clock.now();
        std::thread::park_timeout(LOOK);
        self.check_pulses(asleep, clock.now(), clock)
    }

    /// Fails the jobs whose threads wait in vain, as seen `now` after a sleep since `asleep`. True if there is one.
    fn check_pulses(&self, asleep: u64, now: u64, clock: Clock) -> bool {
        if now.saturating_sub(asleep) > clock.ticks(LOOK + STOP_MIN) {
            self.controls.iter().for_each(|control| control.resume(now));
        }
        let mut stuck = false;
        for (control, shares) in self.controls.iter().zip(self.shares) {
            for (pulse, share) in control.pulses().iter().zip(shares) {
                let limit = share.workload.request_timeout;
                let since = pulse.last().map(|last| match last {
                    Pulse::STOPPED => last,
                    last => last.max(control.resumed()),
                });
                // A pulse that was set after `now` lies ahead of it, and has no age.
                let age = since.map(|since| clock.nanoseconds(now.saturating_sub(since)));
                if age.is_some_and(|age| !limit.is_zero() && u128::from(age) > limit.as_nanos()) {
                    stuck = true;
                    control.fail(BenchError::unanswered(&*share.device, limit, pulse.waited_for()));
                }
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Workload;
    use measure::dealing::Region;
    use storage::device::{OpenOptions, open};

    /// Whether a thread counts as stuck that had an answer `answered_s` ago, and none since, when the coordinator wakes
    /// after a sleep of `slept`. The limit is 10 s.
    fn is_stuck(pulse: impl Fn(&Pulse, u64), answered_s: u64, slept: Duration) -> bool {
        let device = open(&"mem:1m".parse().expect("a spec"), &OpenOptions::writing()).expect("memory");
        let workload = Workload { request_timeout: Duration::from_secs(10), ..Workload::default() };
        let region = Region { start: 0, length: 1 << 20, job: 0 };
        let (controls, shares) = (
            [Arc::new(Control::new(1))],
            [vec![Share { device, workload, region, zones: None, announced: None }]],
        );
        let coordinator =
            Coordinator { controls: &controls, shares: &shares, options: RunOptions::default() };
        let clock = Clock::get();
        let now = clock.now() + clock.ticks(Duration::from_secs(1000));
        pulse(&controls[0].pulses()[0], now - clock.ticks(Duration::from_secs(answered_s)));
        coordinator.check_pulses(now - clock.ticks(slept), now, clock)
    }

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count_as_unanswered() {
        assert!(is_stuck(Pulse::beat, 20, LOOK), "the drive has not answered");
        assert!(is_stuck(Pulse::beat, 20, LOOK + STOP_MIN / 2), "the machine is busy");
        assert!(!is_stuck(Pulse::beat, 20, Duration::from_secs(15)), "the process was stopped");
        assert!(!is_stuck(Pulse::beat, 5, LOOK));
        assert!(
            is_stuck(|pulse, _| pulse.stop(), 5, Duration::from_secs(15)),
            "it waits for what is not answered"
        );
        assert!(!is_stuck(|pulse, _| pulse.rest(), 20, LOOK));
    }
}
