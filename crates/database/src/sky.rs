//! Positions in the sky: cells of HEALPix (Górski and others, ApJ 622, 2005) and distances.
//!
//! A catalogue stores the cell of order 29 (0.4 milliarcseconds) of each position as one integer. The cells of a cone lie in few ranges of
//! these integers, because nested numbers of neighbours share their leading bits. The ranges cover the cone and more, so a
//! statement filters by the exact distance as well.

use std::ops::RangeInclusive;

use healpix::coords::LonLat;

/// The order of cells that are stored.
pub const ORDER: u8 = 29;

/// The cell of a position in degrees.
#[must_use]
pub fn cell(ra: f64, dec: f64) -> i64 {
    healpix::get(ORDER).hash(position(ra, dec)) as i64
}

fn position(ra: f64, dec: f64) -> LonLat {
    let lon = ra.rem_euclid(360.0).to_radians();
    LonLat { lon, lat: dec.clamp(-90.0, 90.0).to_radians() }
}

/// At most `most` ranges of stored cells with every position within `radius` degrees of a position.
///
/// # Panics
/// If `most` is 0 or the radius is not above 0 and at most 90.
#[must_use]
pub fn cover(ra: f64, dec: f64, radius: f64, most: usize) -> Vec<RangeInclusive<i64>> {
    assert!(most > 0 && radius > 0.0 && radius <= 90.0, "{most} ranges of a radius of {radius}");
    // A side of a cell is about 58.6 degrees / 2^order; the cells are made somewhat smaller than the cone.
    let order = (58.6 / radius).log2().floor().clamp(0.0, f64::from(ORDER - 2)) as u8 + 1;
    let shift = 2 * u32::from(ORDER - order);
    let cells = healpix::get(order).cone_coverage_approx(position(ra, dec), radius.to_radians());
    let mut ranges: Vec<RangeInclusive<i64>> = Vec::new();
    let mut cells: Vec<u64> = cells.into_flat_iter().collect();
    cells.sort_unstable();
    for cell in cells {
        let (first, after) = ((cell << shift) as i64, ((cell + 1) << shift) as i64);
        match ranges.last_mut() {
            Some(last) if *last.end() + 1 == first => *last = *last.start()..=after - 1,
            _ => ranges.push(first..=after - 1),
        }
    }
    while ranges.len() > most {
        join_nearest(&mut ranges);
    }
    ranges
}

/// Joins the two neighbours with the least between them.
fn join_nearest(ranges: &mut Vec<RangeInclusive<i64>>) {
    let gap = |at: &usize| ranges[at + 1].start() - ranges[*at].end();
    if let Some(at) = (0..ranges.len() - 1).min_by_key(gap) {
        let next = ranges.remove(at + 1);
        ranges[at] = *ranges[at].start()..=*next.end();
    }
}

/// The haversine of the angle between two positions in degrees: sin²(angle/2). It is exact for small angles, where the cosine is
/// not.
#[must_use]
pub fn haversine(ra1: f64, dec1: f64, ra2: f64, dec2: f64) -> f64 {
    let (dec, ra) = (((dec1 - dec2) / 2.0).to_radians().sin(), ((ra1 - ra2) / 2.0).to_radians().sin());
    dec * dec + dec1.to_radians().cos() * dec2.to_radians().cos() * ra * ra
}

/// The haversine of an angle in degrees.
#[must_use]
pub fn haversine_of(angle: f64) -> f64 {
    (angle / 2.0).to_radians().sin().powi(2)
}

#[cfg(test)]
mod tests {
    use measure::pattern::Rng;

    use super::*;

    /// A position at an angle from another one, in a direction; all degrees.
    fn moved(ra: f64, dec: f64, angle: f64, direction: f64) -> (f64, f64) {
        let (d, a, t) = (dec.to_radians(), angle.to_radians(), direction.to_radians());
        let sin = d.sin() * a.cos() + d.cos() * a.sin() * t.cos();
        let turn = (t.sin() * a.sin() * d.cos()).atan2(a.cos() - d.sin() * sin);
        ((ra + turn.to_degrees()).rem_euclid(360.0), sin.clamp(-1.0, 1.0).asin().to_degrees())
    }

    #[test]
    fn every_position_of_a_cone_lies_in_its_ranges_also_at_poles_and_where_the_circle_closes() {
        let mut rng = Rng::new(5);
        for case in 0..3000 {
            let ra = [rng.unit() * 360.0, 0.0, 359.999_99, 90.0][case % 4];
            let dec = [rng.unit() * 180.0 - 90.0, 89.999, -90.0, 41.81, 0.0][case % 5];
            let radius = [0.000_2, 0.000_83, 5.0 / 3600.0, 1.0 / 60.0, 1.0][case % 5] * (0.5 + rng.unit());
            let most = 1 + case % 8;
            let ranges = cover(ra, dec, radius, most);
            assert!(!ranges.is_empty() && ranges.len() <= most, "{ranges:?}");
            assert!(ranges.windows(2).all(|pair| pair[0].end() + 1 < *pair[1].start()), "{ranges:?}");
            for _ in 0..50 {
                let (ra2, dec2) = moved(ra, dec, radius * rng.unit().sqrt(), rng.unit() * 360.0);
                if haversine(ra, dec, ra2, dec2) <= haversine_of(radius) {
                    let cell = cell(ra2, dec2);
                    assert!(
                        ranges.iter().any(|range| range.contains(&cell)),
                        "{ra} {dec} {radius}: {ra2} {dec2}"
                    );
                }
            }
        }
    }

    #[test]
    fn eight_ranges_hold_little_beyond_a_small_cone() {
        let sky = 12.0 * 4f64.powi(ORDER.into());
        let mut worst: f64 = 0.0;
        for step in 0..500 {
            let (ra, dec) = (f64::from(step) * 0.7, f64::from(step % 110) - 30.0);
            let cells: i64 =
                cover(ra, dec, 0.000_83, 8).iter().map(|range| range.end() - range.start() + 1).sum();
            worst = worst.max(cells as f64 / sky / haversine_of(0.000_83));
        }
        assert!(worst < 40.0, "the ranges have {worst} times the area of the cone");
    }

    #[test]
    fn distances_are_those_of_the_sphere() {
        for (one, other, angle) in [
            ((10.0, 0.0), (11.0, 0.0), 1.0),
            ((10.0, 60.0), (10.0, 61.0), 1.0),
            ((359.5, 0.0), (0.5, 0.0), 1.0),
            ((0.0, 90.0), (123.0, 89.0), 1.0),
            ((10.0, 60.0), (10.0, 60.000_1), 0.000_1),
        ] {
            let of = haversine(one.0, one.1, other.0, other.1).sqrt().asin().to_degrees() * 2.0;
            assert!((of - angle).abs() < 1e-9, "{one:?} {other:?}: {of}");
        }
    }
}
