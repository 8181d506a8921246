//! What each task does of a workload, and where: pure functions of the flags and of where the tasks run.
//!
//! Terms are those of IOR: a task moves its block (`--size`) in transfers (`--bs`); with a file each, task r has
//! `TARGET.0000000r`; in a shared file its block begins at `--offset` + r × `--size`.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use storage::device::DeviceSpec;

use super::super::args::{BenchArgs, OutputFormat};
use super::super::request::{Job, Missing, Request};
use crate::failure::Failure;

/// How the tasks divide the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// One file for all tasks.
    pub shared: bool,
    /// Each task reads what another one wrote.
    pub reorder: bool,
}

/// Refuses what makes no sense with several tasks, and sets what holds for them where flags say nothing.
pub fn check(args: &BenchArgs, request: &mut Request) -> Result<Division, Failure> {
    let division = Division { shared: args.shared, reorder: args.reorder };
    let refuse = |what: &str, hint: &str| Err(Failure::invalid(what.to_owned()).hint(hint.to_owned()));
    if let Some(flag) = args.prepare.first_given() {
        return refuse(
            &format!("--{flag} cannot be combined with several tasks"),
            "prepare the target by a command before",
        );
    }
    if !matches!(args.format(), OutputFormat::Text | OutputFormat::Json) {
        return refuse("fio's output is of one process", "leave --output-format out, or give --json");
    }
    let job = match &mut request.groups[..] {
        [group] => match &mut group[..] {
            [job] if job.fio.is_none() => Some(job),
            _ => None,
        },
        _ => None,
    };
    let Some(job) = job else {
        return refuse(
            "a job file cannot be run by several tasks",
            "write the workload as flags, or as TOML",
        );
    };
    let by_flags = args.file.is_none() && !args.workload.has("runtime") && !args.workload.has("time_based");
    if by_flags && job.workload.size.is_some() {
        (job.workload.time_based, job.workload.runtime) = (false, None);
    }
    if division.reorder && job.workload.rw.modifies() {
        let word = job.workload.rw.word();
        return refuse(
            &format!("--reorder: rw={word} writes"),
            "write with one command, and read back with --rw=read --reorder in the next",
        );
    }
    if division.shared && job.workload.size.is_none() {
        return refuse("--shared needs --size", "the bytes of each task, for instance --size=1g");
    }
    if !division.shared && file_of(job, 0).is_none() {
        return refuse(
            &format!("--target={}: each task has a file of its own", job.target),
            "name a file, or give --shared for one target of all tasks",
        );
    }
    Ok(division)
}

/// By how much the rank is shifted whose data a task reads: the least shift that has as many tasks as possible read
/// what another node wrote, never what they wrote themselves. None with one task.
pub fn shift(nodes: &[&str]) -> Option<usize> {
    let elsewhere =
        |shift: usize| (0..nodes.len()).filter(|at| nodes[(at + shift) % nodes.len()] != nodes[*at]).count();
    (1..nodes.len()).max_by_key(|shift| (elsewhere(*shift), Reverse(*shift)))
}

/// The part of a job that a task does: of `owner`'s data, as one of `size` tasks.
pub fn part(job: &Job, division: Division, rank: u32, owner: u32, size: u32) -> Job {
    let mut workload = job.workload.clone();
    workload.randseed =
        workload.randseed.wrapping_add(u64::from(rank).wrapping_mul(u64::from(workload.numjobs)));
    let (mut target, mut missing) = (job.target.clone(), job.missing);
    if division.shared {
        let each = workload.size.unwrap_or(0);
        let all = workload.offset.saturating_add(each.saturating_mul(u64::from(size)));
        workload.offset = workload.offset.saturating_add(each.saturating_mul(u64::from(owner)));
        missing = match missing {
            // One task makes the file, of the size of all blocks.
            Missing::Make(_) if rank == 0 => Missing::Make(all),
            Missing::Lay(_) if rank == 0 => Missing::Lay(all),
            _ => Missing::Refuse,
        };
    } else if let Some(file) = file_of(job, owner) {
        target = file.to_string();
    }
    Job { name: job.name.clone(), target, workload, missing, fio: None }
}

/// What a task may destroy: of one that names the target of all tasks, the task's own as well.
pub fn destroy(given: &[PathBuf], job: &Job, part: &Job) -> Vec<PathBuf> {
    let path = |target: &str| DeviceSpec::parse(target).ok()?.path().map(Path::to_owned);
    let is_given = path(&job.target).is_some_and(|path| given.contains(&path));
    given.iter().cloned().chain(path(&part.target).filter(|_| is_given)).collect()
}

/// The file of a task; None if the job's target is no file. What is misspelt among the devices is no file either.
fn file_of(job: &Job, owner: u32) -> Option<DeviceSpec> {
    let of_task = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{owner:08}"));
        PathBuf::from(name)
    };
    match DeviceSpec::parse(&job.target) {
        Ok(DeviceSpec::Path(path)) if !path.starts_with("/dev") => Some(DeviceSpec::Path(of_task(&path))),
        Ok(DeviceSpec::File { path, size }) => Some(DeviceSpec::File { path: of_task(&path), size }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Workload;

    fn job(size: u64) -> Job {
        let workload = Workload { size: Some(size), offset: 4096, ..Workload::default() };
        let (name, target) = (String::new(), "/scratch/f".to_owned());
        Job { name, target, workload, missing: Missing::Make(4096 + size), fio: None }
    }

    #[test]
    fn shared_file_gives_each_task_a_block_of_its_own_and_one_task_makes_it() {
        let division = Division { shared: true, reorder: false };
        let parts: Vec<Job> = (0..3).map(|rank| part(&job(8192), division, rank, rank, 3)).collect();
        let offsets: Vec<u64> = parts.iter().map(|part| part.workload.offset).collect();
        assert_eq!(offsets, [4096, 12288, 20480]);
        assert!(parts.iter().all(|part| part.target == "/scratch/f"));
        let makes: Vec<Missing> = parts.iter().map(|part| part.missing).collect();
        assert_eq!(makes, [Missing::Make(4096 + 3 * 8192), Missing::Refuse, Missing::Refuse]);
    }

    #[test]
    fn file_of_a_task_is_named_as_ior_names_it() {
        let division = Division { shared: false, reorder: true };
        assert_eq!(part(&job(8192), division, 1, 2, 4).target, "/scratch/f.00000002");
        assert_eq!(part(&job(8192), division, 1, 2, 4).missing, Missing::Make(4096 + 8192));
    }

    #[test]
    fn target_that_may_be_destroyed_is_every_tasks_file() {
        let division = Division { shared: false, reorder: false };
        let (job, part) = (job(8192), part(&job(8192), division, 1, 1, 4));
        assert_eq!(destroy(&["/scratch/f".into()], &job, &part)[1..], [PathBuf::from("/scratch/f.00000001")]);
        assert_eq!(destroy(&["/scratch/g".into()], &job, &part), [PathBuf::from("/scratch/g")]);
    }

    #[test]
    fn nobody_reads_what_it_wrote_and_nodes_read_what_another_wrote() {
        assert_eq!(shift(&["a"]), None);
        assert_eq!(shift(&["a", "a", "a"]), Some(1));
        assert_eq!(shift(&["a", "a", "b", "b"]), Some(2), "tasks placed by slot");
        assert_eq!(shift(&["a", "b", "a", "b"]), Some(1), "tasks placed by node");
    }
}
