//! From a complete draft to a workload: everything that depends on several options at once.
//!
//! Each step returns the option at fault with its problem, so that the caller can name the line on
//! which that option stands.

mod amounts;

use std::hash::{BuildHasher, Hasher};

use measure::Workload;
use measure::options;
use measure::pattern::SteadyWrites;
use measure::workload::{InvalidWorkload, IoEngine, RandomDistribution, Rw, Verify, WriteSync, ZoneMode};

use storage::engine::Placement;

use self::amounts::{Share, block_sizes, directions, rates, shared, size};
use super::acts;
use super::draft::Draft;
use super::error::{Fault, Problem};
use super::values::ByDirection;
use bench::run::conduct::Conduct;

/// The most files that a job goes round.
const MOST_FILES: u64 = 1024;

/// The most requests in flight that an engine has room for.
const MOST_IN_FLIGHT: u32 = 32_768;

/// Decides what is left open in `draft`. `threads_before` is how many threads the jobs before this one
/// have: fio numbers the threads of a whole job file, and draws each one's seed from its number.
/// `whole` is how large the file is, of which percentages are shares; None where it does not exist and nothing says how
/// large it is to be. `zone` is how large the zones of the drive are, if it has some. Returns the workload of the section and remarks for the user.
pub(super) fn workload(
    draft: &Draft,
    threads_before: u64,
    whole: Option<u64>,
    zone: Option<u64>,
) -> Result<(Workload, Vec<String>), Fault> {
    let mut workload = draft.workload.clone();
    let mut notes = Vec::new();
    block_sizes(draft, &mut workload)?;
    let share = Share { whole, block: workload.min_bs().max(1), zone: draft.zonesize.or(zone) };
    size(draft, &mut workload, share)?;
    rates(draft, &mut workload)?;
    engine(draft, &mut workload, &mut notes)?;
    commands(draft, &mut workload, &mut notes)?;
    order(draft, &mut workload, threads_before)?;
    zones(draft, &mut workload)?;
    verification(draft, &mut workload, &mut notes)?;
    workload.validate().map_err(|InvalidWorkload { option, reason, hint, .. }| {
        // The hints are written for flags; a job file has none.
        let key = options::find(option).and_then(|option| option.fio).unwrap_or(option);
        (key, Problem::new(reason, hint.replace("--", "")))
    })?;
    Ok((workload, notes))
}

/// What the run is to do beside the workload.
pub(super) fn conduct(draft: &Draft, workload: &Workload) -> Result<Conduct, Fault> {
    let mut conduct = draft.conduct.resolve()?;
    let places = || draft.places.clone().unwrap_or_default();
    conduct.ring.placement =
        draft.fdp.then(|| Placement { places: places(), random: draft.places_are_drawn });
    conduct.ring.protection = draft.protection.resolve(draft, workload)?;
    conduct.burn = acts::burn(draft)?;
    if conduct.burn.is_some() {
        // What makes no requests reaches no least rate, and would hold the others of a flow back for ever.
        (conduct.flow, conduct.floor) = (None, None);
    }
    conduct.priority = draft.priorities.of_threads()?;
    conduct.request_priorities = draft.priorities.of_requests(workload.ioengine)?;
    if let Some(log) = &mut conduct.log {
        log.priority = conduct.priority;
    }
    conduct.tolerance = draft.tolerance.resolve();
    let writes_on = conduct.tolerance.as_ref().is_some_and(|tolerance| !tolerance.writes.is_empty());
    if writes_on && workload.verify.is_some() && workload.rw.writes() && !workload.verifies_by_log() {
        let reason = "which writes have failed is known with verify_backlog only";
        return Err((
            "continue_on_error",
            Problem::new(reason, "add verify_backlog=1024, or leave out verify"),
        ));
    }
    conduct.atomic = atomic(draft, workload)?;
    conduct.steady_writes = steady_writes(draft, workload)?;
    conduct.cache_bytes = draft.steady_writes.cache_bytes;
    conduct.any_generation = !draft.checks_sequence;
    conduct.leaves_unverified = !draft.do_verify && workload.rw.writes();
    conduct.verify_backlog_batch = draft.verify_backlog_batch;
    conduct.floor = conduct.floor.and_then(|floor| floor.of(directions(workload.rw)));
    if conduct.flow.is_some() && workload.is_open_loop() {
        let hint = "leave out one of the two";
        return Err(("flow", Problem::new("a rate says when requests start, and so does a flow", hint)));
    }
    if conduct.latency.is_some() {
        let other = [
            ("rate", workload.is_open_loop()),
            ("thinktime", workload.rests()),
            ("flow", conduct.flow.is_some()),
            ("ioengine=cpuio", conduct.burn.is_some()),
        ];
        if let Some((option, _)) = other.into_iter().find(|(_, set)| *set) {
            let reason =
                format!("a queue depth is searched where queues are full, and {option} leaves them empty");
            return Err(("latency_target", Problem::new(reason, "leave out one of the two")));
        }
    }
    let above = |rates: &ByDirection<u64>, least: &[u64; 3]| {
        rates.iter().zip(least).any(|(rate, least)| rate.is_some_and(|rate| rate > 0 && rate < *least))
    };
    let hint = "write a lower one";
    match conduct.floor {
        Some(floor) if above(&draft.rate, &floor.bytes) => {
            Err(("rate_min", Problem::new("it is above rate", hint)))
        }
        Some(floor) if above(&draft.rate_iops, &floor.ios) => {
            Err(("rate_iops_min", Problem::new("it is above rate_iops", hint)))
        }
        _ => Ok(conduct),
    }
}

