//! Reading a space: what it means, and how it complains.

use sweep::space::{DASH14, Overrides, Space};

fn examples() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn complaint(text: &str) -> (String, String) {
    let error = Space::parse("s.toml", text).expect_err("must be refused");
    (error.to_string(), error.hint().unwrap_or_default().to_owned())
}

#[test]
fn every_example_is_a_space_and_opens_with_its_question() {
    let mut seen = 0;
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.contains("[space]") {
            continue;
        }
        let space = Space::load(&path).unwrap_or_else(|e| panic!("{e}"));
        assert!(text.starts_with("# ") && space.text.lines().next().unwrap().ends_with('?'), "{path:?}");
        assert!(space.control.is_some(), "{path:?} has no control");
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} examples found");
}

#[test]
fn the_fourteen_are_four_works_in_blocks_and_84_runs_in_the_papers_passes_controlled_by_test_type_9() {
    let space = Space::parse("dash14.toml", DASH14).unwrap();
    let stages = sweep::plan::blocks::stages(&space.points, &space.rules(1));
    let sizes: Vec<usize> = stages[0].contests.iter().map(|contest| contest.members.len()).collect();
    assert_eq!((stages.len(), sizes), (1, vec![4, 4, 3, 3]));
    assert_eq!(space.budget, Some(std::time::Duration::from_secs(120)));
    let dash = Overrides { protocol: Some(sweep::plan::Protocol::Dash), ..Overrides::default() };
    let space = space.with(&dash).unwrap();
    let plan = space.plan(1);
    assert_eq!((plan.points.len(), plan.runs.len()), (14, 84));
    let control = &plan.points[plan.rules.control.unwrap() as usize];
    assert_eq!(control.test_type.unwrap().number(), 9);
    let estimate = plan.estimate(sweep::plan::OVERHEAD_PER_RUN);
    assert_eq!(estimate.unbounded, 0);
    assert!(estimate.time < std::time::Duration::from_secs(180), "{estimate:?}");
}

#[test]
fn points_are_numbered_in_written_order_with_the_last_dimension_fastest() {
    let space = Space::parse("s", "[space]\nrw = ['randread', 'randwrite']\nbs = ['4k', 65536]").unwrap();
    let names: Vec<&str> = space.points.iter().map(|p| p.workload.name.as_str()).collect();
    assert_eq!(
        names,
        ["rw=randread bs=4k", "rw=randread bs=64k", "rw=randwrite bs=4k", "rw=randwrite bs=64k"]
    );
    assert!(space.points.iter().zip(0..).all(|(p, id)| p.id == id));
    // Alphabetical order would put bs first.
    let swapped = Space::parse("s", "[space]\nbs = ['4k', 65536]\nrw = ['randread', 'randwrite']").unwrap();
    assert_eq!(swapped.points[1].workload.name, "bs=4k rw=randwrite");
}

#[test]
fn base_settings_reach_every_point() {
    let space = Space::parse(
        "s",
        "[sweep]\nruntime = '250ms'\n[base]\nrw = 'randwrite'\nrandom_distribution = 'zipf:1.2'\nsize = '1g'\ntarget = '/dev/null'\n[space]\niodepth = [1, 2]",
    )
    .unwrap();
    for point in &space.points {
        assert_eq!(point.target, "/dev/null");
        let w = &point.workload;
        assert_eq!((w.rw.word(), w.size, w.time_based), ("randwrite", Some(1 << 30), true));
        assert_eq!(w.runtime, Some(std::time::Duration::from_millis(250)));
    }
}

#[test]
fn filters_leave_out_what_they_name_and_nothing_else() {
    let text = "[space]\nioengine = ['io_uring', 'psync']\niodepth = [1, 8, 32]\n[[exclude]]\nioengine = 'psync'\niodepth = [8, 32]";
    let space = Space::parse("s", text).unwrap();
    assert_eq!((space.points.len(), space.excluded), (4, 2));
    let only = Space::parse("s", &text.replace("[[exclude]]", "[[only]]")).unwrap();
    assert_eq!((only.points.len(), only.excluded), (2, 4));
}

