//! What is here: `flashwright probe` as data, `flashwright.probe/1`.
//!
//! A survey looks and changes nothing. It says what the machine is, which drives it has and how they are set
//! up, what each given path stands on, what this process may do, and, as [`Note`]s, what an engineer would
//! want to know before believing a figure measured here. Facts that cannot be had are left out; only a path
//! that is not there is an error.

mod export;
mod host;
mod interrupts;
mod limits;
mod notes;
mod target;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use export::{SurveyedExport, SurveyedVolume, survey_export};
pub use host::{Host, NumaNode, governors};
pub use interrupts::Interrupt;
pub use limits::{EngineAvailability, Limits};
pub use notes::Note;
pub use target::{DirectIo, SurveyedTarget};

use crate::sysfs::{BlockDevice, Sysfs};

/// The name of the format, in each survey's `schema`.
pub const SCHEMA: &str = "flashwright.probe/1";

/// What is here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Survey {
    /// `flashwright.probe/1`.
    pub schema: String,
    /// The machine.
    pub host: Host,
    /// What this process may use.
    pub limits: Limits,
    /// Which engines this process may use, the fastest first.
    pub engines: Vec<EngineAvailability>,
    /// All block devices of some size, each disk followed by its partitions.
    pub drives: Vec<BlockDevice>,
    /// Polled queues of the NVMe driver; none where the driver is not there.
    pub nvme_poll_queues: Option<u32>,
    /// Interrupts of the drives' queues.
    pub interrupts: Vec<Interrupt>,
    /// What the given paths stand on, in the order in which they were given.
    pub targets: Vec<SurveyedTarget>,
    /// The exports of other hosts among what was given, those that are members included.
    #[serde(default)]
    pub exports: Vec<SurveyedExport>,
    /// What was given that is made of several devices.
    #[serde(default)]
    pub volumes: Vec<SurveyedVolume>,
    /// What bears on measurements here.
    pub notes: Vec<Note>,
}

/// A path that cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be surveyed", path.display())]
pub struct SurveyError {
    /// The path that was given.
    pub path: PathBuf,
    /// The kernel's word.
    #[source]
    pub source: io::Error,
}

impl SurveyError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::NotFound => "name an existing file, directory or block device",
            io::ErrorKind::PermissionDenied => "run as a user who may look there",
            _ => "check that the file system answers",
        }
    }
}

/// Looks at this machine, and at what each of `paths` (files, directories, block devices) stands on.
///
/// # Errors
/// [`SurveyError`] for the first path that cannot be looked at.
pub fn survey(paths: &[PathBuf]) -> Result<Survey, SurveyError> {
    let mut survey = survey_of(&Sysfs::host(), paths)?;
    survey.engines = limits::engines();
    survey.notes = notes::notes(&survey);
    Ok(survey)
}

/// The same below another root, as far as files tell it: engines cannot be tried there.
///
/// # Errors
/// As for [`survey`].
pub fn survey_of(system: &Sysfs, paths: &[PathBuf]) -> Result<Survey, SurveyError> {
    let targets = paths
        .iter()
        .map(|path| {
            target::look_at(system, path).map_err(|source| SurveyError { path: path.clone(), source })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let drives = system.block_devices();
    let mut survey = Survey {
        schema: SCHEMA.to_owned(),
        host: Host::read(system),
        limits: Limits::read(system),
        engines: Vec::new(),
        nvme_poll_queues: system.nvme_poll_queues(),
        interrupts: interrupts::of_drives(system, &drives),
        drives,
        targets,
        exports: Vec::new(),
        volumes: Vec::new(),
        notes: Vec::new(),
    };
    survey.notes = notes::notes(&survey);
    Ok(survey)
}

impl Survey {
    /// The same survey with what was found out of exports.
    #[must_use]
    pub fn with_exports(mut self, exports: Vec<SurveyedExport>) -> Self {
        self.exports = exports;
        self.notes = notes::notes(&self);
        self
    }

    /// The devices that matter: those below the given paths, or all where nothing was given.
    #[must_use]
    pub fn devices_concerned(&self) -> Vec<&BlockDevice> {
        if self.targets.is_empty() && self.exports.is_empty() {
            return self.drives.iter().collect();
        }
        let mut seen = BTreeSet::new();
        let below = self.targets.iter().flat_map(|target| &target.backing.block_devices);
        below.filter(|device| seen.insert(device.name.as_str())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Tree;
    use std::path::Path;

    #[test]
    fn this_machine_can_be_surveyed_and_the_survey_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [directory.path().to_owned(), PathBuf::from("/proc/self/exe")];
        let survey = survey(&paths).unwrap();
        assert_eq!(survey.targets.len(), 2);
        assert!(!survey.host.kernel.is_empty() && survey.host.cpus > 0 && survey.host.memory_bytes > 0);
        assert_eq!(survey.engines.last().unwrap().name, "psync");
        let text = serde_json::to_string(&survey).unwrap();
        assert_eq!(serde_json::from_str::<Survey>(&text).unwrap(), survey);
    }

    #[test]
    fn a_missing_path_is_named() {
        let error = survey(&[PathBuf::from("/no/such/place")]).unwrap_err();
        assert_eq!(error.to_string(), "/no/such/place: cannot be surveyed");
        assert!(error.hint().contains("existing"));
    }

    #[test]
    fn an_empty_tree_gives_an_empty_survey_not_a_failure() {
        let survey = survey_of(&Sysfs::at(Path::new("/no/such/root")), &[]).unwrap();
        assert!(survey.drives.is_empty() && survey.host.numa_nodes.is_empty());
    }

    #[test]
    fn devices_are_those_below_the_paths_or_all() {
        let tree = Tree::new();
        tree.disk("pci/a", "sda", "8:0", 1 << 30);
        tree.disk("pci/b", "sdb", "8:16", 1 << 30);
        let survey = survey_of(&tree.sysfs(), &[]).unwrap();
        assert_eq!(survey.devices_concerned().len(), 2);
    }
}
