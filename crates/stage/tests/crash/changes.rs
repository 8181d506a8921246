//! What others do to the source and the destination while a move is at work, at any of its calls.
//!
//! Who writes to a source that is being moved gets what they deserve, but for this: what they wrote is in the source or
//! at the destination at the end, the destination never shows a mixture, and no byte from outside the tree gets in.

use std::fs;
use std::path::{Path, PathBuf};

use stage::names::PathText;
use stage::{State, Verb};

use crate::child::{Change, Ended, Hit, Order, Report, Strike, run};
use crate::kills::{chosen, record};
use crate::tree::{Kind, Tree, snapshot};
use crate::world::{MANIFEST, Scenario, World};

const SECRET: &[u8] = b"what only its owner may read";

/// What is done to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// Other bytes, the same size, and the old time of modification: a clock that jumps, or somebody who sets it.
    Rewritten,
    Truncated,
    Grown,
    Removed,
    /// A symbolic link to a secret has its name.
    Linked,
    /// Another file of the same size was renamed over it.
    Replaced,
}

const ALL: [To; 6] = [To::Rewritten, To::Truncated, To::Grown, To::Removed, To::Linked, To::Replaced];

/// Bytes that a change writes: found again, they were not lost.
const NEW: [u8; 4096] = [0xee; 4096];

fn changes(to: To, file: &Path, aside: &Path) -> Vec<Change> {
    let size = fs::metadata(file).unwrap().len();
    let path = || PathText::from(file);
    let other = || PathText(aside.join("other"));
    match to {
        To::Rewritten => {
            vec![Change::Write { path: path(), offset: 0, bytes: NEW.to_vec(), keep_times: true }]
        }
        To::Truncated => vec![Change::Truncate { path: path(), bytes: size / 2 }],
        To::Grown => {
            vec![Change::Write { path: path(), offset: size, bytes: NEW.to_vec(), keep_times: false }]
        }
        To::Removed => vec![Change::Remove { path: path() }],
        To::Linked => vec![
            Change::Remove { path: path() },
            Change::Symlink { path: path(), target: PathText(aside.join("secret")) },
        ],
        To::Replaced => {
            let mut bytes = vec![0xdd; size as usize];
            bytes[..NEW.len()].copy_from_slice(&NEW);
            vec![Change::Create { path: other(), bytes }, Change::Rename { from: other(), to: path() }]
        }
    }
}

/// Sizes and digests of all files of a tree.
fn contents(tree: &Tree) -> Vec<(&[u8], &Kind)> {
    tree.iter()
        .filter(|(name, entry)| *name != MANIFEST.as_bytes() && entry.kind != Kind::Directory)
        .map(|(name, entry)| (&name[..], &entry.kind))
        .collect()
}

fn same(one: &Tree, other: &Tree) -> bool {
    let strip = |kind: &Kind| match kind {
        Kind::File { size, digest, .. } => format!("{size} {digest:?}"),
        other => format!("{other:?}"),
    };
    let list = |tree: &Tree| -> Vec<_> {
        contents(tree).into_iter().map(|(name, kind)| (name.to_vec(), strip(kind))).collect()
    };
    list(one) == list(other)
}

/// Is this anywhere below?
fn anywhere(root: &Path, bytes: &[u8]) -> bool {
    let Ok(metadata) = fs::symlink_metadata(root) else { return false };
    if metadata.is_dir() {
        return fs::read_dir(root).unwrap().any(|one| anywhere(&one.unwrap().path(), bytes));
    }
    metadata.is_file() && fs::read(root).unwrap().windows(bytes.len()).any(|window| window == bytes)
}

/// A directory beside the source, with a secret in it.
fn aside(world: &World) -> PathBuf {
    let aside = world.fast().join("aside");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("secret"), SECRET).unwrap();
    aside
}

