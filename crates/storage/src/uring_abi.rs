//! The memory layout of io_uring(7), from the kernel's `include/uapi/linux/io_uring.h`.
//!
//! Only what the engine uses. Sizes are asserted, because a wrong one would be the kernel's to find.

use crate::nvme::Command;

/// `struct io_uring_sqe`: one request.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: i32,
    pub off: u64,
    pub addr: u64,
    pub len: u32,
    pub op_flags: u32,
    pub user_data: u64,
    pub buf_index: u16,
    pub personality: u16,
    pub file_index: u32,
    pub addr3: u64,
    pub reserved: u64,
}

/// `struct io_uring_sqe` of a ring with SETUP_SQE128: a command that the kernel hands on to the driver of the file.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sqe128 {
    pub opcode: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: i32,
    /// Which kind of command, a number of the driver's.
    pub command_op: u32,
    pub reserved1: u32,
    pub addr: u64,
    pub len: u32,
    pub command_flags: u32,
    pub user_data: u64,
    pub buf_index: u16,
    pub personality: u16,
    pub file_index: u32,
    pub command: Command,
    pub reserved2: u64,
}

/// `struct io_uring_cqe` of a ring with SETUP_CQE32.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Cqe32 {
    pub cqe: Cqe,
    /// What the driver has to say beside the result; then nothing.
    pub big: [u64; 2],
}

/// `struct io_uring_cqe`: one completion.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Cqe {
    pub user_data: u64,
    pub res: i32,
    pub flags: u32,
}

/// `struct io_sqring_offsets`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct SqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: u32,
    pub user_addr: u64,
}

/// `struct io_cqring_offsets`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct CqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub reserved: u32,
    pub user_addr: u64,
}

/// `struct io_uring_params`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Params {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub sq_off: SqOffsets,
    pub cq_off: CqOffsets,
}

/// `struct io_uring_rsrc_update`, for IORING_REGISTER_RING_FDS.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RsrcUpdate {
    pub offset: u32,
    pub reserved: u32,
    pub data: u64,
}

/// `struct io_uring_getevents_arg`, for IORING_ENTER_EXT_ARG.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GeteventsArg {
    pub sigmask: u64,
    pub sigmask_bytes: u32,
    pub min_wait_us: u32,
    pub timeout: u64,
}

/// `struct __kernel_timespec`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KernelTimespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

const _: () = assert!(size_of::<Sqe>() == 64);
const _: () = assert!(size_of::<Cqe>() == 16);
const _: () = assert!(size_of::<Sqe128>() == 128 && std::mem::offset_of!(Sqe128, command) == 48);
const _: () = assert!(std::mem::offset_of!(Sqe128, user_data) == std::mem::offset_of!(Sqe, user_data));
const _: () = assert!(std::mem::offset_of!(Sqe128, buf_index) == std::mem::offset_of!(Sqe, buf_index));
const _: () = assert!(size_of::<Cqe32>() == 32);
const _: () = assert!(size_of::<Params>() == 120);
const _: () = assert!(size_of::<RsrcUpdate>() == 16);
const _: () = assert!(size_of::<GeteventsArg>() == 24);
const _: () = assert!(size_of::<KernelTimespec>() == 16);

pub const OFF_SQ_RING: i64 = 0;
pub const OFF_CQ_RING: i64 = 0x800_0000;
pub const OFF_SQES: i64 = 0x1000_0000;

pub const SETUP_IOPOLL: u32 = 1 << 0;
pub const SETUP_SQPOLL: u32 = 1 << 1;
pub const SETUP_SQ_AFF: u32 = 1 << 2;
pub const SETUP_CQSIZE: u32 = 1 << 3;
pub const SETUP_SUBMIT_ALL: u32 = 1 << 7;
pub const SETUP_COOP_TASKRUN: u32 = 1 << 8;
pub const SETUP_SQE128: u32 = 1 << 10;
pub const SETUP_CQE32: u32 = 1 << 11;
pub const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
pub const SETUP_NO_SQARRAY: u32 = 1 << 16;

pub const FEAT_SINGLE_MMAP: u32 = 1 << 0;
pub const FEAT_EXT_ARG: u32 = 1 << 8;

pub const ENTER_GETEVENTS: u32 = 1 << 0;
pub const ENTER_SQ_WAKEUP: u32 = 1 << 1;
pub const ENTER_EXT_ARG: u32 = 1 << 3;
pub const ENTER_REGISTERED_RING: u32 = 1 << 4;

pub const SQ_NEED_WAKEUP: u32 = 1 << 0;

pub const SQE_FIXED_FILE: u8 = 1 << 0;

pub const OP_FSYNC: u8 = 3;
pub const OP_READ_FIXED: u8 = 4;
pub const OP_WRITE_FIXED: u8 = 5;
pub const OP_READ: u8 = 22;
pub const OP_WRITE: u8 = 23;
pub const OP_URING_CMD: u8 = 46;
pub const FSYNC_DATASYNC: u32 = 1;
/// The command's buffer is a registered one.
pub const URING_CMD_FIXED: u32 = 1 << 0;

pub const REGISTER_BUFFERS: u32 = 0;
pub const UNREGISTER_BUFFERS: u32 = 1;
pub const REGISTER_FILES: u32 = 2;
pub const UNREGISTER_FILES: u32 = 3;
pub const REGISTER_EVENTFD: u32 = 4;
pub const REGISTER_RING_FDS: u32 = 20;
pub const UNREGISTER_RING_FDS: u32 = 21;
