//! What layouts this machine can have, looked at before anything is made, so that a plan leaves out aloud what
//! is not to be had instead of failing in the night.

use std::collections::BTreeMap;
use std::path::PathBuf;

use storage::sysfs::{BlockDevice, Sysfs};

use crate::error::LayoutError;
use crate::interrupts;
use crate::knobs::{self, knob};
use crate::spec::{Filesystem, LayoutKind, LayoutSpec};
use crate::system::{Host, System};

/// What is to be had, and why not where it is not.
#[derive(Debug, Clone)]
pub struct Availability {
    drives: Vec<Drive>,
    kinds: BTreeMap<LayoutKind, Option<String>>,
    filesystems: BTreeMap<Filesystem, Option<String>>,
    /// Names of modules that could be loaded: schedulers, file systems.
    modules: String,
    settings: Option<String>,
    cpus: std::collections::BTreeSet<u32>,
}

/// A drive, as far as settings are concerned.
#[derive(Debug, Clone)]
struct Drive {
    shown: String,
    schedulers: Vec<String>,
    /// Settings that its queue has, with their values.
    has: BTreeMap<&'static str, String>,
    interrupts: usize,
    /// Those that the kernel keeps for itself.
    managed: usize,
    is_there: bool,
}

/// Looks at this machine and the drives.
#[must_use]
pub fn survey(drives: &[PathBuf]) -> Availability {
    Availability::of(&Host::default(), drives)
}

impl Availability {
    /// Looks at a system and drives of it.
    #[must_use]
    pub fn of(system: &dyn System, drives: &[PathBuf]) -> Self {
        let mut found = Self::at_a_glance(system, drives);
        let sysfs = system.sysfs();
        for (drive, path) in found.drives.iter_mut().zip(drives) {
            let numbers = sysfs.device_at(path).map(|name| interrupts::of_drive(&sysfs, &name));
            let managed = numbers.into_iter().flatten().filter(|number| system.is_managed(*number));
            drive.managed = managed.count();
        }
        found
    }

    /// The same, but for whether interrupts can be moved, which is found out by writing.
    pub(crate) fn at_a_glance(system: &dyn System, drives: &[PathBuf]) -> Self {
        let sysfs = system.sysfs();
        let modules = modules(&sysfs);
        let root = needs_root(&sysfs);
        let kinds = LayoutKind::ALL.map(|kind| (kind, root_or(kind, &root, lacking(system, kind, &modules))));
        let filesystems =
            Filesystem::ALL.map(|fs| (fs, root.clone().or_else(|| lacking_filesystem(system, fs, &modules))));
        Self {
            drives: drives.iter().map(|path| drive(&sysfs, path)).collect(),
            kinds: kinds.into_iter().collect(),
            filesystems: filesystems.into_iter().collect(),
            modules,
            settings: root,
            cpus: interrupts::online(&sysfs),
        }
    }

    /// Whether a setting can have a value here.
    pub fn check(&self, name: &str, value: &str) -> Result<(), String> {
        let reason = match name {
            "irq_cpus" => self.managed().or_else(|| self.refusal(name, value)),
            _ => self.refusal(name, value),
        };
        reason.map_or(Ok(()), Err)
    }

    /// Why some of the interrupts stay where they are.
    fn managed(&self) -> Option<String> {
        let drive = self.drives.iter().find(|drive| drive.managed > 0)?;
        Some(format!(
            "{} of {} interrupts of {} are managed: the kernel alone says which CPU takes them",
            drive.managed, drive.interrupts, drive.shown
        ))
    }

    /// Why a setting cannot be had at all.
    fn refusal(&self, name: &str, value: &str) -> Option<String> {
        match name {
            "layout" => {
                let kind = LayoutKind::from_word(value);
                kind.map_or_else(|| Some("there is no such layout".into()), |kind| self.kinds[&kind].clone())
            }
            "filesystem" if value == "raw" => None,
            "filesystem" => {
                let fs = Filesystem::from_word(value);
                fs.map_or_else(
                    || Some("there is no such file system".into()),
                    |fs| self.filesystems[&fs].clone(),
                )
            }
            "width" => match value.parse::<usize>() {
                Ok(width) if (1..=self.drives.len()).contains(&width) => None,
                _ => Some(format!("there are {} drives", self.drives.len())),
            },
            "irq_cpus" => self.settings.clone().or_else(|| self.interrupts(value)),
            "drives" | "chunk" | "mount_options" => None,
            _ => match knob(name) {
                None => Some("there is no such setting".into()),
                Some(knob) => knob
                    .objection(value)
                    .map(|allowed| format!("{name} {allowed}"))
                    .or_else(|| self.settings.clone())
                    .or_else(|| self.drives.iter().find_map(|drive| self.objection(drive, name, value))),
            },
        }
    }

    /// Whether a whole layout is to be had. Interrupts that the kernel keeps for itself are no reason against it; they
    /// are told when it is made.
    ///
    /// # Errors
    /// [`LayoutError::Unavailable`] for the first setting that is not.
    pub fn check_spec(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let mut settings = spec.settings();
        settings.remove("drives");
        if let Some(filesystem) = spec.mounted_filesystem() {
            settings.insert("filesystem".into(), filesystem.word().into());
        }
        for (setting, value) in settings {
            if let Some(reason) = self.refusal(&setting, &value) {
                return Err(LayoutError::Unavailable { setting, value, reason });
            }
        }
        Ok(())
    }

