//! What to do about a warning, for somebody who has certain flags in use, or none.
//!
//! [`WarningCode::explain`](crate::WarningCode::explain) says what holds for every run, for the documentation page.
//! [`WarningCode::remedy_for`](crate::WarningCode::remedy_for) leaves out what a run has already, and names what it has. Both name
//! flags of `bench`. Who wrote a job file, or the space of a sweep, sets the same options by keys ([`OptionsBy`]), so the flags are
//! translated. Commands in backticks stay as they are: they are to be typed.

use base::IoEngine;

use crate::options::{OPTIONS, ValueKind, WorkloadOption};
use crate::{RunRecord, WarningCode};

/// How a user says what is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionsBy {
    /// Flags of `bench`.
    Flags,
    /// Keys of a fio job file.
    JobFile,
    /// Keys of a sweep's space.
    Space,
}

impl WarningCode {
    /// What to do about the code in this run, for a user who sets options `by` these means.
    #[must_use]
    pub fn remedy_by(self, record: &RunRecord, by: OptionsBy) -> String {
        match (self, by) {
            // Copies without offset_increment walk the same offsets there, as in fio.
            (Self::SameOffsets, OptionsBy::JobFile) => {
                "Give each section an offset and a size of its own, and copies (numjobs) an offset_increment of the size of a part."
                    .to_owned()
            }
            _ => translated(self.remedy_for(record), by),
        }
    }

    /// What to do about the code in a sweep, over whatever workloads.
    #[must_use]
    pub fn remedy_in_sweep(self) -> String {
        match self {
            Self::NotSteady => {
                "Bring the drive into its steady state beforehand (`bench --precondition=steady --max_rounds=50`), or report the figures as those of an unsteady drive.".to_owned()
            }
            other => translated(other.explain().remedy, OptionsBy::Space),
        }
    }

    /// What to do about the code in this run, by flags of `bench`. It never advises a flag that the run has already.
    #[must_use]
    pub fn remedy_for(self, record: &RunRecord) -> &'static str {
        let workload = &record.workload;
        let engine = record.engine.engine();
        let can_poll = workload.ioengine.is_ring() || engine.is_some_and(IoEngine::is_ring);
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
            Self::PollUnavailable if !can_poll => "Use --ioengine=io_uring, or drop --hipri.",
            Self::CpuBound if engine == Some(IoEngine::Psync) && workload.ioengine == IoEngine::Psync => {
                "Use --ioengine=io_uring, or read the figure as one of psync."
            }
            Self::CpuBound if workload.numjobs >= record.host.cpus.max(1) => {
                "There is a job for each CPU already: read the figure as one of this machine's CPUs."
            }
            Self::Generator if workload.numjobs >= record.host.cpus.max(1) => {
                "There is a job for each CPU already: read the figure as one of CPU and drive together."
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

/// A remedy with the words of those who set options in another way than by flags.
fn translated(remedy: &str, by: OptionsBy) -> String {
    let parts = remedy.split('`').enumerate();
    let part = |(place, part): (usize, &str)| match place % 2 {
        0 => part.split(' ').map(|word| translated_word(word, by)).collect::<Vec<_>>().join(" "),
        _ => format!("`{part}`"),
    };
    parts.map(part).collect()
}

/// A word of a remedy; punctuation around a flag stays.
fn translated_word(word: &str, by: OptionsBy) -> String {
    let Some((before, flag)) = word.split_once("--").filter(|_| by != OptionsBy::Flags) else {
        return word.to_owned();
    };
    let end = flag.trim_end_matches([',', '.', ';', ')', ':']).len();
    let (flag, after) = flag.split_at(end);
    let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
    let option = OPTIONS.iter().find(|option| option.name == name);
    let key = match (by, option, name) {
        (OptionsBy::JobFile, Some(option), _) => option.fio.map(|key| match value {
            Some(value) => format!("{key}={value}"),
            None => key.to_owned(),
        }),
        (OptionsBy::Space, Some(option), _) => Some(of_space(option, value)),
        (OptionsBy::Space, None, "precondition") => value.map(|value| format!("`{name} = \"{value}\"`")),
        _ => None,
    };
    key.map_or_else(|| word.to_owned(), |key| format!("{before}{key}{after}"))
}

/// A key of `[base]` or `[space]`, with its value in TOML.
fn of_space(option: &WorkloadOption, value: Option<&str>) -> String {
    let name = option.name;
    match (option.kind, value) {
        (_, None) => name.to_owned(),
        (ValueKind::Switch, Some(value)) => format!("`{name} = {}`", value == "1"),
        (ValueKind::Count | ValueKind::Seed | ValueKind::Percent | ValueKind::Fraction, Some(value)) => {
            format!("`{name} = {value}`")
        }
        (_, Some(value)) => format!("`{name} = \"{value}\"`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::EngineFacts;
    use crate::workload::{Rw, Workload};

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
    fn a_job_file_and_a_space_have_keys_where_bench_has_flags_and_commands_stay() {
        let buffered =
            RunRecord { workload: Workload { direct: false, ..Workload::default() }, ..RunRecord::default() };
        let by = |by| WarningCode::Cached.remedy_by(&buffered, by);
        assert_eq!(by(OptionsBy::Flags), "Use --direct=1, or a working set well above the memory.");
        assert_eq!(by(OptionsBy::JobFile), "Use direct=1, or a working set well above the memory.");
        assert_eq!(by(OptionsBy::Space), "Use `direct = true`, or a working set well above the memory.");
        let volatile = WarningCode::VolatileCache.remedy_in_sweep();
        assert_eq!(volatile, "Add `fdatasync = N` or `end_fsync = true` for the cost of durable writes.");
        let slc = WarningCode::SlcCache.remedy_in_sweep();
        assert!(slc.contains("(ramp_time)") && slc.contains("(`precondition = \"steady\"`)."), "{slc}");
        let unwritten = WarningCode::Unwritten.remedy_in_sweep();
        assert!(unwritten.contains("`bench --rw=write --bs=1m --time_based=0`"), "{unwritten}");
        let same = WarningCode::SameOffsets.remedy_by(&buffered, OptionsBy::JobFile);
        assert!(
            same.starts_with("Give each section an offset"),
            "copies without offset_increment share offsets there"
        );
    }

    #[test]
    fn outside_of_commands_no_remedy_for_keys_names_the_flag_of_an_option() {
        let is_flag = |word: &str| {
            let name = word.trim_start_matches('(').strip_prefix("--").unwrap_or_default();
            let name = name.split(['=', ',', '.', ';', ')']).next().unwrap_or_default();
            OPTIONS.iter().any(|option| option.name == name && option.fio.is_some())
        };
        let prose = |remedy: &str| remedy.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        for code in WarningCode::ALL {
            let of_runs = records().into_iter().flat_map(|record| {
                [OptionsBy::JobFile, OptionsBy::Space].map(|by| code.remedy_by(&record, by))
            });
            for remedy in of_runs.chain([code.remedy_in_sweep()]) {
                assert_eq!(prose(&remedy).split(' ').find(|word| is_flag(word)), None, "{code}: {remedy}");
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
