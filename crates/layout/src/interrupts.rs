//! Interrupts of a drive, and which CPUs take them.
//!
//! A drive's interrupts are those of its PCI function (`/sys/…/msi_irqs`). Most NVMe drivers let the kernel spread and
//! pin them (managed interrupts, kernel `Documentation/core-api/irq/managed_irq.rst`); writing the affinity of
//! such a one fails with EIO, and nothing is to be done about it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use storage::sysfs::Sysfs;

use crate::cpus;

/// The numbers of the interrupts of a drive; none where the driver has none of its own.
pub(crate) fn of_drive(sysfs: &Sysfs, name: &str) -> Vec<u32> {
    let Some(directory) = sysfs.directory(name) else { return Vec::new() };
    let function = directory.ancestors().map(|up| up.join("msi_irqs")).find(|irqs| irqs.is_dir());
    let names = function.and_then(|irqs| std::fs::read_dir(irqs).ok());
    let mut numbers: Vec<u32> = names
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number: &u32| sysfs.at_root(affinity(*number)).exists())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The file that says which CPUs take an interrupt.
pub(crate) fn affinity(number: u32) -> PathBuf {
    Path::new("/proc/irq").join(number.to_string()).join("smp_affinity_list")
}

/// The CPUs that run.
pub(crate) fn online(sysfs: &Sysfs) -> BTreeSet<u32> {
    let text = sysfs.text("/sys/devices/system/cpu/online");
    text.and_then(|text| cpus::parse(&text))
        .filter(|set| !set.is_empty())
        .unwrap_or_else(|| BTreeSet::from([0]))
}

/// What each interrupt is to be set to: the list that was typed for all of them, or for `spread` one CPU after
/// the other.
pub(crate) fn assign(sysfs: &Sysfs, numbers: &[u32], asked: &str) -> Vec<(PathBuf, String)> {
    let online: Vec<u32> = online(sysfs).into_iter().collect();
    numbers
        .iter()
        .enumerate()
        .map(|(index, number)| {
            let cpus = match asked {
                "spread" => online[index % online.len()].to_string(),
                list => list.to_owned(),
            };
            (affinity(*number), cpus)
        })
        .collect()
}

/// Whether two lists are the same CPUs.
pub(crate) fn same(one: &str, other: &str) -> bool {
    cpus::parse(one).is_some_and(|set| Some(set) == cpus::parse(other))
}

/// Whether a write was refused because the interrupt is managed.
pub(crate) fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EPERM))
}
