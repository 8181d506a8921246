//! Options of failures that a job lives with.

use super::Draft;
use crate::error::Problem;
use crate::values;
use bench::run::tolerance::Tolerance;

/// The kernel's names of errors from 1 on, as far as fio knows them.
const NAMES: [&str; 34] = [
    "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD", "EAGAIN",
    "ENOMEM", "EACCES", "EFAULT", "ENOTBLK", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR", "EISDIR",
    "EINVAL", "ENFILE", "EMFILE", "ENOTTY", "ETXTBSY", "EFBIG", "ENOSPC", "ESPIPE", "EROFS", "EMLINK",
    "EPIPE", "EDOM", "ERANGE",
];
/// A block that is not what was written (EILSEQ).
const WRONG_BLOCK: i32 = 84;
/// What fio goes on with where no error is named: EIO, and a block that is wrong.
const USUAL: [i32; 2] = [5, WRONG_BLOCK];

/// What a section says of failures: of reads, of writes, and of blocks that are wrong.
#[derive(Debug, Clone, Default)]
pub struct ToleranceDraft {
    goes_on: [bool; 3],
    ignored: [Option<Vec<i32>>; 3],
}

impl ToleranceDraft {
    /// What the job lives with; None where nothing.
    pub fn resolve(&self) -> Option<Tolerance> {
        let errors = |at: usize| match &self.ignored[at] {
            Some(errors) => errors.clone(),
            None if self.goes_on[at] => USUAL.to_vec(),
            None => Vec::new(),
        };
        let wrong_blocks = errors(2).contains(&WRONG_BLOCK);
        let tolerance = Tolerance { reads: errors(0), writes: errors(1), wrong_blocks };
        (tolerance != Tolerance::default()).then_some(tolerance)
    }
}

pub fn continue_on_error(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.tolerance.goes_on = match values::required(value)? {
        "none" | "0" => [false; 3],
        "read" => [true, false, false],
        "write" => [false, true, false],
        "io" => [true, true, false],
        "verify" => [false, false, true],
        "all" | "1" => [true; 3],
        _ => {
            let hint = "write none, read, write, io, verify or all";
            return Err(Problem::new("it is no kind of failure", hint));
        }
    };
    Ok(())
}

/// `EIO,ENOSPC:EDQUOT`: errors of reads, of writes, and of blocks that are checked.
pub fn ignore_error(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let lists: Vec<&str> = values::required(value)?.split(',').map(str::trim).collect();
    if lists.len() > 3 {
        let hint = "give at most one for reads, one for writes and one for blocks that are checked";
        return Err(Problem::new("more than three lists", hint));
    }
    draft.tolerance.ignored = [None, None, None];
    for (at, list) in lists.into_iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        let errors = list.split(':').map(|name| number(name.trim())).collect::<Result<Vec<_>, _>>()?;
        draft.tolerance.ignored[at] = Some(errors);
    }
    Ok(())
}

/// The number of an error that is named or numbered.
fn number(name: &str) -> Result<i32, Problem> {
    let known = NAMES.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, number)| number);
    let number = known.or_else(|| name.parse().ok().filter(|number| (1..4096).contains(number)));
    let number = number.or_else(|| (name == "EILSEQ").then_some(WRONG_BLOCK));
    number.ok_or_else(|| {
        Problem::new(
            format!("'{name}' is not an error"),
            "write a name such as EIO, or the number of errno(3)",
        )
    })
}
