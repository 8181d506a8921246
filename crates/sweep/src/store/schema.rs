//! The tables of a results file, and the check that a file is one.
//!
//! Figures stand in columns and whole records in a table of their own, compressed, so that reading
//! all runs of a large sweep touches none of its records. The three tables of figures have the same
//! columns: `runs` holds what the plan owes, once each, which the database itself enforces, as it does that a row's point and pass
//! are those of its step in the plan;
//! `controls` the repetitions of the control point; `voided` the first attempts at runs that were
//! repeated because something outside had spoilt them.

use rusqlite::Connection;

/// `flsh`: marks an SQLite file as a results file (file(1) prints it).
pub(super) const APPLICATION_ID: i64 = 0x666c_7368;

/// The format that this program reads and writes. Formats 1 and 2 were of versions before the first release.
pub(super) const FORMAT: i64 = 3;

/// The columns of `runs`, `controls` and `voided` after `id`, one a line, in the order of [`crate::store::write`]'s parameters.
const FIGURES: &str = "
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            position INTEGER NOT NULL,
            session INTEGER NOT NULL REFERENCES sessions(id),
            started_unix_ns INTEGER NOT NULL,
            interval_ns INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            ios INTEGER NOT NULL,
            bandwidth_bytes_per_s REAL NOT NULL,
            iops REAL NOT NULL,
            latency_ns_mean REAL NOT NULL,
            latency_ns_p50 INTEGER NOT NULL,
            latency_ns_p99 INTEGER NOT NULL,
            latency_ns_p99_9 INTEGER NOT NULL,
            latency_ns_max INTEGER NOT NULL,
            warnings TEXT NOT NULL, -- codes, separated by spaces
            wall_ns INTEGER NOT NULL, -- from asking for the run until its record was there
            record INTEGER NOT NULL UNIQUE REFERENCES records(id),";

/// Their names.
pub(super) fn figures() -> Vec<&'static str> {
    FIGURES.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

fn figures_table(name: &str, constraint: &str) -> String {
    format!(
        "CREATE TABLE {name} (
            id INTEGER PRIMARY KEY,{FIGURES}
            FOREIGN KEY (position, point, pass) REFERENCES plan(position, point, pass)
            {constraint}
        ) STRICT;"
    )
}

/// Makes the tables. To be called inside a transaction: application id and format stand in the
/// file's header and are committed with the rest.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {FORMAT};
         CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
         CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
         CREATE TABLE points (
            id INTEGER PRIMARY KEY,
            label TEXT NOT NULL,
            test_type INTEGER,
            target TEXT NOT NULL,
            settings TEXT NOT NULL, -- JSON: dimension → value
            workload TEXT NOT NULL, -- JSON
            layout TEXT NOT NULL -- JSON: option → value; {{}} where nothing is built
         ) STRICT;
         CREATE TABLE plan (
            position INTEGER PRIMARY KEY,
            kind TEXT NOT NULL CHECK (kind IN ('run', 'control')),
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            UNIQUE (position, point, pass)
         ) STRICT;
         CREATE UNIQUE INDEX plan_run ON plan(point, pass) WHERE kind = 'run';
         CREATE TABLE sessions (
            id INTEGER PRIMARY KEY,
            started_unix_ns INTEGER NOT NULL,
            ended_unix_ns INTEGER,
            outcome TEXT,
            pid INTEGER NOT NULL,
            version TEXT NOT NULL,
            machine TEXT NOT NULL -- JSON
         ) STRICT;
         CREATE TABLE records (
            id INTEGER PRIMARY KEY,
            length INTEGER NOT NULL, -- of the JSON text, bytes
            zlib BLOB NOT NULL -- flashwright.run/1; in the sqlite3 shell: sqlar_uncompress(zlib, length)
         ) STRICT;
         {runs}{controls}{voided}
         CREATE TABLE failures (
            id INTEGER PRIMARY KEY,
            session INTEGER NOT NULL REFERENCES sessions(id),
            position INTEGER NOT NULL,
            kind TEXT NOT NULL,
            point INTEGER NOT NULL REFERENCES points(id),
            pass INTEGER NOT NULL,
            at_unix_ns INTEGER NOT NULL,
            error TEXT NOT NULL,
            FOREIGN KEY (position, point, pass) REFERENCES plan(position, point, pass)
         ) STRICT;",
        runs = figures_table("runs", ", UNIQUE (point, pass), UNIQUE (position)"),
        controls = figures_table("controls", ", UNIQUE (position)"),
        voided = figures_table("voided", ""),
    ))
}

/// What a database turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A results file of the format that this program knows.
    Results,
    /// A results file of another format.
    OtherFormat(i64),
    /// Nothing yet: no table, no mark.
    Empty,
    /// A database of something else.
    Foreign,
}

/// Tells results files from everything else, by their header.
pub(super) fn kind(connection: &Connection) -> rusqlite::Result<Kind> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    // Table names first: reading the schema is what rolls back a hot journal.
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let (application, format) = (number("application_id")?, number("user_version")?);
    Ok(match (application, format) {
        (APPLICATION_ID, FORMAT) => Kind::Results,
        (APPLICATION_ID, _) => Kind::OtherFormat(format),
        (0, 0) if tables == 0 => Kind::Empty,
        _ => Kind::Foreign,
    })
}
