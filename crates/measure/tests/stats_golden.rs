//! Figures computed independently: Python 3 with NumPy 2.4.6, SciPy 1.17.1 and mpmath 1.4.1. Each test
//! states the expression; `A`, `B` and `C` are the arrays below and `st` is `scipy.stats`.

use measure::stats::cleaning::{chauvenet_can_fire, chauvenet_limit, largest_possible_deviation};
use measure::stats::compare::holm;
use measure::stats::describe::z_scores;
use measure::stats::drift::{DriftRules, DriftVerdict, drift};
use measure::stats::fit::linear_fit;
use measure::stats::intervals::{median_interval, ratio_of_means, t_interval};
use measure::stats::steady::{SteadyVerdict, steady};
use measure::stats::{CleaningRules, Verdict, clean, compare, describe};

const A: [f64; 5] = [512.3, 498.7, 505.1, 520.9, 501.4];
const B: [f64; 5] = [548.2, 551.9, 539.6, 560.3, 545.0];
const C: [f64; 12] = [3.1, 2.7, 4.4, 9.8, 3.3, 2.9, 5.6, 3.0, 2.2, 14.1, 3.7, 4.0];

#[track_caller]
fn close(got: f64, want: f64) {
    near(got, want, 1e-11 * want.abs());
}

#[track_caller]
fn near(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{got:?} is not {want:?} within {tolerance:e}");
}

/// mpmath, 50 digits: `sqrt(2)*erfinv(1-mpf(1)/(2*n))`, and `(n-1)/sqrt(mpf(n))`.
#[test]
fn chauvenet_limits_are_those_of_mpmath() {
    for (n, limit, possible) in [
        (1, 0.674_489_750_196_081_7, 0.0),
        (2, 1.150_349_380_376_008, 0.707_106_781_186_547_5),
        (3, 1.382_994_127_100_638_4, 1.154_700_538_379_251_5),
        (4, 1.534_120_544_352_546_3, 1.5),
        (5, 1.644_853_626_951_472_7, 1.788_854_381_999_831_8),
        (6, 1.731_664_396_122_245, 2.041_241_452_319_315),
        (10, 1.959_963_984_540_054_2, 2.846_049_894_151_541_4),
        (30, 2.393_979_799_818_509_5, 5.294_651_389_216_606),
        (100, 2.807_033_768_343_804, 9.9),
        (1_000, 3.480_756_404_346_213, 31.591_153_825_082_11),
        (1_000_000, 5.026_312_836_056_685, 999.999),
    ] {
        near(chauvenet_limit(n), limit, 1e-13 * limit);
        near(largest_possible_deviation(n), possible, 1e-14 * possible);
        assert_eq!(chauvenet_can_fire(n), n >= 5, "n = {n}");
    }
    assert!(!chauvenet_can_fire(0));
}

/// `C.mean()`, `C.std(ddof=1)`, `st.variation(C, ddof=1)`, `np.quantile(C, [.25, .5, .75, .9, .99])`,
/// `st.median_abs_deviation(C)`.
#[test]
fn a_description_is_that_of_numpy() {
    let d = describe(&C).unwrap();
    close(d.mean, 4.9);
    close(d.sd.unwrap(), 3.531_417_433_681_423_5);
    close(d.cv.unwrap(), 0.720_697_435_445_188_4);
    close(d.q1, 2.975);
    close(d.median, 3.5);
    close(d.q3, 4.7);
    close(d.p90, 9.38);
    close(d.p99, 13.627);
    close(d.mad, 0.7);
    assert_eq!((d.n, d.min, d.max), (12, 2.2, 14.1));
}

