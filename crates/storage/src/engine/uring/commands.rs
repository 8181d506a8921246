//! NVMe commands in a ring's entries: reads, writes and flushes of namespaces by their character devices, past the block
//! layer (`IORING_OP_URING_CMD`, `NVME_URING_CMD_IO`; from Linux 6.1 with registered buffers and polling).
//!
//! What the block layer would have refused, nothing refuses here, so this does: what does not lie on block boundaries, what
//! lies beyond the end, and a write to a device that was opened for reading. The kernel's permission to send commands is a
//! matter of the caller's privileges, and not of how the descriptor is open.
//!
//! The result of a command is 0, `-errno` where the driver did not send it, or the status that the drive answered.

use std::io;
use std::sync::Arc;

use base::IoEngine;

use super::form::{Asked, Form, Request};
use super::protection::{Protected, check_alone};
use super::writes::{MakeCommand, WriteChoice};
use super::{EngineConfig, EngineError, IoUring};
use crate::device::{Device, Namespace};
use crate::engine::{IoFailure, Misfit, Op, RequestError};
use crate::kernel::{Kernel, Linux};
use crate::nvme::{
    Command, MOST_RANGES, RANGE_BYTES, URING_COMMAND, placement_identifiers, range, status_words,
};
use crate::uring_abi::{self as abi, Cqe32, Sqe128};

/// The word that users type.
const NAME: &str = IoEngine::IoUringCmd.word();

/// See the module's argument.
#[derive(Debug)]
pub struct Commands {
    /// By member.
    members: Box<[Member]>,
    /// Reads come from the medium, and not from the drive's cache.
    read_fua: bool,
    /// A write is on the medium when it completes.
    write_fua: bool,
    /// Which commands write, and to which places.
    writes: WriteChoice,
    /// How many discards share a command at most.
    ranges: u32,
    /// What is made of the blocks' metadata, where they have some. The device is one namespace then.
    protected: Option<Protected>,
}

#[derive(Debug)]
struct Member {
    nsid: u32,
    block_bytes: u32,
    size: u64,
    writable: bool,
    /// The placement identifiers that its writes have; empty where the drive decides.
    places: Box<[u16]>,
    /// How large its zones are, where writes are appended to them.
    appends_to: Option<u64>,
}

/// The engine `io_uring_cmd`: a ring whose entries are NVMe commands.
pub type IoUringCmd<K = Linux> = IoUring<K, Commands>;

impl Commands {
    /// For the members of a device, which are namespaces all.
    ///
    /// # Errors
    /// A [`Misfit`], where data are to be placed and a drive has no such place.
    fn of(members: &[Arc<dyn Device>], config: &EngineConfig) -> Result<Self, EngineError> {
        let mut protected = None;
        let mut member = |device: &Arc<dyn Device>| {
            protected = Protected::of(device, config).map_err(|wrong| wrong.of(NAME))?;
            let namespace = device.namespace().expect("checked before the slots were made");
            let Namespace { nsid, block_bytes, .. } = *namespace;
            let places = match &config.placement {
                Some(placement) => {
                    let all = placement_identifiers(device.fd(), nsid).map_err(|error| Misfit::NoPlacement {
                        device: device.spec().to_owned(),
                        why: error.to_string(),
                    });
                    all.and_then(|all| placement.identifiers(&**device, &all))
                        .map_err(|wrong| wrong.of(NAME))?
                }
                None => Box::default(),
            };
            let appends_to = match (config.appends, device.zones()) {
                (true, None) => return Err(Misfit::NoZones { device: device.spec().to_owned() }.of(NAME)),
                (true, Some(zones)) => Some(zones.facts().zone_bytes),
                (false, _) => None,
            };
            let (size, writable) = (device.size(), device.is_writable());
            Ok(Member { nsid, block_bytes, size, writable, places, appends_to })
        };
        Ok(Self {
            members: members.iter().map(&mut member).collect::<Result<_, EngineError>>()?,
            protected,
            read_fua: config.read_fua,
            write_fua: config.write_fua,
            writes: WriteChoice::new(config.write_commands, config.placement.as_ref()),
            ranges: config.ranges_per_trim,
        })
    }

