//! Jobs that keep in proportion to each other: fio's `flow`.
//!
//! Each thread of a flow has a weight. It issues a request only while its share of the requests that all of them have
//! issued is not above its share of their weights. A thread that ends takes its weight and its count with it, so that the
//! others go on without it. So does one whose request waits for what others do (zones), as one of them may be who it waits
//! for; it comes back with both, and the others then wait until it has caught up. Thus a thread is held back only for one
//! that can go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A job's place in a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Jobs with the same number keep in proportion.
    pub id: u32,
    /// The weight of each thread.
    pub weight: u32,
    /// How long a thread waits that has got ahead, once its requests are answered; zero to look again as one completes.
    pub sleep: Duration,
}

/// What the threads of a flow have in common.
#[derive(Debug, Default)]
pub(super) struct Shared {
    weight: AtomicU64,
    issued: AtomicU64,
}

impl Shared {
    /// A flow of threads whose weights add up to this.
    pub fn new(weight: u64) -> Arc<Self> {
        Arc::new(Self { weight: AtomicU64::new(weight), issued: AtomicU64::new(0) })
    }
}

/// A thread's part in a flow, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    shared: Arc<Shared>,
    weight: u64,
    issued: u64,
    sleep: Duration,
    /// The thread has got ahead, and has not yet rested for it.
    pub is_held: bool,
    /// When the rest that is under way ends.
    until: Option<Instant>,
    /// The others go on without it.
    is_aside: bool,
}

/// The longest sleep after which a thread looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

impl Part {
    pub fn new(shared: &Arc<Shared>, flow: Flow) -> Self {
        Self {
            shared: Arc::clone(shared),
            weight: u64::from(flow.weight),
            issued: 0,
            sleep: flow.sleep,
            is_held: false,
            until: None,
            is_aside: false,
        }
    }

    /// Part of the rest of a thread that has got ahead and has nothing in flight: at most [`LOOK`].
    #[cold]
    pub fn rest(&mut self) {
        if self.sleep.is_zero() {
            std::thread::yield_now();
            self.is_held = false;
            return;
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.sleep);
        std::thread::sleep(until.saturating_duration_since(Instant::now()).min(LOOK));
        if Instant::now() >= until {
            (self.until, self.is_held) = (None, false);
        }
    }

    /// Whether another request may be issued; it counts as issued then.
    pub fn admits(&mut self) -> bool {
        if self.is_held && !self.sleep.is_zero() {
            return false;
        }
        self.is_held = !self.is_admitted();
        !self.is_held
    }

    /// The thread's request waits for what others do.
    #[cold]
    pub fn stand_aside(&mut self) {
        if !std::mem::replace(&mut self.is_aside, true) {
            self.leave();
        }
    }

    /// It waits no more.
    #[inline]
    pub fn come_back(&mut self) {
        if std::mem::take(&mut self.is_aside) {
            self.shared.issued.fetch_add(self.issued, Ordering::Relaxed);
            self.shared.weight.fetch_add(self.weight, Ordering::Relaxed);
        }
    }

    fn leave(&self) {
        self.shared.weight.fetch_sub(self.weight, Ordering::Relaxed);
        self.shared.issued.fetch_sub(self.issued, Ordering::Relaxed);
    }

    fn is_admitted(&mut self) -> bool {
        // The counts of the others may be a little behind, which costs a request of proportion and no more.
        let all = u128::from(self.shared.issued.load(Ordering::Relaxed));
        let weights = u128::from(self.shared.weight.load(Ordering::Relaxed));
        if u128::from(self.issued) * weights > u128::from(self.weight) * all {
            return false;
        }
        self.issued += 1;
        self.shared.issued.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_aside {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(shared: &Arc<Shared>, weight: u32) -> Part {
        Part::new(shared, Flow { id: 0, weight, sleep: Duration::ZERO })
    }

    #[test]
    fn threads_issue_in_the_proportion_of_their_weights() {
        let shared = Shared::new(9);
        let (mut many, mut few) = (part(&shared, 8), part(&shared, 1));
        for _ in 0..10_000 {
            many.admits();
            few.admits();
        }
        let ratio = many.issued as f64 / few.issued as f64;
        assert!((7.9..8.1).contains(&ratio), "{} to {}", many.issued, few.issued);
    }

    #[test]
    fn a_thread_waits_for_one_that_issues_nothing_and_not_for_one_that_has_left() {
        let shared = Shared::new(2);
        let (mut one, other) = (part(&shared, 1), part(&shared, 1));
        assert!(one.admits());
        assert!(!one.admits() && one.is_held, "the other has issued nothing");
        drop(other);
        assert!((0..1000).all(|_| one.admits()));
    }

    #[test]
    fn one_that_waits_for_others_holds_none_of_them_back_and_catches_up_later() {
        let shared = Shared::new(2);
        let (mut one, mut other) = (part(&shared, 1), part(&shared, 1));
        assert!(other.admits() && one.admits());
        other.stand_aside();
        other.stand_aside();
        assert!((0..100).all(|_| one.admits()));
        other.come_back();
        assert!(!one.admits() && (0..100).all(|_| other.admits()));
        assert!(one.admits());
        other.stand_aside();
        drop(other);
        assert_eq!((shared.weight.load(Ordering::Relaxed), shared.issued.load(Ordering::Relaxed)), (1, 102));
    }

    #[test]
    fn a_thread_that_got_ahead_rests_as_long_as_was_asked() {
        let shared = Shared::new(2);
        let sleep = Duration::from_millis(60);
        let mut one = Part::new(&shared, Flow { id: 0, weight: 1, sleep });
        let mut other = part(&shared, 1);
        assert!(one.admits() && !one.admits());
        assert!(other.admits() && !one.admits(), "it has not rested");
        let began = Instant::now();
        while one.is_held {
            one.rest();
        }
        assert!(began.elapsed() >= sleep && one.admits());
    }
}
