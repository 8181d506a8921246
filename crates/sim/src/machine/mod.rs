//! A machine as its file describes it, and whether it can be.
//!
//! A machine file is TOML; `docs/verbs/sim.md` lists its keys. A file may name another one as its `base`: its tables are then
//! laid over those of the base, key by key, so that a variant states its differences and all constants stand in one place.
//! Unknown keys are errors. [`Machine`] is the checked form, which the rest of the crate may rely on.

pub mod brought;
mod drive;
mod host;

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

pub use drive::DriveSpec;
pub use host::{Controller, Delivery, FilesystemCosts, Host, Interrupts, Policy, Scheduler, Submission};

use crate::error::{InvalidMachine, MachineError};
use crate::values::{self, Checked};

/// A machine: every value is possible.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is called, in records and reports.
    pub name: String,
    /// The computer.
    pub host: Host,
    /// What stands between host and drives; without it, each drive has a port of its own.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// What each drive is.
    pub drive: DriveSpec,
    /// How many there are.
    pub drives: u32,
    /// Drives that differ.
    #[serde(default)]
    pub exception: Vec<Exception>,
    /// The drives that differ, each with all of its constants, by index.
    #[serde(skip)]
    different: Vec<(u32, DriveSpec)>,
    /// All its keys, those of its bases included.
    #[serde(skip)]
    table: Table,
}

/// Drives that differ from the others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// Which, from 0.
    pub drives: Vec<u32>,
    /// The keys of `drive` that are different.
    pub drive: Table,
}

/// The depth to which machine files may name one another as base.
const MAX_BASES: usize = 8;

/// The shortest request that a machine may have: without a time, virtual time would stand still.
const LEAST_REQUEST_NS: u64 = 10;

/// Channels, programs at once and buffer pages of all drives, at most: 8 bytes of memory each.
const MAX_ITEMS: u64 = 1 << 26;

impl Machine {
    /// Reads a machine file, and those it is based on; or the machine of that name that the program brings, where there is no such
    /// file.
    ///
    /// # Errors
    /// [`MachineError`] naming the file, and the key and value at fault.
    pub fn load(path: &Path) -> Result<Self, MachineError> {
        let file = path.display().to_string();
        if !path.exists() && brought::text(&file).is_some() {
            return Self::brought(&file, &|_, _| {});
        }
        let read = |file: &str| {
            std::fs::read_to_string(file).map_err(|source| MachineError::Read { path: file.into(), source })
        };
        let beside = |file: &str, base: &str| Path::new(file).with_file_name(base).display().to_string();
        let table = tables(&file, 0, &read, &beside, &|_, _| {})?;
        Self::from_table(&file, table)
    }

    /// A machine that the program brings, such as `dash-io-node`. `adjust` may change the keys of each file that it is made of, by
    /// the file's name.
    ///
    /// # Errors
    /// [`MachineError`] naming the key and value at fault.
    pub fn brought(name: &str, adjust: &dyn Fn(&str, &mut Table)) -> Result<Self, MachineError> {
        let read = |name: &str| {
            let missing =
                || MachineError::Read { path: name.into(), source: std::io::ErrorKind::NotFound.into() };
            brought::text(name).map(str::to_owned).ok_or_else(missing)
        };
        let beside = |_: &str, base: &str| base.trim_end_matches(".toml").to_owned();
        Self::from_table(name, tables(name, 0, &read, &beside, adjust)?)
    }

    /// Reads a machine from a text without a base; `file` names it in errors.
    ///
    /// # Errors
    /// [`MachineError`] naming the key and value at fault.
    pub fn parse(file: &str, text: &str) -> Result<Self, MachineError> {
        Self::from_table(file, parse(file, text)?.1)
    }

    /// A machine of keys and values.
    ///
    /// # Errors
    /// [`MachineError`] naming the key and value at fault.
    pub fn from_table(file: &str, table: Table) -> Result<Self, MachineError> {
        let common = table.get("drive").and_then(Value::as_table).cloned().unwrap_or_default();
        let syntax = |error: toml::de::Error| syntax(file, &error);
        let mut machine = Self { table: table.clone(), ..Value::Table(table).try_into().map_err(syntax)? };
        for exception in &machine.exception {
            let mut own = common.clone();
            lay_over(&mut own, exception.drive.clone());
            let spec: DriveSpec = Value::Table(own).try_into().map_err(syntax)?;
            machine.different.extend(exception.drives.iter().map(|index| (*index, spec.clone())));
        }
        machine.check().map_err(|error| MachineError::Invalid { file: file.to_owned(), error })?;
        Ok(machine)
    }

    /// The machine as one file without a base, from which [`Machine::parse`] makes the same machine.
    #[must_use]
    pub fn text(&self) -> String {
        self.table.to_string()
    }

    /// The constants of drive `index`.
    #[must_use]
    pub fn drive_spec(&self, index: u32) -> &DriveSpec {
        self.different.iter().rev().find(|(own, _)| *own == index).map_or(&self.drive, |(_, spec)| spec)
    }

