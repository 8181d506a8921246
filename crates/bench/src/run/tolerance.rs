//! Failed requests that a job lives with: fio's `continue_on_error` and `ignore_error`.
//!
//! Such a request is in none of the counts and latencies. It is counted by itself, over the whole run, with the message of the
//! first of its kind: the record has the counts, and a warning tells them. A flush that fails always fails the run, because what
//! was written before it may be lost.

use measure::record::FailedRequests;
use storage::engine::{Op, RequestFailure};

use super::BenchError;
use crate::verify::VerifyFailure;

/// Which failures end no run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// Errors of reads, as the kernel numbers them.
    pub reads: Vec<i32>,
    /// Errors of writes and discards, likewise.
    pub writes: Vec<i32>,
    /// Blocks that do not hold what was written.
    pub wrong_blocks: bool,
}

/// The error that fio has for a block that is not what was written (EILSEQ).
const WRONG_BLOCK: i32 = 84;

/// What of a thread's requests has failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Failures {
    tolerance: Tolerance,
    pub seen: Vec<FailedRequests>,
}

impl Failures {
    pub fn new(tolerance: Option<&Tolerance>) -> Self {
        Self { tolerance: tolerance.cloned().unwrap_or_default(), seen: Vec::new() }
    }

    /// Counts a request that has failed.
    ///
    /// # Errors
    /// The failure, where the run is to end with it.
    pub fn request(&mut self, failure: RequestFailure) -> Result<(), BenchError> {
        let tolerated: &[i32] = match failure.op {
            Op::Read => &self.tolerance.reads,
            Op::Write | Op::Trim => &self.tolerance.writes,
            Op::SyncData | Op::Sync => &[],
        };
        match failure.cause.errno().filter(|number| tolerated.contains(number)) {
            Some(number) => {
                let first = format!("{failure}: {}", failure.cause);
                self.count(failure.op.word(), number, failure.cause.to_string(), first);
                Ok(())
            }
            None => Err(failure.into()),
        }
    }

    /// Counts a block that is wrong.
    ///
    /// # Errors
    /// The failure, where the run is to end with it.
    pub fn block(&mut self, failure: VerifyFailure) -> Result<(), VerifyFailure> {
        if !self.tolerance.wrong_blocks {
            return Err(failure);
        }
        self.count("verify", WRONG_BLOCK, "wrong contents".to_owned(), failure.to_string());
        Ok(())
    }

    fn count(&mut self, operation: &str, errno: i32, error: String, first: String) {
        let one = FailedRequests { operation: operation.to_owned(), errno, error, count: 1, first };
        add(&mut self.seen, one);
    }
}

/// Adds failures to others of their kind.
pub(super) fn add(seen: &mut Vec<FailedRequests>, more: FailedRequests) {
    let same = |one: &&mut FailedRequests| one.operation == more.operation && one.errno == more.errno;
    match seen.iter_mut().find(same) {
        Some(one) => one.count += more.count,
        None => seen.push(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use storage::engine::{IoFailure, RequestError};

    fn failure(op: Op, cause: RequestError) -> RequestFailure {
        RequestFailure { op, device: "d".to_owned(), offset: 4096, length: 512, member: None, cause }
    }

    fn os(number: i32) -> RequestError {
        RequestError::Os(io::Error::from_raw_os_error(number))
    }

    #[test]
    fn what_a_drive_answers_and_a_tag_that_is_wrong_are_errors_of_input_and_output() {
        use storage::engine::{Tag, TagMismatch};
        let tolerance = Tolerance { reads: vec![5], ..Tolerance::default() };
        let mut failures = Failures::new(Some(&tolerance));
        let answer = || io::Error::other(IoFailure("the drive answered: Unrecovered Read Error".to_owned()));
        let tag = TagMismatch { block: 9, offset: 4608, tag: Tag::Guard, expected: 1, found: 2 };
        let tag = io::Error::new(io::ErrorKind::InvalidData, tag);
        for error in [answer(), tag] {
            failures.request(failure(Op::Read, RequestError::Os(error))).expect("is tolerated");
        }
        assert!(failures.seen[0].count == 2 && failures.seen[0].first.ends_with("Unrecovered Read Error"));
        for (op, error) in [(Op::Write, answer()), (Op::Read, io::Error::other("something else"))] {
            failures.request(failure(op, RequestError::Os(error))).expect_err("is not tolerated");
        }
    }

    #[test]
    fn what_is_named_is_counted_and_all_else_ends_the_run() {
        let tolerance = Tolerance { reads: vec![5], writes: vec![5, 28], wrong_blocks: false };
        let mut failures = Failures::new(Some(&tolerance));
        for (op, number) in [(Op::Read, 5), (Op::Write, 28), (Op::Read, 5), (Op::Trim, 5)] {
            failures.request(failure(op, os(number))).expect("is tolerated");
        }
        for (op, cause) in [
            (Op::Read, os(28)),
            (Op::Write, os(6)),
            (Op::Sync, os(5)),
            (Op::SyncData, os(5)),
            (Op::Read, RequestError::Short { transferred: 3 }),
        ] {
            failures.request(failure(op, cause)).expect_err("is not tolerated");
        }
        let wrong = VerifyFailure::OffPattern { offset: 0, at: 0, expected: 1, found: 2 };
        failures.block(wrong.clone()).expect_err("is not tolerated");
        let seen: Vec<_> = failures.seen.iter().map(|s| (s.operation.as_str(), s.errno, s.count)).collect();
        assert_eq!(seen, [("read", 5, 2), ("write", 28, 1), ("trim", 5, 1)]);
        let first = "read of 512 bytes at offset 4096 of d: Input/output error (os error 5)";
        assert_eq!(failures.seen[0].first, first);
        assert!(Failures::new(None).request(failure(Op::Read, os(5))).is_err());
        let lenient = Tolerance { wrong_blocks: true, ..Tolerance::default() };
        let mut failures = Failures::new(Some(&lenient));
        failures.block(wrong).expect("is tolerated");
        assert_eq!((failures.seen[0].operation.as_str(), failures.seen[0].count), ("verify", 1));
    }
}
