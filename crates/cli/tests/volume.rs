//! `flashwright volume` as the command line takes it, and volumes wherever a device spec is taken.

mod common;
mod served;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use served::Served;

use common::loop_device::LoopDevice;
use common::{fits_schema, is_root, json, names, place, refused, run, skipped, works};

/// Makes a volume of the files a, b and c.
fn made(folder: &Path) {
    let members = "file:a?size=2m,file:b?size=2m,file:c?size=2m";
    works(folder, &["volume", "create", "--name", "scratch", "--chunk", "16k", members]);
}

const GIVEN_UP: [&str; 6] = ["--destroy", "a", "--destroy", "b", "--destroy", "c"];

#[test]
fn a_volume_is_made_shown_measured_checked_and_destroyed() {
    let folder = place();
    let folder = folder.path();
    made(folder);
    assert_eq!(names(folder), ["a", "b", "c"]);
    let shown = json(folder, &["volume", "show", "c,a", "b", "--json"]);
    fits_schema(folder, "volumes", &shown);
    let volume = &shown["volumes"][0];
    assert_eq!((&volume["name"], &volume["whole"]), (&"scratch".into(), &true.into()));
    assert_eq!((&volume["spec"], &volume["width"]), (&"volume:a,b,c".into(), &3.into()));

    let write =
        ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--direct=0", "--verify=crc32c", "--json"];
    let target = ["--target", "volume:c,b,a"];
    let document = json(folder, &[&write[..], &target, &GIVEN_UP].concat());
    fits_schema(folder, "bench", &document);
    let record = &document["record"];
    assert_eq!(record["target"]["kind"], "volume");
    assert_eq!(record["layout"]["chunk"], "16k");
    assert_eq!(
        record["total"]["write_bytes"].as_u64().unwrap() / 65_536,
        record["verified_blocks"].as_u64().unwrap()
    );

    let check = json(folder, &["volume", "check", "b,a,c", "--json"]);
    fits_schema(folder, "volume-check", &check);
    assert_eq!(check["sound"], true);
    let probed = json(folder, &["probe", "volume:a,b,c", "--json"]);
    assert_eq!(probed["targets"].as_array().map(Vec::len), Some(3));

    let came = works(folder, &[&["volume", "destroy", "a,b,c"][..], &GIVEN_UP].concat());
    assert_eq!(came.out, "wiped the label of a\nwiped the label of b\nwiped the label of c\n");
    assert_eq!(works(folder, &["volume", "show", "a,b,c"]).out, "no volumes\n");
}

#[test]
fn a_volume_of_volumes_and_a_stripe_of_them_are_told_apart() {
    let folder = place();
    let folder = folder.path();
    works(folder, &["volume", "create", "file:a?size=2m,file:b?size=2m"]);
    works(folder, &["volume", "create", "file:c?size=2m,file:d?size=2m"]);
    let bench =
        ["bench", "--rw=randread", "--bs=4k", "--time_based=0", "--direct=0", "--allow-unwritten", "--json"];
    let target = ["--target", "stripe(chunk=64k):(volume:b,a),(volume:c,d)"];
    let record = &json(folder, &[&bench[..], &target].concat())["record"];
    assert_eq!(
        record["target"]["size_bytes"],
        4 * (960 << 10),
        "960 KiB lie behind each label, in whole chunks"
    );
    let came = run(folder, &["volume", "create", "(volume:a,b),c"]);
    assert_eq!(came.code, 2, "{came:?}");
}

