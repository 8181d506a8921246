//! The observations as a table: settings as small numbers, figures as logarithms by block.

use std::collections::{BTreeMap, HashMap};

use super::{Excluded, ExcludedWhy, Observation, Sample};

/// Stands where an observation lacks a dimension.
const ABSENT: u32 = u32::MAX;

/// One configuration.
pub(super) struct Cell {
    pub(super) log_mean: f64,
    pub(super) construction: u32,
    pub(super) memory: f64,
    pub(super) is_equivalent: bool,
    pub(super) runs: BTreeMap<u32, Run>,
}

/// A configuration's figure in a block.
pub(super) struct Run {
    /// ln figure.
    pub(super) y: f64,
    pub(super) weight: f64,
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
    /// Of observations with the same settings the figures are pooled; of two in one block the first counts.
    pub(super) fn of(observations: &[Observation]) -> Self {
        let mut excluded = Vec::new();
        let mut usable = Vec::new();
        for (index, observation) in observations.iter().enumerate() {
            match check(&observation.samples) {
                Ok(()) => usable.push(observation),
                Err(why) => excluded.push(Excluded { index, settings: observation.settings.clone(), why }),
            }
        }
        let mut numbering = Numbering::default();
        usable.iter().for_each(|observation| numbering.learn(&observation.settings));
        let mut found: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut rows: Vec<(Vec<u32>, Cell)> = Vec::new();
        for observation in usable {
            let key = numbering.key(&observation.settings);
            let row = *found.entry(key.clone()).or_insert(rows.len());
            if row == rows.len() {
                rows.push((key, Cell::of(observation)));
            }
            rows[row].1.add(&observation.samples);
        }
        Self { dimensions: numbering.dimensions, rows, excluded }
    }

    pub(super) fn configurations(&self) -> usize {
        self.rows.len()
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
    fn of(observation: &Observation) -> Self {
        let Observation { construction, memory, is_equivalent, .. } = *observation;
        Self { log_mean: 0.0, construction, memory, is_equivalent, runs: BTreeMap::new() }
    }

    fn add(&mut self, samples: &[Sample]) {
        for sample in samples {
            self.runs.entry(sample.block).or_insert(Run { y: sample.figure.ln(), weight: sample.weight });
        }
        let weights: f64 = self.runs.values().map(|run| run.weight).sum();
        self.log_mean = self.runs.values().map(|run| run.weight * run.y).sum::<f64>() / weights;
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

fn check(samples: &[Sample]) -> Result<(), ExcludedWhy> {
    if samples.iter().all(|sample| sample.weight.is_nan() || sample.weight <= 0.0) {
        return Err(ExcludedWhy::NoSamples);
    }
    if samples.iter().any(|sample| !sample.figure.is_finite()) {
        return Err(ExcludedWhy::NotFinite);
    }
    if samples.iter().any(|sample| sample.figure <= 0.0) {
        return Err(ExcludedWhy::NotPositive);
    }
    Ok(())
}
