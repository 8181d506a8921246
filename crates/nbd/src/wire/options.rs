//! What is agreed on before the first request: "Newstyle negotiation", "Fixed newstyle negotiation", "Option types",
//! "Option reply types".

use super::{
    Fields, INIT_MAGIC, OLDSTYLE_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, TransmissionFlags, WireError,
    limits, text,
};

/// `NBD_OPT_EXPORT_NAME`.
pub const EXPORT_NAME: u32 = 1;
/// `NBD_OPT_ABORT`.
pub const ABORT: u32 = 2;
/// `NBD_OPT_LIST`.
pub const LIST: u32 = 3;
/// `NBD_OPT_STARTTLS`.
pub const STARTTLS: u32 = 5;
/// `NBD_OPT_INFO`.
pub const INFO: u32 = 6;
/// `NBD_OPT_GO`.
pub const GO: u32 = 7;
/// `NBD_OPT_STRUCTURED_REPLY`.
pub const STRUCTURED_REPLY: u32 = 8;
/// `NBD_OPT_LIST_META_CONTEXT`.
pub const LIST_META_CONTEXT: u32 = 9;
/// `NBD_OPT_SET_META_CONTEXT`.
pub const SET_META_CONTEXT: u32 = 10;

/// `NBD_REP_ACK`.
pub const REP_ACK: u32 = 1;
/// `NBD_REP_SERVER`.
pub const REP_SERVER: u32 = 2;
/// `NBD_REP_INFO`.
pub const REP_INFO: u32 = 3;
/// `NBD_REP_META_CONTEXT`.
pub const REP_META_CONTEXT: u32 = 4;
/// The bit that all errors have.
pub const REP_ERROR_BIT: u32 = 1 << 31;
/// `NBD_REP_ERR_UNSUP`.
pub const ERR_UNSUP: u32 = REP_ERROR_BIT | 1;
/// `NBD_REP_ERR_POLICY`.
pub const ERR_POLICY: u32 = REP_ERROR_BIT | 2;
/// `NBD_REP_ERR_INVALID`.
pub const ERR_INVALID: u32 = REP_ERROR_BIT | 3;
/// `NBD_REP_ERR_PLATFORM`.
pub const ERR_PLATFORM: u32 = REP_ERROR_BIT | 4;
/// `NBD_REP_ERR_TLS_REQD`.
pub const ERR_TLS_REQD: u32 = REP_ERROR_BIT | 5;
/// `NBD_REP_ERR_UNKNOWN`.
pub const ERR_UNKNOWN: u32 = REP_ERROR_BIT | 6;
/// `NBD_REP_ERR_SHUTDOWN`.
pub const ERR_SHUTDOWN: u32 = REP_ERROR_BIT | 7;
/// `NBD_REP_ERR_BLOCK_SIZE_REQD`.
pub const ERR_BLOCK_SIZE_REQD: u32 = REP_ERROR_BIT | 8;
/// `NBD_REP_ERR_TOO_BIG`.
pub const ERR_TOO_BIG: u32 = REP_ERROR_BIT | 9;

/// `NBD_INFO_EXPORT`.
pub const INFO_EXPORT: u16 = 0;
/// `NBD_INFO_NAME`.
pub const INFO_NAME: u16 = 1;
/// `NBD_INFO_DESCRIPTION`.
pub const INFO_DESCRIPTION: u16 = 2;
/// `NBD_INFO_BLOCK_SIZE`.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Bytes of a server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of an option without its data.
pub const OPTION_BYTES: usize = 16;
/// Bytes of a reply to an option without its data.
pub const REPLY_BYTES: usize = 20;
/// Bytes of the answer to `NBD_OPT_EXPORT_NAME`, without [`ZEROES`].
pub const EXPORT_NAME_BYTES: usize = 10;
/// Zeroes that follow it unless `NBD_FLAG_C_NO_ZEROES` was agreed on.
pub const ZEROES: usize = 124;

