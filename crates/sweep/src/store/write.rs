//! Adding to a results file. Each method is one transaction: it happens whole, durably, or not at all.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use measure::{RunRecord, WarningCode};
use rusqlite::{Transaction, TransactionBehavior, params};
use serde::Serialize;

use super::{Machine, Meta, NOTE_TIME_USED, Store, StoreError, details, now_unix_ns, schema};
use crate::model::{Point, RunRow};
use crate::plan::{Plan, PlannedRun, Protocol, Step, StepKind};

/// A measured step that is to be stored.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// What was planned.
    pub planned: PlannedRun,
    /// What was seen.
    pub record: &'a RunRecord,
    /// Time from asking for the run until its record was there.
    pub wall: Duration,
}

impl Store {
    /// Stores a run of the plan and returns its row.
    ///
    /// # Errors
    /// [`StoreError::Full`] where there is no space; [`StoreError::Database`] where the run is stored
    /// already, is not in the plan, or the database fails.
    pub fn insert_run(&mut self, session: i64, measured: Measured<'_>) -> Result<RunRow, StoreError> {
        self.insert_figures("runs", session, measured)
    }

    /// Stores a repetition of the control point and returns its row.
    ///
    /// # Errors
    /// As [`Store::insert_run`].
    pub fn insert_control(&mut self, session: i64, measured: Measured<'_>) -> Result<RunRow, StoreError> {
        self.insert_figures("controls", session, measured)
    }

    /// Stores an attempt that something outside spoilt and that is about to be repeated.
    ///
    /// # Errors
    /// As [`Store::insert_run`].
    pub fn insert_voided(&mut self, session: i64, measured: Measured<'_>) -> Result<RunRow, StoreError> {
        self.insert_figures("voided", session, measured)
    }

    /// Stores an attempt that gave no record.
    pub fn insert_failure(
        &mut self,
        session: i64,
        planned: PlannedRun,
        kind: StepKind,
        error: &str,
    ) -> Result<(), StoreError> {
        self.transaction("store a failure", |t| {
            t.execute(
                "INSERT INTO failures (session, position, kind, point, pass, at_unix_ns, error)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    session,
                    planned.position,
                    kind_word(kind),
                    planned.point,
                    planned.pass,
                    integer(now_unix_ns()),
                    error
                ],
            )
            .map(drop)
        })
    }

    /// Notes that a process begins to work on the sweep, and returns the session's id.
    pub fn begin_session(&mut self, version: &str, machine: &Machine) -> Result<i64, StoreError> {
        let machine = json(machine);
        self.transaction("begin a session", |t| {
            details::create(t)?;
            t.execute(
                "INSERT INTO sessions (started_unix_ns, pid, version, machine) VALUES (?1, ?2, ?3, ?4)",
                params![integer(now_unix_ns()), std::process::id(), version, machine],
            )?;
            Ok(t.last_insert_rowid())
        })
    }

    /// Notes how a session ended.
    pub fn end_session(&mut self, session: i64, outcome: &str) -> Result<(), StoreError> {
        self.transaction("end a session", |t| {
            t.execute(
                "UPDATE sessions SET ended_unix_ns = ?2, outcome = ?3 WHERE id = ?1",
                params![session, integer(now_unix_ns()), outcome],
            )
            .map(drop)
        })
    }

    /// Keeps something with the sweep that it knows nothing of, such as the scratch file's size.
    pub fn set_note(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        self.transaction("keep a note", |t| insert_note(t, key, value))
    }

    /// Writes tables, meta data, points and plan of a new sweep in one transaction.
    pub(super) fn insert_plan(&mut self, meta: &Meta, plan: &Plan) -> Result<(), StoreError> {
        self.transaction("write the plan", |t| {
            schema::create(t)?;
            insert_meta(t, meta)?;
            for point in &plan.points {
                insert_point(t, point)?;
            }
            insert_steps(t, &plan.steps())?;
            details::create(t)
        })
    }

    /// Adds a block to the plan, whole, before its first run, with the time that its shard has used by then.
    ///
    /// # Errors
    /// As [`Store::insert_run`].
    pub fn insert_block(&mut self, steps: &[Step], shard: u32, used: Duration) -> Result<(), StoreError> {
        self.transaction("add a block to the plan", |t| {
            insert_steps(t, steps)?;
            insert_note(t, &format!("{NOTE_TIME_USED}{shard}"), &used.as_nanos().to_string())
        })
    }

    /// Notes how long a shard has measured.
    ///
    /// # Errors
    /// As [`Store::insert_run`].
    pub fn set_time_used(&mut self, shard: u32, used: Duration) -> Result<(), StoreError> {
        self.set_note(&format!("{NOTE_TIME_USED}{shard}"), &used.as_nanos().to_string())
    }

    /// Changes the longest that the sweep measures, all its sessions together.
    ///
    /// # Errors
    /// As [`Store::insert_run`].
    pub fn set_budget(&mut self, budget: Duration) -> Result<(), StoreError> {
        self.transaction("change the budget", |t| {
            t.execute(
                "INSERT INTO meta (key, value) VALUES ('budget_ns', ?1)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [budget.as_nanos().to_string()],
            )
            .map(drop)
        })
    }

    fn insert_figures(
        &mut self,
        table: &'static str,
        session: i64,
        measured: Measured<'_>,
    ) -> Result<RunRow, StoreError> {
        let mut row = figures(measured);
        let text = serde_json::to_vec(measured.record).expect("a record serialises");
        let packed = pack(&text);
        let warnings: Vec<&str> = row.warnings.iter().map(|code| code.code()).collect();
        let warnings = warnings.join(" ");
        let wall = i64::try_from(measured.wall.as_nanos()).unwrap_or(i64::MAX);
        let columns = schema::figures();
        let values = vec!["?"; columns.len()].join(", ");
        let sql = format!("INSERT INTO {table} ({}) VALUES ({values})", columns.join(", "));
        row.id = self.transaction("store a run", |t| {
            t.prepare_cached("INSERT INTO records (length, zlib) VALUES (?1, ?2)")?
                .execute(params![integer(text.len() as u64), packed])?;
            let record = t.last_insert_rowid();
            t.prepare_cached(&sql)?.execute(params![
                row.point,
                row.pass,
                row.position,
                session,
                integer(row.started_unix_ns),
                integer(row.interval_ns),
                integer(row.bytes),
                integer(row.ios),
                row.bandwidth_bytes_per_s,
                row.iops,
                row.latency_ns_mean,
                integer(row.latency_ns_p50),
                integer(row.latency_ns_p99),
                integer(row.latency_ns_p99_9),
                integer(row.latency_ns_max),
                warnings,
                wall,
                record,
            ])?;
            let id = t.last_insert_rowid();
            details::insert(t, record, measured.record)?;
            Ok(id)
        })?;
        Ok(row)
    }

    pub(super) fn transaction<T>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        // Immediate: a reader in the way is waited for here, not in the middle.
        let done = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).and_then(
            |transaction| {
                let value = work(&transaction)?;
                transaction.commit()?;
                Ok(value)
            },
        );
        done.map_err(|source| StoreError::from_sql(&self.path, operation, source))
    }
}

