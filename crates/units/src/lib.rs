//! Sizes, durations and rates: parsed as fio spells them, printed as a person reads them.
//!
//! Two rules hold everywhere in flashwright, so they live below every other crate:
//!
//! 1. **What a user types is fio's.** `4k` is 4096, `1m` is 1,048,576, `1g` is 2^30 (fio's
//!    `kb_base=1024` default); `ki`/`kib`-style IEC spellings mean the same. A bare duration is in
//!    seconds; `us`, `ms`, `s`, `m`, `h`, `d` name the unit (fio(1), "Parameter types").
//! 2. **What a person reads names its unit.** Powers of two are `KiB`, `MiB`, `GiB`; powers of ten
//!    are `MB/s`, `GB/s`. Data files carry plain bytes, bytes per second and nanoseconds.
#![forbid(unsafe_code)]

mod display;
mod parse;

pub use display::{
    bandwidth, bytes, bytes_short, count, counted, decimal_bytes, iops, nanoseconds, percent, seconds,
};
pub use parse::{ParseError, duration, size};
