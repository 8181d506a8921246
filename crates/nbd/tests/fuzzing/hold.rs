//! Holds a conversation, and looks at what came of it.

use nbd::client::{self, HandshakeError, Terms};
use nbd::server::{self, Context, ExportInfo, Exports, Policy, TlsPolicy};
use nbd::wire::options;
use nbd::wire::reply::{self, Head, Payload};
use nbd::wire::{BASE_ALLOCATION, Request, TransmissionFlags, limits, request};

use super::memory::Memory;
use super::random::Random;
use super::{Fuzzer, grammar, most_held};

/// What a read asks for at most, in this fuzzer.
const ASKED: u32 = 600;

/// What a handshake may hold at a time, bytes: the longest message of the other side, and what is made of it, or
/// answered to it, while that is no longer.
const SERVER: usize = 4 * limits::OPTION_DATA;
const CLIENT: usize = 8 * limits::OPTION_REPLY;
/// A list: its text, and an entry of 64 bytes for each export while their number doubles.
const LISTED: usize = CLIENT + 2 * limits::LIST_BYTES + 3 * 64 * limits::LIST;

fn within(held: usize, limit: usize) -> Result<(), String> {
    if held <= limit { Ok(()) } else { Err(format!("{held} bytes held at once, above the limit of {limit}")) }
}

struct Disk;

impl Exports for Disk {
    fn list(&self) -> Vec<(String, String)> {
        vec![("disk".into(), "what it is".into()), ("näme".into(), String::new())]
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let flags = TransmissionFlags::of(TransmissionFlags::DF | TransmissionFlags::FLUSH);
        let mut export = ExportInfo::new(if name.is_empty() { "disk" } else { name }, 1 << 20, flags);
        export.contexts = vec![Context { id: 7, name: BASE_ALLOCATION.into() }];
        matches!(name, "" | "disk" | "näme").then_some(export)
    }
}

/// The word by which outcomes of a kind are counted: what stands before values.
fn kind(error: &dyn std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    let end = text.find(['{', '(']).unwrap_or(text.len());
    text[..end].trim().to_owned()
}

