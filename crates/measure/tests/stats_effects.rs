//! Effects of a factorial sweep, against figures computed independently (NumPy 2.4.6, SciPy
//! 1.17.1), and by construction.

use std::collections::BTreeMap;

use measure::effects::Effects;
use measure::effects::{
    DimensionEffect, DimensionVerdict, EffectRules, ExcludedWhy, Observation, RatioEstimate, Sample, effects,
};
use measure::stats::{Direction, Verdict};

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
    Observation { settings: settings(pairs), samples: Sample::passes(samples), ..Observation::default() }
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

fn dimension<'a>(effects: &'a Effects, name: &str) -> &'a DimensionEffect {
    effects.dimensions.iter().find(|d| d.dimension == name).expect("the dimension")
}

#[track_caller]
fn close(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs(), "{got:?} is not {want:?}");
}

#[track_caller]
fn matches(got: Option<RatioEstimate>, ratio: f64, noise: (f64, f64), across: (f64, f64)) {
    let got = got.expect("an estimate");
    close(got.ratio, ratio, 1e-12);
    close(got.noise.unwrap().low, noise.0, 1e-11);
    close(got.noise.unwrap().high, noise.1, 1e-11);
    close(got.across_blocks.unwrap().low, across.0, 1e-11);
    close(got.across_blocks.unwrap().high, across.1, 1e-11);
}

