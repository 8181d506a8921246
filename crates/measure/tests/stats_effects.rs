//! Effects of a factorial sweep, against figures computed independently (NumPy 2.4.6, SciPy
//! 1.17.1), and by construction.

use std::collections::BTreeMap;

use measure::stats::effects::{
    DimensionVerdict, EffectRules, EffectsError, ExcludedWhy, Observation, RatioEstimate, effects,
};
use measure::stats::{Direction, Effects, Verdict};

/// Four passes of each of 12 configurations, `np.round(np.exp(rng.normal(mu, .02, 4)), 1)` with
/// `rng = np.random.default_rng(42)`; bfq is slow, and slower still at depth 32.
const SWEEP: [(&str, &str, &str, [f64; 4]); 12] = [
    ("none", "1", "read", [405.9, 395.1, 409.5, 411.1]),
    ("none", "1", "write", [260.1, 263.5, 271.1, 268.7]),
    ("none", "32", "read", [1339.0, 1316.8, 1363.2, 1360.4]),
    ("none", "32", "write", [899.0, 918.3, 906.3, 882.5]),
    ("bfq", "1", "read", [316.5, 308.2, 319.8, 313.9]),
    ("bfq", "1", "write", [209.8, 207.8, 215.8, 210.0]),
    ("bfq", "32", "read", [766.2, 767.4, 781.1, 778.5]),
    ("bfq", "32", "write", [522.3, 522.5, 540.7, 513.8]),
    ("kyber", "1", "read", [387.5, 385.2, 396.4, 400.4]),
    ("kyber", "1", "write", [261.8, 258.1, 258.1, 265.9]),
    ("kyber", "32", "read", [1319.3, 1314.0, 1282.7, 1305.9]),
    ("kyber", "32", "write", [873.3, 875.1, 886.6, 875.2]),
];

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn observation(pairs: &[(&str, &str)], samples: &[f64]) -> Observation {
    Observation { settings: settings(pairs), samples: samples.to_vec() }
}

fn sweep() -> Vec<Observation> {
    SWEEP
        .iter()
        .map(|(scheduler, depth, rw, samples)| {
            observation(&[("scheduler", scheduler), ("iodepth", depth), ("rw", rw)], samples)
        })
        .collect()
}

fn analysed(observations: &[Observation]) -> Effects {
    effects(observations, &EffectRules::default()).unwrap()
}

fn dimension<'a>(effects: &'a Effects, name: &str) -> &'a measure::stats::effects::DimensionEffect {
    effects.dimensions.iter().find(|d| d.dimension == name).expect("the dimension")
}

#[track_caller]
fn close(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs(), "{got:?} is not {want:?}");
}

#[track_caller]
fn matches(got: Option<RatioEstimate>, ratio: f64, noise: (f64, f64), across: (f64, f64), p: f64) {
    let got = got.expect("an estimate");
    close(got.ratio, ratio, 1e-12);
    close(got.noise.unwrap().low, noise.0, 1e-11);
    close(got.noise.unwrap().high, noise.1, 1e-11);
    close(got.across_blocks.unwrap().low, across.0, 1e-11);
    close(got.across_blocks.unwrap().high, across.1, 1e-11);
    close(got.p_value.unwrap(), p, 1e-7);
}

/// With `L` the logs by configuration: ratios against the dimension's geometric mean from
/// `np.linalg.lstsq` on sum-coded columns (scheduler, depth, rw, scheduler × depth),
/// `np.exp(beta)`.
#[test]
fn values_against_their_geometric_mean_are_the_least_squares_effects() {
    let effects = analysed(&sweep());
    let want = [
        ("scheduler", "none", 1.150_979_413_630_727_6),
        ("scheduler", "bfq", 0.775_450_086_806_559_9),
        ("scheduler", "kyber", 1.120_414_176_160_811_3),
        ("iodepth", "1", 0.574_714_943_911_005),
        ("iodepth", "32", 1.739_993_035_842_914_5),
    ];
    for (name, value, ratio) in want {
        let found = dimension(&effects, name).values.iter().find(|v| v.value == value).unwrap();
        close(found.effect.unwrap().ratio, ratio, 1e-12);
    }
    let interaction = effects.interactions.iter().find(|i| i.second == "scheduler" || i.first == "scheduler");
    let interaction = interaction.unwrap();
    for (scheduler, depth, ratio) in [
        ("none", "1", 0.950_078_003_825_620_1),
        ("bfq", "1", 1.106_348_633_387_822),
        ("kyber", "1", 0.951_368_423_521_960_7),
    ] {
        let cell = interaction.cells.iter().find(|c| c.first == depth && c.second == scheduler).unwrap();
        close(cell.ratio, ratio, 1e-12);
    }
}