    /// About how much memory a run of it takes, bytes.
    #[must_use]
    pub fn run_bytes(&self) -> u64 {
        (0..self.drives).map(|index| self.drive_spec(index).state_bytes()).sum()
    }

    /// Devices that the host sees: drives, or the arrays of RAID processors.
    #[must_use]
    pub fn host_devices(&self) -> u32 {
        match &self.controller {
            Some(Controller::Raid { drives, .. }) => self.drives / drives,
            _ => self.drives,
        }
    }

    fn check(&self) -> Checked {
        values::within("drives", f64::from(self.drives), 1.0, 4096.0, "a number of drives from 1 to 4096")?;
        self.host.check()?;
        if let Some(controller) = &self.controller {
            controller.check(self.drives)?;
        }
        self.drive.check("drive")?;
        for (index, spec) in &self.different {
            if *index >= self.drives {
                let reason = format!("there are {} drives, numbered from 0", self.drives);
                return Err(InvalidMachine::new(
                    "exception.drives",
                    index,
                    reason,
                    "name drives that there are",
                ));
            }
            spec.check("exception.drive")?;
        }
        self.check_all_drives()
    }

    /// Checks what the drives make together.
    fn check_all_drives(&self) -> Checked {
        let all = || (0..self.drives).map(|index| self.drive_spec(index));
        if all().any(|drive| self.host.least_ns() + drive.least_ns() < LEAST_REQUEST_NS) {
            let reason =
                format!("leaves a request less than {LEAST_REQUEST_NS} ns with the drive's own times");
            let hint = "give the time that the host or the drive takes for a command";
            return Err(InvalidMachine::new("host.path_us", self.host.path_us, reason, hint));
        }
        let least = all().map(DriveSpec::size_bytes).min().unwrap_or(0);
        let least = least.saturating_sub(u64::from(self.host.partition_offset_bytes));
        for (name, costs) in &self.host.filesystems {
            if let Some(log) = costs.log_bytes.filter(|log| log.0 > least) {
                let key = format!("host.filesystems.{name}.log_bytes");
                let reason = format!("does not fit on a drive, which has {least} bytes for it");
                return Err(InvalidMachine::new(key, log.0, reason, "for instance \"4k\""));
            }
        }
        let bytes: u128 = all().map(|drive| u128::from(drive.size_bytes())).sum();
        let items: u64 = all().map(DriveSpec::items).sum();
        let reason = if bytes > 1 << 62 {
            format!("make {bytes} bytes, more than 2^62")
        } else if items > MAX_ITEMS {
            format!("have {items} channels, programs at once and buffer pages, more than {MAX_ITEMS}")
        } else {
            return Ok(());
        };
        Err(InvalidMachine::new("drives", self.drives, reason, "describe fewer or smaller drives"))
    }
}

/// All keys of a machine file, with those of its bases.
fn tables(
    file: &str,
    depth: usize,
    read: &dyn Fn(&str) -> Result<String, MachineError>,
    beside: &dyn Fn(&str, &str) -> String,
    adjust: &dyn Fn(&str, &mut Table),
) -> Result<Table, MachineError> {
    let (base, mut own) = parse(file, &read(file)?)?;
    adjust(file, &mut own);
    let Some(base) = base else { return Ok(own) };
    if depth == MAX_BASES {
        let error =
            InvalidMachine::new("base", base, "is the ninth base in a row", "name fewer, and no circle");
        return Err(MachineError::Invalid { file: file.to_owned(), error });
    }
    let mut below = tables(&beside(file, &base), depth + 1, read, beside, adjust)?;
    lay_over(&mut below, own);
    Ok(below)
}

/// The name of the base and the other keys.
fn parse(file: &str, text: &str) -> Result<(Option<String>, Table), MachineError> {
    let mut table: Table = text.parse().map_err(|error| syntax(file, &error))?;
    let base = match table.remove("base") {
        None => None,
        Some(Value::String(base)) => Some(base),
        Some(other) => {
            let error = InvalidMachine::new("base", other, "is not a file name", "base = \"other.toml\"");
            return Err(MachineError::Invalid { file: file.to_owned(), error });
        }
    };
    Ok((base, table))
}

/// The reader's words in one line, with the place.
fn syntax(file: &str, error: &toml::de::Error) -> MachineError {
    let lines: Vec<&str> = error.message().lines().map(str::trim).collect();
    MachineError::Syntax { file: file.to_owned(), reason: lines.join("; ") }
}

/// Lays the keys of `own` over those of `below`; tables key by key, unless they describe another model of drive or
/// another kind of controller.
fn lay_over(below: &mut Table, own: Table) {
    for (key, value) in own {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => {
                let other_kind = ["model", "kind"]
                    .iter()
                    .any(|tag| over.contains_key(*tag) && over.get(*tag) != under.get(*tag));
                if other_kind {
                    *under = over;
                } else {
                    lay_over(under, over);
                }
            }
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}
