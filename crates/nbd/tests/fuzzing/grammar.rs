//! Conversations that are right in most of their parts.

use nbd::wire::options::{self, BlockSizes, ContextQuery, Greeting, Info, InfoRequest};
use nbd::wire::{ErrorCode, Request, SimpleReply, TransmissionFlags, reply};

use super::memory::Script;
use super::random::Random;

const NAMES: [&str; 6] = ["", "disk", "disk", "other", "näme", "a name with \u{1} in it"];
const QUERIES: [&str; 6] = ["base:allocation", "base:", "x-own:what", "base:other", "nothing", ":"];

/// Flags of either side: without fixed newstyle now and then.
const FLAGS: [u16; 10] = [3, 3, 3, 3, 3, 1, 1, 1, 2, 0];

fn name(random: &mut Random) -> String {
    if random.one_in(40) {
        "n".repeat(random.edge(4096).min(5000) as usize)
    } else {
        random.pick(&NAMES).into()
    }
}

/// A message whose length field may lie.
fn with_length(random: &mut Random, mut message: Vec<u8>, at: usize, head: usize) -> Vec<u8> {
    let length = random.length(message.len() - head);
    message[at..at + 4].copy_from_slice(&length.to_be_bytes());
    message
}

/// One option of a client's.
fn option(random: &mut Random) -> Vec<u8> {
    let (kind, data) = match random.below(20) {
        0 => (options::EXPORT_NAME, name(random).into_bytes()),
        1 => (options::ABORT, Vec::new()),
        2 => (options::LIST, Vec::new()),
        3 => {
            let option = random.next() as u32 >> random.below(32);
            let count = random.below(100);
            (option, random.bytes(count))
        }
        4..=7 => {
            let requests: Vec<u16> = (0..random.below(5)).map(|_| random.below(6) as u16).collect();
            (options::INFO, InfoRequest::encode(&name(random), &requests))
        }
        8..=10 => {
            let requests: Vec<u16> = (0..random.below(5)).map(|_| random.below(6) as u16).collect();
            (options::GO, InfoRequest::encode(&name(random), &requests))
        }
        11..=14 => (options::STRUCTURED_REPLY, Vec::new()),
        15 if random.one_in(200) => {
            let count = random.edge(1 << 20).min(3 << 20) as usize;
            (options::GO, vec![0; count])
        }
        _ => {
            let kind = random.pick(&[options::LIST_META_CONTEXT, options::SET_META_CONTEXT]);
            let queries: Vec<&str> = (0..random.below(5)).map(|_| random.pick(&QUERIES)).collect();
            (kind, ContextQuery::encode(&name(random), &queries))
        }
    };
    let data = if random.one_in(30) { [data, random.bytes(3)].concat() } else { data };
    let message = options::option(kind, &data);
    with_length(random, message, 12, options::OPTION_BYTES)
}

fn options(random: &mut Random, most: usize) -> Vec<u8> {
    if random.one_in(80) {
        // More of them than are answered, or nearly so; each by itself is right.
        let count = 60 + random.below(10);
        return (0..count).flat_map(|_| options::option(99, b"what")).collect();
    }
    (0..random.below(most)).flat_map(|_| option(random)).collect()
}

/// What a client says.
pub fn client(random: &mut Random) -> Script {
    let flags: u32 = if random.one_in(16) { random.edge(3) as u32 } else { random.pick(&FLAGS).into() };
    let mut clear = flags.to_be_bytes().to_vec();
    let has_tls = random.one_in(3);
    clear.extend(options(random, 6));
    let mut secure = Vec::new();
    if has_tls {
        clear.extend(options::option(options::STARTTLS, &[]));
        if random.one_in(10) {
            clear.extend(option(random));
        }
        secure.extend(options(random, 6));
    }
    let last = if has_tls { &mut secure } else { &mut clear };
    last.extend(options::option(options::GO, &InfoRequest::encode("disk", &[options::INFO_BLOCK_SIZE])));
    for _ in 0..random.below(6) {
        last.extend(request(random));
    }
    random.mutate(&mut clear);
    random.mutate(&mut secure);
    Script { clear, secure }
}

/// One request of a client's, with its data.
fn request(random: &mut Random) -> Vec<u8> {
    let command = random.below(10) as u16;
    let length = random.edge(512) as u32;
    let asked = Request {
        flags: random.below(64) as u16,
        command,
        cookie: random.next(),
        offset: random.edge(1 << 20),
        length,
    };
    let data = asked.payload().min(600) as usize;
    [asked.encode().to_vec(), random.bytes(data)].concat()
}

/// What a server says; `wants_tls` where the client begins with that.
pub fn server(random: &mut Random, wants_tls: bool, lists: bool) -> Script {
    let flags = if random.one_in(16) { random.edge(3) as u16 } else { random.pick(&FLAGS) };
    let mut clear = Greeting { flags }.encode().to_vec();
    let mut secure = Vec::new();
    if wants_tls {
        let kind = if random.one_in(8) { error(random) } else { options::REP_ACK };
        clear.extend(answer(random, options::STARTTLS, kind, &[]));
        if random.one_in(10) {
            clear.extend(answer(random, options::STRUCTURED_REPLY, options::REP_ACK, &[]));
        }
    }
    let last = if wants_tls { &mut secure } else { &mut clear };
    if lists {
        list(random, last)
    } else {
        agreement(random, last, flags)
    }
    random.mutate(&mut clear);
    random.mutate(&mut secure);
    Script { clear, secure }
}

