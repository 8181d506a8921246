//! What the protocol says of a stream of replies (doc/proto.md of the NBD project, "Simple reply message", "Structured reply
//! chunk message", "Structured reply types"), read independently of the library and without hurry, from all of it at once.

use nbd::wire::reply::{
    self, CHUNK_BYTES, CHUNK_MAGIC, ERROR_BIT, ERROR_OFFSET, ErrorCode, FLAG_DONE, SIMPLE_BYTES, SIMPLE_MAGIC,
};

/// What a request is, as far as its answer is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// No data either way.
    Other,
}

/// A request that was sent.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    pub kind: Kind,
    pub offset: u64,
    pub length: u32,
    pub cookie: u64,
}

/// Pieces that a client keeps in mind beyond the first gap of a read, and errors of one request: what is more is taken for
/// a breach.
const PIECES: usize = 1024;
const ERRORS: usize = 16;
/// The longest error: a code, a text of 4096 bytes and what is around them.
const LONGEST_ERROR: usize = 4096 + 64;

/// What comes of a stream.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Requests by number, in the order in which they are over: bytes, or an error's number, negative.
    pub over: Vec<(usize, i64)>,
    /// What of each read came, in the order in which it came.
    pub bytes: Vec<Vec<u8>>,
    /// Why the connection is to be given up.
    pub broken: Option<&'static str>,
    /// How much was read by then.
    pub at: usize,
}

#[derive(Default, Clone)]
struct State {
    is_over: bool,
    error: i32,
    errors: usize,
    /// Pieces that came: beginning and end.
    came: Vec<(u32, u32)>,
}

struct Reader<'a> {
    structured: bool,
    wants: &'a [Want],
    states: Vec<State>,
    verdict: Verdict,
}

