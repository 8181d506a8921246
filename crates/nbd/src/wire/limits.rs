//! How much is taken from a peer before it is told off.
//!
//! Each limit bounds an allocation, or a loop that a peer drives. They hold for both sides, and each is as large as
//! the protocol makes necessary or what is in the field uses, whichever is more.

/// Bytes of a string ("Conventions": "a string SHOULD be no larger than 4096 bytes").
pub const STRING: usize = 4096;

/// Bytes of an option's data that a server keeps. The longest that is of use is a name, and queries for metadata
/// contexts; one of them is known here.
pub const OPTION_DATA: usize = 16 << 10;

/// Bytes of an option's data that a server reads and drops, to answer `NBD_REP_ERR_TOO_BIG`. Who announces more is
/// cut off.
pub const OPTION_DROPPED: usize = 1 << 20;

/// Options of one session, before and after TLS each. Who asks for more is cut off ("Termination of the session
/// during option haggling": "if a server believes a client's behaviour constitutes a denial of service").
pub const OPTIONS: u32 = 64;

/// Bytes of a reply to an option that a client keeps: two strings and what is around them.
pub const OPTION_REPLY: usize = 2 * STRING + 64;

/// Replies to one option of a client's, but for a list.
pub const OPTION_REPLIES: usize = 64;

/// Exports in a list, and bytes of their names and descriptions together.
pub const LIST: usize = 4096;
/// See [`LIST`].
pub const LIST_BYTES: usize = 1 << 20;

/// Metadata contexts that one session has.
pub const CONTEXTS: usize = 16;

/// Bytes of data of one read or write where nothing else was agreed on ("Size constraints").
pub const DEFAULT_PAYLOAD: u32 = 32 << 20;

/// The largest minimum block ("Size constraints").
pub const MINIMUM_BLOCK: u32 = 64 << 10;

/// Extents in one chunk of `NBD_REPLY_TYPE_BLOCK_STATUS` ("Structured reply types").
pub const EXTENTS: usize = 1 << 20;
