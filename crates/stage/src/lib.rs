//! Crash-safe movement between a fast and a slow tier: one move, from its intent to its end.
//!
//! Three promises, whatever is killed, fails or fills up on the way:
//!
//! 1. **A destination name appears only when its bytes are durable and have been read back.** A directory is a set: it
//!    appears whole, with its manifest, or not at all.
//! 2. **A source is removed only after that**, and only if it is still the file that was copied.
//! 3. **What was said to be accepted is carried out**, by the next server if this one dies; what was said to be durable
//!    survives a power cut.
//!
//! They rest on an order of system calls, which `runner` states step by step, and on a journal that is durable before
//! each step that must not be taken twice. A failed fsync is never tried again on the same file; no resume trusts a
//! file's length.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod address;
pub mod calls;
pub mod complete;
pub mod crew;
pub mod digest;
pub mod distinct;
pub mod error;
pub mod existing;
pub mod fault;
pub mod fingerprint;
mod fs_kind;
pub mod job;
pub mod journal;
pub mod keys;
pub mod large;
pub mod lock;
pub mod manifest;
pub mod metadata;
pub mod mounts;
pub mod names;
pub mod owned;
pub mod pace;
pub mod parts;
mod pipeline;
pub mod reads;
pub mod retention;
pub mod runner;
pub mod semaphore;
pub mod series;
pub mod set;
mod small;
pub mod spec;
pub mod tier;
pub mod tree;
pub mod uncached;
pub mod verify;

pub use digest::{Algorithm, Digest};
pub use error::{ErrorClass, StageError};
pub use existing::make_durable;
pub use job::{JobId, JobStatus, State};
pub use spec::{JobSpec, Level, Options, Place, Preserve, Verb};
