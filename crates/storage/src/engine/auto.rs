//! Which engine to use, and why not the first choice.
//!
//! `auto` tries io_uring, then libaio, then psync, by really opening each: what a container, a
//! seccomp filter or `kernel.io_uring_disabled` forbids shows only then. The reason for each step
//! down is kept for the record. A memory device is copied to and from directly, an export of another host is driven
//! over its connections, a namespace that takes NVMe commands by those, and a device that verifies what it reads, or whose
//! requests move no data, by plain calls, which nothing forbids.
//!
//! Two kinds of error end the search, because no other engine would mend them: a configuration that is
//! wrong, and memory for the buffers that cannot be had.

use std::io;
use std::sync::Arc;

use super::slots::{CONFIGURE, MAP_BUFFERS};
use super::{
    Engine, EngineConfig, EngineError, IoUring, IoUringCmd, Libaio, MemoryCopy, Mmap, Nbd, Posixaio, Psync,
};
use base::IoEngine;

use crate::device::{Device, is_called, leaves, targets};
use crate::kernel::{Kernel, Linux};
use crate::uring_abi::Params;

/// The engines, for callers that decide at run time and then dispatch once.
#[derive(Debug)]
pub enum AnyEngine<K: Kernel + Send + Sync = Linux> {
    /// io_uring(7).
    IoUring(IoUring<K>),
    /// NVMe commands in a ring.
    IoUringCmd(IoUringCmd<K>),
    /// Native asynchronous I/O.
    Libaio(Libaio<K>),
    /// The C library's asynchronous I/O.
    Posixaio(Posixaio<K>),
    /// Loads and stores.
    Mmap(Mmap<K>),
    /// Plain calls.
    Psync(Psync<K>),
    /// Copying.
    Memory(MemoryCopy),
    /// Connections to other hosts.
    Nbd(Nbd),
}

/// Evaluates an expression with the engine inside an [`AnyEngine`]: `on_engine!(engine, engine => run(engine))`. The
/// expression is compiled once for each engine.
#[macro_export]
macro_rules! on_engine {
    ($engine:expr, $name:pat => $value:expr) => {
        match $engine {
            $crate::engine::AnyEngine::IoUring($name) => $value,
            $crate::engine::AnyEngine::IoUringCmd($name) => $value,
            $crate::engine::AnyEngine::Posixaio($name) => $value,
            $crate::engine::AnyEngine::Mmap($name) => $value,
            $crate::engine::AnyEngine::Libaio($name) => $value,
            $crate::engine::AnyEngine::Psync($name) => $value,
            $crate::engine::AnyEngine::Memory($name) => $value,
            $crate::engine::AnyEngine::Nbd($name) => $value,
        }
    };
}

impl<K: Kernel + Send + Sync> AnyEngine<K> {
    /// The engine's name, as records hold it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        on_engine!(self, engine => engine.name())
    }
}

/// Why `auto` did not get its first choice, in words: `io_uring: … (kernel.io_uring_disabled=2)`.
pub type Fallback = Option<String>;

/// Opens the engine asked for.
///
/// # Errors
/// [`EngineError`] of the engine asked for; with `auto`, of a wrong configuration, of buffers that cannot
/// be had, or of psync where even that cannot be opened.
pub fn open(
    choice: IoEngine,
    device: &Arc<dyn Device>,
    config: &EngineConfig,
) -> Result<(AnyEngine, Fallback), EngineError> {
    open_with_kernel(&Linux, choice, device, config)
}

/// Opens the engine asked for through `kernel`.
///
/// # Errors
/// As [`open`].
pub fn open_with_kernel<K: Kernel + Send + Sync>(
    kernel: &K,
    choice: IoEngine,
    device: &Arc<dyn Device>,
    config: &EngineConfig,
) -> Result<(AnyEngine<K>, Fallback), EngineError> {
    let io_uring =
        || IoUring::with_kernel(kernel.clone(), Arc::clone(device), config).map(AnyEngine::IoUring);
    let libaio = || Libaio::with_kernel(kernel.clone(), Arc::clone(device), config).map(AnyEngine::Libaio);
    let psync = || Psync::with_kernel(kernel.clone(), Arc::clone(device), config).map(AnyEngine::Psync);
    let commands = || {
        IoUringCmd::of_commands_with_kernel(kernel.clone(), Arc::clone(device), config)
            .map(AnyEngine::IoUringCmd)
    };
    if config.atomic && !choice.has_request_flags() {
        let engines = IoEngine::words_with(IoEngine::has_request_flags);
        let message = format!("atomic writes are made by {engines}");
        let source = io::Error::new(io::ErrorKind::InvalidInput, message);
        return Err(EngineError { engine: choice.word(), operation: CONFIGURE, source });
    }
    match choice {
        IoEngine::IoUring => Ok((io_uring()?, None)),
        IoEngine::IoUringCmd => Ok((commands()?, None)),
        IoEngine::Libaio => Ok((libaio()?, None)),
        IoEngine::Posixaio => {
            let engine = Posixaio::with_kernel(kernel.clone(), Arc::clone(device), config)?;
            Ok((AnyEngine::Posixaio(engine), None))
        }
        IoEngine::Mmap => {
            let engine = Mmap::with_kernel(kernel.clone(), Arc::clone(device), config)?;
            Ok((AnyEngine::Mmap(engine), None))
        }
        IoEngine::Psync => Ok((psync()?, None)),
        IoEngine::Nbd => Ok((AnyEngine::Nbd(Nbd::new(Arc::clone(device), config)?), None)),
        IoEngine::Auto if targets(device).iter().any(|target| is_called(&**target)) => Ok((psync()?, None)),
        IoEngine::Auto if leaves(device).iter().all(|member| member.namespace().is_some()) => {
            Ok((commands()?, None))
        }
        IoEngine::Auto if leaves(device).iter().all(|member| member.memory().is_some()) => {
            Ok((AnyEngine::Memory(MemoryCopy::new(Arc::clone(device), config)?), None))
        }
        IoEngine::Auto if leaves(device).iter().any(|member| member.remote().is_some()) => {
            if leaves(device).iter().all(|member| member.remote().is_some() || member.memory().is_some()) {
                return Ok((AnyEngine::Nbd(Nbd::new(Arc::clone(device), config)?), None));
            }
            let why = "other hosts and local files or devices in one target are driven by plain calls";
            Ok((psync()?, Some(why.to_owned())))
        }
        IoEngine::Auto => {
            let mut refused = match io_uring() {
                Ok(engine) => return Ok((engine, None)),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => why_no_io_uring(&error, &disabled_level()),
            };
            match libaio() {
                Ok(engine) => return Ok((engine, Some(refused))),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => refused.push_str(&format!("; {}", why_no_libaio(&error))),
            }
            Ok((psync()?, Some(refused)))
        }
    }
}

