//! Data larger than memory: streams, a sorter, a vector and a priority queue on temporary space.
//!
//! Temporary space ([`Space`]) is any writable [`storage::device::Device`]: a scratch file, a drive, a stripe over many, memory.
//! Everything moves in blocks, past the page cache, by the engines of `storage`, with many requests in flight; and everything
//! is checked on its way back by a CRC-32C that never left memory.
//!
//! - A [`Stream`] is written once and read in order ([`StreamWriter`], [`StreamReader`]).
//! - A [`Sorter`] takes records in any order and gives them back sorted.
//! - A [`PriorityQueue`] gives the lowest record back first, while others are added.
//! - An [`ExternalVec`] has records at positions, to be read and replaced in any order.
//!
//! Each structure is given a budget or a number of blocks, and allocates no more than that.
//!
//! ```
//! use external::{Sorter, SorterOptions, Source, Space, SpaceOptions};
//!
//! # fn main() -> Result<(), external::ExternalError> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let directory = directory.path();
//! let options = SpaceOptions { block_bytes: 4096, ..SpaceOptions::default() };
//! let space = Space::scratch(directory, 8 << 20, &options)?;
//! let mut sorter = Sorter::<u64>::new(&space, &SorterOptions::new(256 << 10))?;
//! for i in 0..100_000_u64 {
//!     sorter.push(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))?;
//! }
//! let mut sorted = sorter.finish()?;
//! let mut last = 0;
//! while let Some(record) = sorted.next_record()? {
//!     assert!(last <= record);
//!     last = record;
//! }
//! assert!(space.usage().bytes_written >= 800_000);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod blocks;
mod error;
mod gather;
mod merge;
mod plan;
mod queue;
mod radix;
mod record;
mod runs;
mod sorter;
mod space;
mod stream;
mod vector;
mod waits;

pub use error::ExternalError;
pub use queue::PriorityQueue;
pub use record::{Record, Same};
pub use sorter::{Sorted, Sorter, SorterOptions};
pub use space::{Space, SpaceOptions, Usage};
pub use stream::{Source, Stream, StreamReader, StreamWriter};
pub use vector::ExternalVec;
pub use waits::{WaitClock, Waited};

#[cfg(test)]
mod tests {
    use crate::{Space, SpaceOptions};
    use storage::device::{Access, DeviceSpec, OpenOptions, open};

    /// Memory as temporary space.
    pub(crate) fn memory_space(bytes: u64, block_bytes: usize) -> Space {
        let spec = DeviceSpec::parse(&format!("mem:{bytes}")).expect("is a spec");
        let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::default() };
        let device = open(&spec, &options).expect("is there");
        Space::on(device, &SpaceOptions { block_bytes, ..SpaceOptions::default() }).expect("fits")
    }
}
