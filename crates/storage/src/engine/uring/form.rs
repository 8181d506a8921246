//! What the entries of a ring look like, and what its completions say.
//!
//! A [`Plain`] ring asks the kernel to read, write or sync a file. One of [`Commands`](super::commands::Commands) has larger
//! entries and hands commands on to a driver. All else of a ring is the same.

use std::fmt::Debug;
use std::io;

use base::IoEngine;

use crate::engine::{Op, write_features};
use crate::nvme::RANGE_BYTES;
use crate::uring_abi::{self as abi, Cqe, Sqe};

/// What is asked of one descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// A read, a write or a sync.
    pub op: Op,
    /// Which of the device's descriptors.
    pub member: u32,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u32,
}

/// A request on its way into an entry.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// By what its completion is told.
    pub id: u32,
    /// What it does.
    pub asked: Asked,
    /// The descriptor, or its number among the registered ones.
    pub fd: i32,
    /// Whether the descriptor is a registered one.
    pub is_registered: bool,
    /// Where its data are.
    pub address: u64,
    /// The registered buffer that they lie in, where there is one.
    pub buffer: Option<u16>,
    /// Its I/O priority, as the kernel has it (`ioprio`).
    pub priority: u16,
}

impl Request {
    pub(super) fn flags(&self) -> u8 {
        if self.is_registered { abi::SQE_FIXED_FILE } else { 0 }
    }
}

/// See the module's argument.
pub trait Form: Debug + 'static {
    /// The engine's name.
    const NAME: &'static str;
    /// The flags of io_uring_setup(2) that its entries need.
    const SETUP: u32;
    /// The most bytes of slots that are registered as one buffer; a larger slot is one by itself.
    const REGISTERED_BYTES: usize = super::register::MAX_REGISTERED;
    /// The most discards that are ranges of one command; 1 where none is.
    const RANGES: u32 = 1;
    /// What io_uring_enter(2) reads.
    type Sqe: Copy + Debug;
    /// What it writes.
    type Cqe: Copy + Debug;

    /// Words for the record, beside those for the ring.
    fn features(&self) -> Vec<String> {
        Vec::new()
    }

    /// The result of a request that is not to be made: bytes, or `-errno`.
    fn settled(&self, _asked: &Asked) -> Option<i64> {
        None
    }

    /// The entry of one command that gives up so many ranges, which are its data; None where there is no such command.
    fn ranges(&self, _request: &Request, _count: u32) -> Option<Self::Sqe> {
        None
    }

    /// A range of such a command.
    fn range(&self, _asked: &Asked) -> [u8; RANGE_BYTES] {
        [0; RANGE_BYTES]
    }

    /// The entry that makes a request; never called for a discard.
    fn entry(&self, request: &Request) -> Self::Sqe;

    /// Whether blocks have metadata that [`seal`](Self::seal) makes and [`check`](Self::check) checks.
    #[inline(always)]
    fn is_protected(&self) -> bool {
        false
    }

    /// Makes what does not come from the caller of the metadata of what a slot is about to write to an offset.
    fn seal(&mut self, _slot: u32, _offset: u64, _data: &mut [u8]) {}

    /// Checks that of what a slot has read from an offset.
    fn check(&self, _slot: u32, _offset: u64, _data: &[u8]) -> Option<io::Error> {
        None
    }

    /// Gives up for ever what the kernel may still write to.
    fn leak(&mut self) {}

    /// The id of what has completed, and the kernel's result.
    fn completion(cqe: &Self::Cqe) -> (u32, i32);

    /// The error of a write that has succeeded and went elsewhere than it was asked to.
    #[inline(always)]
    fn misplaced(&self, _cqe: &Self::Cqe, _asked: impl FnOnce() -> Asked) -> Option<io::Error> {
        None
    }

    /// What a result comes to, as bytes or `-errno`, and the error behind it where that says more.
    fn outcome(&self, result: i32, asked: impl FnOnce() -> Asked) -> (i64, Option<io::Error>);
}

/// Reads, writes and syncs of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain {
    /// Flags of writes, as pwritev2(2) takes them.
    pub write_flags: u32,
}

impl Form for Plain {
    const NAME: &'static str = IoEngine::IoUring.word();
    const SETUP: u32 = 0;
    type Sqe = Sqe;
    type Cqe = Cqe;

    fn features(&self) -> Vec<String> {
        write_features(self.write_flags).collect()
    }

    #[inline(always)]
    fn entry(&self, request: &Request) -> Sqe {
        let Asked { op, offset, length, .. } = request.asked;
        let (opcode, op_flags) = match (op, request.buffer.is_some()) {
            (Op::Read, true) => (abi::OP_READ_FIXED, 0),
            (Op::Read, false) => (abi::OP_READ, 0),
            // The kernel takes no atomic write from a registered buffer (generic_atomic_write_valid).
            (Op::Write, true) if self.write_flags == 0 => (abi::OP_WRITE_FIXED, 0),
            (Op::Write, _) => (abi::OP_WRITE, self.write_flags),
            (Op::SyncData, _) => (abi::OP_FSYNC, abi::FSYNC_DATASYNC),
            (Op::Sync | Op::Trim, _) => (abi::OP_FSYNC, 0),
        };
        let transfers = matches!(op, Op::Read | Op::Write);
        Sqe {
            opcode,
            flags: request.flags(),
            ioprio: if transfers { request.priority } else { 0 },
            fd: request.fd,
            off: if transfers { offset } else { 0 },
            addr: if transfers { request.address } else { 0 },
            len: if transfers { length } else { 0 },
            op_flags,
            user_data: u64::from(request.id),
            buf_index: match opcode {
                abi::OP_READ_FIXED | abi::OP_WRITE_FIXED => request.buffer.unwrap_or(0),
                _ => 0,
            },
            personality: 0,
            file_index: 0,
            addr3: 0,
            reserved: 0,
        }
    }

    #[inline(always)]
    fn completion(cqe: &Cqe) -> (u32, i32) {
        (cqe.user_data as u32, cqe.res)
    }

    #[inline(always)]
    fn outcome(&self, result: i32, _asked: impl FnOnce() -> Asked) -> (i64, Option<io::Error>) {
        (i64::from(result), None)
    }
}