#[test]
fn what_is_no_volume_is_refused_with_words() {
    let folder = place();
    let folder = folder.path();
    made(folder);
    refused(
        folder,
        &["bench", "--rw=write", "--direct=0", "--target", "volume:a,b,c"],
        3,
        "error: refusing to write to a: it bears the signature of an earlier use: flashwright volume member labelled \
         'scratch' (at byte 4096)\n\
         hint: if its contents may be lost add --destroy a\n",
    );
    refused(
        folder,
        &["volume", "create", "a,mem:1m"],
        2,
        "error: member 2 of 'volume:a,mem:1m': 'mem:1m' cannot be a member of a volume: memory is gone when the command \
         ends, and its label with it\n\
         hint: name files and block devices; stripe(chunk=64k):SPEC,SPEC puts others together without labels\n",
    );
    refused(
        folder,
        &["volume", "create", "--chunk=100", "a"],
        2,
        "error: --chunk=100: is not a multiple of 512 bytes from 512 to 1g\nhint: for instance --chunk=64k\n",
    );
    refused(
        folder,
        &["volume", "destroy", "a,b", "--destroy", "a"],
        3,
        "error: b is not named in --destroy\nhint: if the volume may be lost add --destroy b\n",
    );
    let came = run(folder, &["bench", "--rw=read", "--direct=0", "--target", "volume:a,c"]);
    assert!(came.code == 2 && came.err.contains("has 3 members; missing is member 2"), "{came:?}");
    let copied = fs::copy(folder.join("a"), folder.join("copy"));
    copied.expect("copies");
    let came = run(folder, &["volume", "check", "a,b,c,copy"]);
    assert!(came.code == 3 && came.err.contains("one is a copy of the other"), "{came:?}");
}

#[test]
fn a_lost_copy_of_a_label_is_told_and_repaired() {
    let folder = place();
    let folder = folder.path();
    made(folder);
    let file = fs::OpenOptions::new().write(true).open(folder.join("b")).expect("opens");
    file.write_all_at(b"?", 4096 + 40).expect("writes");
    let came = run(folder, &["volume", "check", "a,b,c"]);
    assert_eq!(came.code, 1, "{came:?}");
    assert!(came.out.contains("the copy of the label at the head of b is damaged"), "{came:?}");
    let write =
        ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--direct=0", "--target", "volume:a,b,c"];
    let came = run(folder, &[&write[..], &GIVEN_UP].concat());
    assert!(came.code == 3 && came.err.contains("check --repair"), "{came:?}");
    let check = json(folder, &["volume", "check", "a,b,c", "--repair", "--json"]);
    assert_eq!((check["sound"].as_bool(), check["repaired"].as_array().map(Vec::len)), (Some(true), Some(1)));
    works(folder, &[&write[..], &GIVEN_UP].concat());
}

#[test]
fn an_exported_volume_is_open_until_its_server_ends_and_a_member_of_an_earlier_time_is_refused() {
    let folder = place();
    let folder = folder.path();
    made(folder);
    let earlier = fs::read(folder.join("b")).expect("reads");
    let export = ["volume", "export", "volume:a,b,c", "--direct=0"];
    let is_clean = || json(folder, &["volume", "show", "a,b,c", "--json"])["volumes"][0]["clean"].as_bool();
    let served = Served::start(folder, &export);
    served.connect().read(0, 4096).expect("reads");
    assert_eq!(is_clean(), Some(true), "nothing was written");
    served.connect().write(20_000, &[7; 70_000]).expect("writes");
    assert_eq!(is_clean(), Some(false));
    served.kill();
    let came = run(folder, &["volume", "check", "a,b,c"]);
    assert!(came.code == 0 && came.out.contains("whoever wrote it was stopped"), "{came:?}");
    let served = Served::start(folder, &export);
    served.connect().write(0, &[8; 4096]).expect("writes");
    let (code, err) = served.end();
    assert_eq!((code, is_clean()), (0, Some(true)), "{err}");

    let now = fs::read(folder.join("b")).expect("reads");
    fs::write(folder.join("b"), earlier).expect("writes");
    let bench =
        ["bench", "--rw=randread", "--bs=4k", "--direct=0", "--runtime=1s", "--target", "volume:a,b,c"];
    for arguments in
        [&export[..], &["volume", "check", "a,b,c"], &["volume", "check", "--repair", "a,b,c"], &bench]
    {
        let came = run(folder, arguments);
        assert!(came.code == 3 && came.err.contains("b is an old state"), "{came:?}");
    }
    fs::write(folder.join("b"), now).expect("writes");
    works(folder, &["volume", "check", "a,b,c"]);
}

