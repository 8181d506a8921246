//! Properties that hold for any samples, and that nothing panics on those that are none.

use std::collections::BTreeMap;

use measure::effects::{EffectRules, Observation, Sample, effects};
use measure::stats::cleaning::{
    Criterion, MadVerdict, SetAside, chauvenet_can_fire, chauvenet_limit, largest_possible_deviation,
};
use measure::stats::compare::holm;
use measure::stats::describe::{cv, mad, mean, median, quantile, sample_sd, z_scores};
use measure::stats::drift::{DriftRules, DriftVerdict, drift};
use measure::stats::intervals::{mean_estimate, median_interval, ratio_of_means, t_interval};
use measure::stats::steady::{SteadyVerdict, steady, steady_over, within_run, within_run_of};
use measure::stats::{
    CleaningRules, CompareRules, Direction, Verdict, clean, compare, compare_family, compare_with, describe,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Figures as drives give them.
fn figures(n: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<f64>> {
    vec(1.0..1e10f64, n)
}

/// Anything at all: NaN, infinities, subnormals, the largest, and many equal ones.
fn anything(n: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<f64>> {
    let special = prop::sample::select(vec![
        0.0,
        -0.0,
        1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
    ]);
    vec(prop_oneof![3 => special, 1 => any::<f64>(), 2 => 1.0..2.0f64], n)
}

fn near(got: f64, want: f64, scale: f64) -> bool {
    (got - want).abs() <= 1e-9 * scale.abs().max(want.abs())
}

proptest! {
    #[test]
    fn no_samples_make_anything_panic_or_leave_a_number_that_is_none(
        a in anything(0..12),
        b in anything(0..12),
        discard_first in prop_oneof![0u32..4, Just(u32::MAX)],
        level in prop_oneof![Just(0.95), Just(f64::NAN), any::<f64>(), Just(1.0), 0.0..1.0f64],
    ) {
        let mut found: Vec<serde_json::Value> = Vec::new();
        let mut keep = |value: serde_json::Result<serde_json::Value>| found.push(value.unwrap());
        for criterion in [Criterion::Chauvenet, Criterion::Mad, Criterion::None] {
            let cleaned = clean(&a, &CleaningRules { discard_first, criterion });
            keep(serde_json::to_value(cleaned));
        }
        keep(serde_json::to_value(describe(&a)));
        for interval in [t_interval(&a, level), median_interval(&a, level)] {
            keep(serde_json::to_value(interval));
        }
        keep(serde_json::to_value(mean_estimate(&a, level)));
        let rules = CompareRules { level, min_effect: level, min_samples: 0, direction: Direction::LowerIsBetter };
        keep(serde_json::to_value(compare_with(&a, &b, &rules)));
        keep(serde_json::to_value(compare_family(&[(&a, &b), (&b, &a)], &rules)));
        for steadiness in [steady(&a), steady_over(&a), within_run(&a), within_run_of(&a, 7)] {
            prop_assert!(!steadiness.explain().is_empty());
            keep(serde_json::to_value(steadiness));
        }
        let points: Vec<_> = a.iter().copied().zip(b.iter().copied()).collect();
        keep(serde_json::to_value(drift(&points, &DriftRules { level, ..DriftRules::default() })));
        for found in &found {
            prop_assert!(reads_back(found), "{found}");
        }
    }

    #[test]
    fn no_observations_make_effects_panic(
        samples in vec((anything(0..5), 0u8..3, 0u8..3, any::<bool>()), 0..14),
        direction in prop::sample::select(vec![Direction::HigherIsBetter, Direction::LowerIsBetter]),
        every_block in any::<bool>(),
    ) {
        let observations: Vec<_> = samples.into_iter().map(|(samples, a, b, whole)| {
            let mut settings: BTreeMap<_, _> = [("a".to_owned(), a.to_string())].into();
            if whole {
                settings.insert("b".to_owned(), b.to_string());
            }
            let construction = u32::from(b);
            Observation { settings, samples: Sample::passes(&samples), construction, ..Observation::default() }
        }).collect();
        let rules = EffectRules { direction, every_block, ..EffectRules::default() };
        let found = effects(&observations, &rules).unwrap();
        let text = serde_json::to_string(&found).unwrap();
        let read: measure::effects::Effects = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.dimensions.len(), found.dimensions.len());
    }

    #[test]
    fn of_four_samples_or_fewer_chauvenet_never_rejects_any(
        samples in anything(0..5),
        close_together in vec(0u64..8, 0..5),
    ) {
        let rules = CleaningRules { discard_first: 0, ..CleaningRules::default() };
        // Samples that differ in their last bits are where rounding could forge a deviation.
        let close_together: Vec<f64> =
            close_together.iter().map(|ulps| f64::from_bits(0.1f64.to_bits() + ulps)).collect();
        for samples in [samples, close_together] {
            let cleaned = clean(&samples, &rules);
            prop_assert_eq!(cleaned.rejected(), 0);
            prop_assert!(!cleaned.chauvenet.can_fire);
        }
    }

    #[test]
    fn no_sample_lies_further_out_than_is_possible(samples in figures(2..60)) {
        let furthest = z_scores(&samples).unwrap().into_iter().fold(0.0f64, |m, z| m.max(z.abs()));
        prop_assert!(furthest <= largest_possible_deviation(samples.len()) * (1.0 + 1e-12));
    }

    #[test]
    fn cleaning_keeps_every_pass_visible_and_retains_only_what_came_in(
        samples in anything(0..20),
        discard_first in 0u32..3,
    ) {
        let cleaned = clean(&samples, &CleaningRules { discard_first, ..CleaningRules::default() });
        prop_assert_eq!(cleaned.passes.len(), samples.len());
        let kept: Vec<f64> =
            cleaned.passes.iter().filter(|p| p.set_aside.is_none()).map(|p| p.value.unwrap()).collect();
        prop_assert_eq!(&kept, &cleaned.retained);
        prop_assert_eq!(cleaned.set_aside().count() + kept.len(), samples.len());
        for (pass, (position, sample)) in cleaned.passes.iter().zip(samples.iter().enumerate()) {
            prop_assert_eq!(pass.pass as usize, position + 1);
            prop_assert_eq!(pass.value, sample.is_finite().then_some(*sample));
            let first = position < discard_first as usize;
            prop_assert_eq!(first && sample.is_finite(), pass.set_aside == Some(SetAside::FirstPass));
            if pass.set_aside == Some(SetAside::Chauvenet) {
                prop_assert!(pass.z.unwrap().abs() > cleaned.chauvenet.limit.unwrap());
            }
        }
    }

    #[test]
    fn chauvenets_limit_grows_with_n_and_satisfies_its_equation(n in 1usize..100_000) {
        let limit = chauvenet_limit(n);
        prop_assert!(limit < chauvenet_limit(n + 1));
        let expected_beyond = n as f64 * libm::erfc(limit / std::f64::consts::SQRT_2);
        prop_assert!((expected_beyond - 0.5).abs() < 1e-11, "{}", expected_beyond);
        prop_assert_eq!(chauvenet_can_fire(n), n >= 5);
    }

    #[test]
    fn a_description_scales_and_shifts_with_its_samples(
        samples in figures(2..40),
        scale in 0.001..1000.0f64,
        shift in -1e9..1e9f64,
    ) {
        let moved: Vec<f64> = samples.iter().map(|x| x * scale + shift).collect();
        let (before, after) = (describe(&samples).unwrap(), describe(&moved).unwrap());
        let size = before.max * scale + shift.abs();
        for (was, is) in [
            (before.mean, after.mean),
            (before.median, after.median),
            (before.q1, after.q1),
            (before.p99, after.p99),
        ] {
            prop_assert!(near(is, was * scale + shift, size));
        }
        prop_assert!(near(after.sd.unwrap(), before.sd.unwrap() * scale, size));
        prop_assert!(near(after.mad, before.mad * scale, size));
        let scaled: Vec<f64> = samples.iter().map(|x| x * scale).collect();
        prop_assert!(near(cv(&scaled).unwrap(), before.cv.unwrap(), 1.0));
    }

    #[test]
    fn the_order_of_samples_does_not_matter(mut samples in figures(2..30), b in figures(2..8)) {
        let all = |samples: &[f64]| {
            let t = t_interval(samples, 0.95).unwrap();
            let fieller = ratio_of_means(&b, samples, 0.5);
            [
                mean(samples), sample_sd(samples), median(samples), mad(samples), quantile(samples, 0.3),
                Some(t.low), Some(t.high), fieller.map(|f| f.value), fieller.map(|f| f.interval.high),
            ]
        };
        let before = all(&samples);
        samples.reverse();
        samples.rotate_left(1);
        for (was, is) in before.into_iter().zip(all(&samples)) {
            prop_assert!(was.is_none() == is.is_none());
            prop_assert!(near(is.unwrap_or(0.0), was.unwrap_or(0.0), mean(&samples).unwrap()));
        }
    }

    #[test]
    fn intervals_contain_their_estimate(samples in figures(2..25), b in figures(2..25)) {
        let (centre, half) = (mean(&samples).unwrap(), median(&samples).unwrap());
        prop_assert!(t_interval(&samples, 0.95).unwrap().contains(centre));
        prop_assert!(median_interval(&samples, 0.95).unwrap().contains(half));
        if let Some(ratio) = ratio_of_means(&samples, &b, 0.95) {
            prop_assert!(ratio.interval.contains(ratio.value));
            prop_assert_eq!(ratio.p_value < 0.05, !ratio.interval.contains(1.0));
        }
    }

    #[test]
    fn a_higher_level_never_narrows_an_interval(samples in figures(3..9)) {
        let at = |level| [t_interval(&samples, level), median_interval(&samples, level)].map(Option::unwrap);
        for (narrow, wide) in at(0.8).into_iter().zip(at(0.99)) {
            prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
        }
    }

    #[test]
    fn a_ratio_scales_and_turns_round_with_its_samples(
        a in vec(90.0..110.0f64, 2..9),
        b in vec(90.0..110.0f64, 2..9),
        scale in 0.01..100.0f64,
    ) {
        let scaled: Vec<f64> = a.iter().map(|x| x * scale).collect();
        let (plain, large, turned) =
            (ratio_of_means(&a, &b, 0.9), ratio_of_means(&scaled, &b, 0.9), ratio_of_means(&b, &a, 0.9));
        prop_assert_eq!(plain.is_some(), large.is_some());
        if let (Some(plain), Some(large)) = (plain, large) {
            prop_assert!(near(large.interval.low, plain.interval.low * scale, 0.0));
            prop_assert!(near(large.interval.high, plain.interval.high * scale, 0.0));
        }
        if let (Some(plain), Some(turned)) = (plain, turned) {
            prop_assert!(near(turned.interval.low, 1.0 / plain.interval.high, 0.0));
            prop_assert!(near(turned.interval.high, 1.0 / plain.interval.low, 0.0));
            prop_assert!(near(turned.p_value, plain.p_value, 1.0));
        }
    }

    #[test]
    fn exchanging_baseline_and_candidate_exchanges_better_and_worse(
        a in vec(50.0..150.0f64, 0..7),
        b in vec(50.0..150.0f64, 0..7),
    ) {
        let turned = match compare(&b, &a).verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            other => other,
        };
        let verdict = compare(&a, &b).verdict;
        // Where one mean is too noisy to divide by, only the other way round has an interval.
        prop_assume!(verdict != Verdict::NotEnoughData && turned != Verdict::NotEnoughData);
        prop_assert_eq!(verdict, turned);
        let lower = CompareRules { direction: Direction::LowerIsBetter, ..CompareRules::default() };
        let turned_by_direction = compare_with(&b, &a, &lower).verdict;
        prop_assert_eq!(verdict, turned_by_direction);
    }

    #[test]
    fn samples_compared_with_themselves_never_differ(samples in figures(0..12)) {
        let verdict = compare(&samples, &samples).verdict;
        prop_assert!(matches!(verdict, Verdict::NoDifference | Verdict::NotEnoughData));
        prop_assert!(samples.len() >= 3 || verdict == Verdict::NotEnoughData);
    }

    #[test]
    fn holms_correction_never_lowers_a_p_value_and_keeps_their_order(p in vec(0.0..1.0f64, 0..30)) {
        let adjusted: Vec<f64> =
            holm(&p.iter().copied().map(Some).collect::<Vec<_>>()).into_iter().map(Option::unwrap).collect();
        for (i, x) in p.iter().enumerate() {
            prop_assert!(adjusted[i] >= *x && adjusted[i] <= (x * p.len() as f64).min(1.0));
            for (j, y) in p.iter().enumerate() {
                prop_assert!(x > y || adjusted[i] <= adjusted[j]);
            }
        }
    }

    #[test]
    fn steadiness_does_not_depend_on_the_unit(series in figures(0..30), scale in 0.001..1000.0f64) {
        let scaled: Vec<f64> = series.iter().map(|y| y * scale).collect();
        let (one, other) = (steady(&series), steady(&scaled));
        prop_assert_eq!((one.verdict, one.window_first), (other.verdict, other.window_first));
    }

    #[test]
    fn the_fifths_of_a_run_keep_its_mean(samples in figures(5..200)) {
        prop_assert!(near(within_run(&samples).mean.unwrap(), mean(&samples).unwrap(), 0.0));
    }

    #[test]
    fn drift_does_not_depend_on_the_order_or_on_the_origin_of_time(
        mut points in vec((0.0..1e4f64, 50.0..150.0f64), 3..20),
        origin in 0.0..1e4f64,
    ) {
        let before = drift(&points, &DriftRules::default());
        points.reverse();
        points.iter_mut().for_each(|p| p.0 += origin);
        let after = drift(&points, &DriftRules::default());
        prop_assert_eq!(before.trend_ratio.is_some(), after.trend_ratio.is_some());
        prop_assert!((before.trend_ratio.unwrap_or(0.0) - after.trend_ratio.unwrap_or(0.0)).abs() < 1e-6);
    }
}

/// A result read back from text: a NaN would have become null, and a number would be missing where the
/// type says that there is one. Nulls stand only for what is documented as absent.
fn reads_back(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Object(fields) => fields.iter().all(|(name, value)| {
            let must_be_there = ["low", "high", "level", "mean_x", "largest_possible", "value"];
            let optional_value = name == "value" && fields.contains_key("pass");
            (!value.is_null() || optional_value || !must_be_there.contains(&name.as_str()))
                && reads_back(value)
        }),
        serde_json::Value::Array(items) => items.iter().all(reads_back),
        _ => true,
    }
}

