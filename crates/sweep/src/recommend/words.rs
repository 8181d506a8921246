//! Recommendations in sentences.

use crate::analysis::{Access, Analysis, Completeness, Interval, PointSummary};
use measure::stats::Movement;
use measure::warning::Severity;

use super::{Compromise, Gain, Ladder, Outcome, Recommendation, Tail, settings};

/// The first `n`, and how many more there are.
pub(super) fn at_most(mut items: Vec<String>, n: usize) -> Vec<String> {
    if items.len() > n {
        let more = items.len() - n;
        items.truncate(n);
        items.push(format!("and {more} more"));
    }
    items
}

/// `4 KiB random read, depth 32: passes 3 and 4 are missing`.
pub(super) fn missing(point: &PointSummary, completeness: &Completeness) -> String {
    let passes: Vec<String> = completeness
        .missing
        .iter()
        .filter(|m| m.point == point.point)
        .flat_map(|m| &m.passes)
        .map(u32::to_string)
        .collect();
    let (noun, verb) = if passes.len() == 1 { ("pass", "is") } else { ("passes", "are") };
    format!("{}: {noun} {} {verb} missing", point.label, list(&passes))
}

/// `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The codes of the warnings on the recommended runs. What they mean stands once, in the list of warnings; notes stand only there.
pub(super) fn warning_caveat(point: &PointSummary) -> Option<String> {
    let serious = point.warnings.iter().filter(|code| code.explain().severity == Severity::Warning);
    let codes: Vec<&str> = serious.map(|code| code.code()).collect();
    (!codes.is_empty()).then(|| format!("Warnings on its runs: {}.", codes.join(", ")))
}

/// Where the other way of seeking was not measured at the recommended depth, the sweep cannot say which of
/// the two made the difference. The papers' test types are of this kind: 1 and 2 seek in sequence at depth 1 only.
pub(super) fn seeking_caveat(point: &PointSummary, candidates: &[&PointSummary]) -> Option<String> {
    if point.class().access != Access::Sequential {
        return None;
    }
    let other: Vec<&&PointSummary> = candidates.iter().filter(|p| p.rw != point.rw).collect();
    if other.is_empty() || other.iter().any(|p| p.in_flight() == point.in_flight()) {
        return None;
    }
    let mut depths: Vec<u32> = other.iter().map(|p| p.iodepth).collect();
    depths.sort_unstable();
    depths.dedup();
    let depths: Vec<String> = depths.iter().map(u32::to_string).collect();
    Some(format!(
        "{} was measured at depth {} only; at depth {} it may do as well or better, so take the depth from here and the seeking \
         from the application.",
        if point.rw.starts_with("rand") { "Sequential seeking" } else { "Random seeking" },
        list(&depths),
        point.iodepth
    ))
}

/// `3.12×`; `1.004×` close to one.
#[must_use]
pub fn times(ratio: f64) -> String {
    match ratio {
        r if (r - 1.0).abs() < 0.095 => format!("{r:.3}×"),
        r if r >= 99.5 => format!("{r:.0}×"),
        r => format!("{r:.2}×"),
    }
}

/// `3.12× (3.05–3.19)`.
pub(crate) fn gain(gain: &Gain) -> String {
    ratio(gain.ratio, gain.interval)
}

/// The same of any ratio.
#[must_use]
pub fn ratio(ratio: f64, interval: Option<Interval>) -> String {
    match interval {
        Some(interval) => {
            let (low, high) = (times(interval.low), times(interval.high));
            format!("{} ({}–{})", times(ratio), low.trim_end_matches('×'), high.trim_end_matches('×'))
        }
        None => times(ratio),
    }
}

/// The whole recommendation in a sentence or two.
pub(super) fn sentence(r: &Recommendation) -> String {
    let work = r.work.label();
    let Some(setting) = &r.setting else {
        return match r.outcome {
            Outcome::Incomplete => {
                format!("{work}: nothing is recommended, because runs are missing.")
            }
            _ => format!("{work}: nothing is recommended, because no run is usable."),
        };
    };
    let figure = r.bandwidth.map_or_else(String::new, |b| units::bandwidth(b.mean));
    let mut text = match r.outcome {
        Outcome::Equivalent => format!("{work}: use {setting}{}: {figure}", equivalent(r)),
        Outcome::Undecided => {
            format!("{work}: undecided{}; until then use {setting}: {figure}", undecided(r))
        }
        Outcome::Sufficient => {
            format!("{work}: use {setting}{}: {figure}", sufficient(r))
        }
        Outcome::OnlyOne => format!("{work}: {setting} is the only setting measured: {figure}"),
        _ => format!("{work}: use {setting}: {figure}"),
    };
    if let Some(over) = &r.over_cheapest {
        text += &format!(", {} that of {}", gain(over), over.setting);
    }
    if let Some(over) = r
        .over_runner_up
        .as_ref()
        .filter(|up| r.over_cheapest.as_ref().is_none_or(|cheapest| cheapest.over != up.over))
    {
        text += &format!(", {} the runner-up's, {}", gain(over), over.setting);
    }
    text.push('.');
    if let Some(knee) = r.knee.as_ref().filter(|k| k.at.iodepth < k.best.iodepth) {
        text += &format!(
            " Depth {} already gives {} of the best, with a p99 latency of {} instead of {} at depth {}.",
            knee.at.iodepth,
            units::percent(knee.of_best),
            units::nanoseconds(knee.at.latency_ns_p99),
            units::nanoseconds(knee.best.latency_ns_p99),
            knee.best.iodepth
        );
    }
    text
}

