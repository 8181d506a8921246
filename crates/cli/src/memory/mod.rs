//! `flashwright memory`: this host's memory, for others to use.

pub mod args;

use ::serve::image::{self, ImageError};
use base::ErrorClass;
use measure::placement::NumberList;
use storage::device::{self, OpenOptions};
use storage::memory::{MemoryPlacement, SharedMemory};
use storage::survey::Host;
use storage::sysfs::Sysfs;
use storage::usage;

use self::args::{MemoryArgs, MemoryCommand, MemoryServeArgs};
use crate::failure::Failure;
use crate::output;
use crate::serve::{self, Subject};

/// Does what is asked.
pub fn memory(args: &MemoryArgs) -> Result<(), Failure> {
    match &args.command {
        MemoryCommand::Serve(args) => serve_memory(args),
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        let failure = match error {
            ImageError::Io { .. } => Self::of(ErrorClass::Failed, &error),
            // The path stands first in these.
            _ => Self::invalid(format!("--file={error}")),
        };
        failure.hint_if(error.hint())
    }
}

fn serve_memory(args: &MemoryServeArgs) -> Result<(), Failure> {
    let checked = serve::check(&args.serve)?;
    if let Some(node) = args.numa_node {
        run_on(node)?;
    }
    let written_back = args.file.as_deref().filter(|_| !args.serve.read_only);
    if let Some(path) = &args.file {
        image::check(path, written_back.is_some())?;
    }
    let placement = MemoryPlacement { pages: args.pages.choice(), node: args.numa_node };
    let device = device::open_memory(args.size, &OpenOptions::writing(), &placement)
        .map_err(|error| Failure::from(bench::problem::Problem::from(error)))?;
    let Some(memory) = device.memory() else {
        return Err(Failure::failed("memory was opened and is none"));
    };
    let loaded_bytes = args.file.as_deref().map(|path| image::load(memory, path)).transpose()?;
    if !args.serve.json {
        output::print(&describe(memory, args, loaded_bytes))?;
    }
    // Clients that reconnect hold it against what they knew: another incarnation has other contents.
    let begun = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let description =
        format!("{} of memory, incarnation {:x}-{:x}", units::bytes(args.size), begun, std::process::id());
    let subject = Subject { device: device.clone(), description, loaded_bytes };
    let connections = serve::serve(&args.serve, checked, &subject)?;
    let said = |words: &str| output::tell(&format!("{words}\n"));
    if let Some(path) = written_back {
        image::write_back(memory, path)?;
        said(&format!("wrote {} back to {}", units::bytes(args.size), path.display()));
    }
    if !args.serve.json {
        said(&serve::summary(connections));
    }
    Ok(())
}

/// What there is to be served, said before it is.
fn describe(memory: &SharedMemory, args: &MemoryServeArgs, loaded: Option<u64>) -> String {
    let huge = match memory.huge_bytes() {
        0 => "in base pages".to_owned(),
        bytes if bytes >= memory.len() => "in huge pages".to_owned(),
        bytes => format!("{} of it in huge pages", units::bytes(bytes)),
    };
    let node = args.numa_node.map_or_else(String::new, |node| format!(" of NUMA node {node}"));
    let loaded = match (&args.file, loaded) {
        (Some(path), Some(0)) => format!(", empty ({} will be made)", path.display()),
        (Some(path), Some(bytes)) => format!(", {} loaded from {}", units::bytes(bytes), path.display()),
        _ => ", zeroed".to_owned(),
    };
    format!("memory: {}{node}, {huge}{loaded}\n", units::bytes(memory.len()))
}

/// Has this thread, and those that it starts, run where the memory is.
fn run_on(node: u32) -> Result<(), Failure> {
    let nodes = Host::read(&Sysfs::host()).numa_nodes;
    let Some(found) = nodes.iter().find(|found| found.node == node) else {
        let there: Vec<String> = nodes.iter().map(|found| found.node.to_string()).collect();
        return Err(Failure::invalid(format!("--numa-node={node}: this machine has no such node"))
            .hint(format!("there are {}", there.join(", "))));
    };
    let Ok(cpus) = found.cpus.parse::<NumberList>() else {
        // A node of memory alone; its CPUs are everybody's.
        return Ok(());
    };
    usage::bind_to_cpus(cpus.numbers())
        .map_err(|error| Failure::failed(format!("cannot run on the CPUs of NUMA node {node}: {error}")))
}
