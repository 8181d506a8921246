//! The observations as a table: settings as small numbers, passes as a log mean with its variance.

use std::collections::{BTreeMap, HashMap};

use super::{Excluded, ExcludedWhy, Observation};
use crate::stats::describe::{centred_moments, mean};

/// Stands where an observation lacks a dimension.
const ABSENT: u32 = u32::MAX;

/// One configuration: the mean logarithm of its passes and how well it is known.
pub(super) struct Cell {
    pub(super) log_mean: f64,
    /// Variance of `log_mean` and its degrees of freedom; none for a single pass.
    pub(super) noise: Option<(f64, f64)>,
}

/// A dimension and its values in the order in which they first appear.
pub(super) struct Dimension {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

/// The configurations of one block: all settings equal but those of the dimensions looked at. Each
/// is under the number of its value (or pair of values), ascending.
pub(super) type Block<'a> = BTreeMap<usize, &'a Cell>;

/// All configurations that can be analysed.
pub(super) struct Table {
    pub(super) dimensions: Vec<Dimension>,
    rows: Vec<(Vec<u32>, Cell)>,
    pub(super) excluded: Vec<Excluded>,
}

impl Table {
    /// Observations with the same settings are pooled into one row.
    pub(super) fn of(observations: &[Observation]) -> Self {
        let mut excluded = Vec::new();
        let mut usable = Vec::new();
        for (index, observation) in observations.iter().enumerate() {
            match logarithms(&observation.samples) {
                Ok(logs) => usable.push((&observation.settings, logs)),
                Err(why) => excluded.push(Excluded { index, settings: observation.settings.clone(), why }),
            }
        }
        let mut numbering = Numbering::default();
        usable.iter().for_each(|(settings, _)| numbering.learn(settings));
        let mut found: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut pooled: Vec<(Vec<u32>, Vec<f64>)> = Vec::new();
        for (settings, logs) in usable {
            let key = numbering.key(settings);
            let row = *found.entry(key.clone()).or_insert(pooled.len());
            match pooled.get_mut(row) {
                Some((_, samples)) => samples.extend(logs),
                None => pooled.push((key, logs)),
            }
        }
        let rows = pooled.into_iter().filter_map(|(key, logs)| Some((key, Cell::of(&logs)?))).collect();
        Self { dimensions: numbering.dimensions, rows, excluded }
    }

    pub(super) fn configurations(&self) -> usize {
        self.rows.len()
    }

    /// How many configurations have this value of a dimension.
    pub(super) fn count(&self, dimension: usize, value: usize) -> usize {
        self.rows.iter().filter(|(key, _)| key[dimension] as usize == value).count()
    }

    /// The blocks of one dimension.
    pub(super) fn blocks(&self, dimension: usize) -> Vec<Block<'_>> {
        self.grouped(&[dimension])
    }

    /// The blocks of two dimensions; a configuration's number in them is first · |second| + second.
    pub(super) fn blocks_of_two(&self, first: usize, second: usize) -> Vec<Block<'_>> {
        self.grouped(&[first, second])
    }

    fn grouped(&self, dimensions: &[usize]) -> Vec<Block<'_>> {
        let mut found: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut blocks: Vec<Block<'_>> = Vec::new();
        for (key, cell) in &self.rows {
            if dimensions.iter().any(|d| key[*d] == ABSENT) {
                continue;
            }
            let number = dimensions
                .iter()
                .fold(0, |number, d| number * self.dimensions[*d].values.len() + key[*d] as usize);
            let mut block_key = key.clone();
            dimensions.iter().for_each(|d| block_key[*d] = ABSENT);
            let block = *found.entry(block_key).or_insert_with(|| {
                blocks.push(Block::new());
                blocks.len() - 1
            });
            blocks[block].insert(number, cell);
        }
        blocks
    }
}

impl Cell {
    fn of(logs: &[f64]) -> Option<Self> {
        let n = logs.len() as f64;
        let noise = centred_moments(logs).map(|(_, sd)| (sd * sd / n, n - 1.0));
        Some(Self { log_mean: mean(logs)?, noise })
    }
}

/// Names and values of the dimensions, by number.
#[derive(Default)]
struct Numbering {
    dimensions: Vec<Dimension>,
    by_name: HashMap<String, usize>,
    by_value: Vec<HashMap<String, u32>>,
}

impl Numbering {
    fn learn(&mut self, settings: &BTreeMap<String, String>) {
        for (name, value) in settings {
            let dimension = *self.by_name.entry(name.clone()).or_insert_with(|| {
                self.dimensions.push(Dimension { name: name.clone(), values: Vec::new() });
                self.by_value.push(HashMap::new());
                self.dimensions.len() - 1
            });
            let values = &mut self.dimensions[dimension].values;
            let next = values.len() as u32;
            self.by_value[dimension].entry(value.clone()).or_insert_with(|| {
                values.push(value.clone());
                next
            });
        }
    }

    fn key(&self, settings: &BTreeMap<String, String>) -> Vec<u32> {
        let mut key = vec![ABSENT; self.dimensions.len()];
        for (name, value) in settings {
            if let Some(dimension) = self.by_name.get(name) {
                key[*dimension] = self.by_value[*dimension].get(value).copied().unwrap_or(ABSENT);
            }
        }
        key
    }
}

fn logarithms(samples: &[f64]) -> Result<Vec<f64>, ExcludedWhy> {
    if samples.is_empty() {
        return Err(ExcludedWhy::NoSamples);
    }
    if samples.iter().any(|x| !x.is_finite()) {
        return Err(ExcludedWhy::NotFinite);
    }
    if samples.iter().any(|x| *x <= 0.0) {
        return Err(ExcludedWhy::NotPositive);
    }
    Ok(samples.iter().map(|x| x.ln()).collect())
}
