//! Order, merging and waiting, without a machine.

use super::super::command::NONE;
use super::*;

const KIB: u64 = 1 << 10;

fn scheduler(text: &str) -> Scheduler {
    toml::from_str(text).expect("can be")
}

/// A queue with what was put into it.
struct Case {
    queue: Queue,
    commands: Commands,
}

impl Case {
    fn new(text: &str) -> Self {
        Self { queue: Queue::new(Some(&scheduler(text))), commands: Commands::default() }
    }

    /// A process asks for 4 KiB at so many KiB; false if that was merged with what waits.
    fn ask(&mut self, now: Time, owner: u32, operation: Operation, at_kib: u64) -> bool {
        let id = self.commands.make(operation, 0, at_kib * KIB, 4096, NONE);
        self.commands.get_mut(id).owner = owner;
        self.queue.add(now, id, &mut self.commands, 64 << 10)
    }

    fn read(&mut self, owner: u32, at_kib: u64) -> bool {
        self.ask(0, owner, Operation::Read, at_kib)
    }

    /// The next command's owner, KiB where it begins, and its length in KiB. It stays in the device.
    fn next(&mut self, now: Time) -> Option<(u32, u64, u32)> {
        let command = self.commands.get(self.queue.next(now, &self.commands)?);
        Some((command.owner, command.offset / KIB, command.bytes >> 10))
    }

    /// A read of a process at so many KiB leaves the device.
    fn finish(&mut self, now: Time, owner: u32, at_kib: u64) {
        let id = self.commands.make(Operation::Read, 0, at_kib * KIB, 4096, NONE);
        self.commands.get_mut(id).owner = owner;
        let command = *self.commands.get(id);
        self.queue.finish(now, &command);
    }

    /// Places in the order in which they are served, each leaving the device at once.
    fn places(&mut self) -> Vec<u64> {
        let mut places = Vec::new();
        while let Some((owner, at, _)) = self.next(0) {
            places.push(at);
            self.finish(0, owner, at);
        }
        places
    }
}

#[test]
fn the_order_is_that_of_arrival_or_of_addresses() {
    for (policy, expected) in [
        ("noop", [40, 8, 80, 16]),
        ("elevator", [8, 16, 40, 80]),
        ("deadline", [8, 16, 40, 80]),
        ("anticipatory", [8, 16, 40, 80]),
        ("cfq", [8, 16, 40, 80]),
    ] {
        let mut case = Case::new(&format!("policy = \"{policy}\""));
        for at in [40, 8, 80, 16] {
            case.read(1, at);
        }
        assert_eq!(case.places(), expected, "{policy}");
    }
}

#[test]
fn neighbours_are_merged_behind_and_in_front_and_by_cfq_within_a_process() {
    for (policy, other_owner) in [("deadline", 2), ("cfq", 1)] {
        let mut case = Case::new(&format!("policy = \"{policy}\""));
        assert!(case.read(1, 100) && case.read(1, 200));
        assert!(!case.read(other_owner, 104), "{policy}: behind one that did not come last");
        assert!(!case.read(other_owner, 96), "{policy}: in front of two");
        assert!(!case.read(other_owner, 108), "{policy}: behind all three");
        assert_eq!(case.queue.len(), 2);
        assert_eq!(case.next(0).map(|(_, at, kib)| (at, kib)), Some((96, 16)), "{policy}");
    }
    let mut fair = Case::new("policy = \"cfq\"");
    assert!(fair.read(1, 100) && fair.read(2, 104), "of two processes");
    let mut deadline = Case::new("policy = \"deadline\"");
    assert!(deadline.read(1, 100) && deadline.ask(0, 1, Operation::Write, 104), "of two directions");
    let mut single = Case::new("policy = \"noop\"");
    assert!(single.read(1, 100) && !single.read(2, 104) && single.read(1, 96), "behind the last one only");
}

#[test]
fn all_that_was_merged_ends_once() {
    let mut case = Case::new("policy = \"deadline\"");
    for at in [100, 108, 104, 96, 112] {
        case.read(1, at);
    }
    let mut next = case.queue.next(0, &case.commands).expect("waits");
    assert_eq!(case.commands.get(next).bytes, 12 << 10, "104 follows 100, and 108 waits already");
    let mut places = Vec::new();
    while next != NONE {
        places.push(case.commands.get(next).offset / KIB);
        next = case.commands.get(next).next;
    }
    assert_eq!(places, [96, 100, 104]);
}

