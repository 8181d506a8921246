//! What a client asks for, in this order: TLS, structured replies, the metadata context, the export.

use super::HandshakeError;
use crate::export::{Context, ExportInfo};
use crate::tls::ClientTls;
use crate::transport::{Transport, drop_bytes, read_array};
use crate::wire::options::{self, ContextQuery, Greeting, Info, InfoRequest, ReplyHead};
use crate::wire::{
    BASE_ALLOCATION, CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, HANDSHAKE_FIXED_NEWSTYLE, HANDSHAKE_NO_ZEROES,
    TransmissionFlags, WireError, limits, said,
};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The export's name; empty for the default.
    pub export: String,
    /// See [`ConnectOptions`](super::ConnectOptions).
    pub structured: bool,
    /// See [`ConnectOptions`](super::ConnectOptions).
    pub allocation: bool,
    /// What TLS is put on with. Where there is some, nothing is done without TLS.
    pub tls: Option<ClientTls>,
}

/// What was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The export, with the contexts that were chosen.
    pub export: ExportInfo,
    /// Whether replies to reads come in chunks.
    pub structured: bool,
}

/// An export in a server's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What the server says of it; often nothing.
    pub description: String,
}

/// The handshake over anything; [`connect`](super::connect) is this over a socket, with time-outs.
///
/// # Errors
///
/// Those of [`connect`](super::connect).
pub fn handshake<T: Transport>(transport: &mut T, terms: &Terms) -> Result<Agreed, HandshakeError> {
    let mut client = Client::begin(transport, terms.tls.as_ref())?;
    match client.agree(terms) {
        Err(error) => Err(client.leave(error)),
        agreed => agreed,
    }
}

/// Asks for the list of exports, and takes leave.
///
/// # Errors
///
/// Those of [`list`](super::list()).
pub fn list_exports<T: Transport>(transport: &mut T, terms: &Terms) -> Result<Vec<Listed>, HandshakeError> {
    let mut client = Client::begin(transport, terms.tls.as_ref())?;
    let listed = client.list();
    client.abort();
    listed
}

/// The connection, with flags exchanged and TLS on.
struct Client<'a, T> {
    transport: &'a mut T,
    is_fixed: bool,
    no_zeroes: bool,
}

/// One reply to an option.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

impl<'a, T: Transport> Client<'a, T> {
    /// "Newstyle negotiation", and TLS.
    fn begin(transport: &'a mut T, tls: Option<&ClientTls>) -> Result<Self, HandshakeError> {
        let greeting = Greeting::parse(&read_array(transport)?).map_err(|error| {
            if options::is_oldstyle(&error) {
                HandshakeError::Oldstyle
            } else {
                HandshakeError::NotNbd(error)
            }
        })?;
        let is_fixed = greeting.flags & HANDSHAKE_FIXED_NEWSTYLE != 0;
        let no_zeroes = greeting.flags & HANDSHAKE_NO_ZEROES != 0;
        if tls.is_some() && !is_fixed {
            let why = "it has no fixed newstyle negotiation";
            return Err(HandshakeError::NoTls { why, said: String::new() });
        }
        let fixed = if is_fixed { CLIENT_FIXED_NEWSTYLE } else { 0 };
        let zeroes = if no_zeroes { CLIENT_NO_ZEROES } else { 0 };
        transport.write_all(&(fixed | zeroes).to_be_bytes())?;
        let mut client = Self { transport, is_fixed, no_zeroes };
        if let Some(tls) = tls {
            client.start_tls(tls)?;
        }
        Ok(client)
    }

    /// "`NBD_OPT_STARTTLS`": on with TLS or not at all.
    fn start_tls(&mut self, tls: &ClientTls) -> Result<(), HandshakeError> {
        self.ask(options::STARTTLS, &[])?;
        let reply = self.reply(options::STARTTLS)?;
        match reply.kind {
            options::REP_ACK if reply.data.is_empty() => {
                self.transport.secure_as_client(tls).map_err(HandshakeError::Tls)
            }
            kind if kind & options::REP_ERROR_BIT != 0 => {
                self.abort();
                Err(HandshakeError::NoTls { why: options::error_name(kind), said: said(&reply.data) })
            }
            _ => Err(unexpected(options::STARTTLS, "no acknowledgement")),
        }
    }

    fn ask(&mut self, option: u32, data: &[u8]) -> Result<(), HandshakeError> {
        self.transport.write_all(&options::option(option, data))?;
        Ok(self.transport.flush()?)
    }

