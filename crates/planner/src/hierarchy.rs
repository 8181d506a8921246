//! A ladder of memory and storage (DASH, Fig. 1) with what each level costs and draws.
//!
//! A product of the price file belongs to a level if it has the level's name, or else the name of its kind (`memory`,
//! `flash`, `disk`, …), whatever their case.

use measure::ladder::{Ladder, Level};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Formula;
use crate::prices::{GB, Prices, Product};

/// How the columns are computed.
pub const FORMULAS: [Formula; 2] = [
    Formula {
        gives: "latency, cycles, gap",
        formula: "as measured; latency of a level / that of the level before",
        source: "He et al., DASH, SC 2010, Fig. 1; docs/methodology.md",
    },
    Formula {
        gives: "price and power of a level",
        formula: "capacity x price / GB of the product; capacity x active power / GB of the product",
        source: "price file",
    },
];

/// A level with its price and power.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PricedLevel {
    /// The level.
    pub name: String,
    /// What it is made of.
    pub kind: &'static str,
    /// Its size, bytes.
    pub capacity_bytes: Option<f64>,
    /// Time of one access, nanoseconds.
    pub latency_ns: Option<f64>,
    /// The same in cycles of the CPU.
    pub cycles: Option<f64>,
    /// Latency by that of the level before.
    pub gap: Option<f64>,
    /// The product whose price and power it has.
    pub product: Option<String>,
    /// Price of 10⁹ bytes.
    pub price_per_gb: Option<f64>,
    /// Price of the level.
    pub price: Option<f64>,
    /// Power of the level while it works, watts.
    pub active_w: Option<f64>,
    /// Requests per second of random reads for each unit of currency.
    pub iops_per_price: Option<f64>,
}

/// The levels of a ladder, nearest first.
#[must_use]
pub fn priced(ladder: &Ladder, prices: Option<&Prices>) -> Vec<PricedLevel> {
    let of = |level: &Level| {
        let product = prices.and_then(|prices| product_of(prices, level));
        let capacity = level.capacity_bytes.map(|bytes| bytes as f64);
        let per_byte = product.and_then(Product::price_per_byte);
        let price = per_byte.zip(capacity).map(|(price, bytes)| price * bytes);
        let watts = product.and_then(|p| Some(p.active_w? / (p.capacity_gb? * GB)));
        let iops = level.figures.random_read_iops.map(|estimate| estimate.value);
        PricedLevel {
            name: level.name.clone(),
            kind: level.kind.words(),
            capacity_bytes: capacity,
            latency_ns: level.latency_ns.map(|estimate| estimate.value),
            cycles: level.latency_cycles.map(|estimate| estimate.value),
            gap: ladder.gaps.iter().find(|gap| gap.farther == level.name).map(|gap| gap.ratio),
            product: product.map(|product| product.name.clone()),
            price_per_gb: per_byte.map(|price| price * GB),
            price,
            active_w: watts.zip(capacity).map(|(watts, bytes)| watts * bytes),
            iops_per_price: iops.zip(price).map(|(iops, price)| iops / price),
        }
    };
    ladder.levels.iter().map(of).collect()
}

fn product_of<'a>(prices: &'a Prices, level: &Level) -> Option<&'a Product> {
    let named = |name: &str| prices.products.iter().find(|p| p.name.eq_ignore_ascii_case(name));
    named(&level.name).or_else(|| named(level.kind.words()))
}
