//! Errors on their way to Python.
//!
//! One exception crosses the border, `NativeError`, with everything that an error carries; `python/flashwright` makes
//! the exception of its class of it, so that the classes stand in one readable place.

use graph::GraphError;
use pyo3::prelude::*;
use pyo3::{PyErr, create_exception};
use stage::{ErrorClass, StageError};
use stage_service::ServiceError;

create_exception!(
    flashwright._native,
    NativeError,
    pyo3::exceptions::PyException,
    "What went wrong: (kind, message, hint, errno)."
);

/// The word by which Python's half finds the class.
fn kind(error: &StageError) -> &'static str {
    match error {
        StageError::Corrupt { .. } | StageError::SourceCorrupt { .. } => "corrupt",
        StageError::SourceChanged { .. } => "source-changed",
        other if matches!(other.foreign(), Some(ServiceError::Job { .. })) => "drain-failed",
        other => word(other.class()),
    }
}

/// The exception for an error.
pub(crate) fn raise(_: Python<'_>, error: &StageError) -> PyErr {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        message.push_str(&format!(": {source}"));
        cause = source.source();
    }
    NativeError::new_err((kind(error), message, error.hint(), error.errno()))
}

/// The exception for an error of a graph.
pub(crate) fn raise_graph(error: &GraphError) -> PyErr {
    let kind = match error {
        GraphError::Corrupt { .. } | GraphError::Truncated { .. } => "corrupt",
        other => word(other.class()),
    };
    let errno = match error {
        GraphError::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    NativeError::new_err((kind, base::with_causes(error), error.hint(), errno))
}

fn word(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Invalid => "invalid",
        ErrorClass::Refused => "refused",
        ErrorClass::Failed => "failed",
        ErrorClass::Interrupted => "interrupted",
    }
}

/// The exception for an argument that makes no sense.
pub(crate) fn invalid(py: Python<'_>, what: String, hint: &str) -> PyErr {
    raise(py, &StageError::invalid(what, hint))
}
