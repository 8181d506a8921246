//! What devices stand on the ladder: those that were named, or all drives of the machine.
//!
//! In a directory a file is laid, which is this program's own and so is written as well. What somebody else made is only
//! read, unless it is named in `--destroy`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::ErrorClass;
use bench::ladder::DeviceLevel;
use bench::problem::Problem;
use bench::scratch::{Scratch, ScratchSize};
use bench::target::{BenchTarget, TargetOptions};
use measure::ladder::{Absent, Kind};
use storage::device::DeviceSpec;
use storage::survey::{Survey, SurveyedTarget};
use storage::sysfs::BlockDevice;

use super::LadderArgs;
use crate::failure::Failure;
use crate::output;
use crate::probe::args::ProbeArgs;
use crate::sweep::{targets, watch};

/// Transports of what is no drive but made of memory, files or other devices.
const NO_DRIVES: [&str; 8] = ["loop", "zram", "ram", "md", "dm", "nbd", "null", "ublk"];

/// The devices, opened once each.
pub struct Rungs {
    /// Those that can be measured.
    pub devices: Vec<DeviceLevel>,
    /// Those that nobody named and that cannot.
    pub absent: Vec<Absent>,
}

/// Finds and opens them.
pub fn find(args: &ProbeArgs, stop: &Arc<AtomicBool>) -> Result<Rungs, Failure> {
    let survey = super::super::survey(&args.paths)?;
    let flags = &args.ladder;
    check_destroy(args)?;
    let mut rungs = Rungs { devices: Vec::new(), absent: Vec::new() };
    if args.paths.is_empty() {
        all_drives(&survey, stop, &mut rungs);
    }
    for (path, target) in args.paths.iter().zip(&survey.targets) {
        rungs.devices.push(named(path, target, flags, stop)?);
    }
    for spec in &flags.remote {
        rungs.devices.push(remote(spec, flags, stop)?);
    }
    if flags.remote.is_empty() {
        let why = "name it with --remote=SPEC, for instance nbd://HOST";
        rungs.absent.push(Absent { what: "memory of another host".into(), why: why.into() });
    }
    let mut names = BTreeSet::new();
    match rungs.devices.iter().find(|device| !names.insert(&device.name)) {
        Some(twice) => Err(Failure::invalid(format!("{} is named twice", twice.name)).hint("name it once")),
        None => Ok(rungs),
    }
}

/// A device that may be destroyed and is not measured is a slip of the keyboard, and a dangerous one.
fn check_destroy(args: &ProbeArgs) -> Result<(), Failure> {
    let measured = |path: &Path| {
        args.paths.iter().any(|named| named == path)
            || args.ladder.remote.iter().any(|spec| Path::new(spec) == path)
    };
    match args.ladder.destroy.iter().find(|path| !measured(path)) {
        Some(path) => Err(Failure::invalid(format!("--destroy={}: is not measured", path.display()))
            .hint("spell it as in the list of paths, or in --remote")),
        None => Ok(()),
    }
}

fn options(flags: &LadderArgs, stop: &Arc<AtomicBool>) -> TargetOptions {
    TargetOptions { destroy: flags.destroy.clone(), stop: Some(Arc::clone(stop)), ..TargetOptions::default() }
}

/// Every drive of the machine, read.
fn all_drives(survey: &Survey, stop: &Arc<AtomicBool>, rungs: &mut Rungs) {
    let drives = survey.drives.iter().filter(|d| {
        d.disk.is_none()
            && d.slaves.is_empty()
            && !d.name.starts_with("sr")
            && !NO_DRIVES.contains(&d.transport.as_str())
    });
    for drive in drives {
        let options = TargetOptions { stop: Some(Arc::clone(stop)), ..TargetOptions::default() };
        let tried = BenchTarget::new(&drive.dev_path(), options).and_then(|target| {
            let mut level = DeviceLevel {
                name: drive.name.clone(),
                kind: kind(&[drive]),
                about: about(drive),
                capacity_bytes: Some(drive.size_bytes),
                target,
                direct: true,
                writes: false,
                notes: vec!["read only: a directory on it is measured with writes as well".to_owned()],
            };
            level.try_out().map(|()| level)
        });
        match tried {
            Ok(level) => rungs.devices.push(level),
            Err(problem) => {
                let why = base::with_causes(&problem);
                rungs.absent.push(Absent { what: drive.name.clone(), why });
            }
        }
    }
}

