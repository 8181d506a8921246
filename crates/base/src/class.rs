//! Classes of errors, which become exit codes.

/// What kind of failure an error is. The program turns it into the exit code, Python into an exception, C into a code.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// The request was wrong: exit 2.
    Invalid,
    /// Refused, because data might be lost, the figure would lie, or the caller has no right to it: exit 3.
    Refused,
    /// The request was sound, and the work failed: exit 1.
    Failed,
    /// Interrupted, with what was done so far kept: exit 130.
    Interrupted,
}

impl ErrorClass {
    /// The exit code of a process that ends with an error of this class.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Invalid => 2,
            Self::Refused => 3,
            Self::Interrupted => 130,
        }
    }
}
