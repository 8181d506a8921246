//! What goes wrong with graphs, in classes that become exit codes.

use std::io;
use std::path::{Path, PathBuf};

use base::ErrorClass;
use storage::device::{OpenError, SpecError};
use volume::VolumeError;

use crate::VertexId;
use crate::vertex::MOST_COUNT;

/// Why a graph could not be read, made or searched.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// A system call failed.
    #[error("{}: cannot {operation}{}", path.display(), at(.offset))]
    Io {
        /// What was tried: `read`, `write`, `fsync`.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Where in the file, bytes.
        offset: Option<u64>,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// What should name a graph or a device does not.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The graph's device could not be opened; the message names the member at fault.
    #[error(transparent)]
    Open(Box<VolumeError>),
    /// A graph was to be built in memory of this process.
    #[error("{device}: memory is gone when the command ends, and the graph with it")]
    InMemory {
        /// Spec of the device.
        device: String,
    },
    /// Something known lies on the device on which a graph was to be built.
    #[error("{device}: bears {signature}")]
    Signed {
        /// Spec of the device.
        device: String,
        /// What it bears.
        signature: String,
    },
    /// A device without room for the graph.
    #[error("{}: has {}; room is needed for {}", device.display(), units::bytes(*size), units::bytes(*needed))]
    SmallDevice {
        /// The device.
        device: PathBuf,
        /// Its size, bytes.
        size: u64,
        /// Bytes that the graph takes at least; at most, where an earlier one lies there.
        needed: u64,
    },
    /// The file is not of the kind that the caller asked for.
    #[error("{}: is not {expected}", path.display())]
    WrongFormat {
        /// The file.
        path: PathBuf,
        /// The kind: `an edge list (.el)`, `a graph (.fwg)`.
        expected: &'static str,
    },
    /// The file is not one of a search's results.
    #[error("{}: is not results of a search", path.display())]
    NotResults {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer program.
    #[error("{}: is version {found} of its format; this program reads up to {newest}", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that this program reads.
        newest: u32,
    },
    /// Bytes are not what was written: a checksum does not fit, or a value contradicts another.
    #[error("{}: {what} at offset {offset} is corrupt: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The part: `header`, `block 17`, `page 4711 of the tails`.
        what: String,
        /// Where the part begins, bytes.
        offset: u64,
        /// What does not fit.
        detail: String,
    },
    /// The file ends early.
    #[error("{}: is truncated: {what} ends at byte {needed}, the file at {found}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The part that is not there: `header`, `block 17`.
        what: String,
        /// Where that part should end, bytes.
        needed: u64,
        /// The file's length, bytes.
        found: u64,
    },
    /// A line of a text file, or a record of a binary one, is malformed.
    #[error("{}: {unit} {number}: {detail}", path.display())]
    BadInput {
        /// The file.
        path: PathBuf,
        /// `line`, `pair`, `row`.
        unit: &'static str,
        /// Its number, from 1.
        number: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// An edge names a vertex beyond the number of vertices that the list has, or beyond what its width holds.
    #[error("{}: vertex {vertex} is not below {limit}", path.display())]
    VertexTooLarge {
        /// The edge list.
        path: PathBuf,
        /// The vertex.
        vertex: VertexId,
        /// The number that vertices are below.
        limit: u64,
    },
    /// Parquet that cannot be read or written.
    #[error("{}: cannot be {operation} as Parquet", path.display())]
    Parquet {
        /// `read` or `written`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The library's error.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// Something else than what this would write lies in its place.
    #[error("{}: is there already, and is not {expected}", path.display())]
    WouldReplace {
        /// The place.
        path: PathBuf,
        /// What may be replaced: `a graph (.fwg) or an empty file`.
        expected: &'static str,
    },
    /// Another process works on the same file.
    #[error("{}: is being written by {by}", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// The process.
        by: String,
    },
    /// There is no vertex of this number.
    #[error("{}: has no vertex {vertex}: {}", path.display(), range_of(.vertices))]
    NoVertex {
        /// The graph.
        path: PathBuf,
        /// The number asked for.
        vertex: VertexId,
        /// Vertices in the graph.
        vertices: u64,
    },
    /// The budget of memory does not hold what the work needs at least.
    #[error("{purpose} needs at least {} of memory; the budget is {}", units::bytes(*needed), units::bytes(*budget))]
    Memory {
        /// What needs it.
        purpose: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// The request contradicts itself, or the graph.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
    },
    /// Temporary space failed, or what is on it.
    #[error(transparent)]
    External(#[from] external::ExternalError),
    /// The user asked to stop.
    #[error("interrupted while {during}")]
    Interrupted {
        /// What was being done.
        during: &'static str,
    },
}

impl GraphError {
    /// An operation of the system that failed on a file.
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), offset: None, source }
    }

    /// An operation of the system that failed at an offset of a file.
    pub fn io_at(operation: &'static str, path: &Path, offset: u64, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), offset: Some(offset), source }
    }

    /// What to do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { source, .. } if source.raw_os_error() == Some(28) => {
                Some("make room on that file system, and give the same command again".to_owned())
            }
            error if error.is_missing() => Some("name a file that is there".to_owned()),
            Self::Spec(source) => Some(source.hint()),
            Self::Open(source) => match &**source {
                VolumeError::Open(
                    OpenError::Missing { .. }
                    | OpenError::NoDirectory { .. }
                    | OpenError::NotATarget { .. }
                    | OpenError::TooSmall { .. },
                ) => Some("name a graph of bfs build, or the devices that one was built on".to_owned()),
                source => source.hint(),
            },
            Self::InMemory { .. } => Some("name files, block devices or exports of other hosts".to_owned()),
            Self::Signed { .. } => {
                Some("if the contents may be lost name each member with --destroy".to_owned())
            }
            Self::SmallDevice { .. } => {
                Some("name more or larger members; the sorted arcs are used again".to_owned())
            }
            Self::WrongFormat { .. } => {
                Some("bfs generate and bfs import make edge lists, bfs build makes graphs".to_owned())
            }
            Self::NotResults { .. } => Some("bfs run --output FILE.out writes them".to_owned()),
            Self::NewerVersion { .. } => Some("use the flashwright that wrote it, or a newer one".to_owned()),
            Self::Corrupt { .. } | Self::Truncated { .. } => Some("make the file again".to_owned()),
            Self::BadInput { .. } => Some("correct it, or choose another --format".to_owned()),
            Self::VertexTooLarge { limit, .. } if *limit >= MOST_COUNT => {
                Some("number the vertices anew, below 2^48".to_owned())
            }
            Self::VertexTooLarge { .. } => {
                Some("correct the input, or import it with more --vertices".to_owned())
            }
            Self::Memory { needed, .. } => {
                Some(format!("--memory {}", units::bytes_short(needed.next_multiple_of(1 << 20))))
            }
            Self::External(external::ExternalError::Grow { .. }) => {
                Some("make room there, or name another directory with --scratch".to_owned())
            }
            Self::WouldReplace { .. } => Some("name another file, or remove this one".to_owned()),
            _ => None,
        }
    }

    /// Whether a file that was named is not there.
    fn is_missing(&self) -> bool {
        let is = |source: &io::Error| source.kind() == io::ErrorKind::NotFound;
        matches!(self, Self::Io { operation: "open", source, .. } if is(source))
    }

    /// The class, which becomes an exit code.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            error if error.is_missing() => ErrorClass::Invalid,
            Self::Io { .. } | Self::Corrupt { .. } | Self::Truncated { .. } | Self::Parquet { .. } => {
                ErrorClass::Failed
            }
            Self::Spec(_)
            | Self::WrongFormat { .. }
            | Self::NotResults { .. }
            | Self::NewerVersion { .. }
            | Self::BadInput { .. }
            | Self::NoVertex { .. }
            | Self::VertexTooLarge { .. }
            | Self::InMemory { .. }
            | Self::SmallDevice { .. }
            | Self::Memory { .. }
            | Self::Invalid { .. } => ErrorClass::Invalid,
            Self::Busy { .. } | Self::WouldReplace { .. } | Self::Signed { .. } => ErrorClass::Refused,
            Self::Open(source) => source.class(),
            Self::External(error) => error.class(),
            Self::Interrupted { .. } => ErrorClass::Interrupted,
        }
    }
}

impl From<VolumeError> for GraphError {
    fn from(error: VolumeError) -> Self {
        Self::Open(Box::new(error))
    }
}

fn at(offset: &Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}

fn range_of(vertices: &u64) -> String {
    match vertices {
        0 => "the graph has no vertices".to_owned(),
        vertices => format!("vertices are 0 to {}", vertices - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_file_place_and_cause() {
        let io = GraphError::io_at("read", Path::new("g.fwg"), 4096, io::Error::from_raw_os_error(5));
        assert_eq!(
            base::with_causes(&io),
            "g.fwg: cannot read at offset 4096: Input/output error (os error 5)"
        );
        assert_eq!(io.class(), ErrorClass::Failed);
        let vertex = GraphError::NoVertex { path: "g.fwg".into(), vertex: 9, vertices: 9 };
        assert_eq!(vertex.to_string(), "g.fwg: has no vertex 9: vertices are 0 to 8");
        assert_eq!(vertex.class(), ErrorClass::Invalid);
        let none = GraphError::NoVertex { path: "g.fwg".into(), vertex: 9, vertices: 0 };
        assert_eq!(none.to_string(), "g.fwg: has no vertex 9: the graph has no vertices");
    }
}