#[test]
fn identical_passes_have_no_spread_and_no_outliers() {
    let cleaned = clean(&[7.25; 6], &CleaningRules::default());
    assert_eq!((cleaned.rejected(), cleaned.mad_outliers, cleaned.retained.len()), (0, 0, 5));
    assert_eq!(cleaned.after.unwrap().cv, Some(0.0));
    assert!(cleaned.passes.iter().all(|p| p.z_all_passes == Some(0.0)));
    let interval = t_interval(&[7.25; 5], 0.95).unwrap();
    assert_eq!((interval.low, interval.high), (7.25, 7.25));
}

#[test]
fn a_description_holds_at_both_ends_of_the_range() {
    let tiny = 5e-324;
    let z = z_scores(&[tiny, 0.0, 0.0]).unwrap();
    assert!((z[0] - 2.0 / 3f64.sqrt()).abs() < 1e-12, "{z:?}");
    assert_eq!(mean(&[f64::MAX, f64::MAX, f64::MAX]), Some(f64::MAX));
    assert_eq!(sample_sd(&[f64::MAX, f64::MIN]), None, "it exceeds an f64");
    assert_eq!(median(&[f64::MAX, f64::MIN]), Some(0.0));
}

#[test]
fn a_mad_of_zero_gives_no_scale_and_says_so() {
    let rules = CleaningRules { discard_first: 0, criterion: Criterion::Mad };
    let cleaned = clean(&[100.0, 100.0, 100.0, 100.0, 1.0], &rules);
    let last = cleaned.passes[4];
    assert_eq!((last.mad_verdict, last.mads, last.set_aside), (MadVerdict::NoScale, None, None));
    assert_eq!(cleaned.passes[0].mad_verdict, MadVerdict::Typical);
    // Chauvenet's criterion does see it: (n − 1)/√n is reached exactly by one sample against equals.
    let chauvenet = clean(
        &[100.0, 100.0, 100.0, 100.0, 1.0],
        &CleaningRules { discard_first: 0, ..CleaningRules::default() },
    );
    assert_eq!(chauvenet.passes[4].set_aside, Some(SetAside::Chauvenet));
}

