//! What is refused, and what goes on after a failure.

use super::*;

#[test]
fn a_source_that_is_not_there_makes_no_job() {
    let bench = Bench::new();
    let place = |name| Place::of_path(&bench.at(name)).unwrap();
    for verb in [Verb::Move, Verb::Copy] {
        for source in ["missing", "missing/below"] {
            let options = Options::default();
            let spec = JobSpec { verb, source: place(source), destination: place("slow/x"), options };
            let error = bench.mover.submit(spec.clone()).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Invalid, "{error}");
            assert!(bench.submit_or_retry(spec).is_err());
        }
    }
    assert_eq!(bench.mover.status(None).unwrap(), []);
    // A failed job whose source has gone since is not begun again, either.
    fs::create_dir(bench.at("tree")).unwrap();
    fifo(&bench.at("tree/fifo"));
    assert_eq!(bench.run(Verb::Copy, "tree", "slow/tree", Options::default()).state, State::Failed);
    fs::remove_dir_all(bench.at("tree")).unwrap();
    let spec = bench.mover.status(None).unwrap()[0].spec.clone();
    assert!(bench.submit_or_retry(spec).is_err());
}

#[test]
fn a_request_with_a_url_that_no_store_can_have_is_not_a_request() {
    let request = |url: &str| {
        let spec =
            serde_json::json!({"verb": "move", "source": {"path": "/a"}, "destination": {"object": url}});
        serde_json::from_value::<JobSpec>(spec)
    };
    assert!(request("s3://bucket/x?region=here").is_ok());
    for url in [
        "http://host/x",
        "s3:/bucket",
        "gs://bucket/x",
        "file:/x",
        "x",
        "memory:///x",
        "s3://key:hunter2@bucket/x",
        "s3://bucket/x?regoin=hunter2",
        "s3://bucket/a/../x",
    ] {
        let error = request(url).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

/// A set on the slow tier as something other than its manifest says, in one way after another.

#[test]
fn what_is_brought_back_has_to_be_what_its_manifest_says() {
    type Way = (&'static str, fn(&Path));
    let ways: [Way; 5] = [
        ("other bytes, other time", |set| {
            let bytes = fs::read(set.join("one")).unwrap();
            fs::write(set.join("one"), vec![bytes[0] ^ 1]).unwrap();
        }),
        ("another size", |set| fs::write(set.join("a-b/x"), "longer than it was").unwrap()),
        ("a file too few", |set| fs::remove_file(set.join("a/zero")).unwrap()),
        ("a file too many", |set| fs::write(set.join("empty/new"), "new").unwrap()),
        ("a damaged manifest", |set| fs::write(set.join(".flashwright-manifest"), "{}").unwrap()),
    ];
    let get = |digest| Options { inward: true, digest, ..Options::default() };
    for (how, change) in ways {
        for digest in [stage::Algorithm::Xxh3, stage::Algorithm::Blake3] {
            let bench = Bench::new();
            bench.tree("fast");
            bench.done(Verb::Copy, "fast", "slow/set");
            assert_eq!(bench.run(Verb::Copy, "slow/set", "back", get(digest)).state, State::Done);
            change(&bench.at("slow/set"));
            let status = bench.run(Verb::Copy, "slow/set", "again", get(digest));
            assert_eq!(status.state, State::Failed, "{how}: {status:?}");
            assert!(!bench.at("again").exists(), "{how}");
            if !how.contains("manifest") {
                // The same bytes at the destination make them no better.
                bench.done(Verb::Copy, "slow/set", "there");
                let status = bench.run(Verb::Copy, "slow/set", "there", get(digest));
                assert_eq!(status.state, State::Failed, "{how}: {status:?}");
            }
        }
    }
}

#[test]
fn a_destination_that_is_the_source_or_in_it_is_refused() {
    let bench = Bench::new();
    bench.tree("fast");
    fs::hard_link(bench.at("fast/one"), bench.at("other")).unwrap();
    for (from, to) in
        [("fast", "fast/a/copy"), ("fast", "fast"), ("fast/one", "other"), ("fast", "fast/copy")]
    {
        let place = |name| Place::of_path(&bench.at(name)).unwrap();
        let options = Options::default();
        let spec = JobSpec { verb: Verb::Move, source: place(from), destination: place(to), options };
        // At once where the paths show it, else when the job opens them.
        match bench.mover.submit(spec) {
            Err(error) => assert_eq!(error.class(), ErrorClass::Refused, "{from} to {to}: {error}"),
            Ok(id) => {
                let status = bench.mover.wait(id, Level::Durable, None).unwrap();
                assert_eq!(status.state, State::Failed, "{from} to {to}");
            }
        }
        assert!(bench.at("fast/one").exists() && bench.at("fast/large").exists(), "{from} to {to}");
    }
}

#[test]
fn a_fifo_in_a_tree_is_refused_and_nothing_appears() {
    let bench = Bench::new();
    bench.tree("fast");
    fifo(&bench.at("fast/a/fifo"));
    let status = bench.run(Verb::Move, "fast", "slow/ckpt", Options::default());
    assert_eq!(status.state, State::Failed);
    assert!(status.error.unwrap().message.contains("fifo"));
    assert!(!bench.at("slow/ckpt").exists());
    // What was copied is kept for another attempt, and goes when there is to be none.
    bench.mover.cancel(status.id).unwrap();
    assert_eq!(names(&bench.at("slow")), Vec::<String>::new());
    fs::remove_file(bench.at("fast/a/fifo")).unwrap();
    bench.done(Verb::Move, "fast", "slow/ckpt");
}

#[test]
fn a_failed_job_goes_on_when_it_is_asked_to() {
    let bench = Bench::new();
    bench.tree("fast");
    rustix::fs::mknodat(rustix::fs::CWD, bench.at("fast/fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let status = bench.run(Verb::Copy, "fast", "slow/ckpt", Options::default());
    assert_eq!(status.state, State::Failed);
    fs::remove_file(bench.at("fast/fifo")).unwrap();
    fs::remove_file(bench.at("fast/a/zero")).unwrap();
    fs::write(bench.at("fast/a-b/x"), "something else").unwrap();
    bench.mover.retry(status.id).unwrap();
    let status = bench.mover.wait(status.id, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), snapshot(&bench.at("fast")));
}

#[test]
fn a_second_mover_is_kept_out_of_a_journal() {
    let bench = Bench::new();
    let error = Mover::open(&MoverConfig::new(bench.at("state"))).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
}

#[test]
fn a_set_that_has_rotted_is_not_brought_back_and_one_that_was_changed_is() {
    let bench = Bench::new();
    bench.tree("fast");
    bench.done(Verb::Copy, "fast", "slow/ckpt");
    bench.done(Verb::Copy, "slow/ckpt", "back");
    assert_eq!(snapshot(&bench.at("back")), snapshot(&bench.at("fast")));
    let rot = |name: &str, offset, keep_time| {
        let file = fs::File::options().write(true).open(bench.at("slow/ckpt").join(name)).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"rot", offset).unwrap();
        if keep_time {
            file.set_modified(time).unwrap();
        }
    };
    rot("a/b/page", 17, false);
    bench.done(Verb::Copy, "slow/ckpt", "changed");
    rot("large", (8 << 20) + 5, true);
    let status = bench.run(Verb::Copy, "slow/ckpt", "again", Options::default());
    assert_eq!(status.state, State::Failed);
    let why = status.error.unwrap().message;
    assert!(why.contains("slow/ckpt/large") && why.contains("offset 8388608"), "{why}");
    assert!(!bench.at("again").exists());
}

#[test]
fn another_users_empty_directory_is_no_claim() {
    let bench = Bench::new();
    bench.tree("run");
    let claim = bench.at("slow/run");
    fs::create_dir(&claim).unwrap();
    fs::set_permissions(&claim, fs::Permissions::from_mode(0o1700)).unwrap();
    if let Err(error) = std::os::unix::fs::chown(&claim, Some(65_534), Some(65_534)) {
        println!("SKIP a directory of another user: {error}");
        return;
    }
    let before = fs::metadata(&claim).unwrap();
    let status = bench.run(Verb::Move, "run", "slow/run", Options::default());
    assert_eq!(status.state, State::Failed, "{status:?}");
    let after = fs::metadata(&claim).unwrap();
    assert_eq!((after.ino(), after.uid(), after.mode()), (before.ino(), before.uid(), before.mode()));
    assert!(bench.at("run/large").exists());
    // One's own is what a crash leaves on a file system without RENAME_NOREPLACE.
    std::os::unix::fs::chown(&claim, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    bench.done(Verb::Move, "run", "slow/run");
}
