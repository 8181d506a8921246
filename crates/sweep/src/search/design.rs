//! A fraction of the points of a contest from which the effects of all its dimensions can be told.
//!
//! Rows are chosen one after the other so that the sum over all pairs of rows of the squared number of dimensions in which
//! they agree stays least (J2-optimality: Xu, "An algorithm for constructing orthogonal and nearly-orthogonal arrays with
//! mixed levels and small runs", Technometrics 2002). With two values a dimension such a sum is least for the designs of
//! Plackett and Burman (1946), which a choice row by row comes near to; it also takes mixed numbers of values and spaces
//! with holes. The block counts as a dimension.

use std::collections::BTreeMap;

use crate::model::Point;

/// The dimensions in which points differ, and each point's value of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factors {
    /// Names of the dimensions.
    pub names: Vec<String>,
    /// Of each dimension the values that occur, as they would be typed, in the order of the points.
    pub values: Vec<Vec<String>>,
    /// Of each point the position of its value in each dimension.
    pub rows: Vec<Vec<usize>>,
}

impl Factors {
    /// The dimensions in which these points differ.
    #[must_use]
    pub fn of<'p>(points: impl IntoIterator<Item = &'p Point>) -> Self {
        Self::of_maps(points.into_iter().map(|point| &point.settings))
    }

    /// The same for settings by name.
    pub fn of_maps<'m>(maps: impl IntoIterator<Item = &'m BTreeMap<String, String>>) -> Self {
        let maps: Vec<&BTreeMap<String, String>> = maps.into_iter().collect();
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let text = |map: &'m BTreeMap<String, String>, name: &str| map.get(name).map_or("", String::as_str);
        for name in maps.iter().flat_map(|map| map.keys()) {
            found.entry(name).or_default();
        }
        for (name, values) in &mut found {
            for map in &maps {
                if !values.contains(&text(map, name)) {
                    values.push(text(map, name));
                }
            }
        }
        found.retain(|_, values| values.len() > 1);
        let level = |map: &'m BTreeMap<String, String>, name: &str, values: &[&str]| {
            values.iter().position(|value| *value == text(map, name)).unwrap_or_default()
        };
        let row = |map: &&'m BTreeMap<String, String>| {
            found.iter().map(|(name, values)| level(map, name, values)).collect()
        };
        Self {
            rows: maps.iter().map(row).collect(),
            names: found.keys().map(|name| (*name).to_owned()).collect(),
            values: found.values().map(|v| v.iter().map(|value| (*value).to_owned()).collect()).collect(),
        }
    }

    /// The largest number of values of a dimension, and the number of effects to be told: values beyond the first.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let levels = self.values.iter().map(Vec::len);
        (levels.clone().max().unwrap_or(1), levels.map(|n| n - 1).sum())
    }
}

/// `blocks` blocks of `size` rows each. `order` says which of equally good rows comes first, for each block.
#[must_use]
pub fn blocks(
    rows: &[Vec<usize>],
    blocks: usize,
    size: usize,
    order: impl Fn(usize) -> Vec<usize>,
) -> Vec<Vec<usize>> {
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    for block in 0..blocks {
        let order = order(block);
        for _ in 0..size.min(rows.len()) {
            let agreement = |row: usize| -> usize {
                let with = |(other, its_block): &(usize, usize)| {
                    let values = rows[row].iter().zip(&rows[*other]).filter(|(a, b)| a == b).count();
                    let agreeing = values + usize::from(*its_block == block);
                    agreeing * agreeing
                };
                chosen.iter().map(with).sum()
            };
            let is_free = |row: &usize| !chosen.contains(&(*row, block));
            let best = order.iter().copied().filter(is_free).min_by_key(|row| agreement(*row));
            chosen.extend(best.map(|row| (row, block)));
        }
    }
    (0..blocks)
        .map(|b| chosen.iter().filter(|(_, block)| *block == b).map(|(row, _)| *row).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All combinations of dimensions with these numbers of values.
    fn full(levels: &[usize]) -> Vec<Vec<usize>> {
        levels.iter().fold(vec![Vec::new()], |rows, levels| {
            let with = |row: &Vec<usize>, level| row.iter().copied().chain([level]).collect();
            rows.iter().flat_map(|row| (0..*levels).map(move |level| with(row, level))).collect()
        })
    }

    #[test]
    fn in_sixteen_of_128_rows_every_two_of_seven_switches_take_all_four_combinations() {
        let rows = full(&[2; 7]);
        let design = blocks(&rows, 2, 8, |_| (0..rows.len()).collect()).concat();
        for (a, b) in (0..7).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let mut found: Vec<(usize, usize)> =
                design.iter().map(|row| (rows[*row][a], rows[*row][b])).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), 4, "dimensions {a} and {b}");
        }
    }

    #[test]
    fn values_occur_equally_often_in_mixed_and_holed_spaces() {
        let mut rows = full(&[4, 4, 2]);
        rows.retain(|row| row != &[0, 0, 0]);
        let design = blocks(&rows, 2, 8, |_| (0..rows.len()).collect());
        let all: Vec<usize> = design.concat();
        for (dimension, levels) in [4, 4, 2].into_iter().enumerate() {
            for level in 0..levels {
                let count = all.iter().filter(|row| rows[**row][dimension] == level).count();
                assert_eq!(count, 16 / levels, "dimension {dimension}, value {level}");
            }
        }
    }
}
