//! Replies that are right in most of their parts.

use nbd::wire::reply::{self, Chunk, ErrorCode, SimpleReply};

use super::random::Random;
use super::reference::{Kind, Want};

/// The byte that the export has at an offset: zeros for long stretches, so that there are holes.
fn byte(offset: u64) -> u8 {
    if offset >> 9 & 3 == 3 { 0 } else { (offset ^ offset >> 8).wrapping_mul(31) as u8 | 1 }
}

fn data(offset: u64, length: u32) -> Vec<u8> {
    (offset..offset + u64::from(length)).map(byte).collect()
}

/// All replies to `wants`, after which a server has answered everything, damaged or not. `stale` are cookies of
/// requests that are over.
pub fn replies(random: &mut Random, structured: bool, wants: &[Want], stale: &[u64]) -> Vec<u8> {
    let mut answers: Vec<Vec<Vec<u8>>> = wants.iter().map(|want| answer(random, structured, want)).collect();
    if random.one_in(3) {
        for _ in 0..=random.below(2) {
            damage(random, &mut answers, wants, stale);
        }
    }
    let mut bytes = weave(random, answers);
    if random.one_in(3) {
        random.mutate(&mut bytes);
    }
    bytes
}

/// Messages of all answers in between each other, those of each in their order.
fn weave(random: &mut Random, answers: Vec<Vec<Vec<u8>>>) -> Vec<u8> {
    let mut left: Vec<_> = answers.into_iter().map(Vec::into_iter).collect();
    let mut bytes = Vec::new();
    while !left.is_empty() {
        let which = random.below(left.len());
        match left[which].next() {
            Some(message) => bytes.extend(message),
            None => drop(left.swap_remove(which)),
        }
    }
    bytes
}

/// The right answer to a request, in messages.
fn answer(random: &mut Random, structured: bool, want: &Want) -> Vec<Vec<u8>> {
    let fails = random.one_in(10);
    let code = ErrorCode(random.pick(&[1, 5, 12, 22, 28, 75, 95, 108, 4711]));
    if !structured || (want.kind != Kind::Read && random.one_in(2)) {
        let mut message = SimpleReply::new(want.cookie, fails.then_some(code)).encode().to_vec();
        if want.kind == Kind::Read && !fails {
            message.extend(data(want.offset, want.length));
        }
        return vec![message];
    }
    let mut messages = if want.kind == Kind::Read { pieces(random, want) } else { Vec::new() };
    if fails {
        let keep = random.below(messages.len() + 1);
        messages.truncate(keep);
        for _ in 0..random.below(3) {
            let message = error(random, want, code, false);
            messages.push(message);
        }
        let message = error(random, want, code, true);
        messages.push(message);
    } else if messages.is_empty() || random.one_in(2) {
        messages.push(reply::none(want.cookie).to_vec());
    } else if let Some(last) = messages.last_mut() {
        // The flags of a chunk.
        last[4..6].copy_from_slice(&reply::FLAG_DONE.to_be_bytes());
    }
    messages
}

/// All data of a read, in chunks in any order.
fn pieces(random: &mut Random, want: &Want) -> Vec<Vec<u8>> {
    let (end, mut at, mut messages) = (want.offset + u64::from(want.length), want.offset, Vec::new());
    let tiny = want.length < 3000 && random.one_in(200);
    let longest = if tiny { 1 } else { random.pick(&[want.length, want.length, 100, 4096, 50_000]) };
    while at < end {
        let least = if tiny { 1 } else { (want.length / 40).max(1) };
        let length = least.max(random.below(longest as usize + 1) as u32).min((end - at) as u32);
        let data = data(at, length);
        messages.push(if data.iter().all(|byte| *byte == 0) && !random.one_in(4) {
            reply::hole(want.cookie, at, length, false).to_vec()
        } else {
            [&reply::data_head(want.cookie, at, length, false)[..], &data].concat()
        });
        at += u64::from(length);
    }
    match random.below(4) {
        0 => {
            for left in (1..messages.len()).rev() {
                messages.swap(left, random.below(left + 1));
            }
        }
        1 => messages.reverse(),
        _ => {}
    }
    messages
}

