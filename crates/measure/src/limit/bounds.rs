//! Bounds with a number of their own: control groups, heat, links.

use super::evidence::{Seen, median, ratio};
use super::members::SLOWER;
use super::{Finding, Limit};
use crate::WarningCode;
use crate::record::{DriveCounts, Throttle};

/// A rate of at least this part of what is allowed runs against the limit.
const AT_THROTTLE: f64 = 0.90;
/// A rate beyond this part of what is allowed shows that the limit does not hold here.
const BEYOND_THROTTLE: f64 = 1.15;
/// Requests that a throttle lets through at once after idle time (seen: about 100).
const BURST: f64 = 150.0;
/// Packet headers take 5 to 18 percent of a link, by payload size (PCI Express Base Specification 6.0, §2.2);
/// SATA frames about 8.
const AT_LINK: f64 = 0.85;
/// More than a link can carry did not pass through it.
const BEYOND_LINK: f64 = 1.02;

/// A control group's limit, or heat.
///
/// Of the members of an array all must run against theirs, or it is the difference that limits.
pub(super) fn throttle(seen: &Seen<'_>) -> Vec<Finding> {
    let throttles = &seen.record.bounds.throttles;
    let bound: Vec<(&Throttle, String)> =
        throttles.iter().filter_map(|throttle| Some((throttle, at_limit(seen, throttle)?))).collect();
    let mut findings = Vec::new();
    if !bound.is_empty() {
        let is_bound = |name: &str| bound.iter().any(|(throttle, _)| throttle.device == name);
        let on_members = seen.members.iter().filter(|m| is_bound(m.name())).count();
        let others = bound.iter().any(|(t, _)| seen.members.iter().all(|m| m.name() != t.device));
        let evidence: Vec<&str> = bound.iter().take(3).map(|(_, words)| words.as_str()).collect();
        let more = if bound.len() > 3 { format!("; and {} more", bound.len() - 3) } else { String::new() };
        let evidence = format!("{}{more}", evidence.join("; "));
        let throttle = Finding::new(Limit::Throttle, evidence.clone());
        let n = seen.members.len();
        if !others && on_members < n {
            let words = format!("{on_members} of {n} drives ran against a throttle: {evidence}");
            findings.push(Finding::new(Limit::UnbalancedDrives, words));
        } else if !others && let Some(lowest) = uneven(&bound) {
            let words = format!("the throttles of the {n} drives differ: {lowest}");
            findings.push(Finding::new(Limit::UnbalancedDrives, words));
        }
        findings.push(throttle);
    }
    findings.extend(heat(seen));
    findings
}

/// The lowest of several limits of one kind, where it is well below the others.
fn uneven(bound: &[(&Throttle, String)]) -> Option<String> {
    let lowest = bound.iter().min_by_key(|(throttle, _)| throttle.per_second)?;
    let alike = || bound.iter().filter(|(throttle, _)| throttle.what == lowest.0.what);
    let usual = median(alike().map(|(throttle, _)| throttle.per_second as f64));
    let is_low = (lowest.0.per_second as f64) <= SLOWER * usual;
    (alike().count() > 1 && is_low).then(|| lowest.1.clone())
}

/// What was seen of a limit's device, where it comes to what is allowed.
fn at_limit(seen: &Seen<'_>, throttle: &Throttle) -> Option<String> {
    let counts = seen.record.drives.iter().find(|d| d.name == throttle.device);
    let asked = asked(seen);
    let (count, unit) = counted(counts.unwrap_or(&asked), &throttle.what)?;
    let allowed = throttle.per_second as f64;
    if allowed <= 0.0 || seen.window_s <= 0.0 {
        return None;
    }
    let rate = count / seen.window_s;
    let burst = if unit == Unit::Requests { BURST } else { 0.0 };
    let most = allowed * BEYOND_THROTTLE + burst / seen.window_s;
    (rate >= allowed * AT_THROTTLE && rate <= most).then(|| {
        let figure = |value: f64| match unit {
            Unit::Bytes => units::bandwidth(value),
            Unit::Requests => units::iops(value),
        };
        format!(
            "{} did {} of the {} that {} allows ({}; limit {})",
            throttle.device,
            figure(rate),
            figure(allowed),
            throttle.source,
            units::percent(rate / allowed),
            units::percent(AT_THROTTLE),
        )
    })
}