fn error(random: &mut Random) -> u32 {
    options::REP_ERROR_BIT | random.below(12) as u32
}

/// A reply to an option; now and then another one, or to another option.
fn answer(random: &mut Random, option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let option = if random.one_in(60) { random.below(12) as u32 } else { option };
    let kind = if random.one_in(60) { random.below(8) as u32 } else { kind };
    let message = options::reply(option, kind, data);
    with_length(random, message, 16, options::REPLY_BYTES)
}

fn refusal(random: &mut Random, option: u32) -> Vec<u8> {
    let (kind, count) = (error(random), random.pick(&[0, 7, 40, 4095, 4097]));
    let text = random.bytes(count);
    answer(random, option, kind, &text)
}

fn list(random: &mut Random, into: &mut Vec<u8>) {
    let count = if random.one_in(400) { 4090 + random.below(12) } else { random.below(8) };
    for _ in 0..count {
        let data = options::server(&name(random), "what it is");
        into.extend(answer(random, options::LIST, options::REP_SERVER, &data));
    }
    let last = if random.one_in(8) {
        refusal(random, options::LIST)
    } else {
        answer(random, options::LIST, options::REP_ACK, &[])
    };
    into.extend(last);
}

fn agreement(random: &mut Random, into: &mut Vec<u8>, flags: u16) {
    if flags & 1 != 0 {
        let structured = random.one_in(8);
        into.extend(match structured {
            true => refusal(random, options::STRUCTURED_REPLY),
            false => answer(random, options::STRUCTURED_REPLY, options::REP_ACK, &[]),
        });
        if !structured {
            for _ in 0..random.pick(&[1, 1, 1, 0, 2]) {
                let known = if random.one_in(10) { QUERIES.len() } else { 1 };
                let query = random.pick(&QUERIES[..known]);
                let data = options::context(random.next() as u32, query);
                into.extend(answer(random, options::SET_META_CONTEXT, options::REP_META_CONTEXT, &data));
            }
            into.extend(answer(random, options::SET_META_CONTEXT, options::REP_ACK, &[]));
        }
        for _ in 0..if random.one_in(50) { 60 + random.below(10) } else { 1 + random.below(5) } {
            let data = info(random).encode();
            into.extend(answer(random, options::GO, options::REP_INFO, &data));
        }
        let last = if random.one_in(8) {
            refusal(random, options::GO)
        } else {
            answer(random, options::GO, options::REP_ACK, &[])
        };
        into.extend(last);
    }
    if flags & 1 == 0 || random.one_in(8) {
        let flags = TransmissionFlags(random.next() as u16);
        into.extend(options::export_name_answer(random.edge(1 << 20), flags));
        let count = random.pick(&[0, 124, 100]);
        into.extend(vec![0; count]);
    }
    for _ in 0..random.below(6) {
        into.extend(reply(random));
    }
}

fn info(random: &mut Random) -> Info<'static> {
    match random.below(8) {
        0 => Info::Name("näme"),
        1 => Info::Description(b"what \x1b[2J it is \xff"),
        2 | 3 => {
            let minimum = random.pick(&[1, 512, 4096, 65536, 0, 3, 131_072]);
            let preferred = random.pick(&[512, 4096, 65536, 4095]);
            Info::BlockSizes(BlockSizes { minimum, preferred, maximum: random.edge(32 << 20) as u32 })
        }
        4 => Info::Other(random.next() as u16),
        _ => Info::Export(random.edge(1 << 20), TransmissionFlags(random.next() as u16)),
    }
}

/// What a server answers to a request.
fn reply(random: &mut Random) -> Vec<u8> {
    let (cookie, done) = (random.next(), random.one_in(2));
    let code = ErrorCode(random.edge(5) as u32);
    let message = match random.below(8) {
        0 => return SimpleReply { error: random.edge(5) as u32, cookie }.encode().to_vec(),
        1 => reply::hole(cookie, random.edge(1 << 20), random.edge(512) as u32, done).to_vec(),
        2 => reply::none(cookie).to_vec(),
        3 => reply::error(cookie, code).to_vec(),
        4 => reply::error_with_message(cookie, code, "what is wrong"),
        5 => {
            let count = random.below(5);
            let extents: Vec<(u32, u32)> =
                (0..count).map(|_| (random.edge(4096) as u32, random.below(4) as u32)).collect();
            reply::block_status(cookie, random.next() as u32, &extents)
        }
        _ => {
            let count = random.below(600);
            let head = reply::data_head(cookie, random.edge(1 << 20), count as u32, done);
            [head.to_vec(), random.bytes(count)].concat()
        }
    };
    with_length(random, message, 16, reply::CHUNK_BYTES)
}
