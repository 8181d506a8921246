//! Which passes count: the papers' cleaning (DASH-IO §3.2), with what it cannot do said beside it.
//!
//! The papers repeat each test five times, look for outliers with Chauvenet's criterion (1155 of
//! 16,800), see that the first pass is off the trend, drop it, look again, and find none. This
//! module does the same in the order that they arrived at:
//!
//! 1. Samples that are not finite numbers are set aside.
//! 2. The first pass or passes are set aside ([`CleaningRules::discard_first`]): they measure the state
//!    that the drive was left in.
//! 3. Of the n that are left, those further from their mean than z sample deviations are set aside,
//!    where n·erfc(z/√2) = 1/2 ([`chauvenet_limit`]). Once, not repeatedly: what is left after a
//!    rejection has a smaller deviation, and repeating it eats good data.
//!
//! **When it cannot fire.** Among n samples none lies further than (n − 1)/√n sample deviations
//! from the mean ([`largest_possible_deviation`]; Thompson 1935, Samuelson 1968). For n = 4 that is
//! 1.5, and Chauvenet's limit is 1.534: with four samples left, whatever they are, nothing is ever
//! rejected. So the papers' "no outliers at all" after dropping one pass of five holds of any data.
//! [`ChauvenetFacts::can_fire`] says so for every point; from n = 5 on the criterion can speak.
//!
//! **When it fires without cause.** Of five passes of pure normal noise it sets one aside at 13.5 %
//! of points (2.7 % of samples; Thompson's distribution, and simulated in
//! `tests/stats_coverage.rs`). A count of outliers near that says nothing about the drive.
//!
//! **Beside it** stands a robust verdict that one outlier cannot hide from by widening the deviation:
//! |x − median| / MAD above 14.826, hyperfine's limit: ten sd of normal data, whose MAD is sd/1.4826.
//! The MAD here is unscaled. It is shown, and rejects only where [`CleaningRules::criterion`] says so.
//!
//! Nothing is lost: every pass that came in is in [`Cleaned::passes`], with its figures and the
//! reason why it does not count.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::describe::{Description, describe, finite, mad_around, median, z_scores};
use super::special::normal_two_sided;

/// hyperfine's limit: 10 · 1.4826 unscaled MADs (its `outlier_detection.rs`).
pub const MAD_LIMIT: f64 = 14.826;

/// Chauvenet's limit in sample deviations: the z with n·erfc(z/√2) = 1/2, beyond which half a
/// sample of n is to be expected. Infinite for n = 0.
#[must_use]
pub fn chauvenet_limit(n: usize) -> f64 {
    if n == 0 { f64::INFINITY } else { normal_two_sided(0.5 / n as f64) }
}

/// The largest distance from the mean, in sample deviations, that one of n samples can have: (n −
/// 1)/√n.
#[must_use]
pub fn largest_possible_deviation(n: usize) -> f64 {
    if n == 0 { 0.0 } else { (n - 1) as f64 / (n as f64).sqrt() }
}

/// Whether any n samples exist of which Chauvenet's criterion rejects one: from n = 5 on.
#[must_use]
pub fn chauvenet_can_fire(n: usize) -> bool {
    largest_possible_deviation(n) > chauvenet_limit(n)
}

/// What sets a sample aside once the first passes are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// Chauvenet's, as the papers did.
    #[default]
    Chauvenet,
    /// |x − median| / MAD above [`MAD_LIMIT`].
    Mad,
    /// Nothing; both verdicts are still shown.
    None,
}

/// How to clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CleaningRules {
    /// Passes set aside from the front, all of them where there are no more; the papers' 1.
    pub discard_first: u32,
    /// What rejects among the others.
    pub criterion: Criterion,
}

impl Default for CleaningRules {
    fn default() -> Self {
        Self { discard_first: 1, criterion: Criterion::Chauvenet }
    }
}

/// Why a pass does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SetAside {
    /// Its figure is not a finite number.
    NotFinite,
    /// It is one of the first, which measure the state the drive was left in.
    FirstPass,
    /// Chauvenet's criterion.
    Chauvenet,
    /// Too many MADs from the median.
    Mad,
}

impl SetAside {
    /// The reason in a report's words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotFinite => "not a finite number",
            Self::FirstPass => "first pass",
            Self::Chauvenet => "Chauvenet's criterion",
            Self::Mad => "MAD criterion",
        }
    }
}

/// The robust verdict on one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MadVerdict {
    /// Within [`MAD_LIMIT`].
    Typical,
    /// Beyond it.
    Outlier,
    /// It differs, but more than half of the samples are equal, so the MAD is 0 and gives no scale to
    /// judge by.
    NoScale,
    /// It was not judged: it is not finite, or fewer than three samples are left.
    NotJudged,
}

/// One pass, as judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassVerdict {
    /// Which repetition, from 1.
    pub pass: u32,
    /// Its figure; none where it is not a finite number.
    pub value: Option<f64>,
    /// Distance from the mean of all finite passes, in their sample deviations, signed.
    pub z_all_passes: Option<f64>,
    /// Distance from the mean of the passes that Chauvenet's criterion judged (those after the
    /// first ones), in their sample deviations, signed. None for a pass that it did not judge.
    pub z: Option<f64>,
    /// Distance from the median of the judged passes in unscaled MADs of theirs, signed. First
    /// passes are measured by the same rule. None where the MAD is 0 and the pass differs from the
    /// median.
    pub mads: Option<f64>,
    /// What that distance says.
    pub mad_verdict: MadVerdict,
    /// Why it does not count; none where it does.
    pub set_aside: Option<SetAside>,
}

