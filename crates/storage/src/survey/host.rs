//! The machine: kernel, processors, memory, and whether it is one.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sysfs::{Sysfs, count_list, entries};

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    /// `x86_64`, `aarch64`, ….
    pub architecture: String,
    /// The distribution, as it names itself.
    pub distribution: Option<String>,
    /// Model of the processors.
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: u32,
    /// NUMA nodes, in order.
    pub numa_nodes: Vec<NumaNode>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Memory that can be had without swapping, bytes.
    pub memory_available_bytes: Option<u64>,
    /// The frequency governors in force, each once; empty where the kernel does not set frequencies.
    pub governors: Vec<String>,
    /// What the kernel reads the time from: `tsc`, `kvm-clock`, ….
    pub clock_source: Option<String>,
    /// When memory gets huge pages unasked: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// The hypervisor, where one is seen (`kvm`, `vmware`, …; `unknown`); none on bare metal.
    pub virtualization: Option<String>,
    /// The container runtime, where one is seen.
    pub container: Option<String>,
}

/// One NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its CPUs, as the kernel lists them: `0-15,32-47`.
    pub cpus: String,
    /// Its memory, bytes.
    pub memory_bytes: u64,
}

impl Host {
    /// Reads what the files below `system` tell.
    #[must_use]
    pub fn read(system: &Sysfs) -> Self {
        let meminfo = system.raw("/proc/meminfo").unwrap_or_default();
        let cpuinfo = system.raw("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: system.text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            architecture: std::env::consts::ARCH.to_owned(),
            distribution: distribution(system),
            cpu_model: cpu_model(system, &cpuinfo),
            cpus: cpus_online(system, &cpuinfo),
            numa_nodes: numa_nodes(system),
            memory_bytes: kilobytes(&meminfo, "MemTotal:").unwrap_or(0),
            memory_available_bytes: kilobytes(&meminfo, "MemAvailable:"),
            governors: governors(system),
            clock_source: system.text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            huge_pages: system.text("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| {
                let (_, rest) = text.split_once('[')?;
                Some(rest.split_once(']')?.0.to_owned())
            }),
            virtualization: virtualization(system, &cpuinfo),
            container: container(system),
        }
    }
}

/// The bytes of a line such as `MemTotal:  16384 kB`.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(key))?;
    let (_, value) = line.split_once(key)?;
    value.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `PRETTY_NAME` of os-release(5).
fn distribution(system: &Sysfs) -> Option<String> {
    let text = system.raw("/etc/os-release").or_else(|| system.raw("/usr/lib/os-release"))?;
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim().trim_matches(['"', '\'']).to_owned())
}

/// The model from cpuinfo; machines with a device tree name themselves there.
fn cpu_model(system: &Sysfs, cpuinfo: &str) -> Option<String> {
    field(cpuinfo, &["model name", "cpu model", "cpu"])
        .or_else(|| system.text("/sys/firmware/devicetree/base/model"))
}

/// The value of the first of several keys in cpuinfo.
fn field(cpuinfo: &str, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == *key && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    })
}

fn cpus_online(system: &Sysfs, cpuinfo: &str) -> u32 {
    let listed = system.text("/sys/devices/system/cpu/online").map(|list| count_list(&list));
    let counted = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    listed.filter(|n| *n > 0).unwrap_or(u32::try_from(counted).unwrap_or(u32::MAX))
}

fn numa_nodes(system: &Sysfs) -> Vec<NumaNode> {
    let root = "/sys/devices/system/node";
    let names = entries(&system.at_root(root));
    names
        .iter()
        .filter_map(|name| {
            let node = name.strip_prefix("node")?.parse().ok()?;
            let meminfo = system.raw(format!("{root}/{name}/meminfo")).unwrap_or_default();
            Some(NumaNode {
                node,
                cpus: system.text(format!("{root}/{name}/cpulist")).unwrap_or_default(),
                memory_bytes: kilobytes(&meminfo, "MemTotal:").unwrap_or(0),
            })
        })
        .collect()
}

