//! An application that computes and writes checkpoints, on two tiers of storage: what a drain behind the fast tier is worth.
//!
//! Every task multiplies matrices and writes a checkpoint file each time it has computed for a while. The same work is run three
//! [ways](Way) in turn, in blocks of random order: checkpoints straight to the slow tier; to the fast tier, with a
//! [store](stage_service::store) draining them behind the application; to the fast tier alone, which bounds what a drain can give.
//!
//! [`run`] is the coordinator. It starts the tasks as ranks 1 to N of a group whose root it is, and tells them what to do
//! (`orders`); [`task`] is a task's side. [`figures`] is a pure function of what was measured.
//!
//! 1. [`room`] refuses tiers that cannot be compared, or have no room.
//! 2. Calibration: how many multiplications make the wanted time of computing, with all tasks at work.
//! 3. A block is the three ways, each a *leg*: the tasks compute and checkpoint in step; `sets` publishes each checkpoint.
//! 4. After the leg that drains, every drained byte is read back from the slow tier and compared (`pattern`), and the tasks are
//!    killed in the middle of an iteration and started again from the newest checkpoint on the fast tier.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod checkpoint;
pub mod error;
pub mod figures;
mod matrices;
mod orders;
mod pattern;
pub mod record;
pub mod room;
pub mod run;
mod sets;
pub mod task;

pub use error::FlashioError;
pub use record::Way;
