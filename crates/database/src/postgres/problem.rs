//! What went wrong, in the words of [`DatabaseError`], and what to do about it.

use std::error::Error;
use std::io;

use postgres::error::SqlState;

use crate::error::DatabaseError;

/// A failure that no library reports: what was tried at a place, and what is wrong.
pub(super) fn problem(at: &str, operation: &str, what: impl Into<String>) -> DatabaseError {
    let source: Box<dyn Error + Send + Sync> = what.into().into();
    DatabaseError::Engine { at: at.to_owned(), operation: operation.to_owned(), source, hint: None }
}

impl DatabaseError {
    /// With what to do about it, where an engine failed.
    pub(super) fn hinted(mut self, words: impl Into<String>) -> Self {
        if let Self::Engine { hint, .. } = &mut self {
            *hint = Some(words.into());
        }
        self
    }
}

/// A failure of a request, with a hint where it is a known one.
pub(super) fn failed(at: &str, operation: &str, error: postgres::Error) -> DatabaseError {
    let hint = hint(&error);
    DatabaseError::Engine {
        at: at.to_owned(),
        operation: operation.to_owned(),
        source: Box::new(Plain(error)),
        hint,
    }
}

/// A failure of a stream of COPY, which hides the server's error in one of I/O.
pub(super) fn stream_failed(at: &str, operation: &str, error: io::Error) -> DatabaseError {
    match error.downcast::<postgres::Error>() {
        Ok(error) => failed(at, operation, error),
        Err(error) => DatabaseError::Engine {
            at: at.to_owned(),
            operation: operation.to_owned(),
            source: Box::new(error),
            hint: None,
        },
    }
}

fn hint(error: &postgres::Error) -> Option<String> {
    let words = match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => {
            "the tier is full: what is committed stays, and the same load goes on from there once there is room"
        }
        Some(code)
            if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) =>
        {
            "check user and password of the connection string (or PGPASSWORD), and the server's pg_hba.conf"
        }
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            "create it (createdb), or name another by dbname="
        }
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            "flashwright makes a schema of its own: GRANT CREATE ON DATABASE … TO the user"
        }
        Some(code) if [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN].contains(code) => {
            "the server was stopped from elsewhere, or crashed; its log says why"
        }
        Some(_) => return None,
        None if error.is_closed() => "the connection was cut: the server's log says why",
        None if error.to_string().contains("TLS") => {
            "connections are not encrypted here: sslmode=disable, over a socket or a tunnel"
        }
        None if is_unreachable(error) => {
            "is the server running, and does it listen there? host= and port= name another"
        }
        None => return None,
    };
    Some(words.to_owned())
}

/// The server is not there, or is not there yet.
pub(super) fn is_unreachable(error: &postgres::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.downcast_ref::<io::Error>().is_some() {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// The server's own words without the library's ("db error"), which say nothing, and with its detail.
#[derive(Debug)]
struct Plain(postgres::Error);

impl std::fmt::Display for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(error) = self.0.as_db_error() else { return self.0.fmt(f) };
        write!(f, "{}", error.message())?;
        error.detail().map_or(Ok(()), |detail| write!(f, " ({detail})"))
    }
}

impl Error for Plain {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // A server's error is its own cause: it is printed already.
        self.0.as_db_error().map_or_else(|| self.0.source(), |_| None)
    }
}
