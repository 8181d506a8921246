//! The critical value of the t-mixture bound.

use crate::stats::special::t_multiplier;

/// How many standard errors a difference must exceed so that, for normal data, the chance of ever exceeding them
/// at any number of blocks is at most `alpha`; infinite if no difference suffices yet.
///
/// With A = 1 + 0.7 n and B = (√A/α)^(2/(f+1)) it is √(f (B − 1)/(1 − B/A)): the likelihood ratio of a t
/// statistic with `freedom` degrees, mixed over effects with 0.7 times the variance of one block, reaches 1/α
/// there (Lai 1976; Wang and Ramdas 2024).
pub(crate) fn at_every_block(alpha: f64, freedom: f64, blocks: usize) -> f64 {
    let spread = 1.0 + 0.7 * blocks as f64;
    let bound = (spread.sqrt() / alpha).powf(2.0 / (freedom + 1.0));
    if bound < spread { (freedom * (bound - 1.0) / (1.0 - bound / spread)).sqrt() } else { f64::INFINITY }
}

/// The critical value of a single test: Student's t.
pub(super) fn at_one_block(alpha: f64, freedom: f64) -> f64 {
    t_multiplier(1.0 - alpha, freedom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_the_published_ones() {
        let blocks = [5, 8, 12, 20, 60];
        for (alpha, expected) in
            [(0.01, [8.247, 5.204, 4.477, 4.076, 3.817]), (0.10, [3.719, 3.267, 3.094, 3.001, 3.006])]
        {
            for (n, value) in blocks.into_iter().zip(expected) {
                let critical = at_every_block(alpha, n as f64 - 1.0 + 4.0, n);
                assert!((critical - value).abs() < 5e-4, "alpha {alpha}, n {n}: {critical} is not {value}");
            }
        }
    }

    #[test]
    fn no_difference_suffices_while_the_bound_exceeds_the_mixture() {
        assert_eq!(at_every_block(0.05, 3.0, 4), f64::INFINITY);
        assert!(at_every_block(0.05, 4.0, 5).is_finite());
    }

    #[test]
    fn a_bound_for_every_block_exceeds_that_of_one_test() {
        for n in 5..200 {
            let freedom = n as f64 + 3.0;
            assert!(at_every_block(0.05, freedom, n) > at_one_block(0.05, freedom));
        }
    }
}
