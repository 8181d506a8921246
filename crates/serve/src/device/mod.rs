//! The conversation about a device: requests go to an engine as they come, and replies out as they complete.
//!
//! One thread, one engine and one set of buffers serve a connection. In each turn
//!
//! 1. what the client has sent is taken in, as long as there are idle slots: payloads straight into the buffers that
//!    the engine writes from;
//! 2. what was prepared is handed to the engine in one call, and what has completed is reaped;
//! 3. replies are sent, straight from the buffers that the engine read into, in the order in which their requests were
//!    completed;
//! 4. where none of this moved anything, the thread waits for the socket, the engine and the [slow lane](lane) at once.
//!
//! So a slow request delays nobody who does not need its slot. A request above [`SLOT`] is made in parts. A reply that
//! comes in chunks is sent part by part; one that must be whole (a simple reply, or `NBD_CMD_FLAG_DF`) is put together
//! first, so that a failure of its last part can still be told.
//!
//! What a client can make this side hold is the slots, [`GATHERED`] bytes of replies that are put together and one input
//! buffer; beyond that it is not read from.
//!
//! **Durability.** A write, discard or zeroing with FUA is followed by fdatasync(2) before its reply. A flush is an
//! fdatasync(2) of the device, which covers what was replied to on every connection, since all of them write through
//! descriptors of the same files.

mod intake;
mod lane;
mod output;
mod requests;
mod settle;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use nbd::wire::ErrorCode;
use storage::device::Device;
use storage::engine::{self, Engine, EngineConfig, IoEngine};

use self::lane::Lane;
use self::output::{Output, Piece};
use self::requests::{Pending, Requests};
use crate::error::Ending;
use crate::input::Input;
use crate::link::Link;
use crate::reply::Head;
use crate::terms::{Kind, Terms};

/// Slots of a connection's engine.
const SLOTS: u32 = 128;
/// Bytes of a slot.
const SLOT: u32 = 128 << 10;
/// Bytes of replies that may be put together at a time; one such reply is always allowed.
const GATHERED: u64 = 64 << 20;
/// Replies that may wait before more requests are taken in.
const BACKLOG: usize = 1024;
/// Payloads are received straight into a slot from this on; shorter ones with whatever comes around them.
const DIRECT: usize = 16 << 10;
/// How long to wait with requests in flight before looking at the engine unasked, for what it does not announce.
const LOOK: Duration = Duration::from_millis(50);
/// How long to wait otherwise, before looking whether anything moved at all.
const TICK: Duration = Duration::from_secs(1);
/// Most extents in one reply.
const EXTENTS: usize = 2048;

/// Who is told of requests that failed: the command's word, offset, length and cause.
pub(crate) type Told<'a> = &'a dyn Fn(&'static str, u64, u32, &dyn std::error::Error);

/// Holds a conversation about `device`, to its end.
pub(crate) fn hold(device: &Arc<dyn Device>, terms: &Terms, link: Link<'_>, told: Told<'_>) -> Ending {
    let config = EngineConfig { depth: SLOTS, slot_bytes: SLOT as usize, ..EngineConfig::default() };
    match engine::open(IoEngine::Auto, device, &config) {
        Ok((engine, _)) => {
            storage::on_engine!(engine, engine => Conversation::new(engine, terms, link, told).hold())
        }
        Err(error) => error.into(),
    }
}

/// What a slot is for at present.
#[derive(Debug, Clone, Copy)]
enum Use {
    /// Nothing, or a payload that is being received, or a reply on its way.
    Elsewhere,
    /// A part of a read or write: the request, and where in it the part begins.
    Part { id: usize, start: u32, length: u32 },
    /// The fdatasync(2) that a request ends with.
    Sync { id: usize },
}

/// The request that is being taken in.
#[derive(Debug, Clone, Copy)]
enum Intake {
    /// None: the next one may be looked at.
    Nothing,
    /// A read of which the parts from `next` on were not prepared yet.
    Read { id: usize, next: u32 },
    /// A write whose payload was received up to `next`, the last `filled` bytes of it into `slot`.
    Write { id: usize, next: u32, slot: Option<u32>, filled: u32 },
    /// The payload of a refused write.
    Drop { left: usize },
}

struct Conversation<'a, E> {
    engine: E,
    terms: &'a Terms,
    link: Link<'a>,
    told: Told<'a>,
    input: Input,
    intake: Intake,
    /// The socket may have more than was fetched.
    readable: bool,
    /// The client has closed its side, as the kernel has said while there was no room to read it.
    client_left: bool,
    uses: Vec<Use>,
    idle: Vec<u32>,
    requests: Requests,
    /// Requests that wait for a slot for their fdatasync(2).
    syncs: Vec<usize>,
    /// Something was prepared, or the engine has something to tell.
    call_engine: bool,
    output: Output,
    lane: Option<Lane>,
    /// Why no more requests are taken in.
    ending: Option<Ending>,
    completed: Vec<(u32, Option<ErrorCode>)>,
}