#[test]
fn the_mad_verdict_turns_at_hyperfines_limit() {
    let of = |last: f64| {
        let rules = CleaningRules { discard_first: 0, criterion: Criterion::Mad };
        clean(&[98.0, 99.0, 100.0, 101.0, 102.0, 100.0, last], &rules)
    };
    // Median 100, MAD 1.
    assert_eq!(of(114.82).passes[6].mad_verdict, MadVerdict::Typical);
    let beyond = of(114.83);
    assert_eq!(beyond.passes[6].mad_verdict, MadVerdict::Outlier);
    assert_eq!((beyond.passes[6].set_aside, beyond.rejected()), (Some(SetAside::Mad), 1));
    assert_eq!(of(85.0).passes[6].mad_verdict, MadVerdict::Outlier);
}

#[test]
fn a_stalled_pass_is_rejected_of_five_and_hides_among_four() {
    let passes = [95.0, 100.0, 101.0, 99.5, 100.4, 20.0];
    let of_five = clean(&passes, &CleaningRules::default());
    assert_eq!(of_five.passes[5].set_aside, Some(SetAside::Chauvenet));
    assert_eq!(of_five.passes[5].mad_verdict, MadVerdict::Outlier);
    let of_four = clean(&passes, &CleaningRules { discard_first: 2, ..CleaningRules::default() });
    assert_eq!((of_four.rejected(), of_four.mad_outliers), (0, 1));
}

