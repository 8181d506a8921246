//! Why a pool is full: who holds it, what could be evicted, and what keeps it from that.
//!
//! A pool says which sets are old, and jobs say where their slow copies are; `retention` says whether those suffice. All of
//! it is judged with the rights of the caller, and of the caller's own sets alone: those of others are theirs to evict.

use std::path::Path;

use crate::doctor::Finding;
use crate::pools::{Holder, PoolStatus};
use stage::error::{StageError, shown};
use stage::job::{JobStatus, State};
use stage::retention::{self, Witness};
use stage::spec::Place;
use stage::tier::directory::Directory;

/// Sets and users that are named.
const NAMED: usize = 5;
/// Sets that are judged; each takes a look at all its files.
const JUDGED: usize = 64;

/// What is to be said of pools that are above their high watermark, or that a request waits for.
#[must_use]
pub fn findings(pools: &[PoolStatus], jobs: &[JobStatus], user: u32) -> Vec<Finding> {
    pools.iter().filter(|pool| pool.over || pool.waiting > 0).map(|pool| finding(pool, jobs, user)).collect()
}

/// Pools are there, and nothing is known of them.
#[must_use]
pub fn unknown(error: &StageError) -> Finding {
    Finding {
        code: "pools-unknown".to_owned(),
        job: None,
        stuck: false,
        what: format!("the pools cannot be looked into: {error}"),
        why: "their ledger, their directories or the process that keeps them do not answer".to_owned(),
        remedy: error.hint().unwrap_or_else(|| "look into the service's log".to_owned()),
        path: None,
    }
}

fn finding(pool: &PoolStatus, jobs: &[JobStatus], user: u32) -> Finding {
    let held = pool.used.saturating_add(pool.reserved);
    let mut what = format!(
        "pool {}: {} used and {} reserved of {}",
        pool.name,
        units::bytes(pool.used),
        units::bytes(pool.reserved),
        units::bytes(pool.quota)
    );
    if pool.waiting > 0 {
        what += &format!(", and {} wait for {}", requests(pool.waiting), units::bytes(pool.waiting_bytes));
    }
    let mut own = pool.clone();
    own.sets.retain(|set| set.owner == user);
    let unjudged = own.sets.len().saturating_sub(JUDGED);
    own.sets.truncate(JUDGED);
    let wanted = held.saturating_sub(pool.low).max(pool.waiting_bytes).max(1);
    let eviction = own.eviction(wanted, &|set| Copies(jobs).why_not(set));
    let go = named(eviction.go.iter().map(|set| shown(&set.path.0)));
    let mut why = vec![held_by(pool)];
    if !eviction.go.is_empty() {
        why.push(format!("{} of yours could be evicted: {}", units::bytes(eviction.found), go.join(", ")));
    }
    why.extend(named(eviction.stay.iter().map(|(set, why)| format!("{} stays: {why}", shown(&set.path.0)))));
    if unjudged > 0 {
        why.push(format!("{unjudged} more of your sets were not looked into"));
    }
    let remedy = match eviction.go.first() {
        Some(first) => format!("flashwright stage evict {}, and so on", shown(&first.path.0)),
        None if eviction.stay.is_empty() => {
            "wait until those who hold it release or evict (stage pools), or have the quota raised".to_owned()
        }
        None => {
            "copy to the slow tier what stays for want of a copy (stage cp), then evict it (stage evict); \
                 release what is not needed (stage pools release)"
                .to_owned()
        }
    };
    Finding {
        code: "pool-full".to_owned(),
        job: None,
        stuck: pool.waiting > 0,
        what,
        why: why.join("; "),
        remedy,
        path: None,
    }
}

fn requests(count: u64) -> String {
    if count == 1 { "a request".to_owned() } else { format!("{count} requests") }
}

fn held_by(pool: &PoolStatus) -> String {
    let of = |holder: &Holder| {
        let (all, reserved) = (units::bytes(holder.used + holder.reserved), holder.reserved);
        let reserved = match reserved {
            0 => String::new(),
            bytes => format!(" ({} of it reserved and not written)", units::bytes(bytes)),
        };
        format!("uid {} holds {all}{reserved}", holder.owner)
    };
    match named(pool.holders.iter().map(of)) {
        holders if holders.is_empty() => "it is empty".to_owned(),
        holders => holders.join(", "),
    }
}

/// The first few of them, and how many more there are.
fn named(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all
}

/// Where the slow copies of sets are, as jobs have made or used them.
struct Copies<'a>(&'a [JobStatus]);

