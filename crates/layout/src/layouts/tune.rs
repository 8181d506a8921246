//! Settings of drives that are at work.
//!
//! A layout that is going to be measured needs its drives for itself. Settings that are to stay on a machine
//! (`flashwright tune apply`) are written while the drives serve: no setting of a queue changes what lies on a drive, and
//! the kernel lets requests drain before it changes a scheduler. `write_cache` is left out all the same. It is
//! what the kernel *believes* of a drive's cache; told "write through" it sends no more flushes, and what was
//! acknowledged may be lost with the power.
//!
//! Everything is journalled before it is written and undone as a layout's settings are.

use std::collections::BTreeSet;

use crate::drive::{DriveId, node};
use crate::error::LayoutError;
use crate::settings::{self, Wanted};
use crate::spec::{LayoutKind, LayoutSpec};
use crate::survey::Availability;

use super::{LAYER, Layouts};
use crate::facts::Built;

impl Layouts {
    /// Sets the queues and interrupts of the drives of `spec`, and the read-ahead of what is built on these drives alone.
    /// Builds nothing, whatever else the layout says, and does not mind who uses the drives.
    ///
    /// # Errors
    /// [`LayoutError`]: a drive that is not there, a setting that this machine cannot have, a value that was refused. What
    /// was set before it is set back by [`Layouts::down`].
    pub fn tune(&mut self, spec: &LayoutSpec) -> Result<Built, LayoutError> {
        let mut bare = LayoutSpec {
            kind: LayoutKind::Separate,
            chunk: None,
            filesystem: None,
            mount_options: None,
            ..spec.clone()
        };
        let cache = bare.queue.remove("write_cache");
        let drives = self.find(&bare)?;
        Availability::of(self.system.as_ref(), &bare.drives).check_spec(&bare)?;
        self.lock(&bare, &drives)?;
        self.hold(&drives)?;
        self.standing = None;
        self.ours = drives.clone();
        let mut notes = self.apply(&bare, &drives)?;
        for wanted in self.above(&bare, &drives) {
            let said = settings::apply(self.system.as_mut(), &mut self.journal, &mut self.recorded, &wanted)?;
            notes.extend(said);
        }
        if let Some(value) = cache {
            notes.push(format!("write_cache={value} was not set: the drive knows whether its cache is safe"));
        }
        let built = self.built(&bare, notes)?;
        self.journal.stands(self.system.as_mut(), &bare.to_string(), &built.device_spec, false)?;
        self.standing = Some((bare, built.clone()));
        Ok(built)
    }

    /// The read-ahead of arrays and volumes that have no other drives.
    fn above(&self, spec: &LayoutSpec, drives: &[DriveId]) -> Vec<Wanted> {
        let Some(asked) = spec.queue.get("read_ahead_kb") else { return Vec::new() };
        let sysfs = self.system.sysfs();
        let own: BTreeSet<String> = drives
            .iter()
            .chain(&self.queues(drives))
            .flat_map(|drive| {
                let above = sysfs.above(&drive.name).into_iter().map(|device| device.name);
                above.chain([drive.name.clone()]).collect::<Vec<_>>()
            })
            .collect();
        let mut layers = Vec::new();
        for name in &own {
            let Some(device) = sysfs.block_node(name).filter(|device| !device.slaves.is_empty()) else {
                continue;
            };
            let file = format!("/sys/class/block/{name}/queue/read_ahead_kb");
            let is_ours = device.slaves.iter().all(|slave| own.contains(slave));
            if is_ours && sysfs.text(&file).is_some() {
                let files = vec![(file.into(), asked.clone())];
                let layer = DriveId::of(&sysfs, &node(name)).ok();
                layers.push(Wanted::of_files(&format!("{LAYER}{name}"), layer, files));
            }
        }
        layers
    }
}