#[test]
fn passes_are_cleaned_as_in_the_papers() {
    // Five passes, the first off the trend, as in Figs 4 and 5.
    let cleaned = clean(&[60.0, 100.0, 101.0, 99.0, 100.5], &CleaningRules::default());
    assert_eq!((cleaned.retained.len(), cleaned.rejected()), (4, 0));
    assert_eq!(cleaned.passes[0].set_aside, Some(SetAside::FirstPass));
    assert_eq!((cleaned.chauvenet_all_passes.outliers, cleaned.chauvenet_all_passes.can_fire), (1, true));
    // "This time we found no outliers at all": none could have been found.
    assert_eq!((cleaned.chauvenet.outliers, cleaned.chauvenet.can_fire), (0, false));
    assert!(cleaned.after.unwrap().cv < cleaned.before.unwrap().cv.map(|cv| cv / 5.0));
}

#[test]
fn a_difference_too_small_to_matter_is_none_however_sure() {
    let (a, b) = ([100.0, 100.01, 99.99, 100.0], [101.0, 101.01, 100.99, 101.0]);
    let plain = compare(&a, &b);
    assert!(plain.p_value.unwrap() < 1e-6);
    assert_eq!(plain.verdict, Verdict::NoDifference);
    let strict = CompareRules { min_effect: 0.005, ..CompareRules::default() };
    assert_eq!(compare_with(&a, &b, &strict).verdict, Verdict::Better);
}

