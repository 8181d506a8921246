//! `flashwright volume`: volumes over many devices, made, listed, checked and taken apart.

pub mod args;
mod data;
pub mod export;
mod screen;

use std::path::{Path, PathBuf};

use ::volume::{NewVolume, SumsLayout, VolumeError, survey};
use bench::problem::Problem;
use storage::device::DeviceSpec;

use self::args::{CheckArgs, CreateArgs, DestroyArgs, ShowArgs, VolumeArgs, VolumeCommand};
use crate::failure::Failure;
use crate::output;

/// Does what is asked.
pub fn volume(args: &VolumeArgs) -> Result<(), Failure> {
    match &args.command {
        VolumeCommand::Create(args) => create(args),
        VolumeCommand::Show(args) => show(args),
        VolumeCommand::Check(args) => check(args),
        VolumeCommand::Destroy(args) => destroy(args),
        VolumeCommand::Export(args) => export::export(args),
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

/// The members that were named: `a,b c` and `volume:a,b` are both lists of specs.
fn members(texts: &[String]) -> Result<DeviceSpec, Failure> {
    let mut members = Vec::new();
    for text in texts {
        let list = if text.starts_with("volume:") { text.clone() } else { format!("volume:{text}") };
        let spec = DeviceSpec::parse(&list).map_err(Problem::from)?;
        members.extend(spec.members().iter().cloned());
    }
    Ok(DeviceSpec::Volume { members })
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let spec = members(&args.members)?;
    let chunk = args.chunk;
    if !(512..=1 << 30).contains(&chunk) || !chunk.is_multiple_of(512) {
        let shown = units::bytes_short(chunk);
        return Err(Failure::invalid(format!(
            "--chunk={shown}: is not a multiple of 512 bytes from 512 to 1g"
        ))
        .hint("for instance --chunk=64k"));
    }
    if args.checksums && !chunk.is_multiple_of(4096) {
        let shown = units::bytes_short(chunk);
        return Err(Failure::invalid(format!(
            "--chunk={shown}: is not a multiple of 4096 bytes, which each checksum covers"
        ))
        .hint("use a multiple of 4k, or leave --checksums out"));
    }
    let checksums = args.checksums.then(SumsLayout::default);
    let new = NewVolume { name: args.name.clone(), chunk, checksums };
    ::volume::create(&spec, &new, &args.destroy)?;
    // Told from what is read back, not from what was meant.
    let made = survey::look(&without_sizes(&spec))?;
    if args.json {
        return output::print_document(&made);
    }
    output::print(&screen::volumes(&made))
}

/// The members by the names that they have from now on.
fn without_sizes(spec: &DeviceSpec) -> Vec<DeviceSpec> {
    let plain = |member: &DeviceSpec| match member {
        DeviceSpec::File { path, .. } => DeviceSpec::Path(path.clone()),
        other => other.clone(),
    };
    spec.members().iter().map(plain).collect()
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let found = match args.members.is_empty() {
        true => survey::look_everywhere(),
        false => survey::look(members(&args.members)?.members())?,
    };
    if args.json {
        return output::print_document(&found);
    }
    output::print(&screen::volumes(&found))
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let spec = members(&args.members)?;
    if args.data {
        return data::check(&spec, args.json);
    }
    let mended = if args.repair { ::volume::repair(&spec)? } else { Vec::new() };
    let check = survey::check(spec.members(), &mended)?;
    if args.json {
        output::print_document(&check)?;
    } else {
        output::print(&screen::check(&check))?;
    }
    if check.sound {
        return Ok(());
    }
    let count = problems(check.problems.len());
    let failure = Failure::failed(format!("{count} with the labels of {}", check.volume.uuid));
    Err(if args.repair { failure } else { failure.hint(REPAIR_HINT) })
}

const REPAIR_HINT: &str = "flashwright volume check --repair writes a lost copy again from the other one";

fn problems(count: usize) -> String {
    if count == 1 { "one problem".to_owned() } else { format!("{count} problems") }
}

fn destroy(args: &DestroyArgs) -> Result<(), Failure> {
    let spec = members(&args.members)?;
    for member in spec.members() {
        // What has no path, as an export of NBD, is named by its spec.
        let named = member.path().map_or_else(|| PathBuf::from(member.to_string()), Path::to_owned);
        let is_this = |given: &Path| given == named || same_place(given, &named);
        if !args.destroy.iter().any(|given| is_this(given)) {
            return Err(Failure::refused(format!("{member} is not named in --destroy"))
                .hint(format!("if the volume may be lost add --destroy {}", named.display())));
        }
    }
    let wiped = ::volume::destroy(spec.members(), &args.destroy)?;
    let lines = wiped.iter().map(|member| format!("wiped the label of {member}\n"));
    output::print(&lines.collect::<String>())
}

/// Whether two names lead to the same file or device.
fn same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| std::fs::canonicalize(path).ok();
    place(one).is_some() && place(one) == place(other)
}
