//! Many devices as one, without a layer of the kernel's in between.
//!
//! - A **stripe** is RAID-0 in user space: chunk n of the volume lies on member n mod width, as its chunk
//!   n div width. That is where md's RAID-0 puts it on equal members, so what one has written the other
//!   reads. Of unequal members only as much is used as the smallest has, in whole chunks.
//! - **Separate** devices have no address space that a load could run on: a load is spread over them, each
//!   driven by threads of its own. As a [`Device`] they lie one after the other, in the order in which
//!   they were named, for whoever fills them or looks at their contents.
//!
//! A volume says where its bytes lie ([`storage::device::Spread`]), and the engines of `storage` send each piece
//! of a request straight to its member: one ring for all, so the cost of a request is that of one device.
//! A request is done when all of its pieces are. What fails is told with the member, the place on it and
//! the cause. Flushes and discards go to every member that they concern.
//!
//! There is no redundancy: what one member loses is lost to the volume. Nothing is stored on the members
//! but the data, so the order and the chunk must be given alike each time.
#![forbid(unsafe_code)]

mod census;
mod create;
mod device;
mod error;
mod label;
mod map;
mod open;
mod stripe;
mod uuid;

pub use census::{Candidate, Census, Fault, Flaw, called, census};
pub use create::{Mended, NewVolume, create, create_on, destroy, destroy_on, repair, repair_on};
pub use error::VolumeError;
pub use label::{Found, Label, Place, State, VERSION};
pub use open::open;
pub use storage::device::{Device, DeviceSpec, OpenOptions};
pub use uuid::Uuid;
