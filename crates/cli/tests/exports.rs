//! Exports of other hosts wherever a device is named: looked at, and not written where that would cost somebody data.

mod common;
mod served;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{fits_schema, json, place, refused, run, works};
use served::Served;

/// A port of this host behind which `server` (`nbd://HOST:PORT`) answers until so many bytes of answers went through, and then
/// nothing does, while every connection stays.
fn falling_silent_after(bytes: u64, server: &str) -> String {
    fn pass(mut from: TcpStream, mut to: TcpStream, left: &AtomicU64, cost: u64) {
        let mut buffer = [0; 1 << 16];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let cost = cost * n as u64;
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(cost)).is_err() {
                left.store(0, Ordering::SeqCst);
                loop {
                    std::thread::park();
                }
            }
            if to.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = server.trim_start_matches("nbd://").trim_end_matches('/').to_owned();
    let left = Arc::new(AtomicU64::new(bytes));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a client");
            let server = TcpStream::connect(&server).expect("the server answers");
            let back = (server.try_clone().expect("a handle"), client.try_clone().expect("a handle"));
            let (asking, answering) = (Arc::clone(&left), Arc::clone(&left));
            std::thread::spawn(move || pass(client, server, &asking, 0));
            std::thread::spawn(move || pass(back.0, back.1, &answering, 1));
        }
    });
    format!("nbd://{address}")
}

#[test]
fn a_sweep_ends_at_the_first_request_that_is_not_answered() {
    let folder = place();
    let folder = folder.path();
    let served = Served::start(folder, &["memory", "serve", "--size", "16m"]);
    works(folder, &["bench", "--rw=write", "--bs=1m", "--time_based=0", "--target", &served.uri]);
    // Seven runs of 8 MiB; what is read to look at the blocks is less than two of them.
    let target = falling_silent_after(36 << 20, &served.uri);
    let space = format!(
        "[sweep]\nprotocol = 'dash'\npasses = 3\n[base]\ntarget = '{target}'\nrw = 'randread'\nbs = '64k'\nsize = '8m'\n\
         time_based = false\nrequest_timeout = '2s'\n[space]\niodepth = [1, 2]\n"
    );
    std::fs::write(folder.join("space.toml"), space).expect("writes");
    let came = run(folder, &["sweep", "space.toml", "--output", "out"]);
    assert_eq!(came.code, 1, "{came:#?}");
    let (error, hint) = came.err.split_once("\nhint: ").expect("an error and a hint");
    let named = format!(
        ": the run failed: {target} has not answered a request for 2.00 s: the sweep ends here, with "
    );
    assert!(error.contains("error: ") && error.contains("iodepth") && error.contains(&named), "{error}");
    assert!(hint.contains("dmesg") && hint.contains("sweep resume out"), "{hint}");
    let status = json(folder, &["sweep", "status", "out", "--json"]);
    let sessions = status["sessions"].as_array().expect("a list");
    assert_eq!(
        sessions[0]["outcome"].as_str().or(sessions[0]["ended"].as_str()),
        Some("unanswered"),
        "{status:#}"
    );
    assert_eq!(status["failures"].as_array().map(Vec::len), Some(1), "no run was tried after it: {status:#}");
    let done = status["done"].as_u64().expect("a number");
    assert!(
        (1..6).contains(&done) && error.contains(&format!("with {done} runs done")),
        "{error}: {status:#}"
    );
}

#[test]
fn with_json_a_request_that_is_not_answered_is_told_from_other_errors() {
    let folder = place();
    let folder = folder.path();
    let served = Served::start(folder, &["memory", "serve", "--size", "16m"]);
    works(folder, &["bench", "--rw=write", "--bs=1m", "--time_based=0", "--target", &served.uri]);
    // What is read to look at the blocks is less than a MiB; so the run reads some of its blocks.
    let target = falling_silent_after(2 << 20, &served.uri);
    let read = ["bench", "--json", "--rw=randread", "--bs=64k", "--runtime=60s", "--request_timeout=2s"];
    let came = run(folder, &[&read[..], &["--target", &target]].concat());
    let document: serde_json::Value = serde_json::from_str(&came.out).expect("one document");
    fits_schema(folder, "error", &document);
    let (error, request) = (&document["error"], &document["error"]["unanswered"]);
    assert_eq!((came.code, &error["class"]), (1, &"failed".into()), "{error:#}");
    assert_eq!(
        (&request["operation"], &request["target"], &request["seconds"]),
        (&"read".into(), &target.as_str().into(), &2.0.into()),
        "{error:#}"
    );
    let offset = request["offset"].as_u64().expect("a number");
    assert!(offset < 16 << 20 && offset.is_multiple_of(64 << 10), "{error:#}");
    let came = run(folder, &["bench", "--json", "--rw=read", "--target", "nowhere"]);
    let other: serde_json::Value = serde_json::from_str(&came.out).expect("one document");
    fits_schema(folder, "error", &other);
    assert_eq!(other["error"]["unanswered"], serde_json::Value::Null);
}