#[test]
fn complaints_name_file_line_key_and_value_and_give_a_hint() {
    for (text, message, hint) in [
        ("[space]\niodpeth = [1]", "s.toml:2: iodpeth: is not known in [space]", "did you mean 'iodepth'?"),
        ("[space]\nqueue_depth = [1]", "s.toml:2: queue_depth: is not known", "did you mean 'iodepth'?"),
        ("[space]\nbs = [4096, '4k']", "s.toml:2: bs='4k': stands here twice", "once"),
        ("[space]\nbs = ['4k',\n  '8q']", "s.toml:3: bs='8q': ", "4096"),
        ("[space]\nrw = ['raed']", "s.toml:2: rw='raed': is not known", "did you mean \"read\"?"),
        ("[space]\nbs = '4k'", "s.toml:2: bs='4k': is not a list", "[base]"),
        ("[space]\nbs = []", "s.toml:2: bs=[]: has no value", ""),
        (
            "[space]\ntest_type = [1]\nbs = ['4k']",
            "s.toml:3: bs: is fixed by the dimension test_type",
            "not both",
        ),
        (
            "[base]\niodepth = 4\n[space]\ntest_type = [1]",
            "s.toml:2: iodepth: is fixed by the dimension test_type",
            "",
        ),
        ("[space]\ntest_type = [15]", "s.toml:2: test_type=15: ", "[1, 2"),
        ("[base]\nbs = '4k'\n[space]\nbs = ['4k']", "s.toml:2: bs: stands in [space] as well", ""),
        (
            "[sweep]\npases = 3\n[space]\nbs = ['4k']",
            "s.toml:2: pases: is not known in [sweep]",
            "did you mean 'passes'?",
        ),
        (
            "[sweep]\npasses = 0\n[space]\nbs = ['4k']",
            "s.toml:2: passes=0: must be a whole number from 1",
            "",
        ),
        (
            "[sweep]\nprotocol = 'dash'\npasses = 1\n[space]\nbs = ['4k']",
            "s.toml:3: passes: the only pass would be set aside",
            "discard_first",
        ),
        ("[sweep]\nruntime = '5 parsecs'\n[space]\nbs = ['4k']", "s.toml:2: runtime='5 parsecs': ", "500ms"),
        (
            "[sweep]\nruntime = 1\n[base]\nruntime = 2\n[space]\nbs = ['4k']",
            "s.toml:2: runtime=1: stands in [sweep] and in [base]",
            "",
        ),
        (
            "[sweep]\ncontrol = { iodepth = 3 }\n[space]\niodepth = [1]",
            "s.toml:2: control: no point has iodepth=3",
            "",
        ),
        (
            "[sweep]\nlimits = { points = 3 }\n[space]\niodepth = [1, 2, 3, 4]",
            "s.toml: [space]: has more than 3 points",
            "limits",
        ),
        (
            "[sweep]\nlimits = { time = '1s' }\n[space]\niodepth = [1, 2, 3, 4]",
            "s.toml: limits.time: the plan takes about",
            "raise",
        ),
        ("[spaces]\nbs = ['4k']", "s.toml:1: spaces: is not known in a space", "did you mean 'space'?"),
        ("[sweep]\nname = 'x'", "s.toml:1: [space]: has no dimension", "iodepth"),
        ("[space]\nbs = ['4k'", "s.toml:2: ", "TOML"),
        ("[space]\nbs = ['4k']\nbs = ['8k']", "s.toml:3: duplicate key", "TOML"),
        (
            "[space]\nbs = ['4k']\n[[exclude]]\niodepth = 3",
            "s.toml:4: iodepth: is not a dimension of this space",
            "",
        ),
        (
            "[space]\nbs = ['4k']\n[[exclude]]\nbs = '8k'",
            "s.toml:4: bs='8k': is not among the dimension's values",
            "they are 4k",
        ),
        ("[space]\nbs = ['4k']\n[[exclude]]\nbs = '4k'", "leave no point", "loosen"),
        (
            "[space]\nbs = ['4k']\n[exclude]\nbs = '4k'",
            "s.toml:3: exclude: is a list of tables",
            "[[exclude]]",
        ),
        (
            "[base]\nsize = '64k'\n[space]\nbs = ['4k', '1m']",
            "s.toml:2: size=64k: is smaller than one block (at the point bs=1m)",
            "[[exclude]]",
        ),
        (
            "[space]\niodepth = [1, 4]\niodepth_batch = [1, 4]",
            "s.toml:3: iodepth_batch=4: must not exceed iodepth (at the point iodepth=1 iodepth_batch=4)",
            "[[exclude]]",
        ),
    ] {
        let (got, got_hint) = complaint(text);
        assert!(got.contains(message), "{text}\n  got: {got}\n want: {message}");
        assert!(got_hint.contains(hint), "{text}\n  got: {got_hint}\n want: {hint}");
        assert!(!got.contains('\n'), "an error is one line: {got}");
    }
}