/// Whether no other engine would fare better.
fn is_final(error: &EngineError) -> bool {
    matches!(error.operation, CONFIGURE | MAP_BUFFERS)
}

/// What `kernel.io_uring_disabled` is set to; empty on kernels without it (before 6.6).
fn disabled_level() -> String {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default().trim().to_owned()
}

/// The reason in the words of whoever can change it.
fn why_no_io_uring(error: &EngineError, disabled: &str) -> String {
    let reason = match (error.source.raw_os_error(), disabled) {
        (Some(libc::ENOSYS), _) => "this kernel has none, or a seccomp filter hides it".to_owned(),
        (Some(libc::EPERM | libc::EACCES), level @ ("1" | "2")) => {
            format!("kernel.io_uring_disabled={level}")
        }
        (Some(libc::EPERM | libc::EACCES), _) => "forbidden, probably by a seccomp filter".to_owned(),
        (Some(libc::ENOMEM), _) => "no lockable memory for the ring (RLIMIT_MEMLOCK, ulimit -l)".to_owned(),
        _ => format!("{}: {}", error.operation, error.source),
    };
    format!("io_uring: {reason}")
}

/// As [`why_no_io_uring`].
fn why_no_libaio(error: &EngineError) -> String {
    let reason = match error.source.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has none, or a seccomp filter hides it".to_owned(),
        Some(libc::EPERM | libc::EACCES) => "forbidden, probably by a seccomp filter".to_owned(),
        Some(libc::EAGAIN) => "fs.aio-max-nr is used up".to_owned(),
        _ => format!("{}: {}", error.operation, error.source),
    };
    format!("libaio: {reason}")
}

/// For each engine that `auto` tries whether this process may use it, and if not, why.
pub fn availability() -> [(&'static str, Result<(), String>); 3] {
    availability_with_kernel(&Linux)
}

/// The same, as `kernel` has it.
pub fn availability_with_kernel<K: Kernel>(kernel: &K) -> [(&'static str, Result<(), String>); 3] {
    let failed = |engine, operation| move |source: io::Error| EngineError { engine, operation, source };
    let io_uring = kernel
        .io_uring_setup(1, &mut Params::default())
        .map(drop)
        .map_err(failed("io_uring", "io_uring_setup"))
        .map_err(|error| why_no_io_uring(&error, &disabled_level()));
    let libaio = kernel
        .io_setup(1)
        .and_then(|context| kernel.io_destroy(context))
        .map_err(failed("libaio", "io_setup"))
        .map_err(|error| why_no_libaio(&error));
    [("io_uring", io_uring), ("libaio", libaio), ("psync", Ok(()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_what_can_be_changed() {
        let error = |errno| EngineError {
            engine: "io_uring",
            operation: "io_uring_setup",
            source: io::Error::from_raw_os_error(errno),
        };
        assert_eq!(why_no_io_uring(&error(libc::EPERM), "2"), "io_uring: kernel.io_uring_disabled=2");
        assert_eq!(why_no_io_uring(&error(libc::EPERM), "1"), "io_uring: kernel.io_uring_disabled=1");
        assert!(why_no_io_uring(&error(libc::EPERM), "0").contains("seccomp"));
        assert!(why_no_io_uring(&error(libc::EPERM), "").contains("seccomp"));
        assert!(why_no_io_uring(&error(libc::ENOSYS), "").contains("this kernel has none"));
        assert!(why_no_io_uring(&error(libc::ENOMEM), "0").contains("RLIMIT_MEMLOCK"));
        assert!(why_no_io_uring(&error(libc::EMFILE), "0").starts_with("io_uring: io_uring_setup: "));
        assert!(why_no_libaio(&error(libc::EAGAIN)).contains("fs.aio-max-nr"));
    }
}
