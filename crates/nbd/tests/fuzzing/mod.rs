//! A fuzzer of both sides: deterministic, without I/O, the same in a test and as long as one likes.
//!
//! Each execution has a number, and its number and the seed make all of it: a conversation is written as the grammar has
//! it, with values that are often wrong, then damaged as bytes (`mutate`), and held through the code that real
//! connections go through (`nbd::server::haggle`, `nbd::client::handshake`, `nbd::client::list_exports`, and the parsers
//! of requests and replies). What must hold, whatever comes:
//!
//! - nothing panics, and an input that has ended ends the conversation;
//! - no buffer is handed out to be filled, and no message sent, that is larger than the limit; nor is more memory held at
//!   any moment than a few such buffers, or a list's limit: the allocator counts, for the whole process;
//! - what was agreed on was said, and since TLS began; where TLS is required there is TLS, and a client that wants it
//!   says nothing before but that;
//! - what is parsed is what was there: encoded again, it is the same bytes.
#![allow(dead_code, reason = "the test and the example each use a part")]

mod grammar;
mod hold;
mod memory;
mod random;

use std::collections::BTreeMap;

use nbd::tls::{ClientTls, ServerTls};
use peak_alloc::PeakAlloc;
use random::Random;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The most bytes that were held at a time during `work`, beyond what was held before.
fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    let result = work();
    (result, ALLOCATED.peak_usage().saturating_sub(before))
}

/// Which parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The server's: options, then requests.
    Server,
    /// The client's: replies to options, then replies to requests.
    Client,
}

/// What must hold and did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which execution of the seed.
    pub execution: u64,
    /// What.
    pub what: String,
}

/// How often a conversation ended in which way.
pub type Outcomes = BTreeMap<String, u64>;

/// What stays the same over executions.
pub struct Fuzzer {
    server_tls: ServerTls,
    client_tls: ClientTls,
    /// The largest buffer, bytes; the limit of the side under test unless it is lowered to see the fuzzer find something.
    pub limit: Option<usize>,
}

impl Fuzzer {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a place for a key");
        let file = dir.path().join("keys");
        std::fs::write(&file, format!("fuzz:{}\n", "5a".repeat(32))).expect("a key");
        Self {
            server_tls: ServerTls::psk(&file).expect("a key"),
            client_tls: ClientTls::psk(&file, None).expect("a key"),
            limit: None,
        }
    }

    /// Executions `from..to` of `seed`.
    pub fn run(&self, side: Side, seed: u64, from: u64, to: u64) -> Result<Outcomes, Finding> {
        let mut outcomes = Outcomes::new();
        for execution in from..to {
            let random = Random::new(seed, execution);
            let outcome = match side {
                Side::Server => self.server(random),
                Side::Client => self.client(random),
            };
            let outcome = outcome.map_err(|what| Finding { execution, what })?;
            match outcomes.get_mut(&outcome) {
                Some(count) => *count += 1,
                None => drop(outcomes.insert(outcome, 1)),
            }
        }
        Ok(outcomes)
    }
}
