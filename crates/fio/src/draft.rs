//! A job while its options are being collected: fio's defaults, and the readers of options that do not fit a row of
//! [`keys`](super::keys).
//!
//! A reader only notes what was written; what depends on several options (which of three
//! block sizes is used, whether a mix can keep its rates) is decided once all are known, in
//! [`resolve`](super::resolve).

pub(super) mod acts;
pub(super) mod commands;
pub(super) mod conduct;
pub(super) mod numbers;
pub(super) mod priorities;
pub(super) mod protection;
pub(super) mod steady_writes;
pub(super) mod tolerance;
pub(super) mod verify;
pub(super) mod words;

use std::time::Duration;

use measure::Workload;
use measure::workload::{IoEngine, Rw, SizeShare, ZoneMode};

use super::error::Problem;
use super::values::{ByDirection, Size};
use bench::acts::Act;
use bench::run::cohorts::Ends;

/// fio's default percentiles.
pub(super) const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// fio takes no longer list.
const MAX_PERCENTILES: usize = 20;
/// fio takes no more sizes.
const MAX_SPLITS: usize = 64;

/// Which latencies the fio-json output spells out, and at which percentiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Reporting {
    /// Percentiles and bins under `clat_ns`.
    pub clat_percentiles: bool,
    /// Percentiles and bins under `lat_ns`.
    pub lat_percentiles: bool,
    /// The percentiles, ascending, each above 0 and at most 100.
    pub percentile_list: Vec<f64>,
}

impl Default for Reporting {
    fn default() -> Self {
        Self { clat_percentiles: true, lat_percentiles: false, percentile_list: PERCENTILES.to_vec() }
    }
}

/// All that a section and the globals before it say.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// fio's defaults, and the options that need no second look.
    pub workload: Workload,
    pub bs: ByDirection<u64>,
    pub bsrange: ByDirection<(u64, u64)>,
    pub bssplit: ByDirection<Vec<SizeShare>>,
    pub rate: ByDirection<u64>,
    pub rate_iops: ByDirection<u64>,
    pub blockalign: ByDirection<u64>,
    pub engine_word: String,
    /// What requests do, where the engine moves no data.
    pub act: Option<Act>,
    pub acts: acts::ActsDraft,
    pub priorities: priorities::PrioritiesDraft,
    pub tolerance: tolerance::ToleranceDraft,
    pub steady_writes: steady_writes::SteadyWritesDraft,
    pub create_on_open: bool,
    pub iodepth_batch: u32,
    pub size: Option<Size>,
    pub io_size: Option<Size>,
    pub offset: Size,
    pub offset_increment: Size,
    pub percentage_random: ByDirection<u8>,
    pub filesize: Option<u64>,
    pub sequence_stride: bool,
    pub zonemode: Option<ZoneMode>,
    pub zonesize: Option<u64>,
    pub zonerange: Option<u64>,
    pub zoneskip: u64,
    pub randrepeat: bool,
    pub randseed: Option<u64>,
    pub lfsr: bool,
    /// One file, or several that the job goes round.
    pub filename: Option<Vec<String>>,
    /// Files whose names are made, where none is given.
    pub nrfiles: u32,
    pub uri: Option<String>,
    pub directory: Option<String>,
    pub filename_format: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub stonewall: bool,
    pub start_delay: Duration,
    pub wait_for: Option<String>,
    pub exitall: bool,
    pub exit_what: Ends,
    pub new_group: bool,
    pub group_reporting: bool,
    pub overwrite: bool,
    pub invalidate: bool,
    pub unlink: bool,
    pub hipri: bool,
    pub sqthread_poll: bool,
    pub fixed: bool,
    /// The first key of `io_uring_cmd` that was given.
    pub commands: Option<&'static str>,
    /// Data are placed.
    pub fdp: bool,
    /// Where, by the numbers that were given.
    pub places: Option<Vec<u16>>,
    pub places_are_drawn: bool,
    /// What becomes of the metadata of blocks.
    pub protection: protection::ProtectionDraft,
    /// Each write is on the medium when it completes.
    pub write_fua: bool,
    pub atomic: bool,
    /// Blocks that are read back must be of the last write.
    pub checks_sequence: bool,
    pub do_verify: bool,
    pub verify_is_given: bool,
    pub verify_only: bool,
    pub verify_backlog_batch: u32,
    pub fill_device: bool,
    pub reporting: Reporting,
    pub conduct: conduct::ConductDraft,
    /// A file that is missing may be made.
    pub allow_file_create: bool,
}

/// fio's defaults (`HOWTO`, 3.33), where they differ from [`Workload::default`].
pub(super) fn plain_workload() -> Workload {
    Workload {
        rw: Rw::Read,
        direct: false,
        ioengine: IoEngine::Psync,
        iodepth: 1,
        iodepth_batch: 1,
        offset_increment: Some(0),
        ..Workload::default()
    }
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            workload: plain_workload(),
            bs: [None; 3],
            bsrange: [None; 3],
            bssplit: [None, None, None],
            rate: [None; 3],
            rate_iops: [None; 3],
            blockalign: [None; 3],
            engine_word: IoEngine::Psync.word().to_owned(),
            act: None,
            acts: acts::ActsDraft::default(),
            priorities: priorities::PrioritiesDraft::default(),
            tolerance: tolerance::ToleranceDraft::default(),
            steady_writes: steady_writes::SteadyWritesDraft::default(),
            create_on_open: false,
            iodepth_batch: 1,
            size: None,
            io_size: None,
            offset: Size::Bytes(0),
            offset_increment: Size::Bytes(0),
            percentage_random: [None; 3],
            filesize: None,
            sequence_stride: false,
            zonemode: None,
            zonesize: None,
            zonerange: None,
            zoneskip: 0,
            randrepeat: true,
            randseed: None,
            lfsr: false,
            filename: None,
            nrfiles: 1,
            uri: None,
            directory: None,
            filename_format: "$jobname.$jobnum.$filenum".to_owned(),
            name: None,
            description: None,
            stonewall: false,
            start_delay: Duration::ZERO,
            wait_for: None,
            exitall: false,
            exit_what: Ends::Group,
            new_group: false,
            group_reporting: false,
            overwrite: false,
            invalidate: true,
            unlink: false,
            hipri: false,
            sqthread_poll: false,
            fixed: false,
            commands: None,
            protection: protection::ProtectionDraft::default(),
            write_fua: false,
            atomic: false,
            checks_sequence: true,
            fdp: false,
            places: None,
            places_are_drawn: false,
            do_verify: true,
            verify_is_given: false,
            verify_only: false,
            verify_backlog_batch: 0,
            fill_device: false,
            reporting: Reporting::default(),
            conduct: conduct::ConductDraft::default(),
            allow_file_create: true,
        }
    }
}

/// What an option does with its value.
pub(super) type Apply = fn(&mut Draft, Option<&str>) -> Result<(), Problem>;