#[test]
fn probe_tells_what_a_server_tells_of_its_export() {
    let folder = place();
    let folder = folder.path();
    let served = Served::start(folder, &["memory", "serve", "--size", "16m"]);
    let document = json(folder, &["probe", &served.uri, "--json"]);
    fits_schema(folder, "probe", &document);
    assert_eq!(document["targets"], serde_json::json!([]));
    let export = &document["exports"][0];
    assert_eq!((&export["spec"], &export["size_bytes"]), (&served.uri.as_str().into(), &(16 << 20).into()));
    assert_eq!((&export["tls"], &export["read_only"]), (&serde_json::Value::Null, &false.into()));
    let flags = export["flags"].as_array().expect("a list");
    for flag in ["flush", "fua", "trim", "write_zeroes", "multi_conn"] {
        assert!(flags.contains(&flag.into()), "{flag}: {flags:?}");
    }
    assert_eq!(export["signatures"], serde_json::json!([]));

    let screen = works(folder, &["probe", &served.uri]).out;
    for part in ["the default export of 127.0.0.1:", "16 MiB", "TLS      none", "flush, fua", "4 connections"]
    {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(!screen.contains("no block devices"), "{screen}");
    served.kill();
    let came = run(folder, &["probe", "nbd+unix:///?socket=nobody"]);
    assert_eq!(came.code, 1, "{came:?}");
    assert!(came.err.contains("nobody: no connection") && came.err.contains("hint: "), "{came:?}");
}

#[test]
fn probe_tells_how_many_devices_are_one() {
    let folder = place();
    let folder = folder.path();
    let served = Served::start(folder, &["memory", "serve", "--size", "4m"]);
    let members = format!("file:a?size=4m,{}", served.uri);
    works(folder, &["volume", "create", "--name", "scratch", "--chunk", "16k", &members]);

    let labelled = format!("volume:{},a", served.uri);
    let document = json(folder, &["probe", &labelled, "--json"]);
    fits_schema(folder, "probe", &document);
    assert_eq!(
        (document["targets"][0]["path"].as_str(), document["exports"][0]["size_bytes"].as_u64()),
        (Some("a"), Some(4 << 20))
    );
    let volume = &document["volumes"][0];
    assert_eq!((volume["kind"].as_str(), volume["name"].as_str()), (Some("volume"), Some("scratch")));
    assert_eq!(volume["chunk_bytes"], 16 << 10);
    assert_eq!(volume["members"], serde_json::json!(["a", served.uri]), "in the order of the labels");
    assert_eq!((volume["size_bytes"].is_u64(), &volume["problem"]), (true, &serde_json::Value::Null));
    let bears = document["exports"][0]["signatures"][0].as_str().expect("its label");
    assert!(bears.starts_with("flashwright volume member labelled 'scratch'"), "{bears}");

    let half = json(folder, &["probe", &format!("volume:{}", served.uri), "--json"]);
    let problem = half["volumes"][0]["problem"].as_str().expect("a member is missing");
    assert!(problem.contains("missing"), "{problem}");
    let screen = works(folder, &["probe", &format!("stripe(chunk=8k):a,{}", served.uri)]).out;
    assert!(screen.contains("a stripe of 2 members in chunks of 8 KiB, 8 MiB"), "{screen}");
}

#[test]
fn an_export_that_bears_a_label_is_written_only_if_it_is_given_up() {
    let folder = place();
    let folder = folder.path();
    let one = Served::start(folder, &["memory", "serve", "--size", "4m"]);
    let other = Served::start(folder, &["memory", "serve", "--size", "4m"]);
    let (one, other) = (one.uri.as_str(), other.uri.as_str());
    works(folder, &["volume", "create", "--name", "scratch", "--chunk", "16k", &format!("{one},{other}")]);

    let bench = ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--json", "--target"];
    let signed = "it bears the signature of an earlier use: flashwright volume member labelled 'scratch' (at byte 4096)";
    for (target, member) in [
        (one.to_owned(), one),
        (format!("stripe:{other},{one}"), other),
        (format!("volume:{one},{other}"), one),
    ] {
        let words = format!(
            "error: refusing to write to {member}: {signed}\nhint: if its contents may be lost add --destroy {member}\n"
        );
        refused(folder, &[&bench[..], &[&target]].concat(), 3, &words);
    }
    let shown = json(folder, &["volume", "show", one, other, "--json"]);
    assert_eq!(shown["volumes"][0]["whole"], true, "nothing was written");

    // Reads need no such word, and what is given up is written.
    json(
        folder,
        &["bench", "--rw=randread", "--bs=4k", "--size=64k", "--time_based=0", "--json", "--target", one],
    );
    let written = json(folder, &[&bench[..], &[one, "--destroy", one]].concat());
    let warnings = written["warnings"].as_array().expect("a list");
    let unwatched = warnings.iter().find(|warning| warning["code"] == "W-UNWATCHED").expect("is not watched");
    assert!(
        unwatched["message"].as_str().is_some_and(|text| text.contains("their own hosts")),
        "{unwatched}"
    );
    assert_eq!(json(folder, &["volume", "show", one, "--json"])["volumes"], serde_json::json!([]));
}
