//! What siblings tell: the same workload on the same drives in another form, or at another depth.

use super::{Finding, Limit, Verdict};
use crate::record::RunRecord;

/// A sibling must be faster by this part, and by more than noise, to prove that something limits here.
const FASTER: f64 = 1.10;
/// A run within this part of another gives the same.
const SAME: f64 = 0.90;
/// A run that reaches this part of the drives measured alone leaves them nothing to give.
const OF_DRIVES: f64 = 0.85;
/// More than this part of them proves nothing.
const BEYOND_DRIVES: f64 = 1.15;
/// A drive that alone reaches at most this part of its peers is slower than they.
const SLOWER: f64 = super::members::SLOWER;

/// The figure of another run (or the mean of several) of the same workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Sibling {
    /// What it is, in words: `separate, width 8`.
    pub name: String,
    /// Its figure.
    pub bandwidth_bytes_per_s: f64,
    /// Half the width of its confidence interval by its mean; 0 where unknown.
    pub noise: f64,
}

/// The drives measured one by one with the same workload.
#[derive(Debug, Clone, PartialEq)]
pub struct DrivesAlone {
    /// Sum over the drives, bytes per second.
    pub sum: f64,
    /// Each drive's own figure, by name, of those that were measured. Fewer than there are drives where the
    /// sum is that of one, taken for all.
    pub each: Vec<(String, f64)>,
    /// Drives in the sum.
    pub drives: u32,
    /// What the drives alone give together where each has as few requests in flight as it has here:
    /// requests each, and the sum, bytes per second. Left out where that is not less than the run's depth.
    pub as_shallow: Option<(u64, f64)>,
}

/// What is known from siblings. What is not known is left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// The drives one by one.
    pub drives_alone: Option<DrivesAlone>,
    /// The same drives at the same time, without a layer that joins them.
    pub same_drives_separate: Option<Sibling>,
    /// The same devices without file system.
    pub raw_below: Option<Sibling>,
    /// The same at other depths: requests in flight, and figure.
    pub depths: Vec<(u64, Sibling)>,
}

/// What a run reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Achieved {
    /// Bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Half the width of its confidence interval by its mean; 0 where unknown.
    pub noise: f64,
    /// Requests that it kept in flight.
    pub in_flight: u64,
}

impl Achieved {
    /// What one run reached.
    #[must_use]
    pub fn of(record: &RunRecord) -> Self {
        Self {
            bandwidth_bytes_per_s: record.bandwidth_bytes_per_s(),
            noise: 0.0,
            in_flight: record.in_flight(),
        }
    }

    /// How many times as fast a sibling is; none where it is not faster beyond noise.
    fn beaten_by(&self, sibling: &Sibling) -> Option<f64> {
        let times = self.times(sibling)?;
        let noise = self.noise.hypot(sibling.noise);
        (times >= FASTER && times > 1.0 + noise).then_some(times)
    }

    fn times(&self, sibling: &Sibling) -> Option<f64> {
        let times = sibling.bandwidth_bytes_per_s / self.bandwidth_bytes_per_s;
        (times.is_finite() && times > 0.0).then_some(times)
    }
}

