//! A connection with its settings, its prepared statements, and what the server sends beside answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement as Prepared};

use super::counts::{ProcessCounts, add_notice};
use super::problem::{failed, problem};
use super::programs::OLDEST_MAJOR;
use super::settings::{COUNTS, SESSION, Setting, quoted};
use super::values::{self, Parameter};
use crate::engine::{Cost, Statement};
use crate::error::DatabaseError;
use crate::schema::Value;

/// A server that does not answer at all. One that is slow is waited for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements that a session keeps: those of a stream are few.
const PREPARED_MAX: usize = 64;

/// Notices that have come since they were last taken.
type Notices = Arc<Mutex<Vec<String>>>;

/// A connection.
pub(super) struct Session {
    pub(super) client: Client,
    /// Of which start of the server it is.
    pub(super) generation: u64,
    prepared: HashMap<String, Prepared>,
    notices: Notices,
    /// The server's process for this session, where its counters may be read.
    process: Option<u32>,
    is_parallel: bool,
    block_bytes: u32,
}

/// What a session is opened with.
#[derive(Debug, Clone)]
pub(super) struct SessionOptions {
    pub(super) config: Config,
    /// Where it leads, for messages: without a password.
    pub(super) at: String,
    pub(super) schema: String,
    pub(super) settings: Vec<Setting>,
    /// The server's processes are on this machine and may be looked into.
    pub(super) is_local: bool,
}

impl Session {
    /// Connects, and sets what every session has, and more.
    pub(super) fn open(
        options: &SessionOptions,
        more: &[Setting],
        generation: u64,
    ) -> Result<Self, DatabaseError> {
        let at = &options.at;
        let notices = Notices::default();
        let sink = Arc::clone(&notices);
        let mut config = options.config.clone();
        config.application_name("flashwright").connect_timeout(CONNECT_TIMEOUT).notice_callback(
            move |notice| {
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(notice.message().to_owned());
            },
        );
        let mut client = config.connect(NoTls).map_err(|error| failed(at, "connect", error))?;
        check_version(&mut client, at)?;
        let is_superuser = text(&mut client, "SHOW is_superuser")
            .map_err(|error| failed(at, "ask for rights", error))?
            == "on";
        // Without auto_explain the session works as well; its statements are not counted then.
        let is_counted = is_superuser && client.batch_execute("LOAD 'auto_explain'").is_ok();
        let fixed = SESSION.iter().chain(if is_counted { COUNTS } else { &[] });
        let path = [("search_path".to_owned(), options.schema.clone())];
        let fixed = fixed.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        for (name, value) in fixed.chain(path).chain(options.settings.iter().chain(more).cloned()) {
            // A list of schemas is the only value of more than one word, and is one schema here.
            let value = if name == "search_path" { format!("{value}, public") } else { quoted(&value) };
            client
                .batch_execute(&format!("SET {name} = {value}"))
                .map_err(|error| failed(at, &format!("set {name}"), error))?;
        }
        let facts = client
            .query_one(
                "SELECT pg_backend_pid(), current_setting('block_size')::int, \
                 current_setting('max_parallel_workers_per_gather')::int > 0",
                &[],
            )
            .map_err(|error| failed(at, "ask for the session's process", error))?;
        let process = options.is_local.then(|| facts.get::<_, i32>(0).unsigned_abs());
        Ok(Self {
            client,
            generation,
            prepared: HashMap::new(),
            notices,
            process,
            is_parallel: facts.get(2),
            block_bytes: facts.get::<_, i32>(1).unsigned_abs(),
        })
    }

    /// Runs a statement; every row goes to `sink`.
    pub(super) fn run(
        &mut self,
        at: &str,
        statement: &Statement,
        sink: &mut dyn FnMut(&[Value]) -> Result<(), DatabaseError>,
    ) -> Result<Cost, DatabaseError> {
        let broken = |error| failed(at, "run a statement", error);
        self.take_notices();
        let counts = self.process.map(ProcessCounts::read);
        let begun = Instant::now();
        let prepared = self.prepare(&statement.sql).map_err(broken)?;
        let parameters: Vec<_> = statement.parameters.iter().map(Parameter).collect();
        let mut rows = self.client.query_raw(&prepared, &parameters).map_err(broken)?;
        let mut values = Vec::new();
        while let Some(row) = rows.next().map_err(broken)? {
            values::of_row(&row, &mut values)
                .map_err(|error| problem(at, "read a row", error.to_string()))?;
            sink(&values)?;
        }
        drop(rows);
        let elapsed_ns = begun.elapsed().as_nanos() as u64;
        let mut cost = Cost { elapsed_ns, block_bytes: self.block_bytes, ..Cost::default() };
        if let (Some(before), Some(process), false) = (counts, self.process, self.is_parallel) {
            ProcessCounts::read(process).add_since(before, &mut cost);
        }
        // Of the statements within one, the outermost ends last.
        if let Some(notice) = self.take_notices().iter().rfind(|notice| notice.starts_with("duration:")) {
            add_notice(notice, &mut cost);
        }
        Ok(cost)
    }

