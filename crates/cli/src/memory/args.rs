//! Flags of `flashwright memory`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use storage::pages::PageChoice;

use crate::serve::args::ServeArgs;

/// `flashwright memory`.
#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: MemoryCommand,
}

/// The verbs below `memory`.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Serve memory of this host over NBD, until a signal comes
    Serve(MemoryServeArgs),
}

/// `flashwright memory serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
The memory is there as a whole before the line `ready: …` appears, and zero unless --file fills it. \
SIGTERM or Ctrl-C: no new connections, what clients have sent is served, --file is written, exit code 0.

Examples:
  flashwright memory serve --size 8g
  flashwright memory serve --size 64g --listen 0.0.0.0 --tls-psk keys.psk
  flashwright memory serve --size 64g --listen 10.1.0.7 --insecure \\
      --announce /shared/drive/
  flashwright bench --rw=randread --bs=4k --iodepth=64 \\
      --target 'nbd+unix:///?socket=/run/flashwright/nbd.sock'
  flashwright bench --rw=randread --bs=4k --iodepth=64 \\
      --target 'stripe(chunk=64k):nbd://n1/,nbd://n2/'")]
pub struct MemoryServeArgs {
    /// How much
    #[arg(long, value_name = "SIZE", value_parser = crate::values::positive_size)]
    pub size: u64,
    /// Fill it from this file at the start, if it is there, and write it back durably at the end
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The pages it lies in
    #[arg(long, value_enum, value_name = "KIND", default_value = "auto")]
    pub pages: Pages,
    /// Take it from this NUMA node, and serve it by the CPUs there
    #[arg(long, value_name = "N", value_parser = crate::values::whole::<u32>)]
    pub numa_node: Option<u32>,
    /// Where, and for whom.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The pages that memory lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// Huge pages where they can be had
    Auto,
    /// Huge pages, at least in part, or nothing
    Huge,
    /// Pages of the base size
    Base,
}

impl Pages {
    /// As memory is asked for.
    pub fn choice(self) -> PageChoice {
        match self {
            Self::Auto => PageChoice::Auto,
            Self::Huge => PageChoice::Transparent,
            Self::Base => PageChoice::Base,
        }
    }
}
