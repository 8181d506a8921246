//! The replies to one phase of requests, held against what was asked ("Simple reply message", "Structured reply chunk
//! message", "Structured reply types", "Error values").

use std::ops::Range;

use nbd::wire::reply::{self, Chunk, Head, Payload};
use nbd::wire::request;

use super::model::{Model, overlap};
use super::reference::{Asked, Reading, Rules};

/// The number by which the server names `base:allocation`.
const CONTEXT: u32 = 1;

/// What came of a request so far.
#[derive(Debug, Default)]
struct State {
    is_answered: bool,
    failed: bool,
    /// What came of a read's data, ascending.
    came: Vec<Range<usize>>,
}

/// See the module's words.
pub struct Talk<'a> {
    asked: &'a [Asked],
    sent: &'a [u8],
    rules: &'a Rules,
    in_order: bool,
    model: &'a mut Model,
    states: Vec<State>,
    next: usize,
}

fn holds(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl<'a> Talk<'a> {
    pub fn new(
        reading: &'a Reading,
        sent: &'a [u8],
        rules: &'a Rules,
        in_order: bool,
        model: &'a mut Model,
    ) -> Self {
        let states = reading.asked.iter().map(|_| State::default()).collect();
        let mut talk = Self { asked: &reading.asked, sent, rules, in_order, model, states, next: 0 };
        if !in_order {
            talk.doubt_what_is_written();
        }
        talk
    }

    /// What is written in this phase may be read before or after that.
    fn doubt_what_is_written(&mut self) {
        for asked in self.asked.iter().filter(|asked| asked.writes()) {
            self.model.doubt(asked.range());
        }
    }

    /// How many were answered.
    pub fn answered(&self) -> u64 {
        self.states.iter().filter(|state| state.is_answered).count() as u64
    }

    /// Whether all that has to be answered was.
    pub fn is_complete(&self) -> bool {
        self.asked.iter().zip(&self.states).all(|(asked, state)| asked.is_cut || state.is_answered)
    }

    pub fn check_complete(&self) -> Result<(), String> {
        let left =
            self.asked.iter().zip(&self.states).find(|(asked, state)| !asked.is_cut && !state.is_answered);
        left.map_or(Ok(()), |(asked, _)| Err(format!("no answer to {:?}", asked.request)))
    }

    /// Takes note of what the phase did to the export.
    pub fn settle(&mut self) {
        if !self.in_order {
            return self.settle_all();
        }
        // What was not answered may have been done, as far as it came.
        for number in self.next..self.asked.len() {
            let asked = &self.asked[number];
            if asked.writes() {
                self.model.doubt(asked.range());
            }
        }
    }

    fn settle_all(&mut self) {
        let asked = self.asked;
        for (number, one) in asked.iter().enumerate().filter(|(_, one)| one.writes()) {
            let is_alone = asked
                .iter()
                .enumerate()
                .all(|(other, two)| other == number || !two.writes() || !overlap(&one.range(), &two.range()));
            let state = &self.states[number];
            let is_done = state.is_answered && !state.failed && one.request.command != request::TRIM;
            if is_alone && is_done {
                self.model.be_sure(&one.range());
                self.model.write(one.range(), self.written(one));
            }
        }
    }

    /// The bytes that a request writes; zeros where there are none.
    fn written(&self, asked: &Asked) -> Option<&'a [u8]> {
        (asked.request.command == request::WRITE).then(|| &self.sent[asked.payload.clone()])
    }

    /// Takes all whole replies in `bytes`; returns how much they were.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let mut at = 0;
        loop {
            match self.take_one(&bytes[at..])? {
                0 => return Ok(at),
                taken => at += taken,
            }
        }
    }

    fn take_one(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let Some((head, length)) = Head::parse(bytes).map_err(|error| error.to_string())? else {
            return Ok(0);
        };
        let cookie = match &head {
            Head::Simple(simple) => simple.cookie,
            Head::Chunk(chunk) => chunk.cookie,
        };
        let number = self.number(cookie)?;
        let asked = &self.asked[number];
        match head {
            Head::Simple(simple) => {
                let is_read = asked.request.command == request::READ;
                holds(
                    !is_read || !self.rules.structured,
                    "a simple reply to a read where chunks were agreed on",
                )?;
                let data = if is_read && simple.error == 0 { asked.request.length as usize } else { 0 };
                if bytes.len() < length + data {
                    return Ok(0);
                }
                match simple.error {
                    0 if data > 0 => {
                        self.data(number, asked.request.offset, &bytes[length..length + data])?
                    }
                    0 => {}
                    code => self.failure(number, code)?,
                }
                self.answer(number)?;
                Ok(length + data)
            }
            Head::Chunk(chunk) => {
                holds(self.rules.structured, "a chunk where none were agreed on")?;
                chunk.check(asked.request.length).map_err(|error| error.to_string())?;
                let Some(body) = bytes[length..].get(..chunk.length as usize) else { return Ok(0) };
                self.chunk(number, &chunk, body)?;
                if chunk.is_done() {
                    self.answer(number)?;
                }
                Ok(length + body.len())
            }
        }
    }

    /// Which request a cookie means.
    fn number(&self, cookie: u64) -> Result<usize, String> {
        let mut open = (self.next..self.asked.len()).filter(|number| !self.states[*number].is_answered);
        let found = match self.in_order {
            true => open.next().filter(|number| self.asked[*number].request.cookie == cookie),
            false => open.find(|number| self.asked[*number].request.cookie == cookie),
        };
        found.ok_or_else(|| format!("an answer to {cookie:#x}, for which it is not the time"))
    }

    fn chunk(&mut self, number: usize, chunk: &Chunk, body: &[u8]) -> Result<(), String> {
        let asked = &self.asked[number].request;
        let is_read = asked.command == request::READ;
        match Payload::parse(chunk, body).map_err(|error| error.to_string())? {
            Payload::None => Ok(()),
            Payload::Data(offset, data) => {
                holds(is_read && !data.is_empty(), "data that nobody asked for")?;
                let is_whole = data.len() == asked.length as usize;
                holds(
                    asked.flags & request::FLAG_DF == 0 || is_whole,
                    "a reply in pieces that was to be whole",
                )?;
                self.data(number, offset, data)
            }
            Payload::Hole(..) => Err("a hole, which this server does not send".into()),
            Payload::Status(context, extents) => {
                holds(
                    asked.command == request::BLOCK_STATUS && context == CONTEXT,
                    "a status of something else",
                )?;
                let total: u64 = extents.iter().map(|(length, _)| u64::from(length)).sum();
                holds(total <= asked.length.into(), "extents beyond what was asked for")?;
                let is_one = extents.iter().count() == 1;
                holds(asked.flags & request::FLAG_REQ_ONE == 0 || is_one, "more extents than one")?;
                let states = [0, nbd::wire::STATE_HOLE | nbd::wire::STATE_ZERO];
                holds(extents.iter().all(|(_, state)| states.contains(&state)), "an extent of no known state")
            }
            Payload::Error(code, _, _) => {
                holds(chunk.kind == reply::ERROR, "an error of another type than this server sends")?;
                self.failure(number, code.0)
            }
        }
    }

    fn failure(&mut self, number: usize, code: u32) -> Result<(), String> {
        self.states[number].failed = true;
        let asked = &self.asked[number];
        if asked.errors.contains(&code) {
            return Ok(());
        }
        Err(format!("error {code} where {:?} may be, to {:?}", asked.errors, asked.request))
    }

    fn data(&mut self, number: usize, offset: u64, data: &[u8]) -> Result<(), String> {
        let asked = &self.asked[number];
        let start = usize::try_from(offset).map_err(|_| "data from beyond".to_owned())?;
        let range = start..start.saturating_add(data.len());
        let whole = asked.range();
        holds(asked.may_succeed, "data in answer to what is wrong")?;
        holds(whole.start <= range.start && range.end <= whole.end, "data outside of what was asked for")?;
        let came = &mut self.states[number].came;
        holds(!came.iter().any(|other| overlap(other, &range)), "the same data twice")?;
        came.push(range.clone());
        // What is sent from the memory itself may have been written by a request that was sent later, but before this
        // answer came.
        let later = &self.asked[if self.in_order { number + 1 } else { self.asked.len() }..];
        let is_changed = |at| later.iter().any(|asked| asked.writes() && asked.range().contains(&at));
        if self.model.allows(range, data, is_changed) {
            return Ok(());
        }
        Err(format!("wrong data in answer to {:?}", asked.request))
    }

    /// The last word to a request was said.
    fn answer(&mut self, number: usize) -> Result<(), String> {
        let (asked, state) = (&self.asked[number], &mut self.states[number]);
        state.is_answered = true;
        let failed = state.failed;
        if !failed && !asked.may_succeed {
            return Err(format!("success where {:?} is due, to {:?}", asked.errors, asked.request));
        }
        if asked.request.command == request::READ && !failed {
            let came: usize = state.came.iter().map(ExactSizeIterator::len).sum();
            holds(came == asked.request.length as usize, "a read that is over before all of its data came")?;
        }
        if self.in_order {
            self.next = number + 1;
            if asked.writes() && !failed {
                self.model.write(asked.range(), self.written(asked));
            }
        }
        Ok(())
    }
}
