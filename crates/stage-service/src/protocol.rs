//! `flashwright.stage/1`: what is said over the socket.
//!
//! One JSON document a line, UTF-8; a request has at most [`LINE_BYTES`] with its newline, an answer [`ANSWER_BYTES`]. A client sends a [`Request`], the server answers
//! with one [`Answer`], in the order of the requests; `follow` answers with a line again and again until the client
//! goes. A request that cannot be read is answered by an error and the connection goes on, unless the line was too
//! long to be read to its end. Whose requests they are, the kernel says (SO_PEERCRED); nothing in them does.
//!
//! Fields that a server does not know are an error and not skipped: an option that is passed over could cost data.
//! Answers may get more fields within a version, which clients skip.

use std::borrow::Cow;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::doctor::Finding;
use crate::pools::{PoolStatus, Reservation};
use stage::job::{JobId, JobStatus, Why};
use stage::names::PathText;
use stage::spec::{Expected, JobSpec, Level};

/// The protocol's name and version.
pub const PROTOCOL: &str = "flashwright.stage/1";

/// Bytes of a request's line at most: a job with three paths of the longest, or one of them escaped. All lines that a server's
/// clients may have begun come to 8 MiB.
pub const LINE_BYTES: usize = 64 << 10;

/// Bytes of `expect`'s files in memory, of all connections of a server together.
pub const EXPECTED_BYTES: usize = 32 << 20;

/// Bytes of a request's line at most, of the requests that have neither a list nor a job.
///
/// A path of PATH_MAX bytes takes two characters for each where it is not UTF-8.
const SHORT_LINE_BYTES: usize = 16 << 10;

/// Bytes of an answer's line at most.
pub const ANSWER_BYTES: usize = 64 << 20;

/// Jobs in one answer at most: all that are under way, and of those that have ended the newest.
pub const JOBS: usize = 10_000;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Who is there? Answered by [`Reply::Hello`], or refused where the version is another one.
    Hello {
        /// [`PROTOCOL`].
        version: String,
    },
    /// These files must be at the source of the next job that this connection submits, and no others; asked again, these
    /// as well. Answered by [`Reply::Expected`].
    Expect {
        /// Relative to the source.
        files: Vec<Expected>,
    },
    /// Move this. Answered by [`Reply::Submitted`] once it is in the journal, durably; asked again while it is under
    /// way, it is the same job.
    Submit {
        /// What, where, how.
        spec: Box<JobSpec>,
    },
    /// How are they? Answered by [`Reply::Jobs`], the newest last.
    Status {
        /// This one alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<JobId>,
    },
    /// How are they, and which has this semaphore asked for in any of its states? Answered as [`Request::Status`] of all; where
    /// they are more than an answer holds, others leave their places to its own.
    KnownTo {
        /// Where it lies.
        semaphore: PathText,
    },
    /// Answer by [`Reply::Job`] when the job has come this far, has ended, or the time is up.
    Wait {
        /// Which.
        id: JobId,
        /// How far.
        level: Level,
        /// How long, milliseconds; as long as it takes where nothing is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// [`Reply::Jobs`] again and again, until the client goes.
    Follow {
        /// How often, milliseconds; the server raises it to what it can bear.
        interval_ms: u64,
    },
    /// Give it up; what was copied goes, the source stays. Answered by [`Reply::Job`].
    Cancel {
        /// Which.
        id: JobId,
    },
    /// Begin a failed job again, with what it has copied. Answered by [`Reply::Job`].
    Retry {
        /// Which.
        id: JobId,
    },
    /// What is stuck, and why? Answered by [`Reply::Findings`].
    Doctor,
    /// Figures for Prometheus, of the caller's jobs alone. Answered by [`Reply::Metrics`].
    Metrics,
    /// Which pools are there, and what is in them? Answered by [`Reply::Pools`]; the names of other users' sets are
    /// told to root alone.
    Pools,
    /// Reserve room in a pool for a set of the caller's. Answered by [`Reply::Reserved`], or refused where there is no
    /// room. It lasts for a day, unless it is renewed.
    PoolReserve {
        /// Which pool.
        pool: String,
        /// The set's name, the last part of the directory that the answer names.
        name: String,
        /// Bytes that will be written.
        bytes: u64,
        /// How long to wait for room, milliseconds; not at all where nothing is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// Give a reservation of the caller's back; what was written stays. Answered by [`Reply::Released`].
    PoolRelease {
        /// Which.
        id: i64,
    },
    /// Have a reservation of the caller's last for a day from now on. Answered by [`Reply::Renewed`].
    PoolRenew {
        /// Which.
        id: i64,
    },
}

impl Request {
    /// What a line says.
    ///
    /// A document that its tag names is read whole, as values of any kind, before it is taken apart: tens of bytes for each byte of
    /// a line of nothing but `0,`. Requests that may be long are therefore read as what they are, to the first field that
    /// does not fit.
    ///
    /// # Errors
    /// It is no request, or too long for the request that it is.
    pub(crate) fn of_line(line: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Head<'a> {
            #[serde(borrow)]
            op: Cow<'a, str>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Expect {
            #[serde(rename = "op")]
            _op: IgnoredAny,
            files: Vec<Expected>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Submit {
            #[serde(rename = "op")]
            _op: IgnoredAny,
            spec: Box<JobSpec>,
        }
        match &*serde_json::from_slice::<Head<'_>>(line)?.op {
            "expect" => {
                let Expect { mut files, .. } = serde_json::from_slice(line)?;
                files.shrink_to_fit();
                Ok(Self::Expect { files })
            }
            "submit" => serde_json::from_slice(line).map(|Submit { spec, .. }| Self::Submit { spec }),
            _ if line.len() > SHORT_LINE_BYTES => {
                Err(serde_json::Error::custom(format!("it has more than {SHORT_LINE_BYTES} bytes")))
            }
            _ => serde_json::from_slice(line),
        }
    }
}

