//! What others do to the source and the destination while a move is at work, at any of its calls.
//!
//! Who writes to a source that is being moved gets what they deserve, but for this: what they wrote is in the source or
//! at the destination at the end, the destination never shows a mixture, and no byte from outside the tree gets in.

use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use stage::names::PathText;
use stage::{State, Verb};

use crate::child::{Change, Ended, Hit, Order, Report, Strike, call, run};
use crate::kills::{chosen, record};
use crate::sample::{Struck, points};
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
            vec![Change::Write { path: path(), offset: 0, content: NEW.into(), keep_times: true }]
        }
        To::Truncated => vec![Change::Truncate { path: path(), bytes: size / 2 }],
        To::Grown => {
            vec![Change::Write { path: path(), offset: size, content: NEW.into(), keep_times: false }]
        }
        To::Removed => vec![Change::Remove { path: path() }],
        To::Linked => vec![
            Change::Remove { path: path() },
            Change::Symlink { path: path(), target: PathText(aside.join("secret")) },
        ],
        To::Replaced => {
            let mut bytes = vec![0xdd; size as usize];
            bytes[..NEW.len()].copy_from_slice(&NEW);
            vec![
                Change::Create { path: other(), content: bytes.into() },
                Change::Rename { from: other(), to: path() },
            ]
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
    metadata.is_file() && contains(&fs::read(root).unwrap(), bytes)
}

/// Goes from one first byte of `bytes` to the next, many times faster than a comparison at each offset.
fn contains(mut text: &[u8], bytes: &[u8]) -> bool {
    while text.skip_until(bytes[0]).unwrap() > 0 {
        if text.starts_with(&bytes[1..]) {
            return true;
        }
    }
    false
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
        let mut struck = Struck::of(format!("{to:?} {scenario:?} {verb:?}"));
        let name = format!("{to:?} {scenario:?} {verb:?}");
        // Most calls of a small move come when its source goes; some are drawn from before that.
        let whole = calls.iter().position(|call| call == "Unlinkat").unwrap_or(calls.len()) as u64;
        let mut drawn = chosen(&name, &calls, most);
        drawn.extend(points(&format!("{name} whole"), whole, 2));
        for n in drawn {
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
            if !struck.case(report.fired > 0 && report.change_failed.is_none()) {
                // The source had gone already.
                continue;
            }
            judge(&world, to, &path, &report, &done);
            let job = report.jobs.first().filter(|job| job.state == State::Done);
            let is_removed_later = calls[n as usize..].iter().any(|call| call == "Unlinkat");
            if let Some(job) = job
                && is_removed_later
                && matches!(to, To::Rewritten | To::Replaced | To::Grown)
                && anywhere(&world.source, &NEW)
            {
                assert!(
                    job.notes.iter().any(|note| note.contains("stayed")),
                    "{done}: nothing said: {job:?}"
                );
            }
        }
    }
}

