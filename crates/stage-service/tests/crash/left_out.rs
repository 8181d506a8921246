//! Each sync and each check of identity earns its place: left out alone, something is lost.
//!
//! A case is carried out with nothing left out, which must be right, and with its sync or check left out, which must
//! come to it and lose what the case names. A sync is left out on the strictest file system that POSIX allows
//! ([`strict`]), and then made there *late*, after the step that rests on it: either must be found. What a power cut
//! takes without it shows on drives that keep only what was flushed ([`power_cuts`]), for those syncs whose absence a
//! journalled file system does not make good by itself.
//!
//! `make left-out` carries all cases out and prints the table that docs/faults.md holds.

mod checks;
mod power_cuts;
mod sources;
mod strict;

use std::path::{Path, PathBuf};

use stage::Verb;
use stage::fault::{Barrier, Call, Check};

use self::checks::*;
use crate::child::Order;
use crate::device::lacking;
use crate::identity::evicted_through_overlay;
use crate::world::{Scenario, World};

/// What is left out of a mover, if anything is.
#[derive(Debug)]
pub struct Mutant {
    word: Option<&'static str>,
    late: bool,
    /// A byte for each time that it was left out.
    mark: PathBuf,
}

impl Mutant {
    /// Nothing is left out.
    pub fn none() -> Self {
        Self { word: None, late: false, mark: PathBuf::new() }
    }

    /// Has an order leave it out.
    pub fn apply(&self, mut order: Order) -> Order {
        if let Some(word) = self.word {
            order.left_out = Some(word.to_owned());
            order.late = self.late;
            order.mark = Some(self.mark.clone());
        }
        order
    }
}

/// What does not hold with something left out, a line each.
type Carry = dyn Fn(&Mutant) -> Vec<String> + std::panic::RefUnwindSafe;

/// The case in words, the case, what a line says is lost.
type Case = (&'static str, fn(&Mutant) -> Vec<String>, &'static str);

/// What power cuts show of a barrier.
fn cut_of(barrier: Barrier) -> Option<Case> {
    use power_cuts::*;
    Some(match barrier {
        Barrier::JournalCommit => ("a job is accepted", accepted, "is forgotten"),
        Barrier::SourceFileSystem => {
            ("a source is local and the mover dies", |left| local(left, false), "source: ")
        }
        Barrier::SourceFile => {
            ("a source file is local and the mover dies", |left| local(left, true), "source")
        }
        Barrier::ExistingFileSystem => {
            ("an equal destination is adopted", |left| adopted(left, false), "is gone and")
        }
        Barrier::ExistingFile => {
            ("an equal destination is adopted, file by file", |left| adopted(left, true), "is gone and")
        }
        Barrier::SmallGroup => ("a checkpoint goes on after the mover died", small_group, "not whole"),
        Barrier::ChunkGroup => ("a large file goes on after the mover died", chunk_group, "not whole"),
        Barrier::SharedBlocks => {
            ("a large file that shares blocks goes on after the mover died", shared_blocks, "not whole")
        }
        Barrier::Name => ("a small file moves", moved, "is gone and"),
        Barrier::FetchedChunks => ("a fetch goes on after the mover died", fetched_chunks, "attempts"),
        _ => return None,
    })
}

