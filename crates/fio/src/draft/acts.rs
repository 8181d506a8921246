//! Options of engines that move no data.

use std::time::Duration;

use super::Draft;
use crate::error::Problem;
use crate::values;
use bench::run::burn::Work;

/// What a section says of such an engine; None where it says nothing.
#[derive(Debug, Clone, Default)]
pub struct ActsDraft {
    pub load: Option<u8>,
    pub chunk: Option<Duration>,
    pub work: Option<Work>,
    /// Whether links are followed where names are looked up.
    pub follows: Option<bool>,
}

pub fn cpumode(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.acts.work = Some(match values::required(value)? {
        "noop" => Work::Spin,
        "qsort" => Work::Sort,
        _ => return Err(Problem::new("it is nothing that is computed here", "write noop or qsort")),
    });
    Ok(())
}

pub fn stat_type(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.acts.follows = Some(match values::required(value)? {
        "stat" | "statx" => true,
        "lstat" => false,
        _ => return Err(Problem::new("it is no way to look a file up", "write stat, lstat or statx")),
    });
    Ok(())
}