/// The word of an option, for messages.
#[must_use]
pub fn option_name(option: u32) -> &'static str {
    match option {
        EXPORT_NAME => "NBD_OPT_EXPORT_NAME",
        ABORT => "NBD_OPT_ABORT",
        LIST => "NBD_OPT_LIST",
        STARTTLS => "NBD_OPT_STARTTLS",
        INFO => "NBD_OPT_INFO",
        GO => "NBD_OPT_GO",
        STRUCTURED_REPLY => "NBD_OPT_STRUCTURED_REPLY",
        LIST_META_CONTEXT => "NBD_OPT_LIST_META_CONTEXT",
        SET_META_CONTEXT => "NBD_OPT_SET_META_CONTEXT",
        _ => "an unknown option",
    }
}

/// The word of an error that answers an option, for messages.
#[must_use]
pub fn error_name(kind: u32) -> &'static str {
    match kind {
        ERR_UNSUP => "NBD_REP_ERR_UNSUP",
        ERR_POLICY => "NBD_REP_ERR_POLICY",
        ERR_INVALID => "NBD_REP_ERR_INVALID",
        ERR_PLATFORM => "NBD_REP_ERR_PLATFORM",
        ERR_TLS_REQD => "NBD_REP_ERR_TLS_REQD",
        ERR_UNKNOWN => "NBD_REP_ERR_UNKNOWN",
        ERR_SHUTDOWN => "NBD_REP_ERR_SHUTDOWN",
        ERR_BLOCK_SIZE_REQD => "NBD_REP_ERR_BLOCK_SIZE_REQD",
        ERR_TOO_BIG => "NBD_REP_ERR_TOO_BIG",
        _ => "an unknown error",
    }
}

/// A server's first words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// `HANDSHAKE_*`.
    pub flags: u16,
}

impl Greeting {
    /// The greeting as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[0..8].copy_from_slice(&INIT_MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.flags.to_be_bytes());
        bytes
    }

    /// The greeting in `bytes`.
    ///
    /// # Errors
    ///
    /// They are another program's, or those of a server that knows the oldstyle negotiation only.
    pub fn parse(bytes: &[u8; GREETING_BYTES]) -> Result<Self, WireError> {
        let mut fields = Fields::new("a server's greeting", bytes);
        fields.magic(INIT_MAGIC)?;
        fields.magic(OPTION_MAGIC)?;
        Ok(Self { flags: fields.u16()? })
    }
}

/// Whether an error of [`Greeting::parse`] means a server of before nbd 2.9.17.
#[must_use]
pub fn is_oldstyle(error: &WireError) -> bool {
    matches!(error, WireError::Magic { found: OLDSTYLE_MAGIC, .. })
}

/// An option as bytes, with its data.
#[must_use]
pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OPTION_BYTES + data.len());
    bytes.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// The head of an option: its number, and bytes of data that follow.
///
/// # Errors
///
/// It does not begin with the magic number.
pub fn parse_option(bytes: &[u8; OPTION_BYTES]) -> Result<(u32, u32), WireError> {
    let mut fields = Fields::new("an option", bytes);
    fields.magic(OPTION_MAGIC)?;
    Ok((fields.u32()?, fields.u32()?))
}