/// `P = [700, *A]; z = (P-P.mean())/P.std(ddof=1)`; the same for `A` alone;
/// `(P-np.median(A))/st.median_abs_deviation(A)`.
#[test]
fn a_cleaned_point_has_the_distances_of_numpy() {
    let passes: Vec<f64> = [700.0].into_iter().chain(A).collect();
    let cleaned = clean(&passes, &CleaningRules::default());
    let z_all = [2.030_634_286_474_421, -0.347_589_853_945_185_6, -0.519_906_573_762_482_2];
    for (pass, z) in cleaned.passes.iter().zip(z_all) {
        close(pass.z_all_passes.unwrap(), z);
    }
    let z = [0.514_248_366_739_280_6, -0.999_556_349_203_203_8, -0.287_177_659_347_911_45];
    let mads = [1.125, -1.0, 0.0, 2.468_75, -0.578_125];
    assert_eq!((cleaned.passes[0].z, cleaned.passes[1].set_aside), (None, None));
    for (pass, z) in cleaned.passes[1..].iter().zip(z) {
        close(pass.z.unwrap(), z);
    }
    for (pass, mads) in cleaned.passes[1..].iter().zip(mads) {
        near(pass.mads.unwrap(), mads, 1e-12);
    }
    near(cleaned.passes[0].mads.unwrap(), 30.453_125, 1e-11);
    // 2.03 lies beyond Chauvenet's limit for six, 1.73.
    assert_eq!((cleaned.chauvenet_all_passes.outliers, cleaned.chauvenet.outliers), (1, 0));
    assert_eq!(cleaned.retained, A);
}

/// `st.ttest_1samp(A, 0).confidence_interval(level)`.
#[test]
fn t_intervals_are_those_of_scipy() {
    for (samples, level, low, high) in [
        (&A[..], 0.95, 496.524_908_330_822_8, 518.835_091_669_177_2),
        (&A[..], 0.99, 489.181_849_164_117_1, 526.178_150_835_883),
        (&C[..], 0.95, 2.656_244_409_327_864_5, 7.143_755_590_672_136),
    ] {
        let got = t_interval(samples, level).unwrap();
        close(got.low, low);
        close(got.high, high);
    }
}

/// `va, vb = a.var(ddof=1)/len(a), b.var(ddof=1)/len(b); r = a.mean()/b.mean()`; `df =
/// (va+r*r*vb)**2/(va**2/(len(a)-1)+(r*r*vb)**2/(len(b)-1)); t = st.t.ppf(1-(1-level)/2, df)`; both
/// ends by `scipy.optimize.brentq` of `abs(a.mean()-x*b.mean())/np.sqrt(va+x*x*vb)-t`, below r and
/// above it; p-value `2*st.t.sf(abs(a.mean()-b.mean())/np.sqrt(va+vb), df)`.
#[test]
fn a_ratio_of_means_is_fiellers_solved_by_root_finding() {
    for (a, b, level, ratio, low, high, p) in [
        (
            &B[..],
            &A[..],
            0.95,
            1.081_389_851_875_197,
            1.056_271_494_651_713_5,
            1.107_241_110_394_999,
            6.894_259_871_959_759e-5,
        ),
        (
            &C[..],
            &A[..],
            0.90,
            0.009_651_749_133_312_324,
            0.006_045_501_249_079_224,
            0.013_261_894_997_677_751,
            1.354_268_035_120_467e-18,
        ),
    ] {
        let got = ratio_of_means(a, b, level).unwrap();
        close(got.value, ratio);
        near(got.interval.low, low, 1e-10 * low);
        near(got.interval.high, high, 1e-10 * high);
        near(got.p_value, p, 1e-8 * p);
    }
    let compared = compare(&A, &B);
    assert_eq!(compared.verdict, Verdict::Better);
    close(compared.ratio.unwrap(), 1.081_389_851_875_197);
}

/// `1-2*st.binom.cdf(2, 12, .5)`, `np.sort(C)[[2, 9]]`; for five and three samples 1 − 2/2ⁿ.
#[test]
fn a_medians_interval_says_what_its_order_statistics_cover() {
    let got = median_interval(&C, 0.95).unwrap();
    assert_eq!((got.low, got.high), (2.9, 5.6));
    close(got.level, 0.961_425_781_25);
    let five = median_interval(&A, 0.95).unwrap();
    assert_eq!((five.low, five.high), (498.7, 520.9));
    close(five.level, 0.937_5);
    close(median_interval(&A[..3], 0.95).unwrap().level, 0.75);
}

