//! Stripes and separate devices as the command line takes them.

mod common;

use common::{fits_schema, json, names, place, refused, works};

#[test]
fn a_stripe_is_made_written_and_read_like_any_target() {
    let folder = place();
    let spec = "stripe(chunk=16k):file:a?size=1m,file:b?size=1m";
    let write =
        ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--direct=0", "--verify=crc32c", "--json"];
    let document = json(folder.path(), &[&write[..], &["--target", spec]].concat());
    fits_schema(folder.path(), "bench", &document);
    assert_eq!(document["record"]["target"]["kind"], "stripe");
    assert_eq!(document["record"]["total"]["write_bytes"], 2 << 20);
    assert_eq!(document["record"]["verified_blocks"], 32);
    assert_eq!(names(folder.path()), ["a", "b"]);
    let read = ["bench", "--rw=randread", "--bs=4k", "--time_based=0", "--direct=0", "--json"];
    let document = json(folder.path(), &[&read[..], &["--target", "stripe(chunk=16k):a,b"]].concat());
    assert_eq!(document["record"]["layout"]["chunk"], "16k");
    let document = json(folder.path(), &[&read[..], &["--target", "separate:a,b"]].concat());
    assert_eq!(document["record"]["jobs"].as_array().map(Vec::len), Some(2));
    let screen = works(folder.path(), &[&read[..5], &["--target", "separate:a,b"]].concat()).out;
    assert!(screen.contains("separate"), "{screen}");
}

#[test]
fn what_is_wrong_with_a_member_is_told_with_a_hint() {
    let folder = place();
    let bench = |spec| ["bench", "--rw=randread", "--direct=0", "--target", spec];
    refused(
        folder.path(),
        &bench("stripe(chunk=64k):a,mem:0"),
        2,
        "error: member 2 of 'stripe(chunk=64k):a,mem:0': 'mem:0': a size of 0 bytes is out of range\n\
         hint: for instance size=4g, or mem:512m\n",
    );
    refused(
        folder.path(),
        &bench("stripe(chunk=100):a"),
        2,
        "error: 'stripe(chunk=100):a': chunk=100 is not a multiple of 512 bytes from 512 to 1g\n\
         hint: understood is chunk, once, for a stripe: stripe(chunk=64k):/dev/nvme0n1,/dev/nvme1n1\n",
    );
    std::fs::write(folder.path().join("thesis"), "my thesis\n".repeat(20_000)).expect("writes");
    let write = ["bench", "--rw=write", "--direct=0", "--target", "separate:thesis,mem:1m"];
    refused(
        folder.path(),
        &write,
        3,
        "error: thesis: holds 195 KiB that were not laid by flashwright; writing would destroy them\n\
         hint: if its contents may be lost add --destroy thesis; otherwise name a new file\n",
    );
}

#[test]
fn a_sweep_runs_on_a_volume_whose_files_it_lays() {
    let folder = place();
    let space = "[sweep]\nname = \"volumes\"\npasses = 2\nruntime = \"20ms\"\n[base]\ndirect = false\n\
                 rw = \"randread\"\nbs = \"4k\"\n[space]\niodepth = [1, 8]\n";
    std::fs::write(folder.path().join("space.toml"), space).expect("writes");
    for (shape, out) in [("stripe(chunk=16k)", "striped"), ("separate", "apart")] {
        let target = format!("{shape}:file:a?size=2m,file:b?size=2m");
        works(folder.path(), &["sweep", "space.toml", "--target", &target, "--output", out]);
        let status = json(folder.path(), &["sweep", "status", out, "--json"]);
        assert_eq!(status["complete"], true, "{status}");
    }
    assert_eq!(names(folder.path()), ["a", "apart", "b", "space.toml", "striped"]);
}
