//! A fuzzer of what takes a server's replies apart, deterministic, the same in a test and as long as one likes.
//!
//! Each execution has a number, and its number and the seed make all of it. Requests are begun and sent as a fleet does
//! it, over a pair of sockets; replies to them that are right in most of their parts are made (`grammar`: simple ones and
//! chunks, in any order and in between each other, data, holes and errors), damaged as messages and as bytes, and come in
//! pieces of any length; then the connection ends. The sources of the connection are compiled in here: they are the
//! library's own, which keeps them to itself. What must hold, whatever comes:
//!
//! - Requests are sent as they were asked.
//! - A request is over when, and as, the protocol has it (`reference` reads the stream for itself), so at most once; a read
//!   that succeeds has all of the bytes that the server sent for it.
//! - No byte outside of the requests' buffers is written: each has zones around it that are looked at.
//! - The connection is given up where the protocol is broken, and only there.
//! - No more memory is held at any moment than the connection's buffer, a text of an error and the pieces of reads that
//!   came out of order: the allocator counts what this thread holds.
#![allow(
    dead_code,
    reason = "the test and the example each use a part, and the library all of the connection"
)]

mod counting;
mod grammar;
#[path = "../../../nbd/tests/fuzzing/random.rs"]
mod random;
mod reference;

/// The connection, and who drives it: what it is made of is visible to its neighbours only.
#[path = "../../src/remote"]
mod remote {
    mod durability;
    #[path = "../../tests/fuzzing/hold.rs"]
    pub mod hold;
    mod link;
    mod replies;
    mod table;
}

use std::collections::BTreeMap;

use random::Random;
use remote::hold::Bench;

#[global_allocator]
static ALLOCATED: counting::Counting = counting::Counting;

/// What must hold and did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which execution of the seed.
    pub execution: u64,
    /// What.
    pub what: String,
}

/// How often connections ended in which way, and how many requests were over in them.
pub type Outcomes = BTreeMap<&'static str, u64>;

/// What stays the same over executions.
pub struct Fuzzer {
    bench: Bench,
    /// The most memory that a connection may hold, bytes, where it is lowered to see the fuzzer find something.
    pub limit: Option<usize>,
}

impl Fuzzer {
    pub fn new() -> Self {
        Self { bench: Bench::new(), limit: None }
    }

    /// Executions `from..to` of `seed`.
    pub fn run(&mut self, seed: u64, from: u64, to: u64) -> Result<Outcomes, Finding> {
        let mut outcomes = Outcomes::new();
        for execution in from..to {
            let outcome = self.bench.execute(Random::new(seed, execution), self.limit);
            let (word, over) = outcome.map_err(|what| Finding { execution, what })?;
            *outcomes.entry(word).or_default() += 1;
            *outcomes.entry("requests over").or_default() += over;
        }
        Ok(outcomes)
    }
}
