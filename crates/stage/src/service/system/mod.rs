//! The system's service: one door for all users, behind it a process for each that has that user's rights and no others.
//!
//! ```text
//! client ──connect──▶ front (root) ──SCM_RIGHTS──▶ worker (uid, gid, groups of the client) ──▶ journal, moves
//!            SO_PEERCRED, SO_PEERGROUPS,              drops to them before it does anything
//!            mount namespace                          else, and looks whether it has
//! ```
//!
//! Why so: whether a user may read, write or remove a file is then judged by the kernel, call by call, with the user's
//! own credentials. There is no check of ours that a symbolic link, a rename at the wrong moment or a forgotten ACL could
//! get around, and no journal that holds two users' jobs.
//!
//! - [`front`] accepts, asks the kernel who it is, and passes the connection on. It never reads a byte from a user.
//! - [`roster`] keeps the workers: one for each set of [`credentials`], started when asked for or when jobs are left,
//!   started again with a growing pause when it dies, retired when it has nothing to do.
//! - [`register`] remembers, durably, whose jobs there may be, so that they are gone on with after a restart.
//! - [`keeper`] keeps the pools that users share, for whom the kernel says that they ask.
//! - [`worker`] is the process; [`channel`] what front and worker say to each other.

pub mod channel;
pub mod credentials;
pub mod front;
pub mod keeper;
pub mod register;
pub mod roster;
pub mod worker;