/// The pass of writes to the steady state that a section asks for. What would make another order of it is refused.
fn steady_writes(draft: &Draft, w: &Workload) -> Result<Option<SteadyWrites>, Fault> {
    let of = &draft.steady_writes;
    let fault = |option, reason: &str, hint: &str| Err((option, Problem::new(reason, hint)));
    if !of.is_on {
        return match of.given {
            Some(option) => fault(option, "it belongs to sprandom", "add sprandom=1, or leave it out"),
            None => Ok(None),
        };
    }
    let plain = w.random_distribution == RandomDistribution::Random && w.percentage_random == 100;
    let plain = plain && w.zonesize.is_none() && w.blockalign.is_none();
    let files = draft.filename.as_ref().map_or(draft.nrfiles as usize, Vec::len);
    match () {
        () if files > 1 => fault("sprandom", "one file or device is brought into the state", "name one"),
        () if draft.act.is_some() => fault("sprandom", "the engine writes no drive", "leave it out"),
        () if w.rw != Rw::RandWrite => {
            fault("sprandom", "the pass consists of random writes", "write rw=randwrite")
        }
        () if w.time_based => fault("sprandom", "the pass ends by itself", "leave out time_based"),
        () if w.io_size.is_some() || w.number_ios.is_some() => {
            fault("sprandom", "the pass has its own length", "leave out io_size and number_ios")
        }
        () if w.numjobs > 1 => fault("sprandom", "one job knows the order of the writes", "write numjobs=1"),
        () if !w.has_one_size() => fault("sprandom", "blocks have one size", "write one bs"),
        () if !plain => {
            let hint =
                "leave out random_distribution, percentage_random, zonemode, and a blockalign other than bs";
            fault("sprandom", "the order of the blocks is its own", hint)
        }
        () if w.verify.is_some() => {
            fault("sprandom", "which blocks are written again is not known afterwards", "leave out verify")
        }
        () => Ok(Some(of.plan)),
    }
}

/// Whether writes are atomic. Nothing that would leave one of them without the flag is accepted.
fn atomic(draft: &Draft, workload: &Workload) -> Result<bool, Fault> {
    let fault = |reason: &str, hint: &str| Err(("atomic", Problem::new(reason, hint)));
    match () {
        () if !draft.atomic || !workload.rw.writes() => Ok(false),
        () if !workload.ioengine.has_request_flags() => {
            let engines = IoEngine::words_with(IoEngine::has_request_flags);
            fault(&format!("only {engines} hand the flag of such a write on"), "write ioengine=io_uring")
        }
        () if !workload.direct => fault("the kernel has atomic writes with O_DIRECT only", "add direct=1"),
        () if !workload.has_one_size() => fault("writes of several sizes are not all atomic", "write one bs"),
        () => Ok(true),
    }
}

/// A workload over `width` files that are visited in turn, as one over the stripe that they make. fio counts `size` over all
/// files, and `offset` in each.
pub(super) fn over_files(workload: Workload, width: u64) -> Result<Workload, Fault> {
    if width == 1 {
        return Ok(workload);
    }
    if width > MOST_FILES {
        let hint = format!("write a number from 1 to {MOST_FILES}");
        return Err(("nrfiles", Problem::new(format!("{width} is out of range"), hint)));
    }
    let one_size = "write one block size, a multiple of 512, or a section for each file";
    let problem = match () {
        () if !workload.has_one_size() => {
            Some(("bssplit", "several files are visited in blocks of one size", one_size))
        }
        () if !workload.bs.is_multiple_of(512) => {
            Some(("bs", "several files are visited in whole sectors", one_size))
        }
        () if workload.rw_step != 0 => Some(("rw", "steps are of one file", "write a section for each file")),
        () if workload.is_zbd() => {
            Some(("zonemode", "zones are of one drive", "write a section for each file"))
        }
        () => None,
    };
    if let Some((option, reason, hint)) = problem {
        return Err((option, Problem::new(reason, hint)));
    }
    let row = workload.bs * width;
    Ok(Workload {
        size: workload.size.map(|size| (size / row * row).max(row)),
        offset: workload.offset.saturating_mul(width),
        offset_increment: workload.offset_increment.map(|step| step.saturating_mul(width)),
        ..workload
    })
}

