//! Random operations over several connections against a model, in the way of fsx.
//!
//! In each round every connection is sent requests for ranges that do not overlap, all of them before any reply is
//! looked at; then all replies are taken, in whatever order they come, and what was read is compared with the model.
//! What was discarded may hold anything, so the model forgets it.

use std::sync::Arc;

use nbd::wire::request::{self, FLAG_DF, FLAG_FUA, FLAG_NO_HOLE};
use storage::device::Device;

use super::{Held, KIB, MIB, open};

/// xorshift64*: enough to choose operations by.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % below
    }
}

struct Asked {
    cookie: u64,
    command: u16,
    offset: usize,
    length: usize,
    written: Vec<u8>,
}

/// Runs `rounds` of operations; requests are multiples of `block` and usually short.
fn holds(device: &Arc<dyn Device>, through: bool, rounds: u32, block: u64, seed: u64) {
    eprintln!("seed {seed:#x}");
    let mut random = Random(seed);
    let size = device.size();
    let mut model: Vec<Option<u8>> = vec![Some(0); size as usize];
    let mut all: Vec<Held> = (0..4).map(|n| Held::begin(device, n % 2 == 0, true, through)).collect();
    for _ in 0..rounds {
        let mut asked: Vec<Vec<Asked>> = Vec::new();
        let mut at = 0;
        for (number, held) in all.iter_mut().enumerate() {
            let mut batch = Vec::new();
            for _ in 0..random.next(9) {
                let offset = at + block * random.next(size / block / 24);
                // Now and then one that does not fit a slot.
                let longest = if random.next(20) == 0 { 600 * KIB } else { 9 * KIB };
                let length = (block * (1 + random.next(longest / block))).min(size.saturating_sub(offset));
                if length == 0 {
                    break;
                }
                batch.push(ask(held, &mut random, number, offset, length));
                at = offset + length;
            }
            asked.push(batch);
        }
        for (held, mut batch) in all.iter_mut().zip(asked) {
            while !batch.is_empty() {
                let (cookie, said) = held.peer.reply();
                let which = batch.iter().position(|a| a.cookie == cookie).expect("was asked");
                settle(&mut model, &batch.swap_remove(which), &said.expect("succeeds"));
            }
        }
    }
    let whole = all[0].peer.call(request::READ, 0, 0, size as u32, &[]).expect("reads");
    for (at, byte) in model.iter().enumerate() {
        assert!(byte.is_none_or(|byte| byte == whole[at]), "at {at}");
    }
    for held in all {
        assert!(held.end().is_orderly());
    }
}

fn ask(held: &mut Held, random: &mut Random, connection: usize, offset: u64, length: u64) -> Asked {
    let structured = connection.is_multiple_of(2);
    let fua = if random.next(4) == 0 { FLAG_FUA } else { 0 };
    let (command, flags) = match random.next(12) {
        0..5 => (request::READ, if structured && random.next(3) == 0 { FLAG_DF } else { 0 }),
        5..9 => (request::WRITE, fua),
        9 => (request::WRITE_ZEROES, fua | if random.next(2) == 0 { FLAG_NO_HOLE } else { 0 }),
        10 => (request::TRIM, fua),
        _ => (request::FLUSH, 0),
    };
    let written: Vec<u8> = match command {
        request::WRITE => (0..length).map(|n| (n.wrapping_mul(31) ^ offset) as u8 | 1).collect(),
        _ => Vec::new(),
    };
    let (offset, length) = if command == request::FLUSH { (0, 0) } else { (offset, length) };
    let cookie = held.peer.ask(command, flags, offset, length as u32, &written);
    Asked { cookie, command, offset: offset as usize, length: length as usize, written }
}

fn settle(model: &mut [Option<u8>], asked: &Asked, data: &[u8]) {
    let range = asked.offset..asked.offset + asked.length;
    match asked.command {
        request::READ => {
            for (known, (at, byte)) in model[range.clone()].iter().zip(range.zip(data)) {
                assert!(known.is_none_or(|known| known == *byte), "at {at}: {byte} where {known:?} was");
            }
        }
        request::WRITE => {
            for (known, byte) in model[range].iter_mut().zip(&asked.written) {
                *known = Some(*byte);
            }
        }
        request::WRITE_ZEROES => model[range].fill(Some(0)),
        request::TRIM => model[range].fill(None),
        _ => {}
    }
}

#[test]
fn a_model_holds_on_memory() {
    holds(&open("mem:4m"), false, 1500, 1, 0x5eed_0001);
}

#[test]
fn a_model_holds_on_memory_that_is_reached_through_an_engine() {
    holds(&open("stripe(chunk=64k):mem:2m,mem:2m"), true, 500, 1, 0x5eed_0002);
}

#[test]
fn a_model_holds_on_a_file() {
    let folder = tempfile::tempdir().expect("a directory");
    let spec = format!("file:{}?size=4m", folder.path().join("f").display());
    holds(&open(&spec), true, 300, 1, 0x5eed_0003);
}

#[test]
fn a_model_holds_on_a_stripe_of_files_and_memory() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = |name| format!("file:{}?size=2m", folder.path().join(name).display());
    let spec = format!("stripe(chunk=16k):{},mem:2m,{}", file("a"), file("b"));
    assert_eq!(open("mem:1m").size(), MIB);
    holds(&open(&spec), true, 200, 512, 0x5eed_0004);
}