    /// Why a drive cannot have the setting.
    fn objection(&self, drive: &Drive, name: &str, value: &str) -> Option<String> {
        let shown = &drive.shown;
        if !drive.is_there {
            return Some(format!("there is no drive {shown}"));
        }
        let Some(now) = drive.has.get(name) else {
            return Some(format!("{shown} has no {name}"));
        };
        match name {
            "scheduler" => {
                let is_there = drive.schedulers.iter().any(|one| one == value)
                    || [format!("/{value}-iosched.ko"), format!("/{value}.ko")]
                        .iter()
                        .any(|file| self.modules.contains(file.as_str()));
                (!is_there).then(|| format!("{shown} has {}", drive.schedulers.join(", ")))
            }
            // Since Linux 5.19 writing is taken and does nothing; the driver decides when it is loaded.
            "io_poll" if now != value => Some(format!(
                "io_poll of {shown} is {now}, and only its driver changes that: for NVMe, load it with poll_queues=N"
            )),
            _ => None,
        }
    }

    fn interrupts(&self, value: &str) -> Option<String> {
        if let Some(drive) = self.drives.iter().find(|drive| drive.interrupts == 0) {
            return Some(format!("{} has no interrupts of its own that can be moved", drive.shown));
        }
        let asked = crate::cpus::parse(value).unwrap_or_default();
        let missing = asked.difference(&self.cpus).next()?;
        Some(format!("there is no CPU {missing}"))
    }
}

fn drive(sysfs: &Sysfs, path: &std::path::Path) -> Drive {
    let shown = path.display().to_string();
    let device = sysfs.device_at(path).and_then(|name| sysfs.block_device(&name));
    let is_there = device.is_some();
    let whole = device.map(|device| whole_disk(sysfs, device));
    let name = whole.as_ref().map(|device| device.name.clone()).unwrap_or_default();
    let value = |knob: &str| knobs::read(sysfs, format!("/sys/class/block/{name}/queue/{knob}").as_ref());
    let interrupts = interrupts::of_drive(sysfs, &name);
    Drive {
        shown,
        managed: 0,
        interrupts: interrupts.len(),
        has: knobs::KNOBS.iter().filter_map(|knob| Some((knob.name, value(knob.name)?))).collect(),
        schedulers: whole.and_then(|device| device.queue).map(|queue| queue.schedulers).unwrap_or_default(),
        is_there,
    }
}

/// The disk of a partition, whose queue it has.
fn whole_disk(sysfs: &Sysfs, device: BlockDevice) -> BlockDevice {
    let disk = device.disk.as_ref().and_then(|disk| sysfs.block_device(disk));
    disk.unwrap_or(device)
}

/// All modules that the kernel has built in or could load, as paths.
fn modules(sysfs: &Sysfs) -> String {
    let release = sysfs.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let list = |file: &str| sysfs.text(format!("/lib/modules/{release}/{file}")).unwrap_or_default();
    format!("/{}\n/{}", list("modules.builtin"), list("modules.dep"))
}

fn needs_root(sysfs: &Sysfs) -> Option<String> {
    let status = sysfs.text("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let effective = line.split_whitespace().nth(1)?;
    (effective != "0").then(|| "only root may change drives".to_owned())
}

/// A layout that touches nothing needs no root.
fn root_or(kind: LayoutKind, root: &Option<String>, lacking: Option<String>) -> Option<String> {
    let touches_nothing = matches!(kind, LayoutKind::Single | LayoutKind::Separate | LayoutKind::Stripe);
    if touches_nothing { lacking } else { root.clone().or(lacking) }
}

/// Whether the kernel can load a module.
fn has_module(modules: &str, name: &str) -> bool {
    let other = name.replace('-', "_");
    [name, &other].iter().any(|name| modules.contains(&format!("/{name}.ko")))
}

fn program(system: &dyn System, name: &str) -> Option<String> {
    system.find_program(name).is_none().then(|| format!("the program {name} is not installed"))
}

/// What a layout lacks.
fn lacking(system: &dyn System, kind: LayoutKind, modules: &str) -> Option<String> {
    let sysfs = system.sysfs();
    match kind {
        LayoutKind::Single | LayoutKind::Separate | LayoutKind::Stripe => None,
        LayoutKind::MdRaid0 => {
            let mdstat = sysfs.text("/proc/mdstat").unwrap_or_default();
            let has = mdstat.contains("[raid0]") || has_module(modules, "raid0");
            let kernel = (!has).then(|| "the kernel has no md RAID-0 (module raid0)".to_owned());
            kernel.or_else(|| program(system, "mdadm"))
        }
        LayoutKind::BtrfsRaid0 => lacking_filesystem(system, Filesystem::Btrfs, modules),
        LayoutKind::LvmStripe => {
            let loaded = sysfs.at_root("/sys/class/misc/device-mapper").exists();
            let has = loaded || has_module(modules, "dm-mod");
            let kernel = (!has).then(|| "the kernel has no device mapper (module dm-mod)".to_owned());
            kernel.or_else(|| program(system, "lvm"))
        }
    }
}

/// What a file system lacks.
fn lacking_filesystem(system: &dyn System, filesystem: Filesystem, modules: &str) -> Option<String> {
    let word = filesystem.word();
    let known = system.sysfs().text("/proc/filesystems").unwrap_or_default();
    let has =
        known.lines().any(|line| line.split_whitespace().last() == Some(word)) || has_module(modules, word);
    let kernel = (!has).then(|| format!("the kernel has no {word}"));
    kernel
        .or_else(|| program(system, &format!("mkfs.{word}")))
        .or_else(|| program(system, "mount"))
        .or_else(|| program(system, "umount"))
}