/// A reply to an option as bytes, with its data.
#[must_use]
pub fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REPLY_BYTES + data.len());
    bytes.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// The head of a reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    /// The option that it answers.
    pub option: u32,
    /// `REP_*` or `ERR_*`.
    pub kind: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl ReplyHead {
    /// The head in `bytes`.
    ///
    /// # Errors
    ///
    /// It does not begin with the magic number.
    pub fn parse(bytes: &[u8; REPLY_BYTES]) -> Result<Self, WireError> {
        let mut fields = Fields::new("a reply to an option", bytes);
        fields.magic(OPTION_REPLY_MAGIC)?;
        Ok(Self { option: fields.u32()?, kind: fields.u32()?, length: fields.u32()? })
    }

    /// Whether it is an error.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        self.kind & REP_ERROR_BIT != 0
    }
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export.
    pub name: &'a str,
    /// What is asked for, as it was sent: two bytes each.
    requests: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// The data as bytes.
    #[must_use]
    pub fn encode(name: &str, requests: &[u16]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(6 + name.len() + 2 * requests.len());
        put_text(&mut bytes, name);
        bytes.extend_from_slice(&(requests.len() as u16).to_be_bytes());
        for request in requests {
            bytes.extend_from_slice(&request.to_be_bytes());
        }
        bytes
    }

    /// The data in `bytes`.
    ///
    /// # Errors
    ///
    /// Lengths in it are not those of what is there, or the name is no string.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("a request for information", bytes);
        let name = fields.counted_text("an export's name")?;
        let count = fields.u16()?;
        let requests = fields.bytes(2 * usize::from(count))?;
        fields.end()?;
        Ok(Self { name, requests })
    }

    /// Whether `kind` is asked for.
    #[must_use]
    pub fn asks(&self, kind: u16) -> bool {
        self.requests.chunks_exact(2).any(|request| request == kind.to_be_bytes())
    }
}

/// The data of `NBD_REP_INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Info<'a> {
    /// `NBD_INFO_EXPORT`: bytes, and flags.
    Export(u64, TransmissionFlags),
    /// `NBD_INFO_NAME`: the canonical name.
    Name(&'a str),
    /// `NBD_INFO_DESCRIPTION`: what the server says of it.
    Description(&'a [u8]),
    /// `NBD_INFO_BLOCK_SIZE`: see [`BlockSizes`].
    BlockSizes(BlockSizes),
    /// What is not known.
    Other(u16),
}

impl<'a> Info<'a> {
    /// The data as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        let mut kind = |kind: u16| bytes.extend_from_slice(&kind.to_be_bytes());
        match self {
            Self::Export(size, flags) => {
                kind(INFO_EXPORT);
                bytes.extend_from_slice(&size.to_be_bytes());
                bytes.extend_from_slice(&flags.0.to_be_bytes());
            }
            Self::Name(name) => {
                kind(INFO_NAME);
                bytes.extend_from_slice(name.as_bytes());
            }
            Self::Description(text) => {
                kind(INFO_DESCRIPTION);
                bytes.extend_from_slice(text);
            }
            Self::BlockSizes(sizes) => {
                kind(INFO_BLOCK_SIZE);
                for size in [sizes.minimum, sizes.preferred, sizes.maximum] {
                    bytes.extend_from_slice(&size.to_be_bytes());
                }
            }
            Self::Other(other) => kind(*other),
        }
        bytes
    }

    /// The data in `bytes`.
    ///
    /// # Errors
    ///
    /// It is not as long as its type has it, or a size is none that a server may have.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("information on an export", bytes);
        let info = match fields.u16()? {
            INFO_EXPORT => Self::Export(fields.u64()?, TransmissionFlags(fields.u16()?)),
            INFO_NAME => return Ok(Self::Name(text("an export's name", fields.rest())?)),
            INFO_DESCRIPTION => return Ok(Self::Description(fields.rest())),
            INFO_BLOCK_SIZE => {
                let sizes =
                    BlockSizes { minimum: fields.u32()?, preferred: fields.u32()?, maximum: fields.u32()? };
                sizes.check()?;
                Self::BlockSizes(sizes)
            }
            other => return Ok(Self::Other(other)),
        };
        fields.end()?;
        Ok(info)
    }
}

/// What sizes requests have: "Size constraints".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// What offset and length are multiples of: a power of two up to 64 KiB.
    pub minimum: u32,
    /// What does well: a power of two, at least 512 and the minimum.
    pub preferred: u32,
    /// The most data of one request; `u32::MAX` where there is no limit.
    pub maximum: u32,
}

impl Default for BlockSizes {
    /// Those of a server that says nothing.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: limits::DEFAULT_PAYLOAD }
    }
}

