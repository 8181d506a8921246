//! One option after another, until an export is chosen ("Fixed newstyle negotiation", "Option types").

use std::io;

use super::{Agreed, Context, ExportInfo, Exports, NegotiationError, Policy, TlsPolicy};
use crate::transport::{Transport, drop_bytes};
use crate::wire::options::{self, ContextQuery, Greeting, Info, InfoRequest};
use crate::wire::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, HANDSHAKE_FIXED_NEWSTYLE, HANDSHAKE_NO_ZEROES,
    TransmissionFlags, WireError, limits, text,
};

/// What options before have changed. All of it is forgotten when TLS begins.
#[derive(Debug, Default)]
struct State {
    options: u32,
    structured: bool,
    /// The export and the contexts of the last `NBD_OPT_SET_META_CONTEXT`.
    contexts: Option<(String, Vec<Context>)>,
}

/// The handshake over anything; [`negotiate`](super::negotiate) is this over a socket, with a time-out.
///
/// # Errors
///
/// Those of [`negotiate`](super::negotiate).
pub fn haggle<T: Transport>(
    transport: &mut T,
    policy: &Policy,
    exports: &dyn Exports,
) -> Result<Agreed, NegotiationError> {
    let greeting = Greeting { flags: HANDSHAKE_FIXED_NEWSTYLE | HANDSHAKE_NO_ZEROES };
    transport.write_all(&greeting.encode())?;
    let flags = u32::from_be_bytes(first(transport)?);
    if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
        return Err(NegotiationError::Flags(flags));
    }
    let mut haggler = Haggler {
        transport,
        policy,
        exports,
        is_fixed: flags & CLIENT_FIXED_NEWSTYLE != 0,
        no_zeroes: flags & CLIENT_NO_ZEROES != 0,
        state: State::default(),
    };
    loop {
        if let Some(agreed) = haggler.option()? {
            return Ok(agreed);
        }
    }
}

/// Reads a message's first bytes; an end before them is one between messages.
fn first<const N: usize>(transport: &mut impl Transport) -> Result<[u8; N], NegotiationError> {
    let mut bytes = [0; N];
    let had = loop {
        match transport.read(&mut bytes) {
            Ok(0) => return Err(NegotiationError::Closed),
            Ok(had) => break had,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(NegotiationError::Closed);
            }
            Err(error) => return Err(error.into()),
        }
    };
    transport.read_exact(&mut bytes[had..])?;
    Ok(bytes)
}

struct Haggler<'a, T> {
    transport: &'a mut T,
    policy: &'a Policy,
    exports: &'a dyn Exports,
    is_fixed: bool,
    no_zeroes: bool,
    state: State,
}

/// Replies to one option, sent with one call.
struct Replies {
    option: u32,
    bytes: Vec<u8>,
}

impl Replies {
    fn to(option: u32) -> Self {
        Self { option, bytes: Vec::new() }
    }

    fn with(mut self, kind: u32, data: &[u8]) -> Self {
        self.bytes.extend_from_slice(&options::reply(self.option, kind, data));
        self
    }

    /// The error that a message which cannot be understood gets.
    fn invalid(self, error: &WireError) -> Self {
        self.with(options::ERR_INVALID, error.to_string().as_bytes())
    }
}

