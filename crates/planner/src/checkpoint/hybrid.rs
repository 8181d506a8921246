//! Flash for bandwidth in front of disk for capacity (Srinivasan and Canon, CUG 2013, section V, Tables III and IV).
//!
//! Checkpoints are written to the fast tier at its bandwidth, which blocks the application, and drained to the slow tier
//! behind its back. A tier costs the dearer of its bandwidth and its capacity. The drain must end before the next
//! checkpoint begins, or the fast tier has to hold more of them; it must end before the next one that drains in any case.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Machine, bisect, time};
use crate::prices::Product;
use crate::{Formula, PlanError};

/// How tiers are sized and priced.
pub const FORMULAS: [Formula; 4] = [
    Formula {
        gives: "price of a tier",
        formula: "max(bandwidth x price per GB/s, capacity x price per TB)",
        source: "Srinivasan and Canon, CUG 2013, section V and Table III",
    },
    Formula {
        gives: "drain bandwidth",
        formula: "S / (T - S/B_fast): the drain ends before the next checkpoint begins",
        source: "Srinivasan and Canon, CUG 2013, Table IV (1200 TB in 3067 s)",
    },
    Formula {
        gives: "capacity of the fast tier",
        formula: "S x (keep + 1 + min(2, ceil((S/B_drain) / T))): one is written, one may still drain, and if drains \
                  are longer than T the last complete one is a third",
        source: "upper bound of checkpoints that are not yet drained",
    },
    Formula {
        gives: "capacity of the slow tier",
        formula: "at least 2 S: the last complete checkpoint stays while the next is written; the capacity that comes with \
                  the bandwidth, if that is more",
        source: "Srinivasan and Canon, CUG 2013, Table IV (capacity by bandwidth)",
    },
];

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Demand {
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: f64,
    /// Seconds from one checkpoint to the next.
    pub period_s: f64,
    /// Checkpoints that stay on the fast tier beside those on their way.
    pub keep: u32,
    /// Bytes that the slow tier has to hold besides; it holds two checkpoints in any case.
    pub slow_capacity_bytes: f64,
    /// Share of its speed that the application keeps while a checkpoint is written.
    pub overlap: f64,
    /// One checkpoint in so many drains to the slow tier.
    pub drain_every: u32,
    /// Share of its speed that the application keeps while a checkpoint drains.
    pub drain_overlap: f64,
}

impl Demand {
    /// Checkpoints of so many bytes, a period apart, of which each stops the application while it is written and drains
    /// behind its back.
    #[must_use]
    pub fn new(checkpoint_bytes: f64, period_s: f64) -> Self {
        Self {
            checkpoint_bytes,
            period_s,
            keep: 0,
            slow_capacity_bytes: 0.0,
            overlap: 0.0,
            drain_every: 1,
            drain_overlap: 1.0,
        }
    }

    /// Bytes of the slow tier: the last complete checkpoint stays while the next is written.
    fn slow_capacity(&self) -> f64 {
        self.slow_capacity_bytes.max(2.0 * self.checkpoint_bytes)
    }
}

/// One way to buy storage: the rows of Table IV. Rates are bytes per second, prices in the price file's currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Purchase {
    /// Bandwidth of the fast tier; 0 where there is none.
    pub fast_bandwidth: f64,
    /// Bytes of the fast tier.
    pub fast_capacity: f64,
    /// Bandwidth of the slow tier.
    pub slow_bandwidth: f64,
    /// Bytes of the slow tier.
    pub slow_capacity: f64,
    /// Seconds that a checkpoint takes the application.
    pub write_s: f64,
    /// Work of a period, in seconds at full speed.
    pub compute_s: f64,
    /// Seconds of a period, the mean with its part of the drains.
    pub period_s: f64,
    /// Price of the fast tier.
    pub fast_price: Option<f64>,
    /// Price of the slow tier.
    pub slow_price: Option<f64>,
}

impl Purchase {
    /// Share of the time for which checkpoints and drains keep the application from computing.
    #[must_use]
    pub fn io_share(&self) -> f64 {
        1.0 - self.compute_s / self.period_s
    }

    /// The price of both tiers, if both are known.
    #[must_use]
    pub fn price(&self) -> Option<f64> {
        Some(self.fast_price? + self.slow_price?)
    }
}

/// What a tier of a product costs: the dearer of bandwidth and capacity.
///
/// # Errors
/// [`PlanError::Invalid`] if the price of one of them is not known.
pub fn price(product: &Product, bandwidth: f64, capacity: f64) -> Result<f64, PlanError> {
    let of_bandwidth = "price_per_gb_per_s (or price and sequential_write_mb_per_s)";
    let of_capacity = "price_per_tb (or price and capacity_gb)";
    let by_bandwidth = product.needs(of_bandwidth, product.price_per_byte_per_s())? * bandwidth;
    Ok(by_bandwidth.max(product.needs(of_capacity, product.price_per_byte())? * capacity))
}