/// The frequency governors in force, each once; empty where the kernel does not set frequencies.
#[must_use]
pub fn governors(system: &Sysfs) -> Vec<String> {
    let root = "/sys/devices/system/cpu/cpufreq";
    let mut all: Vec<String> = entries(&system.at_root(root))
        .iter()
        .filter_map(|policy| system.text(format!("{root}/{policy}/scaling_governor")))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Who makes this machine, if another does. The processor's own word (CPUID) comes first, then what the
/// firmware says of the product.
fn virtualization(system: &Sysfs, cpuinfo: &str) -> Option<String> {
    if let Some(kind) = system.text("/sys/hypervisor/type") {
        return Some(kind);
    }
    let flags = field(cpuinfo, &["flags", "Features"]).unwrap_or_default();
    let has_hypervisor = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let by_firmware = || {
        let product = ["sys_vendor", "product_name", "bios_vendor", "board_vendor"]
            .map(|file| system.text(format!("/sys/class/dmi/id/{file}")).unwrap_or_default());
        named_by_firmware(&product.join(" "))
    };
    if !has_hypervisor {
        // Arm has no such flag; there the firmware's word, or a paravirtual device tree node, is all there is.
        let is_guest = !cfg!(any(target_arch = "x86_64", target_arch = "x86"));
        let by_tree = || {
            let node = system.text("/proc/device-tree/hypervisor/compatible")?;
            Some(node.replace("linux,", ""))
        };
        return is_guest.then(|| by_tree().or_else(by_firmware)).flatten();
    }
    let by_processor = || system.is_host().then(named_by_processor).flatten();
    Some(by_processor().or_else(by_firmware).unwrap_or_else(|| "unknown".to_owned()))
}

/// The twelve letters in CPUID leaf 0x40000000, which hypervisors reserve for their names.
#[cfg(target_arch = "x86_64")]
fn named_by_processor() -> Option<String> {
    #[allow(unused_unsafe)] // safe from Rust 1.94 on
    // SAFETY: every x86-64 processor has CPUID, and it only sets the four registers returned here.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0x4000_0000) };
    let letters: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx].into_iter().flat_map(u32::to_le_bytes).collect();
    named_by_letters(&letters)
}

#[cfg(not(target_arch = "x86_64"))]
fn named_by_processor() -> Option<String> {
    None
}

/// The hypervisors' names for themselves (kernel, arch/x86/kernel/cpu, each hypervisor's own file).
#[cfg(any(test, target_arch = "x86_64"))]
fn named_by_letters(letters: &[u8]) -> Option<String> {
    let known: [(&[u8], &str); 9] = [
        (b"KVMKVMKVM", "kvm"),
        (b"VMwareVMware", "vmware"),
        (b"Microsoft Hv", "hyperv"),
        (b"XenVMMXenVMM", "xen"),
        (b"VBoxVBoxVBox", "virtualbox"),
        (b"TCGTCGTCGTCG", "qemu"),
        (b"bhyve bhyve", "bhyve"),
        (b"ACRNACRNACRN", "acrn"),
        (b" prl hyperv", "parallels"),
    ];
    known.iter().find(|(name, _)| letters.starts_with(name)).map(|(_, word)| (*word).to_owned())
}

fn named_by_firmware(product: &str) -> Option<String> {
    let known = [
        ("KVM", "kvm"),
        ("QEMU", "qemu"),
        ("VMware", "vmware"),
        ("VirtualBox", "virtualbox"),
        ("innotek", "virtualbox"),
        ("Virtual Machine", "hyperv"),
        ("Xen", "xen"),
        ("Amazon EC2", "amazon"),
        ("Google", "google"),
        ("Bochs", "bochs"),
        ("Parallels", "parallels"),
        ("BHYVE", "bhyve"),
        ("OpenStack", "openstack"),
    ];
    known.iter().find(|(part, _)| product.contains(part)).map(|(_, word)| (*word).to_owned())
}

