//! A thread that computes in place of making requests: see [`crate::run::burn`].

use std::hint::black_box;
use std::time::Duration;

use storage::clock::Clock;

use super::Task;
use crate::run::burn::{Burn, Work};
use crate::run::control::{Control, Phase};
use crate::run::tally::{Summary, Tally};

/// The longest sleep after which a thread looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);
/// Numbers that are sorted at a time: half a megabyte, so that the caches near the core have work as well.
const SORTED: usize = 1 << 16;

/// Computes and rests until the job's time is over.
pub(super) fn burn(burn: Burn, task: &Task, control: &Control) -> Summary {
    let clock = Clock::get();
    let workload = &task.workload;
    let began = clock.now();
    let runtime = workload.runtime.unwrap_or(Duration::from_secs(10));
    let mut tally = Tally::new(clock, began, u64::try_from(runtime.as_nanos()).unwrap_or(u64::MAX));
    let ramp_until = began + clock.ticks(workload.ramp_time);
    let (mut filled, mut deadline) = (false, u64::MAX);
    let mut work = Working { burn, clock, numbers: Vec::new(), since: 0, works_until: 0, rests_until: 0 };
    loop {
        let now = clock.now();
        control.pulses()[task.number].beat(now);
        if !filled && now >= ramp_until {
            filled = true;
            control.filled();
        }
        match control.phase() {
            Phase::Ramp => {}
            Phase::Measure if !tally.is_measuring() => {
                tally.begin(now);
                deadline = now + clock.ticks(runtime);
            }
            Phase::Measure if now < deadline => {}
            _ => break,
        }
        if tally.step_is_due(now) {
            tally.step(now);
        }
        work.go_on(now);
    }
    if tally.is_measuring() {
        tally.end(clock.now());
    }
    control.done();
    tally.close(clock.now())
}

/// Where a thread is between work and rest, in ticks.
struct Working {
    burn: Burn,
    clock: Clock,
    numbers: Vec<u64>,
    since: u64,
    /// 0 while it rests.
    works_until: u64,
    rests_until: u64,
}

impl Working {
    /// Works or rests a little.
    fn go_on(&mut self, now: u64) {
        let clock = self.clock;
        if now < self.rests_until {
            let left = Duration::from_nanos(clock.nanoseconds(self.rests_until - now));
            std::thread::sleep(left.min(LOOK));
            return;
        }
        if self.works_until == 0 {
            (self.since, self.works_until) = (now, now + clock.ticks(self.burn.chunk));
        }
        match self.burn.work {
            Work::Spin => {
                let until = self.works_until.min(now + clock.ticks(LOOK));
                while clock.now() < until {
                    std::hint::spin_loop();
                }
            }
            Work::Sort => sort(&mut self.numbers),
        }
        let now = clock.now();
        if self.burn.work == Work::Sort || now >= self.works_until {
            let worked = Duration::from_nanos(clock.nanoseconds(now - self.since));
            (self.works_until, self.rests_until) = (0, now + clock.ticks(self.burn.rest(worked)));
        }
    }
}

/// Shuffles numbers, then sorts them both ways.
fn sort(numbers: &mut Vec<u64>) {
    numbers.resize(SORTED, 0);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in &mut *numbers {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *number = state;
    }
    numbers.sort_unstable();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    black_box(&*numbers);
}