/// What Chauvenet's criterion had to go by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChauvenetFacts {
    /// Samples judged.
    pub n: usize,
    /// The limit for n, in sample deviations; none for n = 0.
    pub limit: Option<f64>,
    /// The largest deviation that n samples can have.
    pub largest_possible: f64,
    /// Whether the criterion can reject anything at this n; if not, "no outliers" says nothing.
    pub can_fire: bool,
    /// Samples beyond the limit.
    pub outliers: usize,
}

/// One point's passes, cleaned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cleaned {
    /// The rules applied.
    pub rules: CleaningRules,
    /// Every pass that came in, in order.
    pub passes: Vec<PassVerdict>,
    /// The figures that count, in order.
    pub retained: Vec<f64>,
    /// All finite passes described: the papers' Fig. 6 is its `cv`.
    pub before: Option<Description>,
    /// The retained passes described: Fig. 7.
    pub after: Option<Description>,
    /// The criterion on all finite passes, first ones included.
    pub chauvenet_all_passes: ChauvenetFacts,
    /// The criterion on the passes after the first ones.
    pub chauvenet: ChauvenetFacts,
    /// Passes after the first ones that the MAD verdict flags.
    pub mad_outliers: usize,
}

impl Cleaned {
    /// The passes that do not count.
    pub fn set_aside(&self) -> impl Iterator<Item = &PassVerdict> {
        self.passes.iter().filter(|p| p.set_aside.is_some())
    }

    /// Passes that a criterion rejected: set aside, and neither first nor void.
    #[must_use]
    pub fn rejected(&self) -> usize {
        let by_criterion =
            |p: &&PassVerdict| matches!(p.set_aside, Some(SetAside::Chauvenet | SetAside::Mad));
        self.passes.iter().filter(by_criterion).count()
    }
}

/// Cleans one point: `passes` are its figures in the order in which they were run.
#[must_use]
pub fn clean(passes: &[f64], rules: &CleaningRules) -> Cleaned {
    let first = usize::try_from(rules.discard_first).unwrap_or(usize::MAX);
    let all = Group::of(passes, |_| true);
    let judged = Group::of(passes, |position| position >= first);
    let mut verdicts = Vec::with_capacity(passes.len());
    let (mut retained, mut mad_outliers) = (Vec::new(), 0);
    for (position, &value) in passes.iter().enumerate() {
        let (mads, mad_verdict) = judged.mad_verdict(value);
        let set_aside = if !value.is_finite() {
            Some(SetAside::NotFinite)
        } else if position < first {
            Some(SetAside::FirstPass)
        } else {
            mad_outliers += usize::from(mad_verdict == MadVerdict::Outlier);
            match rules.criterion {
                Criterion::Chauvenet => judged.is_outlier(position).then_some(SetAside::Chauvenet),
                Criterion::Mad => (mad_verdict == MadVerdict::Outlier).then_some(SetAside::Mad),
                Criterion::None => None,
            }
        };
        if set_aside.is_none() {
            retained.push(value);
        }
        verdicts.push(PassVerdict {
            pass: u32::try_from(position + 1).unwrap_or(u32::MAX),
            value: finite(value),
            z_all_passes: all.z(position),
            z: judged.z(position),
            mads,
            mad_verdict,
            set_aside,
        });
    }
    Cleaned {
        rules: *rules,
        passes: verdicts,
        before: describe(&all.values),
        after: describe(&retained),
        retained,
        chauvenet_all_passes: all.facts(),
        chauvenet: judged.facts(),
        mad_outliers,
    }
}

/// The finite passes at some positions, and their distances.
struct Group {
    /// Their figures.
    values: Vec<f64>,
    /// By position in the input: the z of a member.
    z: Vec<Option<f64>>,
    limit: f64,
    /// Median and unscaled MAD.
    centre: Option<(f64, f64)>,
}

impl Group {
    fn of(passes: &[f64], member: impl Fn(usize) -> bool) -> Self {
        let is_member = |(position, value): &(usize, &f64)| member(*position) && value.is_finite();
        let values: Vec<f64> = passes.iter().enumerate().filter(is_member).map(|(_, v)| *v).collect();
        let mut of_members = z_scores(&values).unwrap_or_default().into_iter();
        let z = passes.iter().enumerate().map(|p| if is_member(&p) { of_members.next() } else { None });
        let centre = median(&values).and_then(|m| Some((m, mad_around(&values, m)?)));
        Self { z: z.collect(), limit: chauvenet_limit(values.len()), centre, values }
    }

    fn z(&self, position: usize) -> Option<f64> {
        self.z[position]
    }

    fn is_outlier(&self, position: usize) -> bool {
        self.z[position].is_some_and(|z| z.abs() > self.limit)
    }

    fn mad_verdict(&self, value: f64) -> (Option<f64>, MadVerdict) {
        // Of two samples both lie exactly one MAD from the median; fewer have none.
        let (Some((median, mad)), true, true) = (self.centre, value.is_finite(), self.values.len() >= 3)
        else {
            return (None, MadVerdict::NotJudged);
        };
        let distance = value - median;
        match finite(distance / mad) {
            _ if distance == 0.0 => (Some(0.0), MadVerdict::Typical),
            _ if mad == 0.0 => (None, MadVerdict::NoScale),
            Some(mads) if mads.abs() <= MAD_LIMIT => (Some(mads), MadVerdict::Typical),
            beyond => (beyond, MadVerdict::Outlier),
        }
    }

    fn facts(&self) -> ChauvenetFacts {
        let n = self.values.len();
        ChauvenetFacts {
            n,
            limit: finite(self.limit),
            largest_possible: largest_possible_deviation(n),
            can_fire: chauvenet_can_fire(n),
            outliers: (0..self.z.len()).filter(|position| self.is_outlier(*position)).count(),
        }
    }
}