/// The container that this process runs in, by the marks that runtimes leave.
fn container(system: &Sysfs) -> Option<String> {
    if let Some(name) = system.text("/run/systemd/container") {
        return Some(name);
    }
    for (mark, name) in [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")] {
        if system.at_root(mark).exists() {
            return Some(name.to_owned());
        }
    }
    let environment = system.raw("/proc/1/environ").unwrap_or_default();
    let said = environment.split('\0').find_map(|variable| variable.strip_prefix("container="));
    if let Some(name) = said.filter(|name| !name.is_empty()) {
        return Some(name.to_owned());
    }
    let groups = system.raw("/proc/1/cgroup").unwrap_or_default();
    let known = [
        ("kubepods", "kubernetes"),
        ("docker", "docker"),
        ("libpod", "podman"),
        ("lxc", "lxc"),
        ("containerd", "containerd"),
        ("garden", "garden"),
    ];
    let in_group = |part: &str| {
        groups.lines().any(|line| {
            let path = Path::new(line.rsplit(':').next().unwrap_or(""));
            path.components().any(|c| c.as_os_str().to_string_lossy().starts_with(part))
        })
    };
    known.iter().find(|(part, _)| in_group(part)).map(|(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Tree;
    use proptest::prelude::*;

    #[test]
    fn a_host_is_read_from_its_files() {
        let tree = Tree::new();
        tree.file("/proc/sys/kernel/osrelease", "6.1.0-test\n");
        tree.file("/etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 9\"\n");
        tree.file("/proc/meminfo", "MemTotal:  1000 kB\nMemAvailable: 500 kB\n");
        tree.file("/proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU @ 3 GHz\nflags : fpu sse\n");
        tree.file("/sys/devices/system/cpu/online", "0-3,8\n");
        for (node, cpus) in [(0, "0-1"), (1, "2-3,8")] {
            let at = format!("/sys/devices/system/node/node{node}");
            tree.file(&format!("{at}/cpulist"), cpus);
            tree.file(&format!("{at}/meminfo"), &format!("Node {node} MemTotal:   500 kB\n"));
        }
        tree.file("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n");
        tree.file("/sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n");
        tree.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        let host = Host::read(&tree.sysfs());
        assert_eq!(host.kernel, "6.1.0-test");
        assert_eq!(host.distribution.as_deref(), Some("Some Linux 9"));
        assert_eq!(host.cpu_model.as_deref(), Some("Some CPU @ 3 GHz"));
        assert_eq!((host.cpus, host.memory_bytes), (5, 1_024_000));
        assert_eq!(host.numa_nodes[1].cpus, "2-3,8");
        assert_eq!(host.numa_nodes[1].memory_bytes, 512_000);
        assert_eq!(host.governors, ["powersave"]);
        assert_eq!(host.huge_pages.as_deref(), Some("madvise"));
        assert_eq!((host.virtualization, host.container), (None, None));
    }

    #[test]
    fn hypervisors_are_told_by_letters_and_by_firmware() {
        assert_eq!(named_by_letters(b"KVMKVMKVM\0\0\0").as_deref(), Some("kvm"));
        assert_eq!(named_by_letters(b"Microsoft Hv").as_deref(), Some("hyperv"));
        assert_eq!(named_by_letters(b"GenuineIntel"), None);
        assert_eq!(named_by_firmware("Amazon EC2 m5.large").as_deref(), Some("amazon"));
        let tree = Tree::new();
        if cfg!(target_arch = "x86_64") {
            tree.file("/sys/class/dmi/id/sys_vendor", "VMware, Inc.\n");
            assert_eq!(virtualization(&tree.sysfs(), "flags : fpu\n"), None);
            let found = virtualization(&tree.sysfs(), "flags : fpu hypervisor sse\n");
            assert_eq!(found.as_deref(), Some("vmware"));
        }
        tree.file("/sys/hypervisor/type", "xen\n");
        assert_eq!(virtualization(&tree.sysfs(), "").as_deref(), Some("xen"));
    }

    #[test]
    fn containers_are_told_by_the_marks_they_leave() {
        let by = |path: &str, text: &str| {
            let tree = Tree::new();
            tree.file(path, text);
            container(&tree.sysfs())
        };
        assert_eq!(by("/.dockerenv", "").as_deref(), Some("docker"));
        assert_eq!(by("/proc/1/environ", "A=b\0container=lxc\0").as_deref(), Some("lxc"));
        assert_eq!(by("/proc/1/cgroup", "0::/kubepods.slice/x\n").as_deref(), Some("kubernetes"));
        assert_eq!(by("/proc/1/cgroup", "12:pids:/docker/abc\n").as_deref(), Some("docker"));
        assert_eq!(by("/proc/1/cgroup", "0::/init.scope\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "[0-9,-]{0,30}|.{0,80}") {
            let _ = count_list(&text);
            let _ = kilobytes(&text, "MemTotal:");
            let _ = field(&text, &["flags"]);
        }
    }
}