/// For coefficients c by configuration k: `est = sum(c*L[k].mean())`,
/// `v = [(c*c*L[k].var(ddof=1)/4, 3)]`, `V = sum(v)`, `df = V*V/sum(v*v/3)`,
/// `np.exp(est ± st.t.ppf(.975, df)*V**.5)`, p `2*st.t.sf(abs(est)/V**.5, df)`; over the blocks
/// `np.exp(st.ttest_1samp(x, 0).confidence_interval(.95))`, x being each block's log ratio.
#[test]
fn pairs_have_welchs_and_students_intervals_of_scipy() {
    let effects = analysed(&sweep());
    let scheduler = dimension(&effects, "scheduler");
    assert_eq!(scheduler.best.as_deref(), Some("none"));
    let bfq = &scheduler.against_best[0];
    matches(
        bfq.effect,
        0.673_730_631_167_788,
        (0.665_444_809_603_392_3, 0.682_119_624_081_642_2),
        (0.509_061_992_656_376_1, 0.891_665_396_202_822_6),
        2.316_504_307_148_722e-26,
    );
    let kyber = &scheduler.against_best[1];
    matches(
        kyber.effect,
        0.973_444_149_297_597_7,
        (0.962_328_536_708_128_1, 0.984_688_155_505_801_5),
        (0.964_013_448_728_221, 0.982_967_108_033_444_2),
        8.301_977_675_943_023e-5,
    );
    matches(
        scheduler.values[1].effect,
        0.775_450_086_806_560_6,
        (0.770_135_237_054_381, 0.780_801_615_347_754_9),
        (0.643_923_649_408_666_9, 0.933_841_826_869_557_6),
        5.487_233_912_451_723e-25,
    );
    assert_eq!((bfq.verdict, bfq.blocks_behind), (Verdict::Worse, 4));
    assert_eq!((kyber.verdict, kyber.blocks_behind), (Verdict::Worse, 4));
    // Three pairs; kyber's p is the largest, so it stays as it is, and bfq's, the smallest, is tripled.
    close(kyber.p_adjusted.unwrap(), 8.301_977_675_943_023e-5, 1e-7);
    close(bfq.p_adjusted.unwrap(), 3.0 * 2.316_504_307_148_722e-26, 1e-7);
    assert!(scheduler.tied_with_best.is_empty());
}

/// As above with the coefficients `((s=='bfq')-1/3)*((d=='32')-1/2)/2`.
#[test]
fn the_planted_interaction_is_found_and_no_other() {
    let effects = analysed(&sweep());
    let strongest = &effects.interactions[0];
    assert_eq!((strongest.first.as_str(), strongest.second.as_str()), ("iodepth", "scheduler"));
    assert_eq!(strongest.largest.second, "bfq");
    let toward_32 =
        if strongest.largest.first == "32" { strongest.effect.ratio } else { 1.0 / strongest.effect.ratio };
    close(toward_32, 0.903_874_212_722_471_9, 1e-12);
    close(strongest.effect.p_value.unwrap(), 1.578_818_952_689_172_8e-17, 1e-6);
    assert_eq!(strongest.verdict, DimensionVerdict::Matters);
    assert!(!strongest.changes_the_best(), "none is best at either depth, and 32 under every scheduler");
    for other in &effects.interactions[1..] {
        assert_eq!(other.verdict, DimensionVerdict::NoDifference, "{} × {}", other.first, other.second);
    }
}

