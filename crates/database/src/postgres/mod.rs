//! PostgreSQL as an engine: a server of our own on the tier, or the user's own by its connection string.
//!
//! 1. A server of our own ([`Managed`]) is found, initialised, started, and stopped when the last connection to it is dropped
//!    (`server` says what happens when this program is killed). The user's own ([`Existing`]) is asked for nothing but statements: it
//!    is never stopped, and its files are not evicted.
//! 2. Tables are in a schema of their own. A batch of rows is one transaction with the count of rows in it, so that [`Engine::loaded`] is
//!    exact after any end of a load.
//! 3. A statement's cost is counted while it runs, not by a second run (`counts`).
//! 4. Cold is: server stopped, everything synced, the cluster's files evicted and asked for by mincore(2), server started.

mod copy;
mod counts;
mod memory;
mod problem;
mod programs;
mod server;
mod session;
mod settings;
mod values;

use std::env;
use std::fmt;
use std::io::Write;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postgres::config::Host;
use postgres::{CancelToken, Client, NoTls};

use self::copy::Encoder;
use self::problem::{failed, problem, stream_failed};
use self::server::Server;
use self::session::{Session, SessionOptions};
use self::settings::{STATED, of_sessions, quoted};
use crate::cold;
use crate::engine::{Cold, Cost, Dialect, Engine, EngineFacts, Interrupter, SkyIndex, Statement};
use crate::error::DatabaseError;
use crate::ptf;
use crate::schema::{ColumnType, Index, IndexKey, Rows, Table, Value};

pub use self::programs::OLDEST_MAJOR;
pub use self::server::{Managed, is_there, remove};
pub use self::settings::{Setting, parse as parse_setting};

/// Bytes that are sent at once in a load.
const PIECE_BYTES: usize = 256 << 10;
/// How many rows of each table are loaded, by transactions.
const LOADED_TABLE: &str = "flashwright_loaded";
/// The schema of all tables.
pub const SCHEMA: &str = "flashwright";

/// A server that is the user's own.
#[derive(Debug, Clone, Default)]
pub struct Existing {
    /// A connection string: `host=… user=… dbname=…` or `postgresql://…`. Without a password, `PGPASSWORD` is taken.
    pub connection: String,
    /// Settings of each session.
    pub settings: Vec<Setting>,
}

/// How a user wants it.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// How cones are searched; None as the database is indexed, a new one by HEALPix.
    pub sky: Option<SkyIndex>,
    /// Settings of the server, or of each session on the user's own.
    pub settings: Vec<Setting>,
    /// Limit of memory for a server of our own and the pages that it reads.
    pub memory_bytes: Option<u64>,
    /// The directory of PostgreSQL's programs; None looks for them.
    pub programs: Option<PathBuf>,
}

