//! Which files a section works on.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use storage::device::ProtectionAction;

use super::draft::Draft;
use super::error::Problem;
use super::lines::Section;

/// Files of all copies of a section.
const MAX_FILES: u64 = 1 << 20;

/// The files that the copies of a section work on.
pub(super) enum Paths {
    /// All on the same ones.
    Shared(Vec<PathBuf>),
    /// Each on a set of its own.
    Own(Vec<Vec<PathBuf>>),
}

impl Paths {
    /// The files of the first copy; one at least.
    pub fn first(&self) -> &[PathBuf] {
        match self {
            Self::Shared(files) => files,
            Self::Own(copies) => &copies[0],
        }
    }
}

/// Bytes of a file or block device; None if there is none yet, or it cannot be read.
pub(super) fn length(path: &Path, draft: &Draft) -> Option<u64> {
    if let Some(bytes) = storage::device::namespace_bytes(path, draft.protection.action()) {
        return Some(bytes);
    }
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::End(0)).ok().filter(|bytes| *bytes > 0)
}

/// Whether the copies of a section have a set of files each.
fn have_own_files(section: &Section, draft: &Draft) -> bool {
    let is_named = draft.uri.is_some() || draft.filename.is_some() || is_device(Path::new(&section.name));
    !is_named && draft.workload.numjobs > 1 && draft.filename_format.contains("$jobnum")
}

/// Whether a path is that of a block device, or of an NVMe namespace by its character device.
pub(super) fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|facts| facts.file_type().is_block_device())
        || storage::device::namespace_bytes(path, Some(ProtectionAction::Controller)).is_some()
}

/// Refuses more names than a section may have before any is made up.
pub(super) fn too_many(section: &Section, draft: &Draft) -> Option<Problem> {
    let (files, copies) = (u64::from(draft.nrfiles), u64::from(draft.workload.numjobs));
    (have_own_files(section, draft) && files * copies > MAX_FILES).then(|| {
        let reason =
            format!("{files} files for each of {copies} copies are more than {MAX_FILES} in one section");
        Problem::new(reason, format!("write at most nrfiles={}", MAX_FILES / copies))
    })
}

/// fio's rules: `filename`; else a section named after a block device, or a namespace, is that device; else a name is
/// made from `filename_format`, in which `$jobnum` tells copies apart.
pub(super) fn paths(section: &Section, draft: &Draft, numjobs: u32) -> Paths {
    let within = |name: &str| match &draft.directory {
        Some(directory) => Path::new(directory).join(name),
        None => PathBuf::from(name),
    };
    if let Some(uri) = &draft.uri {
        return Paths::Shared(vec![PathBuf::from(uri)]);
    }
    if let Some(names) = &draft.filename {
        return Paths::Shared(names.iter().map(|name| within(name)).collect());
    }
    if is_device(Path::new(&section.name)) {
        return Paths::Shared(vec![PathBuf::from(&section.name)]);
    }
    let name = |copy: u32, file: u32| {
        let name = draft.filename_format.replace("$jobname", &section.name);
        within(&name.replace("$jobnum", &copy.to_string()).replace("$filenum", &file.to_string()))
    };
    let files = |copy: u32| (0..draft.nrfiles).map(|file| name(copy, file)).collect();
    if have_own_files(section, draft) {
        Paths::Own((0..numjobs).map(files).collect())
    } else {
        Paths::Shared(files(0))
    }
}
