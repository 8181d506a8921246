//! `flashwright volume export`: any device over NBD, for what cannot link the library.

use std::path::PathBuf;

use bench::problem::Problem;
use clap::Args;
use storage::device::{Access, DeviceSpec, OpenOptions};

use crate::failure::Failure;
use crate::serve::args::ServeArgs;
use crate::serve::{self, Subject};
use crate::values;
use crate::{output, paint};

/// `flashwright volume export`.
#[derive(Debug, Args)]
#[command(after_help = "\
What is served is opened as for any other use: nothing that is mounted, held or open elsewhere is written, and \
what bears data only if --destroy names it, unless --read-only.

Examples:
  flashwright volume export volume:/dev/nvme0n1,/dev/nvme1n1 \\
      --socket /run/volume.sock
  flashwright volume export 'stripe(chunk=64k):nbd://n1/,nbd://n2/'
  flashwright volume export --read-only disk.img
  nbd-client -unix /run/volume.sock /dev/nbd0")]
pub struct ExportArgs {
    /// The device: a file, a block device, or any other device spec
    #[arg(value_name = "SPEC")]
    pub device: String,
    /// A device whose contents may be lost; may be given many times, and must name that very device
    #[arg(long, value_name = "DEV")]
    pub destroy: Vec<PathBuf>,
    /// 1: bypass the page cache (O_DIRECT), so that clients ask in whole blocks; 0: through it, any bytes
    #[arg(long, value_name = "0|1", default_value = "1", value_parser = values::switch, action = clap::ArgAction::Set)]
    pub direct: bool,
    /// Where, and for whom.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// Serves a device.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let checked = serve::check(&args.serve)?;
    let spec = DeviceSpec::parse(&args.device).map_err(Problem::from)?;
    let options = OpenOptions {
        direct: args.direct,
        access: if args.serve.read_only { Access::ReadOnly } else { Access::ReadWrite },
        destroy: args.destroy.clone(),
        // What was never written reads as zeros, and clients are told where that is.
        allow_unwritten: true,
        // Clients write what belongs there.
        as_owner: true,
        ..OpenOptions::default()
    };
    let device = ::volume::open(&spec, &options)?;
    if !args.serve.json {
        output::print(&format!("export: {}, {}\n", device.spec(), units::bytes(device.size())))?;
    }
    let subject = Subject { description: device.spec().to_owned(), device, loaded_bytes: None };
    let served = serve::serve(&args.serve, checked, &subject);
    for notice in subject.device.notices() {
        output::tell(&format!("{} {notice}\n", paint::warn("note:")));
    }
    let connections = served?;
    if !args.serve.json {
        output::tell(&format!("{}\n", serve::summary(connections)));
    }
    Ok(())
}