/// A record's own verdict, with what its siblings tell.
#[must_use]
pub fn refine(alone: &Verdict, achieved: &Achieved, context: &Context) -> Verdict {
    let mut findings = compared(achieved, context);
    let own = (alone.limit != Limit::Unknown).then(|| Finding::new(alone.limit, alone.evidence.clone()));
    let mut all: Vec<Finding> = own.into_iter().chain(alone.others.iter().cloned()).collect();
    let free_without_layer = findings.iter().any(|f| f.limit == Limit::RaidLayer);
    let ceiling_of_layer = free_without_layer && alone.limit == Limit::Throttle;
    if ceiling_of_layer && let Some(layer) = findings.iter_mut().find(|f| f.limit == Limit::RaidLayer) {
        layer.evidence = format!("{}; its throttle: {}", layer.evidence, alone.evidence);
    }
    // A depth that was compared settles what was only counted, either way.
    if !context.depths.is_empty() {
        all.retain(|f| f.limit != Limit::QueueDepth || findings.iter().all(|g| g.limit != Limit::Drives));
    }
    all.append(&mut findings);
    all.sort_by_key(|finding| {
        if ceiling_of_layer && finding.limit == Limit::RaidLayer { 0 } else { rank(finding.limit) }
    });
    let mut once: Vec<Finding> = Vec::new();
    for finding in all {
        match once.iter_mut().find(|known| known.limit == finding.limit) {
            Some(known) => known.evidence = format!("{}; {}", known.evidence, finding.evidence),
            None => once.push(finding),
        }
    }
    let at_percent_of_drives = percent_of_drives(achieved, context);
    if let Some(percent) = at_percent_of_drives.filter(|percent| percent / 100.0 < OF_DRIVES) {
        // Busy or not, they can do more.
        once.retain(|finding| finding.limit != Limit::Drives);
        if once.is_empty() {
            let evidence = format!(
                "{percent:.1} % of what the drives gave alone (limit {}), and no sibling tells why",
                units::percent(OF_DRIVES)
            );
            return Verdict { limit: Limit::Unknown, evidence, at_percent_of_drives, others: Vec::new() };
        }
    }
    if once.is_empty() {
        return Verdict { at_percent_of_drives, ..alone.clone() };
    }
    // What partly throttled members have is a throttle too, and comes first for the difference.
    if alone.limit == Limit::UnbalancedDrives
        && let Some(place) = once.iter().position(|f| f.limit == Limit::UnbalancedDrives)
    {
        let first = once.remove(place);
        once.insert(0, first);
    }
    let first = once.remove(0);
    Verdict { limit: first.limit, evidence: first.evidence, at_percent_of_drives, others: once }
}

/// The place of a limit in the module's order.
fn rank(limit: Limit) -> u8 {
    match limit {
        Limit::Rate => 0,
        Limit::Throttle => 1,
        Limit::Link => 2,
        Limit::OneCpu => 3,
        Limit::LoadGenerator => 4,
        Limit::UnbalancedDrives => 5,
        // Which of the two costs more comes first, as they are found.
        Limit::RaidLayer | Limit::FileSystem => 6,
        // Below what a comparison proves here, above what is named for want of anything else.
        Limit::Later(_) => 7,
        Limit::QueueDepth => 8,
        Limit::Drives => 9,
        Limit::Unknown => 10,
    }
}

fn percent_of_drives(achieved: &Achieved, context: &Context) -> Option<f64> {
    let alone = context.drives_alone.as_ref().filter(|alone| alone.sum > 0.0)?;
    Some(achieved.bandwidth_bytes_per_s / alone.sum * 100.0)
}

/// What comparison alone proves.
fn compared(achieved: &Achieved, context: &Context) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(odd_one_out(achieved, context));
    let layers = [
        (Limit::RaidLayer, "the same drives separately", &context.same_drives_separate),
        (Limit::FileSystem, "the same without file system", &context.raw_below),
    ];
    let mut beaten: Vec<(f64, Finding)> = Vec::new();
    for (limit, words, sibling) in layers {
        let Some(sibling) = sibling else { continue };
        let Some(times) = achieved.beaten_by(sibling) else { continue };
        let evidence = format!(
            "{words} ({}) gave {}, {times:.2}× as much (limit {FASTER:.2}×)",
            sibling.name,
            units::bandwidth(sibling.bandwidth_bytes_per_s),
        );
        beaten.push((times, Finding::new(limit, evidence)));
    }
    beaten.sort_by(|a, b| b.0.total_cmp(&a.0));
    findings.extend(beaten.into_iter().map(|(_, finding)| finding));
    findings.extend(depth(achieved, context));
    findings
}

