//! What a job file asks for: groups of jobs, each with a workload and the files that it works on.

use std::path::PathBuf;

use measure::Workload;
use storage::spec::DeviceSpec;

use super::draft::Reporting;
use super::error::Location;
use bench::acts::Act;
use bench::run::cohorts::Arrangement;
use bench::run::conduct::Conduct;
use bench::run::log::Quantity;

/// Jobs that run at the same time: those between two `stonewall`s.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    /// In the order of the file.
    pub jobs: Vec<Job>,
}

/// One job: a section, or one of its copies where each copy has a file of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The section's name, or what `name` says.
    pub name: String,
    /// fio's number of the reporting group, from 0.
    pub group_id: u32,
    /// Where the section begins.
    pub at: Location,
    /// The file or block device; of an export of another host its address.
    pub path: PathBuf,
    /// All files of the job, `path` first; a job goes round several of them.
    pub files: Vec<PathBuf>,
    /// Whether `path` is the address of an export.
    pub is_export: bool,
    /// What its requests do, where they move no data.
    pub act: Option<Act>,
    /// What runs there. `numjobs` above 1 means threads that share the file.
    pub workload: Workload,
    /// The section's own options, for `job options` in fio-json.
    pub options: Vec<(String, String)>,
    /// `desc` in fio-json.
    pub description: Option<String>,
    /// When it begins and what it ends, among the jobs of its [`Group`].
    pub arrangement: Arrangement,
    /// Bytes that the file is made with, where that is more than the job works on.
    pub filesize: Option<u64>,
    /// Drop the file's pages from the page cache before the run (fio's default), with
    /// [`drop_cached`](storage::cache::drop_cached).
    pub invalidate: bool,
    /// Remove the file after the run, if the run made it.
    pub unlink: bool,
    /// Whether it shares an entry of fio-json with the other jobs of its reporting group that say so.
    pub is_grouped: bool,
    /// Write a file in full that is made for the job, even if the job only writes.
    pub overwrite: bool,
    /// A file that is missing may be made (`allow_file_create`).
    pub allow_file_create: bool,
    /// A file that is made for the job is not written first, though the job reads it.
    pub create_on_open: bool,
    /// What fio-json spells out.
    pub reporting: Reporting,
    /// What it does beside its workload.
    pub conduct: Conduct,
    /// Its logs, by what they are about, with what their names begin with.
    pub logs: Vec<(LogKind, String)>,
    /// The number of its first thread among those of the file, from 1.
    pub first_thread: u64,
    /// What the user should know: an option that fio, too, ignores here, an engine that stands in.
    pub notes: Vec<String>,
}

impl Job {
    /// Bytes that each file needs if it has to be made: of one, the end of the last thread's region; of several, their part
    /// of that. `None` where the job gives no size, and the files must therefore exist.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        let threads = u64::from(self.workload.numjobs.max(1));
        let increment = self.workload.offset_increment.unwrap_or(0);
        increment
            .checked_mul(threads - 1)?
            .checked_add(self.workload.offset)?
            .checked_add(self.workload.size?)
            .map(
                |end| {
                    if self.act == Some(Act::Nothing) { end } else { end.div_ceil(self.files.len() as u64) }
                },
            )
            .map(|end| end.next_multiple_of(if self.files.len() > 1 { self.workload.bs } else { 1 }))
            .map(|end| end.max(self.filesize.unwrap_or(0)))
    }

    /// What to open: the path, several as a stripe, or, where there is nothing yet and the job says how large it is to be, a
    /// file to be made. The path is taken as it is, whatever characters it has.
    #[must_use]
    pub fn device_spec(&self) -> DeviceSpec {
        if self.is_export
            && let Ok(export) = self.path.to_string_lossy().parse()
        {
            return export;
        }
        let of_file = |path: &PathBuf| match self.file_bytes() {
            Some(size) if !path.exists() => DeviceSpec::File { path: path.clone(), size: Some(size) },
            _ => DeviceSpec::Path(path.clone()),
        };
        match self.files.as_slice() {
            // A stripe whose chunk is a request is what fio's round-robin visits.
            [_, _, ..] => DeviceSpec::Stripe {
                chunk: self.workload.bs,
                members: self.files.iter().map(of_file).collect(),
            },
            _ => of_file(&self.path),
        }
    }

    /// The log files of each of its threads, in their order, and what they hold.
    #[must_use]
    pub fn log_files(&self) -> Vec<Vec<(PathBuf, Quantity)>> {
        let of_thread = |thread: u64| {
            let files = self.logs.iter().flat_map(|(kind, name)| {
                let (words, quantity) = kind.files();
                words.iter().map(move |word| (format!("{name}_{word}.{thread}.log").into(), quantity))
            });
            files.collect()
        };
        let first = self.first_thread;
        (first..first + u64::from(self.workload.numjobs)).map(of_thread).collect()
    }
}

/// A kind of log: what stands between the name and the number in that of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// `bw`.
    Bandwidth,
    /// `lat`, and `clat`, which holds the same.
    Latency,
    /// `iops`.
    Requests,
}

impl LogKind {
    fn files(self) -> (&'static [&'static str], Quantity) {
        match self {
            Self::Bandwidth => (&["bw"], Quantity::Bandwidth),
            Self::Latency => (&["lat", "clat"], Quantity::Latency),
            Self::Requests => (&["iops"], Quantity::Requests),
        }
    }
}
