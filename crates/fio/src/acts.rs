//! What engines that move no data take of a section, and what they refuse.
//!
//! An option that would do nothing with such an engine is refused, so that nobody reads into a figure what it does not
//! hold; what makes writes durable above all.

use std::time::Duration;

use measure::Workload;
use measure::workload::{Rw, WriteSync};

use super::draft::{Draft, plain_workload};
use super::error::{Fault, Problem};
use super::values::ByDirection;
use bench::acts::{Act, Operation, Range};
use bench::run::burn::Burn;

/// How long fio computes before it rests, where nothing says.
const CHUNK: Duration = Duration::from_millis(50);

/// The files of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    /// How many each copy has.
    pub count: u64,
    /// Whether all copies have the same.
    pub are_shared: bool,
}

/// What the requests of a section do. An option of another engine is a fault.
pub(super) fn act(draft: &Draft) -> Result<Option<Act>, Fault> {
    let own = &draft.acts;
    let of_cpuio = [
        ("cpuload", own.load.is_some()),
        ("cpuchunks", own.chunk.is_some()),
        ("cpumode", own.work.is_some()),
    ];
    let stray = |option, engine: &str| {
        let hint = format!("write ioengine={engine}, or leave it out");
        Err((
            option,
            Problem::new(format!("it belongs to {engine}, and the engine is {}", draft.engine_word), hint),
        ))
    };
    if let Some((option, _)) = of_cpuio.into_iter().find(|(_, set)| *set && draft.act != Some(Act::Compute)) {
        return stray(option, "cpuio");
    }
    if own.follows.is_some() && draft.act != Some(Act::Names(Operation::StatFile)) {
        return stray("stat_type", "filestat");
    }
    if draft.create_on_open && !matches!(draft.act, None | Some(Act::Names(_))) {
        let reason = format!("ioengine={} makes no files", draft.engine_word);
        return Err(("create_on_open", Problem::new(reason, "leave it out")));
    }
    Ok(match draft.act {
        Some(Act::Names(_)) if own.follows == Some(false) => Some(Act::Names(Operation::StatLink)),
        act => act,
    })
}

/// What is computed in place of requests.
pub(super) fn burn(draft: &Draft) -> Result<Option<Burn>, Fault> {
    if draft.act != Some(Act::Compute) {
        return Ok(None);
    }
    let Some(load) = draft.acts.load else {
        let problem =
            Problem::new("cpuio needs to know for how much of its time it computes", "add cpuload=50");
        return Err(("ioengine", problem));
    };
    let (chunk, work) = (draft.acts.chunk.unwrap_or(CHUNK), draft.acts.work.unwrap_or_default());
    Ok(Some(Burn { load, chunk, work }))
}

/// The workload of a section whose requests are acts. `written` has the key that the section or the globals give an option by.
pub(super) fn workload<'a>(
    act: Act,
    draft: &Draft,
    workload: Workload,
    files: Files,
    written: &dyn Fn(&str) -> Option<&'a str>,
    notes: &mut Vec<String>,
) -> Result<Workload, Fault> {
    if !act.is_on_file() {
        nothing_to_make_durable(act, &workload)?;
    }
    if workload.verify.is_some() {
        let what = if act == Act::Fault { "no drive" } else { "no data" };
        let problem = Problem::new(format!("ioengine={} writes {what}", act.word()), "leave it out");
        return Err(("verify", problem));
    }
    // What computes drops depth and the rest, and tells them with it.
    let workload = if act == Act::Compute { workload } else { one_at_a_time(act, workload, notes) };
    notes.push(match act {
        Act::Compute => "ioengine=cpuio makes no requests: its CPU time is all there is to see".to_owned(),
        Act::Fault => "ioengine=page_fault copies to and from memory: no drive is read or written".to_owned(),
        _ => format!("ioengine={} moves no data: bytes are counted as fio counts them", act.word()),
    });
    match act {
        Act::Compute => computing(draft, workload, files, written, notes),
        Act::Nothing => with_size(act, workload),
        Act::Fault => faulting(draft, with_size(act, workload)?, files),
        Act::Names(operation) => of_names(operation, draft, workload, files),
        Act::OnFile(range) => on_file(range, workload, files.count),
    }
}

