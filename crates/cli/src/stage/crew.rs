//! `stage cp` by several tasks: rank 0 carries the move out, the others are its hands ([`stage::crew`]).
//!
//! All that ranks say goes in rounds: each hand tells what it has done since the last one, and the root what is to be done. So a
//! rank that ends or is stopped is noticed while it has nothing to do as well. A hand that is lost fails the move: nothing is published,
//! and the same command goes on with what was recorded.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ranks::{Ranks, RanksError};
use serde::{Deserialize, Serialize};
use stage::crew::{Copied, Crew, Errand, Failure as HandFailure, Hand, Task};
use stage::error::Why;
use stage::pace::Stop;
use stage::{JobSpec, StageError, Verb};

use super::args::{ModeArgs, OptionArgs, ServerArgs};
use super::foreground::Foreground;
use super::{request, transfer};
use crate::failure::Failure;
use crate::{output, signals, tasks};

/// The longest time that a rank may stay silent. What it works at does not count: it answers meanwhile.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Time between two rounds: with tasks under way, and without; for each rank on top of the first.
const BUSY_PERIOD: Duration = Duration::from_millis(2);
const BUSY_PERIOD_EACH: Duration = Duration::from_micros(100);
const IDLE_PERIOD: Duration = Duration::from_millis(20);

/// Tasks that a hand works at side by side: while one is synced, another is copied.
const THREADS: usize = 3;

/// A task on its way to a hand.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    number: u64,
    rank: u32,
    errand: Errand,
    task: Task,
}

/// What the root says in a round.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Orders {
    orders: Vec<Order>,
    over: bool,
}

/// What a hand says: numbers of tasks, and what came of them.
type Answers = Vec<(u64, Result<Copied, HandFailure>)>;

/// Copies as one of several tasks.
pub fn copy(
    tasks: Option<u32>,
    paths: &[OsString],
    options: &OptionArgs,
    mode: &ModeArgs,
    server: &ServerArgs,
) -> Result<(), Failure> {
    check(options, mode, server)?;
    let jobs = request::jobs(Verb::Copy, paths, &request::options(options), mode.no_target_directory)
        .map_err(Failure::of_root)?;
    check_places(&jobs)?;
    let stop = signals::stop_flag()?;
    let ranks = tasks::join(tasks, &stop)?;
    let ranks = ranks.ok_or_else(|| Failure::failed("the tasks were not started"))?;
    if ranks.is_root() { lead(ranks, jobs, mode, server, &stop) } else { follow(ranks) }
}

/// Refuses what is not for several tasks.
fn check(options: &OptionArgs, mode: &ModeArgs, server: &ServerArgs) -> Result<(), Failure> {
    let given = [
        ("bwlimit", options.bwlimit.is_some()),
        ("iops-limit", options.iops_limit.is_some()),
        ("deadline", options.deadline.is_some()),
        ("background", options.background),
        ("wait", mode.wait.is_some()),
        ("socket", server.socket.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failure::invalid(format!("--{flag} cannot be combined with several tasks"))
            .hint("leave it out, or copy by one process")
            .of_root()),
        None => Ok(()),
    }
}

fn check_places(jobs: &[JobSpec]) -> Result<(), Failure> {
    let in_store =
        jobs.iter().flat_map(|job| [&job.source, &job.destination]).find(|place| place.path().is_none());
    match in_store {
        Some(place) => {
            Err(Failure::invalid(format!("{}: several tasks copy between directories", place.shown()))
                .hint("copy to and from object stores by one process")
                .of_root())
        }
        None => Ok(()),
    }
}

/// Carries the jobs out with the others' help.
fn lead(
    ranks: Ranks,
    jobs: Vec<JobSpec>,
    mode: &ModeArgs,
    server: &ServerArgs,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let crew = Arc::new(Gang::new(&ranks));
    let foreground = Foreground::of(server, &jobs)?.with_crew(Arc::clone(&crew) as Arc<dyn Crew>);
    std::thread::scope(|scope| {
        let rounds = scope.spawn(|| crew.rounds(ranks));
        let copied = transfer::alone(&foreground, jobs, mode, stop);
        crew.end();
        let ranks = rounds.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match ranks {
            Ok(ranks) => copied.and(tasks::finish(ranks)),
            // The copy has failed with it, unless all tasks were done before.
            Err(error) => copied.inspect(|()| output::tell(&format!("note: {error}\n"))),
        }
    })
}

/// The hands, as the move sees them.
struct Gang {
    /// Each hand's rank and node, as a person reads it.
    names: Vec<String>,
    desk: Mutex<Desk>,
    changed: Condvar,
}

/// Tasks on their way.
#[derive(Default)]
struct Desk {
    next: u64,
    new: Vec<Order>,
    /// By number; None until it is answered.
    under_way: BTreeMap<u64, Option<Result<Copied, HandFailure>>>,
    over: bool,
    /// Why there are no rounds any more.
    lost: Option<String>,
}

