//! Devices, and the engines that drive them.
//!
//! *A completion is a claim to check.* Everything here follows from that: the bytes transferred are
//! compared with the bytes asked for, `-errno` is turned into an error once and in one place, and a
//! buffer belongs to the kernel from submission until its completion has been reaped.
//!
//! Only this crate, and `capi` at its border to C, have hand-written `unsafe`; each block says why it holds.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod aio_abi;
pub mod arena;
pub mod cache;
pub mod clock;
pub mod conformance;
pub mod device;
pub mod engine;
pub mod extents;
pub mod fault;
pub mod fs_type;
pub mod heap;
pub mod kernel;
pub mod lease;
pub mod locks;
mod mapping;
pub mod memory;
pub mod mode;
mod nvme;
pub mod pages;
pub mod peer;
pub mod remote;
pub mod residency;
pub mod safety;
pub mod spec;
pub mod survey;
pub mod sysfs;
pub mod transfer;
pub mod trust;
mod uring_abi;
pub mod usage;
pub mod uuid;
pub mod words;
