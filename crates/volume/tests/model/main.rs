//! A million random operations on devices of every kind, each alone and put together in every way, against a model that
//! is an array of bytes: reads and writes of any length at any place, vectored ones, batches through a queue, syncs,
//! discards, zeros, and now and then all of it closed and opened again, a labelled volume with its members in another
//! order. Exports are served by this process, over loopback and over Unix sockets.
//!
//! After fsx, with which Apple and NeXT tested their file systems. `FLASHWRIGHT_TEST_SEED=… cargo test …` has another run, and
//! `OPERATIONS=…` makes it shorter or longer; `--nocapture` shows what was done to what.

#[path = "../rig/mod.rs"]
mod rig;
mod served;
mod subject;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rig::{KIB, Loop, MIB, files, seed, writing};
use served::Served;
use storage::device::{self, Device, DeviceSpec};
use subject::{Source, Subject};

/// All tests of this file together.
const OPERATIONS: u64 = 1_000_000;
const MEMBER: u64 = MIB + 192 * KIB;

/// Thousandths of all operations.
mod share {
    pub const MEMORY: u64 = 60;
    pub const FILE: u64 = 60;
    pub const PATH: u64 = 60;
    pub const BLOCK: u64 = 40;
    pub const STRIPES: u64 = 160;
    pub const SEPARATE: u64 = 80;
    pub const LABELLED_MEMORY: u64 = 100;
    pub const LABELLED_FILES: u64 = 120;
    pub const LABELLED_BLOCKS: u64 = 80;
    pub const LABELLED_MIXED: u64 = 120;
    pub const EXPORT: u64 = 40;
    pub const STRIPED_EXPORTS: u64 = 30;
    pub const LABELLED_EXPORTS: u64 = 30;
    pub const EXPORTS_AMONG_OTHERS: u64 = 20;

    const ALL: u64 = MEMORY
        + FILE
        + PATH
        + BLOCK
        + STRIPES
        + SEPARATE
        + LABELLED_MEMORY
        + LABELLED_FILES
        + LABELLED_BLOCKS
        + LABELLED_MIXED
        + EXPORT
        + STRIPED_EXPORTS
        + LABELLED_EXPORTS
        + EXPORTS_AMONG_OTHERS;
    const _: () = assert!(ALL == 1000);
}

/// So many thousandths of all operations.
fn share(thousandths: u64) -> u64 {
    let given = std::env::var("OPERATIONS").ok();
    let all = given.map_or(OPERATIONS, |text| text.parse().expect("OPERATIONS is a number"));
    all * thousandths / 1000
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn open(spec: &str) -> Arc<dyn Device> {
    let spec = DeviceSpec::parse(spec).expect("a spec");
    device::open(&spec, &writing(false)).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// `mem:` specs of `count` members.
fn memory(count: usize) -> String {
    vec![format!("mem:{MEMBER}"); count].join(",")
}

/// Runs what a spec names, through the page cache and, if its file system has that, directly.
fn run_both_ways(label: &'static str, spec: &str, operations: u64) {
    Subject::over(label, Source::spec(spec, false), seed()).run(operations * 9 / 10);
    let directly = Source::spec(spec, true);
    if directly.is_possible() {
        Subject::over(label, directly, seed()).run(operations / 10);
    }
}

#[test]
fn memory_holds_what_the_model_holds() {
    Subject::over("mem:", Source::spec(&memory(1), false), seed()).run(share(share::MEMORY));
}

#[test]
fn a_file_that_is_made_holds_what_the_model_holds() {
    let folder = folder();
    run_both_ways("file:", &files(folder.path(), 1, MEMBER), share(share::FILE));
}

#[test]
fn a_file_by_its_path_holds_what_the_model_holds() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0; MEMBER as usize]).expect("a file");
    run_both_ways("the path of a file", path.to_str().expect("UTF-8"), share(share::PATH));
}

#[test]
fn a_block_device_holds_what_the_model_holds() {
    let folder = folder();
    let Some(loops) = Loop::several(folder.path(), 1, MEMBER) else { return };
    run_both_ways("the path of a block device", &loops[0].path, share(share::BLOCK));
}

#[test]
fn stripes_also_of_stripes_hold_what_the_model_holds() {
    let folder = folder();
    let of_files = format!("stripe(chunk=4k):{}", files(folder.path(), 4, MEMBER));
    run_both_ways("a stripe of files", &of_files, share(share::STRIPES) / 2);
    let of_memory = format!("stripe(chunk=20k):{}", memory(3));
    Subject::over("a stripe of memory", Source::spec(&of_memory, false), seed())
        .run(share(share::STRIPES) / 4);
    let nested = format!("stripe(chunk=8k):({of_memory}),({of_files}),{}", memory(1));
    Subject::over("a stripe of stripes", Source::spec(&nested, false), seed()).run(share(share::STRIPES) / 4);
}

