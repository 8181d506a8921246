//! The connections of one user to one or several exports: what is sent where, waited for how long, and what
//! becomes of it when a connection is lost.
//!
//! A request goes to the connection of its export that has the fewest under way. As that is usually the one whose
//! replies were just taken, a batch of replies is followed by one batch of requests on the same connection.
//!
//! A connection that is lost is made anew by a thread of its own, with pauses that grow, for as long as the export's
//! `timeout`. What was under way on it goes to the export's other connections, or waits. When the last connection of an
//! export is lost and none is had again in time the *host is dead*: everything fails that was asked of it, and
//! everything that will be, at once. Its patience begins anew only with an answer, so that a server that accepts
//! connections and drops them does not keep anyone waiting for ever; and a request that was under way on
//! six connections which broke is given up, should it be what breaks them.
//!
//! A connection on which requests are under way and that is silent for `timeout` is given up; requests as old as that
//! fail. So does any request, on a connection however busy, after ten times as long.

mod loss;
mod mailbox;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nbd::client::Session;

use self::loss::LOOK;
use self::mailbox::Mailbox;
use super::durability::{Handle, Lost};
use super::link::{Broken, Connection};
use super::replies::Over;
use super::table::{Call, Command, Table};
use super::waiter::{Event, Waiter};
use super::{Remote, RemoteError};

/// A request that was sent as often is sent alone, so that of several which a connection broke over the one at fault is
/// found out.
const SUSPECT: u8 = 3;
/// How long answers are waited for when a fleet is dropped.
const GRACE: Duration = Duration::from_secs(1);
/// No connection: of a request that waits for one.
const NOWHERE: u32 = u32::MAX;

/// Connections to exports, and requests under way. See the module's argument.
#[derive(Debug)]
pub(crate) struct Fleet {
    hosts: Vec<Host>,
    links: Vec<Link>,
    table: Table,
    /// Places in the table for each id: requests above the server's maximum are sent in pieces.
    pieces: u32,
    /// By id, where there are pieces.
    parts: Box<[Part]>,
    waiter: Waiter,
    mailbox: Arc<Mailbox>,
    /// Links that may have something to send.
    to_send: Vec<u32>,
    over: Vec<Over>,
    found: Vec<Event>,
    /// Results by id: bytes transferred, or `-errno`.
    pub finished: VecDeque<(u32, i64)>,
    /// What errors mean, where a number is not all there is to say.
    reasons: Vec<(u32, Arc<RemoteError>)>,
    outstanding: u32,
    epoch: Instant,
    /// Milliseconds since the epoch, as of the last look at the clock.
    now: u32,
    next_look: u32,
}

/// The pieces of one id.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    remaining: u32,
    transferred: i64,
    failed: i64,
}

#[derive(Debug)]
struct Host {
    remote: Arc<Remote>,
    handle: Arc<Handle>,
    /// Its links: the first, and how many.
    first: u32,
    count: u32,
    up: u32,
    /// Since when there is no connection that answered.
    lost_since: Option<u32>,
    dead: Option<Arc<RemoteError>>,
    /// Requests without a connection, oldest first.
    waiting: VecDeque<u32>,
}

#[derive(Debug)]
struct Link {
    host: u32,
    state: State,
    in_flight: u32,
    /// When anything last went right on it.
    heard: u32,
    /// What is under way on it is to be alone.
    alone: bool,
    /// Connections in a row that were lost before anything was answered on them.
    fruitless: u32,
}

#[derive(Debug)]
enum State {
    Up(Box<Connection>),
    /// A thread is at it, and why it is needed.
    Lost(String),
    /// It could not be had again.
    Gone,
}