/// A path that was named.
fn named(
    path: &Path,
    facts: &SurveyedTarget,
    flags: &LadderArgs,
    stop: &Arc<AtomicBool>,
) -> Result<DeviceLevel, Failure> {
    let name = path.display().to_string();
    let below: Vec<&BlockDevice> = facts.backing.drives().collect();
    let on = below.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
    let filesystem = facts.backing.filesystem.clone();
    let on_filesystem = match (filesystem, on.is_empty()) {
        (Some(filesystem), true) => filesystem,
        (Some(filesystem), false) => format!("{filesystem} on {on}"),
        (None, _) => on.clone(),
    };
    let mut level = match facts.kind.as_str() {
        "directory" => {
            let (target, direct, capacity, laid) = lay(path, flags, stop)?;
            // `.` says nothing to whoever reads the page elsewhere.
            let whole = std::fs::canonicalize(path).map(|path| path.display().to_string());
            DeviceLevel {
                name: whole.unwrap_or(name),
                kind: kind(&below),
                about: on_filesystem,
                capacity_bytes: facts.capacity_bytes.or(Some(capacity)),
                target,
                direct,
                writes: true,
                notes: laid,
            }
        }
        "file" | "block" => {
            let spec = DeviceSpec::Path(path.to_owned()).to_string();
            let drive = facts.backing.block_devices.first().filter(|_| facts.kind == "block");
            let writes = flags.destroy.iter().any(|given| given == path);
            let read_only = "read only: its contents would be lost (--destroy says that they may be)";
            DeviceLevel {
                name,
                kind: kind(&below),
                about: drive.map_or(on_filesystem, about),
                capacity_bytes: drive.map(|d| d.size_bytes).or(facts.size_bytes),
                target: BenchTarget::new(&spec, options(flags, stop))?,
                direct: facts.direct.is_none_or(|direct| direct.supported),
                writes,
                notes: if writes { Vec::new() } else { vec![read_only.to_owned()] },
            }
        }
        other => {
            return Err(Failure::invalid(format!("{name}: is no level of storage ({other})"))
                .hint("name a directory, a file or a block device"));
        }
    };
    if !level.direct {
        level.notes.push("no direct I/O there: through the page cache".to_owned());
    }
    level.try_out().map_err(|problem| unopened(problem, &level.name))?;
    Ok(level)
}

/// A file of this program's own in a directory: the target, whether it is direct, its size, and what is to be said.
fn lay(
    folder: &Path,
    flags: &LadderArgs,
    stop: &Arc<AtomicBool>,
) -> Result<(BenchTarget, bool, u64, Vec<String>), Failure> {
    let size =
        flags.size.map_or(ScratchSize::Auto, |size| ScratchSize::Bytes(size.next_multiple_of(1 << 20)));
    let bar = watch::laying(folder, 0, output::is_watched());
    let told = |done: u64, of: u64| {
        bar.set_length(of);
        bar.set_position(done);
    };
    let laid = Scratch::lay(folder, size, stop, &told);
    bar.finish_and_clear();
    let scratch = laid.map_err(targets::failure)?;
    let bytes = scratch.file().size();
    let note = format!("a file of {} ({}), laid for this", units::bytes(bytes), scratch.reason());
    let target = BenchTarget::scratch(Arc::clone(scratch.file()), options(flags, stop));
    Ok((target, scratch.is_direct(), bytes, vec![note]))
}

/// Memory of another host, or whatever else a spec names.
fn remote(spec: &str, flags: &LadderArgs, stop: &Arc<AtomicBool>) -> Result<DeviceLevel, Failure> {
    let parsed = DeviceSpec::parse(spec).map_err(|error| {
        Failure::of(ErrorClass::Invalid, &error).about(format!("--remote={spec}")).hint(error.hint())
    })?;
    let own = parsed.leaves().iter().all(|leaf| matches!(leaf, DeviceSpec::Memory { .. }));
    let writes = own || flags.destroy.iter().any(|given| given == Path::new(spec));
    let read_only = "read only: its contents are somebody's (--destroy says that they may be lost)";
    let mut level = DeviceLevel {
        name: spec.to_owned(),
        kind: Kind::RemoteMemory,
        about: if own { "memory of this process".to_owned() } else { String::new() },
        capacity_bytes: None,
        target: BenchTarget::new(spec, options(flags, stop))?,
        direct: true,
        writes,
        notes: if writes { Vec::new() } else { vec![read_only.to_owned()] },
    };
    level.try_out().map_err(|problem| unopened(problem, &format!("--remote={spec}")))?;
    Ok(level)
}

/// A device that cannot be opened; what there is to read was not written may be written first.
fn unopened(problem: Problem, name: &str) -> Failure {
    let refused = problem.class() == ErrorClass::Refused;
    let message = base::with_causes(&problem);
    let failure = Failure::from(problem);
    // The error names its device already, as a rule.
    if refused || message.contains(name) { failure } else { failure.about(name) }
}

fn kind(drives: &[&BlockDevice]) -> Kind {
    let turns = |d: &&BlockDevice| d.queue.as_ref().and_then(|q| q.rotational) == Some(true);
    let real: Vec<&BlockDevice> = drives.iter().copied().filter(|d| !d.is_virtual).collect();
    if real.is_empty() || real.len() < drives.len() {
        return Kind::Virtual;
    }
    if real.iter().any(turns) { Kind::Disk } else { Kind::Flash }
}

fn about(drive: &BlockDevice) -> String {
    let model = [&drive.vendor, &drive.model].into_iter().flatten().map(|part| part.trim());
    let words = std::iter::once(drive.transport.as_str()).chain(model);
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
