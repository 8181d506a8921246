//! The normal and Student t distributions, to nearly the last bit.
//!
//! `erfc` and `lgamma` come from `libm`; what is built on them here follows published formulas:
//!
//! - the normal quantile starts from Abramowitz & Stegun 26.2.23 (error below 4.5e-4) and takes Halley
//!   steps, each of which triples the correct digits;
//! - the t tail is a regularized incomplete beta function (DLMF 8.17.22, a continued fraction,
//!   evaluated by the modified Lentz method; A&S 26.7.1);
//! - the t quantile is Newton's method from the normal quantile: the tail is convex and the start lies
//!   on its near side, so every step goes the right way and none goes too far.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

/// Where lgamma differences have lost more digits than the normal limit with its first correction.
const LARGE_DF: f64 = 1e6;

/// P(Z ≤ x) for a standard normal Z.
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The x with P(Z ≤ x) = `p`; infinite at 0 and 1, NaN outside.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    if p > 0.5 {
        return -normal_quantile(1.0 - p);
    }
    if p <= 0.0 || p.is_nan() {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    let t = (-2.0 * p.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let mut x = above / below - t;
    for _ in 0..3 {
        let density = (-0.5 * x * x).exp() / (PI * 2.0).sqrt();
        let step = (normal_cdf(x) - p) / density;
        x -= step / (1.0 + 0.5 * x * step);
    }
    x
}

/// The z > 0 that a standard normal exceeds in absolute value with probability `p`, for p in (0, 1].
pub(crate) fn normal_two_sided(p: f64) -> f64 {
    -normal_quantile(0.5 * p)
}

/// P(T > t) for Student's t with `df` > 0 degrees of freedom, which need not be whole.
pub(crate) fn t_tail(t: f64, df: f64) -> f64 {
    if t < 0.0 {
        return 1.0 - t_tail(-t, df);
    }
    if t.is_infinite() {
        return 0.0;
    }
    if df > LARGE_DF {
        // Cornish-Fisher, first term (A&S 26.7.5, solved for the normal deviate).
        return normal_cdf(-(t - t * (t * t + 1.0) / (4.0 * df)).max(0.0));
    }
    // t² overflows long before the ratio does.
    let x = 1.0 / (1.0 + t / df * t);
    let y = 1.0 / (1.0 + df / t / t);
    0.5 * incomplete_beta(0.5 * df, 0.5, x, y)
}

/// P(|T| > |t|), the p-value of a two-sided test.
pub(crate) fn t_two_sided(t: f64, df: f64) -> f64 {
    2.0 * t_tail(t.abs(), df)
}

/// The t that Student's t exceeds with probability `tail`, for 0 < tail ≤ 1/2.
pub(crate) fn t_upper_quantile(tail: f64, df: f64) -> f64 {
    let z = -normal_quantile(tail);
    if df > LARGE_DF {
        return z + z * (z * z + 1.0) / (4.0 * df);
    }
    let log_scale = libm::lgamma(0.5 * (df + 1.0)) - libm::lgamma(0.5 * df) - 0.5 * (df * PI).ln();
    let mut t = z;
    // Far out in a heavy tail a step only multiplies t by 1 + 1/df; 200 of them span 60 decades at
    // df = 1.
    for _ in 0..200 {
        let density = (log_scale - 0.5 * (df + 1.0) * (t / df * t).ln_1p()).exp();
        let step = (t_tail(t, df) - tail) / density;
        if !step.is_finite() {
            break;
        }
        t += step;
        if step.abs() <= 4.0 * f64::EPSILON * t.abs() {
            break;
        }
    }
    t
}

/// The factor by which a standard error becomes half a two-sided interval at `level`.
pub(crate) fn t_multiplier(level: f64, df: f64) -> f64 {
    t_upper_quantile(0.5 * (1.0 - level), df)
}

/// I_x(a, b) with y = 1 − x given apart, so that neither end loses digits.
fn incomplete_beta(a: f64, b: f64, x: f64, y: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if y <= 0.0 {
        return 1.0;
    }
    let log_beta = libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b);
    // ln x from y where x is near 1.
    let ln_x = if y < 0.5 { (-y).ln_1p() } else { x.ln() };
    let ln_y = if x < 0.5 { (-x).ln_1p() } else { y.ln() };
    let front = (a * ln_x + b * ln_y - log_beta).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, y) / b
    }
}

