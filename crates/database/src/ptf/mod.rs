//! Palomar Transient Factory: a survey of the sky that subtracts each night's images from reference images, and keeps every candidate.
//!
//! The generator is a pure function of [`Ptf`] and a row's number, so a load can begin at any row and two engines get the same rows:
//!
//! 1. A *visit* is one exposure of a *field* by 11 CCDs; each CCD gives a *subtraction* with 150 candidates. Visits go over all fields in
//!    turn, so a field is visited up to 60 times. 7733 subtractions are a night (1.16 million candidates).
//! 2. Each CCD of a field has 200 persistent positions. 60 candidates of a subtraction lie on distinct ones of them, off by 0.09″; the
//!    others lie anywhere on the CCD. So a position was seen in 30 % of its visits.
//! 3. The score `realbogus` is the fourth power of a uniform number: 49 % exceed the 0.07 at which queries cut.
//! 4. Rows are in the order of time. A position's history therefore lies on as many blocks as it has candidates.
//! 5. One candidate in 500 is a named transient; `ptfname_range` has the HEALPix ranges of each name's cone.

mod rows;
pub mod tables;

use measure::pattern::split_mix;
use serde::{Deserialize, Serialize};

use crate::schema::{Rows, Table};
pub use tables::TABLES;

/// CCDs of the camera that work.
pub const CCDS: u64 = 11;
/// Candidates of a subtraction.
pub const PER_SUBTRACTION: u64 = 150;
/// Candidates of a subtraction on persistent positions.
pub const PERSISTENT: u64 = 60;
/// Persistent positions of a CCD of a field.
pub const POSITIONS: u64 = 200;
/// Visits of a field, at most.
pub const EPOCHS: u64 = 60;
/// Subtractions of a night: 1.16 million candidates.
pub const PER_NIGHT: u64 = 7733;
/// Candidates for each name.
pub const PER_NAME: u64 = 500;
/// The radius in which candidates are one object, degrees: 3″.
pub const MATCH_DEGREES: f64 = 0.000_83;
/// The least score of a real candidate.
pub const REALBOGUS_MIN: f64 = 0.07;
/// Ranges of a name's cone, at most.
pub const NAME_RANGES: usize = 4;

/// A database of this survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ptf {
    /// Rows of `candidate`, at least 1.
    pub candidates: u64,
    /// What all rows follow from.
    pub seed: u64,
}

/// An object that was seen again and again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Object {
    /// The field, from 0.
    pub field: u64,
    /// The CCD, from 0.
    pub ccd: u64,
    /// The position on it, from 0.
    pub position: u64,
    /// Right ascension, degrees.
    pub ra: f64,
    /// Declination, degrees.
    pub dec: f64,
}

impl Ptf {
    /// How many subtractions there are; the last one may have fewer candidates.
    #[must_use]
    pub fn subtractions(&self) -> u64 {
        self.candidates.div_ceil(PER_SUBTRACTION)
    }

    /// How many fields there are.
    #[must_use]
    pub fn fields(&self) -> u64 {
        self.subtractions().div_ceil(CCDS * EPOCHS)
    }

    /// How many nights.
    #[must_use]
    pub fn nights(&self) -> u64 {
        self.subtractions().div_ceil(PER_NIGHT)
    }

    /// How many named transients.
    #[must_use]
    pub fn names(&self) -> u64 {
        (self.candidates / PER_NAME).max(1)
    }

    /// How many objects could have been seen.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.fields() * CCDS * POSITIONS
    }

    /// An object by its number, from 0 and below [`Self::objects`].
    #[must_use]
    pub fn object(&self, number: u64) -> Object {
        let (chip, position) = (number / POSITIONS, number % POSITIONS);
        let (field, ccd) = (chip / CCDS, chip % CCDS);
        let (ra, dec) = self.persistent(field, ccd, position);
        Object { field, ccd, position, ra, dec }
    }

    /// How many rows a table has.
    #[must_use]
    pub fn rows(&self, table: &Table) -> u64 {
        match table.name {
            "ptffield" => self.fields(),
            "deep_ref" => self.fields() * CCDS,
            "subtraction" => self.subtractions(),
            "candidate" | "rb_classifier" => self.candidates,
            "ptfname" => self.names(),
            _ => (0..self.names()).map(|name| self.name_ranges(name).len() as u64).sum(),
        }
    }

    /// The rows of a table from a number on.
    #[must_use]
    pub fn stream(&self, table: &Table, from: u64) -> Box<dyn Rows> {
        rows::stream(*self, table, from)
    }

    /// Random bits that follow from a purpose and a number.
    fn bits(&self, purpose: u64, number: u64) -> u64 {
        let mut state = self.seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ number.rotate_left(17);
        let first = split_mix(&mut state);
        let mut state = first ^ number;
        split_mix(&mut state)
    }
}

/// A number in [0, 1) of random bits.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}