#[test]
fn a_figure_that_is_no_number_voids_a_comparison() {
    let good = [100.0, 101.0, 99.0];
    for bad in [vec![], vec![1.0, 2.0], vec![1.0, 2.0, f64::NAN], vec![0.0; 3], vec![-5.0, -6.0, -7.0]] {
        assert_eq!(compare(&good, &bad).verdict, Verdict::NotEnoughData, "{bad:?}");
        assert_eq!(compare(&bad, &good).verdict, Verdict::NotEnoughData, "{bad:?}");
    }
    assert_eq!(compare(&[50.0; 3], &[60.0; 3]).verdict, Verdict::Better, "a simulator has no scatter");
}

#[test]
fn steady_state_is_the_first_window_that_obeys_both_rules() {
    let mut series = vec![300.0, 250.0, 210.0, 180.0, 160.0, 150.0, 145.0, 143.0, 142.0, 141.0, 142.0];
    let found = steady(&series);
    assert_eq!((found.verdict, found.window_first, found.window_rounds), (SteadyVerdict::Steady, 5, 5));
    assert_eq!(found.rounds, series.len());
    series.truncate(9);
    assert_eq!(steady(&series).verdict, SteadyVerdict::NotReached);
    assert_eq!(steady(&series).window_first, 4, "the figures are those of the last window");
    assert_eq!(steady(&series[..4]).verdict, SteadyVerdict::TooShort);
    assert_eq!(steady(&[0.0; 5]).verdict, SteadyVerdict::NotReached);
    assert_eq!(steady(&[1.0, 1.0, f64::NAN, 1.0, 1.0]).verdict, SteadyVerdict::NotFinite);
    assert_eq!(steady(&[1.0, f64::NAN]).verdict, SteadyVerdict::NotFinite);
}

