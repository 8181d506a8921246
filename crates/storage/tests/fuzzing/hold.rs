//! Drives a connection as a fleet does, and looks at what comes of it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use nbd::client::{ExportInfo, Session, TransmissionFlags};
use nbd::stream::Stream;
use nbd::wire::request::{self, Request};

use super::super::counting::most_held;
use super::super::grammar;
use super::super::random::Random;
use super::super::reference::{self, Kind, Verdict, Want};
use super::link::{Broken, Connection};
use super::replies::Over;
use super::table::{Call, Command, Table};

/// The number of the connection, and places that it may use.
const LINK: u32 = 3;
const PLACES: u32 = 8;
/// Bytes around each request's buffer that nobody is to write, and what is in them.
const ZONE: usize = 64;
const GUARD: u8 = 0xa5;
/// Bytes of the longest request.
const LONGEST: usize = 300_000;
/// What a connection holds: its buffer, what is gathered to be sent, and texts of errors.
const FIXED: usize = (256 << 10) + (96 << 10);
/// And for each read, pieces that came out of order: 1024 of eight bytes, while their list grows.
const EACH: usize = 24 << 10;

/// A request, and where in the bench its buffer is.
struct Asked {
    want: Want,
    command: Command,
    place: u32,
    at: usize,
}

/// What is used again for each execution.
pub struct Bench {
    /// Buffers with zones around them.
    arena: Vec<u8>,
    drained: Vec<u8>,
    /// What is received into.
    scratch: Vec<u8>,
    over: Vec<Over>,
}

fn holds(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// A connection under way.
struct Talk<'b> {
    bench: &'b mut Bench,
    connection: Connection,
    table: Table,
    server: UnixStream,
}

impl Bench {
    pub fn new() -> Self {
        let arena = vec![GUARD; PLACES as usize * (LONGEST + ZONE) + ZONE];
        Self {
            arena,
            drained: Vec::with_capacity(4 << 20),
            scratch: vec![0; 1 << 16],
            over: Vec::with_capacity(64),
        }
    }

    /// One connection; how it ended, and how many requests were over.
    pub fn execute(&mut self, random: Random, limit: Option<usize>) -> Result<(&'static str, u64), String> {
        let outcome = self.hold(random, limit.unwrap_or(FIXED + PLACES as usize * EACH));
        if outcome.is_err() {
            // Whoever goes on finds it as it was.
            self.arena.fill(GUARD);
        }
        outcome
    }

    fn hold(&mut self, mut random: Random, limit: usize) -> Result<(&'static str, u64), String> {
        let structured = !random.one_in(4);
        let (ours, server) = UnixStream::pair().map_err(|error| format!("socketpair: {error}"))?;
        for end in [&ours, &server] {
            end.set_nonblocking(true).map_err(|error| format!("fcntl: {error}"))?;
        }
        let export = ExportInfo::new("", 1 << 40, TransmissionFlags(0));
        let session = Session { stream: Stream::unix(ours), export, structured };
        let (connection, held) = most_held(|| Connection::new(session, LINK));
        let mut talk = Talk { bench: self, connection, table: Table::new(PLACES), server };
        let (mut total, mut stale) = (0, Vec::new());
        let rounds = 1 + random.below(3);
        for round in 1..=rounds {
            let asked = talk.ask(&mut random);
            let wants: Vec<Want> = asked.iter().map(|asked| asked.want).collect();
            // Now and then the answers are there before the questions.
            let is_early = random.one_in(60);
            if !is_early {
                talk.send(&asked)?;
            }
            let bytes = grammar::replies(&mut random, structured, &wants, &stale);
            let mut expected = reference::read(&bytes, structured, &wants);
            if is_early {
                expected = Verdict {
                    bytes: expected.bytes,
                    broken: (bytes.len() >= 20).then_some("early"),
                    ..Verdict::default()
                };
            }
            let (broken, more) = talk.feed(&mut random, &bytes, &asked)?;
            total += talk.bench.over.len() as u64;
            if held + more > limit {
                return Err(format!("{} bytes held at once, above the limit of {limit}", held + more));
            }
            talk.check(&asked, &expected, broken, is_early && bytes.len() < 20)?;
            if broken {
                return Ok(("broke the protocol", total));
            }
            let is_whole = expected.at == bytes.len() && talk.bench.over.len() == wants.len();
            if !is_whole || round == rounds {
                return talk.end().map(|()| {
                    (if is_whole { "ended between replies" } else { "ended in the middle" }, total)
                });
            }
            stale.extend(wants.iter().map(|want| want.cookie));
        }
        unreachable!("the last round returns")
    }
}

