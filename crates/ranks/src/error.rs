//! What goes wrong among ranks.

use std::fmt::{self, Display, Formatter};
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// A rank without which the others cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Lost {
    /// Its number.
    pub rank: u32,
    /// The name of its node.
    pub node: String,
    /// What happened to it.
    pub why: Why,
}

/// What happened to a rank that is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its process ended, or its connection did. How, where it is known: "killed by signal 9".
    Ended(Option<String>),
    /// It reported an error of its own, such as a full disk.
    Failed(String),
    /// It did not take part within this time, milliseconds: it is stopped, or slow.
    Late(u64),
    /// It sent what does not belong to the collective of the others.
    OutOfStep(String),
}

impl Display for Lost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} on {} {}", self.rank, self.node, self.why)
    }
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(Some(how)) => write!(f, "ended: {how}"),
            Self::Ended(None) => write!(f, "ended before the others"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Late(ms) => write!(f, "did not answer within {:.1} s", *ms as f64 / 1e3),
            Self::OutOfStep(what) => write!(f, "is out of step: {what}"),
        }
    }
}

/// An error of a collective, or of the start.
#[derive(Debug, thiserror::Error)]
pub enum RanksError {
    /// A rank is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The ranks could not be started.
    #[error("cannot {what}")]
    Start {
        /// What could not be done.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// One contribution is larger than a frame may be.
    #[error("{bytes} bytes are too many for one message of at most {most} bytes")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The most bytes.
        most: usize,
    },
}

impl RanksError {
    /// What to do about it, where a limit of this host is in the way.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        let Self::Start { source, .. } = self else { return None };
        match Errno::from_io_error(source)? {
            Errno::MFILE | Errno::NFILE => {
                Some("start fewer tasks, or raise the limit of open files (ulimit -n)")
            }
            Errno::AGAIN => Some("start fewer tasks, or raise the limit of processes (ulimit -u)"),
            _ => None,
        }
    }
}
