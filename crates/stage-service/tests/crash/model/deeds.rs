//! What applications and a stranger do to the files, each thing a list of changes that a mover's process makes between
//! two of its calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use stage::names::PathText;

use super::World;
use crate::child::Change;
use crate::child::change::Content;

/// What a planted file holds.
pub const STRANGER: &[u8] = b"a stranger's";

/// A file as an application has left it: which version wrote its bytes, its mode and its time of modification. Of a
/// symbolic link mode and time are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    pub version: u64,
    pub mode: u32,
    pub time: i64,
}

impl File {
    fn made(path: &str, version: u64) -> Self {
        if path == LINK {
            return Self { version, mode: 0, time: 0 };
        }
        Self { version, mode: 0o600 | (version as u32 % 8) << 3, time: time_of(version) }
    }
}

/// The set's symbolic link.
const LINK: &str = "link";

fn time_of(version: u64) -> i64 {
    1_000_000_000 + version as i64
}

/// The files of a set by their paths.
pub type State = BTreeMap<String, File>;

/// An application: a directory that it writes to, and every state that the directory had.
pub struct Application {
    pub name: char,
    pub source: PathBuf,
    pub states: Vec<State>,
    /// The state at the first request for this source.
    pub first_asked: Option<usize>,
}

impl Application {
    pub fn now(&self) -> &State {
        self.states.last().expect("there is a first state")
    }

    /// The bytes of a file. Its size goes by the path alone, so that versions differ in nothing but bytes and times.
    pub fn content(&self, path: &str, version: u64) -> Content {
        let line = format!("{} {path} {version:06}\n", self.name);
        let size = 1000 + path.bytes().fold(0_usize, |sum, byte| (sum * 31 + usize::from(byte)) % 70_000);
        let size = if path.ends_with("large") { (4 << 20) + size } else { size };
        Content::repeated(line, size)
    }

    /// Where the symbolic link leads: nowhere.
    pub fn target(&self, version: u64) -> String {
        format!("{} {LINK} {version:06}", self.name)
    }

    /// Makes a file or the link, beside the set.
    fn make(&self, aside: &PathText, path: &str, version: u64) -> Vec<Change> {
        if path == LINK {
            let target = PathText(self.target(version).into());
            return vec![Change::Symlink { path: aside.clone(), target }];
        }
        let File { mode, time, .. } = File::made(path, version);
        vec![
            Change::Create { path: aside.clone(), content: self.content(path, version) },
            Change::Finish { path: aside.clone(), mode, seconds: time },
        ]
    }
}

/// What an application or the stranger does next, and the state of the application after it.
pub struct Deed {
    pub changes: Vec<Change>,
    pub application: usize,
    pub after: Option<State>,
    pub plants: bool,
}

impl World {
    pub fn write_first(&mut self, which: usize) {
        let mut paths = vec!["one", "two", "below/three", "below/deeper/four", LINK];
        if self.random.below(4) != 0 {
            paths.push("large");
        }
        let mut state = State::new();
        for path in paths {
            self.versions += 1;
            state.insert(path.to_owned(), File::made(path, self.versions));
            let application = &self.applications[which];
            let there = application.source.join(path);
            fs::create_dir_all(there.parent().unwrap()).unwrap();
            for change in application.make(&PathText(there), path, self.versions) {
                change.make().unwrap();
            }
        }
        if let Some(user) = self.servers[which].user {
            own(&self.applications[which].source, user);
        }
        self.applications[which].states[0] = state;
    }