/// `, of 3 settings with equivalent bandwidth (−1.2 % to +3.4 %) the one with the lowest p99 latency: that of depth 32 is 1.90× (1.75–2.06)`.
fn equivalent(r: &Recommendation) -> String {
    let range = r
        .within
        .map_or_else(String::new, |i| format!(" ({} to {})", signed_percent(i.low), signed_percent(i.high)));
    let among = format!("{} settings with equivalent bandwidth{range}", r.tied.len());
    match &r.tail {
        Some(Tail { outcome: Outcome::Better, gain: Some(over), .. }) => format!(
            ", of {among} the one with the lowest p99 latency: that of {} is {}",
            over.setting,
            gain(over)
        ),
        Some(Tail { outcome: Outcome::Better, .. }) => {
            format!(", of {among} the one with the lowest p99 latency")
        }
        Some(Tail { tied, .. }) if !tied.is_empty() && tied.len() < r.tied.len() => {
            format!(", of {among} the simplest of the {} with the lowest p99 latency", tied.len())
        }
        Some(Tail { outcome: Outcome::Equivalent, .. }) => {
            format!(", the simplest of {among} and equivalent p99 latency")
        }
        Some(Tail { outcome: Outcome::Sufficient, .. }) => {
            let margin = r.equivalence;
            let which = if r.point == r.tied.first().copied() { "the simplest" } else { "one" };
            format!(", {which} of {among}; no other p99 latency is more than {margin} better")
        }
        Some(_) => format!(", the simplest of {among}; their p99 latencies are undecided"),
        None => format!(", the simplest of {among}"),
    }
}

/// `−1.2 %`, `+3.4 %`: a ratio's distance from 1.
fn signed_percent(ratio: f64) -> String {
    let sign = if ratio < 1.0 { "−" } else { "+" };
    format!("{sign}{}", units::percent((ratio - 1.0).abs()))
}

/// `, the simplest of 3 settings, none of which is more than 3.9 % faster`; or, where the simplest is not sufficient,
/// `, which is enough: none of 2 other settings is more than 3.9 % faster`.
fn sufficient(r: &Recommendation) -> String {
    let margin = margin(r);
    match r.tied.len() {
        0 | 1 => format!(", which is enough: no other setting is more than {margin} faster"),
        several if r.point == r.tied.first().copied() => {
            format!(", the simplest of {several} settings, none of which is more than {margin} faster")
        }
        2 => format!(", which is enough: the other setting that is left is at most {margin} faster"),
        several => {
            format!(", which is enough: none of {} other settings is more than {margin} faster", several - 1)
        }
    }
}

/// By how much another setting is faster at most, where one is sufficient.
pub(crate) fn margin(r: &Recommendation) -> String {
    let most = r.undecided.and_then(|far| far.could_be).unwrap_or(1.0);
    units::percent(most - 1.0)
}

/// ` between 3 settings after 7 blocks: another one could be up to 1.50× as fast; about 14 more blocks (5 to 46) would tell`.
fn undecided(r: &Recommendation) -> String {
    let mut text = match r.tied.len() {
        0 | 1 => String::new(),
        several => format!(" between {several} settings"),
    };
    if let Some(blocks) = r.blocks {
        text += &format!(" after {blocks} {}", if blocks == 1 { "block" } else { "blocks" });
    }
    let Some(far) = &r.undecided else { return text };
    if let Some(ratio) = far.could_be {
        text += &format!(": another one could be up to {} as fast", times(ratio));
    }
    if let Some(more) = far.more_blocks {
        text += &format!("; about {} more blocks ({} to {}) would tell", more.likely, more.low, more.high);
    }
    text
}

/// What bears on a comparison of points that share no block.
pub(super) fn not_interleaved(movement: Option<&Movement>) -> String {
    let counted = movement.map_or_else(String::new, |movement| {
        format!(
            " One is called better only beyond what the machine moved from block to block on each ({}, SD); what moved between them alone \
             counts as a difference.",
            units::percent(movement.sd)
        )
    });
    format!("These settings were measured one construction after the other and share no block.{counted}")
}

