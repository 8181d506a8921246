//! Reading a results file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

use flate2::read::ZlibDecoder;
use measure::{LaterWord, RunRecord, TestType, WarningCode, Workload};
use rusqlite::{OptionalExtension, Row};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{
    Completeness, Failure, Machine, Meta, MissingPoint, NOTE_TIME_USED, Session, Store, StoreError, schema,
};
use crate::board::Board;
use crate::model::{Point, RunRow};
use crate::plan::{Margin, Order, Plan, PlannedRun, Prepare, Protocol, Rules, Step, StepKind, blocks};

/// The largest record that is read back, bytes of JSON. A million is usual on a machine of many
/// CPUs; a file that claims more is damaged or hostile.
const MAX_RECORD_BYTES: u64 = 256 << 20;

/// Which table a record belongs to, by [`RunRow::id`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordOf {
    /// A row of [`Store::runs`].
    Run(i64),
    /// A row of [`Store::controls`].
    Control(i64),
    /// A row of [`Store::voided`].
    Voided(i64),
}

impl Store {
    /// What the sweep is.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Damaged`] names the entry.
    pub fn meta(&self) -> Result<Meta, StoreError> {
        let all = self.pairs("SELECT key, value FROM meta")?;
        let text = |key: &str| {
            all.get(key).cloned().ok_or_else(|| self.damaged(format!("meta '{key}'"), "is missing"))
        };
        let number =
            |key: &str| text(key)?.parse::<u64>().map_err(|e| self.damaged(format!("meta '{key}'"), e));
        let number32 =
            |key: &str| u32::try_from(number(key)?).map_err(|e| self.damaged(format!("meta '{key}'"), e));
        let order = text("order")?;
        Ok(Meta {
            name: text("name")?,
            space: text("space")?,
            created_unix_ns: number("created_unix_ns")?,
            version: text("version")?,
            seed: number("seed")?,
            passes: number32("passes")?,
            order: Order::from_word(&order).ok_or_else(|| self.unknown("meta 'order'", &order))?,
            discard_first: text("discard_first")? == "true",
            control: if all.contains_key("control") { Some(number32("control")?) } else { None },
            control_every: number32("control_every")?,
            max_consecutive_failures: number32("max_consecutive_failures")?,
            plan_digest: text("plan_digest")?,
            shards: if all.contains_key("shards") { number32("shards")? } else { 1 },
            parts: match all.get("parts") {
                Some(parts) => self.json("meta 'parts'", parts)?,
                None => vec![1],
            },
            prepare: match all.get("prepare") {
                Some(prepare) => self.json("meta 'prepare'", prepare)?,
                None => Prepare::default(),
            },
            protocol: match all.get("protocol") {
                Some(word) => {
                    Protocol::from_word(word).ok_or_else(|| self.unknown("meta 'protocol'", word))?
                }
                None => Protocol::unnamed(),
            },
            budget: match all.get("budget_ns") {
                Some(_) => Some(Duration::from_nanos(number("budget_ns")?)),
                None => None,
            },
            spacing: match all.get("spacing_ns") {
                Some(_) => Duration::from_nanos(number("spacing_ns")?),
                None => Duration::ZERO,
            },
            equivalence: match all.get("equivalence") {
                Some(stored) => self.json("meta 'equivalence'", stored)?,
                None => Margin::default(),
            },
            machine: self.json("meta 'machine'", &text("machine")?)?,
        })
    }

    /// What others than the sweep itself keep with it, by name: the scratch file's size, ….
    pub fn notes(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.pairs("SELECT key, value FROM notes")
    }