#[test]
fn separate_devices_one_after_the_other_hold_what_the_model_holds() {
    let folder = folder();
    let of_files = files(folder.path(), 2, 512 * KIB);
    let spec = format!("separate:{of_files},(stripe(chunk=4k):{}),mem:300k", memory(2));
    Subject::over("separate", Source::spec(&spec, false), seed()).run(share(share::SEPARATE) / 2);
    run_both_ways("separate files", &format!("separate:{of_files}"), share(share::SEPARATE) / 2);
}

#[test]
fn labelled_memory_holds_what_the_model_holds() {
    let members = (0..3).map(|_| open(&memory(1))).collect();
    Subject::labelled("labelled memory", Source::Members(members), 20 * KIB, seed())
        .run(share(share::LABELLED_MEMORY));
}

#[test]
fn labelled_files_hold_what_the_model_holds() {
    let folder = folder();
    let spec = format!("volume:{}", files(folder.path(), 4, MEMBER));
    Subject::labelled("labelled files", Source::spec(&spec, false), 4 * KIB, seed())
        .run(share(share::LABELLED_FILES));
}

#[test]
fn labelled_block_devices_hold_what_the_model_holds() {
    let folder = folder();
    for (percent, direct) in [(90, false), (10, true)] {
        let Some(loops) = Loop::several(folder.path(), 3, MEMBER) else { return };
        let paths: Vec<&str> = loops.iter().map(|l| &*l.path).collect();
        let source = Source::spec(&format!("volume:{}", paths.join(",")), direct);
        Subject::labelled("labelled block devices", source, 16 * KIB, seed())
            .run(share(share::LABELLED_BLOCKS) * percent / 100);
    }
}

#[test]
fn labelled_members_of_all_local_kinds_hold_what_the_model_holds() {
    let folder = folder();
    let loops = Loop::several(folder.path(), 1, MEMBER + 4096).unwrap_or_default();
    let mut members = vec![open(&memory(1))];
    members.extend(files(folder.path(), 2, MEMBER).split(',').map(open));
    members.extend(loops.iter().map(|l| open(&l.path)));
    members.push(open(&memory(1)));
    Subject::labelled("labelled, of all local kinds", Source::Members(members), 8 * KIB, seed())
        .run(share(share::LABELLED_MIXED));
}

/// Exports of memory, a file, a stripe, and, where there is one, a block device that is opened directly.
struct Exports {
    served: Vec<Served>,
    _loops: Vec<Loop>,
}

impl Exports {
    fn serve(folder: &Path) -> Self {
        let socket = |n: u32| -> PathBuf { folder.join(format!("socket{n}")) };
        let loops = Loop::several(folder, 1, MEMBER).unwrap_or_default();
        let mut served = vec![
            Served::on_loopback(&memory(1), false),
            Served::on_socket(&socket(0), &files(folder, 1, MEMBER), false),
            Served::on_loopback(&format!("stripe(chunk=12k):{}", memory(2)), false),
        ];
        served.extend(loops.first().map(|l| Served::on_socket(&socket(1), &l.path, true)));
        Self { served, _loops: loops }
    }

    fn specs(&self) -> Vec<&str> {
        self.served.iter().map(|served| &*served.spec).collect()
    }
}

#[test]
fn exports_hold_what_the_model_holds() {
    let folder = folder();
    let exports = Exports::serve(folder.path());
    let specs = exports.specs();
    for spec in &specs {
        Subject::over("an export", Source::spec(spec, true), seed())
            .run(share(share::EXPORT).div_ceil(specs.len() as u64));
    }
}

#[test]
fn striped_exports_hold_what_the_model_holds() {
    let folder = folder();
    let exports = Exports::serve(folder.path());
    let spec = format!("stripe(chunk=8k):{}", exports.specs().join(","));
    Subject::over("a stripe of exports", Source::spec(&spec, true), seed())
        .run(share(share::STRIPED_EXPORTS) / 2);
    let with_memory = format!("{spec},{}", memory(1));
    Subject::over("a stripe of exports and memory", Source::spec(&with_memory, true), seed())
        .run(share(share::STRIPED_EXPORTS) / 2);
}

#[test]
fn labelled_exports_hold_what_the_model_holds() {
    let folder = folder();
    let exports = Exports::serve(folder.path());
    let spec = format!("volume:{}", exports.specs().join(","));
    Subject::labelled("labelled exports", Source::spec(&spec, true), 16 * KIB, seed())
        .run(share(share::LABELLED_EXPORTS));
}

#[test]
fn labelled_members_of_every_kind_hold_what_the_model_holds() {
    let (here, there) = (folder(), folder());
    let exports = Exports::serve(there.path());
    let loops = Loop::several(here.path(), 1, MEMBER).unwrap_or_default();
    let mut members: Vec<_> = exports.specs().into_iter().map(open).collect();
    members.extend(files(here.path(), 1, MEMBER).split(',').map(open));
    members.extend(loops.iter().map(|l| open(&l.path)));
    members.push(open(&memory(1)));
    Subject::labelled("labelled, of every kind", Source::Members(members), 4 * KIB, seed())
        .run(share(share::EXPORTS_AMONG_OTHERS));
}