fn of_check(check: Check) -> Case {
    match check {
        Check::SourceIsNotDestination => {
            ("a move to the source, by a symbolic link", onto_itself, "its own copy")
        }
        Check::InnerMounts => {
            ("something is mounted in a source that moves", mounted_in_source, "what was mounted is empty")
        }
        Check::DestinationOutsideSource => ("a copy into its own source", into_itself, "without an end"),
        Check::InMemory => ("a move from a disk into memory", into_memory, "not refused: Done"),
        Check::Distinct => {
            ("a move to its own source, mounted as an overlay", through_overlay, "source and copy are gone")
        }
        Check::AdoptedNames => {
            ("a destination with one name more", |left| taken(left, true), "not refused: Done")
        }
        Check::AdoptedBytes => {
            ("a destination with other bytes", |left| taken(left, false), "not refused: Done")
        }
        Check::AdoptedLater => (
            "a destination is written to after it was compared",
            written_later,
            "its copy was written to after it was read",
        ),
        Check::Mount => {
            ("the slow tier is not mounted when the mover goes on", unmounted, "under the mount point")
        }
        Check::PartOnResume => {
            ("another directory has the part's name", part_replaced, "what another program made was emptied")
        }
        Check::DiscardedPart => (
            "another directory has the name of a part that is given up",
            part_replaced_and_cancelled,
            "a directory of another program was removed",
        ),
        Check::PartBeforeRename => (
            "another directory has the part's name before the rename",
            part_replaced_at_rename,
            "visible and not whole",
        ),
        Check::PartAfterRename => (
            "another directory has the destination's name after the rename",
            replaced_after_rename,
            "done, and another directory",
        ),
        Check::Claim => (
            "another program makes an empty directory before the rename",
            unclaimed,
            "a directory of another program was replaced",
        ),
        Check::NameAfterError => (
            "another program makes a file before the link, where there is no RENAME_NOREPLACE",
            name_taken,
            "the copy was removed",
        ),
        Check::RenamedPartBytes => {
            ("a bit changes between the rename and COMMITTED", renamed_rotten, "not refused: Done")
        }
        Check::SourceOnResume => (
            "a small file changes before the mover goes on",
            |left| changed_before_resume(left, false),
            "the destination is not there at the end",
        ),
        Check::ChunksOnResume => (
            "a large file changes before the mover goes on",
            |left| changed_before_resume(left, true),
            "visible and not whole",
        ),
        Check::SourceAfterRead => {
            ("a file changes after it was copied", changed_after_copy, "visible and not whole")
        }
        Check::SmallReadBack => (
            "a bit of a small copy changes",
            |left| rotten(left, Scenario::Checkpoint, "rank-1", Call::Syncfs, 0),
            "visible and not whole",
        ),
        Check::ChunkReadBack => (
            "a bit of a chunk changes",
            |left| rotten(left, Scenario::Chunked, "", Call::Fdatasync, 0),
            "visible and not whole",
        ),
        Check::LinkReadBack => (
            "a copied link leads elsewhere",
            |left| rotten(left, Scenario::Tree, "to a", Call::Syncfs, 0),
            "visible and not whole",
        ),
        Check::ManifestReadBack => (
            "a bit of the manifest changes",
            |left| rotten(left, Scenario::Checkpoint, crate::world::MANIFEST, Call::Syncfs, 1),
            "visible and not whole",
        ),
        Check::SourceManifest => ("a set that has rotted moves", rotten_source, "not refused: Done"),
        Check::CommittedDestination => {
            ("the copy goes before the source", copy_gone, "removed without its copy")
        }
        Check::CommittedBytes => (
            "a bit of the copy changes before the mover goes on to remove the source",
            copy_rotten,
            "removed without its copy",
        ),
        Check::SourceBeforeRemoval => (
            "a file changes after it was published",
            changed_after_rename,
            "what was written to the source is lost",
        ),
        Check::SourceBytesInMemory => (
            "a program stores to a source in memory after it was copied",
            |left| stored_through_a_mapping(left, Verb::Move),
            "what was stored is lost",
        ),
        Check::SemaphoreBeforeRemoval => (
            "a semaphore is replaced while its job is at work",
            semaphore_replaced,
            "another semaphore than the one that was read is gone",
        ),
        Check::EvictedItself => (
            "a fast copy is evicted for itself, mounted as an overlay",
            |left| {
                evicted_through_overlay(|order| left.apply(order), true).expect("root may mount an overlay")
            },
            "the only copy was evicted",
        ),
        Check::EvictedNames => {
            ("a fast copy changes right before it loses its name", evicted_changed, "a new file was evicted")
        }
        Check::EvictedBytesInMemory => (
            "a program stores to a fast copy in memory after it was copied",
            |left| stored_through_a_mapping(left, Verb::Copy),
            "what was stored is lost",
        ),
        Check::TakenAside => (
            "another directory has the name of a set that was taken aside",
            aside_replaced,
            "another directory has the set's name",
        ),
        Check::PartRecord => (
            "a part of another run is in a set",
            part_of_another_run,
            "a set with a part of another run is complete",
        ),
        Check::FetchedOnResume => {
            ("a fetched file is replaced before the mover goes on", fetched_replaced, "has other bytes")
        }
        Check::FetchedReadBack => {
            ("a bit of a fetched file changes", fetched_rotten, "other bytes were published")
        }
    }
}