    /// Reads one reply, which has to be to `option`.
    fn reply(&mut self, option: u32) -> Result<Reply, HandshakeError> {
        let head = ReplyHead::parse(&read_array(self.transport)?)?;
        if head.option != option {
            return Err(unexpected(option, "a reply to another option"));
        }
        let length = head.length as usize;
        // A text for a person may be cut; everything else is none if it is as long.
        let kept = if head.is_error() { length.min(limits::STRING) } else { length };
        if kept > limits::OPTION_REPLY || length > limits::OPTION_DROPPED {
            let limit = limits::OPTION_REPLY as u64;
            return Err(
                WireError::Limit { what: "a reply to an option", length: length as u64, limit }.into()
            );
        }
        let mut data = vec![0; kept];
        self.transport.read_exact(&mut data)?;
        drop_bytes(self.transport, (length - kept) as u64)?;
        Ok(Reply { kind: head.kind, data })
    }

    /// What ends the handshake when it cannot succeed: "the client … MUST use soft disconnect". Nobody is waited for.
    fn abort(&mut self) {
        if self.is_fixed {
            let _ = self.ask(options::ABORT, &[]);
        }
    }

    /// Takes leave because of `error`, politely where the server still listens.
    fn leave(&mut self, error: HandshakeError) -> HandshakeError {
        let listens = matches!(
            error,
            HandshakeError::NoExport { .. } | HandshakeError::Refused { .. } | HandshakeError::TlsRequired
        );
        if listens {
            self.abort();
        }
        error
    }

    fn agree(&mut self, terms: &Terms) -> Result<Agreed, HandshakeError> {
        if !self.is_fixed {
            return self.export_name(terms, false, Vec::new());
        }
        let structured = terms.structured && self.structured_reply()?;
        let contexts =
            if structured && terms.allocation { self.contexts(&terms.export)? } else { Vec::new() };
        match self.go(&terms.export)? {
            Some(mut export) => {
                export.contexts = contexts;
                checked(Agreed { export, structured })
            }
            None => self.export_name(terms, structured, contexts),
        }
    }

    /// `NBD_OPT_STRUCTURED_REPLY`: whether the server has them.
    fn structured_reply(&mut self) -> Result<bool, HandshakeError> {
        let option = options::STRUCTURED_REPLY;
        self.ask(option, &[])?;
        let reply = self.reply(option)?;
        match reply.kind {
            options::REP_ACK if reply.data.is_empty() => Ok(true),
            options::ERR_TLS_REQD => Err(HandshakeError::TlsRequired),
            options::ERR_SHUTDOWN => Err(refused(option, &reply)),
            kind if kind & options::REP_ERROR_BIT != 0 => Ok(false),
            _ => Err(unexpected(option, "no acknowledgement")),
        }
    }

    /// `NBD_OPT_SET_META_CONTEXT` for `base:allocation`: the contexts that the server has of it. A server that has none may
    /// say so with any error.
    fn contexts(&mut self, export: &str) -> Result<Vec<Context>, HandshakeError> {
        let option = options::SET_META_CONTEXT;
        self.ask(option, &ContextQuery::encode(export, &[BASE_ALLOCATION]))?;
        let mut contexts: Vec<Context> = Vec::new();
        loop {
            let reply = self.reply(option)?;
            match reply.kind {
                options::REP_META_CONTEXT => {
                    let (id, name) = options::parse_context(&reply.data)?;
                    if name != BASE_ALLOCATION || !contexts.is_empty() {
                        return Err(unexpected(option, "a context that was not asked for"));
                    }
                    contexts.push(Context { id, name: name.to_owned() });
                }
                options::REP_ACK if reply.data.is_empty() => return Ok(contexts),
                options::ERR_TLS_REQD => return Err(HandshakeError::TlsRequired),
                options::ERR_SHUTDOWN => return Err(refused(option, &reply)),
                kind if kind & options::REP_ERROR_BIT != 0 => return Ok(Vec::new()),
                _ => return Err(unexpected(option, "neither a context nor an acknowledgement")),
            }
        }
    }

