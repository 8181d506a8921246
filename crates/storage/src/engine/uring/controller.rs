//! A controller behind the seam of the kernel: it carries out the commands of a ring on blocks in memory, and makes and checks
//! protection information as the NVM Command Set Specification has it, by code of its own.
//!
//! It stands before the real kernel's ring. What the engine has put in is carried out when it is handed over, and replaced by a
//! request that does nothing, so that each command has its completion; its status takes the place of that one's result.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::ring::Ring;
use crate::aio_abi::{IoEvent, Iocb};
use crate::device::{
    BlockMetadata, Device, DeviceKind, Geometry, Guard, MetadataTransfer, Namespace, ProtectionFormat,
};
use crate::kernel::{Kernel, Linux};
use crate::nvme::Command;
use crate::uring_abi::{Cqe32, Params, Sqe128};

const INVALID_PROTECTION: u16 = 0x181;
pub(super) const GUARD_CHECK: u16 = 0x282;
pub(super) const APPLICATION_CHECK: u16 = 0x283;
pub(super) const REFERENCE_CHECK: u16 = 0x284;

/// A drive, and the ring that its commands come from.
#[derive(Debug)]
struct Drive {
    metadata: BlockMetadata,
    /// Data and metadata of what was written.
    blocks: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    /// It overlooks what is wrong with tags.
    is_blind: bool,
    ring: Option<Ring<Sqe128, Cqe32>>,
    served: u32,
    statuses: VecDeque<u16>,
    /// What was answered to reads and writes, but for success.
    refusals: Vec<u16>,
}

/// See the module's argument.
#[derive(Debug, Clone)]
pub(super) struct Controller(Rc<RefCell<Drive>>);

fn crc_16(bytes: impl Iterator<Item = u8>) -> u16 {
    let step = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x8bb7 };
    bytes.fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(byte) << 8, step))
}

fn crc_64(bytes: impl Iterator<Item = u8>) -> u64 {
    let polynomial = 0xad93_d235_94c9_3659_u64.reverse_bits();
    let step = |crc: u64, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ polynomial };
    !bytes.fold(u64::MAX, |crc, byte| (0..8).fold(crc ^ u64::from(byte), step))
}

/// The tuple of a block: what its guard must be, then the application tag and the reference tag.
pub(super) fn tuple(format: ProtectionFormat, data: &[u8], metadata: &[u8], tags: (u16, u64)) -> Vec<u8> {
    let size = format.guard.tuple_bytes();
    let before = if format.is_first { &[][..] } else { &metadata[..metadata.len() - size] };
    let covered = data.iter().chain(before).copied();
    let mut tuple = match format.guard {
        Guard::Bits16 => crc_16(covered).to_be_bytes().to_vec(),
        Guard::Bits64 => crc_64(covered).to_be_bytes().to_vec(),
    };
    tuple.extend(tags.0.to_be_bytes());
    let reference = tags.1.to_be_bytes();
    tuple.extend(&reference[8 - (size - tuple.len())..]);
    tuple
}

pub(super) fn tuple_range(format: ProtectionFormat, metadata: &[u8]) -> std::ops::Range<usize> {
    let size = format.guard.tuple_bytes();
    if format.is_first { 0..size } else { metadata.len() - size..metadata.len() }
}

/// The status of a stored or arriving block that is checked as `command` says.
fn checked(format: ProtectionFormat, command: &Command, data: &[u8], metadata: &[u8], reference: u64) -> u16 {
    let found = &metadata[tuple_range(format, metadata)];
    let guard = found.len() - if found.len() == 8 { 6 } else { 8 };
    let application = u16::from_be_bytes([found[guard], found[guard + 1]]);
    let is_unchecked =
        application == 0xffff && (format.kind != 3 || found[guard + 2..].iter().all(|byte| *byte == 0xff));
    let expected = tuple(format, data, metadata, (command.cdw15 as u16, reference));
    let mask = (command.cdw15 >> 16) as u16;
    let flag = |bit: u32| command.cdw12 >> bit & 1 == 1 && !is_unchecked;
    match () {
        () if flag(28) && found[..guard] != expected[..guard] => GUARD_CHECK,
        () if flag(27) && (application ^ command.cdw15 as u16) & mask != 0 => APPLICATION_CHECK,
        () if flag(26) && found[guard + 2..] != expected[guard + 2..] => REFERENCE_CHECK,
        () => 0,
    }
}