    /// The points, by id.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Damaged`] names the point.
    pub fn points(&self) -> Result<Vec<Point>, StoreError> {
        type Raw = (u32, Option<u8>, String, String, String, String);
        let sql = "SELECT id, test_type, target, settings, workload, layout FROM points ORDER BY id";
        let raw: Vec<Raw> = self.rows(sql, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
        })?;
        raw.into_iter()
            .map(|(id, test_type, target, settings, workload, layout)| {
                let place = format!("point {id}");
                Ok(Point {
                    id,
                    settings: self.json(&place, &settings)?,
                    test_type: test_type
                        .map(TestType::try_from)
                        .transpose()
                        .map_err(|e| self.damaged(place.clone(), e))?,
                    target,
                    workload: self.json::<Workload>(&place, &workload)?,
                    layout: self.json(&place, &layout)?,
                })
            })
            .collect()
    }

    /// The plan, as it was when the sweep began. It is read, not made again, so that it stays what
    /// it was whatever later versions would draw from the same seed.
    pub fn plan(&self) -> Result<Plan, StoreError> {
        let meta = self.meta()?;
        let rules = Rules {
            passes: meta.passes,
            order: meta.order,
            control: meta.control,
            control_every: meta.control_every,
            seed: meta.seed,
            shards: meta.shards,
            prepare: meta.prepare,
            equivalence: meta.equivalence,
            protocol: meta.protocol,
            spacing: meta.spacing,
        };
        let (mut runs, mut controls) = (Vec::new(), Vec::new());
        for step in self.steps("SELECT position, point, pass, kind FROM plan ORDER BY position")? {
            match step.kind {
                StepKind::Run => runs.push(step.planned),
                StepKind::Control => controls.push(step.planned),
            }
        }
        let here = Plan::of_shards(self.points()?, rules, |shard| meta.parts.contains(&shard));
        Ok(Plan { runs, controls, ..here })
    }

    /// The runs of blocks that were cut short, and that are therefore not analysed.
    pub fn cut(&self) -> Result<BTreeSet<PlannedRun>, StoreError> {
        if self.meta()?.protocol.is_planned_ahead() {
            return Ok(BTreeSet::new());
        }
        let sql = "SELECT position FROM runs UNION SELECT position FROM failures WHERE kind = 'run'";
        let settled: Vec<u32> = self.rows(sql, |row| row.get(0))?;
        let planned = self.steps("SELECT position, point, pass, kind FROM plan WHERE kind = 'run'")?;
        let planned: Vec<PlannedRun> = planned.into_iter().map(|step| step.planned).collect();
        Ok(blocks::cut(&self.points()?, &planned, &settled.into_iter().collect()))
    }

    /// How long each shard has measured in blocks, all its sessions together; at the start of its last block, or at
    /// the end of its last session.
    pub fn time_used(&self) -> Result<BTreeMap<u32, Duration>, StoreError> {
        let mut used = BTreeMap::new();
        for (key, value) in self.notes()? {
            let Some(shard) = key.strip_prefix(NOTE_TIME_USED) else { continue };
            let damaged = || self.damaged(format!("note '{key}'"), format!("'{value}'"));
            let shard: u32 = shard.parse().map_err(|_| damaged())?;
            used.insert(shard, Duration::from_nanos(value.parse().map_err(|_| damaged())?));
        }
        Ok(used)
    }

    /// Where the contests stand.
    pub fn board(&self) -> Result<Board, StoreError> {
        let plan = self.plan()?;
        let (parts, budget) = self.meta().map(|meta| (meta.parts, meta.budget))?;
        let cut = self.cut()?;
        Ok(Board::new(&plan, &parts, budget, &self.runs()?, &cut))
    }

    /// All runs in planned order, void ones included.
    pub fn runs(&self) -> Result<Vec<RunRow>, StoreError> {
        self.figures("runs")
    }

    /// The repetitions of the control point, in planned order.
    pub fn controls(&self) -> Result<Vec<RunRow>, StoreError> {
        self.figures("controls")
    }

    /// First attempts that something outside spoilt, and that were repeated: they count for
    /// nothing and stay visible.
    pub fn voided(&self) -> Result<Vec<RunRow>, StoreError> {
        self.figures("voided")
    }

    /// The whole record of one run.
    ///
    /// # Errors
    /// [`StoreError::NoSuchRow`] where there is no such run; [`StoreError::Later`] where its record
    /// is of another version, [`StoreError::Damaged`] where it does not read.
    pub fn record_of(&self, row: RecordOf) -> Result<RunRecord, StoreError> {
        let (table, id) = match row {
            RecordOf::Run(id) => ("runs", id),
            RecordOf::Control(id) => ("controls", id),
            RecordOf::Voided(id) => ("voided", id),
        };
        let sql = format!(
            "SELECT r.length, r.zlib FROM {table} f JOIN records r ON r.id = f.record WHERE f.id = ?1"
        );
        let place = format!("record of {table} row {id}");
        let found: Option<(u64, Vec<u8>)> = self
            .connection
            .query_row(&sql, [id], |row| Ok((unsigned(row, "length")?, row.get(1)?)))
            .optional()
            .map_err(self.sql("read a record"))?;
        let Some((length, packed)) = found else {
            return Err(StoreError::NoSuchRow { path: self.path.clone(), what: place });
        };
        if length > MAX_RECORD_BYTES {
            return Err(self.damaged(place, format!("claims {}", units::bytes(length))));
        }
        let mut text = String::new();
        ZlibDecoder::new(packed.as_slice())
            .take(length)
            .read_to_string(&mut text)
            .map_err(|e| self.damaged(place.clone(), e))?;
        let read: Result<RunRecord, StoreError> = self.json(&place, &text);
        // What a field of another version means is not known, even where it reads.
        let schema = match &read {
            Ok(record) => record.schema.clone(),
            Err(_) => {
                serde_json::from_str(&text).map_or_else(|_| String::new(), |Versioned { schema }| schema)
            }
        };
        if schema.starts_with("flashwright.run/") && schema != measure::record::SCHEMA {
            return Err(StoreError::Later { path: self.path.clone(), place, word: schema });
        }
        read
    }

    /// The whole record of a row of [`Store::runs`].
    ///
    /// # Errors
    /// As [`Store::record_of`].
    pub fn record(&self, run: i64) -> Result<RunRecord, StoreError> {
        self.record_of(RecordOf::Run(run))
    }

    /// Starts and resumptions, oldest first.
    pub fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        let raw: Vec<(Session, String)> = self.rows(
            "SELECT id, started_unix_ns, ended_unix_ns, outcome, pid, version, machine FROM sessions ORDER BY id",
            |row| {
                let session = Session {
                    id: row.get(0)?,
                    started_unix_ns: unsigned(row, "started_unix_ns")?,
                    ended_unix_ns: row.get::<_, Option<i64>>(2)?.and_then(|ns| u64::try_from(ns).ok()),
                    outcome: row.get(3)?,
                    pid: row.get(4)?,
                    version: row.get(5)?,
                    machine: Machine::default(),
                };
                Ok((session, row.get(6)?))
            },
        )?;
        raw.into_iter()
            .map(|(session, machine)| {
                let machine = self.json(&format!("session {}", session.id), &machine)?;
                Ok(Session { machine, ..session })
            })
            .collect()
    }

    /// Attempts that gave no record, oldest first; those that succeeded later included.
    pub fn failures(&self) -> Result<Vec<Failure>, StoreError> {
        let raw: Vec<(Failure, String)> = self.rows(
            "SELECT id, session, position, point, pass, at_unix_ns, error, kind FROM failures ORDER BY id",
            |row| {
                let failure = Failure {
                    id: row.get(0)?,
                    session: row.get(1)?,
                    planned: PlannedRun { position: row.get(2)?, point: row.get(3)?, pass: row.get(4)? },
                    kind: StepKind::Run,
                    at_unix_ns: unsigned(row, "at_unix_ns")?,
                    error: row.get(6)?,
                };
                Ok((failure, row.get(7)?))
            },
        )?;
        raw.into_iter()
            .map(|(failure, kind)| Ok(Failure { kind: self.step_kind(&kind)?, ..failure }))
            .collect()
    }

    /// The planned runs that have no row, in planned order.
    pub fn missing(&self) -> Result<Vec<PlannedRun>, StoreError> {
        let steps = self.missing_steps()?;
        Ok(steps.into_iter().filter(|s| s.kind == StepKind::Run).map(|s| s.planned).collect())
    }

    /// The planned runs and controls that have no row, in planned order: what a resumption does.
    pub fn missing_steps(&self) -> Result<Vec<Step>, StoreError> {
        self.steps(
            "SELECT position, point, pass, kind FROM plan
             WHERE CASE kind WHEN 'run' THEN position NOT IN (SELECT position FROM runs)
                             ELSE position NOT IN (SELECT position FROM controls) END
             ORDER BY position",
        )
    }

    /// How much of the plan is there.
    pub fn completeness(&self) -> Result<Completeness, StoreError> {
        if !self.meta()?.protocol.is_planned_ahead() {
            return self.completeness_of_blocks();
        }
        let count = |sql: &str| -> Result<u32, StoreError> {
            self.connection.query_row(sql, [], |row| row.get(0)).map_err(self.sql("count runs"))
        };
        let mut by_point: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for run in self.missing()? {
            by_point.entry(run.point).or_default().push(run.pass);
        }
        let missing = by_point.into_iter().map(|(point, mut passes)| {
            passes.sort_unstable();
            MissingPoint { point, passes }
        });
        Ok(Completeness {
            planned: count("SELECT count(*) FROM plan WHERE kind = 'run'")?,
            done: count("SELECT count(*) FROM runs")?,
            void: self.count_void()?,
            controls_planned: count("SELECT count(*) FROM plan WHERE kind = 'control'")?,
            controls_done: count("SELECT count(*) FROM controls")?,
            missing: missing.collect(),
            open_works: 0,
        })
    }

    /// Complete means here: each work is decided, or has its blocks, or the budget is used; and no point is without
    /// any run.
    fn completeness_of_blocks(&self) -> Result<Completeness, StoreError> {
        let board = self.board()?;
        let runs = self.runs()?;
        let done = u32::try_from(runs.len()).unwrap_or(u32::MAX);
        let controls = u32::try_from(self.controls()?.len()).unwrap_or(u32::MAX);
        let missing = board.missing().into_iter();
        let missing: Vec<MissingPoint> =
            missing.map(|(point, passes)| MissingPoint { point, passes }).collect();
        let owed: usize = missing.iter().map(|missing| missing.passes.len()).sum();
        Ok(Completeness {
            planned: done.saturating_add(u32::try_from(owed).unwrap_or(u32::MAX)),
            done,
            void: self.count_void()?,
            controls_planned: controls,
            controls_done: controls,
            open_works: board.open_works(&self.time_used()?),
            missing,
        })
    }

    /// Mean time that a stored run took beyond its `runtime` and `ramp_time`; none before the first.
    pub fn overhead(&self) -> Result<Option<Duration>, StoreError> {
        let mean: Option<f64> = self
            .connection
            .query_row("SELECT avg(max(wall_ns - interval_ns, 0)) FROM runs", [], |row| row.get(0))
            .map_err(self.sql("read run times"))?;
        Ok(mean.map(|ns| Duration::from_nanos(ns as u64)))
    }

    fn count_void(&self) -> Result<u32, StoreError> {
        // Few combinations of warnings occur, so grouping leaves little to parse.
        let groups: Vec<(String, u32)> = self
            .rows("SELECT warnings, count(*) FROM runs GROUP BY warnings", |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let mut void = 0;
        for (codes, count) in groups {
            let codes = self.codes(&codes, "runs")?;
            if codes.iter().any(|c| c.explain().severity == measure::warning::Severity::Void) {
                void += count;
            }
        }
        Ok(void)
    }

    fn figures(&self, table: &'static str) -> Result<Vec<RunRow>, StoreError> {
        let sql = format!("SELECT id, {} FROM {table} ORDER BY position, id", schema::figures().join(", "));
        let raw = self.rows(&sql, |row| Ok((run_row(row)?, row.get::<_, String>("warnings")?)))?;
        let with_warnings = |(row, codes): (RunRow, String)| {
            let warnings = if codes.is_empty() { Vec::new() } else { self.codes(&codes, table)? };
            Ok(RunRow { warnings, ..row })
        };
        let mut rows = raw.into_iter().map(with_warnings).collect::<Result<Vec<_>, StoreError>>()?;
        self.read_details(table, &mut rows)?;
        Ok(rows)
    }

    fn codes(&self, text: &str, table: &str) -> Result<Vec<WarningCode>, StoreError> {
        text.split_ascii_whitespace()
            .map(|word| {
                WarningCode::from_code(word).ok_or_else(|| {
                    self.damaged(format!("table {table}"), format!("'{word}' is not a warning's code"))
                })
            })
            .collect()
    }

    fn steps(&self, sql: &str) -> Result<Vec<Step>, StoreError> {
        let raw: Vec<(PlannedRun, String)> = self.rows(sql, |row| {
            let planned = PlannedRun { position: row.get(0)?, point: row.get(1)?, pass: row.get(2)? };
            Ok((planned, row.get(3)?))
        })?;
        raw.into_iter().map(|(planned, kind)| Ok(Step { planned, kind: self.step_kind(&kind)? })).collect()
    }

    fn step_kind(&self, word: &str) -> Result<StepKind, StoreError> {
        match word {
            "run" => Ok(StepKind::Run),
            "control" => Ok(StepKind::Control),
            other => Err(self.damaged("table plan".into(), format!("unknown kind '{other}'"))),
        }
    }

    pub(super) fn rows<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.connection.prepare(sql).map_err(self.sql("read it"))?;
        let rows = statement.query_map([], read).map_err(self.sql("read it"))?;
        rows.collect::<rusqlite::Result<_>>().map_err(self.sql("read it"))
    }

    fn pairs(&self, sql: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let pairs: Vec<(String, String)> = self.rows(sql, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(pairs.into_iter().collect())
    }

    pub(super) fn json<T: DeserializeOwned>(&self, place: &str, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|e| self.damaged(place.to_owned(), e))
    }

    /// What can be a word is one of a later version; anything else is damage.
    fn unknown(&self, place: &str, word: &str) -> StoreError {
        match LaterWord::new(word) {
            Some(_) => {
                StoreError::Later { path: self.path.clone(), place: place.into(), word: word.to_owned() }
            }
            None => self.damaged(place.into(), format!("'{word}'")),
        }
    }

    pub(super) fn damaged(&self, place: String, what: impl ToString) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), place, what: what.to_string() }
    }
}

/// What every version of a record has.
#[derive(Deserialize)]
struct Versioned {
    schema: String,
}

/// A row of figures, its warnings and details still to be read.
fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    Ok(RunRow {
        id: row.get("id")?,
        point: row.get("point")?,
        pass: row.get("pass")?,
        position: row.get("position")?,
        started_unix_ns: unsigned(row, "started_unix_ns")?,
        interval_ns: unsigned(row, "interval_ns")?,
        bytes: unsigned(row, "bytes")?,
        ios: unsigned(row, "ios")?,
        bandwidth_bytes_per_s: row.get("bandwidth_bytes_per_s")?,
        iops: row.get("iops")?,
        latency_ns_mean: row.get("latency_ns_mean")?,
        latency_ns_p50: unsigned(row, "latency_ns_p50")?,
        latency_ns_p99: unsigned(row, "latency_ns_p99")?,
        latency_ns_p99_9: unsigned(row, "latency_ns_p99_9")?,
        latency_ns_max: unsigned(row, "latency_ns_max")?,
        ..RunRow::default()
    })
}

/// A column that is never negative.
fn unsigned(row: &Row<'_>, column: &'static str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, value))
}
