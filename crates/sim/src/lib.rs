//! A storage node in virtual time: a discrete-event simulator that runs the same [`measure::Workload`]s as a real
//! measurement and hands back the same records.
//!
//! Times are integer nanoseconds, and every random choice follows from a seed, so that a run of the same machine,
//! workload and seed gives the same bytes on every host.
#![forbid(unsafe_code)]

pub mod alone;
pub mod device;
pub mod drives;
pub mod error;
mod event;
pub mod fit;
pub mod flash;
mod load;
pub mod machine;
mod meter;
mod modelled;
mod node;
pub mod papers;
mod target;
pub mod values;

pub use error::{InvalidMachine, MachineError};
pub use machine::Machine;
pub use meter::Stop;
pub use modelled::check_modelled;
pub use node::Layout;
pub use target::{EPOCH_UNIX_NS, SimRun, SimTarget};
