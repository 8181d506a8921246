//! Rows of the survey, each a pure function of its number.

use std::ops::RangeInclusive;

use super::{CCDS, MATCH_DEGREES, NAME_RANGES, PER_NIGHT, PER_SUBTRACTION, PERSISTENT, POSITIONS, Ptf, unit};
use crate::schema::{Rows, Table, Value};
use crate::sky;

/// What random bits are for.
mod purpose {
    pub const FIELD: u64 = 1;
    pub const POSITION: u64 = 2;
    pub const ORDER: u64 = 3;
    pub const CANDIDATE: u64 = 4;
    pub const SCORE: u64 = 5;
    pub const NAME: u64 = 6;
    pub const IMAGE: u64 = 7;
}

/// Numbers that have an inverse modulo [`POSITIONS`], with it.
const UNITS: [(u64, u64); 8] = [(1, 1), (3, 67), (7, 143), (9, 89), (11, 91), (13, 77), (17, 153), (19, 179)];
/// How far a persistent object's candidates scatter on each axis, degrees: 0.09″.
const JITTER_DEGREES: f64 = 0.09 / 3600.0;
/// A CCD's sides, degrees.
const CCD_DEGREES: (f64, f64) = (0.6, 1.1);
/// The first night, Julian date.
const FIRST_NIGHT: f64 = 2_455_000.0;
/// Days that a night lasts.
const NIGHT_DAYS: f64 = 0.35;

pub fn stream(ptf: Ptf, table: &Table, from: u64) -> Box<dyn Rows> {
    let of: fn(&Ptf, u64, &mut Vec<Value>) = match table.name {
        "ptffield" => field,
        "deep_ref" => deep_ref,
        "subtraction" => subtraction,
        "candidate" => candidate,
        "rb_classifier" => score,
        "ptfname" => name,
        _ => return Box::new(NameRanges::new(ptf, from)),
    };
    Box::new(Numbered { ptf, next: from, end: ptf.rows(table), of })
}

struct Numbered {
    ptf: Ptf,
    next: u64,
    end: u64,
    of: fn(&Ptf, u64, &mut Vec<Value>),
}

impl Rows for Numbered {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        if self.next >= self.end {
            return false;
        }
        row.clear();
        (self.of)(&self.ptf, self.next, row);
        self.next += 1;
        true
    }
}

/// A name has one range or several, so rows are found by counting.
struct NameRanges {
    ptf: Ptf,
    name: u64,
    pending: Vec<RangeInclusive<i64>>,
}

impl NameRanges {
    fn new(ptf: Ptf, from: u64) -> Self {
        let mut ranges = Self { ptf, name: 0, pending: Vec::new() };
        let mut skipped = Vec::new();
        for _ in 0..from {
            ranges.next(&mut skipped);
        }
        ranges
    }
}

impl Rows for NameRanges {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        if self.pending.is_empty() {
            if self.name == self.ptf.names() {
                return false;
            }
            self.pending = self.ptf.name_ranges(self.name);
            self.pending.reverse();
            self.name += 1;
        }
        let Some(range) = self.pending.pop() else { return false };
        row.clear();
        row.extend([self.name as i64, *range.start(), *range.end()].map(Value::from));
        true
    }
}

/// Thousandths, so that a figure has the same digits in every engine.
fn rounded(value: f64) -> Value {
    Value::Double((value * 1000.0).round() / 1000.0)
}

/// A position on a CCD; both offsets are parts of its sides.
fn on_chip(ptf: &Ptf, field: u64, ccd: u64, (x, y): (f64, f64)) -> (f64, f64) {
    let (ra, dec) = field_centre(ptf, field);
    let (column, row) = ((ccd % 6) as f64 - 3.0, (ccd / 6) as f64 - 1.0);
    let dec = dec + (row + y) * CCD_DEGREES.1;
    ((ra + (column + x) * CCD_DEGREES.0 / dec.to_radians().cos()).rem_euclid(360.0), dec)
}

/// Palomar sees declinations above -30°; near the pole a CCD would wrap around it.
fn field_centre(ptf: &Ptf, field: u64) -> (f64, f64) {
    let (low, high) = ((-30f64).to_radians().sin(), 80f64.to_radians().sin());
    let [ra, height] = [0, 1].map(|axis| unit(ptf.bits(purpose::FIELD, 2 * field + axis)));
    (ra * 360.0, (low + height * (high - low)).asin().to_degrees())
}

impl Ptf {
    /// Where a persistent object is.
    pub(super) fn persistent(&self, field: u64, ccd: u64, position: u64) -> (f64, f64) {
        let number = 2 * ((field * CCDS + ccd) * POSITIONS + position);
        let [x, y] = [0, 1].map(|axis| unit(self.bits(purpose::POSITION, number + axis)));
        on_chip(self, field, ccd, (x, y))
    }

