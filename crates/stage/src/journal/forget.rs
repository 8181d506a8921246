//! What a journal forgets.

use rusqlite::OptionalExtension;

use super::Journal;
use crate::error::StageError;
use crate::job::JobId;

/// Jobs that are remembered after they have ended, and as many of those whose semaphores stay.
const KEPT: i64 = 10_000;

impl Journal {
    /// Forgets what ended long ago, so that a journal does not grow with the years. What semaphores that stay have asked for is
    /// counted by itself: nothing else tells that a set, or a part of it, was moved, and a set may take longer than many other
    /// jobs.
    pub(super) fn prune(&self) -> Result<(), StageError> {
        const STAYS: &str = "coalesce(json_extract(spec, '$.options.semaphore.stays'), 0)";
        self.step("old jobs are forgotten", |step| {
            // A journal that has no more than so many has no more of a kind either.
            for (stays, counted) in [(false, "true"), (true, STAYS)] {
                let newest =
                    format!("SELECT id FROM jobs WHERE {counted} ORDER BY id DESC LIMIT 1 OFFSET ?1");
                let oldest: Option<JobId> = step.query_row(&newest, [KEPT], |row| row.get(0)).optional()?;
                let Some(oldest) = oldest else { return Ok(()) };
                let ended = format!(
                    "SELECT id FROM jobs WHERE id < ?1 AND state IN ('done', 'cancelled') AND {STAYS} = ?2"
                );
                for table in ["entries", "chunks", "begun", "notes"] {
                    step.execute(&format!("DELETE FROM {table} WHERE job IN ({ended})"), (oldest, stays))?;
                }
                step.execute(&format!("DELETE FROM jobs WHERE id IN ({ended})"), (oldest, stays))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::journal::Accepted;
    use crate::names::PathText;
    use crate::semaphore::{Identity, Semaphore};
    use crate::spec::{JobSpec, Options, Place, Verb};

    #[test]
    fn a_journal_keeps_the_newest_jobs_and_the_newest_of_those_whose_semaphores_stay() {
        let folder = TempDir::new().unwrap();
        let state = folder.path().join("state");
        for stays in [true, false] {
            let path = PathText("/fast/x.done".into());
            let semaphore = Semaphore { path, identity: Identity::default(), watched: None, stays };
            let options = Options { semaphore: Some(semaphore), ..Options::default() };
            let [source, destination] = ["/fast/a", "/slow/a"].map(|path| Place::of_name(path).unwrap());
            let spec = JobSpec { verb: Verb::Move, source, destination, options };
            let accepted = Journal::open(&state).unwrap().accept(&spec, 0, None);
            assert!(matches!(accepted, Ok(Accepted::New(_))));
        }
        let database = rusqlite::Connection::open(state.join("journal.db")).unwrap();
        database.execute("UPDATE jobs SET state = 'done'", []).unwrap();
        let as_many_more = |id: JobId| {
            let more = "WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < ?2)
                        INSERT INTO jobs (spec, state, level, created)
                        SELECT spec, state, level, 0 FROM jobs, more WHERE id = ?1";
            database.execute(more, (id, KEPT)).unwrap();
        };
        let kept = || {
            let jobs = Journal::open(&state).unwrap().jobs().unwrap();
            (
                jobs.len() as i64 - KEPT,
                jobs.iter().map(|row| row.id).filter(|id| *id <= 2).collect::<Vec<_>>(),
            )
        };
        as_many_more(2);
        // The first beyond those that are remembered is kept as well.
        assert_eq!(kept(), (2, vec![1, 2]));
        as_many_more(2);
        assert_eq!(kept(), (2, vec![1]));
        as_many_more(1);
        assert_eq!(kept(), (2, vec![1]));
        as_many_more(1);
        assert_eq!(kept(), (1, vec![]));
    }
}
