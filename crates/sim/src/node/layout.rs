//! How the drives are made into targets.

use base::{Filesystem, LayoutKind};

use crate::error::InvalidMachine;
use crate::machine::{Machine, Scheduler};

/// What is built of a machine's block devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// `single`, `separate`, `stripe` or `md-raid0`.
    pub kind: LayoutKind,
    /// Block devices by index, in the order of the stripe.
    pub devices: Vec<u32>,
    /// Bytes that one holds before the next one's turn comes.
    pub chunk_bytes: u64,
    /// What stands on it.
    pub filesystem: Option<Filesystem>,
    /// The I/O scheduler, by the name that the machine gives it.
    pub scheduler: Option<String>,
    /// Largest request to a device, bytes, where it is not what the machine says (`max_sectors_kb`).
    pub request_bytes: Option<u32>,
}

impl Layout {
    /// All block devices of a machine: one as it is, several under md with the chunk that it takes by itself.
    #[must_use]
    pub fn all(machine: &Machine) -> Self {
        let devices: Vec<u32> = (0..machine.host_devices()).collect();
        let kind = match devices.len() {
            1 => LayoutKind::Single,
            _ if machine.host.md_us.is_some() => LayoutKind::MdRaid0,
            _ => LayoutKind::Stripe,
        };
        Self {
            kind,
            devices,
            chunk_bytes: kind.default_chunk(),
            filesystem: None,
            scheduler: None,
            request_bytes: None,
        }
    }

    /// Whether requests are divided among devices without an address space over them.
    #[must_use]
    pub fn is_separate(&self) -> bool {
        self.kind == LayoutKind::Separate
    }

    /// Members of an md array; 0 without one.
    #[must_use]
    pub fn md_members(&self) -> u32 {
        if self.kind == LayoutKind::MdRaid0 { self.devices.len() as u32 } else { 0 }
    }

    /// Checks that the machine can have it.
    ///
    /// # Errors
    /// [`InvalidMachine`], whose key is the layout's setting at fault.
    pub fn check(&self, machine: &Machine) -> Result<(), InvalidMachine> {
        let bad = |key: &str, value: &str, reason: String, hint: String| {
            Err(InvalidMachine::new(key, value, reason, hint))
        };
        let modelled = [LayoutKind::Single, LayoutKind::Separate, LayoutKind::Stripe, LayoutKind::MdRaid0];
        if !modelled.contains(&self.kind) {
            let words = modelled.map(LayoutKind::word).join(", ");
            return bad("layout", self.kind.word(), "is not simulated".into(), format!("there are {words}"));
        }
        if self.kind == LayoutKind::MdRaid0 && machine.host.md_us.is_none() {
            let hint = "give host.md_us, the time that md adds to a request, or take layout=stripe";
            return bad("layout", "md-raid0", format!("{} says nothing of md", machine.name), hint.into());
        }
        let there = machine.host_devices();
        if self.devices.is_empty() || self.devices.iter().any(|device| *device >= there) {
            let reason = format!("{} has {there} block devices", machine.name);
            return bad("drives", &self.devices.len().to_string(), reason, "name fewer drives".into());
        }
        if let Some(filesystem) =
            self.filesystem.filter(|fs| !machine.host.filesystems.contains_key(fs.word()))
        {
            let known: Vec<&str> = machine.host.filesystems.keys().map(String::as_str).collect();
            let hint =
                format!("it has raw{}", known.iter().map(|name| format!(", {name}")).collect::<String>());
            return bad(
                "filesystem",
                filesystem.word(),
                format!("{} says nothing of it", machine.name),
                hint,
            );
        }
        match &self.scheduler {
            Some(name) if !machine.host.schedulers.contains_key(name) => {
                let known: Vec<&str> = machine.host.schedulers.keys().map(String::as_str).collect();
                bad(
                    "scheduler",
                    name,
                    format!("{} has none of that name", machine.name),
                    format!("it has {}", known.join(", ")),
                )
            }
            _ => Ok(()),
        }
    }

    /// The scheduler: that of its name, or the machine's default.
    #[must_use]
    pub(crate) fn scheduler_of<'m>(&self, machine: &'m Machine) -> Option<&'m Scheduler> {
        let all = &machine.host.schedulers;
        let named = self.scheduler.as_ref().and_then(|name| all.get(name));
        named.or_else(|| all.get("none")).or_else(|| all.values().next())
    }
}
