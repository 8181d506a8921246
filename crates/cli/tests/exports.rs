//! Exports of other hosts wherever a device is named: looked at, and not written where that would cost somebody data.

mod common;
mod served;

use common::{fits_schema, json, place, refused, run, works};
use served::Served;

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