impl BlockSizes {
    /// Whether they are as the protocol has them.
    pub fn check(&self) -> Result<(), WireError> {
        let wrong = |what, value: u32| Err(WireError::Value { what, value: value.into() });
        if !self.minimum.is_power_of_two() || self.minimum > limits::MINIMUM_BLOCK {
            return wrong("the minimum block size", self.minimum);
        }
        if !self.preferred.is_power_of_two() || self.preferred < self.minimum.max(512) {
            return wrong("the preferred block size", self.preferred);
        }
        if self.maximum < self.preferred {
            return wrong("the maximum payload size", self.maximum);
        }
        Ok(())
    }
}

/// The data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextQuery<'a> {
    /// The export.
    pub name: &'a str,
    /// How many queries there are.
    pub count: u32,
    queries: &'a [u8],
}

impl<'a> ContextQuery<'a> {
    /// The data as bytes.
    #[must_use]
    pub fn encode(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, name);
        bytes.extend_from_slice(&(queries.len() as u32).to_be_bytes());
        for query in queries {
            put_text(&mut bytes, query);
        }
        bytes
    }

    /// The data in `bytes`, checked to the end.
    ///
    /// # Errors
    ///
    /// Lengths in it are not those of what is there, the name or a query is no string, or a query has no namespace.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("a query for metadata contexts", bytes);
        let name = fields.counted_text("an export's name")?;
        let count = fields.u32()?;
        let queries = fields.rest();
        let mut left = Fields::new("a query for metadata contexts", queries);
        // Each takes four bytes at least, so a count that is too large ends at the end of what is there.
        for _ in 0..count {
            let query = left.counted_text("a query")?;
            if !query.contains(':') {
                return Err(WireError::Text { what: "a query without a namespace" });
            }
        }
        left.end()?;
        Ok(Self { name, count, queries })
    }

    /// The queries.
    pub fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut left = Fields::new("a query", self.queries);
        (0..self.count).map_while(move |_| left.counted_text("a query").ok())
    }
}

/// The data of `NBD_REP_META_CONTEXT`.
#[must_use]
pub fn context(id: u32, name: &str) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// The identity and name in the data of `NBD_REP_META_CONTEXT`.
///
/// # Errors
///
/// It is shorter than an identity, or the name is no string.
pub fn parse_context(bytes: &[u8]) -> Result<(u32, &str), WireError> {
    let mut fields = Fields::new("a metadata context", bytes);
    let id = fields.u32()?;
    Ok((id, text("a metadata context's name", fields.rest())?))
}

/// The data of `NBD_REP_SERVER`.
#[must_use]
pub fn server(name: &str, description: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + name.len() + description.len());
    put_text(&mut bytes, name);
    bytes.extend_from_slice(description.as_bytes());
    bytes
}

/// The name and the description in the data of `NBD_REP_SERVER`.
///
/// # Errors
///
/// The name is longer than what is there, or no string.
pub fn parse_server(bytes: &[u8]) -> Result<(&str, &[u8]), WireError> {
    let mut fields = Fields::new("an export in a list", bytes);
    let name = fields.counted_text("an export's name")?;
    Ok((name, fields.rest()))
}

/// The answer to `NBD_OPT_EXPORT_NAME`, without zeroes.
#[must_use]
pub fn export_name_answer(size: u64, flags: TransmissionFlags) -> [u8; EXPORT_NAME_BYTES] {
    let mut bytes = [0; EXPORT_NAME_BYTES];
    bytes[0..8].copy_from_slice(&size.to_be_bytes());
    bytes[8..10].copy_from_slice(&flags.0.to_be_bytes());
    bytes
}

/// Size and flags in the answer to `NBD_OPT_EXPORT_NAME`.
#[must_use]
pub fn parse_export_name_answer(bytes: &[u8; EXPORT_NAME_BYTES]) -> (u64, TransmissionFlags) {
    let [s0, s1, s2, s3, s4, s5, s6, s7, f0, f1] = *bytes;
    let size = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    (size, TransmissionFlags(u16::from_be_bytes([f0, f1])))
}