fn error(random: &mut Random, want: &Want, code: ErrorCode, done: bool) -> Vec<u8> {
    let count = random.pick(&[0, 5, 40, 4096]);
    let text = random.bytes(count);
    let mut body = [&code.0.to_be_bytes()[..], &(count as u16).to_be_bytes(), &text].concat();
    let kind = random.pick(&[reply::ERROR, reply::ERROR, reply::ERROR_OFFSET, reply::ERROR_BIT | 77]);
    if kind == reply::ERROR_OFFSET {
        let at = want.offset + random.below(want.length as usize) as u64;
        body.extend(at.to_be_bytes());
    }
    let flags = if done { reply::FLAG_DONE } else { 0 };
    let chunk = Chunk { flags, kind, cookie: want.cookie, length: body.len() as u32 };
    [&chunk.encode()[..], &body].concat()
}

/// Does something to one message that no server should.
fn damage(random: &mut Random, answers: &mut [Vec<Vec<u8>>], wants: &[Want], stale: &[u64]) {
    let which = random.below(answers.len());
    let Some(want) = wants.get(which) else { return };
    let answer = &mut answers[which];
    let number = random.below(answer.len());
    let Some(message) = answer.get_mut(number) else { return };
    match random.below(12) {
        // Left out, or twice.
        0 => drop(answer.remove(number)),
        1 => {
            let again = message.clone();
            answer.insert(random.below(number + 1), again);
        }
        2 => {
            let again = message.clone();
            answer.push(again);
        }
        // Somebody else's cookie, one of a request that is over, or nobody's.
        3 => {
            let other = random.pick(wants).cookie;
            message[8..16].copy_from_slice(&other.to_be_bytes());
        }
        4 if !stale.is_empty() => {
            let other = random.pick(stale);
            message[8..16].copy_from_slice(&other.to_be_bytes());
        }
        4 | 5 => {
            let other = want.cookie ^ 1 << random.below(64);
            message[8..16].copy_from_slice(&other.to_be_bytes());
        }
        // Another type, other flags, another length or offset.
        6 => {
            let kind = random.pick(&[0, 1, 2, 3, 5, reply::ERROR, reply::ERROR_OFFSET]);
            message[6..8].copy_from_slice(&kind.to_be_bytes());
        }
        7 => {
            let flags = random.pick(&[0, 1, 2, u16::MAX]);
            message[4..6].copy_from_slice(&flags.to_be_bytes());
        }
        // Data that goes on where the read, or the piece, has ended; right in all else.
        8 if message.len() > reply::DATA_BYTES && random.one_in(2) => {
            let count = 1 + random.below(16);
            message.extend(random.bytes(count));
            let length = (message.len() - reply::CHUNK_BYTES) as u32;
            message[16..20].copy_from_slice(&length.to_be_bytes());
        }
        8 if message.len() >= reply::CHUNK_BYTES => {
            let length = random.edge(message.len() as u64 - 20) as u32;
            message[16..20].copy_from_slice(&length.to_be_bytes());
        }
        9 if message.len() >= reply::DATA_BYTES => {
            let offset = random.pick(&[
                want.offset.wrapping_sub(1),
                want.offset,
                want.offset + u64::from(want.length),
                want.offset + u64::from(want.length) / 2,
                0,
                u64::MAX,
            ]);
            message[20..28].copy_from_slice(&offset.to_be_bytes());
        }
        10 => {
            let another = error(random, want, ErrorCode::EIO, false);
            for _ in 0..15 + random.below(4) {
                answer.insert(number, another.clone());
            }
        }
        // A reply of the other kind.
        _ => {
            let simple = SimpleReply::new(want.cookie, None).encode().to_vec();
            answer.insert(number, simple);
        }
    }
}
