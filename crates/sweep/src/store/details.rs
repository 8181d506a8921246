//! What a person asks a results file in SQL: what each run did by direction, its CPU time, its warnings with their texts, what
//! became of it, and the view `results`, which has it all in one row a run with a column for each setting.
//!
//! This program reads back the verdicts alone, for what limited each run ([`Store::verdict`]). Whole records hold the same, so files
//! that were begun without these tables lose nothing, and get them for the runs of their next session.

use std::collections::BTreeMap;

use measure::record::DirectionCounts;
use measure::{Limit, RunRecord, Verdict};
use rusqlite::{OptionalExtension, Transaction, params};

use super::read::RecordOf;
use super::write::{integer, json};
use super::{Store, StoreError};
use crate::model::RunRow;

impl Store {
    /// What limited a row of [`Store::runs`], by its record's own verdict; none where it has none.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Damaged`] where the verdict does not read.
    pub fn verdict(&self, run: i64) -> Result<Option<Verdict>, StoreError> {
        if !self.has_verdicts()? {
            return Ok(None);
        }
        let sql = "SELECT v.verdict FROM runs f JOIN verdicts v ON v.record = f.record WHERE f.id = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(self.sql("read a verdict"))?;
        let text: Option<String> =
            statement.query_row([run], |row| row.get(0)).optional().map_err(self.sql("read a verdict"))?;
        text.map(|text| self.json(&format!("verdict of run {run}"), &text)).transpose()
    }

    /// Files that were begun before there were verdicts have no table for them.
    fn has_verdicts(&self) -> Result<bool, StoreError> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'verdicts'";
        let count: i64 =
            self.connection.query_row(sql, [], |row| row.get(0)).map_err(self.sql("look for verdicts"))?;
        Ok(count > 0)
    }

    /// Fills the fields of rows that come from tables of details. They stay at their default where an older file lacks the table.
    pub(super) fn read_details(&self, table: &'static str, rows: &mut [RunRow]) -> Result<(), StoreError> {
        if self.has_verdicts()? {
            let sql = format!("SELECT f.id, v.word FROM {table} f JOIN verdicts v ON v.record = f.record");
            let words: Vec<(i64, String)> = self.rows(&sql, |row| Ok((row.get(0)?, row.get(1)?)))?;
            let words: BTreeMap<i64, String> = words.into_iter().collect();
            for row in rows {
                row.limit = words.get(&row.id).map(|word| self.limit(word)).transpose()?;
            }
        }
        Ok(())
    }

    fn limit(&self, word: &str) -> Result<Limit, StoreError> {
        Limit::from_word(word)
            .ok_or_else(|| self.damaged("table verdicts".to_owned(), format!("'{word}' is not a limit")))
    }

    /// Notes what became of runs, in place of what was noted before.
    ///
    /// # Errors
    /// As [`Store::insert_run`].
    pub fn set_fates(
        &mut self,
        fates: impl IntoIterator<Item = (RecordOf, &'static str)>,
    ) -> Result<(), StoreError> {
        self.transaction("note what became of runs", |t| {
            create(t)?;
            t.execute("DELETE FROM fates", [])?;
            for (row, fate) in fates {
                let (table, id) = match row {
                    RecordOf::Run(id) => ("runs", id),
                    RecordOf::Control(id) => ("controls", id),
                    RecordOf::Voided(id) => ("voided", id),
                };
                let sql =
                    format!("INSERT INTO fates (record, fate) SELECT record, ?2 FROM {table} WHERE id = ?1");
                t.prepare_cached(&sql)?.execute(params![id, fate])?;
            }
            Ok(())
        })
    }
}

