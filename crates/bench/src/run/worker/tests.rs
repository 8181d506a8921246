//! The loop on a drive that a script plays, call by call.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use measure::workload::Rw;
use storage::device::{OpenOptions, open};
use storage::engine::{EngineError, Op, RequestFailure};

use super::*;

/// What the loop did, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A system call that handed over so many requests.
    HandedOver(usize),
    /// A system call that waited for a completion, with so many requests in flight.
    Waited(usize),
    /// A block was made while the drive worked on so many requests.
    Made(usize),
}

/// A drive that answers in groups of a given size, and only when it is waited for.
struct Scripted<'a> {
    device: Arc<dyn Device>,
    depth: u32,
    buffer: Vec<u8>,
    /// Completions that come together.
    group: usize,
    prepared: Vec<u32>,
    /// What was prepared, in order.
    ops: Rc<RefCell<Vec<Op>>>,
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
        self.events.borrow_mut().push(Event::Made(self.under_way.len()));
        &mut self.buffer
    }

    fn prepare(&mut self, slot: u32, op: Op, _offset: u64, _length: u32) {
        self.ops.borrow_mut().push(op);
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
    scripted_with_slots(workload, 0, group, waits)
}

/// The same with an engine of so many slots more than the depth.
fn scripted_with_slots(workload: Workload, spare: u32, group: usize, waits: usize) -> Vec<Event> {
    scripted_run(workload, spare, group, waits).0
}

/// The same, with what was asked of the drive.
fn scripted_run(workload: Workload, spare: u32, group: usize, waits: usize) -> (Vec<Event>, Vec<Op>) {
    let spec = "mem:64m".parse().expect("a spec");
    let device = open(&spec, &OpenOptions::writing()).expect("memory");
    let region = Region { start: 0, length: 64 << 20, job: 0 };
    let task = Task {
        zones: None,
        announced: None,
        device: Arc::clone(&device),
        workload,
        region,
        cpus: None,
        generation: 0,
        number: 0,
        conduct: Conduct::default(),
        flow: None,
    };
    let control = Control::new(1);
    let events = Rc::new(RefCell::new(Vec::new()));
    let ops = Rc::new(RefCell::new(Vec::new()));
    let engine = Scripted {
        device,
        depth: task.workload.iodepth + spare,
        buffer: vec![0; task.workload.max_bs() as usize],
        group,
        prepared: Vec::new(),
        ops: Rc::clone(&ops),
        under_way: VecDeque::new(),
        finished: Vec::new(),
        events: Rc::clone(&events),
        control: &control,
        waits,
    };
    run(engine, &task, &control).expect("runs");
    let events = events.take();
    let ops = ops.take();
    (events, ops)
}

fn handed_over(events: &[Event]) -> Vec<usize> {
    let calls = events.iter().filter_map(|event| match event {
        Event::HandedOver(requests) => Some(*requests),
        Event::Waited(_) | Event::Made(_) => None,
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
fn a_drive_that_answers_in_groups_is_refilled_in_groups_as_its_depth_allows() {
    assert!(refills(128, 32).iter().all(|requests| *requests == 32));
    assert!(refills(128, 16).iter().all(|requests| *requests == 16));
    assert!(refills(64, 32).iter().all(|requests| *requests == 8));
    assert!(refills(32, 16).iter().all(|requests| *requests == 4));
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
                Event::HandedOver(_) | Event::Made(_) => None,
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
fn the_next_large_block_is_made_while_the_drive_works_on_all_others() {
    for depth in [1, 2, 16] {
        let writes = Workload { rw: Rw::Write, bs: 1 << 20, ..reads(depth) };
        let events = scripted_with_slots(writes, 1, 1, 50);
        let first =
            events.iter().position(|event| matches!(event, Event::Waited(_))).expect("it was waited for");
        let full = depth as usize;
        for event in &events[first..] {
            match event {
                Event::HandedOver(requests) => {
                    assert_eq!(*requests, 1, "a block is handed over as soon as it is made")
                }
                Event::Waited(in_flight) => {
                    assert_eq!(*in_flight, full, "no more than the depth, and no fewer")
                }
                Event::Made(in_flight) => assert_eq!(*in_flight, full, "the drive has work meanwhile"),
            }
        }
        let made = events[first..].iter().filter(|event| matches!(event, Event::Made(_))).count();
        assert!(made > 40, "{made} blocks were made");
    }
}

#[test]
fn without_a_slot_to_spare_the_drive_waits_for_each_block() {
    let writes = Workload { rw: Rw::Write, bs: 1 << 20, ..reads(1) };
    let events = scripted(writes, 1, 50);
    assert!(events.contains(&Event::Made(0)) && !events.contains(&Event::Made(1)));
}

#[test]
fn small_writes_are_handed_over_before_many_are_made() {
    let writes = |bs| Workload { rw: Rw::RandWrite, bs, ..reads(128) };
    let most = |bs| handed_over(&scripted(writes(bs), 32, 50)).into_iter().max();
    assert_eq!((most(4 << 10), most(32 << 10), most(256 << 10)), (Some(32), Some(4), Some(1)));
}

#[test]
fn fsync_and_fdatasync_follow_as_many_writes_as_was_asked() {
    let workload = Workload {
        rw: Rw::Write,
        fdatasync: 2,
        fsync: 3,
        number_ios: Some(6),
        size: Some(1 << 20),
        ..Workload::default()
    };
    let (_, ops) = scripted_run(workload, 0, 1, 100);
    let words: Vec<&str> = ops.iter().map(|op| op.word()).collect();
    // Where both are due, fsync(2) does what fdatasync(2) does.
    let expected =
        ["write", "write", "fdatasync", "write", "fsync", "write", "fdatasync", "write", "write", "fsync"];
    assert_eq!(words, expected);
}

#[test]
fn no_request_is_made_while_others_are_waited_for_before_a_rest() {
    let workload = Workload {
        iodepth: 8,
        thinktime: Duration::from_millis(1),
        thinktime_blocks: 4,
        number_ios: Some(12),
        size: Some(1 << 20),
        ..Workload::default()
    };
    let events = scripted(workload, 2, 100);
    // Four requests, answered in two groups of two; then the rest.
    let group = [Event::HandedOver(4), Event::Waited(4), Event::Waited(2)];
    assert_eq!(events, group.repeat(3));
}

#[test]
fn the_sync_at_the_end_is_fsync() {
    let workload = Workload {
        rw: Rw::Write,
        end_fsync: true,
        number_ios: Some(2),
        size: Some(1 << 20),
        ..Workload::default()
    };
    let (_, ops) = scripted_run(workload, 0, 1, 100);
    assert_eq!(ops, [Op::Write, Op::Write, Op::Sync]);
}