impl Gang {
    fn new(ranks: &Ranks) -> Self {
        let name = |(rank, member): (usize, &ranks::Member)| format!("rank {rank} on {}", member.node);
        let names = ranks.members().iter().enumerate().skip(1).map(name).collect();
        Self { names, desk: Mutex::default(), changed: Condvar::new() }
    }

    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.desk().over = true;
        self.changed.notify_all();
    }

    /// Exchanges tasks and answers until the end, or until a rank is lost.
    fn rounds(&self, mut ranks: Ranks) -> Result<Ranks, RanksError> {
        let busy = BUSY_PERIOD + BUSY_PERIOD_EACH * ranks.size();
        loop {
            let orders = self.due(busy);
            if let Err(error) = self.round(&mut ranks, &orders) {
                self.desk().lost = Some(error.to_string());
                self.changed.notify_all();
                return Err(error);
            }
            if orders.over {
                return Ok(ranks);
            }
        }
    }

    /// Waits until there is something to say, or time for a sign of life.
    fn due(&self, busy: Duration) -> Orders {
        let desk = self.desk();
        let period = if desk.under_way.is_empty() { IDLE_PERIOD } else { busy };
        let idle = |desk: &mut Desk| desk.new.is_empty() && !desk.over;
        let (mut desk, _) =
            self.changed.wait_timeout_while(desk, period, idle).unwrap_or_else(PoisonError::into_inner);
        Orders { orders: std::mem::take(&mut desk.new), over: desk.over }
    }

    fn round(&self, ranks: &mut Ranks, orders: &Orders) -> Result<(), RanksError> {
        let until = || Instant::now() + SILENCE_MAX;
        let answers = ranks.gather(&[], until())?.unwrap_or_default();
        let mut desk = self.desk();
        for answers in answers.iter().skip(1) {
            for (number, answer) in serde_json::from_slice::<Answers>(answers).unwrap_or_default() {
                desk.under_way.insert(number, Some(answer));
            }
        }
        drop(desk);
        self.changed.notify_all();
        ranks.broadcast(Some(&json(orders)), until()).map(drop)
    }
}

impl Crew for Gang {
    fn hands(&self) -> usize {
        self.names.len()
    }

    fn work(&self, hand: usize, errand: &Errand, task: Task) -> Result<Copied, StageError> {
        let mut desk = self.desk();
        let number = desk.next;
        desk.next += 1;
        desk.new.push(Order { number, rank: hand as u32 + 1, errand: errand.clone(), task });
        desk.under_way.insert(number, None);
        self.changed.notify_all();
        loop {
            if let Some(lost) = &desk.lost {
                let error = StageError::Stopped { what: lost.clone() };
                let why = Why {
                    message: lost.clone(),
                    hint: Some("the same command goes on where it stopped".to_owned()),
                    class: base::ErrorClass::Failed,
                    ..Why::of(&error)
                };
                return Err(HandFailure::Other(why).of_hand("the copy has stopped"));
            }
            if let Some(Some(_)) = desk.under_way.get(&number) {
                let answer = desk.under_way.remove(&number).flatten().expect("it was there");
                return answer.map_err(|failure| failure.of_hand(&self.names[hand]));
            }
            desk = self.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Works for rank 0 until it says that all is over.
fn follow(mut ranks: Ranks) -> Result<(), Failure> {
    let (orders_in, orders) = channel::<Order>();
    let (answers_in, answers) = channel();
    let orders = Arc::new(Mutex::new(orders));
    for _ in 0..THREADS {
        let (orders, answers) = (Arc::clone(&orders), Sender::clone(&answers_in));
        std::thread::spawn(move || work(&orders, &answers));
    }
    loop {
        let done: Answers = answers.try_iter().collect();
        match round(&mut ranks, &done) {
            Ok(all) => {
                let own = all.orders.into_iter().filter(|order| order.rank == ranks.rank());
                // The receivers are these threads', which end with the process.
                own.for_each(|order| drop(orders_in.send(order)));
                if all.over {
                    return tasks::finish(ranks);
                }
            }
            Err(RanksError::Lost(lost)) => return Err(tasks::lost(&lost, false)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn round(ranks: &mut Ranks, done: &Answers) -> Result<Orders, RanksError> {
    // The root says when a round begins: it may have nothing to say for long, but not for ever.
    let until = || Instant::now() + SILENCE_MAX;
    ranks.gather(&json(done), until())?;
    let orders = ranks.broadcast(None, until())?;
    Ok(serde_json::from_slice(&orders).unwrap_or(Orders { orders: Vec::new(), over: true }))
}

/// A thread of a hand.
fn work(orders: &Mutex<Receiver<Order>>, answers: &Sender<(u64, Result<Copied, HandFailure>)>) {
    let stop = Stop::new();
    let mut hand: Option<Hand> = None;
    loop {
        let order = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Order { number, errand, task, .. }) = order else { return };
        let same = hand.take().filter(|hand| *hand.errand() == errand);
        let answer = same.map_or_else(|| Hand::open(&errand), Ok).and_then(|mut opened| {
            let copied = opened.work(&task, &stop);
            hand = Some(opened);
            copied
        });
        if answers.send((number, answer.map_err(HandFailure::from))).is_err() {
            return;
        }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("names and digests have a JSON form")
}
