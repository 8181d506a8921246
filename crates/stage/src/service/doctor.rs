//! What is stuck, and why: a pure function of what can be seen from beside.

use serde::{Deserialize, Serialize};

/// Something that keeps a job from its end, or might.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// A word that stays the same, for programs: `no-space`, `fsync-failed`.
    pub code: String,
    /// The job, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<crate::job::JobId>,
    /// Nothing gets on before it is put right.
    pub stuck: bool,
    /// What is the matter, one line.
    pub what: String,
    /// Why, as far as can be told from here.
    pub why: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub remedy: String,
}
