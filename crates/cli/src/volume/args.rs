//! Flags of `flashwright volume`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::export::ExportArgs;

/// `flashwright volume`.
#[derive(Debug, Args)]
#[command(after_help = "\
A volume is RAID-0 in user space over files, block devices and NBD exports, each of which bears a label. It is \
named by its members in any order: volume:SPEC,SPEC,… wherever a command takes a device.

Examples:
  flashwright volume create --name scratch --chunk 64k \\
      --destroy /dev/nvme0n1 --destroy /dev/nvme1n1 /dev/nvme0n1,/dev/nvme1n1
  flashwright volume show
  flashwright volume check /dev/nvme1n1,/dev/nvme0n1
  flashwright volume create --checksums \\
      --destroy /dev/sda --destroy /dev/sdb /dev/sda,/dev/sdb
  flashwright volume check --data /dev/sda,/dev/sdb
  flashwright bench --rw=randread --bs=4k --iodepth=64 \\
      --target volume:/dev/nvme0n1,/dev/nvme1n1
  flashwright volume destroy /dev/nvme0n1,/dev/nvme1n1 \\
      --destroy /dev/nvme0n1 --destroy /dev/nvme1n1")]
pub struct VolumeArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// The verbs below `volume`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume: label its members
    Create(CreateArgs),
    /// List the volumes on the given devices, or on all block devices
    Show(ShowArgs),
    /// Verify a volume's labels, both copies of each, and what else lies on its members
    Check(CheckArgs),
    /// Wipe the labels; the data are left where they lie
    Destroy(DestroyArgs),
    /// Serve a volume, or any device, over NBD, until a signal comes
    Export(Box<ExportArgs>),
}

/// `flashwright volume create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The members in their order: devices, file:PATH?size=4g, …, joined by commas
    #[arg(value_name = "SPEC,SPEC…", required = true)]
    pub members: Vec<String>,
    /// What the volume is called, in 64 bytes
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub name: String,
    /// Bytes that one member holds before the next
    #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = crate::values::positive_size)]
    pub chunk: u64,
    /// Keep a checksum of each block of 4 KiB, which every read is compared with
    #[arg(long)]
    pub checksums: bool,
    /// A device whose contents may be lost; may be given many times, and must name that very device
    #[arg(long, value_name = "DEV")]
    pub destroy: Vec<PathBuf>,
    /// Print one JSON document (flashwright.volumes/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright volume show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Devices to look at; all block devices where none is named
    #[arg(value_name = "SPEC,SPEC…")]
    pub members: Vec<String>,
    /// Print one JSON document (flashwright.volumes/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright volume check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The members, in any order
    #[arg(value_name = "SPEC,SPEC…", required = true)]
    pub members: Vec<String>,
    /// Write a copy of a label that is lost or stale again, from the other one
    #[arg(long)]
    pub repair: bool,
    /// Read all data of a volume with checksums as well, and compare them
    #[arg(long, conflicts_with = "repair")]
    pub data: bool,
    /// Print one JSON document (flashwright.volume-check/1; with --data flashwright.volume-data/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright volume destroy`.
#[derive(Debug, Args)]
pub struct DestroyArgs {
    /// The members, each of which is named in --destroy as well
    #[arg(value_name = "SPEC,SPEC…", required = true)]
    pub members: Vec<String>,
    /// A device whose contents may be lost; may be given many times, and must name that very device
    #[arg(long, value_name = "DEV")]
    pub destroy: Vec<PathBuf>,
}
