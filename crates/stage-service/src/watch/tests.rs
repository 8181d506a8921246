//! Semaphores as applications write them.

mod asked;
mod finder;
mod sets;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::*;
use crate::testing::Still;

const HOUR: Duration = Duration::from_secs(3600);
/// Soon enough not to be waited for, and no measure of anything.
const SOON: Duration = Duration::from_millis(5);

fn finder(root: &Path, pattern: &str, rescan: Duration, settle: Duration) -> Finder {
    Finder::new(root, Pattern::parse(pattern).unwrap(), Timing { rescan, settle }).unwrap()
}

/// What is found, until it is `count` or a generous while has passed.
fn find(finder: &mut Finder, count: usize) -> Vec<PathBuf> {
    let begun = Instant::now();
    let mut paths = Vec::new();
    while paths.len() < count && begun.elapsed() < Duration::from_secs(60) {
        paths.extend(finder.next(Duration::from_millis(20)).unwrap().into_iter().map(|found| found.path));
    }
    paths.sort();
    paths
}

fn renamed_into_place(path: &Path, contents: &str) {
    let beside = path.with_extension("tmp");
    fs::write(&beside, contents).unwrap();
    fs::rename(&beside, path).unwrap();
}

fn orders(to: &Path, keep_trigger: bool) -> Orders {
    let to = Place::of_path(to).unwrap();
    Orders { to, verb: Verb::Move, options: Options::default(), keep_trigger, lists: true }
}

fn watch<'a>(folder: &Path, desk: &'a Still, keep: bool, check: &'a Check<'a>) -> Watch<'a> {
    watch_to(Path::new("/slow"), folder, desk, keep, check)
}

fn watch_to<'a>(to: &Path, folder: &Path, desk: &'a dyn Desk, keep: bool, check: &'a Check<'a>) -> Watch<'a> {
    let pattern = Pattern::parse("*.done").unwrap();
    let timing = Timing { rescan: SOON, settle: SOON };
    Watch::new(folder, pattern, timing, orders(to, keep), desk, check).unwrap()
}

/// Writes the same into a semaphore, as one does who wants it looked at again.
fn touched(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
}

/// `a` and `b`, and `x.done`, which lists them.
fn two_files_and_their_list() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in [("a", "a"), ("b", "b"), ("x.done", "a\nb\n")] {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    folder
}

fn next(watch: &mut Watch<'_>) -> Happened {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let mut happened = watch.step(SOON).unwrap();
        if !happened.is_empty() {
            assert_eq!(happened.len(), 1, "{happened:?}");
            return happened.remove(0);
        }
    }
    panic!("nothing happened");
}