fn change_everywhere(scenario: Scenario, verb: Verb, file: &str, most: usize) {
    let calls = record(scenario, verb).calls;
    for to in ALL {
        for n in chosen(&format!("{to:?} {scenario:?} {verb:?}"), &calls, most) {
            if calls[n as usize] == "Unlinkat" {
                // Between the last look at a file and its removal nothing can be put: unlinkat(2) takes a name.
                continue;
            }
            let world = World::new(scenario, verb);
            let aside = aside(&world);
            let path = if file.is_empty() { world.source.clone() } else { world.source.join(file) };
            let done = format!("{to:?} before call {n} of {}, {}", calls.len(), calls[n as usize]);
            let order = Order::to(&world.state, &world.spec)
                .strike([Strike::nth(n, Hit::Meanwhile)])
                .meanwhile(changes(to, &path, &aside));
            let report = run(&order).told();
            if report.fired == 0 || report.change_failed.is_some() {
                // The source had gone already.
                continue;
            }
            look(&world, to, &path, &report, &done);
        }
    }
}

fn look(world: &World, to: To, path: &Path, report: &Report, done: &str) {
    let after = snapshot(&world.source).unwrap();
    let copied = snapshot(&world.destination).unwrap();
    assert!(!anywhere(world.slow(), SECRET), "{done}: a byte from outside of the tree was copied");
    if let Some(copied) = &copied {
        let is_old = same(copied, &world.before);
        let is_new = after.as_ref().is_some_and(|after| same(copied, after));
        let there = world.destination.join(path.strip_prefix(&world.source).unwrap_or(Path::new("")));
        let has_new = match to {
            To::Linked => fs::read_link(there).is_ok(),
            To::Truncated | To::Removed => true,
            To::Rewritten | To::Grown | To::Replaced => anywhere(&world.destination, &NEW),
        };
        // Of a move whose source is gone the change came before the copy: then all of it is there.
        assert!(is_old || is_new || (after.is_none() && has_new), "{done}: the destination shows a mixture");
    }
    match to {
        To::Rewritten | To::Replaced | To::Grown => assert!(
            anywhere(&world.source, &NEW) || anywhere(&world.destination, &NEW),
            "{done}: what was written to the source is lost; {:?}",
            report.jobs
        ),
        To::Linked => {
            let link = |path: &Path| fs::read_link(path).is_ok();
            let there = world.destination.join(path.strip_prefix(&world.source).unwrap_or(Path::new("")));
            assert!(link(path) || link(&there), "{done}: the link that was made is lost");
        }
        To::Truncated | To::Removed => {}
    }
    if let [job] = &report.jobs[..]
        && job.state == State::Failed
    {
        let why = job.error.as_ref().expect("a failure has a reason");
        assert!(copied.is_none(), "{done}: failed, and the destination is there: {why:?}");
        assert!(why.message.contains('/'), "{done}: the error names no path: {why:?}");
    }
}

#[test]
fn a_small_file_that_changes_is_not_lost_and_not_half_copied() {
    change_everywhere(Scenario::Small, Verb::Move, "", 8);
}

#[test]
fn a_file_of_chunks_that_changes_is_not_lost_and_not_half_copied() {
    change_everywhere(Scenario::Chunked, Verb::Move, "", 6);
}

#[test]
fn a_file_of_a_checkpoint_that_changes_is_not_lost_and_the_checkpoint_is_one_state() {
    change_everywhere(Scenario::Checkpoint, Verb::Move, "rank-1", 8);
}

#[test]
fn a_directory_that_becomes_a_symbolic_link_leads_nobody_out_of_the_tree() {
    for verb in [Verb::Copy, Verb::Move] {
        let calls = record(Scenario::Tree, verb).calls;
        for n in chosen(&format!("swap {verb:?}"), &calls, 24) {
            let world = World::new(Scenario::Tree, verb);
            let aside = aside(&world);
            // What is outside has the names of what is inside, so that nothing fails by accident.
            fs::create_dir_all(aside.join("deeper/deepest")).unwrap();
            for name in ["page", "deeper/deepest/leaf", "another name of a"] {
                fs::write(aside.join(name), SECRET).unwrap();
            }
            let done = format!("sub swapped for a link before call {n}, {}", calls[n as usize]);
            let sub = world.source.join("sub");
            let order =
                Order::to(&world.state, &world.spec).strike([Strike::nth(n, Hit::Meanwhile)]).meanwhile([
                    Change::Rename {
                        from: sub.as_path().into(),
                        to: world.fast().join("was sub").as_path().into(),
                    },
                    Change::Symlink { path: sub.as_path().into(), target: aside.as_path().into() },
                ]);
            let report = run(&order).told();
            if report.fired == 0 || report.change_failed.is_some() {
                continue;
            }
            assert!(!anywhere(world.slow(), SECRET), "{done}: a byte from outside of the tree was copied");
            for name in ["secret", "page", "deeper/deepest/leaf", "another name of a"] {
                let kept = fs::read(aside.join(name)).ok();
                assert_eq!(kept.as_deref(), Some(SECRET), "{done}: {name} outside of the tree was touched");
            }
            if let Some(copied) = snapshot(&world.destination).unwrap() {
                let after = snapshot(&world.source).unwrap();
                assert!(
                    same(&copied, &world.before) || after.is_none_or(|after| same(&copied, &after)),
                    "{done}: the destination shows a mixture"
                );
            }
        }
    }
}

