//! The memory layout of Linux's native asynchronous I/O, from the kernel's `include/uapi/linux/aio_abi.h`.

/// `struct iocb`: one request.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Iocb {
    pub data: u64,
    /// `aio_key`, which stays 0, and `aio_rw_flags`. Their order depends on the byte order, so that the flags are the
    /// upper half of the number on every machine.
    pub key_and_rw_flags: u64,
    pub opcode: u16,
    pub priority: i16,
    pub fd: u32,
    pub buffer: u64,
    pub bytes: u64,
    pub offset: i64,
    pub reserved: u64,
    pub flags: u32,
    pub event_fd: u32,
}

/// `struct io_event`: one completion.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct IoEvent {
    pub data: u64,
    pub object: u64,
    pub result: i64,
    pub result_2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64);
const _: () = assert!(size_of::<IoEvent>() == 32);

pub const CMD_PREAD: u16 = 0;
pub const CMD_PWRITE: u16 = 1;
pub const CMD_FSYNC: u16 = 2;
pub const CMD_FDSYNC: u16 = 3;
/// Raise the eventfd in `event_fd` at the completion (`IOCB_FLAG_RESFD`).
pub const FLAG_RESFD: u32 = 1;
/// The request has a priority of its own, in `priority` (`IOCB_FLAG_IOPRIO`).
pub const FLAG_IOPRIO: u32 = 2;
