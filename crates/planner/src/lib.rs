//! Planning storage: what a machine costs and draws, how often it should checkpoint, how long its flash lasts, what each
//! level of its hierarchy holds, and the cheapest mix of tiers.
//!
//! Numbers in, numbers out: this crate reads no file and measures nothing. Prices and working-set curves come as text,
//! records as the documents of [`measure`]. Every result names its formulas and where each comes from ([`Formula`]), and
//! carries plain units: bytes, bytes per second, seconds, watts, and the price file's currency.
//!
//! 1. [`prices`] reads a price file: products with prices, dates and sources.
//! 2. [`efficiency`] puts measured figures and prices into the columns of the DASH paper's Tables 1 and 2.
//! 3. [`endurance`] turns P/E cycles, write amplification and bit error rates into years and days; [`smart`] reads what
//!    a drive counts itself.
//! 4. [`checkpoint`] has the rules for the interval, the waste of each, the simulator that checks them, and what a
//!    hybrid of flash and disk costs.
//! 5. [`hierarchy`] adds prices and watts to a ladder.
//! 6. [`tier`] finds the cheapest capacities for a working-set curve.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod efficiency;
pub mod endurance;
pub mod hierarchy;
pub mod prices;
pub mod smart;
pub mod tier;

use schemars::JsonSchema;
use serde::Serialize;

/// A formula that a result was computed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Formula {
    /// What it gives.
    pub gives: &'static str,
    /// The formula.
    pub formula: &'static str,
    /// Who stated it, and where.
    pub source: &'static str,
}

/// Why a plan cannot be made. Each is a wrong request, and begins with the name of the parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A value outside of its range, or one that is lacking.
    #[error("{parameter}: {problem}")]
    Invalid {
        /// The parameter, with its value where it has one: `overlap=2`.
        parameter: String,
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        hint: String,
    },
    /// Nothing satisfies the request.
    #[error("{parameter}: {problem}")]
    Impossible {
        /// The parameter, with its value: `slow=200 MB/s`.
        parameter: String,
        /// Why nothing does.
        problem: String,
        /// What would make it possible.
        hint: String,
    },
}

impl PlanError {
    /// A value outside of its range.
    pub(crate) fn invalid(
        parameter: impl Into<String>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Invalid { parameter: parameter.into(), problem: problem.into(), hint: hint.into() }
    }

    /// A request that nothing satisfies.
    pub(crate) fn impossible(
        parameter: impl Into<String>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Impossible { parameter: parameter.into(), problem: problem.into(), hint: hint.into() }
    }

    /// What would be right, or what would make it possible.
    #[must_use]
    pub fn hint(&self) -> &str {
        match self {
            Self::Invalid { hint, .. } | Self::Impossible { hint, .. } => hint,
        }
    }
}

/// The largest number that files may have: products of a few of them stay finite.
pub(crate) const LARGEST: f64 = 1e30;

/// Fails unless `value` is finite and above zero.
pub(crate) fn positive(name: &str, value: f64) -> Result<f64, PlanError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(PlanError::invalid(
        format!("{name}={value}"),
        "must be a number above zero",
        "give a number above zero",
    ))
}

/// Fails unless `value` lies from 0 to 1.
pub(crate) fn share(name: &str, value: f64) -> Result<f64, PlanError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(PlanError::invalid(format!("{name}={value}"), "is not a share", "a share lies from 0 to 1"))
}
