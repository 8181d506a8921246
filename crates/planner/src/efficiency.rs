//! What a product does for its price and its power: the columns of the DASH paper's Tables 1 and 2 (He et al., SC 2010),
//! and the same for each year of operation.
//!
//! As in the papers, bandwidth is that of sequential reads and IOPS are random reads; a product of which only writes are
//! known has its writes in these columns, and says so. What is not known stays empty.

use schemars::JsonSchema;
use serde::Serialize;

use crate::prices::{GB, MB, Prices, Product};
use crate::{Formula, PlanError};

/// Hours of a year: 365.25 days.
pub const HOURS_PER_YEAR: f64 = 8766.0;

/// How the columns are computed.
pub const FORMULAS: [Formula; 4] = [
    Formula {
        gives: "MB/s/$, $/GB, IOPS/$, IOPS/GB",
        formula: "sequential reads / price, price / capacity, random reads / price, random reads / capacity",
        source: "He et al., DASH, SC 2010, Table 1",
    },
    Formula {
        gives: "IOPS/W, MB/s/W",
        formula: "random reads / active power, sequential reads / active power",
        source: "He et al., DASH, SC 2010, Table 2",
    },
    Formula {
        gives: "kWh a year",
        formula: "(idle + duty x (active - idle)) x PUE x 8766 h / 1000",
        source: "PUE: Belady et al., The Green Grid, 2008",
    },
    Formula {
        gives: "price a year",
        formula: "price / years + kWh a year x price of a kWh",
        source: "straight-line depreciation, no interest",
    },
];

/// A measured or stated figure.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Figure {
    /// Bytes per second, or requests per second.
    pub value: f64,
    /// How it was taken.
    pub from: String,
}

/// The papers' four figures of one product.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Performance {
    /// Bytes per second.
    pub sequential_read: Option<Figure>,
    /// Bytes per second.
    pub sequential_write: Option<Figure>,
    /// Requests per second.
    pub random_read: Option<Figure>,
    /// Requests per second.
    pub random_write: Option<Figure>,
}

impl Performance {
    /// What the price file states.
    #[must_use]
    pub fn stated(product: &Product) -> Self {
        let from = |value: Option<f64>, scale: f64| {
            value.map(|value| Figure { value: value * scale, from: "price file".to_owned() })
        };
        Self {
            sequential_read: from(product.sequential_read_mb_per_s, MB),
            sequential_write: from(product.sequential_write_mb_per_s, MB),
            random_read: from(product.random_read_iops, 1.0),
            random_write: from(product.random_write_iops, 1.0),
        }
    }

    /// These figures, and `other`'s where there is none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            sequential_read: self.sequential_read.or(other.sequential_read),
            sequential_write: self.sequential_write.or(other.sequential_write),
            random_read: self.random_read.or(other.random_read),
            random_write: self.random_write.or(other.random_write),
        }
    }
}

/// How a product is operated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Operation {
    /// Years over which the price is spread.
    pub years: f64,
    /// Share of the time in which it is active, 0 to 1.
    pub duty: f64,
    /// Watts that the site draws for each watt of equipment.
    pub pue: f64,
    /// Price of a kilowatt-hour; none where electricity is left out.
    pub price_per_kwh: Option<f64>,
}

impl Operation {
    /// Fails unless years are above zero, the duty is a share and the PUE at least 1.
    ///
    /// # Errors
    /// [`PlanError::Invalid`].
    pub fn check(&self) -> Result<(), PlanError> {
        crate::positive("years", self.years)?;
        crate::share("duty", self.duty)?;
        if let Some(price) = self.price_per_kwh {
            crate::positive("kwh-price", price)?;
        }
        if self.pue.is_finite() && self.pue >= 1.0 {
            return Ok(());
        }
        let hint = "1 is a site without cooling, 1.5 a usual one";
        Err(PlanError::invalid(format!("pue={}", self.pue), "is below 1", hint))
    }
}

