//! Simulations: do the intervals hold what they promise, and do the verdicts keep to their error rate?
//!
//! Each draws a few thousand experiments whose truth is known from a fixed seed and counts. The
//! bounds are three to four standard errors of the count wide, so a wrong formula fails and chance
//! does not. This is the ground for the choice of defaults in `measure::stats`.

use std::collections::BTreeMap;

use measure::effects::{DimensionVerdict, EffectRules, Observation, Sample, effects};
use measure::stats::drift::{DriftRules, DriftVerdict, drift};
use measure::stats::intervals::{median_interval, ratio_of_means, t_interval};
use measure::stats::{CleaningRules, CompareRules, Interval, Verdict, clean, compare_family, compare_with};

/// A Lehmer generator of 128 bits (multiplier from L'Ecuyer 1999), with
/// normal draws by Box and Muller.
struct Draws(u128);

impl Draws {
    fn seeded(seed: u64) -> Self {
        let mut draws = Self((u128::from(seed) << 1) | 1);
        for _ in 0..16 {
            draws.uniform();
        }
        draws
    }

    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x12e1_5e35_b500_f16e_2e71_4eb2_b37a_916d);
        ((self.0 >> 75) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn normals(&mut self, n: usize, mean: f64, sd: f64) -> Vec<f64> {
        (0..n).map(|_| mean + sd * self.normal()).collect()
    }
}

/// How often, of `trials`, `experiment` says yes.
fn rate(trials: u32, mut experiment: impl FnMut() -> bool) -> f64 {
    f64::from((0..trials).filter(|_| experiment()).count() as u32) / f64::from(trials)
}

#[track_caller]
fn within(rate: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&rate), "{rate} is not within {low}..{high}");
}

fn holds(interval: Option<Interval>, truth: f64) -> bool {
    interval.expect("an interval").contains(truth)
}

#[test]
fn t_covers_the_mean_of_three_normal_samples_as_of_twenty() {
    for n in [3, 5, 20] {
        let mut draws = Draws::seeded(11 + n as u64);
        let covered = rate(4_000, || holds(t_interval(&draws.normals(n, 100.0, 5.0), 0.95), 100.0));
        within(covered, 0.935, 0.965);
    }
}

#[test]
fn t_still_covers_the_mean_of_skewed_passes() {
    // Log-normal with a coefficient of variation of 20 %, which is a bad drive.
    let mut draws = Draws::seeded(21);
    let truth = (0.02f64).exp();
    let covered = rate(6_000, || {
        let samples: Vec<f64> = (0..5).map(|_| (0.2 * draws.normal()).exp()).collect();
        holds(t_interval(&samples, 0.95), truth)
    });
    within(covered, 0.93, 0.96);
}

/// The rates expected are those of the same formulas in NumPy and SciPy over 200,000 experiments
/// each. Welch's approximation falls short by two points where the smaller set is the noisier one.
#[test]
fn ratios_are_covered_where_the_sets_vary_unequally() {
    let mut draws = Draws::seeded(31);
    for (sd_a, sd_b, n_a, n_b, expected) in
        [(2.0, 2.0, 5, 5, 0.954), (1.0, 12.0, 5, 5, 0.949), (6.0, 3.0, 3, 8, 0.933)]
    {
        let covered = rate(5_000, || {
            let (a, b) = (draws.normals(n_a, 150.0, sd_a), draws.normals(n_b, 100.0, sd_b));
            ratio_of_means(&a, &b, 0.95).unwrap().interval.contains(1.5)
        });
        within(covered, expected - 0.012, expected + 0.012);
    }
}

#[test]
fn order_statistics_cover_the_median_as_often_as_they_say() {
    let mut draws = Draws::seeded(41);
    for (n, promised) in [(5, 0.9375), (12, 0.961_425_781_25)] {
        let covered = rate(6_000, || {
            let samples: Vec<f64> = (0..n).map(|_| draws.normal().exp()).collect();
            holds(median_interval(&samples, 0.95), 1.0)
        });
        within(covered, promised - 0.012, promised + 0.012);
    }
}

