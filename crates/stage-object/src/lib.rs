//! An object store as the slow tier: S3 and its like.
//!
//! A set is stored as one object a file, under `PREFIX/NAME/` and the file's path (spelt as [`stage::keys`] has it), and a
//! manifest, `PREFIX/NAME/.flashwright-manifest`, of the same text as a directory's. A file that is drained by itself
//! is a set of one, whose object is `PREFIX/NAME/NAME`.
//!
//! **The manifest is the commit point.** A store has no rename and no directories, so that objects appear one by one;
//! a set without a manifest does not exist for readers through this module. It is put last, when
//!
//! 1. every file was put, with a checksum that the server compares (SHA-256 of each request's body), and is complete;
//! 2. every object was read back and its bytes compared, chunk by chunk, with what was read at the source;
//! 3. the source was walked again and is what it was (by the runner);
//! 4. a listing of the store shows every object, with the size and the ETag that were read back;
//!
//! and it is put only where there is none (If-None-Match). One that is there already is either that of this very set,
//! from a run that died between this step and the journal, or it refuses the drain.
//!
//! While a drain is at work it holds a claim on the name (`commit`), so that no other drain overwrites its objects.
//! Deleting goes the other way: the manifest first.
//!
//! What a drain has done is in the journal: files that are stored and read back, and parts of those
//! under way, so that a drain that was killed uploads nothing twice but what was in flight.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod address;
mod attempt;
mod commit;
mod crypto;
mod drain;
mod error;
mod fetch;
mod lanes;
mod moves;
mod read;
mod resume;
mod sets;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod tier;
mod upload;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use object_store::path::Path as Key;

pub use address::Environment;
pub use error::StoreError;
pub use moves::{tiers, tiers_with};
pub use sets::{Manifest, Verified};
pub use tier::ObjectTier;

use stage::address::{Address, Scheme};
use stage::error::StageError;
use stage::fault::Barrier;
use stage::keys;
use stage::pace::Stop;

use lanes::{Budget, Halt, STOP_CHECK_INTERVAL};
use store::Store;

/// Files at once: enough small ones under way to hide a store's latency.
const LANES: usize = 16;
/// Parts or ranges of one file at once.
const WINDOW: usize = 8;
/// Bytes read from files, or from the store, that wait to be taken: 16 parts of the usual size.
const MEMORY_BYTES: u64 = 128 << 20;

/// A set in an object store, or the place where it is to be.
///
/// All of it blocks, and must not be called from within an asynchronous runtime; it has its own.
pub struct ObjectSet {
    /// What it was opened with.
    address: Address,
    store: Arc<dyn Store>,
    threads: Arc<Threads>,
    prefix: Key,
    budget: Arc<Budget>,
    /// What to do where a request fails: set where the environment has nothing that a server could know us by.
    hint: Option<&'static str>,
}

impl std::fmt::Debug for ObjectSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ObjectSet").field(&self.shown(&self.prefix)).finish()
    }
}

impl ObjectSet {
    /// Takes a URL apart and gets ready to reach the store; no request is made.
    ///
    /// # Errors
    /// A URL or a setting that makes no sense.
    pub fn open(url: &str, environment: &Environment) -> Result<Self, StageError> {
        let address = Address::parse(url)?;
        let store = address::open(&address, environment)?;
        let knows_us = address.scheme() == &Scheme::File || environment.identifies();
        Ok(Self { hint: (!knows_us).then_some(address::NO_KEY), ..Self::with(address, store)? })
    }