#[test]
fn block_devices_are_taken_with_the_same_rules_and_found_by_themselves() {
    if !is_root() {
        return skipped("not root: no loop devices");
    }
    let folder = place();
    let folder = folder.path();
    let mut loops = Vec::new();
    for name in ["x", "y"] {
        let file = fs::File::create(folder.join(name)).expect("a file");
        file.set_len(4 << 20).expect("grows");
        let path = folder.join(name);
        match LoopDevice::attach(&path, &[]) {
            Ok(device) => loops.push(device),
            Err(_) => return skipped("no loop devices"),
        }
    }
    let list = format!("{},{}", loops[0].text(), loops[1].text());
    let created = json(folder, &["volume", "create", "--name", "loops", &list, "--json"]);
    let uuid = created["volumes"][0]["uuid"].as_str().expect("one").to_owned();
    let came =
        run(folder, &["bench", "--rw=write", "--bs=4k", "--time_based=0", "--target", loops[0].text()]);
    assert!(came.code == 3 && came.err.contains("flashwright volume member labelled 'loops'"), "{came:?}");
    let came = run(folder, &["volume", "create", &list]);
    assert_eq!(came.code, 3, "{came:?}");
    let all = json(folder, &["volume", "show", "--json"]);
    let found =
        all["volumes"].as_array().expect("a list").iter().find(|volume| volume["uuid"] == uuid.as_str());
    assert_eq!(found.expect("among all devices")["whole"], true);
    let given_up = ["--destroy", loops[0].text(), "--destroy", loops[1].text()];
    works(folder, &[&["volume", "destroy", &list][..], &given_up].concat());
}

#[test]
fn a_member_named_twice_is_a_wrong_request_of_each_verb() {
    let folder = place();
    let folder = folder.path();
    made(folder);
    for verb in [
        &["volume", "show"][..],
        &["volume", "check"],
        &["volume", "check", "--data"],
        &["volume", "check", "--repair"],
        &["volume", "destroy", "--destroy", "a", "--destroy", "b", "--destroy", "c"],
    ] {
        let came = run(folder, &[verb, &["a,b,c,./a"]].concat());
        assert!(came.code == 2 && came.err.contains("./a is named twice"), "{verb:?}: {came:?}");
    }
    works(folder, &["volume", "check", "a,b,c"]);
}

#[test]
fn hints_about_volumes_fit_what_was_asked() {
    let folder = place();
    let folder = folder.path();
    refused(
        folder,
        &["volume", "create", "stripe(chunk=64k):c,d"],
        2,
        "error: member 1 of 'volume:stripe(chunk=64k):c,d': 'stripe(chunk=64k):c' cannot be a member of a volume: \
         a label lies on one device, and this is several\n\
         hint: name files and block devices; stripe(chunk=64k):SPEC,SPEC puts others together without labels\n",
    );
    for (size, has) in [("512", "512 B"), ("1m", "1 MiB")] {
        let member = format!("file:a?size={size}");
        let came = run(folder, &["volume", "create", &member]);
        let need = format!(
            "error: {member} has {has}, less than the 1.07 MiB that a member of the volume must have"
        );
        assert!(came.code == 2 && came.err.starts_with(&need), "{came:?}");
    }
    let came = run(folder, &["volume", "create", "--checksums", "--chunk", "512", "file:a?size=2m"]);
    assert!(came.code == 2 && came.err.starts_with("error: --chunk=512: "), "{came:?}");
    let came = run(folder, &["volume", "check", "nosuch?size=16m"]);
    assert!(came.code == 2 && came.err.contains("is file:nosuch?size=16m\n"), "{came:?}");
    made(folder);
    let came = run(folder, &["volume", "check", "a"]);
    assert!(came.code == 2 && came.err.contains("show lists those that are block devices"), "{came:?}");
}