/// DLMF 8.17.22 without its front factor.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let coefficient = |n: u32| {
        let m = f64::from(n / 2);
        if n.is_multiple_of(2) {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        }
    };
    let (mut ratio_above, mut ratio_below, mut value) = (1.0, 0.0, 1.0);
    // Needs some √max(a, b) terms: below a thousand up to LARGE_DF.
    for n in 1..20_000 {
        let d = coefficient(n);
        ratio_below = 1.0 / away_from_zero(1.0 + d * ratio_below);
        ratio_above = away_from_zero(1.0 + d / ratio_above);
        let factor: f64 = ratio_above * ratio_below;
        value *= factor;
        if (factor - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    1.0 / value
}

/// P(X ≤ k) for X binomial with `n` fair coins.
pub(crate) fn fair_coin_cdf(n: usize, k: usize) -> f64 {
    let ln_all = libm::lgamma(n as f64 + 1.0) - n as f64 * LN_2;
    let sum: f64 = (0..=k.min(n))
        .map(|i| (ln_all - libm::lgamma(i as f64 + 1.0) - libm::lgamma((n - i) as f64 + 1.0)).exp())
        .sum();
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, want: f64, relative: f64) {
        assert!((got - want).abs() <= relative * want.abs(), "{got:e} is not {want:e}");
    }

    /// mpmath 1.4.1, 50 digits: `sqrt(2)*erfinv(2*p-1)`; for 1e-300 the root of
    /// `log(ncdf(x))-log(p)`.
    #[test]
    fn normal_quantiles_are_those_of_mpmath() {
        for (p, x) in [
            (1e-300, -37.047_096_299_361_2),
            (1e-20, -9.262_340_089_798_409),
            (0.001, -3.090_232_306_167_813_5),
            (0.025, -1.959_963_984_540_054_2),
            (0.3, -0.524_400_512_708_040_8),
            (0.975, 1.959_963_984_540_054_2),
            (0.999_9, 3.719_016_485_455_680_6),
        ] {
            close(normal_quantile(p), x, 2e-13);
        }
        assert!((normal_quantile(0.499_999) + 2.506_628_274_633_625_4e-6).abs() < 1e-15);
        assert!(normal_quantile(0.5).abs() < 1e-15);
        assert_eq!(normal_quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(normal_quantile(1.0), f64::INFINITY);
        assert!(normal_quantile(-0.1).is_nan() && normal_quantile(1.1).is_nan());
        assert!(normal_quantile(f64::NAN).is_nan());
    }

    /// mpmath 1.4.1, 50 digits: `betainc(v/2, 1/2, 0, v/(v+t*t), regularized=True)/2`.
    #[test]
    fn t_tails_are_those_of_mpmath() {
        for (t, df, tail) in [
            (0.001, 4.0, 0.499_625_000_078_125),
            (1.0, 1.0, 0.25),
            (2.776, 4.0, 0.025_011_389_159_988_206),
            (2.1, 2.7, 0.068_290_685_425_183_26),
            (12.0, 3.0, 0.000_622_507_900_394_668_4),
            (0.5, 1000.0, 0.308_592_540_416_937_4),
            (4.0, 1000.0, 3.400_495_960_439_079e-5),
            (30.0, 4.0, 3.676_428_048_830_661e-6),
        ] {
            close(t_tail(t, df), tail, 1e-11);
        }
        close(t_tail(3.0, 200_000.0), 0.001_350_064_231_388_395_3, 1e-8);
        close(t_tail(2.0, 5e6), 0.022_750_158_943_665_03, 1e-9);
        assert_eq!(t_tail(0.0, 4.0), 0.5);
        assert_eq!(t_tail(f64::INFINITY, 4.0), 0.0);
        close(t_tail(-1.0, 1.0), 0.75, 1e-14);
    }

    /// mpmath 1.4.1, 50 digits: the root in t of `log(tail(t, v)) - log(q)`, tail as above.
    #[test]
    fn t_quantiles_are_those_of_mpmath() {
        for (tail, df, t) in [
            (0.025, 1.0, 12.706_204_736_174_705),
            (0.025, 2.0, 4.302_652_729_749_464),
            (0.025, 4.0, 2.776_445_105_197_794_4),
            (0.005, 4.0, 4.604_094_871_349_993),
            (0.025, 2.7, 3.392_148_383_173_752),
            (0.05, 9.0, 1.833_112_932_656_237_2),
            (0.025, 1000.0, 1.962_339_080_826_408_5),
            (0.1, 4.0, 1.533_206_274_058_944),
            (0.000_5, 3.0, 12.923_978_636_687_483),
        ] {
            close(t_upper_quantile(tail, df), t, 1e-12);
        }
        close(t_upper_quantile(0.025, 50_000.0), 1.960_011_431_093_68, 1e-9);
    }

    #[test]
    fn quantile_and_tail_undo_each_other_over_the_whole_range() {
        for df in [0.6, 1.0, 3.3, 4.0, 25.0, 700.0, 9.9e5, 1.1e6, 1e12] {
            for tail in [1e-12, 1e-4, 0.025, 0.2, 0.45, 0.5] {
                let t = t_upper_quantile(tail, df);
                close(t_tail(t, df), tail, 1e-6);
            }
        }
    }

    #[test]
    fn fair_coins_add_up() {
        close(fair_coin_cdf(5, 0), 1.0 / 32.0, 1e-12);
        close(fair_coin_cdf(5, 2), 0.5, 1e-12);
        close(fair_coin_cdf(5, 5), 1.0, 1e-12);
        // scipy 1.17.1: binom.cdf(4900, 10000, 0.5)
        close(fair_coin_cdf(10_000, 4_900), 0.023_292_763_852_473_225, 1e-8);
    }
}
