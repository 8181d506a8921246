//! A device that says wrongly where its bytes lie: no engine makes a request of it that nobody asked for, and none
//! touches a byte beside the buffer.

mod rig;

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rig::{any_file, memory};
use storage::device::{Device, DeviceKind, Geometry, Piece, Spread};
use storage::engine::{
    Engine, EngineConfig, IoUring, Libaio, MemoryCopy, Op, Psync, RequestError, RequestFailure,
};

const SIZE: u64 = 1 << 20;
const SLOT: u32 = 64 << 10;

/// Two members, and one of these in the place of where a request lies on them.
#[derive(Debug, Clone, Copy)]
enum Lie {
    /// None: all of it, on the first member.
    Truth,
    /// Longer than the request by so many bytes.
    Longer(u64),
    /// Nothing, which would go on for ever.
    Nothing,
    /// On a member that there is not.
    Member(u32),
    /// Beyond what an offset can say.
    Far,
    /// More pieces than were announced, of 512 bytes each.
    More,
    /// A run of a discard that is longer than the discard, or ends before it begins.
    Extent(u64),
}

#[derive(Debug)]
struct Liar {
    members: Vec<Arc<dyn Device>>,
    lie: Lie,
}

impl Spread for Liar {
    fn members(&self) -> &[Arc<dyn Device>] {
        &self.members
    }

    fn piece(&self, offset: u64, length: u64) -> Piece {
        let truth = Piece { member: 0, offset, length };
        match self.lie {
            Lie::Truth | Lie::Extent(_) => truth,
            Lie::Longer(by) => Piece { length: length.saturating_add(by), ..truth },
            Lie::Nothing => Piece { length: 0, ..truth },
            Lie::Member(member) => Piece { member, ..truth },
            Lie::Far => Piece { offset: u64::MAX - 100, ..truth },
            Lie::More => Piece { length: length.min(512), ..truth },
        }
    }

    fn most_pieces(&self, _: u64) -> u64 {
        1
    }

    fn extents(&self, range: Range<u64>) -> Vec<(u32, Range<u64>)> {
        match self.lie {
            Lie::Extent(end) => vec![(0, range.start..end)],
            Lie::Member(member) => vec![(member, range)],
            Lie::More => vec![(0, range.clone()), (1, range.clone()), (0, range)],
            _ => vec![(0, range)],
        }
    }
}

#[derive(Debug)]
struct Made {
    spread: Arc<dyn Spread>,
    /// Whether it can be written, and how often it was asked that.
    can_begin: bool,
    asked: AtomicU32,
    failed: AtomicU32,
}

impl Made {
    fn of(members: Vec<Arc<dyn Device>>, lie: Lie, can_begin: bool) -> Arc<Self> {
        let spread = Arc::new(Liar { members, lie });
        Arc::new(Self { spread, can_begin, asked: AtomicU32::new(0), failed: AtomicU32::new(0) })
    }
}

