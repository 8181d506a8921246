//! Models of drives behind [`crate::device::DeviceModel`].
//!
//! [`ssd`]: flash by its constants, without a map. [`disk`]: seek, rotation and zones. [`network`]: stations one behind the
//! other, which is remote memory, a file server, or a queue of the text books.

pub mod disk;
pub mod network;
pub mod ssd;