impl Talk<'_> {
    fn base(&mut self) -> *mut u8 {
        self.bench.arena.as_mut_ptr()
    }

    /// Begins requests, as `Fleet::try_assign` does.
    fn ask(&mut self, random: &mut Random) -> Vec<Asked> {
        let count = 1 + random.below(PLACES as usize) as u32;
        let base = self.base();
        let mut asked = Vec::new();
        for place in 0..count {
            let length = match random.below(40) {
                0 => 70_000 + random.below(LONGEST - 70_000) as u32,
                1..4 => 32_000 + random.below(40_000) as u32,
                4..8 => random.below(5000) as u32,
                8 => random.below(2) as u32,
                _ => 1 + random.below(600) as u32,
            };
            let (command, kind) = match random.below(12) {
                0..8 => (Command::Read, Kind::Read),
                8 | 9 => (Command::Write, Kind::Write),
                10 => (random.pick(&[Command::Trim, Command::Zero(2)]), Kind::Other),
                _ => (Command::Flush, Kind::Other),
            };
            let length = match command {
                Command::Flush => 0,
                // What is sent is less than sockets take at once, or it would have to be taken meanwhile.
                Command::Write => length.min(40_000),
                _ => length,
            };
            let offset = if command == Command::Flush { 0 } else { random.below(1 << 30) as u64 };
            let at = ZONE + place as usize * (LONGEST + ZONE);
            let fill = random.next() as u8;
            let buffer = base.wrapping_add(at);
            // SAFETY: `at` and `length` lie in the arena, of which nobody has a reference.
            unsafe { buffer.write_bytes(fill, length as usize) };
            self.table.begin(place, Call { id: place, host: 0, command, offset, length, buffer }, 0);
            let cookie = self.table.renew(place);
            let position = self.connection.queue(command, cookie, offset, length, buffer);
            let entry = self.table.get_mut(place);
            (entry.link, entry.position) = (LINK, position);
            asked.push(Asked { want: Want { kind, offset, length, cookie }, command, place, at });
        }
        asked
    }

    /// Sends what was begun, and looks whether it is that.
    fn send(&mut self, asked: &[Asked]) -> Result<(), String> {
        self.bench.drained.clear();
        while !self.connection.is_sent() {
            let sent = self.connection.send().map_err(|broken| format!("send: {broken:?}"))?;
            let heard = self.drain()?;
            holds(sent || heard, "nothing moves, and not all is sent")?;
        }
        while self.drain()? {}
        let mut rest = &self.bench.drained[..];
        for Asked { want, command, at, .. } in asked {
            let Ok(found) = Request::parse(rest) else { return Err("what is sent is no request".into()) };
            let (command, flags) = match command {
                Command::Read => (request::READ, 0),
                Command::Write => (request::WRITE, 0),
                Command::Flush => (request::FLUSH, 0),
                Command::Trim => (request::TRIM, 0),
                Command::Zero(flags) => (request::WRITE_ZEROES, *flags),
            };
            let Want { cookie, offset, length, .. } = *want;
            let expected = Request { flags, command, cookie, offset, length };
            holds(found == expected, "a request is sent as another")?;
            let (data, behind) =
                rest[request::BYTES..].split_at_checked(found.payload() as usize).ok_or("data is missing")?;
            holds(data == &self.bench.arena[*at..*at + data.len()], "other data is sent")?;
            rest = behind;
        }
        holds(rest.is_empty(), "more is sent than was asked")
    }

    fn drain(&mut self) -> Result<bool, String> {
        let count = match self.server.read(&mut self.bench.scratch) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(format!("receive: {error}")),
        };
        self.bench.drained.extend_from_slice(&self.bench.scratch[..count]);
        Ok(count > 0)
    }

    /// Has the connection receive `bytes` in pieces; whether it took them for a breach, and the most memory that took.
    fn feed(&mut self, random: &mut Random, bytes: &[u8], asked: &[Asked]) -> Result<(bool, usize), String> {
        self.bench.over.clear();
        let longest = random.pick(&[3, 40, 1000, 70_000, usize::MAX]);
        // A stream of many bytes in pieces of few takes time and says little.
        let longest = if bytes.len() > 20_000 { longest.max(1000) } else { longest };
        let (mut at, mut most) = (0, 0);
        while at < bytes.len() {
            let piece = (1 + random.below(longest)).min(bytes.len() - at);
            match self.server.write(&bytes[at..at + piece]) {
                Ok(count) => at += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("send: {error}")),
            }
            loop {
                let Self { connection, table, bench, .. } = self;
                let before = bench.over.len();
                let (received, held) = most_held(|| connection.receive(table, &mut bench.over));
                most = most.max(held);
                for (place, _) in &bench.over[before..] {
                    let is_one = asked.iter().any(|asked| asked.place == *place);
                    holds(is_one && table.get(*place).under_way, "a request is over that is not under way")?;
                    table.get_mut(*place).under_way = false;
                }
                match received {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(Broken::Protocol(_)) => return Ok((true, most)),
                    Err(broken) => return Err(format!("receive: {broken:?}")),
                }
            }
        }
        Ok((false, most))
    }

    /// Holds what came of it against what the protocol has.
    fn check(
        &mut self,
        asked: &[Asked],
        expected: &Verdict,
        broken: bool,
        either: bool,
    ) -> Result<(), String> {
        if expected.broken.is_some() != broken && !either {
            return Err(match expected.broken {
                Some(what) => format!("a breach of the protocol ({what}) that is not noticed"),
                None => "the protocol was kept and the connection given up".into(),
            });
        }
        let over: Vec<(usize, i64)> =
            self.bench.over.iter().map(|(place, result)| (*place as usize, *result)).collect();
        if over != expected.over {
            return Err(format!("over are {over:?}, and should be {:?}", expected.over));
        }
        for (number, result) in over {
            let Asked { want, at, .. } = &asked[number];
            if want.kind == Kind::Read && result >= 0 {
                let found = &self.bench.arena[*at..*at + want.length as usize];
                holds(found == expected.bytes[number], "a read succeeds with other bytes than came")?;
            }
        }
        self.check_zones(asked)
    }

    /// What belongs to no request is as it was; what does becomes so again.
    fn check_zones(&mut self, asked: &[Asked]) -> Result<(), String> {
        let mut from = 0;
        for Asked { want, at, .. } in asked {
            let end = at + want.length as usize;
            // What lies far behind the longest request of this execution is looked at with the next one's.
            let zone = from..*at;
            let near = zone.start.max(zone.end.saturating_sub(ZONE));
            let is_left = |range: &[u8]| range.iter().all(|byte| *byte == GUARD);
            holds(is_left(&self.bench.arena[near..zone.end]), "bytes before a buffer were written")?;
            let behind = end..(end + 4096).min(self.bench.arena.len()).min(at + LONGEST + ZONE);
            holds(is_left(&self.bench.arena[behind]), "bytes behind a buffer were written")?;
            from = end;
        }
        for Asked { want, at, .. } in asked {
            self.bench.arena[*at..*at + want.length as usize].fill(GUARD);
        }
        Ok(())
    }

    /// The server closes.
    fn end(mut self) -> Result<(), String> {
        drop(std::mem::replace(&mut self.server, UnixStream::pair().map_err(|error| error.to_string())?.0));
        let mut over = Vec::new();
        for _ in 0..16 {
            match self.connection.receive(&mut self.table, &mut over) {
                Ok(_) => holds(over.is_empty(), "a request is over with the connection")?,
                Err(Broken::Closed) => {
                    return holds(over.is_empty(), "a request is over with the connection");
                }
                // Of what was sent to it and not read the system says this instead.
                Err(Broken::Io(error)) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
                Err(broken) => return Err(format!("the end is taken for {broken:?}")),
            }
        }
        Err("the end of the stream is not taken for one".into())
    }
}
