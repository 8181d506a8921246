//! Taking in what another results file of the same sweep holds.
//!
//! Rows are copied inside SQLite, whole records included, and get ids of their own here; what ties them to the
//! sweep is their position in the plan, which is the same in all shards. A row that is here already is not
//! taken twice; one that is here with other figures stops everything, because one of the two is not what it
//! claims to be.

use std::path::Path;

use rusqlite::{OptionalExtension, Transaction, params};

use super::{Store, StoreError, details, schema};

/// What makes two rows of figures the same measurement.
const SAME: &str = "a.started_unix_ns = b.started_unix_ns AND a.interval_ns = b.interval_ns \
     AND a.bytes = b.bytes AND a.ios = b.ios AND a.point = b.point AND a.pass = b.pass";

impl Store {
    /// Copies runs, controls, spoilt attempts, failures, sessions and notes of `source` that are not here.
    /// Notes that are here already stay.
    ///
    /// # Errors
    /// [`StoreError::Contradicts`] where both hold a measurement of the same step and they differ; failures of
    /// the database. Nothing of the source is taken then.
    pub fn absorb(&mut self, source: &Path) -> Result<(), StoreError> {
        let name = source.to_string_lossy().into_owned();
        self.connection.execute("ATTACH ?1 AS source", [&name]).map_err(self.sql("open a shard"))?;
        let taken = self.take_all(source);
        let detached = self.connection.execute("DETACH source", []);
        taken?;
        detached.map_err(self.sql("close a shard")).map(drop)
    }

    fn take_all(&mut self, source: &Path) -> Result<(), StoreError> {
        for table in ["runs", "controls"] {
            if let Some((point, pass)) = self.contradiction(table)? {
                return Err(StoreError::Contradicts { path: source.to_owned(), point, pass });
            }
        }
        self.transaction("take in a shard", |t| {
            t.execute_batch("CREATE TEMP TABLE renumbered (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")?;
            take_sessions(t)?;
            for table in ["runs", "controls"] {
                take_figures(t, table, "position NOT IN (SELECT position FROM main.TABLE)")?;
            }
            let known = "NOT EXISTS (SELECT 1 FROM main.TABLE b WHERE b.position = a.position \
                 AND b.started_unix_ns = a.started_unix_ns)";
            take_figures(t, "voided", known)?;
            t.execute_batch(
                "INSERT INTO main.failures (session, position, kind, point, pass, at_unix_ns, error)
                 SELECT r.new, a.position, a.kind, a.point, a.pass, a.at_unix_ns, a.error
                 FROM source.failures a JOIN renumbered r ON r.old = a.session
                 WHERE NOT EXISTS (SELECT 1 FROM main.failures b
                                   WHERE b.position = a.position AND b.at_unix_ns = a.at_unix_ns)
                 ORDER BY a.id;
                 INSERT OR IGNORE INTO main.notes (key, value) SELECT key, value FROM source.notes;
                 DROP TABLE renumbered;",
            )
        })
    }

    /// A step that both files have measured, with different outcomes.
    fn contradiction(&self, table: &str) -> Result<Option<(u32, u32)>, StoreError> {
        let sql = format!(
            "SELECT a.point, a.pass FROM main.{table} a JOIN source.{table} b USING (position)
             WHERE NOT ({SAME}) LIMIT 1"
        );
        let found = self.connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        found.optional().map_err(self.sql("compare shards"))
    }
}

/// Copies the sessions that are not here, and notes the new number of each.
fn take_sessions(t: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut all = t.prepare("SELECT id FROM source.sessions ORDER BY id")?;
    let ids: Vec<i64> = all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for old in ids {
        let known: Option<i64> = t
            .query_row(
                "SELECT b.id FROM source.sessions a JOIN main.sessions b
                 USING (started_unix_ns, pid, version, machine) WHERE a.id = ?1",
                [old],
                |row| row.get(0),
            )
            .optional()?;
        let new = match known {
            Some(id) => id,
            None => {
                t.execute(
                    "INSERT INTO main.sessions (started_unix_ns, ended_unix_ns, outcome, pid, version, machine)
                     SELECT started_unix_ns, ended_unix_ns, outcome, pid, version, machine
                     FROM source.sessions WHERE id = ?1",
                    [old],
                )?;
                t.last_insert_rowid()
            }
        };
        t.execute("INSERT INTO renumbered (old, new) VALUES (?1, ?2)", params![old, new])?;
    }
    Ok(())
}

/// Copies rows of figures, `a`, with their records. `wanted` says which; `TABLE` in it is the table's name.
fn take_figures(t: &Transaction<'_>, table: &str, wanted: &str) -> rusqlite::Result<()> {
    let wanted = wanted.replace("TABLE", table);
    // Records keep their distance to each other: the first free number here is added to each.
    let free: i64 = t.query_row("SELECT coalesce(max(id), 0) FROM main.records", [], |row| row.get(0))?;
    t.execute(
        &format!(
            "INSERT INTO main.records (id, length, zlib)
             SELECT c.id + ?1, c.length, c.zlib FROM source.records c
             WHERE c.id IN (SELECT a.record FROM source.{table} a WHERE {wanted})"
        ),
        [free],
    )?;
    for (table_by_record, columns) in details::BY_RECORD {
        let is_there = "SELECT count(*) > 0 FROM source.sqlite_schema WHERE type = 'table' AND name = ?1";
        if t.query_row(is_there, [table_by_record], |row| row.get(0))? {
            t.execute(
                &format!(
                    "INSERT INTO main.{table_by_record} (record, {columns}) SELECT record + ?1, {columns} FROM source.{table_by_record}
                     WHERE record IN (SELECT a.record FROM source.{table} a WHERE {wanted})"
                ),
                [free],
            )?;
        }
    }
    let value = |column: &&str| match *column {
        "session" => "r.new".to_owned(),
        "record" => "a.record + ?1".to_owned(),
        other => format!("a.{other}"),
    };
    let columns = schema::figures();
    let values: Vec<String> = columns.iter().map(value).collect();
    let (columns, values) = (columns.join(", "), values.join(", "));
    t.execute(
        &format!(
            "INSERT INTO main.{table} ({columns}) SELECT {values} FROM source.{table} a
             JOIN renumbered r ON r.old = a.session WHERE {wanted} ORDER BY a.id"
        ),
        [free],
    )?;
    Ok(())
}
