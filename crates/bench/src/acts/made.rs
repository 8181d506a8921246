//! What a run has made, and may therefore remove.
//!
//! A name alone says nothing: another file may have taken it meanwhile. Device and inode say little more, because a file
//! system gives the number of a removed inode to the next file. So a file is known by the time of its birth as well
//! (statx(2)), and by its length where the run leaves that as it is. Where a file system records no birth, either the
//! file is kept open, which keeps its number from being given again, or the time of its last change stands in, for names
//! that the run makes and then leaves alone.
//!
//! Looking and removing are two calls, each with the name: unlink(2) takes no descriptor. What another process puts there
//! between the two is removed.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What tells a file from a later one with the same inode.
#[derive(Debug)]
enum Proof {
    /// Nanoseconds since 1970 at its birth.
    Birth(i64),
    /// Nanoseconds since 1970 at its last change.
    Change(i64),
    /// It is open.
    Held(#[expect(dead_code, reason = "it is open as long as it is here")] File),
}

/// What a name stood for when the run had made it.
#[derive(Debug)]
pub struct Made {
    device: u64,
    inode: u64,
    /// Of a file whose length the run leaves as it is.
    length: Option<u64>,
    proof: Proof,
}

impl Made {
    /// What `facts` are of, once it is made in full: something that the run does not change any more.
    #[must_use]
    pub fn of(facts: &Metadata) -> Self {
        let proof = birth(facts).map_or_else(|| Proof::Change(change(facts)), Proof::Birth);
        Self { length: facts.is_file().then_some(facts.len()), ..Self::with(facts, proof) }
    }

    /// An open file that the run is going to change.
    ///
    /// # Errors
    /// The kernel's, where it cannot be looked at or kept open.
    pub fn of_open(file: BorrowedFd<'_>) -> io::Result<Self> {
        let file = File::from(file.try_clone_to_owned()?);
        let facts = file.metadata()?;
        Ok(match birth(&facts) {
            Some(birth) => Self::with(&facts, Proof::Birth(birth)),
            None => Self::with(&facts, Proof::Held(file)),
        })
    }

    fn with(facts: &Metadata, proof: Proof) -> Self {
        Self { device: facts.dev(), inode: facts.ino(), length: None, proof }
    }

    /// Whether `facts` are those of what was made.
    fn is_still(&self, facts: &Metadata) -> bool {
        (self.device, self.inode) == (facts.dev(), facts.ino())
            && self.length.is_none_or(|length| length == facts.len())
            && match &self.proof {
                Proof::Birth(born) => birth(facts) == Some(*born),
                Proof::Change(changed) => change(facts) == *changed,
                Proof::Held(_) => true,
            }
    }

    /// Removes `path`, a file or an empty directory, if it still stands for what was made.
    ///
    /// # Errors
    /// The kernel's; or that it is something else, which stays.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let facts = fs::symlink_metadata(path)?;
        if !self.is_still(&facts) {
            return Err(io::Error::other("it is not what the run has made there, and stays"));
        }
        if facts.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }
    }
}

/// None where the file system records no birth, or one that no 64 bits of nanoseconds hold.
fn birth(facts: &Metadata) -> Option<i64> {
    let since = facts.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

fn change(facts: &Metadata) -> i64 {
    facts.ctime().wrapping_mul(1_000_000_000).wrapping_add(facts.ctime_nsec())
}

/// Files that are removed when this is dropped, unless they are kept.
#[derive(Debug, Default)]
pub struct Removed(Vec<(PathBuf, Made)>);

impl Removed {
    /// Removes an open file as well.
    ///
    /// # Errors
    /// As [`Made::of_open`].
    pub fn add(&mut self, path: &Path, file: BorrowedFd<'_>) -> io::Result<()> {
        self.0.push((path.to_owned(), Made::of_open(file)?));
        Ok(())
    }

    /// Leaves the files where they are.
    pub fn keep(mut self) {
        self.0.clear();
    }

    /// Leaves them to `other` to remove.
    pub fn hand_over(mut self, other: &mut Self) {
        other.0.append(&mut self.0);
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        for (path, made) in &self.0 {
            // What cannot be removed, or is no longer the run's, is the user's to remove; figures and errors stand.
            let _ = made.remove(path);
        }
    }
}

/// Whether `path` would be made among devices, where a misspelt device must not become a file. `/dev/shm` holds files.
#[must_use]
pub fn is_among_devices(path: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
    parent.starts_with("/dev") && !parent.starts_with("/dev/shm")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    fn facts(path: &Path) -> Metadata {
        fs::symlink_metadata(path).expect("is there")
    }

    /// What `facts` say of a file that has the inode of the one that was made: a later one.
    fn as_if_it_had_its_inode(made: Made, facts: &Metadata) -> Made {
        Made { device: facts.dev(), inode: facts.ino(), ..made }
    }

    #[test]
    fn a_later_file_with_the_same_inode_is_told_from_what_was_made() {
        let place = tempfile::tempdir().expect("a directory");
        let (ours, theirs) = (place.path().join("ours"), place.path().join("theirs"));
        let file = File::create_new(&ours).expect("makes it");
        file.set_len(4096).expect("its length");
        // The clock of a file system ticks every few milliseconds.
        let mut later = file.metadata().expect("facts");
        while change(&later) == change(&facts(&ours)) {
            fs::write(&theirs, vec![7; 4096]).expect("writes");
            later = facts(&theirs);
        }
        // The first writing is its birth.
        fs::remove_file(&theirs).expect("removes");
        fs::write(&theirs, vec![7; 4096]).expect("writes");
        let made = as_if_it_had_its_inode(Made::of(&facts(&ours)), &facts(&theirs));
        made.remove(&theirs).expect_err("is another file");
        let made = as_if_it_had_its_inode(Made::of_open(file.as_fd()).expect("facts"), &facts(&theirs));
        if matches!(made.proof, Proof::Birth(_)) {
            made.remove(&theirs).expect_err("is another file");
        }
        // Without births.
        let changed = Made { proof: Proof::Change(change(&facts(&ours))), ..Made::of(&facts(&ours)) };
        as_if_it_had_its_inode(changed, &facts(&theirs)).remove(&theirs).expect_err("is another file");
        assert!(theirs.exists());
        Made::of(&facts(&ours)).remove(&ours).expect("removes its own");
    }

    #[test]
    fn a_file_that_the_run_changes_stays_its_own_and_one_that_it_leaves_alone_does_not() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("f");
        let file = File::create_new(&path).expect("makes it");
        let (left_alone, open) = (Made::of(&facts(&path)), Made::of_open(file.as_fd()).expect("facts"));
        file.set_len(8192).expect("grows");
        left_alone.remove(&path).expect_err("somebody has written to it");
        let held = Made { proof: Proof::Held(file.try_clone().expect("twice")), ..Made::of(&facts(&path)) };
        assert!(held.is_still(&facts(&path)));
        open.remove(&path).expect("removes its own");
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_is_a_link_to_that_of_devices_is_among_devices() {
        let place = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("/dev", place.path().join("d")).expect("links");
        for (path, expected) in [
            (Path::new("/dev/nvme77n1"), true),
            (Path::new("/dev/shm/f"), false),
            (&*place.path().join("d/nvme77n1"), true),
            (&*place.path().join("f"), false),
            (Path::new("f"), false),
        ] {
            assert_eq!(is_among_devices(path), expected, "{}", path.display());
        }
    }
}
