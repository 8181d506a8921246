//! What a server says of an export.

use crate::wire::TransmissionFlags;
use crate::wire::options::BlockSizes;

/// An export, as it is agreed on between a server and a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name, which may be empty.
    pub name: String,
    /// What the server says of it to a person.
    pub description: Option<String>,
    /// Bytes.
    pub size: u64,
    /// What may be asked of it ("Transmission flags").
    pub flags: TransmissionFlags,
    /// What offsets and lengths are multiples of, bytes ("Size constraints"); 1 where the server says nothing.
    pub minimum_block: u32,
    /// What does well, bytes; 4096 where the server says nothing.
    pub preferred_block: u32,
    /// The most data of one read or write, bytes: 32 MiB where the server says nothing, `u32::MAX` where it says that there
    /// is no limit.
    pub maximum_block: u32,
    /// Metadata contexts: on a server those that there are, in what was agreed on those that were chosen.
    pub contexts: Vec<Context>,
}

/// A metadata context and the number by which replies name it ("Metadata querying").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The number in `NBD_REPLY_TYPE_BLOCK_STATUS`.
    pub id: u32,
    /// `base:allocation`, or another.
    pub name: String,
}

impl ExportInfo {
    /// An export of a size and of what can be asked of it, with the sizes that hold where nothing is said.
    #[must_use]
    pub fn new(name: &str, size: u64, flags: TransmissionFlags) -> Self {
        let BlockSizes { minimum, preferred, maximum } = BlockSizes::default();
        Self {
            name: name.to_owned(),
            description: None,
            size,
            flags,
            minimum_block: minimum,
            preferred_block: preferred,
            maximum_block: maximum,
            contexts: Vec::new(),
        }
    }

    /// The sizes of requests.
    #[must_use]
    pub fn block_sizes(&self) -> BlockSizes {
        BlockSizes {
            minimum: self.minimum_block,
            preferred: self.preferred_block,
            maximum: self.maximum_block,
        }
    }

    /// The number of the context of that name.
    #[must_use]
    pub fn context(&self, name: &str) -> Option<u32> {
        self.contexts.iter().find(|context| context.name == name).map(|context| context.id)
    }
}
