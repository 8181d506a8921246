//! Each sync and each check of identity earns its place: left out alone, something is lost.
//!
//! A case is carried out twice, with nothing left out, which must be right, and with its barrier or check left out, which
//! must not. Barriers are shown in one of two ways. *Power cuts* are those of [`crate::power`], on drives that keep only
//! what was flushed. Journalled file systems make more durable than they were asked to; what they hide is shown on the
//! *strictest file system that POSIX allows*: `stage::fault` keeps a list of all files and directories that were changed
//! and not synced since, of which none may be left when the job is done.
//!
//! `make left-out` carries all cases out and prints the table that docs/faults.md holds.

mod checks;
mod syncs;

use std::path::Path;

use stage::fault::{Barrier, Call, Check};

use self::checks::*;
use self::syncs::*;
use crate::child::Order;
use crate::device::lacking;
use crate::identity::evicted_through_overlay;
use crate::world::{Scenario, World};

/// What does not hold, with the barrier or check of this word left out, or nothing.
type Case = (&'static str, fn(Option<&str>) -> Vec<String>);

fn of_barrier(barrier: Barrier) -> Case {
    match barrier {
        Barrier::JournalName => ("strict: a small file moves", |w| strict(w, Scenario::Small, usual)),
        Barrier::SourceFileSystem => ("power: a source is local and the mover dies", |w| local(w, false)),
        Barrier::SourceFile => ("power: a source file is local and the mover dies", |w| local(w, true)),
        Barrier::NewParent => {
            ("strict: to a directory that is made", |w| strict(w, Scenario::Small, to_new_parent))
        }
        Barrier::ExistingFileSystem => ("power: an equal destination is adopted", |w| adopted(w, false)),
        Barrier::Existing => ("power: an equal destination is adopted, file by file", |w| adopted(w, true)),
        Barrier::SmallFile => {
            ("strict: a checkpoint moves, file by file", |w| strict(w, Scenario::Checkpoint, distrusted))
        }
        Barrier::SingleFile => ("strict: a small file moves", |w| strict(w, Scenario::Small, usual)),
        Barrier::SmallGroup => ("power: a checkpoint goes on after the mover died", small_group),
        Barrier::ChunkGroup => ("power: a large file goes on after the mover died", chunk_group),
        Barrier::SharedBlocks => {
            ("power: a large file that shares blocks goes on after the mover died", shared_blocks)
        }
        Barrier::LargeFile => ("strict: a file of chunks moves", |w| strict(w, Scenario::Chunked, usual)),
        Barrier::Directory => {
            ("strict: a tree moves, file by file", |w| strict(w, Scenario::Tree, distrusted))
        }
        Barrier::Manifest => {
            ("strict: a checkpoint moves, file by file", |w| strict(w, Scenario::Checkpoint, distrusted))
        }
        Barrier::SetFileSystem => ("strict: a tree moves", |w| strict(w, Scenario::Tree, usual)),
        Barrier::Name => ("power: a small file moves", moved),
        Barrier::SourceRemoved => ("strict: a tree moves", |w| strict(w, Scenario::Tree, usual)),
        Barrier::SemaphoreRemoved => {
            ("strict: a semaphore goes", |w| strict(w, Scenario::Small, with_semaphore))
        }
        Barrier::Latest => ("strict: `latest` moves", |w| strict(w, Scenario::Checkpoint, usual)),
        Barrier::Doomed => ("strict: a fast copy is evicted", |w| strict(w, Scenario::Checkpoint, evicting)),
        Barrier::FetchedChunks => ("power: a fetch goes on after the mover died", fetched_chunks),
        Barrier::FetchedFile | Barrier::FetchedDirectory | Barrier::FetchedManifest => {
            ("strict: a set is fetched", fetched)
        }
    }
}

fn of_check(check: Check) -> Case {
    match check {
        Check::SourceIsNotDestination => ("a move to the source, by a symbolic link", onto_itself),
        Check::InnerMounts => ("something is mounted in a source that moves", mounted_in_source),
        Check::DestinationOutsideSource => ("a copy into its own source", into_itself),
        Check::Distinct => ("a move to its own source, mounted as an overlay", through_overlay),
        Check::AdoptedNames => ("a destination with one name more", |w| taken(w, true)),
        Check::AdoptedBytes => ("a destination with other bytes", |w| taken(w, false)),
        Check::Mount => ("the slow tier is not mounted when the mover goes on", unmounted),
        Check::PartOnResume => ("another directory has the part's name", part_replaced),
        Check::DiscardedPart => {
            ("another directory has the name of a part that is given up", part_replaced_and_cancelled)
        }
        Check::PartBeforeRename => {
            ("another directory has the part's name before the rename", part_replaced_at_rename)
        }
        Check::PartAfterRename => {
            ("another directory has the destination's name after the rename", replaced_after_rename)
        }
        Check::Claim => ("another program makes an empty directory before the rename", unclaimed),
        Check::NameAfterError => {
            ("another program makes a file before the link, where there is no RENAME_NOREPLACE", name_taken)
        }
        Check::RenamedPartBytes => ("a bit changes between the rename and COMMITTED", renamed_rotten),
        Check::SourceOnResume => {
            ("a small file changes before the mover goes on", |w| changed_before_resume(w, false))
        }
        Check::ChunksOnResume => {
            ("a large file changes before the mover goes on", |w| changed_before_resume(w, true))
        }
        Check::SourceAfterRead => ("a file changes after it was copied", changed_after_copy),
        Check::SmallReadBack => {
            ("a bit of a small copy changes", |w| rotten(w, Scenario::Checkpoint, "rank-1", Call::Syncfs, 0))
        }
        Check::ChunkReadBack => {
            ("a bit of a chunk changes", |w| rotten(w, Scenario::Chunked, "", Call::Fdatasync, 0))
        }
        Check::LinkReadBack => {
            ("a copied link leads elsewhere", |w| rotten(w, Scenario::Tree, "to a", Call::Syncfs, 0))
        }
        Check::ManifestReadBack => ("a bit of the manifest changes", |w| {
            rotten(w, Scenario::Checkpoint, crate::world::MANIFEST, Call::Syncfs, 1)
        }),
        Check::SourceManifest => ("a set that has rotted moves", rotten_source),
        Check::CommittedDestination => ("the copy goes before the source", copy_gone),
        Check::SourceBeforeRemoval => ("a file changes after it was published", changed_after_rename),
        Check::SemaphoreBeforeRemoval => {
            ("a semaphore is replaced while its job is at work", semaphore_replaced)
        }
        Check::EvictedItself => ("a fast copy is evicted for itself, mounted as an overlay", |w| {
            evicted_through_overlay(w, true).expect("root may mount an overlay")
        }),
        Check::EvictedNames => ("a fast copy changes before it is evicted", evicted_changed),
        Check::FetchedOnResume => ("a fetched file is replaced before the mover goes on", fetched_replaced),
        Check::FetchedReadBack => ("a bit of a fetched file changes", fetched_rotten),
    }
}

fn without(mut order: Order, word: Option<&str>) -> Order {
    order.left_out = word.map(str::to_owned);
    order
}

fn order(world: &World, word: Option<&str>) -> Order {
    without(Order::to(&world.state, &world.spec), word)
}

/// All barriers and checks: word, place, loss, case.
fn all() -> Vec<(&'static str, &'static str, &'static str, Case)> {
    let barriers = Barrier::ALL.iter().map(|it| (it.word(), it.place(), it.loss(), of_barrier(*it)));
    let checks = Check::ALL.iter().map(|it| (it.word(), it.place(), it.loss(), of_check(*it)));
    barriers.chain(checks).collect()
}

fn table() -> String {
    let mut table =
        String::from("| | which call or comparison | without it | shown by |\n|---|---|---|---|\n");
    for (word, place, loss, (case, _)) in all() {
        table.push_str(&format!("| `{word}` | {place} | {loss} | {case} |\n"));
    }
    table
}

/// Every case; FLASHWRIGHT_LEFT_OUT has those of some words alone.
#[test]
fn each_sync_and_each_check_that_is_left_out_alone_is_missed() {
    let only = std::env::var("FLASHWRIGHT_LEFT_OUT").unwrap_or_default();
    let mut wrong = Vec::new();
    let mut done = 0;
    for (word, _, _, (name, case)) in all() {
        let drives = name.starts_with("power");
        if !(only.is_empty() || only == "1" || only.split(',').any(|one| one == word)) {
            continue;
        }
        if drives && let Some(why) = lacking() {
            println!("SKIP {word}: {why}");
            continue;
        }
        if name.contains("mounted") && !rustix::process::geteuid().is_root() {
            println!("SKIP {word}: it takes root to mount");
            continue;
        }
        done += 1;
        let caught = |left_out| {
            std::panic::catch_unwind(move || case(left_out)).map_err(|panic| {
                panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned())
            })
        };
        match caught(None) {
            Ok(lines) if lines.is_empty() => {}
            other => wrong.push(format!("{word}: wrong with nothing left out: {other:?}")),
        }
        match caught(Some(word)) {
            Ok(lines) if lines.is_empty() => wrong.push(format!("{word}: not missed when it is left out")),
            Ok(lines) => println!("{word}: {name}: {}", lines[0]),
            // A case that breaks down shows nothing.
            Err(panic) => wrong.push(format!("{word}: broke down when it is left out: {panic}")),
        }
    }
    assert!(done > 0, "no case was carried out");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