/// By hand from Holm's definition: sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 are 0.02, 0.03,
/// 0.06, 0.04; the last is raised to its predecessor.
#[test]
fn holms_correction_steps_down_and_never_falls() {
    let got = holm(&[Some(0.01), Some(0.04), None, Some(0.03), Some(0.005)]);
    for (got, want) in got.iter().zip([Some(0.03), Some(0.06), None, Some(0.06), Some(0.02)]) {
        assert_eq!(got.is_some(), want.is_some());
        near(got.unwrap_or(0.0), want.unwrap_or(0.0), 1e-15);
    }
    assert_eq!(holm(&[Some(0.9), Some(0.8)]), [Some(1.0), Some(1.0)]);
}

const X: [f64; 6] = [0.0, 3.0, 7.0, 12.0, 20.0, 31.0];
const Y: [f64; 6] = [1001.0, 995.0, 1003.0, 960.0, 931.0, 902.0];

/// `l = st.linregress(X, Y)`: slope, intercept, stderr.
#[test]
fn a_linear_fit_is_that_of_scipy() {
    let fit = linear_fit(&X, &Y).unwrap();
    close(fit.slope, -3.499_135_589_034_328_8);
    close(fit.at(0.0), 1_007.906_149_666_584_4);
    near(fit.slope_se.unwrap(), 0.441_729_728_214_485_8, 1e-11);
}

/// `h = st.t.ppf(.975, 4)*l.stderr; s = 31/Y.mean(); l.slope*s, (l.slope-h)*s, (l.slope+h)*s,
/// l.pvalue`; `(Y/np.median(Y)-1)[5]`.
#[test]
fn drift_is_the_regression_of_scipy_by_the_mean() {
    let points: Vec<_> = X.into_iter().zip(Y).collect();
    let got = drift(&points, &DriftRules::default());
    let interval = got.interval.unwrap();
    close(got.trend_ratio.unwrap(), -0.112_368_649_785_978_1);
    close(interval.low, -0.151_753_582_721_094_07);
    close(interval.high, -0.072_983_716_850_862_13);
    near(got.p_value.unwrap(), 0.001_374_507_641_570_937_3, 1e-11);
    let furthest = got.largest_deviation.unwrap();
    assert_eq!((furthest.index, furthest.x), (5, 31.0));
    close(furthest.ratio, -0.077_237_851_662_404_04);
    assert_eq!(got.verdict, DriftVerdict::Drifting);
}

/// `(S.max()-S.min())/S.mean()`, `st.linregress(range(5), S).slope*4/S.mean()`.
#[test]
fn steadiness_has_the_figures_of_scipy() {
    let flat = steady(&[100.0, 104.0, 97.0, 103.0, 99.0]);
    close(flat.range_ratio.unwrap(), 0.069_582_504_970_178_93);
    close(flat.slope_ratio.unwrap(), -0.011_928_429_423_459_248);
    assert_eq!(flat.verdict, SteadyVerdict::Steady);
    // Within the range of 20 %, and yet on a slope of more than 10 %.
    let climbing = steady(&[100.0, 104.0, 107.0, 109.0, 113.0]);
    close(climbing.range_ratio.unwrap(), 0.121_951_219_512_195_13);
    close(climbing.slope_ratio.unwrap(), 0.116_322_701_688_555_35);
    assert_eq!(climbing.verdict, SteadyVerdict::NotReached);
}

/// By hand: around its mean, (−¼, −¼, −¼, ¾) ulp has the sample sd ½ ulp.
#[test]
fn distances_survive_samples_that_differ_in_the_last_bit() {
    let x: f64 = 0.1;
    let z = z_scores(&[x, x, x, x.next_up()]).unwrap();
    close(z[3], 1.5);
    close(z[0], -0.5);
}