    /// How much of a request lies on its member.
    fn inside(&self, asked: &Asked) -> u64 {
        let size = self.members[asked.member as usize].size;
        size.saturating_sub(asked.offset).min(u64::from(asked.length))
    }

    /// A read or write of a slot's, with what is to become of the blocks' metadata.
    #[inline]
    fn with_metadata(&self, command: Command, slot: u32, block: u64) -> Command {
        match &self.protected {
            Some(protected) => protected.on(command, slot, block),
            None => command,
        }
    }

    fn command(&self, request: &Request) -> Command {
        let asked = &request.asked;
        let member = &self.members[asked.member as usize];
        let Member { nsid, block_bytes, .. } = *member;
        let (block, length) = (asked.offset / u64::from(block_bytes), self.inside(asked) as u32);
        let transfer = |make: MakeCommand| match make(nsid, block, length, block_bytes) {
            command if command.data_len == 0 => command,
            command => self.with_metadata(command.with_data(request.address), request.id, block),
        };
        match asked.op {
            Op::Read => transfer(Command::read).with_fua(self.read_fua),
            Op::Write => {
                let command = match member.appends_to {
                    Some(zone) => {
                        let zone = (asked.offset - asked.offset % zone) / u64::from(block_bytes);
                        Command::zone_append(nsid, zone, length, block_bytes).with_data(request.address)
                    }
                    None => transfer(self.writes.next_write()),
                };
                let command = command.with_fua(self.write_fua && command.can_be_forced());
                match self.writes.next_place(&member.places).filter(|_| command.data_len > 0) {
                    Some(identifier) => command.with_placement(identifier),
                    None => command,
                }
            }
            Op::SyncData | Op::Sync | Op::Trim => Command::flush(nsid),
        }
    }
}

impl Form for Commands {
    const NAME: &'static str = NAME;
    const SETUP: u32 = abi::SETUP_SQE128 | abi::SETUP_CQE32;
    const RANGES: u32 = MOST_RANGES;
    // Before Linux 6.12 a command in a registered buffer counts as many pieces as the whole buffer has pages, and a drive takes
    // 127 at most (`blk_rq_map_user_bvec`, `NVME_MAX_SEGS`).
    const REGISTERED_BYTES: usize = 64 * 4096;
    type Sqe = Sqe128;
    type Cqe = Cqe32;