/// Members of which one is slower by itself, and an array that goes at the pace of that one.
fn odd_one_out(achieved: &Achieved, context: &Context) -> Option<Finding> {
    let alone = context.drives_alone.as_ref()?;
    if alone.each.len() < 2 || alone.each.len() != alone.drives as usize {
        return None;
    }
    let (name, slowest) = alone.each.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let usual =
        super::evidence::median(alone.each.iter().filter(|(n, _)| n != name).map(|(_, figure)| *figure));
    let pace = slowest * f64::from(alone.drives);
    let at_its_pace =
        achieved.bandwidth_bytes_per_s >= pace * OF_DRIVES && achieved.bandwidth_bytes_per_s <= pace * FASTER;
    (*slowest <= usual * SLOWER && at_its_pace).then(|| {
        let evidence = format!(
            "{name} alone gave {}, its peers {} ({}; limit {}), and {} drives at its pace give {}",
            units::bandwidth(*slowest),
            units::bandwidth(usual),
            units::percent(slowest / usual),
            units::percent(SLOWER),
            alone.drives,
            units::bandwidth(pace),
        );
        Finding::new(Limit::UnbalancedDrives, evidence)
    })
}

/// Drives that alone give no more with as few requests each: Little's law, each drive's own rate at that
/// depth being what its latency allows.
fn as_shallow(achieved: &Achieved, context: &Context) -> Option<Finding> {
    let alone = context.drives_alone.as_ref()?;
    let (each, sum) = alone.as_shallow?;
    (achieved.bandwidth_bytes_per_s >= sum * OF_DRIVES && sum <= alone.sum * SAME).then(|| {
        let evidence = format!(
            "{} in flight are {each} for each drive; alone with as few the drives give {} together, with more {}",
            achieved.in_flight,
            units::bandwidth(sum),
            units::bandwidth(alone.sum),
        );
        Finding::new(Limit::QueueDepth, evidence)
    })
}

/// A deeper queue that is faster; or one that is not, and then the drives give what they have.
fn depth(achieved: &Achieved, context: &Context) -> Option<Finding> {
    let deeper = context.depths.iter().filter(|(in_flight, _)| *in_flight > achieved.in_flight);
    let best = deeper.max_by(|a, b| a.1.bandwidth_bytes_per_s.total_cmp(&b.1.bandwidth_bytes_per_s));
    if let Some((in_flight, sibling)) = best
        && let Some(times) = achieved.beaten_by(sibling)
    {
        let evidence = format!(
            "{in_flight} in flight gave {}, {times:.2}× as much as {} (limit {FASTER:.2}×)",
            units::bandwidth(sibling.bandwidth_bytes_per_s),
            achieved.in_flight,
        );
        return Some(Finding::new(Limit::QueueDepth, evidence));
    }
    let percent = percent_of_drives(achieved, context);
    if percent.is_some_and(|percent| percent / 100.0 < OF_DRIVES) {
        return as_shallow(achieved, context);
    }
    // More than they gave alone was not theirs, or they were measured badly.
    if let Some(percent) = percent.filter(|percent| percent / 100.0 <= BEYOND_DRIVES) {
        let evidence =
            format!("{percent:.1} % of what the drives gave alone (limit {})", units::percent(OF_DRIVES));
        return Some(Finding::new(Limit::Drives, evidence));
    }
    // Twice or half the depth and the same figure: latency grew with the depth, which is what a full
    // queue does.
    let flat = context.depths.iter().find(|(in_flight, sibling)| {
        let far = *in_flight >= 2 * achieved.in_flight || 2 * *in_flight <= achieved.in_flight;
        let times = achieved.times(sibling).unwrap_or(0.0);
        far && (SAME..=FASTER).contains(&times)
    })?;
    let evidence = format!(
        "{} in flight gave {}, {:.2}× as much as {}: more requests wait longer and come no faster",
        flat.0,
        units::bandwidth(flat.1.bandwidth_bytes_per_s),
        achieved.times(&flat.1).unwrap_or(0.0),
        achieved.in_flight,
    );
    Some(Finding::new(Limit::Drives, evidence))
}
