//! What changed between two sessions, each of which measured the same settings in blocks.
//!
//! From one session to the next a machine's *levels* move far more than figures scatter within a session: by 8 to
//! 11 % (SD) where it was measured. So a change of a level is shown without a verdict. What a setting gains over
//! another one moves less, by 1 to 2 %. A comparison therefore takes each setting's *contrast*, its figure by that of
//! a reference setting in the same session, and counts the session as a random effect with SD τ: the variance of a
//! contrast's change is that of both sessions' blocks plus 2τ².
//!
//! A change is *better* or *worse* if its interval excludes 1, at the level 1 − α/m for m contrasts that are compared
//! together; *equivalent* if the interval at 1 − 2α lies within the margin; else *undecided*. If the reference itself
//! changed, all other settings seem to change the other way: two sessions cannot tell these apart.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::analysis::{Pair, Pairs, analyse};
use super::{Bounds, Race, Rules};
use crate::stats::Direction;
use crate::stats::special::t_multiplier;

/// The SD of a contrast between sessions where it is not estimated.
pub const DEFAULT_TAU: f64 = crate::stats::apart::LEAST_MOVEMENT;
/// Sessions of which τ can be estimated.
pub const TAU_MIN_SESSIONS: usize = 3;
/// Degrees of freedom that the default keeps beside an estimate.
const DEFAULT_TAU_FREEDOM: f64 = 2.0;
/// Blocks that a contrast needs in each session.
const MIN_BLOCKS: usize = 3;

/// A block's runs in the order in which they were made: setting and figure.
pub type Block = Vec<(usize, f64)>;

/// How far contrasts move from session to session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tau {
    /// SD of a contrast between sessions: 0.02 for 2 %.
    pub sd: f64,
    /// Degrees of freedom of the estimate; none for the default, which is taken as known.
    pub freedom: Option<f64>,
    /// Sessions that it was estimated from; 0 for the default.
    pub sessions: usize,
}

impl Default for Tau {
    fn default() -> Self {
        Self { sd: DEFAULT_TAU, freedom: None, sessions: 0 }
    }
}

/// What came of a comparison of two sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShiftVerdict {
    /// Better in the second session.
    Better,
    /// Worse in the second session.
    Worse,
    /// Within the margin of equivalence.
    Equivalent,
    /// Neither is shown.
    Undecided,
    /// Fewer than three blocks have both the setting and the reference.
    NotEnoughData,
}

/// The change of one setting's contrast from the first session to the second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shift {
    /// Figure by the reference's figure in the second session, by the same in the first, with the interval that the
    /// verdict rests on. None without a verdict. Of latencies a ratio below 1 is better.
    pub bounds: Option<Bounds>,
    /// What came of it.
    pub verdict: ShiftVerdict,
}

/// The contrasts of a session against `reference`, none for the reference and for too few blocks. Larger is better.
fn contrasts(settings: usize, reference: usize, blocks: &[Block], rules: &Rules) -> Vec<Option<Pair>> {
    let mut race = Race::new(settings, Rules { stops: false, ..*rules });
    blocks.iter().for_each(|block| race.block(block));
    let with_reference = Pairs::With(reference);
    let analysis = analyse(&race.blocks, settings, race.alive(), with_reference, rules.steps);
    let mut pairs = analysis.into_iter().flat_map(|analysis| analysis.pairs);
    let mut contrast = |setting: usize| {
        if setting == reference {
            return None;
        }
        let pair = pairs.next()?.filter(|pair| pair.blocks >= MIN_BLOCKS)?;
        let sign = if setting < reference { 1.0 } else { -1.0 };
        Some(Pair { difference: sign * pair.difference, ..pair })
    };
    (0..settings).map(&mut contrast).collect()
}

