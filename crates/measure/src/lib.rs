//! What to run, what was seen, and what it means. This crate does no I/O.
//!
//! Everything that produces figures, a real drive today and a simulated one tomorrow, is handed the
//! same [`Workload`] and hands back the same [`RunRecord`]; that is what makes them comparable point
//! by point. The order of the modules is the order of a measurement:
//!
//! 1. [`workload`]: what to run, in fio's words, and whether it makes sense.
//!    Where its threads and buffers lie is [`placement`]'s; what each job gets of it, [`dealing`]'s; what written blocks hold, [`contents`]'s. [`options`]: the table of all its options.
//! 2. [`test_type`]: the fourteen workloads of DASH-IO §3.1, numbered as the paper numbers them.
//! 3. [`pattern`]: the offsets that a workload visits, without a bitmap.
//! 4. [`target`]: the one trait that runs a workload.
//! 5. [`record`] with its [`histogram`]: raw counts of what was seen. Derived figures are derived.
//!    [`precondition`]: what was done to the target before; [`saturation`]: a drive's write rate over time.
//! 6. [`warning`]: the stable codes of all the ways in which a figure may lie. `remedy`: what to do, given the flags in use.
//! 7. [`limit`]: what kept the figure from being higher.
//! 8. [`ladder`]: a machine's levels of memory and storage, and the gaps between them.
//! 9. [`stats`]: cleaning, intervals, steady state, the knee of a curve; [`mod@effects`]: what each dimension does.
//! 10. [`decide`]: which of several settings is best, after as many blocks as it takes. [`simulation`]: machines
//!     of known truth, on which such answers are counted right or wrong.
#![forbid(unsafe_code)]

pub mod contents;
pub mod dealing;
pub mod decide;
pub mod distribution;
pub mod effects;
pub mod histogram;
pub mod ladder;
mod later;
pub mod limit;
pub mod options;
pub mod pattern;
pub mod placement;
pub mod precondition;
pub mod record;
pub mod remedy;
pub mod saturation;
mod signed_size;
pub mod simulation;
pub mod stats;
pub mod target;
pub mod test_type;
mod verdict;
pub mod warning;
mod words;
pub mod workload;

pub use histogram::Histogram;
pub use later::LaterWord;
pub use limit::{Limit, Verdict};
pub use record::RunRecord;
pub use target::{Target, TargetError, UnansweredRequest};
pub use test_type::TestType;
pub use warning::{Warning, WarningCode};
pub use workload::Workload;
