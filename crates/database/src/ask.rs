//! One query, cold or warm, and what came of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::cold;
use crate::dataset::Dataset;
use crate::engine::{Cost, Engine};
use crate::error::DatabaseError;
use crate::query::Query;
use crate::schema::Value;

base::words! {
    /// What was in memory before a query.
    #[derive(PartialOrd, Ord)]
    pub enum Temperature {
        /// Nothing of the data: the engine was started anew, its files evicted, and mincore(2) found no page.
        Cold = "cold",
        /// What the same query with the same key has just read.
        Warm = "warm",
    }
}

/// What a query returned: equal sets of rows are equal here, in whatever order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// Rows.
    pub rows: u64,
    /// The sum of the hashes of all rows, modulo 2^64.
    pub hash: u64,
}

impl Answer {
    /// With another row.
    pub fn add(&mut self, row: &[Value]) {
        let mut bytes = Vec::with_capacity(16 * row.len());
        for value in row {
            match value {
                Value::Null => bytes.push(0),
                Value::Integer(value) => {
                    bytes.push(1);
                    bytes.extend(value.to_le_bytes());
                }
                Value::Double(value) => {
                    bytes.push(2);
                    bytes.extend(value.to_bits().to_le_bytes());
                }
                Value::Text(text) => {
                    bytes.push(3);
                    bytes.extend((text.len() as u64).to_le_bytes());
                    bytes.extend(text.as_bytes());
                }
            }
        }
        self.rows += 1;
        self.hash = self.hash.wrapping_add(xxh3_64(&bytes));
    }
}

/// What a cold query left in the page cache: what was read for it, read-ahead included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PagesIn {
    /// Bytes.
    pub bytes: u64,
    /// Runs of neighbouring pages.
    pub runs: u64,
    /// Bytes in runs below 64 KiB.
    pub scattered_bytes: u64,
}

impl PagesIn {
    /// The share of bytes that lie in runs below 64 KiB; None if nothing was read.
    #[must_use]
    pub fn random_share(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.scattered_bytes as f64 / self.bytes as f64)
    }
}

/// A query that was run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// What it returned.
    pub answer: Answer,
    /// What it cost.
    pub cost: Cost,
    /// What it read, if it was cold and the engine's files can be looked at.
    pub pages: Option<PagesIn>,
}

/// Runs a query with a key.
pub fn ask(
    engine: &mut dyn Engine,
    dataset: &Dataset,
    query: Query,
    key: u64,
) -> Result<(Answer, Cost), DatabaseError> {
    let statement = query.statement(dataset, key, engine.dialect(), engine.sky());
    let mut answer = Answer::default();
    let cost = engine.run(&statement, &mut |row| {
        answer.add(row);
        Ok(())
    })?;
    Ok((answer, cost))
}

/// Makes the engine cold. `is_in_memory` says that the tier keeps its files in memory, where nothing can be evicted.
///
/// # Errors
/// [`DatabaseError::Warm`] if pages stayed; [`DatabaseError`] of the engine.
pub fn cool(engine: &mut dyn Engine, is_in_memory: bool) -> Result<(), DatabaseError> {
    let cold = engine.make_cold()?;
    if cold.resident_bytes > 0 && !is_in_memory {
        let path = engine.files().first().cloned().unwrap_or_default();
        return Err(DatabaseError::Warm { path, resident_bytes: cold.resident_bytes });
    }
    Ok(())
}

