//! A ratio of geometric means over matched configurations, with both of its intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::table::Cell;
use crate::stats::describe::{finite, mean, sample_sd};
use crate::stats::intervals::t_interval;
use crate::stats::special::{t_multiplier, t_two_sided};
use crate::stats::{Interval, Method};

/// A ratio of geometric means over blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioEstimate {
    /// The ratio: the exp of the mean log ratio over the blocks.
    pub ratio: f64,
    /// Blocks that it rests on.
    pub blocks: usize,
    /// Would it hold at other settings? A t interval over the blocks' log ratios; wide where the ratio
    /// depends on the other dimensions. None for a single block.
    pub across_blocks: Option<Interval>,
    /// Is it more than noise at these settings? An interval from the scatter of the passes within each
    /// configuration. None where a configuration has a single pass.
    pub noise: Option<Interval>,
    /// Two-sided p-value of the ratio being 1: by the noise, or over the blocks where there is no
    /// noise to go by.
    pub p_value: Option<f64>,
}

/// Collects a log ratio block by block.
#[derive(Default)]
pub(super) struct LogRatio {
    pub(super) logs: Vec<f64>,
    variance: f64,
    /// Σ vᵢ²/dfᵢ, for Satterthwaite's degrees of freedom.
    squares_by_df: f64,
    noise_unknown: bool,
}

impl LogRatio {
    /// Adds one block's Σ cᵢ·log(mean of cell i).
    pub(super) fn add<'a>(&mut self, terms: impl IntoIterator<Item = (f64, &'a Cell)>) {
        let mut log = 0.0;
        for (coefficient, cell) in terms {
            log += coefficient * cell.log_mean;
            match cell.noise {
                Some((variance, df)) => {
                    let share = coefficient * coefficient * variance;
                    self.variance += share;
                    self.squares_by_df += share * share / df;
                }
                None => self.noise_unknown = true,
            }
        }
        self.logs.push(log);
    }

    /// The mean log ratio; `None` before the first block.
    pub(super) fn log(&self) -> Option<f64> {
        mean(&self.logs)
    }

    /// The ratio with its intervals; `None` before the first block, or where it or its
    /// reciprocal exceeds an `f64`.
    pub(super) fn estimate(&self, level: f64) -> Option<RatioEstimate> {
        let log = self.log()?;
        let blocks = self.logs.len();
        let across_blocks = t_interval(&self.logs, level).and_then(|i| i.map(f64::exp));
        let (noise, by_noise) = self.noise(log, level);
        Some(RatioEstimate {
            ratio: finite(log.exp()).filter(|r| (1.0 / r).is_finite())?,
            blocks,
            across_blocks,
            noise,
            p_value: by_noise.or_else(|| self.p_over_blocks(log)),
        })
    }

    fn noise(&self, log: f64, level: f64) -> (Option<Interval>, Option<f64>) {
        if self.noise_unknown {
            return (None, None);
        }
        let se = self.variance.sqrt() / self.logs.len() as f64;
        // Squares of less than this vanish from an f64: passes equal to the last bit, as simulated
        // ones are.
        let df = self.variance * self.variance / self.squares_by_df;
        if !df.is_finite() || se == 0.0 {
            let point = Interval::new(log.exp(), log.exp(), level, Method::Welch);
            return (point, Some(certain(log)));
        }
        let half = t_multiplier(level, df) * se;
        let interval = Interval::new((log - half).exp(), (log + half).exp(), level, Method::Welch);
        (interval, Some(t_two_sided(log / se, df)))
    }

    fn p_over_blocks(&self, log: f64) -> Option<f64> {
        let n = self.logs.len() as f64;
        let se = sample_sd(&self.logs)? / n.sqrt();
        Some(if se == 0.0 { certain(log) } else { t_two_sided(log / se, n - 1.0) })
    }
}

/// The p-value without any scatter: 1 for a ratio that differs from 1 by rounding only, else 0.
fn certain(log: f64) -> f64 {
    if log.abs() < 1e-12 { 1.0 } else { 0.0 }
}

impl RatioEstimate {
    /// The same the other way round.
    pub(super) fn reciprocal(&self) -> Self {
        let turn = |interval: Option<Interval>| {
            interval.and_then(|i| Interval::new(1.0 / i.high, 1.0 / i.low, i.level, i.method))
        };
        Self {
            ratio: 1.0 / self.ratio,
            across_blocks: turn(self.across_blocks),
            noise: turn(self.noise),
            ..*self
        }
    }
}