#[test]
fn a_baseline_is_what_the_others_are_set_against() {
    let rules = EffectRules {
        baselines: [("scheduler".to_owned(), "none".to_owned())].into(),
        ..EffectRules::default()
    };
    let effects = effects(&sweep(), &rules).unwrap();
    let scheduler = dimension(&effects, "scheduler");
    assert_eq!(scheduler.baseline.as_deref(), Some("none"));
    assert!(scheduler.values[0].effect.is_none());
    close(scheduler.values[2].effect.unwrap().ratio, 0.973_444_149_297_597_7, 1e-12);
}

#[test]
fn a_baseline_that_no_run_has_is_refused_with_those_that_there_are() {
    let of = |name: &str, value: &str| {
        let baselines = [(name.to_owned(), value.to_owned())].into();
        effects(&sweep(), &EffectRules { baselines, ..EffectRules::default() }).unwrap_err().to_string()
    };
    assert_eq!(
        of("scheduler", "cfq"),
        "baseline scheduler=cfq: no run has that value (there are: none, bfq, kyber)"
    );
    assert_eq!(of("colour", "red"), "baseline colour=red: no run has that value (there are: none)");
    let error = effects(&[], &EffectRules { level: 95.0, ..EffectRules::default() }).unwrap_err();
    assert_eq!(error, EffectsError::BadLevel(95.0));
}

#[test]
fn configurations_without_a_match_do_not_bend_an_effect() {
    let mut observations = sweep();
    let whole = analysed(&observations);
    observations.push(observation(
        &[("scheduler", "none"), ("iodepth", "512"), ("rw", "read")],
        &[90_000.0, 91_000.0, 90_500.0],
    ));
    let with_stray = analysed(&observations);
    let (before, after) = (dimension(&whole, "scheduler"), dimension(&with_stray, "scheduler"));
    assert_eq!(before.against_best, after.against_best);
    assert_eq!(after.values[0].configurations, before.values[0].configurations + 1);
    assert_eq!((after.blocks, after.complete_blocks), (5, 4));
}

#[test]
fn a_dimension_without_effect_is_said_to_have_none() {
    // The same passes under both labels but for their order.
    let observations: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|label| {
            SWEEP.iter().map(move |(scheduler, depth, rw, samples)| {
                observation(
                    &[("label", label), ("scheduler", scheduler), ("iodepth", depth), ("rw", rw)],
                    samples,
                )
            })
        })
        .collect();
    let effects = analysed(&observations);
    let label = dimension(&effects, "label");
    assert_eq!(label.verdict, DimensionVerdict::NoDifference);
    assert_eq!(label.tied_with_best.len(), 1);
    close(label.spread_ratio.unwrap(), 1.0, 1e-12);
    assert_eq!(effects.dimensions.last().unwrap().dimension, "label", "the widest spread comes first");
}

#[test]
fn a_lower_latency_is_the_better_one() {
    let rules = EffectRules { direction: Direction::LowerIsBetter, ..EffectRules::default() };
    let effects = effects(&sweep(), &rules).unwrap();
    let scheduler = dimension(&effects, "scheduler");
    assert_eq!(scheduler.best.as_deref(), Some("bfq"));
    assert!(scheduler.against_best.iter().all(|a| a.verdict == Verdict::Worse && a.blocks_behind == 4));
}

#[test]
fn what_cannot_be_analysed_is_listed_with_its_reason() {
    let mut observations = sweep();
    for samples in [vec![], vec![1.0, f64::NAN], vec![3.0, 0.0], vec![f64::INFINITY]] {
        observations.push(Observation { samples, ..observations[0].clone() });
    }
    let effects = analysed(&observations);
    let why: Vec<_> = effects.excluded.iter().map(|e| (e.index, e.why)).collect();
    assert_eq!(
        why,
        [
            (12, ExcludedWhy::NoSamples),
            (13, ExcludedWhy::NotFinite),
            (14, ExcludedWhy::NotPositive),
            (15, ExcludedWhy::NotFinite)
        ]
    );
    assert_eq!(effects.dimensions, analysed(&sweep()).dimensions);
}

#[test]
fn equal_settings_are_pooled() {
    let mut halves = Vec::new();
    for whole in sweep() {
        for half in whole.samples.chunks(2) {
            halves.push(Observation { samples: half.to_vec(), ..whole.clone() });
        }
    }
    assert_eq!(analysed(&halves), analysed(&sweep()));
}