/// The tables, all by record. Those that an older file has not are made when a session begins.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS verdicts (
        record INTEGER PRIMARY KEY REFERENCES records(id),
        word TEXT NOT NULL, -- measure::Limit
        verdict TEXT NOT NULL -- JSON
    ) STRICT;
    CREATE TABLE IF NOT EXISTS directions (
        record INTEGER NOT NULL REFERENCES records(id),
        direction TEXT NOT NULL CHECK (direction IN ('read', 'write', 'trim')),
        bytes INTEGER NOT NULL,
        ios INTEGER NOT NULL,
        bandwidth_bytes_per_s REAL NOT NULL,
        iops REAL NOT NULL,
        latency_ns_mean REAL NOT NULL,
        latency_ns_p50 INTEGER NOT NULL,
        latency_ns_p99 INTEGER NOT NULL,
        latency_ns_p99_9 INTEGER NOT NULL,
        latency_ns_max INTEGER NOT NULL,
        PRIMARY KEY (record, direction)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS warnings (
        record INTEGER NOT NULL REFERENCES records(id),
        number INTEGER NOT NULL, -- from 1, in the order of the record
        code TEXT NOT NULL,
        severity TEXT NOT NULL, -- note, warning or void
        message TEXT NOT NULL,
        PRIMARY KEY (record, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS cpu (
        record INTEGER PRIMARY KEY REFERENCES records(id),
        user_ns INTEGER NOT NULL, -- of the process, in the measured interval
        system_ns INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS fates (
        record INTEGER PRIMARY KEY REFERENCES records(id),
        fate TEXT NOT NULL -- as of the last report of a session
    ) STRICT;";

/// The tables whose rows belong to a record that is taken over from another file, and their other columns.
pub(super) const BY_RECORD: [(&str, &str); 4] = [
    ("verdicts", "word, verdict"),
    (
        "directions",
        "direction, bytes, ios, bandwidth_bytes_per_s, iops, latency_ns_mean, latency_ns_p50, latency_ns_p99, latency_ns_p99_9, \
         latency_ns_max",
    ),
    ("warnings", "number, code, severity, message"),
    ("cpu", "user_ns, system_ns"),
];

/// The columns of the view beside those of the settings.
const COLUMNS: &str = "
    f.kind AS kind, f.id AS id, t.fate AS fate, p.test_type AS test_type, p.label AS label, p.target AS target, {settings}
    f.pass AS pass, f.started_unix_ns AS started_unix_ns, f.interval_ns AS interval_ns,
    (SELECT group_concat(direction, '+') FROM (SELECT direction FROM directions WHERE record = f.record ORDER BY direction))
        AS direction,
    f.bytes AS bytes, f.ios AS ios, f.bandwidth_bytes_per_s AS bandwidth_bytes_per_s, f.iops AS iops,
    f.latency_ns_mean AS latency_ns_mean, f.latency_ns_p50 AS latency_ns_p50, f.latency_ns_p99 AS latency_ns_p99,
    f.latency_ns_p99_9 AS latency_ns_p99_9, f.latency_ns_max AS latency_ns_max,
    c.user_ns * 1.0 / max(f.ios, 1) AS cpu_user_ns_per_io, c.system_ns * 1.0 / max(f.ios, 1) AS cpu_system_ns_per_io,
    v.word AS limited_by, f.warnings AS warnings, f.point AS point, f.session AS session, f.record AS record";

/// Makes what is not there. The points are there already: the view has their settings.
pub(super) fn create(t: &Transaction<'_>) -> rusqlite::Result<()> {
    t.execute_batch(TABLES)?;
    let sql = "SELECT DISTINCT s.key FROM points, json_each(points.settings) s ORDER BY 1";
    let dimensions: Vec<String> =
        t.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let fixed = COLUMNS.replace("{settings}", "");
    let setting = |name: &String| {
        let quoted = name.replace('"', "\"\"");
        // A path is text within text: its quotes are doubled for SQL, and a name has none of JSON's.
        let path = format!("$.\"{name}\"").replace('\'', "''");
        let value = format!("json_extract(p.settings, '{path}')");
        // Values are kept as they were written; whole numbers are numbers for whoever asks.
        format!(
            "CASE WHEN {value} GLOB '*[^0-9]*' OR {value} = '' THEN {value} ELSE CAST({value} AS INTEGER) END AS \"{quoted}\","
        )
    };
    let is_free = |name: &&String| !fixed.contains(&format!(" AS {name},"));
    let settings: Vec<String> = dimensions.iter().filter(is_free).map(setting).collect();
    let table = |name: &str, kind: &str| format!("SELECT '{kind}' AS kind, {name}.* FROM {name}");
    let all = [table("runs", "run"), table("controls", "control"), table("voided", "repeated")];
    t.execute_batch(&format!(
        "CREATE VIEW IF NOT EXISTS results AS SELECT {} FROM ({}) f JOIN points p ON p.id = f.point
         LEFT JOIN fates t ON t.record = f.record LEFT JOIN cpu c ON c.record = f.record
         LEFT JOIN verdicts v ON v.record = f.record",
        COLUMNS.replace("{settings}", &settings.join(" ")),
        all.join(" UNION ALL ")
    ))
}

/// Copies to the row of a record's figures what [`Store::read_details`] will read back.
pub(super) fn copy_to_row(record: &RunRecord, row: &mut RunRow) {
    row.limit = record.verdict.as_ref().map(|verdict| verdict.limit);
}

/// Adds what a record says.
pub(super) fn insert(t: &Transaction<'_>, row: i64, record: &RunRecord) -> rusqlite::Result<()> {
    if let Some(verdict) = &record.verdict {
        t.prepare_cached("INSERT INTO verdicts (record, word, verdict) VALUES (?1, ?2, ?3)")?
            .execute(params![row, verdict.limit.word(), json(verdict)])?;
    }
    let (user, system) = (integer(record.process.user_ns), integer(record.process.system_ns));
    t.prepare_cached("INSERT INTO cpu (record, user_ns, system_ns) VALUES (?1, ?2, ?3)")?
        .execute(params![row, user, system])?;
    for (number, warning) in (1..).zip(&record.warnings) {
        let severity = json(&warning.code.explain().severity);
        t.prepare_cached(
            "INSERT INTO warnings (record, number, code, severity, message) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            row,
            number,
            warning.code.code(),
            severity.trim_matches('"'),
            warning.message
        ])?;
    }
    for (direction, counts) in [("read", &record.read), ("write", &record.write), ("trim", &record.trim)] {
        if counts.ios > 0 {
            insert_direction(t, row, record, direction, counts)?;
        }
    }
    Ok(())
}

/// A direction's rates are its share of the whole run's: jobs may differ in their intervals.
fn insert_direction(
    t: &Transaction<'_>,
    row: i64,
    record: &RunRecord,
    direction: &str,
    counts: &DirectionCounts,
) -> rusqlite::Result<()> {
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let latency = &counts.latency;
    t.prepare_cached(
        "INSERT INTO directions (record, direction, bytes, ios, bandwidth_bytes_per_s, iops, latency_ns_mean, latency_ns_p50,
             latency_ns_p99, latency_ns_p99_9, latency_ns_max)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        row,
        direction,
        integer(counts.bytes),
        integer(counts.ios),
        record.bandwidth_bytes_per_s() * share(counts.bytes, record.bytes()),
        record.iops() * share(counts.ios, record.ios()),
        latency.mean(),
        integer(latency.percentile(50.0)),
        integer(latency.percentile(99.0)),
        integer(latency.percentile(99.9)),
        integer(latency.max()),
    ])
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a merge leaves behind would be lost without a word.
    #[test]
    fn every_table_by_record_is_taken_over_but_fates_which_each_report_tells_anew() {
        let file = rusqlite::Connection::open_in_memory().unwrap();
        file.execute_batch(TABLES).unwrap();
        let sql = "SELECT s.name, group_concat(c.name, ', ' ORDER BY c.cid) FROM sqlite_schema s, pragma_table_info(s.name) c
                   WHERE s.type = 'table' AND s.name <> 'fates' AND c.name <> 'record' GROUP BY s.name ORDER BY s.name";
        let mut statement = file.prepare(sql).unwrap();
        let made = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let made: Vec<(String, String)> = made.map(Result::unwrap).collect();
        let mut taken = BY_RECORD.map(|(table, columns)| (table.to_owned(), columns.to_owned()));
        taken.sort_unstable();
        assert_eq!(made, taken);
    }
}
