//! What the server answers to each option ("Option types"), told by the bytes.

#[path = "common/scripted.rs"]
mod scripted;

use nbd::client::TransmissionFlags;
use nbd::server::{Agreed, Context, ExportInfo, Exports, NegotiationError, Policy, haggle};
use nbd::wire::options::{self, BlockSizes, ContextQuery, Info, InfoRequest, option};
use nbd::wire::{BASE_ALLOCATION, limits};
use scripted::Scripted;

/// Two exports; the first is the default. It may be about to end.
struct Two {
    is_closing: bool,
}

impl Exports for Two {
    fn list(&self) -> Vec<(String, String)> {
        vec![("first".into(), "the one".into()), ("second".into(), String::new())]
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let flags = TransmissionFlags::of(TransmissionFlags::FLUSH | TransmissionFlags::DF);
        let mut export = ExportInfo::new(if name.is_empty() { "first" } else { name }, 1 << 30, flags);
        export.description = Some("the one".into());
        export.minimum_block = 512;
        export.contexts = vec![Context { id: 5, name: BASE_ALLOCATION.into() }];
        matches!(name, "" | "first" | "second").then_some(export)
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }
}

type Reply = (u32, u32, Vec<u8>);

/// A client that says `flags` and `options`: the replies, and how it ended.
fn haggled(flags: u32, said: &[Vec<u8>]) -> (Vec<Reply>, Result<Agreed, NegotiationError>) {
    let mut transport = Scripted::new(&[&[flags.to_be_bytes().to_vec()], said].concat());
    let ended = haggle(&mut transport, &Policy::default(), &Two { is_closing: false });
    assert!(ended.is_err() || transport.rest().is_empty(), "nothing is read ahead, nor left");
    (transport.replies(options::GREETING_BYTES), ended)
}

fn kinds(replies: &[Reply]) -> Vec<u32> {
    replies.iter().map(|(_, kind, _)| *kind).collect()
}

fn go(name: &str) -> Vec<u8> {
    option(options::GO, &InfoRequest::encode(name, &[options::INFO_BLOCK_SIZE]))
}

#[test]
fn go_tells_size_flags_blocks_and_the_canonical_name() {
    let (replies, ended) = haggled(3, &[option(options::STRUCTURED_REPLY, &[]), go("")]);
    let informed: Vec<Info<'_>> = replies[1..]
        .iter()
        .filter(|r| r.1 == options::REP_INFO)
        .map(|r| Info::parse(&r.2).unwrap())
        .collect();
    let flags = TransmissionFlags::of(TransmissionFlags::FLUSH | TransmissionFlags::DF);
    let sizes = BlockSizes { minimum: 512, ..BlockSizes::default() };
    assert_eq!(informed, [Info::Export(1 << 30, flags), Info::Name("first"), Info::BlockSizes(sizes)]);
    assert_eq!(replies.last().unwrap(), &(options::GO, options::REP_ACK, Vec::new()));
    let agreed = ended.unwrap();
    assert!(agreed.structured && agreed.sizes_are_known && agreed.export.contexts.is_empty());
    assert_eq!((agreed.export.name.as_str(), agreed.export.flags), ("first", flags));
}

#[test]
fn info_tells_the_same_and_goes_on_until_the_client_leaves() {
    let wanted = [options::INFO_NAME, options::INFO_DESCRIPTION];
    let asked = InfoRequest::encode("second", &wanted);
    let (replies, ended) = haggled(3, &[option(options::INFO, &asked), option(options::ABORT, b"ignored")]);
    let ends = options::REP_ACK;
    let info = options::REP_INFO;
    assert_eq!(kinds(&replies), [info, info, info, info, ends, ends]);
    assert_eq!(Info::parse(&replies[1].2), Ok(Info::Name("second")));
    assert_eq!(Info::parse(&replies[2].2), Ok(Info::Description(b"the one")));
    assert!(matches!(ended, Err(NegotiationError::Aborted)));
    assert!(ended.unwrap_err().is_ordinary());
}

#[test]
fn df_is_there_with_structured_replies_only() {
    let (replies, ended) = haggled(3, &[go("first")]);
    let Ok(Info::Export(_, flags)) = Info::parse(&replies[0].2) else { panic!("{replies:?}") };
    assert!(!flags.df() && flags.flush());
    assert!(!ended.unwrap().export.flags.df());
}