/// Why one message is not taken: it is not all there, or it breaks the protocol.
enum Stop {
    Cut,
    Broken(&'static str),
}

fn be(bytes: &[u8], at: usize, width: usize) -> Result<u64, Stop> {
    let field = bytes.get(at..at + width).ok_or(Stop::Cut)?;
    Ok(field.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn keeps(keeps: bool, what: &'static str) -> Result<(), Stop> {
    if keeps { Ok(()) } else { Err(Stop::Broken(what)) }
}

/// Reads all of `bytes`.
pub fn read(bytes: &[u8], structured: bool, wants: &[Want]) -> Verdict {
    let states = vec![State::default(); wants.len()];
    let data =
        wants.iter().map(|want| vec![0; if want.kind == Kind::Read { want.length as usize } else { 0 }]);
    let verdict = Verdict { bytes: data.collect(), ..Verdict::default() };
    let mut reader = Reader { structured, wants, states, verdict };
    loop {
        match reader.message(&bytes[reader.verdict.at..]) {
            Ok(taken) => reader.verdict.at += taken,
            Err(Stop::Cut) => return reader.verdict,
            Err(Stop::Broken(what)) => {
                reader.verdict.broken = Some(what);
                return reader.verdict;
            }
        }
    }
}

impl Reader<'_> {
    fn message(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        match be(bytes, 0, 4)? as u32 {
            SIMPLE_MAGIC => self.simple(bytes),
            CHUNK_MAGIC => self.chunk(bytes),
            _ => Err(Stop::Broken("magic")),
        }
    }

    fn number(&self, cookie: u64) -> Result<usize, Stop> {
        let found = self.wants.iter().position(|want| want.cookie == cookie);
        found.filter(|number| !self.states[*number].is_over).ok_or(Stop::Broken("cookie"))
    }

    fn simple(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        let (code, cookie) = (be(bytes, 4, 4)? as u32, be(bytes, 8, 8)?);
        let number = self.number(cookie)?;
        let want = self.wants[number];
        keeps(want.kind != Kind::Read || !self.structured, "simple")?;
        if code != 0 {
            self.fail(number, ErrorCode(code))?;
        } else if want.kind == Kind::Read {
            let end = SIMPLE_BYTES + want.length as usize;
            let data = bytes.get(SIMPLE_BYTES..end).ok_or(Stop::Cut)?;
            self.claim(number, 0, want.length)?;
            self.verdict.bytes[number].copy_from_slice(data);
            self.conclude(number)?;
            return Ok(end);
        }
        self.conclude(number)?;
        Ok(SIMPLE_BYTES)
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        keeps(self.structured || bytes.len() < CHUNK_BYTES, "chunk")?;
        let (flags, kind) = (be(bytes, 4, 2)? as u16, be(bytes, 6, 2)? as u16);
        let (cookie, length) = (be(bytes, 8, 8)?, be(bytes, 16, 4)? as usize);
        let number = self.number(cookie)?;
        let is_done = flags & FLAG_DONE != 0;
        let body = &bytes[CHUNK_BYTES..];
        match kind {
            reply::NONE => keeps(length == 0 && is_done, "length")?,
            reply::OFFSET_DATA => {
                keeps(length > 8, "length")?;
                let at = self.place(number, be(body, 0, 8)?)?;
                // What is outside is noticed before it comes.
                let data = (length - 8) as u32;
                self.claim(number, at, data)?;
                let data = body.get(8..length).ok_or(Stop::Cut)?;
                self.verdict.bytes[number][at as usize..at as usize + data.len()].copy_from_slice(data);
            }
            reply::OFFSET_HOLE => {
                keeps(length == 12, "length")?;
                be(body, 0, 12)?;
                let at = self.place(number, be(body, 0, 8)?)?;
                let hole = be(body, 8, 4)? as u32;
                keeps(hole > 0, "hole")?;
                self.claim(number, at, hole)?;
                self.verdict.bytes[number][at as usize..(at + hole) as usize].fill(0);
            }
            _ if kind & ERROR_BIT == 0 => return Err(Stop::Broken("type")),
            _ => {
                keeps((6..=LONGEST_ERROR).contains(&length), "length")?;
                let body = body.get(..length).ok_or(Stop::Cut)?;
                let text = be(body, 4, 2)? as usize;
                keeps(6 + text <= length, "length")?;
                if kind == ERROR_OFFSET {
                    keeps(6 + text + 8 == length, "length")?;
                    self.place(number, be(body, 6 + text, 8)?)?;
                }
                let code = be(body, 0, 4)? as u32;
                self.fail(number, if code == 0 { ErrorCode::EIO } else { ErrorCode(code) })?;
            }
        }
        if is_done {
            self.conclude(number)?;
        }
        Ok(CHUNK_BYTES + length)
    }

    /// An offset of the export as one into a request's range.
    fn place(&self, number: usize, offset: u64) -> Result<u32, Stop> {
        let want = &self.wants[number];
        let range = want.offset..want.offset + u64::from(want.length);
        keeps(range.contains(&offset), "range")?;
        Ok((offset - want.offset) as u32)
    }

    /// Bytes that come for a read: all of them its own, and none of them twice.
    fn claim(&mut self, number: usize, at: u32, length: u32) -> Result<(), Stop> {
        let (want, came) = (&self.wants[number], &mut self.states[number].came);
        let end = at.checked_add(length).filter(|end| *end <= want.length).ok_or(Stop::Broken("range"))?;
        keeps(want.kind == Kind::Read, "range")?;
        keeps(!came.iter().any(|(start, stop)| at < *stop && *start < end), "twice")?;
        // Where the first gap is, and what came behind it.
        came.sort_unstable();
        let mut first = 0;
        let behind = came.iter().skip_while(|(start, stop)| {
            let follows = *start == first;
            first = if follows { *stop } else { first };
            follows
        });
        let behind = behind.count();
        keeps(behind < PIECES || (at == first && behind == 0), "pieces")?;
        came.push((at, end));
        Ok(())
    }

    fn fail(&mut self, number: usize, code: ErrorCode) -> Result<(), Stop> {
        let state = &mut self.states[number];
        if state.error == 0 {
            state.error = code.errno();
        }
        state.errors += 1;
        keeps(state.errors <= ERRORS, "errors")
    }

    fn conclude(&mut self, number: usize) -> Result<(), Stop> {
        let (want, state) = (&self.wants[number], &mut self.states[number]);
        state.is_over = true;
        let came: u32 = state.came.iter().map(|(start, end)| end - start).sum();
        let result = match want.kind {
            _ if state.error != 0 => -i64::from(state.error),
            Kind::Read if came != want.length => return Err(Stop::Broken("missing")),
            Kind::Read | Kind::Write => i64::from(want.length),
            Kind::Other => 0,
        };
        self.verdict.over.push((number, result));
        Ok(())
    }
}
