//! Lays data that a read can be measured on: written throughout, random, no two blocks alike.
//!
//! A file that was only allocated answers reads from nothing (1.7 million "IOPS" were once seen on an
//! fallocated file), and zeros or repeats are answered early by drives and layers that compress or
//! deduplicate. So every block is written, with contents that nothing else has, and flushed before the
//! first run.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use storage::device::{Device, OpenError, OpenOptions, ScratchFile, longest_request, space};
use storage::engine::{self, Engine, EngineConfig, IoEngine, Op};

use crate::payload::Payload;
use crate::run::BenchError;

/// Bytes a request when laying; large enough for any drive's full bandwidth.
const REQUEST: u32 = 1 << 20;
const DEPTH: u32 = 8;
/// What is written to learn how fast the target takes data.
const TRIAL: u64 = 64 << 20;
/// Laying is not to take longer than this.
const PATIENCE: Duration = Duration::from_secs(20);
const SMALLEST: u64 = 64 << 20;
const LARGEST: u64 = 8 << 30;

/// How large a scratch file is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScratchSize {
    /// A quarter of the memory, at least 1 GiB and at most 8 GiB, but no more than a quarter of the
    /// free space, nor than the target takes in twenty seconds.
    Auto,
    /// This many bytes.
    Bytes(u64),
}