/// Checkpoints to a fast tier, drained to a slow one of this bandwidth, or of the least that will do. `fast_capacity`
/// overrides the capacity that the formula gives.
///
/// # Errors
/// [`PlanError::Impossible`] if a checkpoint cannot be written within a period, or the drain is slower than checkpoints
/// arrive, or the given capacity does not hold the checkpoints that are not yet drained.
pub fn hybrid(
    demand: &Demand,
    fast_bandwidth: f64,
    slow_bandwidth: Option<f64>,
    fast_capacity: Option<f64>,
) -> Result<Purchase, PlanError> {
    let size = demand.checkpoint_bytes;
    let write_s = size / fast_bandwidth;
    let between_s = demand.period_s - write_s;
    if between_s <= 0.0 {
        return Err(too_slow("fast", fast_bandwidth, size, demand.period_s));
    }
    let slow_bandwidth = slow_bandwidth.unwrap_or(size / between_s);
    let drain_s = size / slow_bandwidth;
    let drain_every = f64::from(demand.drain_every);
    if drain_s > drain_every * demand.period_s * (1.0 + 1e-9) {
        return Err(too_slow("slow", slow_bandwidth, size, drain_every * demand.period_s));
    }
    // Between the ends of a drain and the next write nothing is on its way. If not every checkpoint drains, the last
    // complete one is on the fast tier alone, and stays while the next is written.
    let stays = demand.drain_every > 1 || drain_s > between_s * (1.0 + 1e-9);
    let kept = f64::from(demand.keep) + 1.0;
    let least = (kept + f64::from(u8::from(stays))) * size;
    let formula = (kept + (drain_s / demand.period_s * (1.0 - 1e-9)).ceil().min(2.0)) * size;
    if let Some(given) = fast_capacity.filter(|given| *given < least) {
        let hint = format!(
            "at least {}, or --keep of fewer checkpoints, or a drain that ends before the next begins",
            units::decimal_bytes(least)
        );
        let problem = format!("does not hold the {:.0} checkpoints that are there at once", least / size);
        return Err(PlanError::impossible(
            format!("fast-capacity={}", units::decimal_bytes(given)),
            problem,
            hint,
        ));
    }
    Ok(Purchase {
        fast_bandwidth,
        fast_capacity: fast_capacity.unwrap_or(formula),
        slow_bandwidth,
        slow_capacity: demand.slow_capacity(),
        write_s,
        compute_s: between_s + demand.overlap * write_s
            - (1.0 - demand.drain_overlap) * drain_s / drain_every,
        period_s: demand.period_s,
        fast_price: None,
        slow_price: None,
    })
}

/// Checkpoints to the slow tier alone.
///
/// # Errors
/// [`PlanError::Impossible`] if a checkpoint cannot be written within a period.
pub fn alone(demand: &Demand, slow_bandwidth: f64) -> Result<Purchase, PlanError> {
    let write_s = demand.checkpoint_bytes / slow_bandwidth;
    if write_s >= demand.period_s {
        return Err(too_slow("alone", slow_bandwidth, demand.checkpoint_bytes, demand.period_s));
    }
    Ok(Purchase {
        fast_bandwidth: 0.0,
        fast_capacity: 0.0,
        slow_bandwidth,
        slow_capacity: demand.slow_capacity(),
        write_s,
        compute_s: demand.period_s - (1.0 - demand.overlap) * write_s,
        period_s: demand.period_s,
        fast_price: Some(0.0),
        slow_price: None,
    })
}

fn too_slow(tier: &str, bandwidth: f64, size: f64, period_s: f64) -> PlanError {
    PlanError::impossible(
        format!("{tier}={}", units::bandwidth(bandwidth)),
        format!(
            "a checkpoint of {} takes {}, and the next comes after {}",
            units::decimal_bytes(size),
            time(size / bandwidth),
            time(period_s)
        ),
        format!(
            "more than {}, an --interval above {}, or checkpoints below {}",
            units::bandwidth(size / period_s),
            time(size / bandwidth),
            units::decimal_bytes(bandwidth * period_s)
        ),
    )
}

