//! Every lie is planted once, and a run without one draws no warning.
//!
//! The cases here are made of plain data, so that what needs an NVMe drive in a degraded slot can be
//! shown anywhere. `real.rs` plants what files, loop devices and zram can show on this machine.

mod case;
mod documented;
mod healthy;
mod planted;
mod real;
