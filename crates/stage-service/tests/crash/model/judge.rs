//! The rules, held against what is on the file systems.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::World;
use super::deeds::{Application, File, STRANGER, State};

/// Who wrote what, by path.
pub type Tags = BTreeMap<String, (char, File)>;

impl World {
    /// Rules 1 to 3, as far as they hold at any moment.
    pub fn judge(&self) {
        let there = self.read(&self.destination);
        if let Some(there) = &there {
            let theirs = there.len() == 1 && there.contains_key("planted");
            let whole = self.applications.iter().any(|application| {
                let since = application.first_asked.unwrap_or(application.states.len());
                application.states.iter().skip(since).any(|state| *there == tagged(application, state))
            });
            if !theirs && !whole {
                self.fail(&format!("1: the destination is no state of a source: {there:?}"));
            }
        }
        for application in &self.applications {
            let here = self.read(&application.source).unwrap_or_default();
            for (path, file) in application.now() {
                let tag = (application.name, *file);
                let is = |tree: &Tags| tree.get(path) == Some(&tag);
                if !is(&here) && !there.as_ref().is_some_and(is) {
                    self.fail(&format!(
                        "2: {path} {tag:?} is lost; the source has {here:?}, the destination {there:?}"
                    ));
                }
            }
        }
        let found = count(&self.slow);
        if found != self.planted {
            self.fail(&format!("3: the stranger planted {} files, and {found} are there", self.planted));
        }
    }

    /// Every file below, with who wrote it and as which version; a file that is none of these is `?`. The claim of a
    /// directory's name is nothing yet.
    pub fn read(&self, root: &Path) -> Option<Tags> {
        let metadata = fs::symlink_metadata(root).ok()?;
        let mut found = Tags::new();
        let mut waiting = vec![root.to_owned()];
        let mut directories = 0;
        while let Some(directory) = waiting.pop() {
            directories += 1;
            for one in fs::read_dir(&directory).unwrap().map(Result::unwrap) {
                let path = one.path();
                if one.file_type().unwrap().is_dir() {
                    waiting.push(path);
                    continue;
                }
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                if name == crate::world::MANIFEST {
                    continue;
                }
                let tag = self.tag(&name, &path);
                found.insert(name, tag);
            }
        }
        let is_claim = metadata.mode() & 0o7777 == 0o1700 && found.is_empty() && directories == 1;
        (!(self.is_like_nfs && is_claim)).then_some(found)
    }

    fn tag(&self, name: &str, path: &Path) -> (char, File) {
        let metadata = fs::symlink_metadata(path).unwrap();
        let version_of = |line: &str| line.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if metadata.is_symlink() {
            let target = fs::read_link(path).unwrap().to_string_lossy().into_owned();
            let file = File { version: version_of(&target), mode: 0, time: 0 };
            let who = self.applications.iter().find(|application| application.target(file.version) == target);
            return (who.map_or('?', |application| application.name), file);
        }
        let bytes = fs::read(path).unwrap();
        let line = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\n').next().unwrap_or_default())
            .into_owned();
        let version = version_of(&line);
        let file = File { version, mode: metadata.mode() & 0o7777, time: metadata.mtime() };
        let who = self.applications.iter().find(|application| {
            line.starts_with(application.name) && application.content(name, version).bytes() == bytes
        });
        (who.map_or('?', |application| application.name), file)
    }
}

/// A state as [`World::read`] finds it.
pub fn tagged(application: &Application, state: &State) -> Tags {
    state.iter().map(|(path, file)| (path.clone(), (application.name, *file))).collect()
}

/// Files of the stranger's below.
pub fn count(root: &Path) -> usize {
    let Ok(metadata) = fs::symlink_metadata(root) else { return 0 };
    if metadata.is_dir() {
        return fs::read_dir(root).unwrap().map(|one| count(&one.unwrap().path())).sum();
    }
    usize::from(metadata.is_file() && fs::read(root).is_ok_and(|bytes| bytes == STRANGER))
}
