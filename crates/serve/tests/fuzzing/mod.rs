//! A fuzzer of the server after the handshake, the same in a test and as long as one likes.
//!
//! Each execution has a number, and its number and the seed make all that its client does: a connection to a
//! [`Server`] over a Unix socket, as any client's; an agreement; requests that are right in most of their parts
//! (`script`), then damaged as bytes; sent in pieces of any length, read at once or late; and a good-bye, an end without
//! one, or a disappearance in the middle. What must hold, whatever was sent:
//!
//! - Every request that came as a whole is answered once, with an error that the protocol has for what is wrong with it
//!   or with success, and nothing else is said (`reference` reads the stream for itself, `talk` the replies).
//! - What was read is what was there, what was written is there afterwards, and no other byte has changed (`model`).
//! - What is no request ends the conversation, after the answers to what came before; so do a good-bye and the end of the
//!   stream, and the server says which it was. No conversation panics, or stays when its client is gone.
//! - No more memory is held at any moment than the server's argument has for a connection ([`Served::limit`]): the
//!   test's allocator counts.
//!
//! Where requests are done in the order in which they come (memory), each reply is held against all that came before
//! it; but what is sent from the memory itself may be as young as the answer. Where they overtake each other (devices), it is held against what was there before the phase of the script that it
//! belongs to; between phases a client waits for all answers.
#![allow(dead_code, reason = "the test and the example each use a part")]

mod client;
mod model;
#[path = "../../../nbd/tests/fuzzing/random.rs"]
mod random;
mod reference;
mod script;
mod served;
mod talk;

use std::collections::BTreeMap;

use peak_alloc::PeakAlloc;

use client::{Client, Leave};
use model::Model;
use random::Random;
use reference::{Over, Rules};
use script::Script;
use served::Served;
use talk::Talk;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Memory: requests are done as they are read.
    Memory,
    /// Memory that is reached through an engine, in the order in which parts of it complete.
    Engine,
    /// A file.
    File,
}

/// What must hold and did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which execution of the seed.
    pub execution: u64,
    /// What.
    pub what: String,
}

/// How often conversations ended in which way, and how many requests were answered in them.
pub type Outcomes = BTreeMap<String, u64>;

/// What stays the same over executions.
pub struct Fuzzer {
    way: Way,
    /// The export for writing, and the same for reading.
    writable: Served,
    readable: Served,
    model: Model,
    incoming: Vec<u8>,
    /// The most memory that a connection may hold, bytes, where it is lowered to see the fuzzer find something.
    pub limit: Option<usize>,
    /// Of so many phases one asks for more than may be held at a time.
    pub rarely: usize,
}

impl Fuzzer {
    pub fn new(way: Way) -> Self {
        let writable = Served::start(way, None);
        let readable = Served::start(way, Some(&writable));
        let model = Model::new(writable.pristine());
        Self { way, writable, readable, model, incoming: Vec::new(), limit: None, rarely: 3000 }
    }

    /// Executions `from..to` of `seed`.
    pub fn run(&mut self, seed: u64, from: u64, to: u64) -> Result<Outcomes, Finding> {
        let mut outcomes = Outcomes::new();
        for execution in from..to {
            let outcome = self.execute(Random::new(seed, execution));
            let (word, answered) = outcome.map_err(|what| Finding { execution, what })?;
            *outcomes.entry(word).or_default() += 1;
            *outcomes.entry("requests answered".into()).or_default() += answered;
        }
        Ok(outcomes)
    }

    /// One conversation; how it ended, and how many requests were answered.
    fn execute(&mut self, mut random: Random) -> Result<(String, u64), String> {
        let served = if random.one_in(8) { &self.readable } else { &self.writable };
        let structured = random.one_in(2);
        let rules = Rules {
            size: served.size(),
            writable: served.is_writable(),
            structured,
            allocation: structured && !random.one_in(4),
        };
        let in_order = self.way == Way::Memory;
        let script = Script::write(&mut random, &rules, in_order, self.rarely);
        let phases: Vec<_> = script.phases.iter().map(|bytes| rules.read(bytes)).collect();
        if !in_order && phases.iter().any(reference::Reading::is_ambiguous) {
            return Ok(("left out: two requests of one cookie".into(), 0));
        }
        let most = phases.iter().map(reference::Reading::longest_answer).sum::<usize>() + client::AGREEMENT;
        // Beyond what can be said there is room for one byte, in which too much shows.
        if self.incoming.len() <= most {
            self.incoming.resize(most + 1, 0);
        }
        let limit = self.limit.unwrap_or_else(|| served.limit(&phases, structured));
        let model = &mut self.model;

        ALLOCATED.reset_peak_usage();
        let before = ALLOCATED.current_usage();
        let mut client = Client::connect(served.socket(), &script, &mut self.incoming[..=most])?;
        let mut answered = 0;
        let last = phases.len() - 1;
        for (number, (reading, bytes)) in phases.iter().zip(&script.phases).enumerate() {
            let leave = (number == last).then_some(script.leave);
            let mut talk = Talk::new(reading, bytes, &rules, in_order, model);
            client.hold(bytes, leave, &mut talk)?;
            answered += talk.answered();
            if !matches!(leave, Some(Leave::Vanish { .. })) {
                talk.check_complete()
                    .map_err(|what| format!("{what}; the server says {:?}", served.ending()))?;
            }
            talk.settle();
        }
        drop(client);
        let word = served.ending()?;
        let held = ALLOCATED.peak_usage().saturating_sub(before);
        model.check(served.device())?;
        if held > limit {
            return Err(format!("{held} bytes held at once, above the limit of {limit}"));
        }
        Ok((ended_well(word, script.leave, phases[last].over)?, answered))
    }
}

/// Holds the server's word on an end against what was sent.
fn ended_well(word: String, leave: Leave, over: Over) -> Result<String, String> {
    let expected = match over {
        Over::Goodbye => "Disconnected",
        Over::Wrong => "Protocol",
        Over::Not | Over::Within => "Closed",
    };
    match leave {
        // How far the server came before it noticed is its own business.
        Leave::Vanish { .. }
            if ["Disconnected", "Protocol", "Closed", "Io", "Negotiation"].contains(&&*word) =>
        {
            Ok("vanished".into())
        }
        Leave::Shut if word == expected => Ok(word),
        _ => Err(format!("the server says {word}, after what was {over:?}")),
    }
}
