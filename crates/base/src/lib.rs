//! Words that several crates share, each declared once.
//!
//! 1. [`words!`] declares an enum whose values users type and records hold. Its table of words is the only one: parsers,
//!    help, serde and JSON Schema are made from it.
//! 2. [`ErrorClass`] maps every error of every crate to an exit code.
//! 3. [`environment::VARIABLES`] names each environment variable, and says what reads it.
//! 4. [`nearest()`] finds the word that a mistyped one was meant to be.
//! 5. [`with_causes`] writes an error and its causes in one line.
//!
//! The crate does no I/O and depends on no other crate of the workspace.
#![forbid(unsafe_code)]

extern crate self as base;

mod causes;
mod class;
mod engine;
pub mod environment;
mod layout;
mod nearest;
mod words;

#[doc(hidden)]
pub use {schemars, serde};

pub use causes::with_causes;
pub use class::ErrorClass;
pub use engine::IoEngine;
pub use layout::{Filesystem, LayoutKind};
pub use nearest::{edit_distance, nearest};
pub use words::{Word, Words};