    fn features(&self) -> Vec<String> {
        let forced = [(self.read_fua, "readfua"), (self.write_fua, "writefua")];
        let forced = forced.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned());
        let words = std::iter::once("NVMe commands".to_owned()).chain(forced);
        let appends = self.members.iter().any(|member| member.appends_to.is_some());
        let appends = appends.then(|| "zone append".to_owned());
        let ranges = (self.ranges > 1).then(|| format!("{} ranges a command", self.ranges));
        let places = self.members.iter().map(|member| member.places.len()).max().filter(|count| *count > 0);
        let turns = if self.writes.places_are_drawn { "drawn" } else { "in turn" };
        let places = places.map(|count| format!("{count} placement identifiers {turns}"));
        let protected = self.protected.iter().flat_map(Protected::features);
        words
            .chain(self.writes.shares())
            .chain(appends)
            .chain(ranges)
            .chain(places)
            .chain(protected)
            .collect()
    }

    #[inline]
    fn settled(&self, asked: &Asked) -> Option<i64> {
        let Member { block_bytes, writable, .. } = self.members[asked.member as usize];
        if asked.op.is_sync() {
            return None;
        }
        let block = u64::from(block_bytes);
        if !asked.offset.is_multiple_of(block) || !u64::from(asked.length).is_multiple_of(block) {
            return Some(-i64::from(libc::EINVAL));
        }
        if matches!(asked.op, Op::Write | Op::Trim) && !writable {
            return Some(-i64::from(libc::EBADF));
        }
        match (asked.op, self.inside(asked)) {
            // As a whole, as by the block layer.
            (Op::Trim, inside) => (inside < u64::from(asked.length)).then_some(-i64::from(libc::EINVAL)),
            (_, 0) => Some(0),
            _ => None,
        }
    }

    fn ranges(&self, request: &Request, count: u32) -> Option<Sqe128> {
        let Member { nsid, .. } = self.members[request.asked.member as usize];
        let command = Command::deallocate(nsid, count).with_data(request.address);
        Some(entry(request, command))
    }

    fn range(&self, asked: &Asked) -> [u8; RANGE_BYTES] {
        let block = u64::from(self.members[asked.member as usize].block_bytes);
        range(asked.offset / block, (u64::from(asked.length) / block) as u32)
    }

    #[inline]
    fn entry(&self, request: &Request) -> Sqe128 {
        entry(request, self.command(request))
    }

    #[inline]
    fn is_protected(&self) -> bool {
        self.protected.is_some()
    }

    fn seal(&mut self, slot: u32, offset: u64, data: &mut [u8]) {
        if let Some(protected) = &mut self.protected {
            protected.seal(slot, offset, data);
        }
    }

    fn check(&self, slot: u32, offset: u64, data: &[u8]) -> Option<io::Error> {
        let wrong = self.protected.as_ref()?.check(slot, offset, data)?;
        Some(io::Error::new(io::ErrorKind::InvalidData, wrong))
    }

    fn leak(&mut self) {
        if let Some(protected) = &mut self.protected {
            protected.leak();
        }
    }

    #[inline]
    fn completion(cqe: &Cqe32) -> (u32, i32) {
        (cqe.cqe.user_data as u32, cqe.cqe.res)
    }

    #[inline]
    fn misplaced(&self, cqe: &Cqe32, asked: impl FnOnce() -> Asked) -> Option<io::Error> {
        if self.members.iter().all(|member| member.appends_to.is_none()) || cqe.cqe.res != 0 {
            return None;
        }
        let Asked { op, member, offset, .. } = asked();
        let first = offset / u64::from(self.members[member as usize].block_bytes);
        // The number of the block that an append was written from on (NVMe Zoned Namespace Command Set, Zone Append).
        let written = cqe.big[0];
        (op == Op::Write && written != first).then(|| {
            io::Error::other(format!("the drive appended it from block {written} on, and not from {first}"))
        })
    }

    #[inline]
    fn outcome(&self, result: i32, asked: impl FnOnce() -> Asked) -> (i64, Option<io::Error>) {
        match u16::try_from(result) {
            Ok(0) => {
                let asked = asked();
                let transfers = matches!(asked.op, Op::Read | Op::Write);
                (if transfers { self.inside(&asked) as i64 } else { 0 }, None)
            }
            Ok(status) => (-i64::from(libc::EIO), Some(IoFailure::error(status_words(status)))),
            Err(_) if result == -libc::EINVAL => {
                (i64::from(result), Some(io::Error::new(io::ErrorKind::InvalidInput, NOT_TAKEN)))
            }
            // No signal does this to a command: the driver cancels so what a reset or a time-out took back, and making it again,
            // a thousand times at half a minute, would look like a slow drive.
            Err(_) if result == -libc::EINTR => {
                let words = "the driver gave the command up (time-out or reset)";
                (-i64::from(libc::EIO), Some(IoFailure::error(words)))
            }
            Err(_) => (i64::from(result), None),
        }
    }
}

/// The entry that hands a command on.
#[inline]
fn entry(request: &Request, command: Command) -> Sqe128 {
    let buffer = request.buffer.filter(|_| command.data_len > 0);
    Sqe128 {
        opcode: abi::OP_URING_CMD,
        flags: request.flags(),
        ioprio: 0,
        fd: request.fd,
        command_op: URING_COMMAND,
        reserved1: 0,
        addr: 0,
        len: 0,
        command_flags: if buffer.is_some() { abi::URING_CMD_FIXED } else { 0 },
        user_data: u64::from(request.id),
        buf_index: buffer.unwrap_or(0),
        personality: 0,
        file_index: 0,
        command,
        reserved2: 0,
    }
}

impl IoUring<Linux, Commands> {
    /// Opens a ring of NVMe commands for a device that is a namespace, or made of namespaces.
    ///
    /// # Errors
    /// [`EngineError`], also where the kernel passes no such commands, which a first read tells.
    pub fn of_commands(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        Self::of_commands_with_kernel(Linux, device, config)
    }
}

