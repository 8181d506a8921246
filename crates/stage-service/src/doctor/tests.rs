//! Findings of scenes that are made up, and of what lies in a directory.

use std::io;

use rustix::io::Errno;

use super::*;
use crate::testing::job;
use stage::StageError;
use stage::job::Why;

fn failed(error: &StageError) -> JobStatus {
    JobStatus { error: Some(Why::of(error)), ..job(7, State::Failed) }
}

fn codes(scene: &Scene) -> Vec<String> {
    diagnose(scene).into_iter().map(|finding| finding.code).collect()
}

fn io_error(operation: &str, errno: Errno) -> StageError {
    StageError::io(operation, "/slow/7".as_ref(), io::Error::from(errno))
}

fn sync_error(errno: Errno) -> StageError {
    StageError::sync("fsync", "/slow/7".as_ref(), errno)
}

#[test]
fn every_way_to_fail_is_told_from_the_others() {
    let changed = StageError::SourceChanged { path: "/a".into(), how: "size".into() };
    let corrupt =
        StageError::Corrupt { path: "/b".into(), offset: 0, expected: "1".into(), found: "2".into() };
    for (error, code) in [
        (io_error("write", Errno::NOSPC), "no-space"),
        (sync_error(Errno::DQUOT), "no-space"),
        (sync_error(Errno::IO), "fsync-failed"),
        (StageError::source_sync("/fast/7".as_ref(), Errno::IO), "fsync-failed"),
        (io_error("write", Errno::IO), "other"),
        (io_error("open", Errno::ACCESS), "permission"),
        (io_error("unlink", Errno::PERM), "permission"),
        (io_error("open", Errno::ROFS), "read-only"),
        (io_error("rename to 7", Errno::EXIST), "destination-exists"),
        (changed, "source-changed"),
        (StageError::SourceCorrupt { path: "/c".into(), how: "a size".into() }, "source-corrupt"),
        (corrupt, "verification-failed"),
        (
            StageError::Exists { what: "/slow/7: is there".into(), hint: "rename it".into() },
            "destination-exists",
        ),
        (StageError::invalid("/a: not an absolute path", "name it from the root"), "request"),
        (StageError::refused("/a: is the source itself", "name another destination"), "request"),
    ] {
        let scene = Scene { now: 100, jobs: vec![failed(&error)], ..Scene::default() };
        let findings = diagnose(&scene);
        assert_eq!(findings.len(), 1, "{error}");
        assert_eq!(findings[0].code, code, "{error}");
        assert!(findings[0].stuck && findings[0].job == Some(7));
        let remedy = &findings[0].remedy;
        let clears = ["stage retry 7", "stage cancel 7"];
        assert!(clears.iter().any(|clears| remedy.contains(clears)), "{code}: {remedy}");
    }
}

#[test]
fn a_name_in_the_message_does_not_change_the_cause() {
    for name in ["/slow/exists/7", "/slow/is there already", "/x: cannot fsync", "/is not what was written"] {
        let error = StageError::io("write", name.as_ref(), io::Error::from(Errno::IO));
        let scene = Scene { now: 100, jobs: vec![failed(&error)], ..Scene::default() };
        assert_eq!(codes(&scene), ["other"], "{name}");
    }
}

#[test]
fn of_a_users_mistake_it_is_said_what_clears_it() {
    let mistake = StageError::refused("/slow/7: is the source itself", "name another destination");
    let scene = Scene { now: 100, jobs: vec![failed(&mistake)], ..Scene::default() };
    let finding = diagnose(&scene).pop().unwrap();
    assert!(finding.why.contains("request"), "{}", finding.why);
    assert_eq!(
        finding.remedy,
        "name another destination; then: flashwright stage cancel 7, which clears this"
    );
}

#[test]
fn a_rotted_source_is_not_called_a_wrong_request_and_is_not_to_be_copied_as_it_is() {
    let rotted = StageError::SourceCorrupt { path: "/slow/7".into(), how: "x has another size".into() };
    let scene = Scene { now: 100, jobs: vec![failed(&rotted)], ..Scene::default() };
    let finding = diagnose(&scene).pop().unwrap();
    assert!(finding.remedy.starts_with("bring it from another copy") && !finding.remedy.contains("stage cp"));
    assert!(!finding.why.contains("request"), "{}", finding.why);
}

#[test]
fn a_job_of_a_command_has_no_number_and_goes_on_with_the_command() {
    for (error, remedy) in [
        (io_error("write", Errno::NOSPC), "make room (df, quota), then: the same command goes on"),
        (StageError::refused("/x: is the source", "name another"), "name another"),
    ] {
        let finding = of_command(vec![failed(&error)], None).pop().unwrap();
        let remedy = format!("{remedy}; or: flashwright stage cancel /slow/7, which clears this");
        assert_eq!((finding.job, finding.remedy), (None, remedy));
        assert!(!finding.what.contains("job 7"), "{}", finding.what);
    }
    let durable = JobStatus { level: stage::Level::Durable, ..failed(&io_error("remove", Errno::ACCESS)) };
    assert!(of_command(vec![durable], None)[0].what.contains("is durable and verified, but"));
}