    /// What an application or the stranger does next: one thing, or a whole set written anew, file by file.
    pub fn deeds(&mut self, which: usize) -> Vec<Deed> {
        if self.random.below(5) < 2 {
            return self.rewritten(which);
        }
        let mut state = self.applications[which].now().clone();
        let mut deeds = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let kind = self.random.below(10);
            let nth = self.random.below(state.len().max(1) as u64) as usize;
            let path = state.keys().nth(nth).cloned();
            deeds.push(self.deed(which, &state, kind, path));
            state = deeds.last().and_then(|deed| deed.after.clone()).unwrap_or(state);
        }
        deeds
    }

    /// Every file of a set is written anew, one after another.
    pub fn rewritten(&mut self, which: usize) -> Vec<Deed> {
        let mut state = self.applications[which].now().clone();
        let mut deeds = Vec::new();
        let mut paths: Vec<String> = state.keys().cloned().collect();
        while !paths.is_empty() {
            let path = paths.swap_remove(self.random.below(paths.len() as u64) as usize);
            let how = self.random.below(4);
            deeds.push(self.deed(which, &state, how, Some(path)));
            state = deeds.last().and_then(|deed| deed.after.clone()).unwrap_or(state);
        }
        deeds
    }

    /// Something that an application or the stranger may do now, as if `state` were the application's.
    fn deed(&mut self, which: usize, state: &State, kind: u64, path: Option<String>) -> Deed {
        self.versions += 1;
        let version = self.versions;
        let application = &self.applications[which];
        let at = |path: &str| PathText(application.source.join(path));
        let aside = PathText(application.source.with_file_name(format!("aside-{version}")));
        let mut after = state.clone();
        let mut plants = false;
        let changes = match (kind, path) {
            // In place, the time of modification as it was or not.
            (0..=2, Some(path)) if path != LINK => {
                let before = state[&path];
                let time = if kind == 0 { before.time } else { time_of(version) };
                after.insert(path.clone(), File { version, time, ..before });
                let content = application.content(&path, version);
                vec![
                    Change::Write { path: at(&path), offset: 0, content, keep_times: true },
                    Change::Finish { path: at(&path), mode: before.mode, seconds: time },
                ]
            }
            // By a rename over it.
            (0..=3, Some(path)) => {
                after.insert(path.clone(), File::made(&path, version));
                let mut changes = application.make(&aside, &path, version);
                changes.push(Change::Rename { from: aside, to: at(&path) });
                changes
            }
            (4, Some(path)) => {
                after.remove(&path);
                vec![Change::Remove { path: at(&path) }]
            }
            (5, _) if !state.is_empty() => {
                let path = format!("new-{version}");
                after.insert(path.clone(), File::made(&path, version));
                let mut changes = application.make(&aside, &path, version);
                changes.push(Change::Rename { from: aside, to: at(&path) });
                changes
            }
            (6, Some(path)) => {
                // Another name has other bytes by the rule that a file says its path: so a rename is a removal of one
                // version and the appearance of another.
                let to = format!("renamed-{version}");
                after.remove(&path);
                after.insert(to.clone(), File::made(&to, version));
                let mut changes = application.make(&aside, &to, version);
                changes.push(Change::Rename { from: aside, to: at(&path) });
                changes.push(Change::Rename { from: at(&path), to: at(&to) });
                changes
            }
            (7 | 8, _) => {
                plants = true;
                vec![Change::SwapPart { directory: PathText(self.slow.clone()), content: STRANGER.into() }]
            }
            _ => {
                plants = true;
                let theirs = self.fast.join(format!("marks/theirs-{version}"));
                vec![
                    Change::Absent { path: PathText(self.destination.clone()) },
                    Change::Plant {
                        made: PathText(theirs),
                        to: PathText(self.destination.clone()),
                        content: STRANGER.into(),
                    },
                ]
            }
        };
        let after = (!plants).then_some(after);
        Deed { changes, application: which, after, plants }
    }

    /// Deeds one after another, each followed by a mark that says that it was done.
    pub fn marked(&mut self, deeds: &[Deed]) -> Vec<Change> {
        let mut changes = Vec::new();
        for deed in deeds {
            changes.extend(deed.changes.iter().cloned());
            changes.push(Change::Create {
                path: PathText(self.fast.join(format!("marks/{}", self.marks))),
                content: Vec::new().into(),
            });
            self.marks += 1;
        }
        changes
    }

    /// Takes note of the deeds that have been done, from mark `first`.
    pub fn note(&mut self, deeds: Vec<Deed>, first: usize) {
        for (n, deed) in deeds.into_iter().enumerate() {
            if !self.fast.join(format!("marks/{}", first + n)).exists() {
                break;
            }
            self.log.push(format!("  done: {:?}", summary(&deed.changes)));
            match deed.after {
                Some(after) => self.applications[deed.application].states.push(after),
                None => self.planted += usize::from(deed.plants),
            }
        }
    }
}

/// What was done, without the bytes.
pub fn summary(changes: &[Change]) -> Vec<String> {
    let short = |change: &Change| match change {
        Change::Write { path, keep_times, .. } => {
            format!("write {}, keep times {keep_times}", path.0.display())
        }
        Change::Create { path, .. } => format!("create {}", path.0.display()),
        Change::Plant { to, .. } => format!("plant {}", to.0.display()),
        Change::Finish { path, mode, seconds } => {
            format!("{} gets mode {mode:o}, time {seconds}", path.0.display())
        }
        Change::SwapPart { .. } => "swap a part".to_owned(),
        other => format!("{other:?}"),
    };
    changes.iter().map(short).collect()
}

fn own(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for one in fs::read_dir(path).unwrap() {
            own(&one.unwrap().path(), user);
        }
    }
}