impl<K: Kernel> IoUring<K, Commands> {
    /// The same through `kernel`.
    ///
    /// # Errors
    /// As [`IoUring::of_commands`].
    pub fn of_commands_with_kernel(
        kernel: K,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        check_alone(&device, config).map_err(|wrong| wrong.of(NAME))?;
        // The ranges of a command lie in a slot's buffer.
        let ranges = config.ranges_per_trim.clamp(1, MOST_RANGES);
        let slot_bytes = config.slot_bytes.max(ranges as usize * RANGE_BYTES);
        let config = EngineConfig { slot_bytes, ranges_per_trim: ranges, ..config.clone() };
        let form = |members: &[Arc<dyn Device>]| Commands::of(members, &config);
        let mut engine = Self::open(kernel, device, &config, form).map_err(|error| {
            // A kernel before 5.19 knows no such entries.
            let is_unknown = error.source.raw_os_error() == Some(libc::EINVAL);
            if error.operation == "io_uring_setup" && is_unknown { not_passed() } else { error }
        })?;
        engine.try_commands()?;
        Ok(engine)
    }

    /// Reads a block, so that a kernel or driver that passes no commands says so now and not at every request.
    fn try_commands(&mut self) -> Result<(), EngineError> {
        let mut failure = self.first_read()?.map(|failure| failure.cause);
        if is_not_taken(failure.as_ref()) && self.slots_per_buffer > 0 {
            self.give_buffers_back();
            failure = self.first_read()?.map(|failure| failure.cause);
        }
        let not_taken = is_not_taken(failure.as_ref());
        let Some(RequestError::Os(error)) = failure else { return Ok(()) };
        match error.raw_os_error() {
            _ if not_taken => Err(not_passed()),
            Some(libc::EOPNOTSUPP | libc::ENOTTY) => Err(not_passed()),
            Some(libc::EACCES | libc::EPERM) => {
                Err(EngineError { engine: NAME, operation: "send a command", source: error })
            }
            // Whatever else is wrong is the first request's to report.
            _ => Ok(()),
        }
    }
}

/// Whether the driver did not take a command (EINVAL), whatever words stand for that.
fn is_not_taken(failure: Option<&RequestError>) -> bool {
    matches!(failure, Some(RequestError::Os(error)) if error.kind() == io::ErrorKind::InvalidInput)
}

/// What a driver that does not take a command may mean.
const NOT_TAKEN: &str = "the driver did not take the command: it is longer than queue/max_hw_sectors_kb, or its buffer lies \
                         in more pieces than queue/max_segments";

