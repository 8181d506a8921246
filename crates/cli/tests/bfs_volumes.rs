//! `flashwright bfs` on graphs that lie on several drives: stripes of files, and labelled volumes with and without checksums.

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;

use common::loop_device::LoopDevice;
use common::{command, json, names, place, refused, run, skipped, works};

/// An edge list `a.el`, and its graph in a file `a.fwg`.
fn built(folder: &Path) {
    works(folder, &["bfs", "generate", "--scale", "11", "--output", "a.el"]);
    works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m"]);
}

fn build_on(folder: &Path, spec: &str, more: &[&str]) -> common::Came {
    run(folder, &[&["bfs", "build", "a.el", "--output", spec, "--memory", "32m"], more].concat())
}

/// All searches of a graph on `spec` find what those of the file find, and their results are valid.
fn is_searched(folder: &Path, spec: &str) {
    let search = |graph, more: &[&str]| {
        json(folder, &[&["bfs", "run", graph, "--memory", "64m", "--json"], more].concat())
    };
    for algorithm in ["auto", "semi", "mr", "mm"] {
        let more = ["--source", "3", "--algorithm", algorithm, "--output", "a.out"];
        let (found, wanted) = (search(spec, &more), search("a.fwg", &["--source", "3"]));
        assert!(found["reached"].as_u64() > Some(900), "{found}");
        for figure in ["reached", "levels", "entries"] {
            assert_eq!(found[figure], wanted[figure], "{figure} by {algorithm} on {spec}");
        }
        works(folder, &["bfs", "validate", spec, "a.out", "--edges", "a.el"]);
    }
    let many = search(spec, &["--sources", "keys"]);
    assert_eq!(many["sources"], search("a.fwg", &["--sources", "keys"])["sources"], "{spec}");
    let balance = search(spec, &["--source", "3"])["io"]["member_bytes"].clone();
    let members: Vec<u64> =
        balance.as_array().expect("a list").iter().filter_map(|bytes| bytes.as_u64()).collect();
    assert!(members.len() == 2 && members.iter().all(|bytes| *bytes > 0), "{spec}: {members:?}");
}

#[test]
fn a_graph_is_built_on_volumes_and_searched_there() {
    let place = place();
    let folder = place.path();
    built(folder);
    std::fs::write(folder.join("keys"), "3\n77\n1023\n").expect("writes");
    let chunk = ["--chunk", "16k"];
    works(folder, &[&["volume", "create"], &chunk[..], &["file:v0?size=4m,file:v1?size=4m"]].concat());
    works(
        folder,
        &[&["volume", "create", "--checksums"], &chunk[..], &["file:w0?size=9m,file:w1?size=9m"]].concat(),
    );
    let wanted = json(folder, &["bfs", "info", "a.fwg", "--json"]);
    for (made, spec) in [
        ("stripe(chunk=16k):file:s0?size=2m,file:s1?size=2m", "stripe(chunk=16k):s0,s1"),
        ("volume:v0,v1", "volume:v1,v0"),
        ("volume:w0,w1", "volume:w0,w1"),
    ] {
        let came = build_on(folder, made, &[]);
        assert_eq!(came.code, 0, "{made}: {came:#?}");
        let info = json(folder, &["bfs", "info", spec, "--json"]);
        for figure in ["vertices", "entries", "file_bytes", "sections"] {
            assert_eq!(info[figure], wanted[figure], "{figure} on {spec}");
        }
        is_searched(folder, spec);
        works(folder, &["bfs", "bench", spec, "--keys", "2", "--memory", "64m", "--edges", "a.el"]);
    }
    for volume in ["v0,v1", "w0,w1"] {
        assert_eq!(json(folder, &["volume", "check", volume, "--json"])["sound"], true, "{volume}");
    }
    works(folder, &["volume", "check", "--data", "w0,w1"]);
    let left = ["a.el", "a.fwg", "a.out", "keys", "s0", "s1", "v0", "v1", "w0", "w1"];
    assert_eq!(names(folder), left, "nothing else is left");
}