impl Copies<'_> {
    /// Why a set may not be evicted; none: it may.
    fn why_not(&self, set: &Path) -> Result<Option<String>, StageError> {
        let is_durable = |job: &&JobStatus| matches!(job.state, State::Done | State::Committed);
        let copy = self.0.iter().rev().filter(is_durable).find_map(|job| {
            let (source, destination) = (&job.spec.source, &job.spec.destination);
            // What was fetched has its slow copy where it came from.
            let fetched = || (destination.path() == Some(set)).then_some(source);
            if source.path() == Some(set) { Some(destination) } else { fetched() }
        });
        let Some(copy) = copy else {
            return Ok(Some("no job that is durable has copied it".to_owned()));
        };
        let Some(copy) = copy.path() else {
            // The caller is not made to wait for an object store.
            return Ok(Some(format!(
                "its copy is {}, which is not asked here; stage evict asks",
                copy.shown()
            )));
        };
        let (Some(fast), Some(slow), Some(name)) = (set.parent(), copy.parent(), set.file_name()) else {
            return Ok(Some("it has no name".to_owned()));
        };
        if copy.file_name() != Some(name) {
            return Ok(Some(format!("its copy has another name: {}", shown(copy))));
        }
        retention::evictable(fast, &Directory::open(slow)?, name, self)
    }
}

impl Witness for Copies<'_> {
    fn vouches(&self, fast: &Path, slow: &Place) -> Result<bool, StageError> {
        Ok(self.0.iter().any(|job| {
            job.level.is_committed() && job.spec.source.path() == Some(fast) && job.spec.destination == *slow
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::{Mover, MoverConfig};
    use crate::pools::SetStatus;
    use crate::testing::job;
    use stage::names::PathText;

    const ME: u32 = 1000;
    const OTHER: u32 = 1001;

    fn set(path: &Path, owner: u32, bytes: u64) -> SetStatus {
        SetStatus { path: PathText(path.to_owned()), owner, bytes, modified: 0 }
    }

    fn pool(sets: Vec<SetStatus>) -> PoolStatus {
        let holders = vec![
            Holder { owner: OTHER, used: 600 << 20, reserved: 100 << 20 },
            Holder { owner: ME, used: 200 << 20, reserved: 0 },
        ];
        PoolStatus { sets, holders, ..crate::testing::pool() }
    }

    #[test]
    fn a_pool_with_room_is_no_finding_and_one_that_is_waited_for_is_stuck() {
        let mut pool = pool(Vec::new());
        pool.over = false;
        assert_eq!(findings(&[pool.clone()], &[], ME), []);
        (pool.waiting, pool.waiting_bytes) = (2, 300 << 20);
        let found = &findings(&[pool], &[], ME)[0];
        assert!(found.stuck && found.code == "pool-full");
        assert_eq!(
            found.what,
            "pool scratch: 800 MiB used and 100 MiB reserved of 1000 MiB, and 2 requests wait for 300 MiB"
        );
        assert_eq!(
            found.why,
            "uid 1001 holds 700 MiB (100 MiB of it reserved and not written), uid 1000 holds 200 MiB"
        );
    }

    #[test]
    fn what_nobody_has_copied_stays_and_the_sets_of_others_are_not_judged() {
        let sets = vec![
            set(Path::new("/fast/1000/a"), ME, 100 << 20),
            set(Path::new("/fast/1001"), OTHER, 600 << 20),
            set(Path::new("/fast/1000/b"), ME, 100 << 20),
        ];
        // One that is under way is no copy.
        let mut running = job(1, State::Running);
        running.spec.source = Place::of_path(Path::new("/fast/1000/a")).unwrap();
        let found = &findings(&[pool(sets)], &[running], ME)[0];
        assert!(!found.stuck);
        assert!(
            found.why.contains("/fast/1000/a stays: no job that is durable has copied it"),
            "{}",
            found.why
        );
        assert!(found.why.contains("/fast/1000/b stays"), "{}", found.why);
        assert!(!found.why.contains("/fast/1001 stays"), "{}", found.why);
        assert!(found.remedy.contains("stage cp"), "{}", found.remedy);
    }

    #[test]
    fn a_set_that_a_job_has_copied_and_read_back_may_go() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["fast/1000/ckpt-1", "slow"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("fast/1000/ckpt-1/data"), [7; 5000]).unwrap();
        let mover = Mover::open(&MoverConfig::new(at("state"))).unwrap();
        let spec = stage::JobSpec {
            verb: stage::Verb::Copy,
            source: Place::of_path(&at("fast/1000/ckpt-1")).unwrap(),
            destination: Place::of_path(&at("slow/ckpt-1")).unwrap(),
            options: stage::Options::default(),
        };
        let id = mover.submit(spec).unwrap();
        mover.wait(id, stage::Level::Durable, None).unwrap();
        let jobs = mover.status(None).unwrap();
        let sets = || vec![set(&at("fast/1000/ckpt-1"), ME, 200 << 20)];
        let found = &findings(&[pool(sets())], &jobs, ME)[0];
        assert!(found.why.contains("200 MiB of yours could be evicted"), "{}", found.why);
        assert!(found.remedy.starts_with("flashwright stage evict "), "{}", found.remedy);
        // Written to since: it is not what was copied any more.
        std::fs::write(at("fast/1000/ckpt-1/more"), [7; 5000]).unwrap();
        let found = &findings(&[pool(sets())], &jobs, ME)[0];
        assert!(found.why.contains("ckpt-1 stays: "), "{}", found.why);
    }
}
