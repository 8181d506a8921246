//! The crash tests of `tests/crash`, with every file system taken for one like NFS: `lacks_noreplace` and
//! `distrust_syncfs` of [`stage::fault::Plan`].
//!
//! Files are then synced one by one, and names are given by link(2) or over a claim. What a set's name may show beyond
//! what it may show elsewhere is the claim, an empty directory of mode 1700. A module that is added there belongs here
//! as well, unless it tests nothing that depends on the file system.
#![forbid(unsafe_code)]

#[path = "../crash/changes.rs"]
mod changes;
#[path = "../crash/child.rs"]
mod child;
#[path = "../crash/device.rs"]
mod device;
#[path = "../crash/failures.rs"]
mod failures;
#[path = "../crash/identity.rs"]
mod identity;
#[path = "../crash/kills.rs"]
mod kills;
#[path = "../crash/places.rs"]
mod places;
#[path = "../crash/power.rs"]
mod power;
#[path = "../crash/rot.rs"]
mod rot;
#[path = "../crash/sample.rs"]
mod sample;
#[path = "../crash/sets.rs"]
mod sets;
#[path = "../crash/strangers.rs"]
mod strangers;
#[path = "../crash/tree.rs"]
mod tree;
#[path = "../crash/world.rs"]
mod world;

/// Whether every file system is taken for one like NFS; in the test program `crash` it is not.
const LIKE_NFS: bool = true;