#[test]
fn a_graph_on_a_device_is_data_that_nothing_overwrites_without_a_word() {
    let place = place();
    let folder = place.path();
    built(folder);
    let stripe = "stripe(chunk=16k):file:s0?size=2m,file:s1?size=2m";
    assert_eq!(build_on(folder, stripe, &[]).code, 0);
    // Members are no scratch files any more, neither for a benchmark nor for another build.
    for member in ["s0", "s1"] {
        let write = ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--direct=0", "--target", member];
        let came = run(folder, &write);
        assert_eq!(came.code, 3, "{member}: {came:#?}");
    }
    let came = build_on(folder, "stripe(chunk=16k):s0,s1", &["--destroy", "s0"]);
    assert!(came.code == 3 && came.err.contains("s1"), "{came:#?}");
    let given_up = ["--destroy", "s0", "--destroy", "s1"];
    assert_eq!(build_on(folder, "stripe(chunk=16k):s0,s1", &given_up).code, 0);
    // A volume is the builder's, and an earlier graph on it is replaced; something else is not.
    works(folder, &["volume", "create", "--chunk", "16k", "file:v0?size=4m,file:v1?size=4m"]);
    assert_eq!(build_on(folder, "volume:v0,v1", &[]).code, 0);
    assert_eq!(build_on(folder, "volume:v0,v1", &[]).code, 0);
    let file = std::fs::OpenOptions::new().write(true).open(folder.join("v0")).expect("opens");
    file.write_all_at(b"XFSB", 1 << 20).expect("writes");
    refused(
        folder,
        &["bfs", "build", "a.el", "--output", "volume:v0,v1", "--memory", "32m"],
        3,
        "error: volume:v0,v1: bears xfs file system (at byte 0)\n\
         hint: if the contents may be lost name each member with --destroy\n",
    );
    let given_up = ["--destroy", "v0", "--destroy", "v1"];
    let came = build_on(folder, "volume:v0,v1", &given_up);
    assert_eq!(came.code, 0, "{came:#?}");
    works(folder, &["bfs", "info", "volume:v0,v1"]);
}

#[test]
fn wrong_devices_are_named_with_a_hint_and_nothing_is_made() {
    let place = place();
    let folder = place.path();
    built(folder);
    let build = |output: &'static str| ["bfs", "build", "a.el", "--output", output, "--memory", "32m"];
    refused(
        folder,
        &build("stripe(chunk=16k):mem:4m,mem:4m"),
        2,
        "error: stripe(chunk=16k):mem:4m,mem:4m: memory is gone when the command ends, and the graph with it\n\
         hint: name files, block devices or exports of other hosts\n",
    );
    refused(
        folder,
        &build("stripe(chunk=16k):a.el,a.fwg"),
        2,
        "error: --output=stripe(chunk=16k):a.el,a.fwg: a.el is the edge list\nhint: name other members\n",
    );
    refused(
        folder,
        &[&build("b.fwg")[..], &["--destroy", "a.fwg"]].concat(),
        2,
        "error: --destroy: a graph that is a file replaces nothing but a graph\n\
         hint: leave --destroy out, or name a device with --output\n",
    );
    let unknown = run(folder, &build("raid:x,y"));
    assert!(unknown.code == 2 && unknown.err.starts_with("error: --output=raid:x,y: "), "{unknown:#?}");
    let missing = run(folder, &["bfs", "run", "stripe(chunk=16k):x,y", "--source", "3"]);
    assert!(missing.code == 2 && missing.err.contains("x: no such file or device\nhint: "), "{missing:#?}");
    assert_eq!(names(folder), ["a.el", "a.fwg"]);
    let small = run(folder, &build("stripe(chunk=16k):file:s0?size=32k,file:s1?size=32k"));
    assert_eq!(small.code, 2, "{small:#?}");
    assert!(small.err.contains("has 64 KiB; room is needed for "), "{small:#?}");
    assert!(small.err.ends_with("\nhint: name more or larger members; the sorted arcs are used again\n"));
    // What was sorted is there for the next attempt, beside the edge list.
    let work: Vec<_> = names(folder).into_iter().filter(|name| name.ends_with(".build")).collect();
    assert!(work.len() == 1 && work[0].starts_with("a.el-"), "{work:?}");
}

/// The graph is on a device beside which no file can be made, and temporary files have a directory of their own.
#[test]
fn searches_by_sorting_of_a_graph_without_a_directory_ask_for_one() {
    let place = place();
    let folder = place.path();
    built(folder);
    let image = folder.join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("an image");
    let device = match LoopDevice::attach(&image, &[]) {
        Ok(device) => device,
        Err(why) => return skipped(&format!("a graph on a block device: no loop device ({why})")),
    };
    let device = device.text();
    assert_eq!(build_on(folder, device, &[]).code, 0);
    let search = ["bfs", "run", device, "--source", "3", "--algorithm", "mr"];
    let came = run(folder, &search);
    assert!(
        came.code == 2 && came.err.ends_with("\nhint: name a directory with --scratch DIR\n"),
        "{came:#?}"
    );
    works(folder, &[&search[..], &["--scratch", "."]].concat());
    works(folder, &["bfs", "run", device, "--source", "3", "--algorithm", "semi"]);
    let bench = ["bfs", "bench", device, "--keys", "1", "--edges", "a.el"];
    assert_eq!(run(folder, &bench).code, 2);
    works(folder, &[&bench[..], &["--scratch", "."]].concat());
    // A block device with a graph on it bears a signature.
    let again = build_on(folder, device, &[]);
    assert!(again.code == 3 && again.err.contains("flashwright graph"), "{again:#?}");
    assert_eq!(build_on(folder, device, &["--destroy", device]).code, 0);
}

