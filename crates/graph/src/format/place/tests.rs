use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use storage::device::{DeviceKind, Geometry};
use storage::locks::{self, Attempt};

use super::*;

#[test]
fn a_second_writer_of_a_path_is_refused_and_what_a_dead_one_left_is_replaced() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("a.fwg");
    let partial = folder.path().join(".a.fwg.partial");
    std::fs::write(&partial, "of a writer that was killed").expect("writes");
    let mut first = GraphPlace::file(&path).expect("the old one is nobody's");
    first.write(b"first", 4096).expect("writes");
    let second = GraphPlace::file(&path).expect_err("the first is at work");
    assert!(matches!(second, GraphError::Busy { .. }), "{second}");
    first.complete(b"begin").expect("completes");
    let bytes = std::fs::read(&path).expect("is there");
    assert_eq!((&bytes[..5], &bytes[4096..]), (&b"begin"[..], &b"first"[..]));
    drop(first);
    drop(GraphPlace::file(&path).expect("the first has ended"));
    assert!(!partial.exists() && path.exists(), "a writer that gives up leaves what was there");
}

/// A link where the partial file of a graph would be leads to the file of a writer at work, and to nothing.
#[test]
fn a_link_in_the_place_of_a_partial_file_is_removed_and_not_followed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("a.fwg");
    let partial = folder.path().join(".a.fwg.partial");
    let others = folder.path().join("other");
    std::fs::write(&others, "somebody's").expect("writes");
    let held = File::open(&others).expect("opens");
    assert_eq!(locks::try_exclusive(held.as_fd()).expect("locks"), Attempt::Taken);
    for target in ["other", "nothing"] {
        std::os::unix::fs::symlink(target, &partial).expect("links");
        let mut place = GraphPlace::file(&path).unwrap_or_else(|error| panic!("a link to {target}: {error}"));
        place.complete(b"begin").expect("completes");
        assert!(std::fs::symlink_metadata(&path).expect("is there").is_file());
        assert_eq!(std::fs::read(&others).expect("reads"), b"somebody's");
    }
}

/// What was done to a medium, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Write(u64, Vec<u8>),
    Sync,
    Rename,
    SyncFolder,
}

/// Steps are made and noted.
#[derive(Debug, Default)]
struct Noted(Mutex<Vec<Step>>);

impl Noted {
    fn note(&self, step: Step) {
        self.0.lock().expect("no test panics with it").push(step);
    }

    fn steps(&self) -> Vec<Step> {
        self.0.lock().expect("no test panics with it").clone()
    }
}

impl FileCalls for Noted {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.note(Step::Write(offset, bytes.to_vec()));
        KernelCalls.write(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.note(Step::Sync);
        KernelCalls.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Step::Rename);
        KernelCalls.rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.note(Step::SyncFolder);
        KernelCalls.sync_folder(folder)
    }
}

/// Contents by offset; each write here has an offset of its own, or replaces one whole.
type Contents = BTreeMap<u64, Vec<u8>>;

/// Every state in which a medium may be after the power failed behind `steps`: each write that was not synced may be there or not.
fn states(before: &Contents, steps: &[Step]) -> Vec<Contents> {
    let (mut durable, mut pending) = (before.clone(), Vec::new());
    for step in steps {
        match step {
            Step::Write(offset, bytes) => pending.push((*offset, bytes.clone())),
            Step::Sync => durable.extend(pending.drain(..)),
            Step::Rename | Step::SyncFolder => {}
        }
    }
    let with = |chosen: u32| {
        let kept = pending.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
        let mut state = durable.clone();
        state.extend(kept.map(|(_, write)| write.clone()));
        state
    };
    (0..1 << pending.len()).map(with).collect()
}

const HEADER: &[u8] = b"header";

/// Three writes and the header.
fn wanted() -> Contents {
    let data = [4096, 8192, 12_288].map(|at| (at, vec![at as u8 ^ 7; 4]));
    data.into_iter().chain([(0, HEADER.to_vec())]).collect()
}

fn write_all(place: &mut GraphPlace) {
    for (offset, bytes) in wanted().into_iter().filter(|(offset, _)| *offset > 0) {
        place.write(&bytes, offset).expect("writes");
    }
    place.complete(HEADER).expect("completes");
}

#[test]
fn a_power_failure_at_any_step_leaves_the_old_file_or_all_of_the_new_one() {
    let folder = tempfile::tempdir().expect("a directory");
    let noted = Arc::new(Noted::default());
    let calls: Arc<dyn FileCalls> = Arc::clone(&noted) as _;
    write_all(&mut GraphPlace::file_by(&folder.path().join("a.fwg"), calls).expect("begins"));
    let steps = noted.steps();
    assert!(steps.len() >= 6, "{steps:?}");
    for end in 0..=steps.len() {
        let (done, is_whole) = (&steps[..end], end == steps.len());
        let is_renamed = done.contains(&Step::Rename);
        // A rename may be durable as soon as it was made, and is once the directory was synced.
        let renamed = done.iter().position(|step| *step == Step::Rename);
        let is_durable = renamed.is_some_and(|at| done[at..].contains(&Step::SyncFolder));
        assert!(is_durable || !is_whole, "the new name is not durable at the end");
        if is_renamed {
            let states = states(&Contents::new(), done);
            assert!(states.iter().all(|state| *state == wanted()), "after {end} steps");
        }
    }
}

/// A device in memory that notes what is done to it.
#[derive(Debug)]
struct Medium {
    noted: Noted,
    nothing: File,
}

impl Device for Medium {
    fn spec(&self) -> &str {
        "medium"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        1 << 20
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 1, physical_block: 1, memory_alignment: 1 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.nothing.as_fd()
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.noted.note(Step::Write(offset, bytes.to_vec()));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.noted.note(Step::Sync);
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn a_power_failure_at_any_step_leaves_a_device_whose_header_is_of_what_is_on_it() {
    let nothing = File::open("/dev/null").expect("opens");
    let medium = Arc::new(Medium { noted: Noted::default(), nothing });
    let device: Arc<dyn Device> = Arc::clone(&medium) as _;
    write_all(&mut GraphPlace::device(device, Path::new("medium")).expect("begins"));
    let steps = medium.noted.steps();
    // Another graph was there before.
    let old: Contents = wanted().into_keys().map(|at| (at, b"old".to_vec())).collect();
    for end in 0..=steps.len() {
        for state in states(&old, &steps[..end]) {
            let header = &state[&0];
            assert!(header != b"old" || state == old, "an old header before new data, after {end} steps");
            assert!(header != HEADER || state == wanted(), "a header before its data, after {end} steps");
            assert!(header == HEADER || end < steps.len(), "the header is not durable at the end");
        }
    }
}