#[test]
fn two_equal_sweeps_rarely_differ_anywhere() {
    let rules = CompareRules { min_effect: 0.0, ..CompareRules::default() };
    let mut draws = Draws::seeded(61);
    let mut uncorrected = 0;
    let any_claim = rate(1_500, || {
        let pairs: Vec<_> =
            (0..14).map(|_| (draws.normals(5, 100.0, 3.0), draws.normals(5, 100.0, 3.0))).collect();
        let slices: Vec<_> = pairs.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        let claims = |verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
        uncorrected += u32::from(pairs.iter().any(|(a, b)| claims(compare_with(a, b, &rules).verdict)));
        compare_family(&slices, &rules).iter().any(|c| claims(c.verdict))
    });
    within(any_claim, 0.0, 0.065);
    // What the correction is for: about 1 − 0.95¹⁴ = 51 %.
    within(f64::from(uncorrected) / 1_500.0, 0.40, 0.60);
}

#[test]
fn a_difference_of_a_tenth_is_found_in_five_passes_of_ordinary_scatter() {
    let mut draws = Draws::seeded(71);
    let found = rate(1_000, || {
        let (slow, fast) = (draws.normals(5, 100.0, 2.5), draws.normals(5, 110.0, 2.5));
        compare_with(&slow, &fast, &CompareRules::default()).verdict == Verdict::Better
    });
    within(found, 0.98, 1.0);
}

fn factorial(draws: &mut Draws, gain_of_a: f64) -> Vec<Observation> {
    let mut observations = Vec::new();
    for a in 0..4 {
        for b in 0..3 {
            let level = 100.0 * (1.0 + f64::from(b)) * if a == 0 { gain_of_a } else { 1.0 };
            let settings: BTreeMap<_, _> =
                [("a".to_owned(), a.to_string()), ("b".to_owned(), b.to_string())].into();
            let samples = Sample::passes(&draws.normals(5, level, 0.03 * level));
            observations.push(Observation { settings, samples, ..Observation::default() });
        }
    }
    observations
}

#[test]
fn a_dimension_without_effect_is_rarely_said_to_matter_though_its_best_was_picked() {
    let rules = EffectRules { min_effect: 0.0, ..EffectRules::default() };
    let mut draws = Draws::seeded(81);
    let (mut dimension, mut interaction) = (0, 0);
    for _ in 0..1_500 {
        let found = effects(&factorial(&mut draws, 1.0), &rules).unwrap();
        let a = found.dimensions.iter().find(|d| d.dimension == "a").unwrap();
        dimension += u32::from(a.verdict == DimensionVerdict::Matters);
        interaction += u32::from(found.interactions[0].verdict == DimensionVerdict::Matters);
    }
    within(f64::from(dimension) / 1_500.0, 0.0, 0.065);
    within(f64::from(interaction) / 1_500.0, 0.0, 0.065);
}

#[test]
fn a_planted_effect_of_a_tenth_is_found_and_names_the_right_value() {
    let mut draws = Draws::seeded(91);
    let found = rate(300, || {
        let found = effects(&factorial(&mut draws, 1.1), &EffectRules::default()).unwrap();
        let a = found.dimensions.iter().find(|d| d.dimension == "a").unwrap();
        a.best.as_deref() == Some("0") && a.tied_with_best.is_empty()
    });
    within(found, 0.97, 1.0);
}

#[test]
fn a_steady_control_point_rarely_drifts_and_a_sinking_one_does() {
    let mut draws = Draws::seeded(101);
    let mut verdicts = |change: f64, rules: DriftRules| {
        rate(1_500, || {
            let points: Vec<_> = (0..12)
                .map(|i| (f64::from(i), 100.0 * (1.0 - change * f64::from(i) / 11.0) + 2.0 * draws.normal()))
                .collect();
            drift(&points, &rules).verdict == DriftVerdict::Drifting
        })
    };
    within(verdicts(0.0, DriftRules { trend_limit: 0.0, ..DriftRules::default() }), 0.03, 0.07);
    within(verdicts(0.15, DriftRules::default()), 0.98, 1.0);
}

/// Thompson (1935): z √(n(n−2)) / √((n−1)² − nz²) has Student's t distribution with n − 2 degrees
/// of freedom, and of five samples at most one can lie beyond 1.645 (two would need 2z² ≤ 4). So in
/// SciPy `t = z*np.sqrt(15)/np.sqrt(16-5*z*z); 10*st.t.sf(t, 3)` with z = 1.6448536 is 0.1354.
#[test]
fn of_five_passes_of_pure_noise_chauvenet_rejects_one_in_every_seventh_point() {
    let mut draws = Draws::seeded(111);
    let rejecting =
        rate(6_000, || clean(&draws.normals(6, 100.0, 5.0), &CleaningRules::default()).rejected() > 0);
    within(rejecting, 0.1354 - 0.015, 0.1354 + 0.015);
}