impl<T: Transport> Haggler<'_, T> {
    /// Takes one option, and gives what was agreed on if it was the last.
    fn option(&mut self) -> Result<Option<Agreed>, NegotiationError> {
        let (option, length) = options::parse_option(&first::<{ options::OPTION_BYTES }>(self.transport)?)?;
        self.state.options += 1;
        if self.state.options > limits::OPTIONS {
            return Err(NegotiationError::TooMany);
        }
        if !self.is_fixed && option != options::EXPORT_NAME {
            return Err(NegotiationError::NotFixed(option));
        }
        let too_long = length as usize > limits::OPTION_DATA;
        if length as usize > limits::OPTION_DROPPED || too_long && option == options::EXPORT_NAME {
            return Err(NegotiationError::TooLong { option, length });
        }
        if option == options::ABORT {
            return self.abort(length);
        }
        let is_barred = self.is_barred();
        if is_barred && option == options::EXPORT_NAME {
            return Err(NegotiationError::WithoutTls);
        }
        if is_barred && option != options::STARTTLS {
            drop_bytes(self.transport, length.into())?;
            return self.send(Replies::to(option).with(options::ERR_TLS_REQD, b"TLS is required here"));
        }
        if self.exports.is_closing() {
            return self.closing(option, length);
        }
        if too_long {
            drop_bytes(self.transport, length.into())?;
            return self.send(Replies::to(option).with(options::ERR_TOO_BIG, b"too much data"));
        }
        let mut data = vec![0; length as usize];
        self.transport.read_exact(&mut data)?;
        self.answer(option, &data)
    }

    /// Whether nothing is to be had before TLS begins.
    fn is_barred(&self) -> bool {
        matches!(self.policy.tls, TlsPolicy::Required(_)) && !self.transport.is_secure()
    }

    fn answer(&mut self, option: u32, data: &[u8]) -> Result<Option<Agreed>, NegotiationError> {
        let replies = Replies::to(option);
        match option {
            options::EXPORT_NAME => self.export_name(data).map(Some),
            options::GO | options::INFO => self.information(replies, data),
            options::STARTTLS => self.start_tls(replies, data),
            options::STRUCTURED_REPLY if !data.is_empty() => self.unexpected_data(replies),
            options::STRUCTURED_REPLY => {
                self.state.structured = true;
                self.send(replies.with(options::REP_ACK, &[]))
            }
            options::LIST if !data.is_empty() => self.unexpected_data(replies),
            options::LIST => self.list(replies),
            options::LIST_META_CONTEXT | options::SET_META_CONTEXT => self.contexts(replies, data),
            _ => self.send(replies.with(options::ERR_UNSUP, b"the option is not known here")),
        }
    }

    fn send(&mut self, replies: Replies) -> Result<Option<Agreed>, NegotiationError> {
        self.transport.write_all(&replies.bytes)?;
        self.transport.flush()?;
        Ok(None)
    }

    fn unexpected_data(&mut self, replies: Replies) -> Result<Option<Agreed>, NegotiationError> {
        self.send(replies.with(options::ERR_INVALID, b"the option has no data"))
    }

    /// `NBD_OPT_ABORT`: "the server SHOULD gracefully handle the client sending an NBD_OPT_ABORT and closing the
    /// connection without waiting for a reply".
    fn abort(&mut self, length: u32) -> Result<Option<Agreed>, NegotiationError> {
        let _ = drop_bytes(self.transport, length.into());
        let _ = self.send(Replies::to(options::ABORT).with(options::REP_ACK, &[]));
        Err(NegotiationError::Aborted)
    }

    /// "If the server is in the process of being shut down it … SHOULD error further options".
    fn closing(&mut self, option: u32, length: u32) -> Result<Option<Agreed>, NegotiationError> {
        if option == options::EXPORT_NAME {
            return Err(NegotiationError::Closing);
        }
        drop_bytes(self.transport, length.into())?;
        self.send(Replies::to(option).with(options::ERR_SHUTDOWN, b"the server is ending"))
    }

    /// `NBD_OPT_STARTTLS`.
    fn start_tls(&mut self, replies: Replies, data: &[u8]) -> Result<Option<Agreed>, NegotiationError> {
        let tls = match &self.policy.tls {
            TlsPolicy::Never => {
                return self.send(replies.with(options::ERR_POLICY, b"there is no TLS here"));
            }
            TlsPolicy::Offered(tls) | TlsPolicy::Required(tls) => tls,
        };
        if !data.is_empty() {
            return self.unexpected_data(replies);
        }
        if self.transport.is_secure() {
            return self.send(replies.with(options::ERR_INVALID, b"there is TLS already"));
        }
        self.send(replies.with(options::REP_ACK, &[]))?;
        self.transport.secure_as_server(tls)?;
        self.state = State::default();
        Ok(None)
    }

    /// `NBD_OPT_LIST`.
    fn list(&mut self, mut replies: Replies) -> Result<Option<Agreed>, NegotiationError> {
        if !self.policy.list {
            return self.send(replies.with(options::ERR_POLICY, b"there is no list here"));
        }
        for (name, description) in self.exports.list() {
            replies = replies.with(options::REP_SERVER, &options::server(&name, &description));
        }
        self.send(replies.with(options::REP_ACK, &[]))
    }

    /// The export as this client has it.
    fn as_agreed(&self, mut export: ExportInfo) -> ExportInfo {
        export.flags = TransmissionFlags::of(export.flags.0);
        if !self.state.structured {
            export.flags = export.flags.without(TransmissionFlags::DF);
        }
        let chosen = self.state.contexts.as_ref().filter(|(name, _)| *name == export.name);
        export.contexts = chosen.map(|(_, contexts)| contexts.clone()).unwrap_or_default();
        export
    }

    /// `NBD_OPT_EXPORT_NAME`: no error can be told, so the connection ends instead.
    fn export_name(&mut self, data: &[u8]) -> Result<Agreed, NegotiationError> {
        let name = text("an export's name", data)?;
        let export = self.exports.find(name).ok_or(NegotiationError::UnknownExport)?;
        let export = self.as_agreed(export);
        let mut answer = options::export_name_answer(export.size, export.flags).to_vec();
        if !self.no_zeroes {
            answer.resize(answer.len() + options::ZEROES, 0);
        }
        self.transport.write_all(&answer)?;
        self.transport.flush()?;
        Ok(Agreed { export, structured: self.state.structured, sizes_are_known: false })
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`.
    fn information(&mut self, replies: Replies, data: &[u8]) -> Result<Option<Agreed>, NegotiationError> {
        let is_last = replies.option == options::GO;
        let request = match InfoRequest::parse(data) {
            Ok(request) => request,
            Err(error) => return self.send(replies.invalid(&error)),
        };
        let Some(export) = self.exports.find(request.name) else {
            return self.send(replies.with(options::ERR_UNKNOWN, b"there is no such export"));
        };
        let export = self.as_agreed(export);
        let mut replies = replies.with(options::REP_INFO, &Info::Export(export.size, export.flags).encode());
        if request.asks(options::INFO_NAME) || request.name != export.name {
            replies = replies.with(options::REP_INFO, &Info::Name(&export.name).encode());
        }
        if let Some(text) = &export.description
            && request.asks(options::INFO_DESCRIPTION)
        {
            replies = replies.with(options::REP_INFO, &Info::Description(text.as_bytes()).encode());
        }
        // Sent unasked as well, because a client that does not ask may still read it.
        let sizes = Info::BlockSizes(export.block_sizes());
        replies = replies.with(options::REP_INFO, &sizes.encode());
        self.send(replies.with(options::REP_ACK, &[]))?;
        let sizes_are_known = request.asks(options::INFO_BLOCK_SIZE);
        Ok(is_last.then_some(Agreed { export, structured: self.state.structured, sizes_are_known }))
    }

    /// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
    fn contexts(&mut self, mut replies: Replies, data: &[u8]) -> Result<Option<Agreed>, NegotiationError> {
        let is_choice = replies.option == options::SET_META_CONTEXT;
        if is_choice {
            // "Issuing this command replaces all previously-set metadata contexts (including when this command fails)".
            self.state.contexts = None;
        }
        if !self.state.structured {
            return self.send(replies.with(options::ERR_INVALID, b"structured replies come first"));
        }
        let query = match ContextQuery::parse(data) {
            Ok(query) => query,
            Err(error) => return self.send(replies.invalid(&error)),
        };
        let Some(export) = self.exports.find(query.name) else {
            return self.send(replies.with(options::ERR_UNKNOWN, b"there is no such export"));
        };
        let all = !is_choice && query.count == 0;
        let mut chosen = export.contexts;
        chosen.retain(|context| all || query.queries().any(|query| selects(query, &context.name, is_choice)));
        chosen.truncate(limits::CONTEXTS);
        for context in &chosen {
            let id = if is_choice { context.id } else { 0 };
            replies = replies.with(options::REP_META_CONTEXT, &options::context(id, &context.name));
        }
        if is_choice {
            self.state.contexts = Some((export.name, chosen));
        }
        self.send(replies.with(options::REP_ACK, &[]))
    }
}

/// Whether a query is for a context: by its name or, in a list, by its name space ("The `base:` metadata namespace").
fn selects(query: &str, context: &str, is_choice: bool) -> bool {
    let is_space = query.ends_with(':')
        && context.split_once(':').is_some_and(|(space, _)| query.strip_suffix(':') == Some(space));
    query == context || is_space && !is_choice
}
