//! Programs of others as clients: nbdinfo and nbdcopy (libnbd), qemu-img, fio, with and without TLS.

mod common;
mod served;

use std::path::Path;

use common::place;
use serde_json::Value;
use served::{Served, have, noise, peer, peer_works};

/// What every client has to find true of an export of 16 MiB, whatever it is.
fn is_served_well(folder: &Path, served: &Served) {
    let uri = served.uri.as_str();
    noise(&folder.join("noise"), 16 << 20);
    if have(&["nbdinfo", "nbdcopy"]) {
        let info: Value =
            serde_json::from_str(&peer_works(folder, "nbdinfo", &["--json", uri])).expect("JSON");
        let export = &info["exports"][0];
        assert_eq!(
            (&info["structured"], &export["export-size"]),
            (&Value::Bool(true), &Value::from(16 << 20))
        );
        for can in
            ["can_df", "can_fast_zero", "can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"]
        {
            assert_eq!(export[can], true, "{can}: {info:#}");
        }
        assert!(peer_works(folder, "nbdinfo", &["--list", uri]).contains("export="));
        peer_works(folder, "nbdcopy", &["noise", uri]);
        let map: Value =
            serde_json::from_str(&peer_works(folder, "nbdinfo", &["--map", "--json", uri])).expect("JSON");
        let told: u64 = map.as_array().expect("a list").iter().filter_map(|e| e["length"].as_u64()).sum();
        assert_eq!(told, 16 << 20, "{map}");
        peer_works(folder, "nbdcopy", &[uri, "back"]);
        assert!(
            std::fs::read(folder.join("back")).expect("is there")
                == std::fs::read(folder.join("noise")).expect("is there")
        );
    }
    if have(&["qemu-img"]) {
        let raw = |more: &[&str]| peer_works(folder, "qemu-img", more);
        assert!(raw(&["info", "-f", "raw", uri]).contains("16 MiB"));
        raw(&["convert", "-n", "-f", "raw", "-O", "raw", "noise", uri]);
        raw(&["compare", "-f", "raw", "-F", "raw", "noise", uri]);
        std::fs::File::create(folder.join("zeros")).and_then(|f| f.set_len(16 << 20)).expect("makes it");
        raw(&["convert", "-n", "-f", "raw", "-O", "raw", "zeros", uri]);
        raw(&["compare", "-f", "raw", "-F", "raw", "zeros", uri]);
    }
    if have(&["fio"]) && peer(folder, "fio", &["--enghelp=nbd"]).0 {
        let uri = format!("--uri={uri}");
        let job = ["--name=v", "--ioengine=nbd", &uri, "--rw=randwrite", "--bsrange=4k-256k", "--iodepth=32"];
        peer_works(
            folder,
            "fio",
            &[&job[..], &["--size=16m", "--verify=crc32c", "--verify_fatal=1"]].concat(),
        );
    }
}

#[test]
fn memory_is_served_to_programs_of_others() {
    let folder = place();
    let served = Served::start(folder.path(), &["memory", "serve", "--size", "16m"]);
    is_served_well(folder.path(), &served);
    let (code, err) = served.end();
    assert!(code == 0 && !err.contains("note:"), "{err}");
}

#[test]
fn a_volume_is_served_to_programs_of_others() {
    let folder = place();
    let spec = "stripe(chunk=64k):file:a?size=4m,mem:4m,file:b?size=4m,file:c?size=4m";
    let served = Served::start(folder.path(), &["volume", "export", spec]);
    is_served_well(folder.path(), &served);
    let (code, err) = served.end();
    assert!(code == 0 && !err.contains("note:"), "{err}");
}

/// A file that clients and server have the key in.
fn key(folder: &Path, name: &str) {
    peer_works(folder, "psktool", &["-u", "alice", "-p", name]);
}

