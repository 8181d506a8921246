//! Machines and their layouts, from what a user types or a space says.

use std::path::Path;

use ::sim::{InvalidMachine, Layout, Machine, MachineError};
use base::ErrorClass;
use layout::LayoutError;
use layout::spec::LayoutSpec;
use measure::TargetError;
use measure::workload::InvalidWorkload;

use crate::failure::Failure;

/// Reads a machine file, or takes the machine of that name that the program brings.
pub fn load(path: &Path) -> Result<Machine, Failure> {
    Machine::load(path).map_err(|error| {
        let failure = Failure::of(ErrorClass::Invalid, &error);
        match &error {
            MachineError::Read { .. } => {
                let names = ::sim::machine::brought::MACHINES.iter().map(|(name, _)| *name);
                let near = path.to_str().and_then(|typed| base::nearest(typed, names.clone()));
                failure.hint(match near {
                    Some(near) => format!("did you mean {near}?"),
                    None => {
                        format!("name a machine file, or one of {}", names.collect::<Vec<_>>().join(", "))
                    }
                })
            }
            MachineError::Syntax { .. } => failure.hint("docs/verbs/sim.md lists the keys of machine files"),
            MachineError::Invalid { error, .. } => failure.hint(error.hint.clone()),
        }
    })
}

/// A layout that the machine cannot have; `what` is the flag or key in front.
pub fn invalid(error: &InvalidMachine, what: &str) -> Failure {
    let prefix = if error.key == what { String::new() } else { format!("{what}: ") };
    Failure::invalid(format!("{prefix}{error}")).hint(error.hint.clone())
}

/// A run that was refused or failed.
pub fn run_failed(error: TargetError) -> Failure {
    if let TargetError::Invalid(source) = &error
        && let Some(invalid) = source.downcast_ref::<InvalidWorkload>()
    {
        return Failure::from(invalid.clone());
    }
    match error {
        TargetError::Interrupted => Failure::interrupted("interrupted before anything was measured"),
        error => Failure::of(error.class(), &error),
    }
}

/// What queue settings do in the model: nothing without a page cache, or what they say.
const MODELLED: [&str; 3] = ["scheduler", "read_ahead_kb", "max_sectors_kb"];

/// A layout as it is typed, without drives: `md-raid0(chunk=64k,width=8)`.
pub fn layout(machine: &Machine, text: &str) -> Result<Layout, Failure> {
    let (kind, inner) = text.split_once('(').unwrap_or((text, ""));
    let inner = inner.strip_suffix(')').unwrap_or(inner);
    let (widths, rest): (Vec<&str>, Vec<&str>) =
        inner.split(',').filter(|part| !part.is_empty()).partition(|part| part.starts_with("width="));
    let there = machine.host_devices();
    let width = match widths.as_slice() {
        [] => {
            if kind == "single" {
                1
            } else {
                there
            }
        }
        [one] => one["width=".len()..].parse::<u32>().ok().filter(|n| (1..=there).contains(n)).ok_or_else(
            || {
                Failure::invalid(format!(
                    "--layout={text}: {one}: {} has {there} block devices",
                    machine.name
                ))
                .hint(format!("width={there}"))
            },
        )?,
        _ => {
            return Err(Failure::invalid(format!("--layout={text}: width is said twice")).hint("say it once"));
        }
    };
    let drives: Vec<String> = (0..width).map(|n| format!("/drive{n}")).collect();
    let spec = LayoutSpec::parse(&format!("{kind}({}):{}", rest.join(","), drives.join(",")));
    of_spec(machine, &spec.map_err(LayoutError::from)?)
}

/// A layout of drives, built in the model: its drives are the machine's first.
pub fn of_spec(machine: &Machine, spec: &LayoutSpec) -> Result<Layout, Failure> {
    let unknown = spec.queue.iter().find(|(name, _)| !MODELLED.contains(&name.as_str()));
    let irqs = spec.irq_cpus.as_ref().map(|cpus| ("irq_cpus", cpus.as_str()));
    if let Some((name, value)) = unknown.map(|(name, value)| (name.as_str(), value.as_str())).or(irqs) {
        return Err(Failure::invalid(format!("{name}={value}: is not simulated"))
            .hint(format!("the model has {}; leave {name} out", MODELLED.join(", "))));
    }
    let layout = Layout {
        kind: spec.kind,
        devices: (0..spec.width() as u32).collect(),
        chunk_bytes: spec.chunk_bytes().unwrap_or(0),
        filesystem: spec.mounted_filesystem(),
        scheduler: spec.queue.get("scheduler").cloned(),
        request_bytes: spec
            .queue
            .get("max_sectors_kb")
            .and_then(|kb| kb.parse::<u32>().ok())
            .map(|kb| kb << 10),
    };
    layout.check(machine).map_err(|error| invalid(&error, "layout"))?;
    Ok(layout)
}
