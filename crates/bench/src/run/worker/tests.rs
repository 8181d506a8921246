//! The loop on a drive that a script plays, call by call.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use storage::device::{OpenOptions, open};
use storage::engine::{EngineError, RequestFailure};

use super::*;

/// What the loop did, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A system call that handed over so many requests.
    HandedOver(usize),
    /// A system call that waited for a completion, with so many requests in flight.
    Waited(usize),
}

/// A drive that answers in groups of a given size, and only when it is waited for.
struct Scripted<'a> {
    device: Arc<dyn Device>,
    depth: u32,
    buffer: Vec<u8>,
    /// Completions that come together.
    group: usize,
    prepared: Vec<u32>,
    under_way: VecDeque<u32>,
    finished: Vec<u32>,
    events: Rc<RefCell<Vec<Event>>>,
    control: &'a Control,
    /// Waits that are left until the run is stopped.
    waits: usize,
}

impl Engine for Scripted<'_> {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn features(&self) -> Vec<String> {
        Vec::new()
    }

    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        (self.prepared.len() + self.under_way.len() + self.finished.len()) as u32
    }

    fn buffer(&self, _slot: u32) -> &[u8] {
        &self.buffer
    }

    fn buffer_mut(&mut self, _slot: u32) -> &mut [u8] {
        &mut self.buffer
    }

    fn prepare(&mut self, slot: u32, _op: Op, _offset: u64, _length: u32) {
        self.prepared.push(slot);
    }

    fn submit(&mut self, min_complete: u32, _timeout: Option<Duration>) -> Result<(), EngineError> {
        let mut events = self.events.borrow_mut();
        if !self.prepared.is_empty() {
            events.push(Event::HandedOver(self.prepared.len()));
        }
        self.under_way.extend(self.prepared.drain(..));
        if min_complete > 0 {
            events.push(Event::Waited(self.under_way.len()));
            let group = self.group.max(min_complete as usize).min(self.under_way.len());
            self.finished.extend(self.under_way.drain(..group));
            self.waits -= 1;
            if self.waits == 0 {
                self.control.advance(Phase::Stop);
                self.finished.extend(self.under_way.drain(..));
            }
        }
        Ok(())
    }

    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let count = self.finished.len() as u32;
        self.finished.drain(..).for_each(|slot| on_complete(slot, Ok(())));
        count
    }
}

/// Runs `workload` on a scripted drive that answers in groups, until it was waited for `waits` times.
fn scripted(workload: Workload, group: usize, waits: usize) -> Vec<Event> {
    let spec = "mem:64m".parse().expect("a spec");
    let device = open(&spec, &OpenOptions::writing()).expect("memory");
    let region = Region { start: 0, length: 64 << 20, job: 0 };
    let task = Task { device: Arc::clone(&device), workload, region, cpus: None, generation: 0 };
    let control = Control::new(1);
    let events = Rc::new(RefCell::new(Vec::new()));
    let engine = Scripted {
        device,
        depth: task.workload.iodepth,
        buffer: vec![0; task.workload.max_bs() as usize],
        group,
        prepared: Vec::new(),
        under_way: VecDeque::new(),
        finished: Vec::new(),
        events: Rc::clone(&events),
        control: &control,
        waits,
    };
    run(engine, &task, &control).expect("runs");
    events.take()
}

fn handed_over(events: &[Event]) -> Vec<usize> {
    let calls = events.iter().filter_map(|event| match event {
        Event::HandedOver(requests) => Some(*requests),
        Event::Waited(_) => None,
    });
    calls.collect()
}

fn reads(iodepth: u32) -> Workload {
    Workload { iodepth, runtime: Some(Duration::from_secs(3600)), time_based: true, ..Workload::default() }
}

/// What is handed over once the queue was filled: the calls after the first wait, less those of the end.
fn refills(iodepth: u32, group: usize) -> Vec<usize> {
    let events = scripted(reads(iodepth), group, 50);
    let first = events.iter().position(|event| matches!(event, Event::Waited(_))).expect("it was waited for");
    handed_over(&events[first..])
}

#[test]
fn a_drive_that_answers_in_groups_is_refilled_in_groups_of_at_most_a_quarter_of_the_depth() {
    assert!(refills(128, 32).iter().all(|requests| *requests == 32));
    assert!(refills(128, 16).iter().all(|requests| *requests == 16));
    assert!(refills(32, 16).iter().all(|requests| *requests == 8));
    assert!(refills(512, 128).iter().all(|requests| *requests == 32));
}

#[test]
fn a_drive_that_answers_one_by_one_is_refilled_one_by_one() {
    for depth in [1, 4, 32, 128] {
        assert!(refills(depth, 1).iter().all(|requests| *requests == 1), "depth {depth}");
    }
}

#[test]
fn a_lone_completion_is_not_waited_for_twice() {
    for depth in 1..=4 {
        let events = scripted(reads(depth), 1, 50);
        let waits: Vec<usize> = events
            .iter()
            .filter_map(|event| match event {
                Event::Waited(under_way) => Some(*under_way),
                Event::HandedOver(_) => None,
            })
            .collect();
        assert!(waits.iter().all(|under_way| *under_way == depth as usize), "{waits:?}");
    }
}

#[test]
fn what_is_asked_for_is_handed_over() {
    let asked = Workload { iodepth_batch: 2, ..reads(128) };
    assert!(handed_over(&scripted(asked, 32, 50)).iter().all(|requests| *requests <= 2));
    let each = Workload { latency_clock: LatencyClock::Each, ..reads(128) };
    assert!(handed_over(&scripted(each, 32, 50)).iter().all(|requests| *requests == 1));
}

#[test]
fn a_schedule_keeps_its_mean_rate_to_the_tick() {
    let clock = Clock::get();
    for rate_process in [RateProcess::Linear, RateProcess::Poisson] {
        let workload = Workload { rate_iops: Some(3_000_000), rate_process, ..Workload::default() };
        let mut schedule = Schedule::new(&workload, clock, 0);
        let ticks: u64 = (0..300_000).map(|_| schedule.gap()).sum();
        let seconds = clock.nanoseconds(ticks) as f64 / 1e9;
        assert!((seconds / 0.1 - 1.0).abs() < 0.02, "{rate_process:?}: {seconds} s");
    }
}