/// A product's columns. Prices are in the price file's currency.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Efficiency {
    /// The product.
    pub name: String,
    /// When its price was asked for.
    pub date: String,
    /// Where its price is from.
    pub source: String,
    /// Price of one.
    pub price: Option<f64>,
    /// What one holds, bytes.
    pub capacity_bytes: Option<f64>,
    /// Power while it works, watts.
    pub active_w: Option<f64>,
    /// Power while it waits, watts.
    pub idle_w: Option<f64>,
    /// What it does.
    pub performance: Performance,
    /// Whether bandwidth and IOPS are those of writes, for want of reads.
    pub is_of_writes: bool,
    /// 10⁶ bytes per second for each unit of currency.
    pub mb_per_s_per_price: Option<f64>,
    /// Price of 10⁹ bytes.
    pub price_per_gb: Option<f64>,
    /// Requests per second for each unit of currency.
    pub iops_per_price: Option<f64>,
    /// Requests per second for each 10⁹ bytes.
    pub iops_per_gb: Option<f64>,
    /// 10⁶ bytes per second for each watt.
    pub mb_per_s_per_w: Option<f64>,
    /// Requests per second for each watt.
    pub iops_per_w: Option<f64>,
    /// Energy of a year, kilowatt-hours.
    pub kwh_per_year: Option<f64>,
    /// Price of a year: acquisition spread over the years, and electricity; None if that has a price and the watts are not
    /// known.
    pub price_per_year: Option<f64>,
    /// The part of it that is electricity.
    pub electricity_per_year: Option<f64>,
    /// Requests per second for each unit of currency a year.
    pub iops_per_price_per_year: Option<f64>,
    /// Price of 10⁹ bytes a year.
    pub price_per_gb_per_year: Option<f64>,
}

impl Efficiency {
    /// The columns of a product with figures that were measured, or else with those that the price file states.
    #[must_use]
    pub fn of(product: &Product, measured: Performance, operation: &Operation) -> Self {
        let performance = measured.or(Performance::stated(product));
        let first = |read: &Option<Figure>, write: &Option<Figure>| {
            read.as_ref().or(write.as_ref()).map(|figure| figure.value)
        };
        let bandwidth = first(&performance.sequential_read, &performance.sequential_write);
        let iops = first(&performance.random_read, &performance.random_write);
        let is_of_writes = performance.sequential_read.is_none() && performance.sequential_write.is_some()
            || performance.random_read.is_none() && performance.random_write.is_some();
        let by = |numerator: Option<f64>, divisor: Option<f64>| Some(numerator? / divisor?);
        let mb_per_s = bandwidth.map(|bytes| bytes / MB);
        let (price, gb, active) = (product.price, product.capacity_gb, product.active_w);
        let kwh_per_year = active.map(|active| {
            let idle = product.idle_w.unwrap_or(active);
            (idle + operation.duty * (active - idle)) * operation.pue * HOURS_PER_YEAR / 1000.0
        });
        let electricity_per_year = kwh_per_year.zip(operation.price_per_kwh).map(|(kwh, price)| kwh * price);
        // Without watts the electricity is not known, and neither is the price of a year with it.
        let electricity = operation.price_per_kwh.map_or(Some(0.0), |_| electricity_per_year);
        let price_per_year = by(price, Some(operation.years)).zip(electricity).map(|(a, b)| a + b);
        Self {
            name: product.name.clone(),
            date: product.date.clone(),
            source: product.source.clone(),
            price,
            capacity_bytes: gb.map(|gb| gb * GB),
            active_w: active,
            idle_w: product.idle_w,
            performance,
            is_of_writes,
            mb_per_s_per_price: by(mb_per_s, price),
            price_per_gb: by(price, gb),
            iops_per_price: by(iops, price),
            iops_per_gb: by(iops, gb),
            mb_per_s_per_w: by(mb_per_s, active),
            iops_per_w: by(iops, active),
            kwh_per_year,
            price_per_year,
            electricity_per_year,
            iops_per_price_per_year: by(iops, price_per_year),
            price_per_gb_per_year: by(price_per_year, gb),
        }
    }

    /// The figure of a name in [`crate::prices::PRINTED_FIGURES`].
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        match name {
            "mb_per_s_per_price" => self.mb_per_s_per_price,
            "price_per_gb" => self.price_per_gb,
            "iops_per_price" => self.iops_per_price,
            "iops_per_gb" => self.iops_per_gb,
            "mb_per_s_per_w" => self.mb_per_s_per_w,
            "iops_per_w" => self.iops_per_w,
            _ => None,
        }
    }
}