fn holds(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

impl Fuzzer {
    /// One conversation with a client; its outcome's word.
    pub(super) fn server(&self, mut random: Random) -> Result<String, String> {
        let tls = match random.below(3) {
            0 => TlsPolicy::Never,
            1 => TlsPolicy::Offered(self.server_tls.clone()),
            _ => TlsPolicy::Required(self.server_tls.clone()),
        };
        let is_required = matches!(tls, TlsPolicy::Required(_));
        let policy = Policy { tls, list: !random.one_in(4), ..Policy::default() };
        let script = grammar::client(&mut random);
        let limit = self.limit.unwrap_or(limits::OPTION_DATA);
        let mut memory = Memory::new(script, limit, random.pick(&[1, 7, 4096, usize::MAX]));
        let (agreed, held) = most_held(|| server::haggle(&mut memory, &policy, &Disk));
        if let Some(finding) = memory.finding.take() {
            return Err(finding);
        }
        within(held, SERVER)?;
        let agreed = match agreed {
            Ok(agreed) => agreed,
            Err(error) => return Ok(kind(&error)),
        };
        holds(!is_required || memory.is_secure, "an export without the TLS that is required")?;
        holds(!agreed.export.flags.df() || agreed.structured, "DF without chunks")?;
        holds(agreed.export.contexts.is_empty() || agreed.structured, "contexts without chunks")?;
        let asked = options::option(options::STRUCTURED_REPLY, &[]);
        holds(
            !agreed.structured || contains(memory.taken(), &asked),
            "chunks that were not asked for since TLS began",
        )?;
        holds(
            agreed.export.contexts.is_empty() || contains(memory.taken(), BASE_ALLOCATION.as_bytes()),
            "a context that was not asked for",
        )?;
        requests(&memory.rest())?;
        Ok("agreed".into())
    }

    /// One conversation with a server; its outcome's word.
    pub(super) fn client(&self, mut random: Random) -> Result<String, String> {
        let (wants_tls, lists) = (random.one_in(3), random.one_in(4));
        let script = grammar::server(&mut random, wants_tls, lists);
        let limit = self.limit.unwrap_or(limits::OPTION_REPLY);
        let mut memory = Memory::new(script, limit, random.pick(&[1, 7, 4096, usize::MAX]));
        let tls = wants_tls.then(|| self.client_tls.clone());
        let terms = Terms { export: "disk".into(), structured: true, allocation: true, tls };
        let (outcome, held) = most_held(|| {
            if lists {
                return client::list_exports(&mut memory, &terms).map(|listed| {
                    let bytes: usize = listed.iter().map(|export| export.name.len()).sum();
                    if listed.len() > limits::LIST || bytes > limits::LIST_BYTES {
                        return Err("a list above the limit".to_owned());
                    }
                    Ok("listed")
                });
            }
            client::handshake(&mut memory, &terms).map(|agreed| agreement(&agreed).map(|()| "agreed"))
        });
        if let Some(finding) = memory.finding.take() {
            return Err(finding);
        }
        within(held, if lists { LISTED } else { CLIENT })?;
        if wants_tls {
            discreet(&memory.said)?;
        }
        match outcome {
            Ok(word) => {
                holds(!wants_tls || memory.is_secure, "no TLS for who wants it")?;
                let word = word?;
                replies(&memory.rest())?;
                Ok(word.into())
            }
            Err(HandshakeError::Refused { .. }) => Ok("Refused".into()),
            Err(error) => Ok(kind(&error)),
        }
    }
}

/// That flags, STARTTLS and a good-bye are all that was said in the clear.
fn discreet(said: &[u8]) -> Result<(), String> {
    let options = [options::option(options::STARTTLS, &[]), options::option(options::ABORT, &[])].concat();
    let said = said.get(4..).unwrap_or_default();
    holds(options.starts_with(said), "something said before TLS began")
}

fn agreement(agreed: &client::Agreed) -> Result<(), String> {
    let export = &agreed.export;
    holds(export.size <= i64::MAX as u64, "a size that no offset reaches")?;
    holds(export.block_sizes().check().is_ok(), "sizes that the protocol does not have")?;
    holds(export.name.len() <= limits::STRING, "a name above the limit")?;
    holds(export.contexts.len() <= 1, "contexts that were not asked for")?;
    holds(export.contexts.is_empty() || agreed.structured, "contexts without chunks")?;
    let text = export.description.as_deref().unwrap_or_default();
    // Each byte that is no text becomes a character of three.
    holds(text.len() <= 3 * limits::STRING, "a description above the limit")?;
    holds(!text.chars().any(char::is_control), "a description that moves the cursor")
}

/// What comes after the handshake on the server's side, until it is no request.
fn requests(mut bytes: &[u8]) -> Result<(), String> {
    while let Ok(asked) = Request::parse(bytes) {
        holds(asked.encode() == bytes[..request::BYTES], "a request that is another when encoded again")?;
        let Some(rest) = bytes[request::BYTES..].get(asked.payload() as usize..) else { break };
        bytes = rest;
    }
    Ok(())
}

/// What comes after the handshake on the client's side, until it is no reply.
fn replies(mut bytes: &[u8]) -> Result<(), String> {
    while let Ok(Some((head, length))) = Head::parse(bytes) {
        bytes = &bytes[length..];
        let chunk = match head {
            Head::Simple(_) => continue,
            Head::Chunk(chunk) => chunk,
        };
        if chunk.check(ASKED).is_err() {
            break;
        }
        let most = (ASKED as usize + 8).max(4 + 8 * limits::EXTENTS);
        holds(chunk.length as usize <= most, "a chunk above the limit")?;
        let Some((body, rest)) = bytes.split_at_checked(chunk.length as usize) else { break };
        let Ok(payload) = Payload::parse(&chunk, body) else { break };
        let again = match &payload {
            Payload::Data(at, data) => {
                [&reply::data_head(chunk.cookie, *at, data.len() as u32, true)[reply::CHUNK_BYTES..], data]
                    .concat()
            }
            Payload::Hole(at, count) => {
                reply::hole(chunk.cookie, *at, *count, true)[reply::CHUNK_BYTES..].to_vec()
            }
            Payload::Status(context, extents) => {
                let extents: Vec<(u32, u32)> = extents.iter().collect();
                reply::block_status(chunk.cookie, *context, &extents)[reply::CHUNK_BYTES..].to_vec()
            }
            Payload::None | Payload::Error(..) => body.to_vec(),
        };
        holds(again == body, "a chunk that is another when encoded again")?;
        bytes = rest;
    }
    Ok(())
}