fn not_passed() -> EngineError {
    Misfit::NotPassed { engine: NAME }.of(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::uring::writes::WriteCommands;

    fn commands(writable: bool) -> Commands {
        let member = |nsid, block_bytes| Member {
            nsid,
            block_bytes,
            size: 1 << 20,
            writable,
            places: Box::default(),
            appends_to: None,
        };
        let members = Box::new([member(1, 512), member(7, 4096)]);
        let writes = WriteChoice::new(WriteCommands::default(), None);
        Commands { members, read_fua: false, write_fua: true, writes, ranges: 1, protected: None }
    }

    #[test]
    fn writes_are_placed_in_turn_or_drawn_and_reads_are_not() {
        let mut form = commands(true);
        form.members[0].places = [9, 0x8002].into();
        let place = |form: &Commands, op, member| {
            let asked = asked(op, member, 4096, 4096);
            let request =
                Request { id: 9, asked, fd: 3, is_registered: true, address: 64, buffer: None, priority: 0 };
            let command = form.entry(&request).command;
            (command.cdw12 >> 20 & 15, command.cdw13 >> 16)
        };
        let turns: Vec<_> = (0..3).map(|_| place(&form, Op::Write, 0)).collect();
        assert_eq!(turns, [(2, 9), (2, 0x8002), (2, 9)]);
        assert_eq!((place(&form, Op::Read, 0), place(&form, Op::Write, 1)), ((0, 0), (0, 0)));
        assert!(form.features().contains(&"2 placement identifiers in turn".to_owned()));
        form.writes.places_are_drawn = true;
        let drawn: Vec<_> = (0..1000).map(|_| place(&form, Op::Write, 0).1).collect();
        let first = drawn.iter().filter(|place| **place == 9).count();
        assert!(
            (400..600).contains(&first) && drawn.iter().all(|place| matches!(place, 9 | 0x8002)),
            "{first}"
        );
        form.writes.commands = WriteCommands { write: 0, zeroes: 100, ..WriteCommands::default() };
        assert_eq!(place(&form, Op::Write, 0), (0, 0), "only data are placed");
    }

    #[test]
    fn appends_name_their_zone_and_must_come_to_lie_where_they_were_asked_to() {
        let mut form = commands(true);
        form.members.iter_mut().for_each(|member| member.appends_to = Some(64 << 10));
        let write = asked(Op::Write, 1, (64 << 10) + 8192, 4096);
        let request = Request {
            id: 9,
            asked: write,
            fd: 3,
            is_registered: true,
            address: 64,
            buffer: None,
            priority: 0,
        };
        let command = form.entry(&request).command;
        assert_eq!((command.opcode, command.nsid, command.data_len, command.addr), (0x7d, 7, 4096, 64));
        // The zone's first block of 4096 bytes; one block, forced.
        assert_eq!((command.cdw10, command.cdw11, command.cdw12), (16, 0, 1 << 30));
        assert!(form.features().contains(&"zone append".to_owned()));
        let cqe = |res, written| Cqe32 { cqe: abi::Cqe { user_data: 9, res, flags: 0 }, big: [written, 0] };
        let read = Asked { op: Op::Read, ..write };
        assert!(form.misplaced(&cqe(0, 18), || write).is_none());
        assert!(form.misplaced(&cqe(0, 19), || read).is_none());
        assert!(form.misplaced(&cqe(-5, 0), || write).is_none(), "its error is told");
        let error = form.misplaced(&cqe(0, 19), || write).expect("went elsewhere").to_string();
        assert_eq!(error, "the drive appended it from block 19 on, and not from 18");
        assert!(commands(true).misplaced(&cqe(0, 0), || write).is_none());
    }

    fn asked(op: Op, member: u32, offset: u64, length: u32) -> Asked {
        Asked { op, member, offset, length }
    }

    fn entry(asked: Asked, buffer: Option<u16>) -> Sqe128 {
        let request =
            Request { id: 9, asked, fd: 3, is_registered: true, address: 0x1234_5000, buffer, priority: 0 };
        commands(true).entry(&request)
    }

    #[test]
    fn writes_are_made_by_the_commands_asked_for_in_their_proportion() {
        let write_commands = WriteCommands { write: 40, zeroes: 30, uncorrectable: 20, verify: 10 };
        let form = Commands { writes: WriteChoice::new(write_commands, None), ..commands(true) };
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..10_000 {
            let asked = asked(Op::Write, 0, 512, 1024);
            let request = Request {
                id: 9,
                asked,
                fd: 3,
                is_registered: true,
                address: 64,
                buffer: Some(0),
                priority: 0,
            };
            let entry = form.entry(&request);
            let Command { opcode, addr, data_len, cdw10, cdw12, .. } = entry.command;
            let has_data = opcode == 1;
            assert_eq!(
                (addr, data_len, entry.command_flags),
                if has_data { (64, 1024, 1) } else { (0, 0, 0) }
            );
            // Forced is what can be.
            assert_eq!((cdw10, cdw12), (1, if opcode == 1 || opcode == 8 { 1 | 1 << 30 } else { 1 }));
            *counts.entry(opcode).or_insert(0) += 1;
        }
        for (opcode, share) in [(1, 4000_i32), (8, 3000), (4, 2000), (12, 1000)] {
            let count: i32 = counts[&opcode];
            assert!((count - share).abs() < 200, "{opcode}: {count} of {share}");
        }
        let words = form.features().join(", ");
        assert!(
            words.ends_with("write 40 %, write zeroes 30 %, write uncorrectable 20 %, verify 10 %"),
            "{words}"
        );
        assert_eq!(form.outcome(0, || asked(Op::Write, 0, 0, 512)).0, 512);
    }

    #[test]
    fn discards_are_ranges_of_blocks_within_the_namespace() {
        let form = commands(true);
        let first = asked(Op::Trim, 1, 8192, 16384);
        assert_eq!(form.settled(&first), None);
        assert_eq!(form.range(&first), range(2, 4));
        let request = Request {
            id: 9,
            asked: first,
            fd: 3,
            is_registered: true,
            address: 64,
            buffer: Some(2),
            priority: 0,
        };
        let entry = form.ranges(&request, 5).expect("there is such a command");
        assert_eq!(entry.command, Command::deallocate(7, 5).with_data(64));
        assert_eq!((entry.command_flags, entry.buf_index), (1, 2));
        assert_eq!(form.outcome(0, || first).0, 0);
        for (form, wrong, number) in [
            (commands(false), first, libc::EBADF),
            (commands(true), asked(Op::Trim, 1, 512, 4096), libc::EINVAL),
            (commands(true), asked(Op::Trim, 1, (1 << 20) - 4096, 8192), libc::EINVAL),
            (commands(true), asked(Op::Trim, 1, 1 << 20, 4096), libc::EINVAL),
        ] {
            assert_eq!(form.settled(&wrong), Some(-i64::from(number)), "{wrong:?}");
        }
    }

    #[test]
    fn requests_become_commands_of_their_member() {
        let read = entry(asked(Op::Read, 1, 8192, 16384), Some(2));
        assert_eq!((read.opcode, read.flags, read.fd, read.user_data), (46, 1, 3, 9));
        assert_eq!((read.command_flags, read.buf_index, read.command_op), (1, 2, URING_COMMAND));
        let command = read.command;
        assert_eq!(
            (command.opcode, command.nsid, command.addr, command.data_len),
            (2, 7, 0x1234_5000, 16384)
        );
        assert_eq!((command.cdw10, command.cdw11, command.cdw12), (2, 0, 3), "third block, four blocks");
        let write = entry(asked(Op::Write, 0, 512, 1024), None).command;
        assert_eq!((write.opcode, write.nsid, write.cdw10, write.cdw12), (1, 1, 1, 1 | 1 << 30));
        let flush = entry(asked(Op::Sync, 0, 0, 0), Some(0));
        assert_eq!((flush.command_flags, flush.command), (0, Command::flush(1)));
    }

    #[test]
    fn what_the_block_layer_would_refuse_is_not_sent() {
        let form = commands(true);
        let end = 1 << 20;
        for (request, result) in [
            (asked(Op::Read, 0, 0, 512), None),
            (asked(Op::Read, 1, 0, 512), Some(-libc::EINVAL)),
            (asked(Op::Read, 1, 512, 4096), Some(-libc::EINVAL)),
            (asked(Op::Write, 1, 4096, 4096), None),
            (asked(Op::Read, 0, end - 512, 1024), None),
            (asked(Op::Read, 0, end, 512), Some(0)),
            (asked(Op::Write, 0, u64::MAX - 511, 512), Some(0)),
            (asked(Op::SyncData, 0, 0, 0), None),
        ] {
            assert_eq!(form.settled(&request), result.map(i64::from), "{request:?}");
        }
        let write = asked(Op::Write, 0, 0, 512);
        assert_eq!(commands(false).settled(&write), Some(-i64::from(libc::EBADF)));
        assert_eq!(commands(false).settled(&asked(Op::Read, 0, 0, 512)), None);
    }

    #[test]
    fn what_lies_beyond_the_end_is_not_asked_for_and_not_counted() {
        let request = asked(Op::Read, 0, (1 << 20) - 512, 1024);
        let command = entry(request, None).command;
        assert_eq!((command.data_len, command.cdw12), (512, 0));
        assert_eq!(commands(true).outcome(0, || request).0, 512);
    }

    #[test]
    fn a_status_is_told_in_words_and_an_errno_stays_one() {
        let form = commands(true);
        let read = asked(Op::Read, 0, 0, 512);
        let (result, error) = form.outcome(0x4281, || read);
        assert_eq!(result, -i64::from(libc::EIO));
        assert!(error.expect("words").to_string().contains("Unrecovered Read Error"));
        let (result, error) = form.outcome(-libc::EAGAIN, || read);
        assert!(result == -i64::from(libc::EAGAIN) && error.is_none());
        // What the driver has cancelled is not made again as if a signal had come between.
        let (result, error) = form.outcome(-libc::EINTR, || read);
        assert!(
            result == -i64::from(libc::EIO)
                && error.expect("words").to_string().contains("gave the command up")
        );
        assert_eq!(form.outcome(0, || read).0, 512);
        assert_eq!(form.outcome(0, || asked(Op::Sync, 0, 0, 0)).0, 0);
    }
}
