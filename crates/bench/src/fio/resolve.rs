//! From a complete draft to a workload: everything that depends on several options at once.
//!
//! Each step returns the option at fault with its problem, so that the caller can name the line on
//! which that option stands.

use std::hash::{BuildHasher, Hasher};

use measure::Workload;
use measure::workload::{InvalidWorkload, IoEngine, RandomDistribution, Rw, SizeShare, Verify};

use super::draft::Draft;
use super::error::Problem;
use super::values::{ByDirection, Size};

/// The option at fault, in its main spelling, and what is wrong with it.
pub(super) type Fault = (&'static str, Problem);

const READ: usize = 0;
const WRITE: usize = 1;
const TRIM: usize = 2;

/// Decides what is left open in `draft`. `threads_before` is how many threads the jobs before this one
/// have: fio numbers the threads of a whole job file, and draws each one's seed from its number.
/// Returns the workload of the section and remarks for the user.
pub(super) fn workload(draft: &Draft, threads_before: u64) -> Result<(Workload, Vec<String>), Fault> {
    let mut workload = draft.workload.clone();
    let mut notes = Vec::new();
    block_sizes(draft, &mut workload)?;
    size(draft, &mut workload)?;
    rates(draft, &mut workload)?;
    engine(draft, &mut workload, &mut notes)?;
    order(draft, &mut workload, threads_before)?;
    verification(draft, &workload, &mut notes)?;
    workload.validate().map_err(|InvalidWorkload { option, reason, hint, .. }| {
        // The hints are written for flags; a job file has none.
        (option, Problem::new(reason, hint.replace("--", "")))
    })?;
    Ok((workload, notes))
}

/// The directions that a job's requests have.
fn directions(rw: Rw) -> &'static [usize] {
    match rw {
        Rw::Read | Rw::RandRead => &[READ],
        Rw::Write | Rw::RandWrite => &[WRITE],
        Rw::Rw | Rw::RandRw => &[READ, WRITE],
        Rw::Trim | Rw::RandTrim => &[TRIM],
    }
}

/// The one value that all directions of `rw` share; `None` where they have none, an error where they
/// differ.
fn shared<T: Clone + PartialEq>(
    option: &'static str,
    values: &ByDirection<T>,
    rw: Rw,
) -> Result<Option<T>, Fault> {
    let directions = directions(rw);
    let first = values[directions[0]].clone();
    if directions.iter().any(|direction| values[*direction] != first) {
        return Err((
            option,
            Problem::new(
                "reads and writes of one job have the same sizes here",
                "run them as two sections, one reading and one writing",
            ),
        ));
    }
    Ok(first)
}

/// fio's precedence: `bssplit`, then `bsrange`, then `bs`.
fn block_sizes(draft: &Draft, workload: &mut Workload) -> Result<(), Fault> {
    let rw = workload.rw;
    // Where only one direction of a mix has a size, the other has the default.
    let or_default = draft.bs.map(|bs| bs.or(Some(4096)));
    workload.bs = shared("bs", &or_default, rw)?.unwrap_or(4096);
    if let Some((low, high)) = shared("bsrange", &draft.bsrange, rw)? {
        if low != high {
            let problem = Problem::new(
                "sizes between the ends of a range are not drawn",
                "write bssplit, such as bssplit=4k/50:64k/50",
            );
            return Err(("bsrange", problem));
        }
        workload.bs = low;
    }
    if let Some(split) = shared("bssplit", &draft.bssplit, rw)? {
        match split.as_slice() {
            [SizeShare { bs, .. }] => workload.bs = *bs,
            _ => workload.bssplit = split,
        }
    }
    let aligned = shared("ba", &draft.blockalign, rw)?;
    if workload.rw.is_random() && aligned.is_some_and(|align| align != workload.min_bs()) {
        let problem = Problem::new(
            "offsets are multiples of the smallest block",
            format!("write blockalign={}, or leave it out", units::bytes_short(workload.min_bs())),
        );
        return Err(("ba", problem));
    }
    Ok(())
}

fn size(draft: &Draft, workload: &mut Workload) -> Result<(), Fault> {
    workload.size = match draft.size {
        // fio reads a size of 0 as none given.
        None | Some(Size::Bytes(0) | Size::Percent(100)) => None,
        Some(Size::Bytes(bytes)) => Some(bytes),
        Some(Size::Percent(_)) => {
            let problem =
                Problem::new("only 100% of a file can be asked for", "give the size in bytes, such as 1g");
            return Err(("size", problem));
        }
    };
    match (workload.size, draft.filesize) {
        (None, Some(filesize)) => workload.size = Some(filesize),
        (Some(size), Some(filesize)) if size != filesize => {
            let problem = Problem::new("it differs from size", "give one of the two");
            return Err(("filesize", problem));
        }
        _ => {}
    }
    match draft.io_size {
        None | Some(Size::Bytes(0)) => Ok(()),
        Some(_) if workload.time_based => Ok(()),
        Some(Size::Bytes(bytes)) if workload.size == Some(bytes) => Ok(()),
        Some(Size::Percent(100)) => Ok(()),
        Some(_) => Err((
            "io_size",
            Problem::new(
                "a job moves its size once, or runs for its runtime",
                "leave it out, or write runtime= and time_based",
            ),
        )),
    }
}

