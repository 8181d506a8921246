//! Rounds in which ranks stay in touch while each of them works.
//!
//! The work is done by a thread of its own. Meanwhile the main thread of every rank says in each round how far it is, and
//! whether it is done; the root answers whether to go on, to stop, or that all are done. A round begins after a second, or as soon as a
//! rank's work is done. So a rank that ends, or that is stopped, is noticed within a second or the limit of a round, and
//! what it last said of itself is kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use base::ErrorClass;
use measure::UnansweredRequest;
use ranks::{Lost, Ranks, RanksError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Time between two rounds: while all go on; once they are to stop, and between two looks for a signal.
const PERIOD: Duration = Duration::from_secs(1);
const STOPPING_PERIOD: Duration = Duration::from_millis(50);

/// A limit that is never reached, where none is wanted.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a rank's work has moved so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes.
    pub bytes: AtomicU64,
    /// Requests.
    pub ios: AtomicU64,
}

/// How a rank's own work failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankFailure {
    class: ErrorClass,
    message: String,
    hint: Option<String>,
    unanswered: Option<Box<UnansweredRequest>>,
}

impl RankFailure {
    /// As the root tells it.
    pub fn told(&self, rank: usize, node: &str) -> Failure {
        Failure::new(self.class, format!("rank {rank} on {node}: {}", self.message))
            .hint_if(self.hint.clone())
            .unanswered(self.unanswered.as_deref())
    }
}

/// What a rank says in a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sign<T> {
    /// Bytes moved.
    pub bytes: u64,
    /// Requests completed.
    pub ios: u64,
    /// Time since its work began, nanoseconds.
    pub elapsed_ns: u64,
    /// Whether it was asked to stop.
    stopping: bool,
    /// What came of its work, said once.
    pub outcome: Option<Result<T, RankFailure>>,
}

/// The root's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Order {
    GoOn,
    Stop,
    Over { failed: bool, interrupted: bool },
}

/// What all ranks came to.
#[derive(Debug)]
pub struct Together<T> {
    /// The last that is known of each; none but at the root.
    pub signs: Vec<Sign<T>>,
    /// The rank without which the others ended.
    pub lost: Option<Lost>,
    /// Whether the work of a rank failed; at the root `signs` have how.
    pub failed: bool,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

/// How ranks work together.
pub struct Rounds<'a> {
    /// Set by signals. Nothing here sets it: a second signal would then end the process at once.
    pub asked: &'a AtomicBool,
    /// Set to end the work: by a signal to any rank, or because a rank has failed or is lost.
    pub halt: &'a AtomicBool,
    /// The longest time that a rank may stay silent; zero for ever.
    pub limit: Duration,
    /// What this rank's work counts.
    pub counters: &'a Counters,
}

/// What the root does with what it hears.
pub struct Watch<'a, T> {
    /// Gets the sums of bytes and requests of each round.
    pub round: &'a dyn Fn(u64, u64),
    /// Is told of the loss of a rank, before the root's own work has ended: a launcher may end the root any time now.
    pub loss: &'a dyn Fn(&Together<T>),
}

impl<T> Watch<'_, T> {
    /// Does nothing.
    pub const NONE: Self = Self { round: &|_, _| {}, loss: &|_| {} };
}