fn judge(world: &World, to: To, path: &Path, report: &Report, done: &str) {
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
fn a_file_of_two_names_that_changes_is_not_lost_though_its_times_were_set_back() {
    let calls = record(Scenario::Tree, Verb::Move).calls;
    let steps = calls.iter().enumerate().filter(|(_, call)| *call == "Journal").map(|(n, _)| n as u64);
    // Before the source is walked for the last time, before COMMITTED, and before the names are removed.
    let mut struck = Struck::of("a file of two names that changes");
    for n in steps.rev().take(4) {
        let world = World::new(Scenario::Tree, Verb::Move);
        let done = format!("a file of two names rewritten before call {n} of {}", calls.len());
        let aside = aside(&world);
        let path = world.source.join("a");
        let order = Order::to(&world.state, &world.spec)
            .strike([Strike::nth(n, Hit::Meanwhile)])
            .meanwhile(changes(To::Rewritten, &path, &aside));
        let report = run(&order).told();
        if struck.case(report.fired == 1 && report.change_failed.is_none()) {
            judge(&world, To::Rewritten, &path, &report, &done);
        }
    }
}

#[test]
fn a_source_that_never_stays_the_same_is_not_published_and_the_path_is_named() {
    for (scenario, name) in [(Scenario::Small, ""), (Scenario::Chunked, ""), (Scenario::Checkpoint, "rank-1")]
    {
        let mut world = World::new(scenario, Verb::Move);
        world.spec.options.latest = false;
        let path = if name.is_empty() { world.source.clone() } else { world.source.join(name) };
        // The journal is told before the source is walked for the last time, among others.
        let often =
            Strike { call: Some("Journal".to_owned()), after: 0, times: u64::MAX >> 1, hit: Hit::Meanwhile };
        let change =
            Change::Write { path: path.as_path().into(), offset: 0, content: NEW.into(), keep_times: true };
        let report = run(&Order::to(&world.state, &world.spec).strike([often]).meanwhile([change])).told();
        let job = report.job();
        assert_eq!(job.state, State::Failed, "{scenario:?}: {job:?}");
        let why = &job.error.as_ref().unwrap().message;
        let named = format!("{}: changed while it was copied", path.display());
        assert!(why.starts_with(&named) && why.contains("its change time is another"), "{scenario:?}: {why}");
        assert!(!world.destination.exists(), "{scenario:?}: a source that changed is published");
        assert!(path.exists(), "{scenario:?}");
        if scenario == Scenario::Small {
            let writes = |calls: &[String]| calls.iter().filter(|name| *name == "Write").count();
            let once = writes(&record(scenario, Verb::Move).calls);
            assert_eq!(writes(&report.calls), 3 * once, "it is copied three times in all");
        }
    }
}

#[test]
fn what_is_left_of_a_moved_source_is_the_same_request_and_what_came_into_it_is_not() {
    let mut world = World::new(Scenario::Tree, Verb::Move);
    world.spec.options.latest = false;
    let calls = record(Scenario::Tree, Verb::Move).calls;
    let removals = calls.iter().filter(|call| *call == "Unlinkat").count() as u64;
    // Names of one file go at different times: half of the removals leave some of them.
    let half = Strike::nth_of(stage::fault::Call::Unlinkat, removals / 2, Hit::Kill);
    assert!(matches!(run(&Order::to(&world.state, &world.spec).strike([half])), Ended::Killed));
    let journal = stage::journal::Journal::open(&world.state).unwrap();
    let judge = || {
        stage::runner::is_source_of(&journal, &journal.jobs().unwrap()[0], &stage::tier::Tiers::default())
            .unwrap()
    };
    assert_eq!(journal.jobs().unwrap()[0].state, State::Committed);
    assert!(judge(), "half removed");
    let left = world.source.join("large");
    assert!(left.exists(), "a file of two names is among what is left");
    let came = world.source.join("came later");
    fs::write(&came, "x").unwrap();
    assert!(!judge(), "a file has come into it");
    fs::remove_file(&came).unwrap();
    assert!(judge());
    let before = fs::metadata(&left).unwrap().modified().unwrap();
    fs::write(&left, "other bytes").unwrap();
    fs::File::options().write(true).open(&left).unwrap().set_modified(before).unwrap();
    assert!(!judge(), "a file was rewritten");
    fs::remove_dir_all(&world.source).unwrap();
    assert!(judge(), "nothing is left");
}

#[test]
fn a_directory_that_becomes_a_symbolic_link_leads_nobody_out_of_the_tree() {
    for verb in [Verb::Copy, Verb::Move] {
        let calls = record(Scenario::Tree, verb).calls;
        let mut struck = Struck::of(format!("swap {verb:?}"));
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
            if !struck.case(report.fired > 0 && report.change_failed.is_none()) {
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
        let mut struck = Struck::of(format!("taken {scenario:?}"));
        for n in chosen(&format!("taken {scenario:?}"), &calls, 16) {
            let mut world = World::new(scenario, Verb::Move);
            // Where `latest` leads is another question than this one.
            world.spec.options.latest = false;
            let done = format!("the name taken before call {n}, {}", calls[n as usize]);
            let theirs = world.destination.join("theirs");
            let make = if scenario == Scenario::Small {
                Change::Create { path: world.destination.as_path().into(), content: b"theirs".into() }
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
            if !struck.case(report.fired > 0 && report.change_failed.is_none()) {
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
            // Before the first calls of the job the request itself is refused.
            match &report.refused {
                Some(why) => assert_eq!(why.class, stage::ErrorClass::Refused, "{done}: {why:?}"),
                None => assert_eq!(report.job().state, State::Failed, "{done}: {:?}", report.jobs),
            }
        }
    }
}

#[test]
fn a_part_or_a_destination_directory_that_is_taken_away_costs_nothing_but_time() {
    for scenario in [Scenario::Small, Scenario::Chunked, Scenario::Checkpoint] {
        let calls = record(scenario, Verb::Move).calls;
        let mut struck = Struck::of(format!("taken away {scenario:?}"));
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
            let Ended::Told(report) = ended else { panic!("{done}: killed") };
            struck.case(report.fired > 0 && report.change_failed.is_none());
        }
    }
}

#[test]
fn a_name_that_is_taken_between_the_calls_of_its_publication_stays_with_who_took_it() {
    for scenario in [Scenario::Small, Scenario::Checkpoint] {
        let mut world = World::new(scenario, Verb::Move);
        world.spec.options.latest = false;
        let calls = run(&Order::to(&world.state, &world.spec)).told().calls;
        let first = calls.iter().position(|name| name == "Renameat").expect("it is published");
        let mut made = 0;
        // Counted by kind, because the numbers of others vary.
        for (n, name) in calls.iter().enumerate().skip(first) {
            if !["Renameat", "Linkat", "Mkdirat"].contains(&name.as_str()) {
                continue;
            }
            let nth = calls[..n].iter().filter(|before| *before == name).count() as u64;
            for into_claim in [false, true] {
                let mut world = World::new(scenario, Verb::Move);
                world.spec.options.latest = false;
                let path = || PathText::from(world.destination.as_path());
                let theirs = if scenario == Scenario::Small && !into_claim {
                    vec![
                        Change::Absent { path: path() },
                        Change::Create { path: path(), content: b"theirs".into() },
                    ]
                } else if scenario == Scenario::Checkpoint && !into_claim {
                    let from = world.slow().join("ckpt-6").as_path().into();
                    vec![Change::Absent { path: path() }, Change::Rename { from, to: path() }]
                } else {
                    // What the name is claimed with is a directory, into which anybody may write who may write there.
                    let path = world.destination.join("rank-0").as_path().into();
                    vec![Change::Create { path, content: b"the one before".into() }]
                };
                let done = format!("{scenario:?}: the name taken before {name} {nth}, {theirs:?}");
                let order = Order::to(&world.state, &world.spec)
                    .strike([Strike::nth_of(call(name), nth, Hit::Meanwhile)])
                    .meanwhile(theirs);
                let report = run(&order).told();
                if report.change_failed.is_some() {
                    continue;
                }
                assert_eq!(report.fired, 1, "{done}");
                made += 1;
                let kept = match scenario {
                    Scenario::Small => fs::read(&world.destination).unwrap() == b"theirs",
                    _ => {
                        fs::read(world.destination.join("rank-0")).unwrap() == b"the one before"
                            && fs::read_dir(&world.destination).unwrap().count() == 1
                    }
                };
                assert!(kept, "{done}: what somebody else put there is gone: {:?}", report.jobs);
                let source = snapshot(&world.source).unwrap().expect("the source is whole");
                world.must(&done, crate::tree::differences(&world.before, &source));
                assert_eq!(report.job().state, State::Failed, "{done}: {:?}", report.job());
            }
        }
        let least = match (crate::LIKE_NFS, scenario) {
            (false, _) => 1,
            (true, Scenario::Small) => 2,
            (true, _) => 3,
        };
        assert!(made >= least, "{scenario:?}: only {made} changes were made of {least}");
    }
}

/// What others do is done by a thread of the process that is struck. A kill by another of its threads waits for the end of it: else
/// a change would be half made that no process outside would have left so, and nobody would know of it.
#[test]
fn a_kill_comes_before_or_after_what_others_do() {
    const MARKS: usize = 500;
    let mut after = 0;
    for n in (10..160).step_by(6) {
        let world = World::new(Scenario::Tree, Verb::Copy);
        let marks = world.fast().join("marks");
        fs::create_dir(&marks).unwrap();
        let mark = |m: usize| Change::Create {
            path: PathText(marks.join(m.to_string())),
            content: Vec::new().into(),
        };
        let order = Order::to(&world.state, &world.spec)
            .threads(3)
            .strike([Strike::nth_of(stage::fault::Call::Read, 1, Hit::Meanwhile), Strike::nth(n, Hit::Kill)])
            .meanwhile((0..MARKS).map(mark));
        let is_killed = matches!(run(&order), Ended::Killed);
        let made = fs::read_dir(&marks).unwrap().count();
        assert!(!is_killed || made == 0 || made == MARKS, "killed at call {n}: {made} of {MARKS} are made");
        after += usize::from(is_killed && made == MARKS);
    }
    assert!(after > 0, "no kill came after the changes");
}