#[test]
fn a_request_whose_time_is_over_begins_the_next_batch() {
    let mut case = Case::new("policy = \"deadline\"\nbatch = 2\nread_expire_us = 10");
    case.ask(0, 1, Operation::Read, 100);
    assert_eq!(case.next(0), Some((1, 100, 4)));
    case.ask(0, 1, Operation::Read, 8);
    for at in [200, 300, 400, 500] {
        case.ask(1_000, 1, Operation::Read, at);
    }
    // The second of its batch goes on upwards; of the next, nothing is late at 9 µs, and 8 KiB are at 10 µs.
    assert_eq!(case.next(9_000), Some((1, 200, 4)));
    assert_eq!(case.next(10_000), Some((1, 8, 4)));
    assert_eq!(case.next(10_000), Some((1, 300, 4)), "what is late begins a batch, no more");
}

#[test]
fn writes_wait_for_two_batches_of_reads() {
    let mut case = Case::new("policy = \"deadline\"\nbatch = 1");
    for at in [8, 16, 24, 32] {
        case.ask(0, 1, Operation::Read, 2 * at);
        case.ask(0, 1, Operation::Write, 1000 + 2 * at);
    }
    let order: Vec<bool> = (0..8).map(|_| case.next(0).expect("waits").1 < 1000).collect();
    assert_eq!(order, [true, true, false, true, true, false, false, false]);
}

#[test]
fn a_reader_is_waited_for_until_it_asks_or_its_time_is_over() {
    let mut case = Case::new("policy = \"anticipatory\"\nidle_us = 10");
    case.read(1, 100);
    assert_eq!(case.next(0), Some((1, 100, 4)));
    case.finish(1_000, 1, 100);
    case.ask(1_000, 2, Operation::Read, 500);
    assert_eq!((case.next(1_000), case.queue.idle_until()), (None, Some(11_000)));
    case.ask(2_000, 1, Operation::Read, 900);
    assert_eq!(case.next(2_000), Some((1, 900, 4)), "the reader's own");
    case.finish(3_000, 1, 900);
    assert_eq!((case.next(12_999), case.next(13_000)), (None, Some((2, 500, 4))));
    case.finish(14_000, 2, 500);
    case.ask(14_000, 3, Operation::Read, 504);
    assert_eq!(case.next(14_000), Some((3, 504, 4)), "what goes on where the last one ended");
    let mut without = Case::new("policy = \"anticipatory\"");
    without.read(1, 100);
    without.next(0);
    without.finish(1_000, 1, 100);
    without.ask(1_000, 2, Operation::Read, 500);
    assert_eq!(without.next(1_000), Some((2, 500, 4)));
}

#[test]
fn cfq_gives_a_process_with_one_request_its_turn_beside_one_with_many() {
    let fair = "policy = \"cfq\"\nslice_us = 100\nquantum = 4";
    for (policy, before) in [(fair, 4), ("policy = \"noop\"", 30)] {
        let mut case = Case::new(policy);
        for n in 0..30 {
            case.read(1, 8 * n);
        }
        case.read(2, 4000);
        // Served one after the other, 20 µs each, four in the device.
        let mut served = Vec::new();
        let (mut now, mut in_device) = (0, VecDeque::new());
        while served.len() < 31 {
            while in_device.len() < 4
                && let Some(next) = case.next(now)
            {
                in_device.push_back(next);
            }
            now += 20_000;
            let (owner, at, _) = in_device.pop_front().expect("something is in the device");
            case.finish(now, owner, at);
            served.push(owner);
        }
        let place = served.iter().position(|owner| *owner == 2).expect("is served");
        assert!((before..before + 8).contains(&place), "{policy}: {place}");
    }
}

#[test]
fn cfq_without_idling_fills_the_device_with_all_processes_and_with_it_serves_one() {
    let mut eager = Case::new("policy = \"cfq\"");
    let mut patient = Case::new("policy = \"cfq\"\nidle_us = 10");
    for case in [&mut eager, &mut patient] {
        for owner in 0..5 {
            case.read(owner, u64::from(owner) * 100);
        }
    }
    let owners = |case: &mut Case| -> Vec<u32> {
        std::iter::from_fn(|| case.next(0)).map(|(owner, ..)| owner).collect()
    };
    assert_eq!(owners(&mut eager), [0, 1, 2, 3, 4]);
    assert_eq!(owners(&mut patient), [0]);
    patient.finish(1_000, 0, 0);
    assert_eq!((patient.next(10_999), patient.queue.idle_until()), (None, Some(11_000)));
    assert_eq!(patient.next(11_000).map(|(owner, ..)| owner), Some(1));
    // Its next request within the time goes first.
    patient.finish(12_000, 1, 100);
    patient.ask(13_000, 1, Operation::Read, 700);
    assert_eq!(patient.next(13_000), Some((1, 700, 4)));
}
