//! Why a run gave no record, whose fault that is, and what to do.

use std::time::Duration;

use measure::UnansweredRequest;
use measure::workload::{InvalidWorkload, IoEngine};
use storage::device::Device;
use storage::engine::{EngineError, Op, RequestError, RequestFailure};
use storage::remote::told_by;
use storage::usage::{IoPriority, MemoryPolicy};

use super::conduct::{TooSlow, memory_words};
use crate::verify::VerifyFailure;
use crate::zones::ZoneError;

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The workload contradicts itself.
    #[error(transparent)]
    Invalid(#[from] InvalidWorkload),
    /// The workload asks for more than there is.
    #[error("{device} has {size} bytes, but the workload needs {needed}")]
    TooSmall {
        /// Spec of the device.
        device: String,
        /// Its size, bytes.
        size: u64,
        /// What would be enough, bytes.
        needed: u64,
    },
    /// A request does not fit the device's blocks.
    #[error(
        "{option}={value} is not a multiple of the {block}-byte blocks that {device} takes with direct=1"
    )]
    Misaligned {
        /// The option at fault.
        option: &'static str,
        /// Its value, bytes.
        value: u64,
        /// The device's block, bytes.
        block: u32,
        /// Spec of the device.
        device: String,
    },
    /// A writing workload on a device that was opened for reading.
    #[error("{device} was opened for reading only")]
    ReadOnly {
        /// Spec of the device.
        device: String,
    },
    /// Jobs of a verifying workload that overwrite each other's blocks.
    #[error("verify with numjobs={numjobs} needs regions that do not overlap")]
    VerifyOverlap {
        /// The number of jobs.
        numjobs: u32,
    },
    /// A pass to the steady state whose regions are too small for the device.
    #[error(
        "spr_num_regions={regions}: a region of {device} has {region_bytes} bytes{}",
        if *cache_bytes > 0 { format!(", less than spr_cs={cache_bytes}") } else { String::new() }
    )]
    SmallRegions {
        /// Spec of the device.
        device: String,
        /// The number of regions.
        regions: u32,
        /// Bytes of each.
        region_bytes: u64,
        /// Bytes of the cache that a region has to exceed.
        cache_bytes: u64,
    },
    /// Writes that are to be atomic, where they cannot be.
    #[error("atomic=1: {device}: {why}")]
    NotAtomic {
        /// Spec of the device.
        device: String,
        /// What stands in the way.
        why: String,
    },
    /// CPUs that cannot be had.
    #[error("{option}={value}: this process may run on CPU {allowed} only")]
    Cpus {
        /// The option at fault.
        option: &'static str,
        /// Its value.
        value: String,
        /// The CPUs that the process may use.
        allowed: String,
    },
    /// NUMA nodes that are not there.
    #[error(
        "numa_cpu_nodes={value}: {}",
        if nodes.is_empty() { "this kernel names no NUMA nodes".to_owned() } else { format!("this machine has node {nodes} only") }
    )]
    Nodes {
        /// The nodes asked for.
        value: String,
        /// Those that there are.
        nodes: String,
    },
    /// A thread could not be bound to its CPUs.
    #[error("bind thread {thread} to its CPUs")]
    Bind {
        /// Which one, from 0.
        thread: u32,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A memory policy that the kernel refuses.
    #[error("numa_mem_policy={policy}")]
    MemoryPolicy {
        /// The policy.
        policy: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A priority that the kernel refuses.
    #[error("prioclass and prio ({priority})")]
    Priority {
        /// What was asked for.
        priority: IoPriority,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A request took longer than any may, and nothing was beside it.
    #[error("latency_target={}us: a request of job {thread} took longer with one in flight", .target.as_micros())]
    TooLate {
        /// Which thread, from 0.
        thread: u32,
        /// How long a request may take.
        target: std::time::Duration,
    },
    /// A thread was slower than it may be.
    #[error("{option}={wanted}: job {thread} came to {got} {} only", if *option == "rate_min" { "bytes/s" } else { "requests/s" })]
    TooSlow {
        /// `rate_min` or `rate_iops_min`.
        option: &'static str,
        /// Which thread, from 0.
        thread: u32,
        /// What was asked, a second.
        wanted: u64,
        /// What there was in the cycle, a second.
        got: u64,
    },
    /// Writes that are to be durable when they complete, where the target cannot be opened so.
    #[error("sync={sync}: {device} is {what}, which no flag of a descriptor makes durable")]
    NoWriteSync {
        /// The kind of durability.
        sync: &'static str,
        /// Spec of the device.
        device: String,
        /// `memory`, `an export of another host`.
        what: &'static str,
    },
    /// Requests cannot keep to zones.
    #[error(transparent)]
    Zones(#[from] ZoneError),
    /// The engine could not be set up or driven.
    #[error("the I/O engine failed")]
    Engine(#[from] EngineError),
    /// A request failed.
    #[error("a request failed")]
    Request(#[from] RequestFailure),
    /// The drive does not answer.
    #[error("{} has not answered a request for {}", .0.target, units::nanoseconds(.0.seconds * 1e9))]
    Unanswered(UnansweredRequest),
    /// A block does not hold what was written there.
    #[error("verification of {device} failed")]
    Verify {
        /// Spec of the device.
        device: String,
        /// What is wrong with which block.
        #[source]
        source: VerifyFailure,
    },
    /// Data could not be made durable.
    #[error("sync of {device}")]
    Flush {
        /// Spec of the device.
        device: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("start thread {thread}")]
    Thread {
        /// Which one, from 0.
        thread: u32,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl BenchError {
    /// The error of a device that has not answered for `waited`, by what it was asked for, where that is known.
    pub(super) fn unanswered(device: &dyn Device, waited: Duration, asked: Option<(Op, u64)>) -> Self {
        Self::Unanswered(UnansweredRequest {
            operation: asked.map(|(op, _)| op.word().to_owned()),
            target: device.spec().to_owned(),
            offset: asked.filter(|(op, _)| !op.is_sync()).map(|(_, offset)| offset),
            seconds: waited.as_secs_f64(),
        })
    }

    /// The error of a memory policy that was refused.
    pub(super) fn memory_policy(policy: &MemoryPolicy, source: std::io::Error) -> Self {
        Self::MemoryPolicy { policy: memory_words(policy), source }
    }

    /// The error of a thread that is slower than it may be.
    pub(super) fn too_slow(slow: TooSlow, thread: u32) -> Self {
        let TooSlow { option, wanted, got, .. } = slow;
        Self::TooSlow { option, thread, wanted, got }
    }

    /// Whether the request was wrong, so that nothing was tried.
    #[must_use]
    pub fn is_about_the_request(&self) -> bool {
        matches!(self, Self::Engine(error) if error.misfit().is_some())
            || matches!(self, Self::Zones(error) if error.is_about_the_request())
            || matches!(
                self,
                Self::Invalid(_)
                    | Self::TooSmall { .. }
                    | Self::Misaligned { .. }
                    | Self::ReadOnly { .. }
                    | Self::VerifyOverlap { .. }
                    | Self::NotAtomic { .. }
                    | Self::SmallRegions { .. }
                    | Self::Cpus { .. }
                    | Self::Nodes { .. }
                    | Self::MemoryPolicy { .. }
                    | Self::Priority { .. }
                    | Self::NoWriteSync { .. }
            )
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid(invalid) => Some(invalid.hint.to_owned()),
            Self::TooSmall { .. } => {
                Some("lower --size, --offset or --numjobs, or use a larger target".into())
            }
            Self::Misaligned { block, .. } => Some(format!("use a multiple of {block}, or --direct=0")),
            Self::VerifyOverlap { .. } => Some("leave offset_increment out".into()),
            Self::SmallRegions { .. } => Some("lower spr_num_regions".into()),
            Self::NotAtomic { .. } => Some("leave atomic out; queue/atomic_write_unit_max_bytes of a drive in /sys/block says what it takes".into()),
            Self::Cpus { allowed, .. } => Some(format!(
                "name some of {allowed}; taskset(1), a cgroup or the machine's size set this limit"
            )),
            Self::Nodes { .. } => Some("leave it out, or name CPUs with --cpus_allowed".into()),
            Self::MemoryPolicy { .. } => {
                Some("name nodes of this machine that the process may use; a container may forbid it".into())
            }
            Self::Priority { .. } => {
                Some("the real-time class takes the right CAP_SYS_NICE; write prioclass=2".into())
            }
            Self::TooLate { .. } => Some("write a longer target, or latency_percentile=99.9".into()),
            Self::TooSlow { option, .. } => Some(format!("leave {option} out to see the figures")),
            Self::NoWriteSync { .. } => {
                Some("say --fsync=1 where the server keeps what it writes, or drop --sync".into())
            }
            Self::Zones(error) => Some(error.hint().to_owned()),
            Self::Engine(error) => engine_hint(error),
            Self::Request(failure) => request_hint(failure),
            Self::Unanswered(_) => Some(
                "see the kernel's log (dmesg) for the drive; --request_timeout allows for more time".into(),
            ),
            Self::ReadOnly { .. }
            | Self::Verify { .. }
            | Self::Flush { .. }
            | Self::Thread { .. }
            | Self::Bind { .. } => None,
        }
    }
}

fn engine_hint(error: &EngineError) -> Option<String> {
    if let Some(misfit) = error.misfit() {
        return Some(misfit.hint());
    }
    if let Some(remote) = told_by(&error.source) {
        return remote.hint();
    }
    if error.operation == "map buffers" && error.source.kind() == std::io::ErrorKind::Unsupported {
        return Some(
            "write madvise to /sys/kernel/mm/transparent_hugepage/enabled, or drop --pages=thp".into(),
        );
    }
    match (IoEngine::from_word(error.engine), error.source.kind()) {
        (Some(IoEngine::IoUring), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::Unsupported) => Some(
            "io_uring is switched off here (kernel.io_uring_disabled, or a seccomp filter); try --ioengine=auto"
                .into(),
        ),
        (Some(IoEngine::IoUringCmd), std::io::ErrorKind::PermissionDenied) => Some(
            "run as root: before Linux 6.2 commands take CAP_SYS_ADMIN, and later a descriptor that may write".into(),
        ),
        (Some(IoEngine::Libaio), std::io::ErrorKind::WouldBlock) => Some("raise fs.aio-max-nr, or lower --iodepth".into()),
        (_, std::io::ErrorKind::OutOfMemory) => {
            Some("lower --iodepth, --bs or --numjobs; --pages=huge takes pages reserved in vm.nr_hugepages".into())
        }
        _ => None,
    }
}

fn request_hint(failure: &RequestFailure) -> Option<String> {
    let RequestError::Os(error) = &failure.cause else { return None };
    if let Some(remote) = told_by(error) {
        return remote.hint();
    }
    match error.kind() {
        std::io::ErrorKind::Unsupported => {
            Some("the device does not support this; hipri needs polled queues, trim needs discard".into())
        }
        std::io::ErrorKind::StorageFull => Some("free some space, or lower --size".into()),
        _ => None,
    }
}