/// The answer of the whole sweep in one sentence.
#[must_use]
pub fn headline(
    analysis: &Analysis,
    recommendations: &[Recommendation],
    compromise: Option<&Compromise>,
    ladders: &[Ladder],
) -> String {
    let completeness = &analysis.completeness;
    if completeness.done == 0 {
        return "No run has finished, so there is nothing to say yet.".to_owned();
    }
    let is_settled = |r: &&Recommendation| {
        matches!(r.outcome, Outcome::Better | Outcome::Equivalent | Outcome::Sufficient)
    };
    let settled: Vec<&Recommendation> = recommendations.iter().filter(is_settled).collect();
    let open: Vec<&Recommendation> =
        recommendations.iter().filter(|r| r.outcome == Outcome::Undecided).collect();
    let mut sentence = if settled.is_empty() && compromise.is_none() && open.is_empty() {
        "There is nothing to recommend".to_owned()
    } else if settled.is_empty() && compromise.is_none() {
        "Nothing is decided yet".to_owned()
    } else if let Some(compromise) = compromise {
        sets(compromise, ladders)
    } else {
        uses(&settled)
    };
    if !open.is_empty() {
        sentence += &format!("; {}", open_works(&open));
    }
    if !completeness.is_complete() {
        let missing = completeness.planned - completeness.done;
        let (verb, they) = if missing == 1 { ("is", "it is") } else { ("are", "they are") };
        sentence += &format!(
            "; {missing} of {} runs {verb} missing, and nothing is concluded where {they}",
            completeness.planned
        );
    } else if settled.is_empty()
        && open.is_empty()
        && recommendations.iter().any(|r| r.outcome == Outcome::NoFigure)
    {
        sentence += ", because the runs are void";
    } else if settled.is_empty() && open.is_empty() {
        sentence += ": there are no settings to compare";
    }
    sentence.push('.');
    sentence
}

/// `undecided: random reads (up to 1.50×), random writes`.
fn open_works(open: &[&Recommendation]) -> String {
    let works: Vec<String> = open
        .iter()
        .map(|r| {
            let far = r.undecided.as_ref().and_then(|undecided| undecided.could_be);
            let far = far.map_or_else(String::new, |ratio| format!(" (a gain of up to {})", times(ratio)));
            format!("{}{far}", r.work.label().to_lowercase())
        })
        .collect();
    let shown = at_most(works, 4);
    format!("undecided: {}", list(&shown))
}

/// `Set md-raid0, 16 drives, chunk=256k and scheduler=none: 13.7× the baseline for random reads, …`.
fn sets(compromise: &Compromise, ladders: &[Ladder]) -> String {
    let named = settings::named(compromise, |setting| setting.matters == Some(true));
    let mut text = if named.is_empty() {
        "No layout was shown to be better than another: leave it as it is".to_owned()
    } else {
        format!("Set {}", list(&named))
    };
    let gains: Vec<String> = ladders
        .iter()
        .filter(|ladder| ladder.total() > 1.0)
        .take(4)
        .map(|ladder| format!("{} for {}", times(ladder.total()), ladder.work.class.label().to_lowercase()))
        .collect();
    if !gains.is_empty() {
        text += &format!(". The best for each kind of work, by the baseline: {}", list(&gains));
    }
    text
}

/// `For sequential reads, use depth 16; for random reads, depth 128 – 3.1× the bandwidth of …`.
fn uses(settled: &[&Recommendation]) -> String {
    let ratio = |r: &Recommendation| r.over_cheapest.as_ref().map_or(1.0, |gain| gain.ratio);
    // Settings that several kinds of work share are named once.
    let mut shared: Vec<(String, Vec<String>)> = Vec::new();
    for r in settled.iter().take(6) {
        let setting = r.setting.clone().unwrap_or_default();
        let label = r.work.label();
        let single = settled.iter().filter(|s| s.work.class == r.work.class).count() == 1;
        let work = if single { r.work.class.label() } else { label };
        let work = work.to_lowercase();
        match shared.iter_mut().find(|(s, _)| *s == setting) {
            Some((_, works)) => works.push(work),
            None => shared.push((setting, vec![work])),
        }
    }
    let part = |(i, (setting, works)): (usize, &(String, Vec<String>))| {
        let verb = if i == 0 { "use " } else { "" };
        let (lead, setting) = (
            if i == 0 { "For" } else { "for" },
            list(&setting.split(", ").map(str::to_owned).collect::<Vec<_>>()),
        );
        format!("{lead} {}, {verb}{setting}", list(works))
    };
    let parts: Vec<String> = shared.iter().enumerate().map(part).collect();
    let mut text = parts.join("; ");
    if settled.len() > 6 {
        text += &format!("; and see {} more below", settled.len() - 6);
    }
    let most = settled.iter().copied().max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    if let Some((r, gain)) = most.and_then(|r| Some((r, r.over_cheapest.as_ref()?)))
        && gain.beyond_noise
        && gain.ratio > 1.0
    {
        let kind = r.work.class.label().to_lowercase();
        text += &format!(" – {} the bandwidth of {} for {kind}", times(gain.ratio), gain.setting);
    }
    text
}