fn rates(draft: &Draft, workload: &mut Workload) -> Result<(), Fault> {
    workload.rate = rate("rate", &draft.rate, workload)?;
    workload.rate_iops = rate("rate_iops", &draft.rate_iops, workload)?;
    Ok(())
}

/// fio holds each direction of a mix to a rate of its own; here a mix has one rate, and its proportion
/// makes the directions'. The two mean the same where the rates stand in that proportion.
fn rate(option: &'static str, rates: &ByDirection<u64>, workload: &Workload) -> Result<Option<u64>, Fault> {
    let rates = rates.map(|rate| rate.filter(|rate| *rate > 0));
    let directions = directions(workload.rw);
    if let [one] = directions {
        return Ok(rates[*one]);
    }
    let (read, write) = (rates[READ], rates[WRITE]);
    let reads = u64::from(workload.rwmixread);
    let problem = |example: String| {
        Problem::new(
            "the rates of reads and writes do not stand in the proportion of the mix",
            format!("write for instance {option}={example}, or run them as two sections"),
        )
    };
    match (reads, read, write) {
        (_, None, None) => Ok(None),
        (100, Some(rate), _) | (0, _, Some(rate)) => Ok(Some(rate)),
        (_, Some(read), Some(write)) if same_proportion(read, write, reads) => read
            .checked_add(write)
            .map(Some)
            .ok_or_else(|| (option, Problem::new("the rates are out of range", "write smaller ones"))),
        (_, Some(read), _) if reads > 0 => {
            let write = u128::from(read) * u128::from(100 - reads) / u128::from(reads);
            Err((option, problem(format!("{read},{write}"))))
        }
        (_, _, Some(write)) => Err((option, problem(format!("0,{write}")))),
        (_, Some(_), None) => Err((option, problem("0,1000".to_owned()))),
    }
}

fn same_proportion(read: u64, write: u64, reads: u64) -> bool {
    u128::from(read) * u128::from(100 - reads) == u128::from(write) * u128::from(reads)
}

fn engine(draft: &Draft, workload: &mut Workload, notes: &mut Vec<String>) -> Result<(), Fault> {
    let is_io_uring = workload.ioengine == IoEngine::IoUring;
    let needs_io_uring =
        [("hipri", draft.hipri), ("sqthread_poll", draft.sqthread_poll), ("fixedbufs", draft.fixed)];
    if let Some((option, _)) = needs_io_uring.into_iter().find(|(_, set)| *set && !is_io_uring) {
        let problem = Problem::new(
            format!("it belongs to io_uring, and the engine is {}", draft.engine_word),
            "write ioengine=io_uring, or leave it out",
        );
        return Err((option, problem));
    }
    workload.hipri = draft.hipri;
    workload.sqthread_poll = draft.sqthread_poll;
    if workload.ioengine == IoEngine::Psync {
        if draft.engine_word != "psync" {
            notes.push(format!(
                "ioengine={} runs as psync: the same requests by pread(2) and pwrite(2)",
                draft.engine_word
            ));
        }
        if workload.iodepth > 1 {
            notes.push(format!(
                "iodepth={} has no effect with ioengine={}: fio keeps one request in flight with it, \
                 and so does this job",
                workload.iodepth, draft.engine_word
            ));
        }
        workload.iodepth = 1;
    }
    let depth = workload.iodepth;
    workload.iodepth_batch = match draft.iodepth_batch {
        0 => depth,
        batch => batch.min(depth),
    };
    workload.iodepth_batch_complete_min = workload.iodepth_batch_complete_min.min(depth);
    Ok(())
}

fn order(draft: &Draft, workload: &mut Workload, threads_before: u64) -> Result<(), Fault> {
    if draft.lfsr && workload.norandommap {
        let problem = Problem::new(
            "with norandommap blocks are drawn afresh, and lfsr would visit each once",
            "leave out one of the two",
        );
        return Err(("random_generator", problem));
    }
    if workload.random_distribution != RandomDistribution::Random {
        workload.norandommap = true;
    }
    let seed = match draft.randseed {
        Some(seed) => seed,
        None if draft.randrepeat => Workload::default().randseed,
        // The standard library seeds its hashers from the system; the seed is kept in the record. fio
        // reads seeds as signed, so half of that range lets it be given to fio as well.
        None => std::collections::hash_map::RandomState::new().build_hasher().finish() >> 1,
    };
    workload.randseed = seed.wrapping_add(threads_before);
    Ok(())
}

fn verification(draft: &Draft, workload: &Workload, notes: &mut Vec<String>) -> Result<(), Fault> {
    if workload.verify == Some(Verify::Xxh3) {
        notes.push("verify=xxhash runs as XXH3-64; files written by fio cannot be verified".to_owned());
    } else if workload.verify.is_some() && !workload.rw.writes() {
        notes.push(
            "the header that verify looks for is flashwright's; files written by fio cannot be verified"
                .to_owned(),
        );
    }
    if workload.verify.is_some() && workload.rw.writes() && !draft.do_verify {
        let problem =
            Problem::new("what is written with verify is always read back", "leave out do_verify, or verify");
        return Err(("do_verify", problem));
    }
    Ok(())
}