/// A bit that flips is an error of the read that meets it, and a row of the check; what is served is verified too.
#[test]
fn a_volume_with_checksums_says_which_block_of_which_member_has_changed() {
    let folder = tempfile::tempdir().expect("a directory");
    let folder = folder.path();
    works(folder, &["volume", "create", "--checksums", "--chunk=64k", "file:a?size=9m,file:b?size=9m"]);
    let shown = json(folder, &["volume", "show", "a,b", "--json"]);
    fits_schema(folder, "volumes", &shown);
    assert_eq!(shown["volumes"][0]["checksums"], true);
    assert!(works(folder, &["volume", "show", "a,b"]).out.contains("checksums  CRC-32C"));
    let target = ["--direct=0", "--target", "volume:b,a"];
    let write =
        ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--size=4m", "--destroy=a", "--destroy=b"];
    works(folder, &[&write[..], &target[..]].concat());
    let check = ["volume", "check", "--data", "a,b", "--json"];
    let sound = json(folder, &check);
    fits_schema(folder, "volume-data", &sound);
    assert_eq!((&sound["sound"], &sound["verified_bytes"]), (&true.into(), &(4 << 20).into()));
    // The second chunk of b, which is the fourth of the volume.
    let at = (1 << 20) + (64 << 10) + 5000;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(folder.join("b")).expect("b is there");
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, at).expect("reads");
    std::os::unix::fs::FileExt::write_all_at(&file, &[byte[0] ^ 8], at).expect("writes");
    let came = run(folder, &check);
    let found: serde_json::Value = serde_json::from_str(&came.out).expect("a document");
    fits_schema(folder, "volume-data", &found);
    let finding = &found["findings"][0];
    assert_eq!((came.code, &finding["kind"], &finding["member"]), (1, &"rotten".into(), &"b".into()));
    assert_eq!(finding["member_offset"], (1 << 20) + (64 << 10) + 4096);
    assert_eq!(finding["volume_offset"], 3 * (64 << 10) + 4096);
    // A label as well: the document has it, and so has the error that the command ends with.
    let tail = std::fs::metadata(folder.join("a")).expect("a is there").len() - 4096;
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::OpenOptions::new().write(true).open(folder.join("a")).expect("a is there"),
        &[0xff; 64],
        tail,
    )
    .expect("writes");
    let came = run(folder, &check);
    let found: serde_json::Value = serde_json::from_str(&came.out).expect("a document");
    fits_schema(folder, "volume-data", &found);
    assert_eq!((&found["sound"], &found["volume"]["uuid"]), (&false.into(), &shown["volumes"][0]["uuid"]));
    assert_eq!(found["problems"].as_array().map(Vec::len), Some(1), "{found}");
    let errors = ["one finding in the data", "one problem with the labels"];
    assert!(came.code == 1 && errors.iter().all(|words| came.err.contains(words)), "{}", came.err);
    works(folder, &["volume", "check", "--repair", "a,b"]);
    let came = run(folder, &["volume", "check", "--data", "a,b"]);
    assert!(came.code == 1 && came.out.contains("rotten") && came.out.contains("1118208"), "{}", came.out);
    let read = ["bench", "--rw=read", "--bs=64k", "--time_based=0", "--size=4m", "--allow-unwritten"];
    let came = run(folder, &[&read[..], &target[..]].concat());
    assert!(came.code == 1 && came.err.contains("does not fit its checksum"), "{}", came.err);
    let came = run(folder, &[&read[..], &["--ioengine=io_uring"], &target[..]].concat());
    assert!(came.code != 0 && came.err.contains("psync"), "{}", came.err);
    works(folder, &["volume", "create", "file:c?size=2m"]);
    let came = run(folder, &["volume", "check", "--data", "c"]);
    assert_eq!(came.code, 2, "{}", came.err);
    assert!(came.err.contains("keeps no checksums") && came.err.contains("hint:"), "{}", came.err);
}