#[test]
fn snias_limits_themselves_are_still_steady() {
    // Range exactly 20 % of the mean, slope 0.
    assert!(steady(&[90.0, 110.0, 100.0, 110.0, 90.0]).is_steady());
    assert!(!steady(&[89.0, 110.0, 101.0, 110.0, 90.0]).is_steady());
    // Slope exactly 10 %: 0.025 a round over four steps, in eighths that an f64 holds exactly.
    assert!(steady(&[38.0, 39.0, 40.0, 41.0, 42.0]).is_steady());
    assert!(!steady(&[37.9, 39.0, 40.0, 41.0, 42.1]).is_steady());
}

#[test]
fn a_run_is_judged_by_its_fifths_not_by_its_single_steps() {
    // Every other step is empty, as when a request takes longer than a step.
    let coarse: Vec<f64> = (0..500).map(|i| if i % 2 == 0 { 200.0 } else { 0.0 }).collect();
    assert!(within_run(&coarse).is_steady());
    assert_eq!(within_run_of(&coarse, 99).verdict, SteadyVerdict::TooShort);
    assert!(within_run_of(&coarse, 100).is_steady());
    let knee: Vec<f64> = (0..500).map(|i| if i < 350 { 1000.0 } else { 300.0 }).collect();
    assert_eq!(within_run(&knee).verdict, SteadyVerdict::NotReached);
    let ramp: Vec<f64> = (0..7).map(|i| 100.0 + f64::from(i) * 3.0).collect();
    assert_eq!(within_run(&ramp).verdict, SteadyVerdict::NotReached);
    assert!(within_run(&ramp).range_ratio.unwrap() < 0.2, "it is the slope that fails");
}

#[test]
fn a_jump_is_told_from_a_trend() {
    let at = |figures: [f64; 8]| {
        let points: Vec<_> = figures.into_iter().enumerate().map(|(i, y)| (i as f64, y)).collect();
        drift(&points, &DriftRules::default())
    };
    assert_eq!(at([100.0, 101.0, 99.0, 100.0, 100.5, 99.5, 100.0, 100.2]).verdict, DriftVerdict::NoDrift);
    let jump = at([100.0, 101.0, 99.0, 60.0, 100.5, 99.5, 100.0, 100.2]);
    assert_eq!((jump.verdict, jump.largest_deviation.unwrap().index), (DriftVerdict::Jumping, 3));
    let trend = at([100.0, 98.0, 97.0, 95.0, 94.0, 92.0, 91.0, 89.0]);
    assert_eq!(trend.verdict, DriftVerdict::Drifting);
    assert!(trend.trend_ratio.unwrap() < -0.1);
    let rules = DriftRules::default();
    assert_eq!(drift(&[], &rules).verdict, DriftVerdict::NotEnoughData);
    assert_eq!(drift(&[(1.0, 2.0), (2.0, 2.0)], &rules).verdict, DriftVerdict::NotEnoughData);
    assert_eq!(drift(&[(1.0, 2.0); 5], &rules).verdict, DriftVerdict::NotEnoughData);
    assert_eq!(drift(&[(0.0, 5.0), (1.0, 5.0), (2.0, 5.0)], &rules).verdict, DriftVerdict::NoDrift);
}