#[test]
fn a_destination_that_somebody_makes_meanwhile_is_never_written_over() {
    for scenario in [Scenario::Small, Scenario::Checkpoint] {
        let calls = record(scenario, Verb::Move).calls;
        for n in chosen(&format!("taken {scenario:?}"), &calls, 16) {
            let mut world = World::new(scenario, Verb::Move);
            // Where `latest` leads is another question than this one.
            world.spec.options.latest = false;
            let done = format!("the name taken before call {n}, {}", calls[n as usize]);
            let theirs = world.destination.join("theirs");
            let make = if scenario == Scenario::Small {
                Change::Create { path: world.destination.as_path().into(), bytes: b"theirs".to_vec() }
            } else {
                Change::Rename {
                    from: world.slow().join("ckpt-6").as_path().into(),
                    to: world.destination.as_path().into(),
                }
            };
            // A file that is written over another is theirs to lose; only a name that was free counts.
            let order = Order::to(&world.state, &world.spec)
                .strike([Strike::nth(n, Hit::Meanwhile)])
                .meanwhile([Change::Absent { path: world.destination.as_path().into() }, make]);
            let report = run(&order).told();
            if report.fired == 0 || report.change_failed.is_some() {
                continue;
            }
            let kept = if scenario == Scenario::Small {
                fs::read(&world.destination).ok().as_deref() == Some(b"theirs")
            } else {
                fs::read(world.destination.join("rank-0")).ok().as_deref() == Some(b"the one before")
            };
            assert!(kept, "{done}: what somebody else put there is gone: {:?}", report.jobs);
            assert!(!theirs.exists());
            let source = snapshot(&world.source).unwrap().expect("the source is whole");
            let lines = crate::tree::differences(&world.before, &source);
            world.must(&done, lines);
            let job = report.job();
            assert_eq!(job.state, State::Failed, "{done}: {job:?}");
        }
    }
}

#[test]
fn a_part_or_a_destination_directory_that_is_taken_away_costs_nothing_but_time() {
    for scenario in [Scenario::Small, Scenario::Chunked, Scenario::Checkpoint] {
        let calls = record(scenario, Verb::Move).calls;
        for n in chosen(&format!("taken away {scenario:?}"), &calls, 10) {
            let mut world = World::new(scenario, Verb::Move);
            world.spec.options.latest = false;
            let slow = world.slow().to_owned();
            let away = slow.with_extension("away");
            let done = format!("the directory renamed away before call {n}, {}", calls[n as usize]);
            let order = Order::to(&world.state, &world.spec)
                .strike([Strike::nth(n, Hit::Meanwhile)])
                .meanwhile([Change::Rename { from: slow.as_path().into(), to: away.as_path().into() }]);
            let ended = run(&order);
            // What is in the directory that was taken away counts as well: it is back before anything is judged.
            if away.exists() {
                if slow.exists() {
                    for name in crate::world::names(&slow) {
                        fs::rename(slow.join(&name), away.join(&name)).unwrap();
                    }
                    fs::remove_dir(&slow).unwrap();
                }
                fs::rename(&away, &slow).unwrap();
            }
            world.must(&done, world.check_between());
            let Ended::Told(_) = ended else { panic!("{done}: killed") };
        }
    }
}
