//! Several processes that do one thing.
//!
//! The processes are *ranks* 0 to size − 1; rank 0 is the *root*. [`Ranks`] has what they do together: barriers, gathering
//! at the root, broadcasts from it, and the offsets of their clocks. Every collective has a deadline. A rank that ends,
//! reports an error or misses the deadline is *lost*: the root notices, tells the others, and every rank gets the same
//! [`Lost`] with its number, its node and why. Ranks that wait for a root that is gone end [`ROOT_GRACE`] after
//! the deadline at the latest.
//!
//! Frames between the root and each other rank are carried by a [`Transport`](transport::Transport); all else exists once, in [`Ranks`]. Two
//! transports are here, and a third one with the feature `mpi`:
//!
//! - [`local`]: the root starts the other ranks as processes of the same program, with a Unix socket each;
//! - `mpi`: a launcher of MPI, such as mpirun, has started them ([`launched`] tells without the feature, and whether `srun` started
//!   them so that they cannot meet);
//! - [`transport::Alone`]: a single rank.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod clock;
mod error;
mod frame;
mod group;
mod launch;
pub mod local;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod transport;

pub use clock::{ClockOffset, now_ns};
pub use error::{Lost, RanksError, Why};
pub use group::{Member, ROOT_GRACE, Ranks};
pub use launch::{Launch, Launcher, launched};