impl Purchase {
    /// With the prices of two products; the slow tier has at least the capacity that comes with its bandwidth.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] if a product has no price.
    pub fn priced(self, fast: &Product, slow: &Product) -> Result<Self, PlanError> {
        let slow_capacity = self.slow_capacity.max(slow.bytes_per_byte_per_s() * self.slow_bandwidth);
        let fast_price = match self.fast_bandwidth {
            0.0 => 0.0,
            bandwidth => price(fast, bandwidth, self.fast_capacity)?,
        };
        let slow_price = price(slow, self.slow_bandwidth, slow_capacity)?;
        Ok(Self { slow_capacity, fast_price: Some(fast_price), slow_price: Some(slow_price), ..self })
    }
}

/// What is asked of the cheapest mix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Target {
    /// Largest share of the wall time that checkpoints and failures may waste.
    pub waste: f64,
    /// Mean time between failures, seconds.
    pub mtbf_s: f64,
    /// Time from a failure to the restart, seconds.
    pub downtime_s: f64,
    /// Time to read a checkpoint back, seconds; None if it is read as fast as it is written.
    pub restart_s: Option<f64>,
    /// Share of its speed that the application keeps while a checkpoint is written.
    pub overlap: f64,
}

/// A machine that writes `bytes` at a bandwidth.
fn machine(target: &Target, bytes: f64, bandwidth: f64) -> Machine {
    let write_s = bytes / bandwidth;
    Machine {
        mtbf_s: target.mtbf_s,
        write_s,
        restart_s: target.restart_s.unwrap_or(write_s),
        downtime_s: target.downtime_s,
        overlap: target.overlap,
    }
}

/// The cheapest pair of tiers that wastes at most the target, and the cheapest slow tier alone that does.
///
/// The longest period within the target needs the slowest drain, so for each bandwidth of the fast tier the rest follows;
/// the price is then minimised over that bandwidth, from the least that meets the target to a hundred times it. The
/// demand's period is ignored.
///
/// # Errors
/// [`PlanError::Impossible`] if no bandwidth meets the target.
pub fn cheapest(
    demand: &Demand,
    target: &Target,
    fast: &Product,
    slow: &Product,
) -> Result<(Purchase, Purchase), PlanError> {
    let size = demand.checkpoint_bytes;
    if !(target.waste > 0.0 && target.waste < 1.0) {
        let hint = "the share of the time that may be wasted lies above 0 and below 1";
        let parameter = format!("target-waste={}", target.waste);
        return Err(PlanError::invalid(parameter, "is not between 0 and 1", hint));
    }
    crate::share("overlap", target.overlap)?;
    let meets = |bandwidth: f64| {
        let machine = machine(target, size, bandwidth);
        machine.waste(machine.exact_period()) <= target.waste
    };
    let ceiling = size / (target.mtbf_s * 1e-9);
    if !meets(ceiling) {
        let least = machine(target, size, ceiling);
        let least = least.waste(least.exact_period());
        return Err(PlanError::impossible(
            format!("target-waste={}", target.waste),
            format!("down times and restarts alone waste {}", units::percent(least)),
            "a larger --target-waste, a larger --mtbf, a shorter --downtime or --restart",
        ));
    }
    let least = bisect(ceiling * 1e-18, ceiling, meets);
    let mix = |bandwidth: f64| {
        let machine = machine(target, size, bandwidth);
        let best = machine.exact_period();
        let longest = longest_within(&machine, best, target.waste);
        hybrid(&Demand { period_s: longest, ..*demand }, bandwidth, None, None)?.priced(fast, slow)
    };
    let price_at = |bandwidth: f64| mix(bandwidth).ok().and_then(|p| p.price()).unwrap_or(f64::INFINITY);
    // Prices have kinks and, by whole checkpoints, steps: a grid first, then sections around its best.
    let steps = 400;
    let at = |step: u32| least * (1.0 + 1e-9) * 100f64.powf(f64::from(step) / f64::from(steps));
    let best = (0..=steps).min_by(|a, b| price_at(at(*a)).total_cmp(&price_at(at(*b)))).unwrap_or(0);
    let around = (at(best.saturating_sub(1)).ln(), at((best + 1).min(steps)).ln());
    let refined = super::golden_section(around.0, around.1, |ln| price_at(ln.exp())).exp();
    let bandwidth = if price_at(refined) < price_at(at(best)) { refined } else { at(best) };
    let single = machine(target, size, least);
    let alone = alone(&Demand { period_s: single.exact_period(), ..*demand }, least)?.priced(fast, slow)?;
    Ok((mix(bandwidth)?, alone))
}