impl<'a, E: Engine> Conversation<'a, E> {
    fn new(mut engine: E, terms: &'a Terms, link: Link<'a>, told: Told<'a>) -> Self {
        let slots = engine.depth();
        // Some engines announce only what is asked of them from then on. Whether it can be had is seen when it is
        // waited for.
        let _ = engine.completion_fd();
        Self {
            terms,
            link,
            told,
            input: Input::new(),
            intake: Intake::Nothing,
            readable: true,
            client_left: false,
            uses: vec![Use::Elsewhere; slots as usize],
            idle: (0..slots).rev().collect(),
            requests: Requests::default(),
            syncs: Vec::new(),
            call_engine: false,
            output: Output::default(),
            lane: None,
            ending: None,
            completed: Vec::with_capacity(slots as usize),
            engine,
        }
    }

    fn hold(mut self) -> Ending {
        let ending = loop {
            match self.turn() {
                Ok(None) => {}
                Ok(Some(ending)) | Err(ending) => break ending,
            }
        };
        if matches!(ending, Ending::Stopped | Ending::Disconnected) {
            self.link.close();
        }
        ending
    }

    /// One turn; an ending where there is nothing left to do.
    fn turn(&mut self) -> Result<Option<Ending>, Ending> {
        if self.link.stop().is_due() && self.ending.is_none() && matches!(self.intake, Intake::Nothing) {
            self.ending = Some(Ending::Stopped);
        }
        if self.link.is_over() {
            self.abandon_lane();
        }
        let mut moved = self.take_in()?;
        moved |= self.drive()?;
        moved |= self.hear_lane();
        moved |= self.send()?;
        if self.ending.is_some() && self.requests.is_empty() && self.output.is_empty() {
            return Ok(self.ending.take());
        }
        if !moved {
            self.wait()?;
        }
        Ok(None)
    }

    pub(super) fn reply(&mut self, head: Head) {
        self.output.push(Piece::Head(head));
    }

    /// Makes the reply of a request that is over, or the last chunk of it.
    pub(super) fn finish(&mut self, id: usize) {
        let Some(pending) = self.requests.forget(id) else { return };
        let Pending { cookie, kind, offset, length, failed, gathered, .. } = pending;
        let chunked = self.terms.structured && matches!(kind, Kind::Read | Kind::BlockStatus);
        match (failed, kind) {
            (Some(code), _) => self.reply(Head::refusal(chunked, cookie, code)),
            (None, Kind::Read) => {
                self.reply(Head::whole(self.terms.structured, cookie, offset, length));
                self.output.push(Piece::Owned(gathered.unwrap_or_default()));
            }
            _ => self.reply(Head::simple(cookie, None)),
        }
    }

    pub(super) fn send(&mut self) -> Result<bool, Ending> {
        if self.output.is_empty() {
            return Ok(false);
        }
        let idle = &mut self.idle;
        let sent = self.output.send(&mut self.link.stream, &self.engine, |slot| idle.push(slot));
        match sent {
            Ok(bytes) => Ok(bytes > 0),
            Err(error) => Err(Ending::Io(error)),
        }
    }
}
