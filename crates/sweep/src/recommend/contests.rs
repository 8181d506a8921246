//! What the blocks of a work recommend.

use measure::decide::{Answer, Bounds, Contrast, Gain as RaceGain, Outcome as RaceOutcome, Standing};

use crate::analysis::{Analysis, ContestSummary, Interval, PointSummary};
use crate::plan::Margin;

use super::choice::Varying;
use super::{Gain, Outcome, Recommendation, Tail, Undecided, is_beyond_noise};

/// The contest of these points, which are all of one work; none where they are spread over several constructions, and
/// so share no block.
pub(super) fn of<'a>(analysis: &'a Analysis, points: &[&PointSummary]) -> Option<&'a ContestSummary> {
    let first = points.first()?.point;
    let contest = analysis.contests.iter().find(|contest| contest.setting(first).is_some())?;
    (contest.points.len() == points.len()).then_some(contest)
}

/// Ratios up to this one tell something.
pub(super) const MOST_TELLING: f64 = 100.0;

/// What is recommended and how that came about; none where no candidate has a figure.
pub(super) fn judged<'p>(
    contest: &ContestSummary,
    candidates: &[&'p PointSummary],
    names: &Varying,
) -> Option<(&'p PointSummary, Recommendation)> {
    let point = |setting: usize| candidates.iter().copied().find(|p| p.point == contest.points[setting]);
    let (setting, tail) = recommended(contest, &point, names)?;
    let use_point = point(setting)?;
    let (outcome, undecided, within) = match contest.bandwidth.answer {
        Answer::Better { .. } => (Outcome::Better, None, None),
        Answer::Equivalent { within, .. } => (Outcome::Equivalent, None, within),
        Answer::Sufficient { at_most, more_blocks, .. } => {
            (Outcome::Sufficient, Some(Undecided { could_be: Some(at_most), more_blocks }), None)
        }
        Answer::Undecided { could_be, more_blocks, .. } => {
            // A few wide blocks bound nothing, and millions of times would be said of them.
            let could_be = could_be.filter(|ratio| *ratio <= MOST_TELLING);
            (Outcome::Undecided, Some(Undecided { could_be, more_blocks }), None)
        }
        Answer::Single { .. } => (Outcome::OnlyOne, None, None),
        Answer::Nothing => return None,
    };
    let better_than = |gain: RaceGain| of_gain(gain, use_point, &point, names);
    let runner_up = match contest.bandwidth.answer {
        Answer::Better { gain, .. } => gain.and_then(better_than),
        _ => None,
    };
    let fastest = fastest(&contest.bandwidth).and_then(point).unwrap_or(use_point);
    let found = Recommendation {
        fastest: Some(fastest.point),
        tied: contest.alive().collect(),
        within: within.map(interval),
        equivalence: Margin::of_part(contest.bandwidth.rules.equivalence).unwrap_or_default(),
        undecided,
        tail,
        blocks: Some(contest.bandwidth.blocks as u64),
        over_cheapest: over_cheapest(contest, setting, use_point, &point, names),
        over_runner_up: runner_up,
        ..Recommendation::nothing(&use_point.work, outcome, Vec::new())
    };
    Some((use_point, found))
}

/// The setting to use: what the 99th percentile prefers where bandwidths are equivalent, else what bandwidth does.
fn recommended<'p>(
    contest: &ContestSummary,
    point: &dyn Fn(usize) -> Option<&'p PointSummary>,
    names: &Varying,
) -> Option<(usize, Option<Tail>)> {
    let by_bandwidth = contest.bandwidth.recommended()?;
    let Some(latency) = &contest.latency_ns_p99 else { return Some((by_bandwidth, None)) };
    let alive = latency.settings.iter().filter(|setting| setting.standing == Standing::Alive);
    let tied: Vec<u32> = alive.map(|setting| contest.points[setting.setting]).collect();
    let tail = |outcome, gain| Some(Tail { outcome, gain, tied: tied.clone() });
    Some(match latency.answer {
        Answer::Better { winner, gain } => {
            let winning = point(winner)?;
            let gain = gain.and_then(|gain| of_gain(gain, winning, point, names));
            (winner, tail(Outcome::Better, gain))
        }
        // What the percentile has dropped is not recommended, even if it is the cheapest.
        Answer::Equivalent { reference, .. } => (reference, tail(Outcome::Equivalent, None)),
        Answer::Sufficient { reference, .. } => (reference, tail(Outcome::Sufficient, None)),
        Answer::Undecided { reference, .. } => (reference, tail(Outcome::Undecided, None)),
        Answer::Single { .. } | Answer::Nothing => (by_bandwidth, tail(Outcome::Undecided, None)),
    })
}

/// The setting with the highest estimate.
fn fastest(outcome: &RaceOutcome) -> Option<usize> {
    // Of a struck setting nothing is concluded.
    let counts = |setting: &Contrast| !matches!(setting.standing, Standing::Struck { .. });
    let ratio = |setting: &Contrast| setting.of_best.filter(|_| counts(setting)).map(|bounds| bounds.ratio);
    let compared = outcome.settings.iter().filter_map(|setting| Some((setting.setting, ratio(setting)?)));
    let best = compared.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(setting, _)| setting).or(outcome.recommended())
}

fn of_gain<'p>(
    gain: RaceGain,
    winner: &PointSummary,
    point: &dyn Fn(usize) -> Option<&'p PointSummary>,
    names: &Varying,
) -> Option<Gain> {
    let over = point(gain.over)?;
    let interval = interval(gain.bounds);
    Some(Gain {
        over: over.point,
        setting: names.difference(over, winner),
        ratio: gain.bounds.ratio,
        interval: Some(interval),
        beyond_noise: is_beyond_noise(Some(interval)),
    })
}

/// The recommended setting over the cheapest of all alternatives, where that one has lost. The interval is that of the
/// cheapest one against every setting that has not lost, the recommended one among them; the estimate is the recommended
/// one's own, which need not be the highest.
fn over_cheapest<'p>(
    contest: &ContestSummary,
    winner: usize,
    use_point: &PointSummary,
    point: &dyn Fn(usize) -> Option<&'p PointSummary>,
    names: &Varying,
) -> Option<Gain> {
    let cheapest = (0..contest.points.len()).find(|setting| point(*setting).is_some())?;
    let has_lost = matches!(contest.bandwidth.settings[cheapest].standing, Standing::Dropped { .. });
    if cheapest == winner || !has_lost {
        return None;
    }
    let over = point(cheapest)?;
    let of_best = contest.bandwidth.settings[cheapest].of_best?;
    let interval = Interval { low: 1.0 / of_best.high, high: 1.0 / of_best.low };
    let own = contest.bandwidth.settings[winner].of_best.map_or(1.0, |own| own.ratio);
    Some(Gain {
        over: over.point,
        setting: names.difference(over, use_point),
        ratio: (own / of_best.ratio).clamp(interval.low, interval.high),
        interval: Some(interval),
        beyond_noise: is_beyond_noise(Some(interval)),
    })
}

fn interval(bounds: Bounds) -> Interval {
    Interval { low: bounds.low, high: bounds.high }
}