/// Killed at its end, a build on a device goes on from the sorted arcs; the device is no graph meanwhile.
#[test]
fn a_build_on_a_device_that_was_killed_goes_on() {
    let place = place();
    let folder = place.path();
    works(folder, &["bfs", "generate", "--scale", "16", "--output", "a.el"]);
    let stripe = "stripe(chunk=16k):file:s0?size=16m,file:s1?size=16m";
    let build = ["bfs", "build", "a.el", "--output", stripe, "--memory", "32m", "--json"];
    let is_sorted = || {
        let work = names(folder).into_iter().find(|name| name.ends_with(".build"));
        work.is_some_and(|work| folder.join(work).join("arcs.el").exists())
    };
    let mut child = command(folder, &build)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    common::wait_until("sorted arcs, or the end", || {
        is_sorted() || child.try_wait().expect("can be asked").is_some()
    });
    let _ = child.kill();
    let is_whole = child.wait().expect("ends").success();
    let is_graph = run(folder, &["bfs", "info", "stripe(chunk=16k):s0,s1"]).code == 0;
    if is_whole || is_graph {
        return skipped("a build that is killed: this one was faster");
    }
    let resumed = json(folder, &build);
    assert_eq!(resumed["build"]["resumed"], true);
    works(folder, &["bfs", "run", "stripe(chunk=16k):s0,s1", "--source", "3"]);
    assert_eq!(names(folder), ["a.el", "s0", "s1"]);
}

#[test]
fn a_volume_within_a_stripe_is_not_given_up_with_the_stripe() {
    let place = place();
    let folder = place.path();
    works(folder, &["bfs", "generate", "--scale", "6", "--output", "a.el"]);
    for name in ["va", "vb", "c"] {
        std::fs::File::create(folder.join(name)).and_then(|file| file.set_len(4 << 20)).expect("is made");
    }
    works(folder, &["volume", "create", "--name", "x", "va", "vb"]);
    let refused = build_on(folder, "stripe(chunk=64k):c,(volume:va,vb)", &["--destroy", "c"]);
    assert!(refused.code == 3 && refused.err.contains("volume member"), "{refused:#?}");
}

#[test]
fn the_edge_list_is_no_member_by_any_of_its_names() {
    let place = place();
    let folder = place.path();
    works(folder, &["bfs", "generate", "--scale", "6", "--output", "a.el"]);
    std::fs::hard_link(folder.join("a.el"), folder.join("other")).expect("is made");
    std::fs::File::create(folder.join("b")).and_then(|file| file.set_len(4 << 20)).expect("is made");
    let refused = build_on(folder, "stripe(chunk=64k):other,b", &["--destroy", "other", "--destroy", "b"]);
    assert!(refused.code == 2 && refused.err.contains("is the edge list"), "{refused:#?}");
}

#[test]
fn what_is_to_be_given_up_is_a_member() {
    let place = place();
    let folder = place.path();
    works(folder, &["bfs", "generate", "--scale", "6", "--output", "a.el"]);
    for name in ["c", "d", "e"] {
        std::fs::write(folder.join(name), vec![1; 4 << 20]).expect("is made");
    }
    std::fs::hard_link(folder.join("d"), folder.join("d2")).expect("is made");
    let stripe = "stripe(chunk=64k):c,d";
    let slip = build_on(folder, stripe, &["--destroy", "c", "--destroy", "d", "--destroy", "e"]);
    assert_eq!(
        (slip.code, slip.err.as_str()),
        (2, "error: --destroy=e: is no member of stripe(chunk=64k):c,d\nhint: spell it as in --output\n")
    );
    assert_eq!(std::fs::read(folder.join("c")).expect("is there"), vec![1; 4 << 20]);
    assert_eq!(build_on(folder, stripe, &["--destroy", "./c", "--destroy", "d2"]).code, 0);
}

#[test]
fn an_earlier_graph_is_kept_where_the_new_one_is_not_sure_to_fit() {
    let place = place();
    let folder = place.path();
    for (name, scale) in [("small.el", "6"), ("a.el", "10")] {
        works(folder, &["bfs", "generate", "--scale", scale, "--output", name]);
    }
    for name in ["s1", "s2"] {
        std::fs::File::create(folder.join(name)).and_then(|file| file.set_len(60 << 10)).expect("is made");
    }
    let stripe = "stripe(chunk=4k):s1,s2";
    let lost = ["--destroy", "s1", "--destroy", "s2"];
    works(folder, &[&["bfs", "build", "small.el", "--output", stripe][..], &lost].concat());
    let before = json(folder, &["bfs", "info", stripe, "--json"]);
    // It would fit, but whether it does is known when its lists are laid out, and then the other one is gone.
    let refused = build_on(folder, stripe, &lost);
    assert!(refused.code != 0 && refused.err.contains("hint: name more or larger members"), "{refused:#?}");
    assert_eq!(json(folder, &["bfs", "info", stripe, "--json"]), before);
}