/// Only what does nothing is in flight beside others; and where there is no file, nothing goes past its pages.
fn one_at_a_time(act: Act, workload: Workload, notes: &mut Vec<String>) -> Workload {
    if act != Act::Nothing && workload.iodepth > 1 {
        notes.push(format!(
            "iodepth={} has no effect with ioengine={}, as in fio",
            workload.iodepth,
            act.word()
        ));
    }
    let depth = if act == Act::Nothing { workload.iodepth } else { 1 };
    Workload {
        iodepth: depth,
        iodepth_batch: workload.iodepth_batch.min(depth),
        iodepth_batch_complete_min: workload.iodepth_batch_complete_min.min(depth),
        direct: workload.direct && act.is_on_file(),
        ..workload
    }
}

/// Refuses what makes writes durable where nothing is written.
fn nothing_to_make_durable(act: Act, w: &Workload) -> Result<(), Fault> {
    let asked = [
        ("fsync", w.fsync > 0),
        ("fdatasync", w.fdatasync > 0),
        ("sync", w.sync != WriteSync::None),
        ("end_fsync", w.end_fsync),
    ];
    match asked.into_iter().find(|(_, set)| *set) {
        Some((option, _)) => {
            let reason = format!("ioengine={} writes nothing that could be made durable", act.word());
            Err((option, Problem::new(reason, "leave it out, or write an engine that writes, such as psync")))
        }
        None => Ok(()),
    }
}

/// Without a file that has a size, the job has to say it.
fn with_size(act: Act, workload: Workload) -> Result<Workload, Fault> {
    match workload.size {
        Some(_) => Ok(workload),
        None => {
            let reason = format!("{} has no file that has a size", act.word());
            Err(("ioengine", Problem::new(reason, "add size=1g")))
        }
    }
}

/// As in fio, the memory of a copy is its own, and begins with its first byte.
fn faulting(draft: &Draft, workload: Workload, files: Files) -> Result<Workload, Fault> {
    let fault = |option, reason: &str, hint: &str| Err((option, Problem::new(reason, hint)));
    let has_offset = workload.offset > 0 || workload.offset_increment.is_some_and(|step| step > 0);
    let discards = matches!(workload.rw, Rw::Trim | Rw::RandTrim | Rw::TrimWrite | Rw::RandTrimWrite);
    match () {
        () if discards => fault("rw", "page_fault reads and writes", "write rw=read or rw=write"),
        () if has_offset && workload.offset > 0 => {
            fault("offset", "page_fault takes none, as in fio", "leave it out")
        }
        () if has_offset => fault("offset_increment", "page_fault takes none, as in fio", "leave it out"),
        () if files.count > 1 => {
            fault("nrfiles", "page_fault takes one file, as in fio", "leave it out, or raise numjobs")
        }
        () if draft.filename.is_some() && workload.numjobs > 1 => {
            fault("numjobs", "each copy has memory of its own", "leave filename out")
        }
        () => Ok(workload),
    }
}

/// Options of requests that were not refused before have no effect without any. They are dropped, so that no record has them, with a
/// note of the keys that were `written`; in globals they are of use to other sections, and so no error.
fn computing<'a>(
    draft: &Draft,
    workload: Workload,
    files: Files,
    written: &dyn Fn(&str) -> Option<&'a str>,
    notes: &mut Vec<String>,
) -> Result<Workload, Fault> {
    if workload.runtime.is_none() {
        return Err(("ioengine", Problem::new("cpuio has no end without a runtime", "add runtime=10s")));
    }
    let several = written("nrfiles").or_else(|| written("filename")).filter(|_| files.count > 1);
    let mut dropped: Vec<&str> = several.into_iter().collect();
    let asked = |rates: &ByDirection<u64>| rates.iter().flatten().any(|rate| *rate > 0);
    let beside = [
        ("flow", draft.conduct.flow > 0),
        ("rate_min", asked(&draft.conduct.rate_min)),
        ("rate_iops_min", asked(&draft.conduct.rate_iops_min)),
        ("fill_device", draft.fill_device),
    ];
    dropped.extend(beside.into_iter().filter(|(_, is_asked)| *is_asked).filter_map(|(key, _)| written(key)));
    let kept = Workload {
        name: workload.name.clone(),
        numjobs: workload.numjobs,
        runtime: workload.runtime,
        time_based: workload.time_based,
        ramp_time: workload.ramp_time,
        ioengine: workload.ioengine,
        randseed: workload.randseed,
        cpus_allowed: workload.cpus_allowed.clone(),
        cpus_allowed_policy: workload.cpus_allowed_policy,
        numa_cpu_nodes: workload.numa_cpu_nodes.clone(),
        ..plain_workload()
    };
    for option in measure::options::differences(&workload, &kept) {
        // What follows from another option was written by nobody.
        let Some(key) = option.fio.and_then(written) else { continue };
        if !dropped.contains(&key) {
            dropped.push(key);
        }
    }
    if !dropped.is_empty() {
        notes.push(format!(
            "without effect with ioengine=cpuio, which makes no requests: {}",
            dropped.join(", ")
        ));
    }
    Ok(Workload { time_based: true, ..kept })
}