    /// Which persistent position a candidate of a subtraction lies on, by its place among the first [`PERSISTENT`].
    fn position_of(&self, subtraction: u64, place: u64) -> u64 {
        let bits = self.bits(purpose::ORDER, subtraction);
        let (factor, _) = UNITS[(bits % 8) as usize];
        (factor * place + (bits >> 8) % POSITIONS) % POSITIONS
    }

    /// The candidate of an object in a subtraction of its CCD and field; None if it was not seen.
    #[must_use]
    pub fn seen(&self, subtraction: u64, position: u64) -> Option<u64> {
        let bits = self.bits(purpose::ORDER, subtraction);
        let (_, inverse) = UNITS[(bits % 8) as usize];
        let place = inverse * (position + POSITIONS - (bits >> 8) % POSITIONS) % POSITIONS;
        let id = subtraction * PER_SUBTRACTION + place + 1;
        (place < PERSISTENT && id <= self.candidates).then_some(id)
    }

    /// Field and CCD of a subtraction.
    fn chip(&self, subtraction: u64) -> (u64, u64) {
        ((subtraction / CCDS) % self.fields(), subtraction % CCDS)
    }

    fn place_of(&self, candidate: u64) -> (f64, f64) {
        let (subtraction, place) = (candidate / PER_SUBTRACTION, candidate % PER_SUBTRACTION);
        let (field, ccd) = self.chip(subtraction);
        let [x, y] = [0, 1].map(|axis| unit(self.bits(purpose::CANDIDATE, 16 * candidate + axis)));
        if place >= PERSISTENT {
            return on_chip(self, field, ccd, (x, y));
        }
        // Of Box and Muller; the logarithm is of a number above 0.
        let (length, turn) = ((-2.0 * (1.0 - x).ln()).sqrt() * JITTER_DEGREES, y * std::f64::consts::TAU);
        let (ra, dec) = self.persistent(field, ccd, self.position_of(subtraction, place));
        ((ra + length * turn.cos() / dec.to_radians().cos()).rem_euclid(360.0), dec + length * turn.sin())
    }

    /// The candidate that a name was given to, from 0, its night and place.
    fn named(&self, name: u64) -> (u64, u64, (f64, f64)) {
        let subtraction =
            (u128::from(name) * u128::from(self.subtractions()) / u128::from(self.names())) as u64;
        let here = (self.candidates - subtraction * PER_SUBTRACTION).min(PERSISTENT);
        let candidate = subtraction * PER_SUBTRACTION + self.bits(purpose::NAME, name) % here;
        (candidate, subtraction / PER_NIGHT, self.place_of(candidate))
    }

    /// The ranges of a name's cone.
    pub(super) fn name_ranges(&self, name: u64) -> Vec<RangeInclusive<i64>> {
        let (_, _, (ra, dec)) = self.named(name);
        sky::cover(ra, dec, MATCH_DEGREES, NAME_RANGES)
    }
}

fn field(ptf: &Ptf, number: u64, row: &mut Vec<Value>) {
    let (ra, dec) = field_centre(ptf, number);
    row.extend([Value::from(number as i64 + 1), ra.into(), dec.into()]);
}

fn deep_ref(ptf: &Ptf, number: u64, row: &mut Vec<Value>) {
    let bits = ptf.bits(purpose::IMAGE, number ^ (1 << 40));
    row.extend(
        [number + 1, number / CCDS + 1, number % CCDS + 1, 10 + bits % 50].map(|n| Value::from(n as i64)),
    );
    row.extend([rounded(22.0 + unit(bits)), rounded(1.6 + unit(bits.rotate_left(20)))]);
}

fn subtraction(ptf: &Ptf, number: u64, row: &mut Vec<Value>) {
    let (field, ccd) = ptf.chip(number);
    let bits = ptf.bits(purpose::IMAGE, number);
    let day = (number / PER_NIGHT) as f64
        + (number % PER_NIGHT / CCDS * CCDS) as f64 / PER_NIGHT as f64 * NIGHT_DAYS;
    row.extend([number + 1, field + 1, ccd + 1].map(|n| Value::from(n as i64)));
    row.push(Value::Double(FIRST_NIGHT + day));
    row.push(Value::from(if bits.is_multiple_of(4) { "g" } else { "R" }));
    row.push(Value::from((field * CCDS + ccd + 1) as i64));
    let figures = [25.0 + unit(bits), 20.0 + unit(bits.rotate_left(16)), 1.5 + unit(bits.rotate_left(32))];
    row.extend(figures.map(rounded));
    let places = [(0.5, 0.5), (0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0)];
    let places = places.map(|place| on_chip(ptf, field, ccd, place));
    row.extend(places.iter().flat_map(|(ra, dec)| [Value::from(*ra), Value::from(*dec)]));
    row.push(Value::from(sky::cell(places[0].0, places[0].1)));
}

