//! The queue: every member's lane full, and what fails told by member.

mod rig;

use rig::{KIB, MIB, pattern};
use storage::device::{DeviceSpec, OpenOptions};
use storage::engine::{IoEngine, Op, RequestError};
use storage::fault::{Call, Effect, Fault, Faulty};
use volume::{Queue, QueueError, QueueOptions, Volume};

const CHUNK: u64 = 16 * KIB;

fn volume(members: usize) -> Volume {
    let spec = format!("stripe(chunk={CHUNK}):{}", vec!["mem:1m"; members].join(","));
    Volume::open(&DeviceSpec::parse(&spec).unwrap(), &OpenOptions::writing()).expect("memory")
}

fn options(depth: u32, engine: IoEngine) -> QueueOptions {
    QueueOptions { depth, engine, ..QueueOptions::default() }
}

const ENGINES: [IoEngine; 4] = [IoEngine::Auto, IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync];

#[test]
fn requests_of_any_length_at_any_place_come_back_whole_on_every_engine() {
    let volume = volume(3);
    let contents = pattern(5, volume.size() as usize);
    for engine in ENGINES {
        for depth in [1, 4] {
            let mut queue = volume.queue(&options(depth, engine)).expect("an engine");
            volume.write_at(&vec![0; contents.len()], 0).unwrap();
            // Of growing lengths, from one byte to many rows, one behind the other.
            let (mut at, mut length, mut asked) = (0, 1, 0);
            while at < contents.len() {
                let end = (at + length).min(contents.len());
                queue.write(at as u64, contents[at..end].to_vec()).unwrap();
                (at, length, asked) = (end, length * 3 + 1, asked + 1);
            }
            assert_eq!(queue.under_way(), asked);
            while let Some(done) = queue.wait().unwrap() {
                done.result.unwrap();
                asked -= 1;
            }
            assert_eq!(asked, 0);
            queue.sync();
            assert_eq!(queue.wait().unwrap().unwrap().op, Op::SyncData);
            let all = queue.read(0, vec![0; contents.len()]).unwrap();
            let done = queue.wait().unwrap().unwrap();
            assert_eq!((done.ticket, queue.under_way()), (all, 0));
            assert!(done.buffer == contents, "{engine:?} at depth {depth}");
            assert!(queue.wait().unwrap().is_none(), "nothing is under way");
        }
    }
}

#[test]
fn an_empty_request_is_done_at_once_and_one_beyond_the_end_is_not_taken() {
    let volume = volume(2);
    let mut queue = volume.queue(&QueueOptions::default()).unwrap();
    queue.read(volume.size(), Vec::new()).unwrap();
    assert!(queue.poll().unwrap().unwrap().result.is_ok());
    for (offset, length) in [(volume.size(), 1), (u64::MAX, 2), (volume.size() - 1, 2)] {
        let error = queue.write(offset, vec![0; length]).unwrap_err();
        assert!(matches!(error, QueueError::Beyond { .. }), "{error}");
    }
    assert_eq!(queue.under_way(), 0);
}

/// One piece of a row fails, or several: the others are read, and each failure names the member and the place.
#[test]
fn a_part_that_fails_is_told_with_its_member_and_the_others_are_there() {
    let volume = volume(4);
    let contents = pattern(6, volume.size() as usize);
    volume.write_at(&contents, 0).unwrap();
    for times in [1, 3] {
        let fault = Fault { call: Call::Completion, after: 5, times, effect: Effect::Errno(libc::EIO) };
        let kernel = Faulty::new([fault]);
        let mut queue = Queue::with_kernel(&kernel, &volume, &options(8, IoEngine::IoUring)).unwrap();
        let row = 4 * CHUNK as usize;
        for number in 0..4 {
            queue.read((number * row) as u64, vec![0; row]).unwrap();
        }
        let mut failed = 0;
        while let Some(done) = queue.wait().unwrap() {
            let mut bad = vec![false; row / CHUNK as usize];
            for failure in done.result.err().map(|failures| failures.0).unwrap_or_default() {
                let member = failure.member.as_ref().expect("a member is at fault");
                let (_, place) = rig::raid0(CHUNK, 4, failure.offset);
                assert_eq!(
                    (member.device.as_str(), member.offset, u64::from(member.length)),
                    ("mem:1m", place, CHUNK)
                );
                let RequestError::Os(cause) = &failure.cause else { panic!("{failure:?}") };
                assert_eq!(cause.raw_os_error(), Some(libc::EIO));
                bad[(failure.offset - done.offset) as usize / CHUNK as usize] = true;
                failed += 1;
            }
            for (number, found) in done.buffer.chunks(CHUNK as usize).enumerate() {
                let at = done.offset as usize + number * CHUNK as usize;
                assert!(bad[number] || *found == contents[at..at + found.len()], "chunk {number}");
            }
        }
        assert_eq!(failed, times);
    }
}

#[test]
fn what_is_under_way_when_a_queue_is_dropped_ends_with_it() {
    let volume = volume(2);
    let mut queue = volume.queue(&options(2, IoEngine::IoUring)).unwrap();
    for number in 0..20 {
        queue.write(number * CHUNK, vec![1; CHUNK as usize]).unwrap();
    }
    queue.poll().unwrap();
    drop(queue);
    volume.write_at(&[0; 10], 0).expect("the volume is good for more");
}

#[test]
fn direct_requests_are_in_whole_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("stripe(chunk=16k):{}", rig::files(folder.path(), 2, MIB));
    let Some(device) = rig::written(&spec, true) else { return };
    drop(device);
    let volume = Volume::open(&DeviceSpec::parse(&spec).unwrap(), &OpenOptions::writing()).unwrap();
    let mut queue = volume.queue(&QueueOptions::default()).unwrap();
    let block = u64::from(volume.block());
    assert!(block > 1);
    let error = queue.write(1, vec![0; block as usize]).unwrap_err();
    assert!(matches!(error, QueueError::Misaligned { .. }), "{error}");
    // The buffer lies where the allocator puts it.
    queue.write(block, vec![7; 3 * CHUNK as usize]).unwrap();
    queue.wait().unwrap().unwrap().result.unwrap();
    let mut found = [0; 3];
    volume.read_at(&mut found, block + CHUNK - 1).unwrap();
    assert_eq!(found, [7; 3]);
}