#[test]
fn export_name_is_answered_with_zeroes_unless_they_were_done_without() {
    for (flags, zeroes) in [(3, 0), (1, 124), (0, 124), (2, 0)] {
        let said = [vec![0, 0, 0, flags], option(options::EXPORT_NAME, b"first")];
        let mut transport = Scripted::new(&said);
        let agreed = haggle(&mut transport, &Policy::default(), &Two { is_closing: false }).unwrap();
        let answer = &transport.said[options::GREETING_BYTES..];
        assert_eq!(answer.len(), 10 + zeroes, "flags {flags}");
        assert_eq!(answer[..10], [0, 0, 0, 0, 0x40, 0, 0, 0, 0, 5], "a GiB; FLUSH and no DF");
        assert!(answer[10..].iter().all(|byte| *byte == 0));
        assert!(!agreed.structured && !agreed.sizes_are_known);
    }
}

#[test]
fn an_export_that_is_not_there_is_an_error_where_the_option_has_one() {
    let (replies, ended) = haggled(3, &[go("third"), option(options::EXPORT_NAME, b"third")]);
    assert_eq!(kinds(&replies), [options::ERR_UNKNOWN]);
    assert!(matches!(ended, Err(NegotiationError::UnknownExport)));
}

#[test]
fn what_is_not_known_or_not_well_formed_is_refused_and_the_next_option_taken() {
    let asked = [
        (option(4, b"PEEK_EXPORT"), options::ERR_UNSUP),
        (option(11, &[]), options::ERR_UNSUP),
        (option(u32::MAX, &[]), options::ERR_UNSUP),
        (option(options::STARTTLS, &[]), options::ERR_POLICY),
        (option(options::LIST, b"data"), options::ERR_INVALID),
        (option(options::STRUCTURED_REPLY, b"data"), options::ERR_INVALID),
        (option(options::GO, &[]), options::ERR_INVALID),
        (option(options::GO, &[0, 0, 0, 9, b'x', 0, 0]), options::ERR_INVALID),
        (option(options::GO, &InfoRequest::encode("a\0b", &[])), options::ERR_INVALID),
        (option(options::GO, &InfoRequest::encode(&"n".repeat(4097), &[])), options::ERR_INVALID),
        (option(options::GO, &vec![0; limits::OPTION_DATA + 1]), options::ERR_TOO_BIG),
        (option(99, &vec![0; limits::OPTION_DROPPED]), options::ERR_TOO_BIG),
    ];
    for (bytes, kind) in asked {
        let (replies, ended) = haggled(3, &[bytes, go("first")]);
        assert_eq!(replies[0].1, kind, "{:?}", replies[0]);
        assert!(std::str::from_utf8(&replies[0].2).is_ok_and(|text| !text.is_empty()), "it says why");
        assert!(ended.is_ok());
    }
}

#[test]
fn who_announces_or_asks_too_much_or_sets_unknown_flags_is_cut_off() {
    let mut long = option(options::GO, &[]);
    long[12..].copy_from_slice(&(limits::OPTION_DROPPED as u32 + 1).to_be_bytes());
    assert!(matches!(haggled(3, &[long]).1, Err(NegotiationError::TooLong { .. })));
    let long = option(options::EXPORT_NAME, &vec![b'n'; limits::OPTION_DATA + 1]);
    assert!(matches!(haggled(3, &[long]).1, Err(NegotiationError::TooLong { .. })));
    let many = vec![option(99, &[]); limits::OPTIONS as usize + 1];
    let (replies, ended) = haggled(3, &many);
    assert_eq!(replies.len(), limits::OPTIONS as usize);
    assert!(matches!(ended, Err(NegotiationError::TooMany)));
    assert!(matches!(haggled(4, &[]).1, Err(NegotiationError::Flags(4))));
    assert!(matches!(haggled(2, &[go("first")]).1, Err(NegotiationError::NotFixed(options::GO))));
    assert!(matches!(haggled(3, &[vec![0; 16]]).1, Err(NegotiationError::Wire(_))));
    assert!(matches!(haggled(3, &[]).1, Err(NegotiationError::Closed)));
    assert!(matches!(haggled(3, &[vec![0x49; 3]]).1, Err(NegotiationError::Io { .. })));
}