fn candidate(ptf: &Ptf, number: u64, row: &mut Vec<Value>) {
    let (ra, dec) = ptf.place_of(number);
    let draw = |figure: u64| unit(ptf.bits(purpose::CANDIDATE, 16 * number + figure));
    let mag = 16.0 + 5.0 * draw(2).sqrt();
    let flux = 10f64.powf(0.4 * (25.0 - mag));
    let error = 0.01 + 0.2 * draw(3);
    row.extend([Value::from(number as i64 + 1), Value::from((number / PER_SUBTRACTION + 1) as i64)]);
    row.extend([Value::from(ra), Value::from(dec)]);
    let figures = [mag, error, flux, flux * error, 1.0 + draw(4), 0.8 + draw(5), 1.5 + 2.0 * draw(6)];
    row.extend(figures.map(rounded));
    row.extend([rounded(2048.0 * draw(7)), rounded(4096.0 * draw(8))]);
    row.push(Value::from((draw(9) * 4.0) as i64));
    row.push(Value::from(i64::from(draw(10) < 0.7)));
    row.push(Value::from(sky::cell(ra, dec)));
}

fn score(ptf: &Ptf, number: u64, row: &mut Vec<Value>) {
    let score = unit(ptf.bits(purpose::SCORE, number)).powi(4);
    row.extend([Value::from(number as i64 + 1), Value::Double((score * 1e6).round() / 1e6)]);
}

fn name(ptf: &Ptf, number: u64, row: &mut Vec<Value>) {
    const TYPES: [&str; 5] = ["SN Ia", "SN II", "CV", "AGN", "VarStar"];
    let (candidate, night, (ra, dec)) = ptf.named(number);
    row.extend([
        Value::from(number as i64 + 1),
        Value::Text(format!("PTF{:02}{:06}", 9 + night / 365, number + 1)),
    ]);
    row.extend([candidate + 1, candidate / PER_SUBTRACTION + 1, night].map(|n| Value::from(n as i64)));
    let of_type = TYPES[(ptf.bits(purpose::NAME, number ^ (1 << 40)) % 5) as usize];
    row.extend([Value::from(of_type), ra.into(), dec.into()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptf::TABLES;

    const SMALL: Ptf = Ptf { candidates: 20_001, seed: 3 };

    fn all(ptf: Ptf, table: &Table, from: u64) -> Vec<Vec<Value>> {
        let (mut rows, mut row, mut all) = (ptf.stream(table, from), Vec::new(), Vec::new());
        while rows.next(&mut row) {
            assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            all.push(row.clone());
        }
        all
    }

    #[test]
    fn a_stream_that_begins_in_the_middle_has_the_same_rows() {
        for table in &TABLES {
            let rows = all(SMALL, table, 0);
            assert_eq!(rows.len() as u64, SMALL.rows(table), "{}", table.name);
            for from in [1, rows.len() / 2, rows.len() - 1, rows.len()] {
                assert_eq!(all(SMALL, table, from as u64), rows[from..], "{} from {from}", table.name);
            }
            assert!(
                table.name.ends_with("field")
                    || rows != all(Ptf { seed: 4, ..SMALL }, table, 0)
                    || rows.len() < 20
            );
        }
    }

    #[test]
    fn an_object_lies_on_distinct_candidates_of_three_visits_in_ten() {
        assert!(UNITS.iter().all(|(one, inverse)| one * inverse % POSITIONS == 1));
        let ptf = Ptf { candidates: 99_000, seed: 1 };
        let mut seen = 0;
        for number in 0..ptf.objects() {
            let object = ptf.object(number);
            for epoch in 0..EPOCHS {
                let subtraction = (epoch * ptf.fields() + object.field) * CCDS + object.ccd;
                let Some(id) = ptf.seen(subtraction, object.position) else { continue };
                let (ra, dec) = ptf.place_of(id - 1);
                let apart = sky::haversine(object.ra, object.dec, ra, dec);
                assert!(apart < sky::haversine_of(6.0 * JITTER_DEGREES), "{object:?} {id}");
                seen += 1;
            }
        }
        assert_eq!(seen * PER_SUBTRACTION, 99_000 * PERSISTENT);
    }

    use crate::ptf::EPOCHS;
}
