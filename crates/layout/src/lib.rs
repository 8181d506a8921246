//! Layouts: what is under test, made, looked at, and unmade.
//!
//! A [`LayoutSpec`] says what is wanted: an md array of four drives with XFS on it and no I/O scheduler, say.
//! [`Layouts`] makes it, goes from one to the next with the least work, says whether it still is what was asked
//! for, and takes it down. Four rules hold throughout:
//!
//! 1. **Every change is journalled, durably, before it is made**, with all that is needed to undo it
//!    ([`journal`]). A process that is killed at any moment leaves a journal from which [`undo()`] restores
//!    what was there; doing it twice does nothing.
//! 2. **Only the drives of the layout are touched**, and only after [`storage::safety`] found nobody using them and
//!    nothing on them that was not given up.
//! 3. **What is wiped is what was made**: a mark is ours if it bears the UUID that was chosen for it beforehand.
//! 4. **What is in force is read back from the machine**, never taken from the request.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod change;
mod check;
mod cpus;
pub mod drive;
pub mod error;
mod facts;
pub mod held;
mod interrupts;
pub mod journal;
mod knobs;
mod label;
mod layouts;
mod locks;
mod order;
mod parts;
mod settings;
pub mod spec;
mod stop;
pub mod survey;
pub mod system;
mod targets;
mod undo;
mod volumes;

pub use check::Drift;
pub use error::{ErrorClass, LayoutError};
pub use facts::Built;
pub use journal::Standing;
pub use layouts::{Layouts, Permits};
pub use spec::{LayoutSpec, SpecError};
pub use stop::Stop;
pub use survey::{Availability, survey};
pub use undo::{Undone, standing, state_dir, undo, undo_on};