    /// `NBD_OPT_GO`; nothing where the server does not know it.
    fn go(&mut self, name: &str) -> Result<Option<ExportInfo>, HandshakeError> {
        let option = options::GO;
        let wanted = [options::INFO_BLOCK_SIZE, options::INFO_NAME, options::INFO_DESCRIPTION];
        self.ask(option, &InfoRequest::encode(name, &wanted))?;
        let mut export = ExportInfo::new(name, 0, TransmissionFlags::default());
        let mut has_size = false;
        for _ in 0..limits::OPTION_REPLIES {
            let reply = self.reply(option)?;
            match reply.kind {
                options::REP_INFO => has_size |= note(&mut export, Info::parse(&reply.data)?),
                options::REP_ACK if !has_size => return Err(unexpected(option, "no size")),
                options::REP_ACK if reply.data.is_empty() => return Ok(Some(export)),
                options::ERR_UNSUP => return Ok(None),
                options::ERR_TLS_REQD => return Err(HandshakeError::TlsRequired),
                options::ERR_UNKNOWN => {
                    let said = said(&reply.data);
                    return Err(HandshakeError::NoExport { export: name.to_owned(), said });
                }
                kind if kind & options::REP_ERROR_BIT != 0 => return Err(refused(option, &reply)),
                _ => return Err(unexpected(option, "neither information nor an acknowledgement")),
            }
        }
        Err(unexpected(option, "information without end"))
    }

    /// `NBD_OPT_EXPORT_NAME`, for servers that know nothing newer.
    fn export_name(
        &mut self,
        terms: &Terms,
        structured: bool,
        contexts: Vec<Context>,
    ) -> Result<Agreed, HandshakeError> {
        self.ask(options::EXPORT_NAME, terms.export.as_bytes())?;
        let answer = read_array(self.transport).map_err(|error| match HandshakeError::from(error) {
            HandshakeError::Closed => HandshakeError::ClosedOnName { export: terms.export.clone() },
            error => error,
        })?;
        let (size, flags) = options::parse_export_name_answer(&answer);
        if !self.no_zeroes {
            drop_bytes(self.transport, options::ZEROES as u64)?;
        }
        let mut export = ExportInfo::new(&terms.export, size, flags);
        export.contexts = contexts;
        checked(Agreed { export, structured })
    }

    /// `NBD_OPT_LIST`.
    fn list(&mut self) -> Result<Vec<Listed>, HandshakeError> {
        let option = options::LIST;
        if !self.is_fixed {
            return Err(HandshakeError::Refused { option, error: options::ERR_UNSUP, said: String::new() });
        }
        self.ask(option, &[])?;
        let (mut listed, mut bytes) = (Vec::new(), 0);
        loop {
            let reply = self.reply(option)?;
            match reply.kind {
                options::REP_SERVER => {
                    bytes += reply.data.len();
                    if listed.len() == limits::LIST || bytes > limits::LIST_BYTES {
                        return Err(unexpected(option, "exports without end"));
                    }
                    let (name, description) = options::parse_server(&reply.data)?;
                    listed.push(Listed { name: name.to_owned(), description: said(description) });
                }
                options::REP_ACK => return Ok(listed),
                options::ERR_TLS_REQD => return Err(HandshakeError::TlsRequired),
                kind if kind & options::REP_ERROR_BIT != 0 => return Err(refused(option, &reply)),
                _ => return Err(unexpected(option, "neither an export nor an acknowledgement")),
            }
        }
    }
}

/// Takes down what a server says of an export; whether it was size and flags.
fn note(export: &mut ExportInfo, info: Info<'_>) -> bool {
    match info {
        Info::Export(size, flags) => {
            (export.size, export.flags) = (size, flags);
            return true;
        }
        Info::Name(name) => export.name = name.to_owned(),
        Info::Description(text) => export.description = Some(said(text)),
        Info::BlockSizes(sizes) => {
            export.minimum_block = sizes.minimum;
            export.preferred_block = sizes.preferred;
            export.maximum_block = sizes.maximum;
        }
        Info::Other(_) => {}
    }
    false
}

/// What was agreed on, if it can be true: the offsets of Linux are signed.
fn checked(agreed: Agreed) -> Result<Agreed, HandshakeError> {
    match i64::try_from(agreed.export.size) {
        Ok(_) => Ok(agreed),
        Err(_) => Err(WireError::Value { what: "the export's size", value: agreed.export.size }.into()),
    }
}

fn unexpected(option: u32, what: &'static str) -> HandshakeError {
    HandshakeError::Unexpected { option, what }
}

fn refused(option: u32, reply: &Reply) -> HandshakeError {
    HandshakeError::Refused { option, error: reply.kind, said: said(&reply.data) }
}
