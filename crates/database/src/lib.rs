//! Database workloads of the DASH paper (section IV-B and C) on the user's own tiers: Palomar Transient Factory and
//! BiologicalNetworks.
//!
//! 1. [`schema`] has tables, columns and values in the words that all engines share; [`ptf`] and [`bionet`] make the rows.
//! 2. [`engine`] is the interface to a database engine: create, load, index, run a statement, make cold. [`sqlite`] and [`postgres`]
//!    implement it; [`open`] finds databases in directories, and [`claim`] says which of them a command may remove.
//! 3. [`dataset`] loads, resumably, what [`ahead`] makes; [`size`] says beforehand what a load will take; [`query`] has the statements; [`sky`] the cells and cones that positions are found by.
//! 4. [`ask`] runs one query cold or warm; [`stream`] many at a set rate; [`ingest`] beside rows that come in.
//! 5. [`compare`] runs the same queries on several tiers in blocks; [`figures`] is a pure function of its runs, and [`store`] keeps them.
//!    [`advise`] does the same with settings of one server.
//! 6. [`interrupt`] ends statements when the user asks to stop.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod advise;
pub mod ahead;
pub mod ask;
pub mod bionet;
pub mod claim;
pub mod cold;
pub mod compare;
pub mod dataset;
pub mod engine;
pub mod error;
pub mod figures;
pub mod ingest;
pub mod interrupt;
pub mod meter;
pub mod open;
pub mod postgres;
pub mod ptf;
pub mod query;
pub mod record;
pub mod schema;
pub mod size;
pub mod sky;
pub mod sqlite;
pub mod store;
pub mod stream;

pub use engine::Engine;
pub use error::DatabaseError;
