//! Many devices as one, without a layer of the kernel's in between.
//!
//! - A **stripe** is RAID-0 in user space: chunk n of the volume lies on member n mod width, as its chunk
//!   n div width. That is where md's RAID-0 puts it on equal members, so what one has written the other
//!   reads. Of unequal members only as much is used as the smallest has, in whole chunks.
//! - A **labelled volume** is a stripe that knows its members: each bears a label that says which one it is, so that
//!   they are found in any order, and what is missing, foreign, copied, old or half-made is refused with words
//!   ([`census`]). Data begin behind the label, at 1 MiB.
//! - **Separate** devices have no address space that a load could run on: a load is spread over them, each
//!   driven by threads of its own. As a [`Device`] they lie one after the other, in the order in which
//!   they were named, for whoever fills them or looks at their contents.
//!
//! A volume says where its bytes lie ([`storage::device::Spread`]), and the engines of `storage` send each piece
//! of a request straight to its member: one ring for all, so the cost of a request is that of one device.
//! A request is done when all of its pieces are. What fails is told with the member, the place on it and
//! the cause. Flushes and discards go to every member that they concern.
//!
//! A labelled volume may keep checksums ([`NewVolume::checksums`]). It has a spread like any other, but every request goes
//! through it, to be verified.
//!
//! There is no redundancy: what one member loses is lost to the volume.
//!
//! # For programs
//!
//! [`Volume`] is the whole of it: [`Volume::open`], then [`read_at`](Volume::read_at) and
//! [`write_at`](Volume::write_at), their vectored forms, and [`Volume::queue`] for many requests at once.
//!
//! ```
//! use volume::{DeviceSpec, NewVolume, OpenOptions, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::env::set_current_dir(&folder)?;
//! // Once, which is what `flashwright volume create --chunk=64k file:a?size=4m,file:b?size=4m` does:
//! let made = DeviceSpec::parse("volume:file:a?size=4m,file:b?size=4m")?;
//! volume::create(&made, &NewVolume { name: "scratch".to_owned(), ..NewVolume::default() }, &[])?;
//!
//! // Ever after, the members in any order:
//! let volume = Volume::open(&DeviceSpec::parse("volume:b,a")?, &OpenOptions::writing().buffered())?;
//! volume.write_at(b"a checkpoint", 1 << 20)?;
//! volume.sync()?;
//! let mut bytes = [0; 12];
//! volume.read_at(&mut bytes, 1 << 20)?;
//! assert_eq!(&bytes, b"a checkpoint");
//! # std::env::set_current_dir("/")?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod census;
mod create;
mod device;
mod error;
mod handle;
mod label;
mod map;
mod open;
mod queue;
mod session;
mod stripe;
mod sums;
mod sums_layout;
pub mod survey;
mod traces;

pub use census::{Candidate, Census, Fault, Flaw, called, census};
pub use create::{Mended, NewVolume, create, create_on, destroy, destroy_on, repair, repair_on};
pub use error::VolumeError;
pub use handle::Volume;
pub use label::{Epoch, Found, Label, LabelPosition, PLAIN_VERSION, State, VERSION};
pub use open::open;
pub use queue::{Completion, PartFailures, Queue, QueueError, QueueOptions, Ticket};
pub use storage::device::{Access, Device, DeviceSpec, OpenOptions};
pub use storage::uuid::Uuid;
pub use sums::{DataFinding, FindingKind, Mismatch, Progress, SumsLayout, SumsLimits};
pub use survey::DataCheck;