impl Fleet {
    /// Connects to every export, for requests of up to `longest` bytes under `ids` ids, of which `depth` are under way
    /// at a time.
    ///
    /// # Errors
    /// [`RemoteError`] of the export at fault.
    pub fn connect(
        remotes: &[(Arc<Remote>, Arc<Handle>)],
        depth: u32,
        ids: u32,
        longest: u64,
    ) -> Result<Self, Arc<RemoteError>> {
        let local = |operation| {
            let host = remotes.first().map_or_else(String::new, |(remote, _)| remote.host().to_owned());
            move |source| Arc::new(RemoteError::Local { host, operation, source })
        };
        let waiter = Waiter::new().map_err(local("epoll_create1"))?;
        let pieces = remotes.iter().map(|(remote, _)| longest.div_ceil(u64::from(remote.maximum()))).max();
        let pieces = pieces.unwrap_or(1).max(1) as u32;
        let places = ids.checked_mul(pieces).filter(|places| *places < NOWHERE);
        let places = places.ok_or_else(|| {
            local("iodepth times bs comes to too many requests")(io::ErrorKind::InvalidInput.into())
        })?;
        let bell = waiter.bell();
        let mut fleet = Self {
            hosts: Vec::new(),
            links: Vec::new(),
            table: Table::new(places),
            pieces,
            parts: if pieces > 1 { vec![Part::default(); ids as usize] } else { Vec::new() }.into(),
            waiter,
            mailbox: Arc::new(Mailbox { mail: Mutex::default(), stopped: Condvar::new(), bell }),
            to_send: Vec::new(),
            over: Vec::with_capacity(256),
            found: Vec::with_capacity(64),
            finished: VecDeque::with_capacity(ids as usize),
            reasons: Vec::new(),
            outstanding: 0,
            epoch: Instant::now(),
            now: 0,
            next_look: LOOK,
        };
        for (remote, handle) in remotes {
            fleet.add(remote, handle, remote.connections().clamp(1, depth.max(1)))?;
        }
        fleet.to_send.reserve(fleet.links.len());
        Ok(fleet)
    }

    fn add(
        &mut self,
        remote: &Arc<Remote>,
        handle: &Arc<Handle>,
        count: u32,
    ) -> Result<(), Arc<RemoteError>> {
        let (host, first) = (self.hosts.len() as u32, self.links.len() as u32);
        self.hosts.push(Host {
            handle: Arc::clone(handle),
            remote: Arc::clone(remote),
            first,
            count,
            up: 0,
            lost_since: None,
            dead: None,
            waiting: VecDeque::new(),
        });
        for _ in 0..count {
            let session = remote.session().map_err(Arc::new)?;
            self.links.push(Link {
                host,
                state: State::Gone,
                in_flight: 0,
                heard: 0,
                alone: false,
                fruitless: 0,
            });
            self.install(self.links.len() as u32 - 1, session).map_err(Arc::new)?;
        }
        Ok(())
    }

    /// Puts a connection to use.
    fn install(&mut self, link: u32, session: Session) -> Result<(), RemoteError> {
        let host = &mut self.hosts[self.links[link as usize].host as usize];
        let local =
            |operation, source| RemoteError::Local { host: host.remote.host().to_owned(), operation, source };
        session.stream.set_nonblocking(true).map_err(|e| local("make the socket non-blocking", e))?;
        let connection = Connection::new(session, link);
        self.waiter.add(connection.fd(), link).map_err(|e| local("epoll_ctl", e))?;
        host.up += 1;
        let link = &mut self.links[link as usize];
        link.state = State::Up(Box::new(connection));
        link.alone = false;
        link.in_flight = 0;
        link.heard = self.now;
        Ok(())
    }

    /// Export `host`.
    pub fn remote(&self, host: u32) -> &Remote {
        &self.hosts[host as usize].remote
    }

    /// What is readable while there is something to be dealt with.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.waiter.fd()
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Pieces that began and are not over.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Begins a request; it is sent by the next [`transmit`](Self::transmit).
    ///
    /// # Safety
    /// Until its id has come out of `finished`, or the fleet is dropped, `call.length` bytes at `call.buffer` are the
    /// fleet's alone: to be read for a write, to be written for a read.
    pub unsafe fn begin(&mut self, call: Call) {
        if self.pieces == 1 {
            return self.start(call.id, call);
        }
        self.begin_pieces(call);
    }