/// What the server says to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Ok(Reply),
    /// It could not be done.
    Error(Why),
}

impl Answer {
    /// An error as it is answered.
    pub(crate) fn refusal(error: &stage::StageError) -> Self {
        Self::Error(Why::of(error))
    }
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Who is there.
    Hello(ServerFacts),
    /// They are kept for the next job.
    Expected {
        /// All so far.
        files: usize,
    },
    /// It was accepted.
    Submitted {
        /// Under this number.
        id: JobId,
    },
    /// Jobs, the newest last.
    Jobs(Vec<JobStatus>),
    /// A job.
    Job(Box<JobStatus>),
    /// What is stuck, the worst first.
    Findings(Vec<Finding>),
    /// Text of Prometheus' exposition format 0.0.4.
    Metrics(String),
    /// Pools, by name.
    Pools(Vec<PoolStatus>),
    /// Room was reserved.
    Reserved(Reservation),
    /// It is not there any more.
    Released {
        /// Its number.
        id: i64,
    },
    /// It was renewed, if it was still there.
    Renewed {
        /// Its number.
        id: i64,
        /// Was it still there?
        there: bool,
    },
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ServerFacts {
    /// [`PROTOCOL`].
    pub protocol: String,
    /// Of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// With whose rights it works.
    pub uid: u32,
    /// The group of it.
    pub gid: u32,
    /// Where its journal is.
    pub state: PathText,
    /// It keeps pools.
    #[serde(default)]
    pub pools: bool,
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;

    fn says(request: &Request, text: &str) {
        assert_eq!(serde_json::to_string(request).unwrap(), text);
        assert_eq!(&Request::of_line(text.as_bytes()).unwrap(), request);
    }

    #[test]
    fn requests_read_as_they_are_documented() {
        says(
            &Request::Hello { version: PROTOCOL.into() },
            r#"{"op":"hello","version":"flashwright.stage/1"}"#,
        );
        says(&Request::Status { id: None }, r#"{"op":"status"}"#);
        says(&Request::Status { id: Some(7) }, r#"{"op":"status","id":7}"#);
        says(
            &Request::KnownTo { semaphore: Path::new("/fast/x.done").into() },
            r#"{"op":"known-to","semaphore":"/fast/x.done"}"#,
        );
        says(
            &Request::Wait { id: 7, level: Level::Durable, timeout_ms: Some(500) },
            r#"{"op":"wait","id":7,"level":"durable","timeout_ms":500}"#,
        );
        let file = Expected { path: std::path::Path::new("a/b").into(), size: Some(7), digest: None };
        says(&Request::Expect { files: vec![file] }, r#"{"op":"expect","files":[{"path":"a/b","size":7}]}"#);
        let file = Expected {
            path: Path::new(std::ffi::OsStr::from_bytes(b"\xff")).into(),
            size: None,
            digest: None,
        };
        says(&Request::Expect { files: vec![file] }, r#"{"op":"expect","files":[{"path":{"hex":"ff"}}]}"#);
        says(&Request::Doctor, r#"{"op":"doctor"}"#);
        says(&Request::Pools, r#"{"op":"pools"}"#);
        let (pool, name) = ("scratch".to_owned(), "ckpt-7".to_owned());
        says(
            &Request::PoolReserve { pool, name, bytes: 4096, wait_ms: Some(500) },
            r#"{"op":"pool-reserve","pool":"scratch","name":"ckpt-7","bytes":4096,"wait_ms":500}"#,
        );
        says(&Request::PoolRelease { id: 3 }, r#"{"op":"pool-release","id":3}"#);
        says(&Request::PoolRenew { id: 3 }, r#"{"op":"pool-renew","id":3}"#);
    }

    #[test]
    fn what_is_not_known_is_refused_and_not_skipped() {
        for text in [
            r#"{"op":"status","id":7,"force":true}"#,
            r#"{"op":"explode"}"#,
            r#"{"op":"cancel"}"#,
            r#"{"op":"cancel","id":"7"}"#,
            r#"{"op":"expect","files":[],"more":7}"#,
            r#"{"op":"expect","op":"expect","files":[]}"#,
            r#"{"op":"expect","files":[{"path":{"hex":"61","more":7}}]}"#,
            r#"{"op":"pool-release","id":3,"owner":0}"#,
            r#"{"op":"pool-reserve","pool":"a","name":"b","bytes":1,"uid":0}"#,
            r#"{"op":"pool-reserve","pool":"a","name":"b","bytes":-1}"#,
            r#"{"id":7}"#,
            r#"{"op":"submit","spec":{"verb":"move","source":{"path":"/a"},"destination":{"path":"/b"},"options":{"fsync":false}}}"#,
            "7",
            "",
        ] {
            assert!(Request::of_line(text.as_bytes()).is_err(), "{text}");
        }
        let long = format!(r#"{{"op":"hello","version":"{}"}}"#, "x".repeat(SHORT_LINE_BYTES));
        assert!(Request::of_line(long.as_bytes()).is_err());
    }

    #[test]
    fn answers_are_ok_or_error() {
        let ok = Answer::Ok(Reply::Submitted { id: 3 });
        assert_eq!(serde_json::to_string(&ok).unwrap(), r#"{"ok":{"submitted":{"id":3}}}"#);
        let error = Answer::Error(Why {
            message: "no".into(),
            hint: None,
            class: stage::ErrorClass::Refused,
            errno: None,
            cause: stage::error::Cause::Request,
        });
        assert_eq!(
            serde_json::to_string(&error).unwrap(),
            r#"{"error":{"message":"no","class":"refused","cause":"request"}}"#
        );
    }
}
