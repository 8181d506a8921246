//! Which CPUs take the drives' interrupts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sysfs::{BlockDevice, Sysfs};

/// One interrupt of a drive's controller, usually of one of its queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interrupt {
    /// The drive: `nvme0n1`.
    pub drive: String,
    /// Number of the interrupt.
    pub irq: u32,
    /// Its name: `nvme0q3`, `virtio1-req.0`.
    pub name: String,
    /// The CPUs that take it, as the kernel lists them.
    pub cpus: Option<String>,
    /// How often it came since boot, on all CPUs.
    pub count: u64,
}

/// The interrupts of all whole drives among `devices`.
pub(super) fn of_drives(system: &Sysfs, devices: &[BlockDevice]) -> Vec<Interrupt> {
    let text = system.raw("/proc/interrupts").unwrap_or_default();
    let rows = rows(&text);
    let drives = devices.iter().filter(|device| device.disk.is_none());
    drives
        .filter_map(|device| Some((device, prefix(system, &device.name)?)))
        .flat_map(|(device, prefix)| {
            let own = rows.iter().filter(move |row| begins(&row.2, &prefix));
            own.map(|(irq, count, name)| Interrupt {
                drive: device.name.clone(),
                irq: *irq,
                name: name.clone(),
                cpus: system
                    .text(format!("/proc/irq/{irq}/effective_affinity_list"))
                    .or_else(|| system.text(format!("/proc/irq/{irq}/smp_affinity_list"))),
                count: *count,
            })
        })
        .collect()
}

/// How the names of a drive's interrupts begin: `nvme0q` for nvme0n1, `virtio1-` for what virtio1 drives.
fn prefix(system: &Sysfs, drive: &str) -> Option<String> {
    if let Some(rest) = drive.strip_prefix("nvme") {
        let controller: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return Some(format!("nvme{controller}q"));
    }
    let directory = system.directory(drive)?;
    let mut parts = directory.components().filter_map(|part| part.as_os_str().to_str());
    let virtio = parts.rfind(|part| part.starts_with("virtio"))?;
    Some(format!("{virtio}-"))
}

/// Whether `name` begins with `prefix`, and goes on with a queue of it.
fn begins(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty())
}

/// The numbered rows of `/proc/interrupts`: number, sum over the CPUs, name.
fn rows(text: &str) -> Vec<(u32, u64, String)> {
    let mut lines = text.lines();
    let cpus = lines.next().unwrap_or("").split_whitespace().count();
    lines
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let irq = number.trim().parse().ok()?;
            let mut words = rest.split_whitespace();
            let counts: Vec<u64> = words.by_ref().take(cpus).map_while(|word| word.parse().ok()).collect();
            let count = counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
            Some((irq, count, words.last()?.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Tree;
    use proptest::prelude::*;

    const TEXT: &str = "           CPU0       CPU1
  9:          0          0   IO-APIC   9-fasteoi   acpi
 24:         11         22  PCI-MSIX-0000:01:00.0   0-edge      nvme1q0
 25:          3          4  PCI-MSIX-0000:01:00.0   1-edge      nvme1q1
 26:          3          4  PCI-MSIX-0000:02:00.0   1-edge      nvme10q1
 30:          7          8  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
NMI:          1          2   Non-maskable interrupts
";

    #[test]
    fn each_drive_gets_the_interrupts_of_its_own_controller() {
        let tree = Tree::new();
        tree.disk("pci/nvme/nvme1", "nvme1n1", "259:0", 1 << 30);
        tree.disk("pci/virtio1/block", "vda", "254:0", 1 << 30);
        tree.disk("virtual/block", "loop0", "7:0", 1 << 30);
        tree.file("/proc/interrupts", TEXT);
        tree.file("/proc/irq/25/effective_affinity_list", "1\n");
        let system = tree.sysfs();
        let found = of_drives(&system, &system.block_devices());
        let names: Vec<_> = found.iter().map(|i| (i.drive.as_str(), i.name.as_str(), i.count)).collect();
        assert_eq!(
            names,
            [("nvme1n1", "nvme1q0", 33), ("nvme1n1", "nvme1q1", 7), ("vda", "virtio1-req.0", 15)]
        );
        assert_eq!(found[1].cpus.as_deref(), Some("1"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(CPU0 CPU1\n)?[0-9: a-z\n]{0,120}|.{0,80}") {
            let _ = rows(&text);
        }
    }
}