fn engine(draft: &Draft, workload: &mut Workload, notes: &mut Vec<String>) -> Result<(), Fault> {
    let is_ring = workload.ioengine.is_ring();
    let needs_ring = [
        ("hipri", draft.hipri),
        ("sqthread_poll", draft.sqthread_poll),
        ("sqthread_poll_cpu", draft.conduct.ring.sqthread_poll_cpu.is_some()),
        ("fixedbufs", draft.fixed),
    ];
    if let Some(option) = draft.commands.filter(|_| !workload.ioengine.sends_commands()) {
        let reason = format!("it belongs to io_uring_cmd, and the engine is {}", draft.engine_word);
        return Err((option, Problem::new(reason, "write ioengine=io_uring_cmd, or leave it out")));
    }
    if let Some((option, _)) = needs_ring.into_iter().find(|(_, set)| *set && !is_ring) {
        let problem = Problem::new(
            format!("it belongs to io_uring, and the engine is {}", draft.engine_word),
            "write ioengine=io_uring, or leave it out",
        );
        return Err((option, problem));
    }
    if (workload.ioengine == IoEngine::Nbd) != draft.uri.is_some() {
        let reason = "an export is named by uri, and read by ioengine=nbd";
        let option = if draft.uri.is_some() { "uri" } else { "ioengine" };
        return Err((option, Problem::new(reason, "write ioengine=nbd with uri=nbd://host/name")));
    }
    workload.hipri = draft.hipri;
    workload.sqthread_poll = draft.sqthread_poll;
    if workload.ioengine.sends_commands() {
        // fio opens a character device, of which direct says nothing.
        workload.direct = true;
        // The flag is what sync=dsync sets in each write here.
        if draft.write_fua && workload.sync == WriteSync::None {
            workload.sync = WriteSync::Dsync;
        }
    }
    if workload.ioengine.is_mapping() && workload.direct {
        notes.push("direct=1 has no effect with ioengine=mmap: a mapping is the page cache".to_owned());
        workload.direct = false;
    }
    if workload.ioengine.is_synchronous() {
        if workload.ioengine == IoEngine::Psync && draft.engine_word != IoEngine::Psync.word() {
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

/// What writes and discards come to where commands of their own make them.
fn commands(draft: &Draft, workload: &mut Workload, notes: &mut Vec<String>) -> Result<(), Fault> {
    if draft.places.is_some() && !draft.fdp {
        notes.push("plids has no effect without fdp, as in fio".to_owned());
    }
    let made_by = draft.conduct.ring.write_commands;
    let problem = |key, reason: &str, hint: &str| Err((key, Problem::new(reason, hint)));
    let is_zbd = draft.zonemode == Some(ZoneMode::Zbd);
    if draft.conduct.ring.appends && !is_zbd {
        return problem("write_mode", "zones are appended to with zonemode=zbd", "add zonemode=zbd");
    }
    if is_zbd && !made_by.are_writes() {
        let reason = "only writes move the pointers of zones as they are known";
        return problem("write_mode", reason, "write write_mode=write or zone_append");
    }
    if is_zbd && draft.conduct.ring.ranges_per_trim.is_some() {
        return problem("num_range", "a trim resets one zone with zonemode=zbd", "leave it out");
    }
    if workload.rw.writes() && !made_by.are_writes() {
        if workload.verify.is_some() {
            let reason = "what is written is verified, and these commands move no data";
            return Err(("write_mode", Problem::new(reason, "leave out one of the two")));
        }
        let mut note =
            format!("write_mode: {} % of what counts as written moves no data", 100 - made_by.write);
        if made_by.uncorrectable > 0 {
            note.push_str("; blocks that uncor marks cannot be read until they are written anew");
        }
        notes.push(note);
    }
    let Some(ranges) = draft.conduct.ring.ranges_per_trim else { return Ok(()) };
    let refuse = |reason: &str, hint: &str| Err(("num_range", Problem::new(reason, hint)));
    if !matches!(workload.rw, Rw::Trim | Rw::RandTrim) {
        return refuse("only discards have ranges", "write rw=trim or rw=randtrim, or leave it out");
    }
    if workload.is_open_loop() || workload.rests() {
        return refuse(
            "ranges are of discards that are made together",
            "leave out rate, rate_iops and thinktime",
        );
    }
    let Some(depth) = workload.iodepth.checked_mul(ranges).filter(|depth| *depth <= MOST_IN_FLIGHT) else {
        return refuse("iodepth times num_range is above 32768", "write less of one of the two");
    };
    // A request is a range, and fio's is a command.
    workload.iodepth = depth;
    workload.iodepth_batch = workload.iodepth_batch.saturating_mul(ranges).min(depth);
    workload.iodepth_batch_complete_min =
        workload.iodepth_batch_complete_min.saturating_mul(ranges).min(depth);
    workload.number_ios = workload.number_ios.map(|ios| ios.saturating_mul(u64::from(ranges)));
    notes.push(format!(
        "num_range={ranges}: a request is a range here, and a command has {ranges} of them, so that \
         requests and iodepth are {ranges} times fio's"
    ));
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
    workload.percentage_random = shared("percentage_random", &draft.percentage_random, workload.rw)?
        .filter(|_| workload.rw.is_random())
        .unwrap_or(100);
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

/// fio takes zones only where `zonemode` says what they are, or is left out with a `zonesize`.
fn zones(draft: &Draft, workload: &mut Workload) -> Result<(), Fault> {
    workload.zonemode = draft.zonemode.unwrap_or_default();
    workload.zonerange = draft.zonerange.filter(|range| Some(*range) != draft.zonesize);
    workload.zoneskip = draft.zoneskip;
    let option = if draft.zonerange.is_some() { "zonerange" } else { "zoneskip" };
    let (option, reason, hint) = match (draft.zonemode, draft.zonesize) {
        (Some(ZoneMode::Zbd), _) | (Some(ZoneMode::Strided), Some(_)) => {
            workload.zonesize = draft.zonesize;
            return Ok(());
        }
        (Some(ZoneMode::Strided), None) => ("zonemode", "strided zones need a size", "add zonesize=256m"),
        (None, Some(_)) => {
            ("zonesize", "without zonemode there are no zones", "add zonemode=strided, or zonemode=zbd")
        }
        (None, None) if workload.zonerange.is_some() || draft.zoneskip > 0 => {
            let hint = "add zonemode=strided and zonesize, or leave it out";
            (option, "without zonesize there are no zones", hint)
        }
        (None, None) => return Ok(()),
    };
    Err((option, Problem::new(reason, hint)))
}

/// As fio does, takes a pattern alone for `verify=pattern`.
fn verification(draft: &Draft, workload: &mut Workload, notes: &mut Vec<String>) -> Result<(), Fault> {
    if workload.verify_pattern.is_some() && !draft.verify_is_given {
        workload.verify = Some(Verify::Pattern);
    }
    if draft.verify_only {
        only_verify(workload)?;
    }
    if workload.verify.is_none() {
        let given = [
            ("verify_pattern", workload.verify_pattern.take().is_some()),
            ("verify_interval", workload.verify_interval.take().is_some()),
            ("verify_backlog", std::mem::take(&mut workload.verify_backlog) > 0),
        ];
        for (option, _) in given.into_iter().filter(|(_, given)| *given) {
            notes.push(format!("{option} has no effect without verify, as in fio"));
        }
        return Ok(());
    }
    if !workload.rw.writes() || !draft.do_verify {
        // There is nothing to be read back.
        workload.verify_backlog = 0;
    }
    match workload.verify {
        Some(Verify::Xxh3) => {
            notes.push("verify=xxhash runs as XXH3-64; files written by fio cannot be verified".to_owned());
        }
        // Without a header, fio's files are like ours.
        Some(Verify::Pattern) | None => {}
        Some(_) if !workload.rw.writes() => notes.push(
            "the header that verify looks for is flashwright's; files written by fio cannot be verified"
                .to_owned(),
        ),
        Some(_) => {}
    }
    if workload.rw.writes() && !draft.do_verify {
        notes.push("do_verify=0: what is written is not read back".to_owned());
    }
    Ok(())
}

/// A writing job reads what it would write.
fn only_verify(workload: &mut Workload) -> Result<(), Fault> {
    if workload.verify.is_none() {
        let hint = "add verify=, as the job had it that wrote";
        return Err(("verify_only", Problem::new("nothing says how blocks are known", hint)));
    }
    workload.rw = match workload.rw {
        Rw::Write | Rw::Read => Rw::Read,
        Rw::RandWrite | Rw::RandRead => Rw::RandRead,
        Rw::Rw | Rw::RandRw | Rw::Trim | Rw::RandTrim | Rw::TrimWrite | Rw::RandTrimWrite => {
            let reason = "which blocks of a mix were written is not known afterwards";
            return Err(("verify_only", Problem::new(reason, "write rw=read, if all were")));
        }
    };
    Ok(())
}