/// One request a name.
fn of_names(
    operation: Operation,
    draft: &Draft,
    workload: Workload,
    files: Files,
) -> Result<Workload, Fault> {
    let names = files.count;
    let fault = |option, reason: &str, hint: &str| Err((option, Problem::new(reason, hint)));
    let bs = workload.bs;
    let each = draft.filesize.or(workload.size.map(|size| size / names)).unwrap_or(bs);
    match () {
        () if workload.rw != Rw::Read => {
            fault("rw", "each request is one operation with one name", "leave it out")
        }
        () if !workload.bssplit.is_empty() => {
            fault("bssplit", "each request is for one name", "leave it out")
        }
        () if workload.offset > 0 => fault("offset", "names are worked on from the first", "leave it out"),
        () if workload.rw_step != 0 => fault("rw", "each name is worked on in turn", "leave the step out"),
        () if each != bs => {
            let hint = format!("write bs={}", units::bytes_short(each));
            fault("bs", "a file is worked on once, and counts for one block", &hint)
        }
        () if workload.zonesize.is_some() || workload.is_zbd() => {
            fault("zonesize", "names are worked on in turn", "leave it out")
        }
        () if operation.is_once() && workload.io_size.is_some_and(|bytes| bytes > bs * names) => {
            fault("io_size", "each name can be made or removed but once", "leave it out, or raise nrfiles")
        }
        () if operation.is_once() && (workload.time_based || workload.loops > 1) => {
            let option = if workload.time_based { "time_based" } else { "loops" };
            fault(option, "each name can be made or removed but once", "leave it out, or raise nrfiles")
        }
        () if workload.numjobs > 1 && files.are_shared => fault(
            "numjobs",
            "copies would work on the same names",
            "leave filename out, so that each has its own",
        ),
        () => Ok(Workload { size: Some(bs * names), offset_increment: Some(0), ..workload }),
    }
}

fn on_file(range: Range, workload: Workload, files: u64) -> Result<Workload, Fault> {
    let takes = match range {
        Range::Allocate => matches!(workload.rw, Rw::Write | Rw::RandWrite | Rw::Trim | Rw::RandTrim),
        Range::Truncate => matches!(workload.rw, Rw::Write | Rw::RandWrite),
    };
    let reason = match range {
        Range::Allocate => {
            "falloc allocates for writes and punches holes for trims; for reads it would change the file"
        }
        Range::Truncate => "ftruncate sets the length of a file to where each write would begin",
    };
    if !takes {
        return Err(("rw", Problem::new(reason, "write rw=write or rw=randwrite")));
    }
    if workload.is_zbd() {
        return Err(("zonemode", Problem::new("the extent of a file has no zones", "leave it out")));
    }
    if range == Range::Truncate && workload.sync != WriteSync::None {
        let reason = "O_SYNC does nothing for ftruncate(2), so that no length would be durable";
        return Err(("sync", Problem::new(reason, "write fsync=1")));
    }
    if files > 1 {
        let hint = "write a section for each file";
        return Err(("nrfiles", Problem::new("the extent of one file is worked on", hint)));
    }
    Ok(workload)
}
