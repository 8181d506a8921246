//! What to do about a warning, for somebody who has certain flags in use.
//!
//! [`WarningCode::explain`](crate::WarningCode::explain) says what holds for every run, for the documentation page and for
//! reports over many workloads. [`WarningCode::remedy_for`](crate::WarningCode::remedy_for) leaves out what a workload
//! has already, and names what it has.

use base::IoEngine;

use crate::workload::Workload;
use crate::{RunRecord, WarningCode};

impl WarningCode {
    /// What to do about the code in this run. It never advises a flag that the run has already.
    #[must_use]
    pub fn remedy_for(self, record: &RunRecord) -> &'static str {
        let workload = &record.workload;
        match self {
            Self::Cached if workload.direct => {
                "A layer below the target caches: measure the device below it, or take its cache away (`losetup --direct-io=on`)."
            }
            Self::Cached => "Use --direct=1, or a working set well above the memory.",
            Self::SmallSet if workload.direct => "Raise --size to several GiB, at best to the whole drive.",
            Self::SmallSet => "Raise --size above twice the memory, or use --direct=1.",
            Self::Unwritten if record.target.kind == "block" => {
                "Measure it knowingly with --allow-unwritten; or, if nothing on it is needed, write the region first (`bench --rw=write --bs=1m --time_based=0 --destroy`)."
            }
            Self::PollUnavailable if !workload.direct => "Use --direct=1, or drop --hipri.",
            Self::PollUnavailable if !polls(workload, record) => "Use --ioengine=io_uring, or drop --hipri.",
            Self::CpuBound if record.engine.used == "psync" && workload.ioengine == IoEngine::Psync => {
                "Use --ioengine=io_uring, or read the figure as one of psync."
            }
            Self::CpuBound if workload.numjobs >= record.host.cpus.max(1) => {
                "There is a job for each CPU already: read the figure as one of this machine's CPUs."
            }
            // Polling takes io_uring and direct I/O; and a run that polls draws no such warning.
            Self::IdleStates if !workload.direct || workload.hipri => {
                "For latencies of the drive alone disable deep states (`cpupower idle-set -D 10`), or raise --iodepth."
            }
            Self::RateMissed if workload.rate.is_some() => "Lower --rate, or raise --iodepth.",
            Self::ShortRun if !workload.time_based => "Raise --size, or use --time_based=1 with a --runtime.",
            Self::ShortRun => "Raise --runtime.",
            Self::Unsteady if !workload.rw.writes() => "Raise --ramp_time and --runtime.",
            Self::FewBlocks if workload.iodepth == 1 => "Raise --size, or lower --numjobs.",
            Self::VerifyPartial if !workload.time_based => "Raise --runtime, or leave it out.",
            other => other.explain().remedy,
        }
    }
}

/// Whether the engine that ran can poll.
fn polls(workload: &Workload, record: &RunRecord) -> bool {
    record.engine.used == "io_uring" || workload.ioengine == IoEngine::IoUring
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::EngineFacts;
    use crate::workload::Rw;

    fn records() -> Vec<RunRecord> {
        let mut records = Vec::new();
        for direct in [false, true] {
            for (time_based, rate) in [(false, None), (true, None), (true, Some(1 << 20))] {
                for rw in [Rw::RandRead, Rw::RandWrite] {
                    for (ioengine, used) in [(IoEngine::Auto, "io_uring"), (IoEngine::Psync, "psync")] {
                        for hipri in [false, true] {
                            let workload = Workload {
                                direct,
                                time_based,
                                rate,
                                rw,
                                ioengine,
                                hipri,
                                ..Workload::default()
                            };
                            let engine = EngineFacts { used: used.into(), ..EngineFacts::default() };
                            records.push(RunRecord { workload, engine, ..RunRecord::default() });
                        }
                    }
                }
            }
        }
        records
    }

    #[test]
    fn no_remedy_advises_what_is_in_use() {
        for record in records() {
            let w = &record.workload;
            for code in WarningCode::ALL {
                let remedy = code.remedy_for(&record);
                let in_use = [
                    ("--direct=1", w.direct),
                    ("--time_based=1", w.time_based),
                    ("--hipri=1", w.hipri),
                    ("--ioengine=io_uring", record.engine.used == "io_uring"),
                    ("rate_iops", w.rate.is_some() && *code == WarningCode::RateMissed),
                    ("writing tests", !w.rw.writes()),
                ];
                let advised = in_use.iter().find(|(flag, used)| *used && remedy.contains(flag));
                assert_eq!(advised, None, "{code}: {remedy}");
                assert!(remedy.ends_with('.') && remedy.len() > 10, "{code}: {remedy}");
            }
        }
    }

    #[test]
    fn a_buffered_run_is_told_of_direct_and_a_direct_one_of_the_layer_below() {
        let run = |direct| RunRecord {
            workload: Workload { direct, ..Workload::default() },
            ..RunRecord::default()
        };
        assert!(WarningCode::Cached.remedy_for(&run(false)).contains("--direct=1"));
        assert!(WarningCode::Cached.remedy_for(&run(true)).contains("--direct-io=on"));
    }
}