/// A figure that does not round to what its source prints.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Discrepancy {
    /// The product.
    pub product: String,
    /// The figure.
    pub figure: String,
    /// What the source prints.
    pub printed: String,
    /// What follows from the inputs.
    pub computed: f64,
}

/// Where the figures differ from what the price file says that its sources print.
#[must_use]
pub fn discrepancies(prices: &Prices, efficiencies: &[Efficiency]) -> Vec<Discrepancy> {
    let printed = |efficiency: &Efficiency| {
        let product = prices.products.iter().find(|product| product.name == efficiency.name);
        product.map(|product| product.printed.clone()).unwrap_or_default()
    };
    let mut found = Vec::new();
    for efficiency in efficiencies {
        for (figure, text) in printed(efficiency) {
            let computed = efficiency.figure(&figure);
            if let Some(computed) = computed.filter(|computed| !rounds_to(*computed, &text)) {
                found.push(Discrepancy { product: efficiency.name.clone(), figure, printed: text, computed });
            }
        }
    }
    found
}

/// Whether a value rounds to a printed number (`0.49`, `~0.15`) of as many decimals, or lies within a printed range
/// (`0.4-1.0`).
#[must_use]
pub fn rounds_to(value: f64, printed: &str) -> bool {
    let number = |text: &str| {
        let text = text.trim().trim_start_matches('~').replace(',', "");
        let decimals = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        Some((text.parse::<f64>().ok()?, 0.5 / 10f64.powi(i32::try_from(decimals).ok()?)))
    };
    let range = match printed.split_once('-') {
        Some((low, high)) => number(low).zip(number(high)),
        None => number(printed).map(|number| (number, number)),
    };
    // The slack is for halves that binary fractions miss.
    range.is_some_and(|((low, half), (high, half_of_high))| {
        (low - half * (1.0 + 1e-9)..=high + half_of_high * (1.0 + 1e-9)).contains(&value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_numbers_are_compared_at_their_own_precision() {
        for (value, printed, agrees) in [
            (0.487, "0.49", true),
            (0.484, "0.49", false),
            (0.14, "~0.1", true),
            (0.7, "0.4-1.0", true),
            (1.2, "0.4-1.0", false),
            (5853.6, "5853", false),
            (5853.4, "5,853", true),
            (1.0, "many", false),
        ] {
            assert_eq!(rounds_to(value, printed), agrees, "{value} {printed}");
        }
    }

    #[test]
    fn a_year_costs_its_share_of_the_price_and_the_electricity_of_its_duty() {
        let text = "name = \"x\"\n[[product]]\nname = \"a\"\ndate = \"2026\"\nsource = \"s\"\nprice = 400\n\
                    active_w = 20\nidle_w = 10\ncapacity_gb = 1000\nrandom_write_iops = 5000";
        let prices = Prices::parse(text).unwrap();
        let operation = Operation { years: 4.0, duty: 0.5, pue: 2.0, price_per_kwh: Some(0.1) };
        let of =
            |operation: &Operation| Efficiency::of(&prices.products[0], Performance::default(), operation);
        let year = of(&operation);
        assert_eq!(year.kwh_per_year, Some(262.98));
        assert!((year.price_per_year.unwrap() - 126.298).abs() < 1e-9);
        assert!(year.is_of_writes && year.iops_per_w == Some(250.0), "writes stand in for reads");
        let without = Operation { price_per_kwh: None, ..operation };
        assert_eq!(of(&without).price_per_year, Some(100.0));
        let unknown = Prices::parse(&text.replace("active_w", "access_ns")).unwrap();
        let of_unknown = |operation| Efficiency::of(&unknown.products[0], Performance::default(), operation);
        assert_eq!(of_unknown(&operation).price_per_year, None, "electricity of unknown watts is not free");
        assert_eq!(of_unknown(&without).price_per_year, Some(100.0));
        assert!(Operation { pue: 0.9, ..operation }.check().is_err());
        assert!(Operation { duty: 1.1, ..operation }.check().is_err());
    }
}