    fn prepare(&mut self, sql: &str) -> Result<Prepared, postgres::Error> {
        if self.prepared.len() >= PREPARED_MAX && !self.prepared.contains_key(sql) {
            self.prepared.clear();
        }
        match self.prepared.entry(sql.to_owned()) {
            Entry::Occupied(found) => Ok(found.get().clone()),
            Entry::Vacant(free) => Ok(free.insert(self.client.prepare(sql)?).clone()),
        }
    }

    fn take_notices(&self) -> Vec<String> {
        mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("process", &self.process).finish_non_exhaustive()
    }
}

/// Refuses a server that is older than those that are taken.
fn check_version(client: &mut Client, at: &str) -> Result<(), DatabaseError> {
    let answer = client.simple_query("SHOW server_version_num");
    let answer = answer.map_err(|error| failed(at, "ask for its version", error))?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let number: Option<u32> = row.and_then(|text| text.parse().ok());
    match number.map(|number| number / 10_000) {
        Some(major) if major >= OLDEST_MAJOR => Ok(()),
        major => {
            let found =
                major.map_or_else(|| "of no known version".to_owned(), |major| format!("version {major}"));
            let what = format!("is {found}, and {OLDEST_MAJOR} is the oldest that is taken");
            Err(problem(at, "use the server", what)
                .hinted("name another server, or leave --connect out: --dir starts one of its own"))
        }
    }
}

/// The one field of the one row of a statement.
pub(super) fn text(client: &mut Client, sql: &str) -> Result<String, postgres::Error> {
    client.query_one(sql, &[])?.try_get(0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use crate::postgres::{Existing, Postgres};

    /// A message of the server's: its letter, its length and its bytes.
    fn message(letter: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len() + 4).unwrap().to_be_bytes();
        [&[letter][..], &length, bytes].concat()
    }

    /// Takes a client in, and answers its first question with one text.
    fn answer_once(mut client: &TcpStream, text: &str) {
        let mut length = [0; 4];
        client.read_exact(&mut length).unwrap();
        let mut start = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut start).unwrap();
        let ready = message(b'Z', b"I");
        client.write_all(&[message(b'R', &[0; 4]), ready.clone()].concat()).unwrap();
        let mut head = [0; 5];
        client.read_exact(&mut head).unwrap();
        assert_eq!(head[0], b'Q', "a question in one message");
        let mut question = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        client.read_exact(&mut question).unwrap();
        assert_eq!(question, b"SHOW server_version_num\0");
        // One column of text (its type is 25, of any length), one row.
        let column =
            [b"server_version_num\0".as_slice(), &[0; 6], &[0, 0, 0, 25], &[255; 6], &[0; 2]].concat();
        let columns = message(b'T', &[&[0, 1][..], &column].concat());
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        let row = message(b'D', &[&[0, 1][..], &length, text.as_bytes()].concat());
        client.write_all(&[columns, row, message(b'C', b"SHOW\0"), ready].concat()).unwrap();
    }

    #[test]
    fn a_server_that_is_too_old_is_named_and_asked_for_nothing_more() {
        for (number, words) in
            [("120007", "is version 12, and 13 is the oldest"), ("unknown", "of no known version")]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                let (client, _) = listener.accept().unwrap();
                answer_once(&client, number);
                let mut rest = Vec::new();
                (&client).read_to_end(&mut rest).unwrap();
                rest
            });
            let connection = format!("host=127.0.0.1 port={port} user=me dbname=survey");
            let existing = Existing { connection, ..Existing::default() };
            let error = Postgres::existing(&existing, None).unwrap_err();
            let said = base::with_causes(&error);
            assert!(said.contains("cannot use the server") && said.contains(words), "{said}");
            assert!(error.hint().unwrap().contains("--connect"), "{error:?}");
            // The end of a session, X, is the only other message.
            assert_eq!(server.join().unwrap(), [b'X', 0, 0, 0, 4]);
        }
    }
}