impl Rounds<'_> {
    /// Does `work` at every rank, and ends when all of them have.
    pub fn run<T: Serialize + DeserializeOwned + Send>(
        &self,
        ranks: &mut Ranks,
        watch: &Watch<'_, T>,
        work: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<Together<T>, Failure> {
        let (done_in, done) = channel();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The receiver is gone only if a rank was lost.
                let _ = done_in.send(work().map_err(|failure| failure.for_root()));
            });
            let mut together = Together { signs: Vec::new(), lost: None, failed: false, interrupted: false };
            let mut is_done = false;
            loop {
                let outcome = match is_done {
                    true => None,
                    false => match self.wait(&done) {
                        Ok(outcome) => Some(outcome),
                        Err(RecvTimeoutError::Timeout) => None,
                        // The work has panicked; the scope says so.
                        Err(RecvTimeoutError::Disconnected) => break,
                    },
                };
                is_done |= outcome.is_some();
                let sign = Sign {
                    bytes: self.counters.bytes.load(Ordering::Relaxed),
                    ios: self.counters.ios.load(Ordering::Relaxed),
                    elapsed_ns: begun.elapsed().as_nanos() as u64,
                    stopping: self.halt.load(Ordering::Relaxed),
                    outcome,
                };
                match self.round(ranks, &sign, &mut together, watch.round) {
                    Ok(Order::GoOn) => {}
                    Ok(Order::Stop) => self.halt.store(true, Ordering::Relaxed),
                    Ok(Order::Over { failed, interrupted }) => {
                        (together.failed, together.interrupted) = (failed, interrupted);
                        break;
                    }
                    Err(RanksError::Lost(lost)) => {
                        together.lost = Some(lost);
                        if ranks.is_root() {
                            (watch.loss)(&together);
                        }
                        self.halt.store(true, Ordering::Relaxed);
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(together)
        })
    }

    /// Waits for the work's end, at most until the next round is due.
    fn wait<T>(&self, done: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        let until = Instant::now() + PERIOD;
        loop {
            let outcome = done.recv_timeout(STOPPING_PERIOD);
            if self.asked.load(Ordering::Relaxed) {
                self.halt.store(true, Ordering::Relaxed);
            }
            let is_due = self.halt.load(Ordering::Relaxed) || Instant::now() >= until;
            if is_due || !matches!(outcome, Err(RecvTimeoutError::Timeout)) {
                return outcome;
            }
        }
    }

    fn round<T: Serialize + DeserializeOwned>(
        &self,
        ranks: &mut Ranks,
        sign: &Sign<T>,
        together: &mut Together<T>,
        watch: &dyn Fn(u64, u64),
    ) -> Result<Order, RanksError> {
        let limit = if self.limit.is_zero() { FOREVER } else { self.limit };
        let until = || Instant::now() + limit;
        let signs = ranks.gather(&json(sign), until())?;
        let order = signs.map(|signs| json(&decide(&signs, together, watch)));
        let order = ranks.broadcast(order.as_deref(), until())?;
        Ok(serde_json::from_slice(&order).unwrap_or(Order::Over { failed: true, interrupted: false }))
    }
}

/// At the root: takes down what all said, and decides how to go on.
fn decide<T: DeserializeOwned>(
    signs: &[Vec<u8>],
    together: &mut Together<T>,
    watch: &dyn Fn(u64, u64),
) -> Order {
    let mut before = std::mem::take(&mut together.signs).into_iter();
    let mut stopping = false;
    for bytes in signs {
        let sign: Sign<T> = serde_json::from_slice(bytes).unwrap_or_else(|error| Sign::unreadable(&error));
        stopping |= sign.stopping;
        // Of work that is done the time stands still.
        let known = before.next().filter(|known| known.outcome.is_some());
        together.signs.push(known.unwrap_or(sign));
    }
    let signs = &together.signs;
    watch(signs.iter().map(|sign| sign.bytes).sum(), signs.iter().map(|sign| sign.ios).sum());
    let failed = signs.iter().any(|sign| matches!(sign.outcome, Some(Err(_))));
    together.interrupted |= stopping && !failed;
    if signs.iter().all(|sign| sign.outcome.is_some()) {
        Order::Over { failed, interrupted: together.interrupted }
    } else if stopping || failed {
        Order::Stop
    } else {
        Order::GoOn
    }
}

impl<T> Sign<T> {
    /// In place of what cannot be read.
    fn unreadable(error: &serde_json::Error) -> Self {
        let message = format!("what it said of its work cannot be read: {error}");
        let failure = RankFailure { class: ErrorClass::Failed, message, hint: None, unanswered: None };
        Self { bytes: 0, ios: 0, elapsed_ns: 0, stopping: true, outcome: Some(Err(failure)) }
    }
}

impl Failure {
    /// As the root gets it.
    fn for_root(self) -> RankFailure {
        let (class, message, hint, unanswered) = self.into_parts();
        RankFailure { class, message, hint, unanswered }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("counts and records have a JSON form")
}
