//! Semaphores as applications write them.

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
