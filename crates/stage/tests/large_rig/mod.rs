//! What the tests of large files share: files of odd sizes, patterns of holes, and copies with everything recorded.
#![allow(dead_code)] // each test binary uses a part of it

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use stage::large::{Lane, LaneConfig, LargeFile};
use stage::pace::{Pace, Progress, Stop, Unlimited};
use stage::{Algorithm, Digest, StageError};
use storage::transfer::Method;

pub const CHUNK: u64 = 1 << 20;
/// Where groups are never due because of time, on however slow a machine.
pub const NEVER: Duration = Duration::from_secs(1 << 30);

/// Small chunks, so that small files have many.
pub fn config(depth: u32, method: Method) -> LaneConfig {
    LaneConfig {
        depth,
        chunk_bytes: CHUNK,
        method,
        reflink: false,
        group_bytes: 2 * CHUNK,
        group_time: NEVER,
        ..LaneConfig::default()
    }
}

pub fn methods() -> Vec<Method> {
    let ring = LaneConfig { method: Method::IoUring, ..config(1, Method::IoUring) };
    match Lane::new(&ring) {
        Ok(_) => vec![Method::IoUring, Method::Psync],
        Err(error) => {
            eprintln!("SKIP io_uring: {error}");
            vec![Method::Psync]
        }
    }
}

/// Bytes that are nowhere the same, as far as a shift or a swap of blocks could tell.
pub fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut all = Vec::with_capacity(bytes as usize + 8);
    while (all.len() as u64) < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(bytes as usize);
    all
}

pub fn contents(file: &File) -> Vec<u8> {
    let (mut file, mut all) = (file, Vec::new());
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut all).unwrap();
    all
}

/// What the digests of these bytes must be.
pub fn digests(bytes: &[u8], chunk_bytes: u64) -> Vec<Digest> {
    bytes.chunks(chunk_bytes as usize).map(|chunk| Algorithm::Xxh3.of(chunk)).collect()
}

/// A copy under way, with what it told.
pub struct Copy<'a> {
    pub source: &'a File,
    pub destination: &'a File,
    pub bytes: u64,
    pub sparse: bool,
    pub done: BTreeMap<u64, Digest>,
    pub sealed: Vec<(u64, Digest)>,
    pub progress: Progress,
    /// Is asked to stop once anything has been told of.
    pub stops: Option<&'a Stop>,
}

impl<'a> Copy<'a> {
    pub fn new(source: &'a File, destination: &'a File, bytes: u64) -> Self {
        Self {
            source,
            destination,
            bytes,
            sparse: false,
            done: BTreeMap::new(),
            sealed: Vec::new(),
            progress: Progress::default(),
            stops: None,
        }
    }

    pub fn run(&mut self, lane: &mut Lane) -> Result<Vec<Digest>, StageError> {
        self.run_at(lane, &Unlimited, &Stop::new())
    }

    pub fn run_at(
        &mut self,
        lane: &mut Lane,
        pace: &dyn Pace,
        stop: &Stop,
    ) -> Result<Vec<Digest>, StageError> {
        let file = LargeFile {
            source: self.source.as_fd(),
            destination: self.destination.as_fd(),
            source_path: Path::new("SOURCE"),
            destination_path: Path::new("DESTINATION"),
            bytes: self.bytes,
            algorithm: Algorithm::Xxh3,
            preserve_sparse: self.sparse,
        };
        let Self { done, sealed, progress, stops, .. } = self;
        let mut all_written = 0;
        let tell = &mut |chunks: &[(u64, Digest)]| {
            sealed.extend_from_slice(chunks);
            if let Some(stop) = stops {
                stop.ask();
            }
            Ok(())
        };
        let digests = lane.copy(&file, done, pace, stop, progress, tell, &mut || all_written += 1)?;
        assert!(all_written <= 1, "the last byte is written once");
        Ok(digests)
    }

    /// Everything was told of once, and counted.
    pub fn check(&self, copied: &[Digest], chunk_bytes: u64) {
        let mut told = self.done.clone();
        for (index, digest) in &self.sealed {
            assert!(told.insert(*index, *digest).is_none(), "chunk {index} was told of twice");
        }
        let told: Vec<Digest> = told.into_values().collect();
        assert_eq!(told, copied);
        assert_eq!(copied.len() as u64, self.bytes.div_ceil(chunk_bytes));
        assert_eq!(self.progress.bytes_written.load(Relaxed), self.bytes);
        assert_eq!(self.progress.bytes_verified.load(Relaxed), self.bytes);
    }

    /// What was told of is at the destination, whatever became of the rest.
    pub fn check_told(&self, chunk_bytes: u64) {
        for (index, digest) in &self.sealed {
            let start = index * chunk_bytes;
            let mut bytes = vec![0; chunk_bytes.min(self.bytes - start) as usize];
            self.destination.read_exact_at(&mut bytes, start).expect("what was told of is there");
            assert_eq!(Algorithm::Xxh3.of(&bytes), *digest, "chunk {index}");
            self.source.read_exact_at(&mut bytes, start).expect("the source is whole");
            assert_eq!(Algorithm::Xxh3.of(&bytes), *digest, "chunk {index}");
        }
    }
}