/// Compares two sessions of `settings` settings by their contrasts against `reference`; `family` is the number of
/// contrasts that are compared together, over all such calls.
#[must_use]
pub fn compare(
    settings: usize,
    reference: usize,
    [first, second]: [&[Block]; 2],
    rules: &Rules,
    tau: &Tau,
    family: usize,
) -> Vec<Shift> {
    let first = contrasts(settings, reference, first, rules);
    let second = contrasts(settings, reference, second, rules);
    first.into_iter().zip(second).map(|(a, b)| shift(a, b, rules, tau, family)).collect()
}

fn shift(first: Option<Pair>, second: Option<Pair>, rules: &Rules, tau: &Tau, family: usize) -> Shift {
    let (Some(first), Some(second)) = (first, second) else {
        return Shift { bounds: None, verdict: ShiftVerdict::NotEnoughData };
    };
    let change = second.difference - first.difference;
    let of_session = 2.0 * tau.sd * tau.sd;
    let variance = first.variance + second.variance + of_session;
    // Welch and Satterthwaite.
    let freedom = variance * variance
        / (first.variance * first.variance / first.freedom
            + second.variance * second.variance / second.freedom
            + tau.freedom.map_or(0.0, |freedom| of_session * of_session / freedom));
    let half = |alpha: f64| t_multiplier(1.0 - alpha, freedom.min(1e9)) * variance.sqrt();
    let of_difference = half(rules.alpha / family.max(1) as f64);
    let of_equivalence = half(2.0 * rules.alpha);
    let (verdict, half) = if change > of_difference {
        (ShiftVerdict::Better, of_difference)
    } else if change < -of_difference {
        (ShiftVerdict::Worse, of_difference)
    } else if change.abs() + of_equivalence <= rules.equivalence.ln_1p() {
        (ShiftVerdict::Equivalent, of_equivalence)
    } else {
        (ShiftVerdict::Undecided, of_difference)
    };
    // Inside, larger is better; outside, a ratio is that of the figures themselves.
    let sign = if rules.direction == Direction::LowerIsBetter { -1.0 } else { 1.0 };
    let ends = [sign * change - half, sign * change + half];
    Shift { bounds: Bounds::of_ln(sign * change, ends[0], ends[1]), verdict }
}

/// Estimates τ from sessions of the same settings under the same circumstances, three or more; None for fewer. Each
/// session has a list of works, and each work its number of settings, its reference and its blocks.
///
/// The variance of each contrast between sessions, less that of its blocks, is averaged over the contrasts and drawn
/// towards the default: contrasts of few sessions may lie close together by chance.
#[must_use]
pub fn estimate_tau(sessions: &[Vec<(usize, usize, Vec<Block>)>], rules: &Rules) -> Option<Tau> {
    if sessions.len() < TAU_MIN_SESSIONS {
        return None;
    }
    let by_session: Vec<Vec<Option<Pair>>> = sessions
        .iter()
        .map(|works| {
            let of_works = works
                .iter()
                .flat_map(|(settings, reference, blocks)| contrasts(*settings, *reference, blocks, rules));
            of_works.collect()
        })
        .collect();
    let contrasts = by_session.iter().map(Vec::len).min()?;
    let (mut sum, mut count) = (0.0, 0.0);
    for at in 0..contrasts {
        let of_one: Option<Vec<Pair>> = by_session.iter().map(|session| session[at]).collect();
        let Some(of_one) = of_one else { continue };
        let differences: Vec<f64> = of_one.iter().map(|pair| pair.difference).collect();
        let within = of_one.iter().map(|pair| pair.variance).sum::<f64>() / of_one.len() as f64;
        let between = crate::stats::describe::sample_sd(&differences)?.powi(2);
        sum += between - within;
        count += 1.0;
    }
    if count == 0.0 {
        return None;
    }
    let freedom = sessions.len() as f64 - 1.0;
    let estimate = (sum / count).max(0.0);
    let variance = (freedom * estimate + DEFAULT_TAU_FREEDOM * DEFAULT_TAU * DEFAULT_TAU)
        / (freedom + DEFAULT_TAU_FREEDOM);
    Some(Tau { sd: variance.sqrt(), freedom: Some(freedom + DEFAULT_TAU_FREEDOM), sessions: sessions.len() })
}
