//! Udev rules (udev(7)) and a tuned profile (tuned.conf(5)).

use std::fmt::Write;

use ::layout::LayoutSpec;
use ::layout::spec::LayoutKind;

use super::parts::{Drive, comment, head, queue};
use super::tuning::Tuning;

/// Rules that set the queues of these drives whenever they appear. Drives are known by serial number where udev can
/// match one: names change from boot to boot.
pub fn udev(tuning: &Tuning, spec: &LayoutSpec, drives: &[Drive]) -> String {
    let mut text = head(tuning, "Queue settings, for /etc/udev/rules.d/60-flashwright.rules");
    text +=
        "# Afterwards: udevadm control --reload && udevadm trigger --action=change --subsystem-match=block\n";
    for (name, value) in queue(tuning, spec) {
        text += &format!("\n{}", comment(tuning, &name));
        for drives in matches(drives) {
            let _ = writeln!(
                text,
                "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", {drives}, ATTR{{queue/{name}}}=\"{value}\""
            );
        }
        if name == "read_ahead_kb" && spec.kind == LayoutKind::MdRaid0 {
            // An array is known by its geometry: its name is given later in the chain of rules.
            let chunk = spec.chunk_bytes().unwrap_or_default();
            let _ = writeln!(
                text,
                "# The array reads ahead for itself.\n\
                 ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"md*\", ATTR{{md/level}}==\"raid0\", \
                 ATTR{{md/raid_disks}}==\"{}\", ATTR{{md/chunk_size}}==\"{chunk}\", ATTR{{queue/read_ahead_kb}}=\"{value}\"",
                spec.width()
            );
        }
    }
    if let Some(cpus) = &spec.irq_cpus {
        let _ = write!(
            text,
            "\n{}# No rule can set irq_cpus={cpus}; `flashwright tune apply` does.\n",
            comment(tuning, "irq_cpus")
        );
    }
    text
}

/// How a rule finds the drives: those with serial numbers in one match, the others in another.
fn matches(drives: &[Drive]) -> Vec<String> {
    let serials: Vec<&str> = drives.iter().filter_map(|d| d.serial.as_deref()).collect();
    let names: Vec<&str> = drives.iter().filter(|d| d.serial.is_none()).map(|d| d.name.as_str()).collect();
    let mut matches = Vec::new();
    if !serials.is_empty() {
        matches.push(format!("ATTRS{{serial}}==\"{}\"", serials.join("|")));
    }
    if !names.is_empty() {
        matches.push(format!("KERNEL==\"{}\"", names.join("|")));
    }
    matches
}

/// A profile for tuned: its disk plugin knows the elevator and read-ahead, sysfs the rest.
pub fn tuned(tuning: &Tuning, spec: &LayoutSpec, drives: &[Drive]) -> String {
    let mut text = head(tuning, "A tuned profile, for /etc/tuned/flashwright/tuned.conf");
    text += "# Afterwards: tuned-adm profile flashwright\n\n[main]\nsummary=The settings of flashwright's sweep\n";
    let names: Vec<&str> = drives.iter().map(|d| d.name.as_str()).collect();
    let all = queue(tuning, spec);
    let (disk, rest): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(name, _)| matches!(name.as_str(), "scheduler" | "read_ahead_kb"));
    if !disk.is_empty() && !names.is_empty() {
        let _ = write!(text, "\n[disk]\ndevices={}\n", names.join(","));
        for (name, value) in disk {
            let key = if name == "scheduler" { "elevator" } else { "readahead" };
            let _ = writeln!(text, "{}{key}={value}", comment(tuning, &name));
        }
    }
    if !rest.is_empty() && !names.is_empty() {
        text += "\n[sysfs]\n";
        for (name, value) in rest {
            text += &comment(tuning, &name);
            for drive in &names {
                let _ = writeln!(text, "/sys/block/{drive}/queue/{name}={value}");
            }
        }
    }
    text
}
