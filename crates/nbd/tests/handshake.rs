//! What the client makes of servers of every age, and of what is none, told by the bytes.

#[path = "common/scripted.rs"]
mod scripted;

use nbd::client::{Agreed, HandshakeError, Terms, TransmissionFlags, handshake, list_exports};
use nbd::wire::options::{self, BlockSizes, Greeting, Info, reply};
use nbd::wire::{BASE_ALLOCATION, OLDSTYLE_MAGIC, limits};
use scripted::Scripted;

fn terms() -> Terms {
    Terms { export: "disk".into(), structured: true, allocation: true, tls: None }
}

fn shaken(said: &[Vec<u8>]) -> Result<Agreed, HandshakeError> {
    handshake(&mut Scripted::new(said), &terms())
}

fn greeting() -> Vec<u8> {
    Greeting { flags: 3 }.encode().to_vec()
}

fn ack(option: u32) -> Vec<u8> {
    reply(option, options::REP_ACK, &[])
}

fn info(info: Info<'_>) -> Vec<u8> {
    reply(options::GO, options::REP_INFO, &info.encode())
}

fn export() -> Vec<u8> {
    info(Info::Export(4096, TransmissionFlags::of(TransmissionFlags::TRIM)))
}

/// A server up to where the export is asked for: chunks, and no contexts.
fn before_go() -> Vec<u8> {
    [greeting(), ack(options::STRUCTURED_REPLY), ack(options::SET_META_CONTEXT)].concat()
}

#[test]
fn what_a_modern_server_says_is_taken_down() {
    let context = options::context(9, BASE_ALLOCATION);
    let sizes = BlockSizes { minimum: 4096, preferred: 65536, maximum: 1 << 20 };
    let agreed = shaken(&[
        greeting(),
        ack(options::STRUCTURED_REPLY),
        reply(options::SET_META_CONTEXT, options::REP_META_CONTEXT, &context),
        ack(options::SET_META_CONTEXT),
        info(Info::BlockSizes(sizes)),
        info(Info::Other(77)),
        info(Info::Name("canonical")),
        info(Info::Description(b"two\nlines")),
        export(),
        ack(options::GO),
    ])
    .unwrap();
    assert!(agreed.structured && agreed.export.flags.trim());
    assert_eq!((agreed.export.name.as_str(), agreed.export.size), ("canonical", 4096));
    assert_eq!(agreed.export.description.as_deref(), Some("two lines"));
    assert_eq!((agreed.export.block_sizes(), agreed.export.context(BASE_ALLOCATION)), (sizes, Some(9)));
}

#[test]
fn servers_that_know_less_are_agreed_with_all_the_same() {
    let unsupported = |option| reply(option, options::ERR_UNSUP, b"not here");
    let answer = options::export_name_answer(4096, TransmissionFlags::of(0)).to_vec();
    let zeroes = vec![0; options::ZEROES];
    let without_options = |flags| Greeting { flags }.encode().to_vec();
    let servers = [
        // No chunks, no contexts, no GO.
        vec![greeting(), unsupported(options::STRUCTURED_REPLY), unsupported(options::GO), answer.clone()],
        // Fixed newstyle, with zeroes.
        vec![
            without_options(1),
            unsupported(options::STRUCTURED_REPLY),
            unsupported(options::GO),
            answer.clone(),
            zeroes.clone(),
        ],
        // Newstyle, with zeroes.
        vec![without_options(0), answer, zeroes],
    ];
    for server in servers {
        let mut transport = Scripted::new(&server);
        let agreed = handshake(&mut transport, &terms()).unwrap();
        assert!(!agreed.structured && agreed.export.contexts.is_empty());
        assert_eq!((agreed.export.size, agreed.export.block_sizes()), (4096, BlockSizes::default()));
        assert!(transport.rest().is_empty(), "zeroes are taken for zeroes");
    }
}

#[test]
fn chunks_without_contexts_are_agreed_on() {
    let refused = reply(options::SET_META_CONTEXT, options::ERR_UNSUP, &[]);
    let agreed =
        shaken(&[greeting(), ack(options::STRUCTURED_REPLY), refused, export(), ack(options::GO)]).unwrap();
    assert!(agreed.structured && agreed.export.contexts.is_empty());
}

#[test]
fn a_refusal_is_told_in_the_servers_words_and_left_politely() {
    let said = b"no such\x1b[2J disk";
    let unknown = reply(options::GO, options::ERR_UNKNOWN, said);
    let mut transport = Scripted::new(&[before_go(), unknown]);
    let error = handshake(&mut transport, &terms()).unwrap_err();
    assert_eq!(error.to_string(), "there is no export `disk` (\"no such [2J disk\")");
    assert!(transport.said.ends_with(&options::option(options::ABORT, &[])));
    let error = shaken(&[before_go(), reply(options::GO, options::ERR_TLS_REQD, &[])]).unwrap_err();
    assert!(matches!(error, HandshakeError::TlsRequired) && error.hint().is_some());
    let error = shaken(&[before_go(), reply(options::GO, options::ERR_POLICY, b"not you")]).unwrap_err();
    assert_eq!(error.to_string(), "the server refused NBD_OPT_GO: NBD_REP_ERR_POLICY (\"not you\")");
    let closed = [Greeting { flags: 0 }.encode().to_vec()];
    assert!(matches!(shaken(&closed), Err(HandshakeError::ClosedOnName { .. })));
}