    fn with(address: Address, store: Arc<dyn Store>) -> Result<Self, StageError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("object")
            .enable_all()
            .build()
            .map_err(|source| StageError::Io {
                operation: "start threads".to_owned(),
                path: address.bucket(),
                offset: None,
                source,
            })?;
        let prefix =
            Key::parse(address.prefix()).map_err(|error| stage::address::invalid(address.as_str(), error))?;
        let threads = Arc::new(Threads { runtime: Some(runtime), process: std::process::id() });
        Ok(Self { address, store, threads, prefix, budget: Budget::new(MEMORY_BYTES), hint: None })
    }

    /// Something else in the same store, reached over the same connections.
    fn elsewhere(&self, prefix: Key) -> Self {
        Self {
            address: self.address.sibling(prefix.as_ref()),
            store: Arc::clone(&self.store),
            threads: Arc::clone(&self.threads),
            prefix,
            budget: Arc::clone(&self.budget),
            hint: self.hint,
        }
    }

    /// Makes what is stored durable in a directory that stands in for a store: a program that is not this one may have put
    /// it there. What a server has answered is durable by its promise.
    fn make_durable(&self, purpose: Barrier, stop: &Stop) -> Result<(), StageError> {
        match self.address.scheme() {
            Scheme::S3 { .. } => Ok(()),
            Scheme::File => {
                stage::make_durable(&Path::new("/").join(self.prefix.as_ref()), Some(purpose), stop)
            }
        }
    }

    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.threads.runtime.as_ref().expect("it is taken only when this goes")
    }

    /// What messages and documents call it: its URL without options.
    #[must_use]
    pub fn name_shown(&self) -> String {
        self.shown(&self.prefix)
    }

    /// The set's name: the last segment of its URL.
    fn name(&self) -> Result<&str, StageError> {
        self.prefix.filename().ok_or_else(|| stage::address::unnamed(&self.address.bucket()))
    }

    /// The key of a file in this set.
    fn key(&self, path: &std::path::Path) -> Result<Key, StageError> {
        let below = if path.as_os_str().is_empty() { self.name()?.to_owned() } else { keys::of_path(path) };
        let key = self.below(&below);
        if key.as_ref().len() > keys::KEY_BYTES_MAX {
            return Err(StageError::Refused {
                what: format!(
                    "{}: its key would have {} bytes, and a store takes {}",
                    stage::error::shown(path),
                    key.as_ref().len(),
                    keys::KEY_BYTES_MAX
                ),
                hint: Some("use a shorter prefix or shorter names".to_owned()),
            });
        }
        Ok(key)
    }

    fn manifest_key(&self) -> Key {
        self.below(keys::MANIFEST)
    }

    /// A key beneath this set's prefix, as it is spelt.
    fn below(&self, key: &str) -> Key {
        let whole = if self.prefix.is_root() { key.to_owned() } else { format!("{}/{key}", self.prefix) };
        Key::parse(whole).expect("prefixes were parsed, and names are encoded so that they parse")
    }

    /// A key as messages have it.
    fn shown(&self, key: &Key) -> String {
        stage::names::shown(format!("{}/{key}", self.address.bucket()).as_bytes())
    }

    /// Waits for a request, or for a stop.
    fn ask<T>(
        &self,
        key: &Key,
        operation: &str,
        halt: &Halt<'_>,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StageError> {
        self.wait(halt, request)?.map_err(|error| self.failed(key, operation, &error))
    }

    /// [`Self::ask`], with the store's own error.
    fn wait<T>(&self, halt: &Halt<'_>, request: impl Future<Output = T>) -> Result<T, StageError> {
        self.runtime().block_on(async {
            let mut request = std::pin::pin!(request);
            loop {
                match tokio::time::timeout(STOP_CHECK_INTERVAL, request.as_mut()).await {
                    Ok(answer) => return Ok(answer),
                    Err(_) => halt.check()?,
                }
            }
        })
    }

    /// A request that failed for good, as an error of the set.
    fn failed(&self, key: &Key, operation: &str, error: &object_store::Error) -> StageError {
        let mut text = error.to_string();
        // Texts of this library have most of their causes in them; "timed out" is one that they leave out.
        let mut cause = std::error::Error::source(error);
        while let Some(below) = cause {
            let reason = below.to_string();
            if !text.contains(&reason) {
                text.push_str(": ");
                text.push_str(&reason);
            }
            cause = below.source();
        }
        if let Some((end, _)) = text.char_indices().nth(1000) {
            text.truncate(end);
            text.push('…');
        }
        let what = format!("cannot {operation}: {}", stage::names::shown(text.trim().as_bytes()));
        StoreError { object: self.shown(key), what, hint: self.hint }.into()
    }
}

/// The threads that requests are made in.
struct Threads {
    runtime: Option<tokio::runtime::Runtime>,
    process: u32,
}

impl Drop for Threads {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.process == std::process::id() {
            // Without waiting for a name server that does not answer.
            runtime.shutdown_background();
        } else {
            // A child of fork(2) has none of the threads, and locks that they may have held.
            std::mem::forget(runtime);
        }
    }
}

/// A key in 16 bytes, so that a million of them are not too many.
fn short(key: &Key) -> u128 {
    digest_of(key.as_ref().as_bytes())
}

fn digest_of(bytes: &[u8]) -> u128 {
    let digest = stage::Algorithm::Xxh3.of(bytes).0;
    digest[..16].iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}