#[test]
fn a_space_of_a_few_lines_cannot_ask_for_more_than_memory_holds() {
    let values: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
    let values = values.join(", ");
    let text = format!(
        "[space]\niodepth = [{values}]\nnumjobs = [{values}]\nfdatasync = [{values}]\nrandseed = [{values}]"
    );
    assert!(complaint(&text).0.contains("combinations"));
    let text = "[sweep]\npasses = 10000\n[space]\nfdatasync = [".to_owned()
        + &(0..2000).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
        + "]";
    assert!(complaint(&text).0.contains("would make 20000000 runs"));
}

#[test]
fn flags_take_the_place_of_the_files_words_or_contradict_it_clearly() {
    let space = || Space::parse("s", "[space]\niodepth = [1, 2]").unwrap();
    let one = space().with(&Overrides { targets: vec!["/a".into()], ..Overrides::default() }).unwrap();
    assert!(one.points.iter().all(|p| p.target == "/a"));
    let overrides = Overrides {
        targets: vec!["/a".into(), "/b".into()],
        passes: Some(2),
        runtime: Some(std::time::Duration::from_secs(2)),
        ..Overrides::default()
    };
    let two = space().with(&overrides).unwrap();
    assert_eq!((two.points.len(), two.passes), (4, 2));
    assert_eq!(two.points[3].settings["target"], "/b");
    assert_eq!(two.points[3].workload.runtime, Some(std::time::Duration::from_secs(2)));
    for (text, overrides, flag) in [
        (
            "[space]\ntarget = ['/x']",
            Overrides { targets: vec!["/a".into()], ..Overrides::default() },
            "--target",
        ),
        (
            "[space]\nbs = ['4k']",
            Overrides { targets: vec!["/a".into(), "/a".into()], ..Overrides::default() },
            "--target",
        ),
        ("[space]\nbs = ['4k']", Overrides { passes: Some(0), ..Overrides::default() }, "--passes"),
        (
            "[space]\nruntime = [1, 2]",
            Overrides { runtime: Some(std::time::Duration::from_secs(1)), ..Overrides::default() },
            "--runtime",
        ),
    ] {
        let error = Space::parse("s", text).unwrap().with(&overrides).unwrap_err();
        assert!(error.to_string().contains(flag), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Space::load(std::path::Path::new("/nonexistent/s.toml")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/s.toml"));
    assert!(std::error::Error::source(&error).is_some());
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(text in "(?s)(\\[(sweep|base|space|\\[exclude\\]|\\[only\\])\\]\n|[a-z_]{1,12} = |[\\[\\]{}'\",0-9.\n =-]|bs|rw|iodepth|passes|control){0,40}") {
        let _ = Space::parse("s", &text);
    }
}

#[test]
fn a_space_says_in_which_state_its_targets_are_to_be() {
    let space = |text: &str| Space::parse("s", text).unwrap();
    assert!(space("[space]\niodepth = [1, 2]").prepare.is_nothing());
    let asked = space("[sweep]\nprecondition = 'steady'\npurge = true\n[space]\niodepth = [1, 2]");
    assert_eq!((asked.prepare.how.word(), asked.prepare.purge), ("steady", true));
    assert_eq!(asked.plan(1).rules.prepare, asked.prepare);
    let (text, hint) = complaint("[sweep]\nprecondition = 'full'\n[space]\niodepth = [1]");
    assert!(text.contains("precondition") && text.contains("full"), "{text}");
    assert_eq!(hint, "\"none\", \"fill\" or \"steady\"");
}
