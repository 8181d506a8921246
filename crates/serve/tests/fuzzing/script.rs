//! What a client sends: requests that are right in most of their parts, then damaged or not.

use nbd::wire::request::{self, Request};

use super::client::Leave;
use super::random::Random;
use super::reference::{MOST, Over, Rules};

/// A conversation of a client's.
pub struct Script {
    pub structured: bool,
    pub allocation: bool,
    /// What is sent, in phases: before each but the first all answers to the one before are waited for.
    pub phases: Vec<Vec<u8>>,
    /// Bytes that are sent at a time.
    pub piece: usize,
    /// Whether answers are left where they are for as long as there is something to send.
    pub lazy: bool,
    pub leave: Leave,
}

/// The requests of one phase, and what ranges of the export they are about.
struct Phase<'r> {
    random: &'r mut Random,
    rules: &'r Rules,
    in_order: bool,
    bytes: Vec<u8>,
    written: Vec<(u64, u64)>,
    cookie: u64,
}

impl Script {
    /// A script for an export. Where requests may overtake each other they seldom share bytes, so that most of what
    /// they come to is certain. One phase in `rarely` is of the kind that costs much.
    pub fn write(random: &mut Random, rules: &Rules, in_order: bool, rarely: usize) -> Self {
        let cookie = random.next();
        let count = if random.one_in(4) { 2 + random.below(2) } else { 1 };
        let (mut phases, mut lazy) = (Vec::new(), random.one_in(16));
        for _ in 0..count {
            let number = phases.len() as u64;
            let mut phase = Phase {
                random,
                rules,
                in_order,
                bytes: Vec::new(),
                written: Vec::new(),
                cookie: cookie.wrapping_add(number << 32),
            };
            let is_rare = phase.random.one_in(rarely);
            if is_rare {
                phase.many()
            } else {
                phase.some()
            }
            lazy |= is_rare;
            phases.push(phase.bytes);
            // What does not end between two requests nobody can answer in full.
            if phases.last().is_some_and(|bytes| rules.read(bytes).over != Over::Not) {
                break;
            }
        }
        if let Some(last) = phases.last_mut() {
            if !random.one_in(4) {
                last.extend(goodbye());
            }
            random.mutate(last);
        }
        let total: usize = phases.iter().map(Vec::len).sum();
        let pieces: &[usize] = match total {
            0..600 => &[1, 7, 28, 100, usize::MAX],
            600..60_000 => &[100, 4096, usize::MAX],
            _ => &[30_000, 1 << 18, usize::MAX],
        };
        let last = phases.last().map_or(0, Vec::len);
        let leave =
            if random.one_in(10) { Leave::Vanish { after: random.below(last + 1) } } else { Leave::Shut };
        Self {
            structured: rules.structured,
            allocation: rules.allocation,
            phases,
            piece: random.pick(pieces),
            lazy,
            leave,
        }
    }
}

fn goodbye() -> [u8; request::BYTES] {
    Request { flags: 0, command: request::DISC, cookie: 0, offset: 0, length: 0 }.encode()
}

impl Phase<'_> {
    fn some(&mut self) {
        let count = if self.random.one_in(24) { 40 + self.random.below(200) } else { self.random.below(12) };
        for _ in 0..count {
            self.request(count > 12);
        }
    }

    /// As many large reads as make more than a server should hold at a time; or a payload of the largest kind.
    fn many(&mut self) {
        if self.random.one_in(4) {
            let length = self.random.pick(&[MOST - 1, MOST, MOST + 1, 2 * MOST, 2 * MOST + 1]);
            self.put(request::WRITE, 0, 0, length, length as usize);
            return;
        }
        let (size, flags) = (self.rules.size, if self.rules.structured { request::FLAG_DF } else { 0 });
        for _ in 0..100 + self.random.below(60) {
            let length = size - self.random.below(1000) as u64;
            self.put(request::READ, flags, 0, length as u32, 0);
        }
    }

    fn request(&mut self, short: bool) {
        let command = match self.random.below(100) {
            0..38 => request::READ,
            38..68 => request::WRITE,
            68..76 => request::WRITE_ZEROES,
            76..82 => request::TRIM,
            82..88 => request::FLUSH,
            88..91 => request::CACHE,
            91..98 => request::BLOCK_STATUS,
            _ => self.random.next() as u16 >> self.random.below(16),
        };
        if command == request::DISC {
            return;
        }
        let (offset, length) = self.range(short, command);
        let flags = self.flags(command);
        let payload = if command == request::WRITE { length as usize } else { 0 };
        // A length that is a lie makes a payload of what follows.
        let lies = self.random.one_in(60);
        let told = if lies { self.random.edge(length.into()) as u32 } else { length };
        self.put(command, flags, offset, told, payload);
    }

    fn range(&mut self, short: bool, command: u16) -> (u64, u32) {
        let size = self.rules.size;
        let random = &mut *self.random;
        if random.one_in(40) {
            let length = random.edge(4096);
            // What is announced as a payload is sent, so it is short.
            let longest = if command == request::WRITE { 100_000 } else { u64::from(u32::MAX) };
            return (random.edge(size), length.min(longest) as u32);
        }
        let lengths: &[u64] = &[1, 512, 4096, 16 << 10, 32 << 10, 128 << 10, 200_000, 128 << 10, size];
        let known = if short {
            3
        } else if random.one_in(6) {
            lengths.len()
        } else {
            5
        };
        let length = match random.below(4) {
            0 => random.below(64) as u64,
            1 => random.pick(&lengths[..known]) + random.below(3) as u64 - 1,
            _ => {
                let most = random.pick(&lengths[..known]);
                random.below(most as usize) as u64
            }
        };
        let length = length.min(size);
        let offset =
            if random.one_in(20) { size - length } else { random.below((size - length) as usize + 1) as u64 };
        let writes = matches!(command, request::WRITE | request::WRITE_ZEROES | request::TRIM);
        let touches = |(start, end): &(u64, u64)| *start < offset + length && offset < *end;
        if !self.in_order && !random.one_in(30) && self.written.iter().any(touches) {
            // Perhaps there is room for a short one.
            return (random.below(size as usize) as u64, 0);
        }
        if writes {
            self.written.push((offset, offset + length));
        }
        (offset, length as u32)
    }

    fn flags(&mut self, command: u16) -> u16 {
        let random = &mut *self.random;
        if random.one_in(40) {
            return random.next() as u16 >> random.below(16);
        }
        let known: &[u16] = match command {
            request::READ if self.rules.structured => &[0, 0, 0, request::FLAG_DF],
            request::WRITE | request::TRIM => &[0, 0, 0, request::FLAG_FUA],
            request::WRITE_ZEROES => {
                &[0, request::FLAG_FUA, request::FLAG_NO_HOLE, request::FLAG_FAST_ZERO, 1 | 2 | 16]
            }
            request::BLOCK_STATUS => &[0, request::FLAG_REQ_ONE],
            _ => &[0],
        };
        random.pick(known)
    }

    fn put(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: usize) {
        self.cookie = self.cookie.wrapping_add(1);
        let cookie = self.cookie;
        self.bytes.extend(Request { flags, command, cookie, offset, length }.encode());
        let end = self.bytes.len() + payload;
        self.bytes.reserve(payload + 8);
        while self.bytes.len() < end {
            let word = self.random.next();
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.truncate(end);
    }
}
