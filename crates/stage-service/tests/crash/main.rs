//! Moves that are killed, refused, starved and lied to at every step, and what must hold all the same.
//!
//! The binary runs itself again as a child (`child`) that carries out a job under a plan of faults (`stage::fault`), and
//! judges from outside what is on the file systems then. First a child without faults is asked which calls a job makes;
//! then each of these calls is struck in a child of its own.
//!
//! What must hold after *every* kill and every failure ([`world::World::check_between`]):
//!
//! - the destination's name is absent, or has all of the source under it, byte for byte and attribute for attribute;
//! - nothing has gone from the source unless it is there under its final name; of a copy nothing ever goes;
//! - `latest` leads to what is complete.
//!
//! And when a process without faults has gone on with what it found ([`world::World::check_end`]): the destination is
//! complete, of a move the source is gone, nothing is left over beside them.
//!
//! `cargo test` takes a sample of the calls, drawn by a seed that each failure prints; `FLASHWRIGHT_CRASH=full` (`make
//! test-crash`) takes all of them, `FLASHWRIGHT_CRASH_SEED` draws another sample.
#![forbid(unsafe_code)]

mod changes;
mod child;
mod claims;
mod device;
mod evictions;
mod failures;
mod identity;
mod kills;
mod left_out;
mod model;
mod mounted;
mod places;
mod power;
mod rot;
mod sample;
mod scale;
mod sets;
mod strangers;
mod tree;
mod world;

/// Whether every file system is taken for one like NFS; in the test program `crash-nfs` it is.
const LIKE_NFS: bool = false;