/// Does the case of this check mount something?
fn mounts(check: Check) -> bool {
    matches!(check, Check::InnerMounts | Check::Distinct | Check::Mount | Check::EvictedItself)
}

fn order(world: &World, left: &Mutant) -> Order {
    left.apply(Order::to(&world.state, &world.spec))
}

fn table() -> String {
    let mut table = String::from(
        "| | which call | it must come before | without it | shown by |\n|---|---|---|---|---|\n",
    );
    for barrier in Barrier::ALL {
        let strict = strict::world_of(*barrier).map(|(name, ..)| format!("strict, and late: {name}"));
        let cut = cut_of(*barrier).map(|(name, ..)| format!("power: {name}"));
        let shown: Vec<String> = strict.into_iter().chain(cut).collect();
        let (word, place, before) = (barrier.word(), barrier.place(), barrier.before().word());
        table += &format!("| `{word}` | {place} | {before} | {} | {} |\n", barrier.loss(), shown.join("; "));
    }
    table += "\n| | which comparison | without it | shown by |\n|---|---|---|---|\n";
    for check in Check::ALL {
        let (name, ..) = of_check(*check);
        table += &format!("| `{}` | {} | {} | {name} |\n", check.word(), check.place(), check.loss());
    }
    table
}

/// Values of FLASHWRIGHT_LEFT_OUT that have every case carried out.
const EVERY: [&str; 3] = ["", "1", "write"];

/// Words of FLASHWRIGHT_LEFT_OUT that name nothing, so that nothing would be carried out for them.
fn unknown(only: &str) -> Vec<&str> {
    let is_known = |word: &&str| {
        Barrier::ALL.iter().any(|barrier| barrier.word() == *word)
            || Check::ALL.iter().any(|check| check.word() == *word)
    };
    let words = only.split(',').filter(|_| !EVERY.contains(&only));
    words.filter(|word| !is_known(word)).collect()
}

#[test]
fn a_word_that_names_no_sync_and_no_check_is_told() {
    assert_eq!(unknown("name,claim,nmae"), ["nmae"]);
    assert!(EVERY.iter().all(|all| unknown(all).is_empty()));
}

/// The findings of a test of many cases.
struct Findings {
    only: String,
    marks: tempfile::TempDir,
    done: u32,
    wrong: Vec<String>,
}

impl Findings {
    /// Of every case; FLASHWRIGHT_LEFT_OUT has those of some words alone.
    fn new() -> Self {
        let only = std::env::var("FLASHWRIGHT_LEFT_OUT").unwrap_or_default();
        let unknown = unknown(&only);
        assert!(unknown.is_empty(), "FLASHWRIGHT_LEFT_OUT: no sync and no check is called {unknown:?}");
        Self { only, marks: tempfile::tempdir().unwrap(), done: 0, wrong: Vec::new() }
    }

    fn is_wanted(&self, word: &str) -> bool {
        EVERY.contains(&&*self.only) || self.only.split(',').any(|one| one == word)
    }

    /// With nothing left out nothing may be lost.
    fn right(&mut self, name: &str, case: &Carry) {
        match caught(case, &Mutant::none()) {
            Ok(lines) if lines.is_empty() => {}
            other => self.wrong.push(format!("{name}: wrong with nothing left out: {other:?}")),
        }
    }

    /// With it left out, or late, a line must have what is lost, after it was come to.
    fn lost(&mut self, word: &'static str, late: bool, name: &str, case: &Carry, lost: &str) {
        self.done += 1;
        let mark = self.marks.path().join(self.done.to_string());
        let mutant = Mutant { word: Some(word), late, mark };
        let how = if late { "late" } else { "left out" };
        let found = caught(case, &mutant);
        let reached = std::fs::metadata(&mutant.mark).is_ok_and(|mark| mark.len() > 0);
        let wrong = match &found {
            _ if !reached => "was not reached".to_owned(),
            Ok(lines) => match lines.iter().find(|line| format!("{line} ").contains(lost)) {
                Some(line) => return println!("{word}, {how}: {name}: {line}"),
                None => format!("is not missed; expected: {lost:?}; found: {lines:?}"),
            },
            // A case that breaks down shows nothing.
            Err(panic) => format!("breaks down: {panic}"),
        };
        self.wrong.push(format!("{word}, {how}: {name}: {wrong}"));
    }