#[test]
fn simulated_passes_without_scatter_are_told_apart_and_single_ones_by_the_blocks() {
    let without_scatter: Vec<_> =
        sweep().into_iter().map(|o| Observation { samples: vec![o.samples[0]; 3], ..o }).collect();
    let certain = analysed(&without_scatter);
    let scheduler = dimension(&certain, "scheduler");
    assert_eq!(scheduler.against_best[0].effect.unwrap().p_value, Some(0.0));
    let noise = scheduler.against_best[0].effect.unwrap().noise.unwrap();
    assert_eq!((noise.low, noise.high), (scheduler.against_best[0].effect.unwrap().ratio, noise.low));

    let single: Vec<_> =
        sweep().into_iter().map(|o| Observation { samples: vec![o.samples[0]], ..o }).collect();
    let by_blocks = analysed(&single);
    let bfq = &dimension(&by_blocks, "scheduler").against_best[0];
    assert!(bfq.effect.unwrap().noise.is_none());
    assert!(bfq.effect.unwrap().p_value.unwrap() > 0.0);
}

#[test]
fn a_best_value_that_depends_on_another_dimension_is_reported() {
    let crossed = [
        ("1", "read", [100.0, 101.0, 99.5, 100.4]),
        ("1", "write", [200.0, 201.0, 199.0, 200.7]),
        ("32", "read", [180.0, 181.5, 179.0, 180.2]),
        ("32", "write", [120.0, 119.0, 120.8, 120.1]),
    ];
    let observations: Vec<_> =
        crossed.iter().map(|(depth, rw, s)| observation(&[("iodepth", depth), ("rw", rw)], s)).collect();
    let effects = analysed(&observations);
    let interaction = &effects.interactions[0];
    assert!(interaction.changes_the_best());
    assert_eq!(interaction.best_first, settings(&[("read", "32"), ("write", "1")]));
    assert_eq!(interaction.best_second, settings(&[("1", "write"), ("32", "read")]));
}

#[test]
fn nothing_and_a_single_configuration_have_no_effects() {
    for observations in [vec![], sweep()[..1].to_vec()] {
        let effects = analysed(&observations);
        assert!(effects.dimensions.is_empty() && effects.interactions.is_empty());
    }
    // Two values that were never run under the same other settings.
    let apart = [
        observation(&[("bs", "4k"), ("iodepth", "1")], &[1.0, 1.1]),
        observation(&[("bs", "4m"), ("iodepth", "32")], &[2.0, 2.1]),
    ];
    let effects = analysed(&apart);
    assert!(effects.dimensions.iter().all(|d| d.verdict == DimensionVerdict::NotEnoughData));
    assert!(effects.dimensions.iter().all(|d| d.best.is_none()));
}

/// A dimension of `values` values, the one in the middle 20 % better than the rest, over two blocks.
fn many(values: usize) -> Vec<Observation> {
    let one = |i: usize, rw: &str| {
        let level = if i == values / 2 { 120.0 } else { 100.0 };
        let samples: Vec<f64> =
            (0..4).map(|k| level * (1.0 + 0.002 * ((i * 7 + k * 3) % 5) as f64)).collect();
        observation(&[("target", &format!("t{i}")), ("rw", rw)], &samples)
    };
    (0..values).flat_map(|i| [one(i, "read"), one(i, "write")]).collect()
}

#[test]
fn of_very_many_values_the_best_is_compared_with_each_and_corrected_for_all_pairs() {
    for values in [60, 600] {
        let found = analysed(&many(values));
        let target = dimension(&found, "target");
        assert_eq!(target.best.as_deref(), Some(format!("t{}", values / 2).as_str()));
        assert_eq!((target.verdict, target.against_best.len()), (DimensionVerdict::Matters, values - 1));
        assert!(target.tied_with_best.is_empty(), "{values}: {:?}", target.tied_with_best);
        for other in &target.against_best {
            close(other.effect.unwrap().ratio, 1.0 / 1.2, 0.01);
            assert!(other.p_adjusted.unwrap() > other.effect.unwrap().p_value.unwrap());
        }
    }
}