/// With `L` the logs by configuration: `np.linalg.lstsq` on sum-coded columns (scheduler, depth, rw, scheduler × depth),
/// `np.exp(beta)`.
#[test]
fn departures_from_two_effects_are_the_least_squares_ones() {
    let effects = analysed(&sweep());
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

/// In each pass n `d = mean(L[none][n] - L[bfq][n])` over the four pairs, `m, v = d.mean(), d.var(ddof=1)/4`;
/// the variances of the three pairs of schedulers are pooled, `V = (2*mean(v) + 3*v)/5`, and
/// `np.exp(m ± st.t.ppf(.995, 5)*V**.5)`: 0.05 over three, one and one pairs of values. Over the pairs
/// `np.exp(st.ttest_1samp(x, 0).confidence_interval(.95))`, x being each one's log ratio.
#[test]
fn values_differ_by_the_scatter_of_their_passes_taken_together() {
    let effects = analysed(&sweep());
    let scheduler = dimension(&effects, "scheduler");
    assert_eq!(scheduler.best.as_deref(), Some("none"));
    let bfq = &scheduler.against_best[0];
    matches(
        bfq.effect,
        0.673_730_631_167_788,
        (0.661_462_515_288_230_6, 0.686_226_283_247_440_6),
        (0.509_061_992_656_376_1, 0.891_665_396_202_822_6),
    );
    let kyber = &scheduler.against_best[1];
    matches(
        kyber.effect,
        0.973_444_149_297_597_7,
        (0.953_421_621_069_125_6, 0.993_887_164_777_251_1),
        (0.964_013_448_728_221, 0.982_967_108_033_444_2),
    );
    assert_eq!((bfq.verdict, bfq.blocks_behind), (Verdict::Worse, 4));
    assert_eq!((kyber.verdict, kyber.blocks_behind), (Verdict::Worse, 4));
    assert!(scheduler.tied_with_best.is_empty());
}

/// The configurations of the sweep on a construction for each scheduler, `times` times with another width.
fn on_constructions(times: u32) -> Vec<Observation> {
    let built = |width: u32| {
        sweep().into_iter().enumerate().map(move |(i, mut o)| {
            o.settings.insert("width".to_owned(), width.to_string());
            o.samples.iter_mut().for_each(|s| s.figure *= 1.0 + 0.01 * f64::from(width % 3));
            Observation { construction: (i / 4) as u32 + 3 * width, ..o }
        })
    };
    (0..times).flat_map(built).collect()
}

#[test]
fn values_on_one_construction_each_cannot_be_told_apart() {
    let effects = analysed(&on_constructions(1));
    let scheduler = dimension(&effects, "scheduler");
    assert_eq!(scheduler.verdict, DimensionVerdict::NotEnoughData);
    let bfq = scheduler.against_best[0].effect.unwrap();
    assert_eq!((bfq.noise, bfq.constructions, bfq.blocks), (None, 1, 4));
    // What lies on one construction is compared there, and what two depths differ by on each of them too.
    assert_eq!(dimension(&effects, "iodepth").verdict, DimensionVerdict::Matters);
    assert_eq!(effects.interactions[0].verdict, DimensionVerdict::Matters);
}

#[test]
fn values_on_several_constructions_are_compared_by_how_these_scatter() {
    let effects = analysed(&on_constructions(4));
    let scheduler = dimension(&effects, "scheduler");
    let bfq = scheduler.against_best[0].effect.unwrap();
    assert_eq!((bfq.constructions, bfq.blocks), (4, 16));
    assert_eq!(scheduler.against_best[0].verdict, Verdict::Worse);
    // Each has the same ratio, so that nothing scatters.
    close(bfq.noise.unwrap().high, bfq.ratio, 1e-9);
}

#[test]
fn what_a_race_called_equivalent_does_not_matter_and_keeps_its_interval() {
    let certified =
        sweep().into_iter().map(|o| Observation { is_equivalent: o.settings["rw"] == "read", ..o });
    let certified: Vec<_> = certified.collect();
    let scheduler = |of: &[Observation]| dimension(&analysed(of), "scheduler").clone();
    assert_eq!(scheduler(&certified).verdict, DimensionVerdict::Matters);
    let reads: Vec<_> = certified.into_iter().filter(|o| o.is_equivalent).collect();
    let of_reads = scheduler(&reads);
    assert_eq!(of_reads.verdict, DimensionVerdict::NoDifference);
    assert!(of_reads.against_best[0].effect.unwrap().noise.unwrap().high < 1.0);
}

#[test]
fn unsteady_blocks_count_less_and_successive_ones_that_resemble_each_other_widen() {
    let width = |of: &dyn Fn(Observation) -> Observation| {
        let observations: Vec<_> = sweep().into_iter().map(of).collect();
        let noise = dimension(&analysed(&observations), "scheduler").against_best[0].effect.unwrap().noise;
        let noise = noise.unwrap();
        (noise.high / noise.low).ln()
    };
    let plain = width(&|o| o);
    close(width(&|o| Observation { memory: 0.6, ..o }), 2.0 * plain, 1e-9);
    let outlier = |o: &Observation| {
        let mut o = o.clone();
        o.samples[2].figure *= if o.settings["scheduler"] == "bfq" { 0.7 } else { 1.0 };
        o
    };
    let weighed = |weight: f64| {
        width(&|o| {
            let mut o = outlier(&o);
            o.samples[2].weight = weight;
            o
        })
    };
    assert!(weighed(0.1) < 0.7 * weighed(1.0));
}

#[test]
fn intervals_that_hold_at_every_number_of_blocks_are_wider() {
    let blocks: Vec<Observation> = sweep()
        .into_iter()
        .map(|o| {
            let figures: Vec<f64> =
                (0..12).map(|n| o.samples[n % 4].figure * (1.0 + 0.001 * n as f64)).collect();
            Observation { samples: Sample::passes(&figures), ..o }
        })
        .collect();
    let width = |every_block: bool| {
        let found = effects(&blocks, &EffectRules { every_block, ..EffectRules::default() }).unwrap();
        let noise = dimension(&found, "iodepth").against_best[0].effect.unwrap().noise.unwrap();
        (noise.high / noise.low).ln()
    };
    assert!(width(true) > 1.2 * width(false), "{} {}", width(true), width(false));
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
    assert_eq!(strongest.verdict, DimensionVerdict::Matters);
    assert!(!strongest.changes_the_best(), "none is best at either depth, and 32 under every scheduler");
    for other in &effects.interactions[1..] {
        assert_eq!(other.verdict, DimensionVerdict::NoDifference, "{} × {}", other.first, other.second);
    }
}

#[test]
fn a_level_beyond_1_is_refused() {
    let error = effects(&[], &EffectRules { level: 95.0, ..EffectRules::default() }).unwrap_err();
    assert_eq!(error.to_string(), "level=95: an interval's level lies between 0 and 1, such as 0.95");
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
    let figures = |of: &DimensionEffect| {
        let of =
            of.against_best.iter().map(|a| (a.value.clone(), a.effect.map(|e| (e.ratio, e.across_blocks))));
        of.collect::<Vec<_>>()
    };
    assert_eq!(figures(before), figures(after));
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
        observations.push(Observation { samples: Sample::passes(&samples), ..observations[0].clone() });
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
    let without_scatter: Vec<_> = sweep()
        .into_iter()
        .map(|o| Observation { samples: Sample::passes(&[o.samples[0].figure; 3]), ..o })
        .collect();
    let certain = analysed(&without_scatter);
    let scheduler = dimension(&certain, "scheduler");
    assert_eq!(scheduler.verdict, DimensionVerdict::Matters);
    let noise = scheduler.against_best[0].effect.unwrap().noise.unwrap();
    close(noise.low, noise.high, 1e-12);

    let single: Vec<_> =
        sweep().into_iter().map(|o| Observation { samples: vec![o.samples[0]], ..o }).collect();
    let by_blocks = analysed(&single);
    let bfq = &dimension(&by_blocks, "scheduler").against_best[0];
    assert!(bfq.effect.unwrap().noise.unwrap().contains(bfq.effect.unwrap().ratio));
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
        }
    }
}