impl Device for Made {
    fn spec(&self) -> &str {
        "made"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Stripe
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn geometry(&self) -> Geometry {
        self.spread.members()[0].geometry()
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.spread.members()[0].fd()
    }

    fn spread(&self) -> Option<&Arc<dyn Spread>> {
        Some(&self.spread)
    }

    fn begin_writing(&self) -> io::Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        // An error that would have a request made again.
        if self.can_begin { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn writing_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn one<E: Engine>(engine: &mut E, op: Op) -> Result<(), RequestFailure> {
    engine.prepare(1, op, 4096, SLOT);
    let mut ending = None;
    while engine.in_flight() > 0 {
        engine.submit(1, None).expect("the engine goes on");
        engine.reap(|slot, ended| {
            assert_eq!(slot, 1);
            ending = Some(ended);
        });
    }
    ending.expect("it came back")
}

/// Reads, writes and discards once each, with the slots on either side full of bytes that nobody may touch.
fn try_all<E: Engine>(lie: Lie, mut engine: E) {
    for slot in 0..3 {
        engine.buffer_mut(slot).fill(slot as u8 + 1);
    }
    for op in [Op::Read, Op::Write, Op::Trim] {
        let ended = one(&mut engine, op);
        let is_of_extents = matches!(lie, Lie::Member(_) | Lie::More | Lie::Extent(_));
        let is_a_lie = match op {
            Op::Trim => is_of_extents,
            _ => !matches!(lie, Lie::Truth | Lie::Extent(_)),
        };
        match ended {
            Err(failure) if is_a_lie => {
                let RequestError::Os(cause) = &failure.cause else { panic!("{lie:?}: {failure:?}") };
                assert!(cause.to_string().contains("were said to begin with"), "{lie:?}: {cause}");
                assert!(failure.member.is_none(), "{failure:?}");
            }
            // Memory and some file systems have no discard.
            Err(_) if op == Op::Trim && !is_a_lie => {}
            ended => assert_eq!(ended.is_ok(), !is_a_lie, "{} with {lie:?} of {op:?}", engine.name()),
        }
        for slot in [0, 2] {
            assert!(engine.buffer(slot).iter().all(|byte| *byte == slot as u8 + 1), "{lie:?} beside {op:?}");
        }
    }
}

#[test]
fn what_a_spread_says_is_checked_before_it_becomes_a_request() {
    let lies = [
        Lie::Truth,
        Lie::Longer(1),
        Lie::Longer(u64::from(SLOT)),
        Lie::Longer(1 << 32),
        Lie::Longer(u64::MAX),
        Lie::Nothing,
        Lie::Member(2),
        Lie::Member(1 << 16),
        Lie::Member(u32::MAX),
        Lie::Far,
        Lie::More,
        Lie::Extent(0),
        Lie::Extent(4096),
        Lie::Extent(SIZE),
        Lie::Extent(u64::MAX),
    ];
    let config = EngineConfig { depth: 3, slot_bytes: SLOT as usize, ..EngineConfig::default() };
    for lie in lies {
        let made = |members| -> Arc<dyn Device> { Made::of(members, lie, true) };
        let files = || made(vec![any_file(SIZE), any_file(SIZE)]);
        try_all(lie, IoUring::new(files(), &config).expect("a ring"));
        try_all(lie, Libaio::new(files(), &config).expect("a context"));
        try_all(lie, Psync::new(files(), &config).expect("threads"));
        try_all(lie, MemoryCopy::new(made(vec![memory(SIZE), memory(SIZE)]), &config).expect("memory"));
    }
}

fn begin<E: Engine>(made: &Made, mut engine: E) {
    let ends = [
        one(&mut engine, Op::Read),
        one(&mut engine, Op::Write),
        one(&mut engine, Op::Read),
        one(&mut engine, Op::Write),
    ];
    let asked = (made.asked.load(Ordering::Relaxed), made.failed.load(Ordering::Relaxed));
    assert_eq!(ends.each_ref().map(Result::is_ok), [true, made.can_begin, true, made.can_begin], "{ends:?}");
    assert_eq!(asked, if made.can_begin { (1, 0) } else { (2, 2) }, "{}", engine.name());
    for failure in ends.into_iter().filter_map(Result::err) {
        let RequestError::Os(cause) = &failure.cause else { panic!("{failure:?}") };
        assert_eq!(cause.kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn engines_have_a_device_begun_once_before_they_write_past_it_and_do_not_write_where_it_cannot_be() {
    let config = EngineConfig { depth: 3, slot_bytes: SLOT as usize, ..EngineConfig::default() };
    for can_begin in [true, false] {
        let files = || Made::of(vec![any_file(SIZE), any_file(SIZE)], Lie::Truth, can_begin);
        let made = files();
        begin(&made, IoUring::new(made.clone(), &config).expect("a ring"));
        let made = files();
        begin(&made, Libaio::new(made.clone(), &config).expect("a context"));
        let made = files();
        begin(&made, Psync::new(made.clone(), &config).expect("threads"));
        let made = Made::of(vec![memory(SIZE), memory(SIZE)], Lie::Truth, can_begin);
        begin(&made, MemoryCopy::new(made.clone(), &config).expect("memory"));
    }
}
