//! The drives: whether they are alike, idle, or busy.

use super::evidence::{Member, Seen, median, ratio};
use super::host::no_cpu_left;
use super::{Finding, Limit};

/// A drive that does at most this part of its peers' work in a busy second is slower than they.
pub(super) const SLOWER: f64 = 0.80;
/// Chance is given this many standard deviations: there are many members and many runs.
const SIGMAS: f64 = 4.0;
/// A request that takes at least this many times as long as with its peers waits there.
const LONGER: f64 = 2.0;
/// Requests wait nowhere where their mean time is at most this many times that of the fastest tenth.
const QUIET: f64 = 1.25;
/// A drive that has at least this many times its peers' work has more to do.
const MORE_WORK: f64 = 1.5;
/// The drive that others wait for is busy at least this part of the time.
const BUSY: f64 = 0.90;
/// Peers that have time left are busy at most this part of it.
const PEERS_IDLE: f64 = 0.70;
/// Fewer requests of a drive than these give no figure of it.
const LEAST_IOS: f64 = 64.0;
/// Drives that are busy less than this part of the time were not asked for more.
const IDLE: f64 = 0.85;
/// With more requests in flight for each drive than this, idle drives are not for want of requests.
const FEW_IN_FLIGHT: f64 = 4.0;
/// Part of a request's time spent in the drives, from which on it is theirs.
const IN_DRIVES: f64 = 0.70;
/// Requests in flight for each drive from which on a drive is likely to have what it can take…
const DEEP: f64 = 16.0;
/// …or as many bytes, because a drive divides large requests among its dies.
const DEEP_BYTES: f64 = 1_048_576.0;

/// A member that the others wait for.
pub(super) fn unbalanced(seen: &Seen<'_>) -> Option<Finding> {
    let members = &seen.members;
    if members.len() < 2 || members.iter().any(|m| m.ios() < LEAST_IOS) {
        return None;
    }
    let suspect =
        |m: &&Member<'_>| slow(seen, m).or_else(|| waited_for(seen, m)).or_else(|| overloaded(seen, m));
    let found: Vec<String> = members.iter().filter_map(|m| suspect(&m)).collect();
    // Where half of them differ from the other half, none is the odd one out: then it is two kinds of
    // drives, and the slower kind is still what is waited for.
    let first = found.first()?;
    let more =
        if found.len() > 1 { format!(" (and {} more like it)", found.len() - 1) } else { String::new() };
    Some(Finding::new(Limit::UnbalancedDrives, format!("{first}{more}")))
}

fn peers<'a>(seen: &'a Seen<'_>, own: &Member<'_>) -> impl Iterator<Item = &'a Member<'a>> {
    let name = own.name().to_owned();
    seen.members.iter().filter(move |m| m.name() != name)
}

/// Always busy, and does less in that time than its peers do in theirs, by more than chance: service
/// times scatter by as much as their mean, so the rate of n requests by a part of 1/√n, of which four are
/// allowed.
fn slow(seen: &Seen<'_>, own: &Member<'_>) -> Option<String> {
    let usual = median(peers(seen, own).map(Member::rate_while_busy));
    let longer = own.latency_s() >= median(peers(seen, own).map(Member::latency_s)) / SLOWER;
    let no_more = own.ios() <= median(peers(seen, own).map(Member::ios)) * 1.1;
    let part = ratio(own.rate_while_busy(), usual);
    let chance = 1.0 + SIGMAS / own.ios().sqrt();
    (own.busy() >= BUSY && part > 0.0 && part * chance <= SLOWER && longer && no_more).then(|| {
        format!(
            "{} was {} busy and did {} in that time, its peers {} ({}; limit {})",
            own.name(),
            units::percent(own.busy()),
            units::iops(own.rate_while_busy()),
            units::iops(usual),
            units::percent(part),
            units::percent(SLOWER),
        )
    })
}