fn set(name: &str, queries: &[&str]) -> Vec<u8> {
    option(options::SET_META_CONTEXT, &ContextQuery::encode(name, queries))
}

fn list(queries: &[&str]) -> Vec<u8> {
    option(options::LIST_META_CONTEXT, &ContextQuery::encode("first", queries))
}

#[test]
fn contexts_are_listed_by_wildcard_and_chosen_by_name() {
    let structured = option(options::STRUCTURED_REPLY, &[]);
    for (asked, found) in [
        (list(&[]), true),
        (list(&["base:"]), true),
        (list(&[BASE_ALLOCATION]), true),
        (list(&["x-own:"]), false),
        (list(&["base:other"]), false),
        (set("first", &[]), false),
        (set("first", &["base:"]), false),
        (set("first", &["x-own:a", BASE_ALLOCATION]), true),
        (set("first", &[BASE_ALLOCATION, BASE_ALLOCATION]), true),
    ] {
        let is_choice = asked[11] == options::SET_META_CONTEXT as u8;
        let (replies, ended) = haggled(3, &[structured.clone(), asked.clone(), go("first")]);
        let contexts: Vec<_> = replies.iter().filter(|r| r.1 == options::REP_META_CONTEXT).collect();
        assert_eq!(contexts.len(), usize::from(found), "{asked:?}");
        if let Some(context) = contexts.first() {
            let id = if is_choice { 5 } else { 0 };
            assert_eq!(options::parse_context(&context.2), Ok((id, BASE_ALLOCATION)));
        }
        assert_eq!(ended.unwrap().export.contexts.len(), usize::from(found && is_choice));
    }
}

#[test]
fn contexts_hold_for_the_export_that_they_were_chosen_for_and_until_the_next_choice() {
    let structured = option(options::STRUCTURED_REPLY, &[]);
    let chosen = |said: &[Vec<u8>]| {
        let (_, ended) = haggled(3, &[std::slice::from_ref(&structured), said].concat());
        ended.unwrap().export.contexts.len()
    };
    assert_eq!(chosen(&[set("", &[BASE_ALLOCATION]), go("first")]), 1, "the default by its name");
    assert_eq!(chosen(&[set("second", &[BASE_ALLOCATION]), go("first")]), 0);
    assert_eq!(chosen(&[set("first", &[BASE_ALLOCATION]), set("first", &[]), go("first")]), 0);
    let wrong = option(options::SET_META_CONTEXT, b"wrong");
    assert_eq!(
        chosen(&[set("first", &[BASE_ALLOCATION]), wrong, go("first")]),
        0,
        "a choice that fails is one"
    );
    let (replies, _) = haggled(3, &[set("first", &[BASE_ALLOCATION]), go("first")]);
    assert_eq!(replies[0].1, options::ERR_INVALID, "structured replies come first");
    let (replies, _) = haggled(3, &[structured.clone(), set("third", &[]), go("first")]);
    assert_eq!(replies[1].1, options::ERR_UNKNOWN);
}

#[test]
fn a_list_is_given_or_refused_by_policy() {
    let (replies, _) = haggled(3, &[option(options::LIST, &[])]);
    assert_eq!(kinds(&replies), [options::REP_SERVER, options::REP_SERVER, options::REP_ACK]);
    assert_eq!(options::parse_server(&replies[0].2), Ok(("first", &b"the one"[..])));
    let policy = Policy { list: false, ..Policy::default() };
    let mut transport = Scripted::new(&[vec![0, 0, 0, 3], option(options::LIST, &[])]);
    assert!(haggle(&mut transport, &policy, &Two { is_closing: false }).is_err());
    assert_eq!(kinds(&transport.replies(options::GREETING_BYTES)), [options::ERR_POLICY]);
}

#[test]
fn a_server_that_ends_says_so_and_lets_nobody_in() {
    let said =
        [vec![0, 0, 0, 3], go("first"), option(options::LIST, &[]), option(options::EXPORT_NAME, b"first")];
    let mut transport = Scripted::new(&said);
    let ended = haggle(&mut transport, &Policy::default(), &Two { is_closing: true });
    assert!(matches!(ended, Err(NegotiationError::Closing)));
    let replies = transport.replies(options::GREETING_BYTES);
    assert_eq!(kinds(&replies), [options::ERR_SHUTDOWN, options::ERR_SHUTDOWN]);
}