#[test]
fn with_a_key_only_those_are_served_who_have_it() {
    let folder = place();
    if !have(&["psktool", "nbdinfo", "nbdcopy"]) {
        return;
    }
    key(folder.path(), "keys");
    key(folder.path(), "others");
    let served = Served::start(folder.path(), &["memory", "serve", "--size", "4m", "--tls-psk", "keys"]);
    assert!(served.uri.starts_with("nbds://127.0.0.1:"), "{}", served.uri);
    let with = |keys: &str| {
        let place = served.uri.trim_start_matches("nbds://");
        format!("nbds://alice@{place}?tls-psk-file={}", folder.path().join(keys).display())
    };
    let info = peer_works(folder.path(), "nbdinfo", &[&with("keys")]);
    assert!(info.contains("with TLS"), "{info}");
    noise(&folder.path().join("noise"), 4 << 20);
    peer_works(folder.path(), "nbdcopy", &["noise", &with("keys")]);
    peer_works(folder.path(), "nbdcopy", &[&with("keys"), "back"]);
    let read = |name| std::fs::read(folder.path().join(name)).expect("is there");
    assert!(read("noise") == read("back"));
    let (success, text) = peer(folder.path(), "nbdinfo", &[&with("others")]);
    assert!(!success, "a wrong key: {text}");
    let (success, text) = peer(folder.path(), "nbdinfo", &[&served.uri.replace("nbds://", "nbd://")]);
    assert!(!success, "no TLS: {text}");
    assert_eq!(served.end().0, 0);
}

#[test]
fn volumes_are_served_through_tls_too() {
    let folder = place();
    if !have(&["psktool", "nbdcopy"]) {
        return;
    }
    key(folder.path(), "keys");
    let serve = ["volume", "export", "file:f?size=4m", "--tls-psk", "keys"];
    let served = Served::start(folder.path(), &serve);
    let place = served.uri.trim_start_matches("nbds://");
    let uri = format!("nbds://alice@{place}?tls-psk-file={}", folder.path().join("keys").display());
    noise(&folder.path().join("noise"), 4 << 20);
    peer_works(folder.path(), "nbdcopy", &["noise", &uri]);
    peer_works(folder.path(), "nbdcopy", &[&uri, "back"]);
    let read = |name| std::fs::read(folder.path().join(name)).expect("is there");
    assert!(read("noise") == read("back") && read("noise") == read("f"));
    assert_eq!(served.end().0, 0);
}

#[test]
fn with_certificates_clients_are_sure_whom_they_talk_to() {
    let folder = place();
    if !have(&["certtool", "nbdinfo"]) {
        return;
    }
    let make = |arguments: &[&str]| peer_works(folder.path(), "certtool", arguments);
    std::fs::write(folder.path().join("ca.info"), "cn = tests\nca\ncert_signing_key\n").expect("writes");
    let server = "cn = localhost\ndns_name = localhost\nip_address = 127.0.0.1\ntls_www_server\n";
    std::fs::write(folder.path().join("server.info"), server).expect("writes");
    make(&["--generate-privkey", "--outfile", "ca-key.pem"]);
    make(&["--generate-privkey", "--outfile", "server-key.pem"]);
    let ca = ["--generate-self-signed", "--load-privkey", "ca-key.pem", "--template", "ca.info"];
    make(&[&ca[..], &["--outfile", "ca-cert.pem"]].concat());
    let signed =
        ["--generate-certificate", "--load-ca-certificate", "ca-cert.pem", "--load-ca-privkey", "ca-key.pem"];
    let own =
        ["--load-privkey", "server-key.pem", "--template", "server.info", "--outfile", "server-cert.pem"];
    make(&[&signed[..], &own].concat());
    let serve = ["memory", "serve", "--size", "1m", "--tls-certificates", "."];
    let served = Served::start(folder.path(), &serve);
    let uri = format!("{}?tls-certificates={}", served.uri, folder.path().display());
    let (success, text) = peer(folder.path(), "nbdinfo", &[&uri]);
    assert!(!success, "who shows no certificate is not let in: {text}");
    assert_eq!(served.end().0, 0);
    let served = Served::start(folder.path(), &[&serve[..], &["--tls-anonymous"]].concat());
    let uri = format!("{}?tls-certificates={}", served.uri, folder.path().display());
    assert!(peer_works(folder.path(), "nbdinfo", &[&uri]).contains("with TLS"));
    assert_eq!(served.end().0, 0);
}