/// What the jobs asked for, as a device would count it that all of it passes through: some layers never
/// count (md before Linux 5.14), and a layer with a limit is one that all requests pass through.
fn asked(seen: &Seen<'_>) -> DriveCounts {
    let record = seen.record;
    let longer = ratio(seen.window_s * 1e9, record.interval_ns as f64);
    let scaled = |count: u64| (count as f64 * longer) as u64;
    DriveCounts {
        read_ios: scaled(record.read.ios),
        read_bytes: scaled(record.read.bytes),
        write_ios: scaled(record.write.ios),
        write_bytes: scaled(record.write.bytes),
        ..DriveCounts::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Requests,
}

fn counted(counts: &DriveCounts, what: &str) -> Option<(f64, Unit)> {
    Some(match what {
        "read_bps" => (counts.read_bytes as f64, Unit::Bytes),
        "write_bps" => (counts.write_bytes as f64, Unit::Bytes),
        "read_iops" => (counts.read_ios as f64, Unit::Requests),
        "write_iops" => (counts.write_ios as f64, Unit::Requests),
        _ => return None,
    })
}

/// A drive above its warning temperature whose rate fell within the run. One without the other is no
/// proof: drives are built to run warm, and rates fall for other reasons.
fn heat(seen: &Seen<'_>) -> Option<Finding> {
    let message = |code| seen.record.warnings.iter().find(|w| w.code == code).map(|w| &w.message);
    let (heat, fall) = (message(WarningCode::Heat)?, message(WarningCode::Unsteady)?);
    let rates: Vec<u64> =
        seen.record.samples.iter().map(|s| s.read_bytes.saturating_add(s.write_bytes)).collect();
    let (first, last) = rates.split_at(rates.len() / 2);
    let mean = |part: &[u64]| ratio(part.iter().map(|b| *b as f64).sum(), part.len() as f64);
    (mean(last) < mean(first))
        .then(|| Finding::new(Limit::Throttle, format!("{heat}, and the rate fell: {fall}")))
}

/// A link at its capacity. In a virtual machine links are the emulator's and carry nothing.
pub(super) fn link(seen: &Seen<'_>) -> Option<Finding> {
    if seen.record.host.virtualization.is_some() || seen.window_s <= 0.0 {
        return None;
    }
    let moved = |name: &String| {
        let counts = seen.record.drives.iter().find(|d| d.name == *name)?;
        // Links carry both directions at once.
        Some((counts.read_bytes as f64, counts.write_bytes as f64))
    };
    let links = seen.record.bounds.links.iter().filter(|link| link.bytes_per_s > 0.0);
    let full = links.filter_map(|link| {
        let counts = link.devices.iter().map(moved).collect::<Option<Vec<_>>>()?;
        let (read, write) = counts.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let rate = f64::max(read, write) / seen.window_s;
        let part = rate / link.bytes_per_s;
        (AT_LINK..=BEYOND_LINK).contains(&part).then_some((link, rate, part))
    });
    let (link, rate, part) = full.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let whose = match link.devices.as_slice() {
        [only] => only.clone(),
        several => format!("{} drives", several.len()),
    };
    let evidence = format!(
        "{} of {whose} through {} ({}), which carries {} before headers ({}; limit {})",
        units::bandwidth(rate),
        link.address,
        link.kind,
        units::bandwidth(link.bytes_per_s),
        units::percent(part),
        units::percent(AT_LINK),
    );
    Some(Finding::new(Limit::Link, evidence))
}