/// Makes the engine cold ([`cool`]), plans a query, runs it, and looks at what it read.
///
/// A server that was just started knows no table: its first statement reads the catalogue, half of what a look-up of a few rows reads
/// in all. Of a server that runs, only the data is cold, and that is what a tier holds; so the statement is planned, which reads the
/// catalogue and at most a page or two of each index, before the clock starts and before what is in memory is counted.
///
/// # Errors
/// [`DatabaseError::Warm`] if pages stayed; [`DatabaseError`] of the engine.
pub fn ask_cold(
    engine: &mut dyn Engine,
    dataset: &Dataset,
    query: Query,
    key: u64,
    is_in_memory: bool,
) -> Result<Asked, DatabaseError> {
    cool(engine, is_in_memory)?;
    engine.plan(&query.statement(dataset, key, engine.dialect(), engine.sky()))?;
    let files = engine.files();
    let before = cold::residency(&files)?;
    let (answer, cost) = ask(engine, dataset, query, key)?;
    let after = cold::residency(&files)?;
    let bytes = |pages: u64| pages * after.page_bytes;
    let pages = (!is_in_memory).then(|| PagesIn {
        bytes: bytes(after.resident.saturating_sub(before.resident)),
        runs: after.runs.saturating_sub(before.runs),
        scattered_bytes: bytes(after.scattered.saturating_sub(before.scattered)),
    });
    Ok(Asked { answer, cost, pages })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::dataset::Workload;
    use crate::engine::{Cold, Dialect, EngineFacts, Interrupter, SkyIndex, Statement};
    use crate::schema::{Index, Rows, Table};

    /// An engine whose files keep a page, and that answers with one row. It notes what it was asked to do.
    #[derive(Default)]
    struct Lingering(Vec<&'static str>);

    impl Engine for Lingering {
        fn facts(&mut self) -> Result<EngineFacts, DatabaseError> {
            Ok(EngineFacts { version: String::new(), settings: Vec::new(), is_owned: true })
        }

        fn dialect(&self) -> Dialect {
            Dialect::Sqlite
        }

        fn sky(&self) -> SkyIndex {
            SkyIndex::Healpix
        }

        fn create(&mut self, _: &[Table]) -> Result<(), DatabaseError> {
            Ok(())
        }

        fn loaded(&mut self, _: &Table) -> Result<u64, DatabaseError> {
            Ok(0)
        }

        fn load(&mut self, _: &Table, _: &mut dyn Rows) -> Result<u64, DatabaseError> {
            Ok(0)
        }

        fn build_index(&mut self, _: &Table, _: &Index) -> Result<(), DatabaseError> {
            Ok(())
        }

        fn finish_load(&mut self, _: &[Table]) -> Result<(), DatabaseError> {
            Ok(())
        }

        fn run(
            &mut self,
            _: &Statement,
            sink: &mut dyn FnMut(&[Value]) -> Result<(), DatabaseError>,
        ) -> Result<Cost, DatabaseError> {
            self.0.push("run");
            sink(&[Value::from(1)])?;
            Ok(Cost::default())
        }

        fn plan(&mut self, _: &Statement) -> Result<String, DatabaseError> {
            self.0.push("plan");
            Ok(String::new())
        }

        fn make_cold(&mut self) -> Result<Cold, DatabaseError> {
            self.0.push("make cold");
            Ok(Cold { is_restarted: true, file_bytes: 8192, resident_bytes: 4096 })
        }

        fn files(&self) -> Vec<PathBuf> {
            Vec::new()
        }

        fn size_bytes(&mut self) -> Result<u64, DatabaseError> {
            Ok(8192)
        }

        fn connect(&self) -> Result<Box<dyn Engine>, DatabaseError> {
            Ok(Box::new(Self::default()))
        }

        fn interrupter(&self) -> Interrupter {
            std::sync::Arc::new(|| ())
        }

        fn remove(&mut self) -> Result<(), DatabaseError> {
            Ok(())
        }
    }

    #[test]
    fn a_database_with_a_page_in_memory_is_not_cold_unless_its_tier_is_memory() {
        let dataset = Dataset::new(Workload::Ptf, 100, 1).unwrap();
        let ask =
            |is_in_memory| ask_cold(&mut Lingering::default(), &dataset, Query::Forward, 0, is_in_memory);
        assert!(matches!(ask(false), Err(DatabaseError::Warm { resident_bytes: 4096, .. })));
        let asked = ask(true).unwrap();
        assert_eq!((asked.answer.rows, asked.pages), (1, None));
    }

    #[test]
    fn a_cold_statement_is_planned_before_its_clock_starts() {
        let dataset = Dataset::new(Workload::Ptf, 100, 1).unwrap();
        let mut engine = Lingering::default();
        ask_cold(&mut engine, &dataset, Query::Forward, 0, true).unwrap();
        assert_eq!(engine.0, ["make cold", "plan", "run"]);
    }

    #[test]
    fn answers_are_equal_in_any_order_and_differ_in_any_value() {
        let rows = [
            vec![Value::from(1), Value::from("ab"), Value::from("c")],
            vec![Value::from(2), Value::from(0.5), Value::Null],
        ];
        let of = |rows: &[&[Value]]| {
            let mut answer = Answer::default();
            rows.iter().for_each(|row| answer.add(row));
            answer
        };
        let right = of(&[&rows[0], &rows[1]]);
        assert_eq!(right, of(&[&rows[1], &rows[0]]));
        let moved = vec![Value::from(1), Value::from("a"), Value::from("bc")];
        for other in [
            of(&[&rows[0]]),
            of(&[&rows[0], &rows[0]]),
            of(&[&moved, &rows[1]]),
            of(&[&rows[0], &rows[1][..2]]),
        ] {
            assert_ne!(right, other);
        }
    }
}