impl Drive {
    /// Carries out a command whose data, and metadata that lie apart, are these.
    fn perform(&mut self, command: &Command, data: &mut [u8], separate: &mut [u8]) -> u16 {
        let of = self.metadata;
        let first = u64::from(command.cdw11) << 32 | u64::from(command.cdw10);
        let makes = command.cdw12 >> 29 & 1 == 1;
        let (data_bytes, bytes) = (of.data_bytes as usize, of.bytes as usize);
        let (is_write, count) = (command.opcode == 1, u64::from(command.cdw12 & 0xffff) + 1);
        assert_eq!(data.len() as u64, count * u64::from(of.block_bytes()), "as many blocks as are asked for");
        assert_eq!(separate.len(), of.separate_bytes(count as usize));
        let initial = u64::from(command.cdw3) << 32 | u64::from(command.cdw14);
        let mask = if of.protection.is_some_and(|format| format.guard == Guard::Bits64) { 48 } else { 32 };
        let checks_reference = command.cdw12 >> 26 & 1 == 1;
        let is_invalid = |format: ProtectionFormat| {
            format.kind == 3 || (format.kind == 1 && initial != first & ((1 << mask) - 1))
        };
        if checks_reference && of.protection.is_some_and(is_invalid) {
            return INVALID_PROTECTION;
        }
        for at in 0..count as usize {
            let reference = (initial + at as u64) & ((1 << mask) - 1);
            let block = &mut data[at * of.block_bytes() as usize..][..of.block_bytes() as usize];
            let (data, inner) = block.split_at_mut(data_bytes);
            let metadata = match of.transfer {
                MetadataTransfer::None => &mut [][..],
                MetadataTransfer::Interleaved => inner,
                MetadataTransfer::Separate => &mut separate[at * bytes..][..bytes],
            };
            let number = first + at as u64;
            let status = match is_write {
                true => {
                    let mut stored = vec![0; bytes];
                    stored[..metadata.len()].copy_from_slice(metadata);
                    self.store(command, number, (data.to_vec(), stored), makes, reference)
                }
                false => {
                    // What was never written has no data, and tags that nobody checks.
                    let unwritten = || (vec![0; data_bytes], vec![0xff; bytes]);
                    let (stored, with) = self.blocks.get(&number).cloned().unwrap_or_else(unwritten);
                    data.copy_from_slice(&stored);
                    metadata.copy_from_slice(&with[..metadata.len()]);
                    let status =
                        of.protection.map(|format| checked(format, command, &stored, &with, reference));
                    status.unwrap_or(0)
                }
            };
            if status != 0 && !self.is_blind {
                return status;
            }
        }
        0
    }

    fn store(
        &mut self,
        command: &Command,
        number: u64,
        (data, mut metadata): (Vec<u8>, Vec<u8>),
        makes: bool,
        reference: u64,
    ) -> u16 {
        let status = match self.metadata.protection {
            Some(format) if makes => {
                let reference = if format.kind == 3 { 0 } else { reference };
                let made = tuple(format, &data, &metadata, (command.cdw15 as u16, reference));
                let range = tuple_range(format, &metadata);
                metadata[range].copy_from_slice(&made);
                0
            }
            Some(format) => checked(format, command, &data, &metadata, reference),
            None => 0,
        };
        if status == 0 {
            self.blocks.insert(number, (data, metadata));
        }
        status
    }

    /// # Safety
    /// The entry's command names memory of the engine's, which is the driver's until the command is over.
    unsafe fn serve(&mut self, entry: &Sqe128) -> Sqe128 {
        let command = entry.command;
        let bytes = |address: u64, length: u32| match length {
            0 => &mut [][..],
            // SAFETY: the caller promises that the memory is there, and that nothing else has it now.
            length => unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length as usize) },
        };
        let status = match command.opcode {
            0 => 0,
            1 | 2 => {
                let (data, separate) =
                    (bytes(command.addr, command.data_len), bytes(command.metadata, command.metadata_len));
                self.perform(&command, data, separate)
            }
            opcode => panic!("opcode {opcode} is none of a drive that has its blocks in memory"),
        };
        self.statuses.push_back(status);
        if status != 0 {
            self.refusals.push(status);
        }
        // IORING_OP_NOP, and all that would say more of it left out.
        let mut nothing = *entry;
        (nothing.opcode, nothing.flags, nothing.fd, nothing.command_op) = (0, 0, -1, 0);
        (nothing.command_flags, nothing.buf_index, nothing.command) = (0, 0, Command::default());
        nothing
    }
}

// SAFETY: what a driver would do with the commands' memory is done before the call returns; the rest is the kernel's.
unsafe impl Kernel for Controller {
    fn io_uring_setup(&self, entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
        let fd = Linux.io_uring_setup(entries, params)?;
        self.0.borrow_mut().ring = Some(Ring::map(fd.try_clone()?, params)?);
        Ok(fd)
    }