/// The longest period that wastes at most `waste`, which the best one does.
fn longest_within(machine: &Machine, best: f64, waste: f64) -> f64 {
    let mut high = best * 2.0;
    while machine.waste(high) <= waste {
        high *= 2.0;
    }
    1.0 / bisect(1.0 / high, 1.0 / best, |inverse| machine.waste(1.0 / inverse) <= waste)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::prices::Prices;

    fn prices() -> Prices {
        Prices::parse(include_str!("../../../../examples/prices/cray-2013.toml")).unwrap()
    }

    fn demand(period_s: f64) -> Demand {
        Demand::new(1200e12, period_s)
    }

    fn target(waste: f64, mtbf_s: f64) -> Target {
        Target { waste, mtbf_s, downtime_s: 0.0, restart_s: None, overlap: 0.0 }
    }

    #[test]
    fn a_target_that_is_no_share_or_below_what_down_times_waste_fails() {
        let prices = prices();
        let of = |target: &Target| cheapest(&demand(0.0), target, &prices.products[0], &prices.products[1]);
        for waste in [0.0, 1.0, -0.1, f64::NAN] {
            assert!(matches!(of(&target(waste, 1e5)), Err(PlanError::Invalid { .. })), "{waste}");
        }
        let slow_restart = Target { restart_s: Some(5e4), ..target(0.2, 1e5) };
        let error = of(&slow_restart).unwrap_err();
        assert_eq!(error.to_string(), "target-waste=0.2: down times and restarts alone waste 39.3 %");
    }

    #[test]
    fn a_tier_without_the_price_of_its_bandwidth_or_capacity_is_not_free() {
        let head = "name = \"x\"\n[[product]]\nname = \"a\"\ndate = \"2026\"\nsource = \"s\"\n";
        let of =
            |keys: &str| price(&Prices::parse(&(head.to_owned() + keys)).unwrap().products[0], 1e9, 1e12);
        let error = of("price = 100\ncapacity_gb = 1000").unwrap_err().to_string();
        assert!(
            error.starts_with("a: price_per_gb_per_s (or price and sequential_write_mb_per_s): is not in"),
            "{error}"
        );
        assert!(of("price_per_gb_per_s = 5").unwrap_err().to_string().starts_with("a: price_per_tb"));
        assert_eq!(of("price = 100\ncapacity_gb = 1000\nsequential_write_mb_per_s = 250").unwrap(), 400.0);
    }

    #[test]
    fn the_slow_tier_holds_two_checkpoints_and_the_drain_has_the_time_until_the_next_one_that_drains() {
        let slow = &prices().products[1];
        let rare = Demand::new(2e12, 3.0 * 86_400.0);
        let bought = hybrid(&rare, 1e10, None, None).unwrap().priced(&prices().products[0], slow).unwrap();
        assert_eq!(bought.slow_capacity, 4e12);
        assert_eq!(alone(&rare, 1e9).unwrap().slow_capacity, 4e12);
        let often = Demand { drain_every: 10, drain_overlap: 0.5, ..Demand::new(2e12, 1000.0) };
        let levels = hybrid(&often, 1e11, Some(0.5e9), None).unwrap();
        assert_eq!((levels.compute_s, levels.fast_capacity), (1000.0 - 20.0 - 200.0, 6e12));
        assert!(hybrid(&Demand { drain_every: 3, ..often }, 1e11, Some(0.5e9), None).is_err());
        assert!(hybrid(&often, 1e11, Some(0.5e9), Some(2e12)).is_err(), "the last complete one stays");
        assert!(hybrid(&Demand { keep: u32::MAX, ..often }, 1e11, Some(0.5e9), None).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn no_pair_of_tiers_that_meets_the_target_is_much_cheaper(
            waste in 0.03f64..0.4, mtbf_h in 4.0f64..500.0, faster in 1.0f64..20.0, longer in 0.3f64..4.0,
        ) {
            let (prices, target) = (prices(), target(waste, mtbf_h * 3600.0));
            let (fast, slow) = (&prices.products[0], &prices.products[1]);
            let (best, single) = cheapest(&demand(0.0), &target, fast, slow).unwrap();
            let wasted = |bandwidth: f64, period: f64| machine(&target, 1200e12, bandwidth).waste(period);
            prop_assert!(wasted(best.fast_bandwidth, best.period_s) <= waste * (1.0 + 1e-6));
            prop_assert!(wasted(single.slow_bandwidth, single.period_s) <= waste * (1.0 + 1e-6));
            let (bandwidth, period_s) = (single.slow_bandwidth * faster, best.period_s * longer);
            if wasted(bandwidth, period_s) <= waste {
                let other = hybrid(&demand(period_s), bandwidth, None, None).unwrap();
                let other = other.priced(fast, slow).unwrap().price().unwrap();
                prop_assert!(best.price().unwrap() <= other * 1.001, "{best:?} {other}");
            }
        }
    }
}