/// A connection to a database.
pub struct Postgres {
    session: Option<Session>,
    /// Of the session that was opened last.
    token: Arc<Mutex<Option<CancelToken>>>,
    shared: Arc<Shared>,
    /// Settings of this connection's sessions beside those that all have.
    varied: Vec<Setting>,
    /// As the database is indexed, or will be.
    sky: SkyIndex,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// What the connections of one database have in common.
#[derive(Debug)]
struct Shared {
    options: SessionOptions,
    /// What the user has set.
    settings: Vec<Setting>,
    /// None for the user's own.
    server: Option<Mutex<Server>>,
    /// Starts of the server: a session of an earlier one is dead.
    generation: AtomicU64,
}

impl Shared {
    fn server(&self) -> Option<MutexGuard<'_, Server>> {
        self.server.as_ref().map(|server| server.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Postgres {
    /// Starts a server of our own, with the cluster of its directory or a new one.
    ///
    /// # Errors
    /// [`DatabaseError`]: no programs, another version, no room, no right to the directory, no Q3C, another index of the sky.
    /// Nothing runs then, and what was made is removed.
    pub fn managed(managed: &Managed, sky: impl Into<Option<SkyIndex>>) -> Result<Self, DatabaseError> {
        let is_new = !is_there(&managed.directory);
        let mut server = Server::new(managed)?;
        let options = SessionOptions {
            config: server.address(),
            at: managed.directory.display().to_string(),
            schema: SCHEMA.to_owned(),
            settings: of_sessions(&managed.settings),
            is_local: true,
        };
        let opened = server.start().and_then(|()| {
            let shared = Shared {
                options,
                settings: managed.settings.clone(),
                server: Some(Mutex::new(server)),
                generation: AtomicU64::new(0),
            };
            Self::over(shared, sky.into())
        });
        if opened.is_err() && is_new {
            // The failure is what is told.
            let _ = remove(&managed.directory);
        }
        opened
    }

    /// Connects to a server of the user's own.
    ///
    /// # Errors
    /// [`DatabaseError::Invalid`] for a connection string that cannot be read; [`DatabaseError::Engine`] if the server is not
    /// there, refuses, or has no Q3C.
    pub fn existing(existing: &Existing, sky: impl Into<Option<SkyIndex>>) -> Result<Self, DatabaseError> {
        let mut config: postgres::Config =
            existing.connection.parse().map_err(|error: postgres::Error| DatabaseError::Invalid {
                flag: "connect".to_owned(),
                problem: base::with_causes(&error),
                hint: "for instance \"host=/run/postgresql user=me dbname=survey\"".to_owned(),
            })?;
        if config.get_password().is_none()
            && let Some(password) = env::var_os("PGPASSWORD")
        {
            config.password(password.as_encoded_bytes());
        }
        let at = address_of(&config);
        let (schema, settings) = (SCHEMA.to_owned(), existing.settings.clone());
        let options = SessionOptions { config, at, schema, settings: settings.clone(), is_local: false };
        Self::over(Shared { options, settings, server: None, generation: AtomicU64::new(0) }, sky.into())
    }

    fn over(shared: Shared, asked: Option<SkyIndex>) -> Result<Self, DatabaseError> {
        let mut postgres = Self {
            session: None,
            token: Arc::default(),
            shared: Arc::new(shared),
            varied: Vec::new(),
            sky: SkyIndex::default(),
        };
        let at = postgres.shared.options.at.clone();
        let schema = &postgres.shared.options.schema;
        let setup = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
        let session = postgres.session()?;
        // A user without the right to make schemas may use one that is there.
        if !has(session, &at, "SELECT 1 FROM pg_namespace WHERE nspname = 'flashwright'")? {
            session.client.batch_execute(&setup).map_err(|error| failed(&at, "make a schema", error))?;
        }
        let stored = stored_sky(&mut session.client)
            .map_err(|error| failed(&at, "look for the index of the sky", error))?;
        let sky = chosen_sky(asked, stored, &at)?;
        if sky == SkyIndex::Q3c {
            make_q3c(session, &at)?;
        }
        postgres.sky = sky;
        Ok(postgres)
    }

    /// Has these settings beside those of the user, in the place of those from the last call: our own server is started anew with them, the
    /// user's own has them in this connection's sessions.
    ///
    /// # Errors
    /// What the server says of a setting that it refuses; then those from before hold.
    pub fn vary(&mut self, settings: &[Setting]) -> Result<(), DatabaseError> {
        self.session = None;
        let shared = Arc::clone(&self.shared);
        let of_sessions = if let Some(mut server) = shared.server() {
            server.stop()?;
            shared.generation.fetch_add(1, Ordering::SeqCst);
            let before = server.set([&shared.settings, settings].concat());
            server.start().or_else(|error| {
                server.set(before);
                server.start()?;
                Err(error)
            })?;
            of_sessions(settings)
        } else {
            settings.to_vec()
        };
        let before = mem::replace(&mut self.varied, of_sessions);
        if let Err(error) = self.session() {
            self.varied = before;
            return Err(error);
        }
        Ok(())
    }

    fn not_owned(&self) -> DatabaseError {
        DatabaseError::NotOwned { at: self.shared.options.at.clone() }
    }

    /// The session, opened again if the server was restarted meanwhile.
    fn session(&mut self) -> Result<&mut Session, DatabaseError> {
        let generation = self.shared.generation.load(Ordering::SeqCst);
        let is_usable = self
            .session
            .as_ref()
            .is_some_and(|open| open.generation == generation && !open.client.is_closed());
        let session = match self.session.take().filter(|_| is_usable) {
            Some(open) => open,
            None => {
                let opened = Session::open(&self.shared.options, &self.varied, generation);
                let session = opened.map_err(|error| self.explained(error))?;
                let token = session.client.cancel_token();
                *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
                session
            }
        };
        Ok(self.session.insert(session))
    }

    /// Runs requests of one operation.
    fn with<T>(
        &mut self,
        operation: &str,
        work: impl FnOnce(&mut Session) -> Result<T, postgres::Error>,
    ) -> Result<T, DatabaseError> {
        let at = self.shared.options.at.clone();
        let done = work(self.session()?).map_err(|error| failed(&at, operation, error));
        done.map_err(|error| self.explained(error))
    }

    /// Gives up the session after a failure, because a connection that was cut looks open until it is used. Where it broke because our
    /// own server ended, the server's last words are the reason.
    fn explained(&mut self, error: DatabaseError) -> DatabaseError {
        self.session = None;
        let Some(server) = self.shared.server() else { return error };
        match (error, server.last_words()) {
            (DatabaseError::Engine { at, operation, .. }, Some(said)) => {
                let full = said.contains("No space left").then_some(
                    "the tier is full: what is committed stays, and the same load goes on from there once there is room",
                );
                problem(&at, &operation, format!("the server ended: {said}"))
                    .hinted(full.unwrap_or("server.log in its directory has all that it said"))
            }
            (error, _) => error,
        }
    }

    /// What `EXPLAIN` says of a statement.
    fn explained_by(&mut self, explain: &str, statement: &Statement) -> Result<String, DatabaseError> {
        let sql = format!("{explain} {}", statement.sql);
        let explained = Statement { sql, parameters: statement.parameters.clone() };
        let mut lines = Vec::new();
        self.run(&explained, &mut |row| {
            if let [Value::Text(line)] = row {
                lines.push(line.clone());
            }
            Ok(())
        })?;
        Ok(lines.join("\n"))
    }

    /// One number.
    fn number(&mut self, operation: &str, sql: &str) -> Result<u64, DatabaseError> {
        let found = self.with(operation, |session| session.client.query_opt(sql, &[]))?;
        Ok(found.and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(0).unsigned_abs())
    }
}

impl Engine for Postgres {
    fn facts(&mut self) -> Result<EngineFacts, DatabaseError> {
        let names: Vec<_> = STATED.iter().map(|name| quoted(name)).collect();
        let stated = format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ({}) \
             UNION ALL SELECT 'extension ' || extname, extversion FROM pg_extension WHERE extname <> 'plpgsql' ORDER BY 1",
            names.join(", ")
        );
        let (version, rows, sky) = self.with("ask for its settings", |session| {
            let version = session::text(&mut session.client, "SHOW server_version")?;
            let rows = session.client.query(&stated, &[])?;
            Ok((version, rows, stored_sky(&mut session.client)?))
        })?;
        let mut settings: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        settings.extend(sky.map(|sky| ("index of the sky".to_owned(), sky.word().to_owned())));
        if let Some(server) = self.shared.server() {
            settings
                .extend(server.memory_bytes().map(|bytes| ("memory limit".to_owned(), bytes.to_string())));
        }
        Ok(EngineFacts {
            version: format!("PostgreSQL {version}"),
            settings,
            is_owned: self.shared.server.is_some(),
        })
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn sky(&self) -> SkyIndex {
        self.sky
    }

    fn create(&mut self, tables: &[Table]) -> Result<(), DatabaseError> {
        let mut sql = format!(
            "CREATE TABLE IF NOT EXISTS {LOADED_TABLE} (name text PRIMARY KEY, rows bigint NOT NULL);"
        );
        for table in tables {
            let columns: Vec<_> = table
                .columns
                .iter()
                .map(|column| format!("{} {} NOT NULL", column.name, type_name(column.of)))
                .collect();
            sql += &format!("CREATE TABLE IF NOT EXISTS {} ({});", table.name, columns.join(", "));
        }
        self.with("make tables", |session| session.client.batch_execute(&sql))
    }

    fn loaded(&mut self, table: &Table) -> Result<u64, DatabaseError> {
        let sql = format!("SELECT rows FROM {LOADED_TABLE} WHERE name = {}", quoted(table.name));
        self.number("count rows", &sql)
    }

    fn load(&mut self, table: &Table, rows: &mut dyn Rows) -> Result<u64, DatabaseError> {
        let at = self.shared.options.at.clone();
        let loaded = load(self.session()?, &at, table, rows);
        loaded.map_err(|error| self.explained(error))
    }

    fn build_index(&mut self, table: &Table, index: &Index) -> Result<(), DatabaseError> {
        let key = match index.key {
            IndexKey::Columns(columns) => columns.to_owned(),
            IndexKey::Sky { ra, dec, cell } => match self.sky {
                SkyIndex::Healpix => cell.to_owned(),
                SkyIndex::Q3c => format!("q3c_ang2ipix({ra}, {dec})"),
            },
        };
        let sql = format!("CREATE INDEX IF NOT EXISTS {} ON {} ({key})", index.name, table.name);
        self.with(&format!("build index {}", index.name), |session| session.client.batch_execute(&sql))
    }

    fn finish_load(&mut self, tables: &[Table]) -> Result<(), DatabaseError> {
        for table in tables {
            let name = table.name;
            if let Some(primary) = table.primary {
                let sql =
                    format!("CREATE UNIQUE INDEX IF NOT EXISTS {name}_{primary}_key ON {name} ({primary})");
                self.with(&format!("build the key of {name}"), |session| session.client.batch_execute(&sql))?;
            }
            // Rows that are known to all need no look at transactions, and no write in a read.
            let sql = format!("VACUUM (FREEZE, ANALYZE) {name}");
            self.with(&format!("analyse {name}"), |session| session.client.batch_execute(&sql))?;
        }
        if self.shared.server.is_some() {
            self.with("write a checkpoint", |session| session.client.batch_execute("CHECKPOINT"))?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        statement: &Statement,
        sink: &mut dyn FnMut(&[Value]) -> Result<(), DatabaseError>,
    ) -> Result<Cost, DatabaseError> {
        let at = self.shared.options.at.clone();
        let cost = self.session()?.run(&at, statement, sink);
        cost.map_err(|error| self.explained(error))
    }

    /// Without estimates, so that equal plans on two servers are equal texts.
    fn plan(&mut self, statement: &Statement) -> Result<String, DatabaseError> {
        self.explained_by("EXPLAIN (COSTS OFF)", statement)
    }

    fn explain(&mut self, statement: &Statement) -> Result<String, DatabaseError> {
        self.explained_by("EXPLAIN (ANALYZE, BUFFERS, SETTINGS)", statement)
    }

    fn make_cold(&mut self) -> Result<Cold, DatabaseError> {
        let shared = Arc::clone(&self.shared);
        let mut server = shared.server().ok_or_else(|| self.not_owned())?;
        self.session = None;
        server.stop()?;
        shared.generation.fetch_add(1, Ordering::SeqCst);
        rustix::fs::sync();
        let evicted = evict(&server);
        // Whatever came of it, the server serves on.
        server.start()?;
        drop(server);
        self.session()?;
        Ok(Cold { is_restarted: true, ..evicted? })
    }

    fn files(&self) -> Vec<PathBuf> {
        self.shared.server().map(|server| server.files()).unwrap_or_default()
    }

    fn size_bytes(&mut self) -> Result<u64, DatabaseError> {
        let schema = quoted(&self.shared.options.schema);
        let sql = format!(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {schema} AND c.relkind = 'r'"
        );
        self.number("ask for its size", &sql)
    }

    fn remove(&mut self) -> Result<(), DatabaseError> {
        let shared = Arc::clone(&self.shared);
        if let Some(mut server) = shared.server() {
            self.session = None;
            return server.remove();
        }
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", shared.options.schema);
        self.with("remove the tables", |session| session.client.batch_execute(&sql))
    }

    fn connect(&self) -> Result<Box<dyn Engine>, DatabaseError> {
        let shared = Arc::clone(&self.shared);
        let varied = self.varied.clone();
        let mut other = Self { session: None, token: Arc::default(), shared, varied, sky: self.sky };
        other.session()?;
        Ok(Box::new(other))
    }

    fn interrupter(&self) -> Interrupter {
        let token = Arc::clone(&self.token);
        Arc::new(move || {
            let token = token.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(token) = token {
                // A server that has just ended has no statement to cancel.
                let _ = token.cancel_query(NoTls);
            }
        })
    }
}

fn load(session: &mut Session, at: &str, table: &Table, rows: &mut dyn Rows) -> Result<u64, DatabaseError> {
    let operation = format!("load {}", table.name);
    let broken = |error| failed(at, &operation, error);
    let mut transaction = session.client.transaction().map_err(broken)?;
    let mut writer = transaction.copy_in(&copy::statement(table)).map_err(broken)?;
    let mut encoder = Encoder::new(table, PIECE_BYTES * 2);
    let mut row = Vec::new();
    while rows.next(&mut row) {
        encoder.row(&row);
        if encoder.pending().len() >= PIECE_BYTES {
            writer.write_all(encoder.pending()).map_err(|error| stream_failed(at, &operation, error))?;
            encoder.taken();
        }
    }
    encoder.end();
    writer.write_all(encoder.pending()).map_err(|error| stream_failed(at, &operation, error))?;
    let count = writer.finish().map_err(broken)?;
    let note = format!(
        "INSERT INTO {LOADED_TABLE} AS known VALUES ({}, {count}) \
         ON CONFLICT (name) DO UPDATE SET rows = known.rows + excluded.rows",
        quoted(table.name)
    );
    transaction.batch_execute(&note).map_err(broken)?;
    transaction.commit().map_err(broken)?;
    Ok(count)
}

/// How the database there is indexed; None before it is.
fn stored_sky(client: &mut Client) -> Result<Option<SkyIndex>, postgres::Error> {
    let indexes = ptf::TABLES.iter().flat_map(|table| table.indexes);
    let names = indexes.filter(|index| matches!(index.key, IndexKey::Sky { .. }));
    let names: Vec<_> = names.map(|index| quoted(index.name)).collect();
    let sql = format!(
        "SELECT indexdef LIKE '%q3c_ang2ipix%' FROM pg_indexes WHERE schemaname = {} AND indexname IN ({}) \
         ORDER BY indexname LIMIT 1",
        quoted(SCHEMA),
        names.join(", ")
    );
    let found = client.query_opt(&sql, &[])?;
    Ok(found.map(|row| if row.get(0) { SkyIndex::Q3c } else { SkyIndex::Healpix }))
}

/// Cones that are searched by an index that is not there would be found by reading the whole table.
fn chosen_sky(
    asked: Option<SkyIndex>,
    stored: Option<SkyIndex>,
    at: &str,
) -> Result<SkyIndex, DatabaseError> {
    match (asked, stored) {
        (Some(asked), Some(stored)) if asked != stored => Err(DatabaseError::Invalid {
            flag: format!("sky={}", asked.word()),
            problem: format!("{at} is indexed by {}", stored.word()),
            hint: "leave --sky out, or load a database with it in another directory".to_owned(),
        }),
        (asked, stored) => Ok(stored.or(asked).unwrap_or_default()),
    }
}

fn make_q3c(session: &mut Session, at: &str) -> Result<(), DatabaseError> {
    if has(session, at, "SELECT 1 FROM pg_extension WHERE extname = 'q3c'")? {
        return Ok(());
    }
    if !has(session, at, "SELECT 1 FROM pg_available_extensions WHERE name = 'q3c'")? {
        let version = session::text(&mut session.client, "SHOW server_version").unwrap_or_default();
        let major = programs::parse_major(&version).map_or_else(String::new, |major| major.to_string());
        return Err(problem(at, "index the sky by Q3C", "the server does not have the extension q3c")
            .hinted(format!(
                "install it (Debian: postgresql-{major}-q3c), or index by HEALPix: --sky healpix"
            )));
    }
    session
        .client
        .batch_execute("CREATE EXTENSION q3c SCHEMA public")
        .map_err(|error| failed(at, "switch Q3C on", error))
}

/// Drops the pages of a stopped server's files, unless they are memory.
fn evict(server: &Server) -> Result<Cold, DatabaseError> {
    let files = server.files();
    if !server.is_in_memory()? {
        return cold::evict(&files);
    }
    let bytes = cold::residency(&files)?.resident_bytes();
    Ok(Cold { is_restarted: false, file_bytes: bytes, resident_bytes: bytes })
}

/// Whether there is a row.
fn has(session: &mut Session, at: &str, sql: &str) -> Result<bool, DatabaseError> {
    let found =
        session.client.query_opt(sql, &[]).map_err(|error| failed(at, "look into the catalogue", error))?;
    Ok(found.is_some())
}

fn type_name(of: ColumnType) -> &'static str {
    match of {
        ColumnType::BigInt => "bigint",
        ColumnType::Integer => "integer",
        ColumnType::Double => "double precision",
        ColumnType::Text => "text",
    }
}

/// Host and database of a connection string, without its password.
fn address_of(config: &postgres::Config) -> String {
    let host = config.get_hosts().first().map_or_else(
        || config.get_hostaddrs().first().map_or_else(|| "localhost".to_owned(), ToString::to_string),
        |host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        },
    );
    let port = config.get_ports().first().map_or_else(String::new, |port| format!(":{port}"));
    let name = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("postgresql {host}{port}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_never_has_the_password() {
        let config: postgres::Config = "postgresql://me:secret@db.example:5433/survey".parse().unwrap();
        assert_eq!(address_of(&config), "postgresql db.example:5433/survey");
        let config: postgres::Config = "host=/run/postgresql user=me".parse().unwrap();
        assert_eq!(address_of(&config), "postgresql /run/postgresql/me");
    }

    #[test]
    fn a_connection_string_that_cannot_be_read_names_its_flag() {
        let existing = Existing { connection: "hst=1".to_owned(), ..Existing::default() };
        let error = Postgres::existing(&existing, SkyIndex::Healpix).unwrap_err();
        assert!(error.to_string().starts_with("--connect:"), "{error}");
        assert_eq!(error.class(), base::ErrorClass::Invalid);
    }
}