/// Why there is no scratch file.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// It could not be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is too little free space to measure anything.
    #[error("{directory}: only {} are free, and a scratch file of {} would take more than a quarter of that", units::bytes(*free), units::bytes(SMALLEST))]
    TooFull {
        /// Where it was to be.
        directory: String,
        /// Bytes free.
        free: u64,
    },
    /// It could not be written.
    #[error("lay the scratch file in {directory}")]
    Write {
        /// Where it was to be.
        directory: String,
        /// Why.
        #[source]
        source: BenchError,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A laid scratch file; it vanishes when dropped.
#[derive(Debug)]
pub struct Scratch {
    file: Arc<ScratchFile>,
    direct: bool,
    reason: String,
    laid_bytes_per_s: f64,
}

impl Scratch {
    /// Makes and lays a scratch file in `directory`; `progress` is told the bytes laid and their number.
    ///
    /// # Errors
    /// [`ScratchError`]; nothing is left behind.
    pub fn lay(
        directory: &Path,
        size: ScratchSize,
        stop: &AtomicBool,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Self, ScratchError> {
        let name = || directory.display().to_string();
        let (size, reason) = match size {
            ScratchSize::Bytes(bytes) => (bytes, "as asked".to_owned()),
            ScratchSize::Auto => choose(directory, stop)?,
        };
        let file = ScratchFile::create(directory, size)?;
        let (device, direct) = open_for_laying(&file)?;
        let begun = Instant::now();
        lay(&device, device.size(), stop, progress)
            .map_err(|source| ScratchError::Write { directory: name(), source })?;
        if stop.load(Ordering::Relaxed) {
            return Err(ScratchError::Interrupted);
        }
        let laid_bytes_per_s = size as f64 / begun.elapsed().as_secs_f64().max(1e-9);
        Ok(Self { file: Arc::new(file), direct, reason, laid_bytes_per_s })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<ScratchFile> {
        &self.file
    }

    /// Whether the file system does direct I/O.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Why it has the size that it has, in words.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How fast it was laid, flush included.
    #[must_use]
    pub fn laid_bytes_per_s(&self) -> f64 {
        self.laid_bytes_per_s
    }
}

/// Opens for writing, directly where that is possible.
fn open_for_laying(file: &ScratchFile) -> Result<(Arc<dyn Device>, bool), OpenError> {
    match file.open("scratch", &OpenOptions::writing()) {
        Ok(device) => Ok((device, true)),
        Err(OpenError::DirectUnsupported { .. }) => {
            let options = OpenOptions { direct: false, ..OpenOptions::writing() };
            Ok((file.open("scratch", &options)?, false))
        }
        Err(error) => Err(error),
    }
}

/// The size that memory, free space and the target's speed allow, and which of them decided.
fn choose(directory: &Path, stop: &AtomicBool) -> Result<(u64, String), ScratchError> {
    let name = directory.display().to_string();
    let (free, _) = space(directory).map_err(|source| OpenError::Io {
        target: name.clone(),
        operation: "statvfs",
        source,
    })?;
    if free / 4 < SMALLEST {
        return Err(ScratchError::TooFull { directory: name, free });
    }
    let memory = memory_bytes();
    let trial = ScratchFile::create(directory, TRIAL)?;
    let (device, _) = open_for_laying(&trial)?;
    let begun = Instant::now();
    lay(&device, TRIAL, stop, &|_, _| {})
        .map_err(|source| ScratchError::Write { directory: name, source })?;
    let speed = TRIAL as f64 / begun.elapsed().as_secs_f64().max(1e-9);
    let by_time = (speed * PATIENCE.as_secs_f64()) as u64;
    let limits = [
        (
            (memory / 4).clamp(1 << 30, LARGEST),
            format!("a quarter of {} of memory, within 1 to 8 GiB", units::bytes(memory)),
        ),
        (free / 4, format!("a quarter of the {} that are free", units::bytes(free))),
        (by_time.max(SMALLEST), format!("what {} takes in 20 s", units::bandwidth(speed))),
    ];
    let (bytes, reason) = limits.into_iter().min_by_key(|(bytes, _)| *bytes).expect("three limits");
    Ok((bytes / SMALLEST * SMALLEST, reason))
}

/// MemTotal of /proc/meminfo, bytes; 4 GiB where it cannot be read.
fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kib.map_or(4 << 30, |kib| kib * 1024)
}

/// Writes the first `bytes` of a device with block-unique random data, and flushes. Stops early, without
/// an error, when told to.
///
/// # Errors
/// [`BenchError`] for the first request that fails.
pub fn lay(
    device: &Arc<dyn Device>,
    bytes: u64,
    stop: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<(), BenchError> {
    fill(device, 0..bytes, stop, progress)
}

/// Bytes of a request that fills a part of `device`.
pub(crate) fn request_bytes(device: &Arc<dyn Device>) -> u64 {
    longest_request(device, u64::from(REQUEST))
}

/// The same for any part of a device; of a direct one, a part in whole blocks.
///
/// # Errors
/// [`BenchError`] for the first request that fails.
pub fn fill(
    device: &Arc<dyn Device>,
    region: Range<u64>,
    stop: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<(), BenchError> {
    let slot_bytes = request_bytes(device) as usize;
    let config = EngineConfig { depth: DEPTH, slot_bytes, ..EngineConfig::default() };
    let (engine, _) = engine::open(IoEngine::Auto, device, &config)?;
    storage::on_engine!(engine, engine => write_all(engine, region, stop, progress))?;
    device.sync_data().map_err(|source| BenchError::Flush { device: device.spec().to_owned(), source })
}

fn write_all<E: Engine>(
    mut engine: E,
    region: Range<u64>,
    stop: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<(), BenchError> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let mut payload = Payload::new(seed, 0);
    let mut idle: Vec<u32> = (0..engine.depth()).collect();
    let bytes = region.end.saturating_sub(region.start);
    let request = engine.buffer(0).len() as u64;
    let (mut next, mut done) = (0, 0);
    while next < bytes || engine.in_flight() > 0 {
        while next < bytes && !stop.load(Ordering::Relaxed) {
            let Some(slot) = idle.pop() else { break };
            let length = request.min(bytes - next) as u32;
            payload.fill(&mut engine.buffer_mut(slot)[..length as usize]);
            engine.prepare(slot, Op::Write, region.start + next, length);
            next += u64::from(length);
        }
        if engine.in_flight() == 0 {
            break;
        }
        engine.submit(1, None)?;
        let mut failure = None;
        engine.reap(|slot, result| match result {
            Ok(()) => {
                idle.push(slot);
                done = (done + request).min(bytes);
            }
            Err(error) => failure = Some(error),
        });
        if let Some(error) = failure {
            return Err(error.into());
        }
        progress(done, bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_laid_file_is_written_throughout_and_holds_no_repeats() {
        let directory = tempfile::tempdir().expect("a directory");
        let told = std::cell::Cell::new((0, 0));
        let scratch = Scratch::lay(
            directory.path(),
            ScratchSize::Bytes(8 << 20),
            &AtomicBool::new(false),
            &|done, of| told.set((done, of)),
        )
        .expect("is laid");
        assert_eq!(told.get(), (8 << 20, 8 << 20));
        let options = OpenOptions { direct: false, ..OpenOptions::reading() };
        let device = scratch.file().open("scratch", &options).expect("nothing of it is unwritten");
        let sampled = crate::lies::blocks::sample(&*device, 0, device.size(), 256, 1).expect("reads");
        assert_eq!((sampled.zero, sampled.repeated), (0, 0));
    }

    #[test]
    fn a_wish_to_stop_is_heeded_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let stop = AtomicBool::new(true);
        let result = Scratch::lay(directory.path(), ScratchSize::Bytes(64 << 20), &stop, &|_, _| {});
        assert!(matches!(result, Err(ScratchError::Interrupted)));
        assert_eq!(std::fs::read_dir(directory.path()).expect("lists").count(), 0);
    }
}
