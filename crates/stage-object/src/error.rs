//! What an object store answers that is not what was asked for.

/// A request that failed for good, or an answer that does not fit; within a [`stage::StageError`] everywhere.
#[derive(Debug, thiserror::Error)]
#[error("{object}: {what}")]
pub struct StoreError {
    /// The object's URL, as a person reads it.
    pub object: String,
    /// What went wrong.
    pub what: String,
    /// What to do about it, where there is something.
    pub hint: Option<&'static str>,
}

impl stage::error::Foreign for StoreError {
    fn hint(&self) -> Option<String> {
        self.hint.map(str::to_owned)
    }
}