    #[cold]
    fn begin_pieces(&mut self, call: Call) {
        let longest = self.hosts[call.host as usize].remote.maximum();
        let first = call.id * self.pieces;
        let count = match call.command {
            Command::Read | Command::Write => call.length.div_ceil(longest).max(1),
            Command::Flush | Command::Trim | Command::Zero(_) => 1,
        };
        self.parts[call.id as usize] = Part { remaining: count, transferred: 0, failed: 0 };
        for piece in 0..count {
            let at = piece * longest;
            let length = if count == 1 { call.length } else { longest.min(call.length - at) };
            let buffer = call.buffer.wrapping_add(at as usize);
            self.start(first + piece, Call { offset: call.offset + u64::from(at), length, buffer, ..call });
        }
    }

    #[inline]
    fn start(&mut self, place: u32, call: Call) {
        self.table.begin(place, call, self.now);
        self.outstanding += 1;
        let host = &mut self.hosts[call.host as usize];
        if let Some(dead) = &host.dead {
            let dead = Arc::clone(dead);
            return self.fail(place, dead);
        }
        if call.command == Command::Flush {
            match host.handle.begin_flush() {
                Ok(ticket) => self.table.get_mut(place).ticket = Some(ticket),
                Err(Lost) => {
                    let error = unflushed(host);
                    return self.fail(place, error);
                }
            }
        }
        self.assign(place);
    }

    /// Hands a request to a connection, or has it wait for one behind those that wait already.
    #[inline]
    fn assign(&mut self, place: u32) {
        let host = self.table.get(place).call.host as usize;
        if !self.hosts[host].waiting.is_empty() || !self.try_assign(place) {
            self.table.get_mut(place).link = NOWHERE;
            self.hosts[host].waiting.push_back(place);
        }
    }

    /// Hands what waits to connections, as far as there are any for it.
    #[cold]
    fn assign_waiting(&mut self, host: u32) {
        while let Some(place) = self.hosts[host as usize].waiting.front().copied() {
            if !self.try_assign(place) {
                return;
            }
            self.hosts[host as usize].waiting.pop_front();
        }
    }

    /// Hands a request to the connection with the fewest under way; returns whether there is one for it.
    #[inline]
    fn try_assign(&mut self, place: u32) -> bool {
        let entry = self.table.get(place);
        let (call, suspect) = (entry.call, entry.attempts >= SUSPECT);
        let host = &self.hosts[call.host as usize];
        let fit = |number: &u32| {
            let link = &self.links[*number as usize];
            matches!(link.state, State::Up(_)) && !link.alone && (!suspect || link.in_flight == 0)
        };
        let fitting = (host.first..host.first + host.count).filter(fit);
        let Some(number) = fitting.min_by_key(|link| self.links[*link as usize].in_flight) else {
            return false;
        };
        let link = &mut self.links[number as usize];
        let State::Up(connection) = &mut link.state else { unreachable!("it was just seen to be up") };
        let cookie = self.table.renew(place);
        if connection.is_sent() {
            self.to_send.push(number);
        }
        let position = connection.queue(call.command, cookie, call.offset, call.length, call.buffer);
        let entry = self.table.get_mut(place);
        (entry.link, entry.position) = (number, position);
        if link.in_flight == 0 {
            link.heard = self.now;
        }
        link.in_flight += 1;
        link.alone = suspect;
        true
    }

    /// Sends what was begun, as far as sockets take it.
    pub fn transmit(&mut self) {
        self.look_at_the_clock();
        while let Some(number) = self.to_send.pop() {
            self.transmit_on(number);
        }
    }