/// The figures that analysis needs, out of a whole record.
fn figures(measured: Measured<'_>) -> RunRow {
    let record = measured.record;
    let latency = record.latency();
    let mut warnings: Vec<WarningCode> = record.warnings.iter().map(|w| w.code).collect();
    warnings.sort_unstable();
    warnings.dedup();
    let mut row = RunRow {
        point: measured.planned.point,
        pass: measured.planned.pass,
        position: measured.planned.position,
        started_unix_ns: record.started_unix_ns,
        interval_ns: record.interval_ns,
        bytes: record.bytes(),
        ios: record.ios(),
        bandwidth_bytes_per_s: record.bandwidth_bytes_per_s(),
        iops: record.iops(),
        latency_ns_mean: latency.mean(),
        latency_ns_p50: latency.percentile(50.0),
        latency_ns_p99: latency.percentile(99.0),
        latency_ns_p99_9: latency.percentile(99.9),
        latency_ns_max: latency.max(),
        warnings,
        ..RunRow::default()
    };
    details::copy_to_row(record, &mut row);
    row
}

fn insert_meta(t: &Transaction<'_>, meta: &Meta) -> rusqlite::Result<()> {
    let mut all = vec![
        ("name", meta.name.clone()),
        ("space", meta.space.clone()),
        ("created_unix_ns", meta.created_unix_ns.to_string()),
        ("version", meta.version.clone()),
        ("seed", meta.seed.to_string()),
        ("passes", meta.passes.to_string()),
        ("order", meta.order.word().to_owned()),
        ("discard_first", meta.discard_first.to_string()),
        ("control_every", meta.control_every.to_string()),
        ("max_consecutive_failures", meta.max_consecutive_failures.to_string()),
        ("plan_digest", meta.plan_digest.clone()),
        ("machine", json(&meta.machine)),
    ];
    all.extend(meta.control.map(|control| ("control", control.to_string())));
    if meta.shards > 1 {
        all.push(("shards", meta.shards.to_string()));
        all.push(("parts", json(&meta.parts)));
    }
    if meta.protocol != Protocol::unnamed() {
        all.push(("protocol", meta.protocol.word().to_owned()));
        all.push(("spacing_ns", meta.spacing.as_nanos().to_string()));
        all.extend(meta.budget.map(|budget| ("budget_ns", budget.as_nanos().to_string())));
    }
    if !meta.equivalence.is_default() {
        all.push(("equivalence", json(&meta.equivalence)));
    }
    if !meta.prepare.is_nothing() {
        all.push(("prepare", json(&meta.prepare)));
    }
    for (key, value) in all {
        t.execute("INSERT INTO meta (key, value) VALUES (?1, ?2)", params![key, value])?;
    }
    Ok(())
}

fn insert_note(t: &Transaction<'_>, key: &str, value: &str) -> rusqlite::Result<()> {
    t.execute(
        "INSERT INTO notes (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![key, value],
    )
    .map(drop)
}

fn insert_steps(t: &Transaction<'_>, steps: &[Step]) -> rusqlite::Result<()> {
    let mut insert =
        t.prepare_cached("INSERT INTO plan (position, kind, point, pass) VALUES (?1, ?2, ?3, ?4)")?;
    for Step { planned, kind } in steps {
        insert.execute(params![planned.position, kind_word(*kind), planned.point, planned.pass])?;
    }
    Ok(())
}

fn insert_point(t: &Transaction<'_>, point: &Point) -> rusqlite::Result<()> {
    t.prepare_cached(
        "INSERT INTO points (id, label, test_type, target, settings, workload, layout)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        point.id,
        point.label(),
        point.test_type.map(u8::from),
        point.target,
        json(&point.settings),
        json(&point.workload),
        json(&point.layout)
    ])
    .map(drop)
}

fn kind_word(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Run => "run",
        StepKind::Control => "control",
    }
}

/// SQLite's integers are signed. No count gets there in practice; one that did is held at the end.
pub(super) fn integer(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("what is stored serialises")
}

fn pack(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("memory takes every write")
}