/// Has as many requests as its peers, and most of the waiting, by more than chance: in a closed loop the
/// queues of equal drives wander. A queue of q takes about q² requests to forget where it stood, so that its
/// mean over n requests scatters by a part of q/√n. And at the ceiling a drive that is slower by a few
/// percent gathers most of the queue, so the peers must be far from theirs: with them requests do not wait.
fn waited_for(seen: &Seen<'_>, own: &Member<'_>) -> Option<String> {
    let usual = median(peers(seen, own).map(Member::latency_s));
    let alike = median(peers(seen, own).map(Member::ios));
    let fair = ratio(seen.members.iter().map(Member::mean_in_flight).sum(), seen.members.len() as f64);
    let chance = 1.0 + SIGMAS * (fair + 1.0) / own.ios().sqrt();
    let times = ratio(own.latency_s(), usual);
    let same_work = (0.9..=1.1).contains(&ratio(own.ios(), alike));
    // With less than one request in flight there is nobody waiting.
    let waiting = own.mean_in_flight() >= 1.0 && own.busy() >= BUSY;
    let p10 = seen.record.latency().percentile(10.0) as f64 / 1e9;
    let peers_are_quiet = usual <= p10 * QUIET;
    (times >= LONGER * chance && same_work && waiting && peers_are_quiet).then(|| {
        format!(
            "a request took {} in {}, {} in its peers ({times:.1}×; limit {LONGER:.0}×), and {:.1} of the requests in flight \
             stood there, where {fair:.1} would be its part",
            units::nanoseconds(own.latency_s() * 1e9),
            own.name(),
            units::nanoseconds(usual * 1e9),
            own.mean_in_flight(),
        )
    })
}

/// Busy with more work than its peers, which have time left.
fn overloaded(seen: &Seen<'_>, own: &Member<'_>) -> Option<String> {
    let usual = median(peers(seen, own).map(Member::bytes));
    let idle = median(peers(seen, own).map(Member::busy));
    let times = ratio(own.bytes(), usual);
    (times >= MORE_WORK && own.busy() >= BUSY && idle <= PEERS_IDLE).then(|| {
        format!(
            "{} had {times:.1}× its peers' bytes (limit {MORE_WORK}×) and was {} busy, they {}",
            own.name(),
            units::percent(own.busy()),
            units::percent(idle),
        )
    })
}

/// Too few requests, by counting: fewer than there are drives, or drives that are idle while little is in
/// flight. Deeper siblings prove the same by measurement ([`super::context`]).
pub(super) fn queue_depth(seen: &Seen<'_>) -> Option<Finding> {
    let drives = seen.members.len() as f64;
    let record = seen.record;
    // Under a rate nobody waits for a completion to start the next.
    if drives == 0.0 || record.workload.is_open_loop() || no_cpu_left(seen).is_some() {
        return None;
    }
    let in_flight = seen.asked_in_flight();
    if in_flight < drives {
        let evidence =
            format!("{in_flight} in flight over {drives} drives: at any time some have nothing to do");
        return Some(Finding::new(Limit::QueueDepth, evidence));
    }
    let counted = seen.members.iter().all(|m| m.ios() >= LEAST_IOS);
    let idle = counted && seen.busy() < IDLE && in_flight / drives <= FEW_IN_FLIGHT;
    // What flushes, or waits in a cache, waits for other things than requests.
    let plain = record.workload.direct && !record.workload.makes_durable();
    (idle && plain).then(|| {
        let evidence = format!(
            "{} had requests {} of the time (limit {}), with {} in flight for each drive",
            seen.drives_in_words(),
            units::percent(seen.busy()),
            units::percent(IDLE),
            units::count(in_flight / drives),
        );
        Finding::new(Limit::QueueDepth, evidence)
    })
}

/// Whether the drives were busy with our requests, and had enough of them; otherwise what is missing to
/// say so.
pub(super) fn drives(seen: &Seen<'_>, alone: bool) -> Result<Finding, String> {
    if seen.members.is_empty() {
        return Err("the drives below were not counted".into());
    }
    if let Some(used) = no_cpu_left(seen) {
        return Err(format!("all CPUs were {} busy, mostly with others' work", units::percent(used)));
    }
    let busy = seen.busy();
    let whose = seen.drives_in_words();
    if busy < BUSY {
        return Err(format!(
            "{whose} had requests {} of the time only (limit {})",
            units::percent(busy),
            units::percent(BUSY)
        ));
    }
    let Some(share) = seen.share_in_drives() else {
        return Err(format!("the kernel did not say how long requests were in {whose}"));
    };
    if share < IN_DRIVES {
        return Err(format!(
            "requests spent {} of their time in {whose} (limit {}), the rest above; the same without file system or array \
             tells where",
            units::percent(share),
            units::percent(IN_DRIVES),
        ));
    }
    let each = seen.asked_in_flight() / seen.members.len() as f64;
    if each < DEEP && each * (seen.record.workload.max_bs() as f64) < DEEP_BYTES && alone {
        return Err(format!(
            "requests spent {} of their time in {whose}, with {} in flight for each drive; whether more of them would be \
             faster takes a deeper run to tell",
            units::percent(share),
            units::count(each),
        ));
    }
    let evidence = format!(
        "requests spent {} of their time in {whose} (limit {}), busy {} of the time (limit {})",
        units::percent(share),
        units::percent(IN_DRIVES),
        units::percent(busy),
        units::percent(BUSY),
    );
    Ok(Finding::new(Limit::Drives, evidence))
}