/// Its source may be the only copy.
#[test]
fn of_a_copy_that_was_lost_it_is_not_said_that_it_is_durable() {
    let lost = StageError::refused("/slow/7: is not there any more", "move it again");
    let lost = JobStatus { state: State::Done, level: stage::Level::Durable, ..failed(&lost) };
    let mut scene = Scene { now: 100, jobs: vec![lost], ..Scene::default() };
    let finding = diagnose(&scene).pop().unwrap();
    assert_eq!(
        (finding.code.as_str(), finding.stuck, finding.remedy.as_str()),
        ("copy-lost", false, "move it again")
    );
    let what = &finding.what;
    assert!(what.ends_with("/slow/7: is not there any more") && !what.contains("durable"), "{what}");
    // What it left was moved since.
    let again = JobStatus { id: 8, spec: scene.jobs[0].spec.clone(), ..job(8, State::Done) };
    scene.jobs.push(again);
    assert_eq!(diagnose(&scene), []);
}

#[test]
fn a_healthy_scene_has_no_findings() {
    let jobs = vec![job(1, State::Done), job(2, State::Running), job(3, State::Cancelled)];
    let room = Room { bytes: 1 << 40, files: Some(1 << 20) };
    let rooms = BTreeMap::from([(2, room)]);
    let scene = Scene { now: 100, jobs, rooms, state_room: Some(room), ..Scene::default() };
    assert_eq!(diagnose(&scene), []);
}

#[test]
fn room_that_will_not_suffice_is_said_before_it_is_used_up() {
    let job = JobStatus { bytes_total: 100, bytes_written: 30, files_total: 1, ..job(2, State::Running) };
    let mut scene = Scene { now: 100, jobs: vec![job], ..Scene::default() };
    for (bytes, files, found) in
        [(70, None, false), (69, None, true), (70, Some(1), false), (70, Some(0), true)]
    {
        scene.rooms = BTreeMap::from([(2, Room { bytes, files })]);
        assert_eq!(!diagnose(&scene).is_empty(), found, "{bytes} {files:?}");
    }
}

#[test]
fn a_part_is_anybodys_unless_a_job_that_may_go_on_has_its_name() {
    let uuid = "abababababababababababababababab";
    let part = |name: &str| PathBuf::from(format!("/slow/.{name}.{uuid}.part"));
    let jobs = vec![job(1, State::Failed), job(2, State::Running), job(3, State::Done)];
    let scene = Scene {
        now: 100,
        jobs,
        parts: vec![part("1"), part("2"), part("3"), part("x.y")],
        ..Scene::default()
    };
    let left: Vec<_> = diagnose(&scene).into_iter().filter(|f| f.code == "part-left").collect();
    assert_eq!(left.len(), 2);
    assert!(left[0].what.contains("/.3.") && left[1].what.contains("/.x.y."));
    // Of a command without a server, in this state directory or in another.
    let mut of_command = vec![job(3, State::Running)];
    let known = Scene { jobs_of_commands: of_command.clone(), ..scene.clone() };
    assert_eq!(diagnose(&known).len(), 1);
    let mut findings = left.clone();
    leave_out_parts_of(&mut findings, &of_command);
    assert_eq!(findings, left[1..]);
    of_command[0].state = State::Cancelled;
    assert_eq!(diagnose(&Scene { jobs_of_commands: of_command, ..scene }), left);
}

#[test]
fn what_is_stuck_comes_first() {
    let mut early = job(1, State::Queued);
    early.created = 10_000;
    let scene = Scene {
        now: 100,
        jobs: vec![early, failed(&io_error("write", Errno::NOSPC))],
        state_on: unfit(0x6969),
        no_server: Some(NoServer::NoAnswer("/run/x".into())),
        ..Scene::default()
    };
    assert_eq!(codes(&scene), ["no-server", "no-space", "journal-far-away", "clock-jumped"]);
    let (why, remedy) = ("/run/x".into(), "name a socket".into());
    let not_asked = Scene { no_server: Some(NoServer::NotAsked { why, remedy }), ..scene };
    let found = diagnose(&not_asked).into_iter().find(|f| f.code == "no-server").unwrap();
    assert!(!found.stuck && found.what.contains("one may be running") && found.remedy == "name a socket");
}

#[test]
fn looking_finds_parts_and_room() {
    let directory = tempfile::tempdir().unwrap();
    let part = stage::names::part_name(OsStr::new("x"), storage::uuid::Uuid([7; 16]));
    std::fs::write(directory.path().join(&part), "half").unwrap();
    let mut job = job(1, State::Running);
    job.spec.destination = stage::Place::of_path(&directory.path().join("not/there/yet")).unwrap();
    let mut beside = job.clone();
    beside.spec.destination = stage::Place::of_path(&directory.path().join("y")).unwrap();
    let scene = scene_of(directory.path(), vec![job, beside]);
    assert_eq!(scene.parts, [directory.path().join(&part)]);
    assert!(scene.rooms[&1].bytes > 0 && scene.state_room.is_some());
}