    fn end(self) {
        assert!(self.done > 0 || !self.only.is_empty(), "no case was carried out");
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

fn caught(case: &Carry, left: &Mutant) -> Result<Vec<String>, String> {
    let left = std::panic::AssertUnwindSafe(left);
    std::panic::catch_unwind(|| case(&left))
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned()))
}

#[test]
fn each_sync_that_is_left_out_alone_or_comes_late_is_missed_on_the_strictest_file_system() {
    let mut findings = Findings::new();
    let mut right = Vec::new();
    for barrier in Barrier::ALL {
        let Some((name, make, path)) = strict::world_of(*barrier) else { continue };
        if !findings.is_wanted(barrier.word()) {
            continue;
        }
        if *barrier == Barrier::SharedBlocks
            && let Some(why) = lacking()
        {
            println!("SKIP {}: {why}", barrier.word());
            continue;
        }
        let case = move |left: &Mutant| make().carried_out(left);
        if !right.contains(&name) {
            findings.right(name, &case);
            right.push(name);
        }
        let lost = format!("before {}: {path} ", barrier.before().word());
        findings.lost(barrier.word(), false, name, &case, &lost);
        findings.lost(barrier.word(), true, name, &case, &lost);
    }
    findings.end();
}

#[test]
fn the_name_of_a_set_that_another_rank_has_made_is_durable_before_a_part_of_it_is() {
    let mut findings = Findings::new();
    let word = Barrier::NewParent.word();
    if findings.is_wanted(word) {
        let name = "a part goes to a set that another rank has made";
        let case = |left: &Mutant| strict::Ready::part_of_a_new_set().carried_out(left);
        findings.right(name, &case);
        for late in [false, true] {
            findings.lost(word, late, name, &case, "before COMMITTED: slow was not synced");
        }
    }
    findings.end();
}

#[test]
fn each_sync_that_is_left_out_alone_costs_something_in_a_power_cut() {
    if let Some(why) = lacking() {
        println!("SKIP power cuts without a sync: {why}");
        return;
    }
    let mut findings = Findings::new();
    for barrier in
        Barrier::ALL.iter().filter(|barrier| findings.is_wanted(barrier.word())).copied().collect::<Vec<_>>()
    {
        if let Some((name, case, lost)) = cut_of(barrier) {
            findings.right(name, &case);
            findings.lost(barrier.word(), false, name, &case, lost);
        }
    }
    findings.end();
}

#[test]
fn each_check_that_is_left_out_alone_is_missed() {
    let mut findings = Findings::new();
    for check in Check::ALL {
        let (name, case, lost) = of_check(*check);
        if !findings.is_wanted(check.word()) {
            continue;
        }
        if mounts(*check) && !rustix::process::geteuid().is_root() {
            println!("SKIP {}: it takes root to mount", check.word());
            continue;
        }
        findings.right(name, &case);
        findings.lost(check.word(), false, name, &case, lost);
    }
    findings.end();
}

#[test]
fn each_sync_is_shown_by_something() {
    let shown = |barrier: &Barrier| strict::world_of(*barrier).is_some() || cut_of(*barrier).is_some();
    let not_shown: Vec<_> = Barrier::ALL.iter().filter(|barrier| !shown(barrier)).collect();
    assert!(not_shown.is_empty(), "{not_shown:?}");
}

#[test]
fn the_table_of_syncs_and_checks_is_the_one_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- left out: begin -->\n", "<!-- left out: end -->");
    let (before, rest) = text.split_once(begin).expect("the table's beginning");
    let (found, after) = rest.split_once(end).expect("the table's end");
    if std::env::var("FLASHWRIGHT_LEFT_OUT").is_ok_and(|value| value == "write") {
        std::fs::write(&path, format!("{before}{begin}{}{end}{after}", table())).unwrap();
    } else {
        assert_eq!(found, table(), "make left-out prints it; FLASHWRIGHT_LEFT_OUT=write writes it");
    }
    println!("{}", table());
}
