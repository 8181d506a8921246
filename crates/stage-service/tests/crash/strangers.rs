//! Others who may write to the destination's directory: what they put under the names of a job's own is left to them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stage::fault::Call;
use stage::{ErrorClass, State, Verb};
use stage_service::{Mover, MoverConfig};

use crate::child::{Ended, Hit, Order, Strike, run};
use crate::kills::record;
use crate::world::{Scenario, World, names};

/// The part that a move has left. What `latest` is made under is none: a link, which holds nothing.
fn part(world: &World) -> Option<PathBuf> {
    let destination = world.destination.file_name().expect("a move has a destination");
    let begin = format!(".{}.", destination.to_string_lossy());
    let is_part = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.starts_with(&begin) && name.ends_with(".part")
    };
    names(world.slow()).into_iter().find(is_part).map(|name| world.slow().join(name))
}

/// Takes what has a name away, and puts somebody else's directory there, with all that they have.
fn swap(part: &Path) -> PathBuf {
    let aside = part.with_file_name("aside");
    fs::rename(part, &aside).unwrap();
    fs::create_dir(part).unwrap();
    fs::write(part.join("thesis"), b"the only copy").unwrap();
    aside
}

fn thesis(part: &Path) -> Option<Vec<u8>> {
    fs::read(part.join("thesis")).ok()
}

/// Calls by their numbers, each in a world whose move was killed right after it.
fn killed_after(scenario: Scenario, call: &str, each: &mut dyn FnMut(&World, &str)) {
    let calls = record(scenario, Verb::Move).calls;
    let mut seen = 0;
    for n in (0..calls.len()).filter(|n| calls[*n] == call) {
        let world = World::new(scenario, Verb::Move);
        let done = format!("{scenario:?}, killed after call {n}, {call}");
        let order = Order::to(&world.state, &world.spec).strike([Strike::nth(n as u64, Hit::KillAfter)]);
        let Ended::Killed = run(&order) else { continue };
        if part(&world).is_some() {
            each(&world, &done);
            seen += 1;
        }
    }
    assert!(seen > 0, "{scenario:?}: no {call} left a part");
}

#[test]
fn somebody_elses_directory_under_the_name_of_a_part_is_left_by_a_restart() {
    for scenario in [Scenario::Checkpoint, Scenario::Small, Scenario::Chunked] {
        killed_after(scenario, "Journal", &mut |world, done| {
            let part = part(world).expect("it was looked for");
            let aside = swap(&part);
            let report = run(&Order::go_on(&world.state)).told();
            assert_eq!(thesis(&part).as_deref(), Some(&b"the only copy"[..]), "{done}");
            let job = report.job();
            assert_eq!(job.state, State::Done, "{done}: {job:?}");
            let name = part.file_name().unwrap().to_string_lossy().into_owned();
            assert!(job.notes.iter().any(|note| note.contains(&name)), "{done}: nothing said: {job:?}");
            fs::remove_dir_all(&part).unwrap();
            match fs::metadata(&aside).unwrap().is_dir() {
                true => fs::remove_dir_all(&aside).unwrap(),
                false => fs::remove_file(&aside).unwrap(),
            }
            world.must(done, world.check_end());
        });
    }
}

#[test]
fn somebody_elses_directory_under_the_name_of_a_part_is_left_when_the_job_is_cancelled() {
    for scenario in [Scenario::Checkpoint, Scenario::Large] {
        let world = World::new(scenario, Verb::Move);
        // The rename fails for good: the part is whole, and the job waits to be retried or given up.
        let fault = Strike { call: Some("Renameat".to_owned()), after: 0, times: 99, hit: Hit::Errno(13) };
        let report = run(&Order::to(&world.state, &world.spec).strike([fault])).told();
        assert_eq!(report.job().state, State::Failed, "{report:?}");
        let part = part(&world).expect("what was copied is kept for a retry");
        swap(&part);
        let mover = Mover::open(&MoverConfig::new(&world.state)).unwrap();
        let job = mover.cancel(report.job().id).unwrap();
        assert_eq!(job.state, State::Cancelled);
        assert_eq!(thesis(&part).as_deref(), Some(&b"the only copy"[..]), "{scenario:?}");
        let name = part.file_name().unwrap().to_string_lossy().into_owned();
        assert!(job.notes.iter().any(|note| note.contains(&name)), "nothing said: {job:?}");
    }
}

#[test]
fn what_takes_the_name_of_a_part_before_it_is_recorded_is_left_unless_it_is_empty() {
    for (call, scenario) in [("Mkdirat", Scenario::Checkpoint), ("Openat", Scenario::Small)] {
        killed_after(scenario, call, &mut |world, done| {
            let part = part(world).expect("it was looked for");
            let recorded = fs::metadata(&part).unwrap().len() > 0 || !names(&part).is_empty();
            if recorded {
                return;
            }
            let aside = swap(&part);
            let report = run(&Order::go_on(&world.state)).told();
            assert_eq!(report.job().state, State::Done, "{done}: {report:?}");
            assert_eq!(thesis(&part).as_deref(), Some(&b"the only copy"[..]), "{done}");
            fs::remove_dir_all(&part).unwrap();
            let _ = fs::remove_dir(&aside).or_else(|_| fs::remove_file(&aside));
            world.must(done, world.check_end());
        });
    }
}

#[test]
fn what_others_put_into_a_part_that_is_open_to_them_is_left_and_not_published() {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    fs::set_permissions(&world.source, fs::Permissions::from_mode(0o777)).unwrap();
    let order = Order::to(&world.state, &world.spec);
    let Ended::Killed = run(&order.strike([Strike::nth_of(Call::Renameat, 0, Hit::Kill)])) else {
        panic!("a move renames its part");
    };
    let part = part(&world).expect("the part was whole");
    fs::write(part.join("thesis"), b"the only copy").unwrap();
    let report = run(&Order::go_on(&world.state)).told();
    let why = report.job().error.clone().expect("it is refused");
    assert_eq!(why.class, ErrorClass::Refused, "{why:?}");
    assert!(why.message.contains("thesis"), "{why:?}");
    assert_eq!(thesis(&part).as_deref(), Some(&b"the only copy"[..]));
    fs::remove_file(part.join("thesis")).unwrap();
    let mut order = Order::go_on(&world.state);
    order.retry = true;
    let report = run(&order).told();
    assert_eq!(report.job().state, State::Done, "{report:?}");
    assert!(world.destination.join("rank-0").exists() && !world.source.exists());
}

#[test]
fn a_link_in_the_place_of_a_directory_of_a_part_has_nobody_elses_mode_changed() {
    let world = World::new(Scenario::Tree, Verb::Copy);
    let order = Order::to(&world.state, &world.spec);
    let Ended::Killed = run(&order.strike([Strike::nth_of(Call::Syncfs, 0, Hit::Kill)])) else {
        println!("SKIP the mode of what a link leads to: the file system's own sync does not vouch here");
        return;
    };
    let part = part(&world).expect("it was begun");
    let other = world.fast().join("somebody else's");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(part.join("sub"), world.fast().join("sub"))
        .or_else(|_| fs::remove_dir_all(part.join("sub")))
        .unwrap();
    std::os::unix::fs::symlink(&other, part.join("sub")).unwrap();
    run(&Order::go_on(&world.state)).told();
    let mode = fs::metadata(&other).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o755, "the mode of what a link leads to was changed: {mode:o}");
}
