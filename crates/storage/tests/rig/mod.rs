//! What the engine tests run on: devices of every kind, and loops over engines that cannot hang unseen.
#![allow(dead_code)] // each test binary uses a part of it

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::device::{Device, DeviceKind, DeviceSpec, Geometry, OpenOptions, ScratchFile, open};
use storage::engine::{Engine, EngineConfig, Op, RequestError, RequestFailure};

pub const BLOCK: u32 = 4096;
pub const MIB: u64 = 1 << 20;
/// Far beyond what any of this takes on the slowest machine.
pub const LONG: Duration = Duration::from_secs(60);

pub fn config(depth: u32) -> EngineConfig {
    EngineConfig { depth, slot_bytes: 2 * BLOCK as usize, ..EngineConfig::default() }
}

pub fn options(direct: bool) -> OpenOptions {
    OpenOptions { direct, ..OpenOptions::writing() }
}

/// A file of `size` bytes in `directory`, which vanishes with its last user. None, said aloud, where the
/// file system has no direct I/O.
pub fn scratch(directory: &Path, size: u64, direct: bool) -> Option<Arc<dyn Device>> {
    let file = ScratchFile::create(directory, size).expect("a scratch file");
    match file.open("scratch", &options(direct)) {
        Ok(device) => Some(device),
        Err(error) if direct => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The same in the directory for temporary files, buffered, so that it is always to be had.
pub fn any_file(size: u64) -> Arc<dyn Device> {
    scratch(&std::env::temp_dir(), size, false).expect("a buffered file")
}

pub fn memory(size: u64) -> Arc<dyn Device> {
    open(&DeviceSpec::Memory { size }, &options(false)).expect("memory")
}

/// The read end of a pipe as a device: a read of it is in flight until the test lets something through.
#[derive(Debug)]
pub struct PipeDevice {
    reader: io::PipeReader,
}

impl PipeDevice {
    pub fn open() -> (Arc<dyn Device>, io::PipeWriter) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (Arc::new(Self { reader }), writer)
    }
}

impl Device for PipeDevice {
    fn spec(&self) -> &str {
        "pipe"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::File
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        u64::MAX >> 1
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 1, physical_block: 4096, memory_alignment: 1 }
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
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

/// How a request ended.
pub type Ending = Result<(), RequestFailure>;

/// Drives the engine until nothing is in flight, and returns how each slot's request ended. Fails where
/// a slot comes back twice, or not at all.
pub fn finish<E: Engine>(engine: &mut E) -> Vec<Option<Ending>> {
    let started = Instant::now();
    let mut endings: Vec<Option<Ending>> = (0..engine.depth()).map(|_| None).collect();
    while engine.in_flight() > 0 {
        assert!(started.elapsed() < LONG, "{} requests are stuck", engine.in_flight());
        engine.submit(1, Some(Duration::from_secs(1))).expect("the engine goes on");
        engine.reap(|slot, ending| {
            assert!(endings[slot as usize].is_none(), "slot {slot} comes back once");
            endings[slot as usize] = Some(ending);
        });
    }
    endings
}

/// Gives block `n` of a device bytes of its own, for all blocks up to `blocks`.
pub fn lay(device: &dyn Device, blocks: u32) {
    for block in 0..blocks {
        device.write_at(&pattern(block), u64::from(block) * u64::from(BLOCK)).expect("lays a block");
    }
}

pub fn pattern(block: u32) -> Vec<u8> {
    (0..BLOCK).map(|at| (block.wrapping_mul(31) ^ at.wrapping_mul(7) ^ (at >> 8)) as u8).collect()
}

/// Reads block `n` into slot `n`, for all slots.
pub fn prepare_reads<E: Engine>(engine: &mut E) {
    for slot in 0..engine.depth() {
        engine.buffer_mut(slot).fill(0);
        engine.prepare(slot, Op::Read, u64::from(slot) * u64::from(BLOCK), BLOCK);
    }
}

/// All slots came back with success and their blocks' bytes, but those of `failed`, which are returned.
pub fn check_reads<E: Engine>(engine: &E, endings: Vec<Option<Ending>>) -> Vec<(u32, RequestFailure)> {
    let mut failures = Vec::new();
    for (slot, ending) in (0..).zip(endings) {
        match ending.expect("every slot came back") {
            Ok(()) => {
                assert!(
                    engine.buffer(slot)[..BLOCK as usize] == pattern(slot),
                    "slot {slot} holds its block"
                );
            }
            Err(failure) => {
                assert_eq!(failure.op, Op::Read);
                assert_eq!(failure.offset, u64::from(slot) * u64::from(BLOCK));
                assert_eq!(failure.length, BLOCK);
                assert_eq!(failure.device, engine.device().spec());
                failures.push((slot, failure));
            }
        }
    }
    failures
}

pub fn errno(failure: &RequestFailure) -> Option<i32> {
    match &failure.cause {
        RequestError::Os(error) => error.raw_os_error(),
        RequestError::Short { .. } => None,
    }
}

/// A seed for this run, or that of a run to be repeated: `FLASHWRIGHT_TEST_SEED=… cargo test …`.
pub fn seed() -> u64 {
    let given = std::env::var("FLASHWRIGHT_TEST_SEED").ok().map(|text| text.parse().expect("it is a number"));
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("a clock after 1970").as_nanos() as u64
    })
}