    unsafe fn io_uring_register(
        &self,
        ring: RawFd,
        opcode: u32,
        arg: *const libc::c_void,
        count: u32,
    ) -> io::Result<u32> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Linux.io_uring_register(ring, opcode, arg, count) }
    }

    unsafe fn io_uring_enter(
        &self,
        ring: RawFd,
        to_submit: u32,
        min_complete: u32,
        flags: u32,
        arg: *const libc::c_void,
        arg_bytes: usize,
    ) -> io::Result<u32> {
        let mut drive = self.0.borrow_mut();
        let mut entries = drive.ring.take().expect("was set up");
        while drive.served != entries.published() {
            let at = drive.served;
            // SAFETY: the caller promises that all entries describe memory that is valid until their completions.
            let nothing = unsafe { drive.serve(&entries.read_sqe(at)) };
            entries.write_sqe(at, nothing);
            drive.served = at.wrapping_add(1);
        }
        drive.ring = Some(entries);
        // SAFETY: the caller's promise, passed on; the entries that are left name no memory.
        unsafe { Linux.io_uring_enter(ring, to_submit, min_complete, flags, arg, arg_bytes) }
    }

    fn completed(&self, result: i64) -> i64 {
        match self.0.borrow_mut().statuses.pop_front().expect("each command has a status") {
            0 => result,
            _ => -i64::from(libc::EIO),
        }
    }

    fn io_setup(&self, events: u32) -> io::Result<u64> {
        Linux.io_setup(events)
    }

    fn io_destroy(&self, context: u64) -> io::Result<()> {
        Linux.io_destroy(context)
    }

    unsafe fn io_submit(&self, context: u64, count: usize, list: *mut *mut Iocb) -> io::Result<usize> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Linux.io_submit(context, count, list) }
    }

    unsafe fn io_getevents(
        &self,
        context: u64,
        min: usize,
        max: usize,
        events: *mut IoEvent,
        timeout: *mut libc::timespec,
    ) -> io::Result<usize> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Linux.io_getevents(context, min, max, events, timeout) }
    }

    unsafe fn pread(&self, fd: RawFd, buffer: *mut u8, length: usize, offset: u64) -> io::Result<usize> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Linux.pread(fd, buffer, length, offset) }
    }

    unsafe fn pwrite(&self, fd: RawFd, buffer: *const u8, length: usize, offset: u64) -> io::Result<usize> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Linux.pwrite(fd, buffer, length, offset) }
    }

    fn fdatasync(&self, fd: RawFd) -> io::Result<()> {
        Linux.fdatasync(fd)
    }

    fn fsync(&self, fd: RawFd) -> io::Result<()> {
        Linux.fsync(fd)
    }
}

/// The node of the drive: an empty file, which takes no commands itself.
#[derive(Debug)]
struct Node {
    file: File,
    namespace: Namespace,
    blocks: u64,
}

impl Device for Node {
    fn spec(&self) -> &str {
        "node"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.blocks * u64::from(self.namespace.block_bytes)
    }

    fn geometry(&self) -> Geometry {
        let block = self.namespace.block_bytes;
        Geometry { logical_block: block, physical_block: block, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
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

impl Drive {
    /// A drive that was never written.
    fn new(metadata: BlockMetadata) -> Self {
        Self {
            metadata,
            blocks: BTreeMap::new(),
            is_blind: false,
            ring: None,
            served: 0,
            statuses: VecDeque::new(),
            refusals: Vec::new(),
        }
    }
}

impl Controller {
    /// Of a new drive.
    pub fn new(metadata: BlockMetadata) -> Self {
        Self(Rc::new(RefCell::new(Drive::new(metadata))))
    }

    /// Of another drive with the same blocks, for another ring; it overlooks what is wrong with tags if this one does.
    pub fn copy(&self) -> Self {
        let drive = self.0.borrow();
        let (blocks, is_blind) = (drive.blocks.clone(), drive.is_blind);
        Self(Rc::new(RefCell::new(Drive { blocks, is_blind, ..Drive::new(drive.metadata) })))
    }

    /// Data and metadata of all that was written.
    pub fn blocks(&self) -> BTreeMap<u64, (Vec<u8>, Vec<u8>)> {
        self.0.borrow().blocks.clone()
    }

    /// Turns a bit of a block's metadata.
    pub fn spoil(&self, block: u64, at: usize) {
        self.0.borrow_mut().blocks.get_mut(&block).expect("was written").1[at] ^= 0x20;
    }

    /// From now on it overlooks what is wrong with tags, or does not.
    pub fn overlook(&self, is_blind: bool) {
        self.0.borrow_mut().is_blind = is_blind;
    }

    /// What was answered to reads and writes, but for success.
    pub fn refusals(&self) -> Vec<u16> {
        self.0.borrow().refusals.clone()
    }
}

/// The node of a drive of 64 blocks.
pub(super) fn node(metadata: Option<BlockMetadata>) -> Arc<dyn Device> {
    let block_bytes = metadata.map_or(512, |metadata| metadata.block_bytes());
    let namespace = Namespace { nsid: 1, block_bytes, metadata, most_bytes: 64 << 10, twin: None };
    Arc::new(Node { file: tempfile::tempfile().expect("a file"), namespace, blocks: 64 })
}