/// A string with its length in 32 bits before it.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_begins_with_the_two_magic_words() {
        let bytes = Greeting { flags: 3 }.encode();
        assert_eq!(&bytes[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(Greeting::parse(&bytes), Ok(Greeting { flags: 3 }));
    }

    #[test]
    fn an_oldstyle_server_is_told_from_another_program() {
        let mut bytes = Greeting { flags: 0 }.encode();
        bytes[8..16].copy_from_slice(&OLDSTYLE_MAGIC.to_be_bytes());
        assert!(is_oldstyle(&Greeting::parse(&bytes).unwrap_err()));
        let error = Greeting::parse(b"SSH-2.0-OpenSSH_9.").unwrap_err();
        assert!(!is_oldstyle(&error), "{error}");
    }

    #[test]
    fn what_is_asked_for_is_found_again() {
        let bytes = InfoRequest::encode("disk", &[INFO_BLOCK_SIZE, INFO_NAME]);
        let request = InfoRequest::parse(&bytes).unwrap();
        assert_eq!(request.name, "disk");
        assert!(request.asks(INFO_BLOCK_SIZE) && request.asks(INFO_NAME) && !request.asks(INFO_DESCRIPTION));
        for length in 0..bytes.len() {
            assert!(InfoRequest::parse(&bytes[..length]).is_err(), "cut at {length}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(matches!(InfoRequest::parse(&longer), Err(WireError::Long { bytes: 1, .. })));
    }

    #[test]
    fn every_information_survives_the_way() {
        let sizes = BlockSizes { minimum: 512, preferred: 4096, maximum: u32::MAX };
        for info in [
            Info::Export(1 << 50, TransmissionFlags::of(TransmissionFlags::FUA)),
            Info::Name("näme"),
            Info::Description(b"eight nodes"),
            Info::BlockSizes(sizes),
            Info::Other(99),
        ] {
            assert_eq!(Info::parse(&info.encode()), Ok(info));
        }
        assert!(Info::parse(&[0]).is_err());
        assert!(Info::parse(&Info::Export(1, TransmissionFlags(1)).encode()[..11]).is_err());
    }

    #[test]
    fn block_sizes_that_no_server_may_have_are_refused() {
        for (minimum, preferred, maximum) in [
            (0, 4096, 1 << 20),
            (3, 4096, 1 << 20),
            (1 << 17, 1 << 17, 1 << 20),
            (1, 256, 1 << 20),
            (4096, 512, 1 << 20),
            (1, 4096, 4095),
            (512, 4095, 1 << 20),
        ] {
            let sizes = BlockSizes { minimum, preferred, maximum };
            assert!(Info::parse(&Info::BlockSizes(sizes).encode()).is_err(), "{sizes:?}");
        }
        assert_eq!(BlockSizes::default().check(), Ok(()));
    }

    #[test]
    fn queries_are_checked_to_their_end() {
        let bytes = ContextQuery::encode("disk", &["base:allocation", "x-own:what:ever"]);
        let query = ContextQuery::parse(&bytes).unwrap();
        assert_eq!(query.queries().collect::<Vec<_>>(), ["base:allocation", "x-own:what:ever"]);
        for length in 0..bytes.len() {
            assert!(ContextQuery::parse(&bytes[..length]).is_err(), "cut at {length}");
        }
        assert!(ContextQuery::parse(&ContextQuery::encode("", &["no namespace"])).is_err());
        let mut many = ContextQuery::encode("", &[]);
        many[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(ContextQuery::parse(&many).is_err());
    }

    #[test]
    fn lists_and_contexts_survive_the_way() {
        assert_eq!(parse_server(&server("disk", "a drive")), Ok(("disk", &b"a drive"[..])));
        assert_eq!(parse_context(&context(7, BASE)), Ok((7, BASE)));
        assert!(parse_context(&[0, 0, 0]).is_err());
        assert!(parse_server(&[0, 0, 0, 1]).is_err());
        let flags = TransmissionFlags::of(TransmissionFlags::TRIM);
        assert_eq!(parse_export_name_answer(&export_name_answer(1 << 40, flags)), (1 << 40, flags));
    }

    const BASE: &str = crate::wire::BASE_ALLOCATION;
}