#[test]
fn what_is_no_server_of_ours_is_told_from_what_is() {
    let mut old = greeting();
    old[8..16].copy_from_slice(&OLDSTYLE_MAGIC.to_be_bytes());
    assert!(matches!(shaken(&[old]), Err(HandshakeError::Oldstyle)));
    assert!(matches!(shaken(&[b"HTTP/1.1 400 Bad Request\r\n".to_vec()]), Err(HandshakeError::NotNbd(_))));
    assert!(matches!(shaken(&[]), Err(HandshakeError::Closed)));
}

#[test]
fn a_server_that_breaks_the_protocol_is_left() {
    let wrong_option = ack(options::LIST);
    let too_long = reply(options::GO, options::REP_INFO, &vec![0; limits::OPTION_REPLY + 1]);
    let two_contexts =
        reply(options::SET_META_CONTEXT, options::REP_META_CONTEXT, &options::context(1, BASE_ALLOCATION));
    let other_context =
        reply(options::SET_META_CONTEXT, options::REP_META_CONTEXT, &options::context(1, "x-own:a"));
    let structured = [greeting(), ack(options::STRUCTURED_REPLY)].concat();
    let huge = info(Info::Export(u64::MAX, TransmissionFlags::of(0)));
    let sizes = BlockSizes { minimum: 3, preferred: 4096, maximum: 1 << 20 };
    let for_ever = vec![export(); limits::OPTION_REPLIES + 1].concat();
    for (what, said) in [
        ("another option's reply", vec![greeting(), wrong_option.clone()]),
        ("another option's reply, later", vec![before_go(), wrong_option]),
        (
            "an acknowledgement with data",
            vec![greeting(), reply(options::STRUCTURED_REPLY, options::REP_ACK, b"x")],
        ),
        ("no size", vec![before_go(), ack(options::GO)]),
        ("a list's reply", vec![before_go(), reply(options::GO, options::REP_SERVER, &[])]),
        ("too long a reply", vec![before_go(), too_long]),
        ("the same context twice", vec![structured.clone(), two_contexts.clone(), two_contexts]),
        ("a context not asked for", vec![structured, other_context]),
        ("a size that no offset reaches", vec![before_go(), huge, ack(options::GO)]),
        ("sizes of blocks that there are not", vec![before_go(), info(Info::BlockSizes(sizes))]),
        ("information cut short", vec![before_go(), reply(options::GO, options::REP_INFO, &[0, 0, 1])]),
        ("information without end", vec![before_go(), for_ever]),
    ] {
        let error = shaken(&said).expect_err(what);
        assert!(
            matches!(error, HandshakeError::Unexpected { .. } | HandshakeError::Wire(_)),
            "{what}: {error:?}"
        );
    }
}

#[test]
fn an_error_with_too_much_to_say_is_cut_and_the_conversation_goes_on() {
    let text = vec![b'x'; 3 * limits::STRING];
    let refused = reply(options::SET_META_CONTEXT, options::ERR_UNSUP, &text);
    let said = [greeting(), ack(options::STRUCTURED_REPLY), refused, export(), ack(options::GO)];
    assert!(shaken(&said).is_ok());
}

#[test]
fn a_list_is_taken_down_until_it_has_no_end() {
    let server = |name: &str| reply(options::LIST, options::REP_SERVER, &options::server(name, "what it is"));
    let listed = list_exports(
        &mut Scripted::new(&[greeting(), server("a"), server(""), ack(options::LIST)]),
        &terms(),
    )
    .unwrap();
    let names: Vec<&str> = listed.iter().map(|export| export.name.as_str()).collect();
    assert_eq!((names, listed[0].description.as_str()), (vec!["a", ""], "what it is"));
    let many = vec![server("a"); limits::LIST + 1].concat();
    let long = vec![server(&"n".repeat(4096)); limits::LIST_BYTES / 4096 + 1].concat();
    for without_end in [many, long] {
        let error = list_exports(&mut Scripted::new(&[greeting(), without_end]), &terms()).unwrap_err();
        assert!(matches!(error, HandshakeError::Unexpected { .. }), "{error:?}");
    }
    let refused = reply(options::LIST, options::ERR_POLICY, &[]);
    let error = list_exports(&mut Scripted::new(&[greeting(), refused]), &terms()).unwrap_err();
    assert_eq!(error.to_string(), "the server refused NBD_OPT_LIST: NBD_REP_ERR_POLICY");
}