    fn transmit_on(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        let State::Up(connection) = &mut link.state else { return };
        let was_blocked = connection.blocked;
        match connection.send() {
            Ok(sent) => {
                if sent {
                    link.heard = self.now;
                }
                if connection.blocked != was_blocked {
                    // Without the event the look for silent connections finds it.
                    let _ = self.waiter.watch_room(connection.fd(), number, connection.blocked);
                }
            }
            Err(broken) => self.lose(number, broken),
        }
    }

    /// Waits at most `limit` for anything to happen, and deals with it. What is over by then is in `finished`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let until_look = Duration::from_millis(u64::from(self.next_look.saturating_sub(self.now)));
        let limit = limit.min(until_look);
        let mut found = std::mem::take(&mut self.found);
        let waited = self.waiter.wait(limit, &mut found);
        self.look_at_the_clock();
        for event in &found {
            match *event {
                Event::Readable(link) => self.receive(link),
                Event::Writable(link) => self.transmit_on(link),
                Event::Rung => self.answer_the_bell(),
            }
        }
        self.found = found;
        if self.now >= self.next_look {
            self.look_for_silence();
        }
        self.transmit();
        waited
    }

    #[inline]
    fn look_at_the_clock(&mut self) {
        self.now = u32::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u32::MAX);
    }

    fn receive(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        let State::Up(connection) = &mut link.state else { return };
        let mut over = std::mem::take(&mut self.over);
        let received = connection.receive(&mut self.table, &mut over);
        if let Ok(true) = received {
            link.heard = self.now;
        }
        if connection.has_more {
            self.mailbox.bell.ring();
        }
        let leaving = self.settle(number, &over);
        over.clear();
        self.over = over;
        match received {
            Err(broken) => self.lose(number, broken),
            Ok(_) if leaving => {
                self.lose(number, Broken::Io(io::Error::from_raw_os_error(libc::ESHUTDOWN)));
            }
            Ok(_) => {}
        }
    }

    /// Takes answers to what was sent, for at most [`GRACE`].
    fn drain(&mut self) {
        let until = Instant::now() + GRACE;
        let is_busy = |link: &Link| match &link.state {
            State::Up(connection) => link.in_flight > 0 && connection.is_sent(),
            State::Lost(_) | State::Gone => false,
        };
        while self.links.iter().any(is_busy) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.waiter.wait(left, &mut self.found).is_err() {
                return;
            }
            for event in &self.found {
                let Event::Readable(number) = *event else { continue };
                let link = &mut self.links[number as usize];
                let State::Up(connection) = &mut link.state else { continue };
                self.over.clear();
                if connection.receive(&mut self.table, &mut self.over).is_err() {
                    link.state = State::Gone;
                }
                for (place, result) in &self.over {
                    let entry = self.table.get_mut(*place);
                    entry.under_way = false;
                    link.in_flight -= 1;
                    if !matches!(entry.call.command, Command::Read | Command::Flush) && *result >= 0 {
                        self.hosts[link.host as usize].handle.wrote();
                    }
                }
            }
        }
    }

    /// Ends requests that were answered on a link. Returns whether the server wants to be left alone.
    #[inline]
    fn settle(&mut self, number: u32, over: &[Over]) -> bool {
        let mut leaving = false;
        for (place, result) in over {
            let call = self.table.get(*place).call;
            let host = &mut self.hosts[call.host as usize];
            host.lost_since = None;
            match call.command {
                _ if *result == -i64::from(libc::ESHUTDOWN) => {
                    // "The server is in the process of being shut down": asked again where it is back.
                    leaving = true;
                    continue;
                }
                Command::Write | Command::Trim | Command::Zero(_) if *result >= 0 => host.handle.wrote(),
                Command::Flush => {
                    let ticket = self.table.get_mut(*place).ticket.take();
                    if ticket.is_some_and(|ticket| host.handle.end_flush(ticket, *result >= 0).is_err()) {
                        let error = unflushed(host);
                        self.links[number as usize].in_flight -= 1;
                        self.fail(*place, error);
                        continue;
                    }
                }
                _ => {}
            }
            self.links[number as usize].in_flight -= 1;
            if *result < 0 {
                self.note_words(number, *place, *result);
            }
            self.finish(*place, *result);
        }
        let link = &mut self.links[number as usize];
        link.alone &= link.in_flight > 0;
        if !over.is_empty() {
            link.fruitless = 0;
        }
        let host = link.host;
        if !self.hosts[host as usize].waiting.is_empty() {
            self.assign_waiting(host);
        }
        leaving
    }

    /// Keeps what a server said about an error.
    #[cold]
    fn note_words(&mut self, number: u32, place: u32, result: i64) {
        let link = &mut self.links[number as usize];
        let State::Up(connection) = &mut link.state else { return };
        let said = std::mem::take(&mut connection.replies.said);
        if said.is_empty() {
            return;
        }
        let host = self.hosts[link.host as usize].remote.host().to_owned();
        let source = io::Error::from_raw_os_error(-result as i32);
        self.reasons
            .push((self.table.get(place).call.id, Arc::new(RemoteError::Refused { host, said, source })));
    }

    /// Ends a request.
    #[inline]
    fn finish(&mut self, place: u32, result: i64) {
        let entry = self.table.get_mut(place);
        entry.under_way = false;
        let id = entry.call.id;
        self.outstanding -= 1;
        if self.pieces == 1 {
            self.finished.push_back((id, result));
            return;
        }
        let part = &mut self.parts[id as usize];
        part.remaining -= 1;
        match result {
            0.. => part.transferred += result,
            _ if part.failed == 0 => part.failed = result,
            _ => {}
        }
        if part.remaining == 0 {
            let result = if part.failed < 0 { part.failed } else { part.transferred };
            self.finished.push_back((id, result));
        }
    }

    /// Ends a request for a reason.
    #[cold]
    fn fail(&mut self, place: u32, error: Arc<RemoteError>) {
        self.end_flush(place);
        let errno = error.errno();
        self.reasons.push((self.table.get(place).call.id, error));
        self.finish(place, -i64::from(errno));
    }

    /// Accounts for a flush, if it is one, that got no answer.
    fn end_flush(&mut self, place: u32) {
        let entry = self.table.get_mut(place);
        let host = &self.hosts[entry.call.host as usize];
        if let Some(ticket) = entry.ticket.take() {
            let _ = host.handle.end_flush(ticket, false);
        }
    }

    /// What is to be told of an error of request `id`, once.
    pub fn reason(&mut self, id: u32) -> Option<Arc<RemoteError>> {
        let found = self.reasons.iter().position(|(of, _)| *of == id)?;
        let (_, reason) = self.reasons.swap_remove(found);
        self.reasons.retain(|(of, _)| *of != id);
        Some(reason)
    }
}

fn unflushed(host: &Host) -> Arc<RemoteError> {
    Arc::new(RemoteError::Unflushed { host: host.remote.host().to_owned() })
}

impl Drop for Fleet {
    /// What was sent is waited for, for a moment: a connection with nothing under way serves the next user, and some
    /// servers (nbdkit 1.32) do not survive a client that goes while they answer. What was not sent never is.
    fn drop(&mut self) {
        self.mailbox.mail().stop = true;
        self.mailbox.stopped.notify_all();
        self.drain();
        for place in 0..self.table.len() {
            self.end_flush(place);
        }
        for link in self.links.drain(..) {
            let State::Up(connection) = link.state else { continue };
            // What has requests under way is cut off: their answers are nobody's any more.
            if link.in_flight > 0 || !connection.is_sent() {
                continue;
            }
            let remote = &self.hosts[link.host as usize].remote;
            if let Some(session) = remote.keep(connection.into_session()) {
                Connection::new(session, 0).disconnect();
            }
        }
    }
}
