//! What a new user meets first: helps, manual pages, errors as documents, and files that are not replaced.

mod common;

use std::process::{Command, Stdio};

use common::{memory_beside, names, place, run, skipped, works};

#[test]
fn help_is_a_verb_and_the_short_one_is_short() {
    let folder = place();
    for verbs in [&["sweep"][..], &["sweep", "plan"], &["stage", "mv"]] {
        let asked = works(folder.path(), &[&["help"], verbs].concat());
        assert_eq!(asked.out, works(folder.path(), &[verbs, &["--help"]].concat()).out, "{verbs:?}");
    }
    let (short, long) =
        (works(folder.path(), &["bench", "-h"]).out, works(folder.path(), &["bench", "--help"]).out);
    assert!(short.lines().count() * 2 < long.lines().count(), "{short}");
    assert!(
        short.contains("--iodepth") && !short.contains("Examples:") && long.contains("Examples:"),
        "{short}"
    );
    assert!(short.contains("`flashwright bench --help` has all of them"), "{short}");
    let came = run(folder.path(), &["help", "swep"]);
    assert_eq!((came.code, came.err.lines().next()), (2, Some("error: 'swep' is no verb of flashwright")));
}

#[test]
fn every_verb_has_a_manual_page_and_completions_are_shell() {
    let folder = place();
    works(folder.path(), &["pages", "."]);
    let pages = names(&folder.path().join("man1"));
    for page in ["flashwright.1", "flashwright-bench.1", "flashwright-sweep-plan.1", "flashwright-stage-mv.1"]
    {
        assert!(pages.iter().any(|name| name == page), "{page} of {pages:?}");
    }
    assert!(!pages.iter().any(|name| name == "flashwright-pages.1"), "{pages:?}");
    for page in &pages {
        let text = std::fs::read_to_string(folder.path().join("man1").join(page)).expect("reads");
        assert!(text.contains("\n.TH ") && text.contains(".SH SYNOPSIS"), "{page}");
    }
    let bash = folder.path().join("completions/flashwright.bash");
    let checked = Command::new("bash").arg("-n").arg(bash).stdin(Stdio::null()).status();
    match checked {
        Ok(status) => assert!(status.success()),
        Err(_) => skipped("SKIP the completions' syntax: there is no bash"),
    }
}

#[test]
fn with_json_an_error_is_a_document_too() {
    let folder = place();
    for (arguments, code, class, words) in [
        (
            &["bench", "--json", "--rw=read", "--target", "nowhere"][..],
            2,
            "invalid",
            "nowhere: no such file or device",
        ),
        (&["bench", "--json", "--bs=4x"], 2, "invalid", "--bs=4x"),
        (&["sweep", "status", "gone", "--json"], 2, "invalid", "gone: there is no such results file"),
    ] {
        let came = run(folder.path(), arguments);
        let document: serde_json::Value = serde_json::from_str(&came.out).expect("one document");
        assert_eq!(came.code, code, "{arguments:?}");
        assert_eq!(document["schema"], "flashwright.error/1");
        let error = &document["error"];
        assert_eq!((&error["class"], &error["exit_code"]), (&class.into(), &code.into()), "{error}");
        assert!(error["message"].as_str().is_some_and(|m| m.starts_with(words)), "{error}");
        assert!(error["hint"].is_string() && came.err.starts_with("error: "), "{}", came.err);
    }
    assert_eq!(run(folder.path(), &["bench", "--bs=4x"]).out, "", "nobody asked for a document");
}

#[test]
fn only_a_result_of_flashwright_is_replaced_unless_forced() {
    let folder = place();
    let path = |name: &str| folder.path().join(name);
    let bench = |more: &[&str]| {
        let what =
            ["bench", "--rw=read", "--size=1m", "--runtime=50ms", "--allow-unwritten", "--target", "mem:1m"];
        run(folder.path(), &[&what, more].concat())
    };
    std::fs::write(path("thesis.txt"), "the only copy\n").expect("writes");
    let came = bench(&["--output", "thesis.txt"]);
    assert_eq!(came.code, 3, "{}", came.err);
    assert!(
        came.err.contains("flashwright did not write it") && came.err.contains("--force"),
        "{}",
        came.err
    );
    assert_eq!(std::fs::read_to_string(path("thesis.txt")).expect("reads"), "the only copy\n");
    assert_eq!(bench(&["--output", "thesis.txt", "--force"]).code, 0);
    for again in ["once", "twice"] {
        assert_eq!(bench(&["--output", "thesis.txt"]).code, 0, "what it wrote itself, {again}");
        assert_eq!(bench(&["--json", "--output", "run.json"]).code, 0, "{again}");
        assert_eq!(bench(&["--output-format=fio-json", "--output", "fio.json"]).code, 0, "{again}");
    }
    for (name, form) in [("run.json", &[][..]), ("run.txt", &["--json"]), ("run.html", &[])] {
        let came = bench(&[&["--output", name], form].concat());
        assert_eq!(came.code, 2, "{name}: {}", came.err);
    }
}

#[test]
fn a_target_in_the_place_of_a_job_file_is_told() {
    let folder = place();
    std::fs::write(folder.path().join("data"), [0u8; 8192]).expect("writes");
    for name in ["data", "nowhere"] {
        let came = run(folder.path(), &["bench", name, "--rw=randread"]);
        let words = format!("error: {name}: is no job file\nhint: did you mean --target {name}?\n");
        assert_eq!((came.code, came.err), (2, words));
    }
}

#[test]
fn a_target_in_memory_is_called_so_first() {
    let folder = place();
    let Some(memory) = memory_beside(folder.path()) else { return };
    let file = format!("file:{}?size=1m", memory.path().join("data").display());
    let bench = ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--direct=0", "--target", &file];
    let came = works(folder.path(), &bench);
    assert!(came.out.lines().next().is_some_and(|line| line.contains("in memory, no drive")), "{}", came.out);
}

#[test]
fn a_report_that_cannot_be_written_costs_no_figures() {
    let folder = place();
    // A directory in the file's place stands for a disk without room, which root would write to all the same.
    std::fs::create_dir_all(folder.path().join("r/report.html")).expect("makes");
    let flags = ["--size=4m", "--runtime=10ms", "--passes=2", "--seed=7", "--protocol=dash"];
    let came = run(folder.path(), &[&["sweep", "--output", "r"], &flags[..]].concat());
    assert_eq!(came.code, 1, "{}", came.err);
    assert!(came.out.contains("4 KiB random write, depth 512"), "the figures: {}", came.out);
    assert!(!came.out.contains("report r/"), "{}", came.out);
    assert!(
        came.err.contains("all runs are kept") && came.err.contains("flashwright report r"),
        "{}",
        came.err
    );
}

#[test]
fn a_sweep_says_what_it_will_write() {
    let folder = place();
    let plan = works(folder.path(), &["sweep", "plan", "--budget=2m"]).out;
    assert!(
        plan.contains("writes for about 38 s, longer if reads are decided first: some 38 GB for each GB/s"),
        "{plan}"
    );
    let space = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/dash-io.toml");
    let plan = works(folder.path(), &["sweep", "plan", space]).out;
    assert!(plan.contains("these drives lose what is on them"), "{plan}");
}
