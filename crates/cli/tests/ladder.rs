//! `flashwright probe --ladder`. What is measured is never judged here: any machine may be slow, shared, or strange.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{
    command, ended_and_printed, finish, fits_schema, json, names, place, refused, run, signal, wait_until,
    works, written,
};
use serde_json::Value;

/// As short as it goes.
const SHORT: [&str; 5] = ["probe", "--ladder", "--runtime=5ms", "--rounds=2", "--max-set=1m"];

fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SHORT.iter().copied().chain(more.iter().copied()).collect()
}

fn level<'a>(document: &'a Value, name: &str) -> &'a Value {
    let levels = document["levels"].as_array().expect("levels");
    levels.iter().find(|level| level["name"] == name).unwrap_or_else(|| panic!("no {name} in {document:#}"))
}

const FOUR: [&str; 4] =
    ["sequential_write_bytes_per_s", "sequential_read_bytes_per_s", "random_write_iops", "random_read_iops"];

#[test]
fn a_directory_is_a_level_with_all_figures_and_nothing_stays_in_it() {
    let folder = place();
    let document = json(folder.path(), &short(&[".", "--size=16m", "--json"]));
    fits_schema(folder.path(), "ladder", &document);
    assert_eq!(
        (&document["schema"], &document["interrupted"]),
        (&"flashwright.ladder/1".into(), &false.into())
    );
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    let place = folder.path().canonicalize().expect("is there").display().to_string();
    let here = level(&document, &place);
    for figure in FOUR {
        assert!(here["figures"][figure]["value"].as_f64() > Some(0.0), "{figure}: {here:#}");
    }
    assert!(here["latency_ns"]["value"].as_f64() > Some(0.0) && here["latency_cycles"]["value"].is_number());
    assert_eq!(here["latency_ns"]["samples"], 2);
    assert_eq!(here["requests"]["set_bytes"], 16 << 20);
    assert!(document["curve"].as_array().is_some_and(|curve| curve.len() > 20));
    assert!(document["method"]["frequency_hz"]["value"].as_f64() > Some(0.0));
    gaps_are_between_neighbours(&document);
}

/// Each gap is the ratio of two levels that follow each other, and the widest is the largest of them.
fn gaps_are_between_neighbours(document: &Value) {
    let known: Vec<(&str, f64)> = document["levels"]
        .as_array()
        .expect("levels")
        .iter()
        .filter_map(|level| Some((level["name"].as_str()?, level["latency_ns"]["value"].as_f64()?)))
        .collect();
    let gaps = document["gaps"].as_array().expect("gaps");
    assert_eq!(gaps.len() + 1, known.len(), "{document:#}");
    let mut largest: f64 = 0.0;
    for (gap, pair) in gaps.iter().zip(known.windows(2)) {
        assert_eq!((gap["nearer"].as_str(), gap["farther"].as_str()), (Some(pair[0].0), Some(pair[1].0)));
        let ratio = gap["ratio"].as_f64().expect("a ratio");
        assert!((ratio / (pair[1].1 / pair[0].1) - 1.0).abs() < 1e-9 && ratio >= 1.0);
        largest = largest.max(ratio);
    }
    assert_eq!(document["widest"]["ratio"].as_f64(), Some(largest));
}

#[test]
fn it_is_told_on_a_screen_of_any_width_and_as_a_page_that_needs_no_network() {
    let folder = place();
    for columns in ["50", "80", "200"] {
        let arguments = short(&["--remote", "mem:8m", ".", "--size=8m", "--html", "page.html"]);
        let came = finish(command(folder.path(), &arguments).env("COLUMNS", columns));
        assert_eq!((came.code, came.err.as_str()), (0, ""), "{}", came.out);
        for word in ["level", "mem:8m", "The widest gap is from ", "seq. write", "memory of another node"] {
            assert!(came.out.contains(word), "{word} is missing at {columns}: {}", came.out);
        }
        assert!(!came.out.contains('\u{1b}'), "colours though nobody watches");
        // In between it depends on how long the folder's name is.
        if columns != "80" {
            assert_eq!(came.out.contains('━'), columns == "200", "{}", came.out);
        }
    }
    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("was written");
    for word in
        ["id=\"hierarchy\"", "id=\"chase\"", "id=\"bandwidth-of-levels\"", "default-src 'none'", "mem:8m"]
    {
        assert!(page.contains(word), "{word} is missing");
    }
    assert_eq!(names(folder.path()), ["page.html"]);
}

#[test]
fn what_somebody_made_is_only_read_unless_it_is_named_for_destruction() {
    let folder = place();
    written(folder.path(), "data", 8);
    let before = std::fs::read(folder.path().join("data")).expect("reads");
    let document = json(folder.path(), &short(&["data", "--json"]));
    let data = level(&document, "data");
    for (figure, there) in FOUR.into_iter().zip([false, true, false, true]) {
        assert_eq!(data["figures"][figure].is_object(), there, "{figure}: {data:#}");
    }
    assert!(std::fs::read(folder.path().join("data")).expect("reads") == before, "its contents changed");
    let document = json(folder.path(), &short(&["data", "--destroy", "data", "--json"]));
    let data = level(&document, "data");
    assert!(FOUR.iter().all(|figure| data["figures"][*figure].is_object()), "{data:#}");
}

#[test]
fn without_a_path_the_drives_of_the_machine_are_read_or_said_not_to_be_readable() {
    let folder = place();
    let document = json(folder.path(), &short(&["--json"]));
    fits_schema(folder.path(), "ladder", &document);
    for level in document["levels"].as_array().expect("levels") {
        let is_memory = ["cache", "memory", "far_memory"].iter().any(|kind| level["kind"] == **kind);
        assert!(is_memory || level["figures"]["random_write_iops"].is_null(), "{level:#}");
    }
    let absent = document["absent"].as_array().expect("a list");
    assert!(absent.iter().any(|absent| absent["what"] == "memory of another host"), "{document:#}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_level_that_cannot_be_is_told_before_anything_is_measured() {
    let folder = place();
    let at = folder.path();
    for (arguments, words) in [
        (
            &["probe", "--rounds=2"][..],
            "error: --rounds needs --ladder\nhint: add --ladder, or drop --rounds\n",
        ),
        (
            &["probe", "--ladder", "--rounds=1"],
            "error: --rounds=1: too few for an interval\nhint: 2 at least; 5 by default\n",
        ),
        (
            &["probe", "--ladder", "--runtime=1ms"],
            "error: --runtime=1.00 ms: too short to measure anything\nhint: 5ms at least; 1s by default\n",
        ),
        (
            &["probe", "--ladder", "--max-set=4k"],
            "error: --max-set=4k: too small\nhint: 64k at least; eight times the last cache by default\n",
        ),
        (
            &["probe", "--ladder", "--destroy=/dev/x", "."],
            "error: --destroy=/dev/x: is not measured\nhint: spell it as in the list of paths, or in --remote\n",
        ),
        (
            &["probe", "--ladder", "--html=no/such/page.html"],
            "error: --html=no/such/page.html: there is no directory no/such\nhint: make it first, or name another file\n",
        ),
        (
            &["probe", "--ladder", "/no/such/place"],
            "error: /no/such/place: cannot be surveyed: No such file or directory (os error 2)\n\
             hint: name an existing file, directory or block device\n",
        ),
        (
            &["probe", "--ladder", "--remote=mem:8m", "--remote=mem:8m"],
            "error: mem:8m is named twice\nhint: name it once\n",
        ),
    ] {
        refused(at, arguments, 2, words);
    }
    let came = run(at, &["probe", "--ladder", "--remote=smoke:signals"]);
    assert_eq!((came.code, came.out.as_str()), (2, ""));
    assert!(
        came.err.starts_with("error: --remote=smoke:signals: 'smoke:signals': 'smoke' is not a kind"),
        "{}",
        came.err
    );
    // What was never written measures nothing.
    std::fs::File::create(at.join("hole")).and_then(|file| file.set_len(8 << 20)).expect("makes");
    let came = run(at, &short(&["hole"]));
    assert_eq!((came.code, came.out.as_str(), came.err.lines().count()), (3, "", 2), "{}", came.err);
}

#[test]
fn an_interrupted_ladder_keeps_what_was_measured() {
    let folder = place();
    let arguments =
        ["probe", "--ladder", "--rounds=100000", "--runtime=4s", "--max-set=64k", ".", "--size=1m", "--json"];
    let mut child = command(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    // A measurement takes a tenth of a second of the thread's CPU time, twice that with its warming.
    wait_until("the ladder to be under way", || cpu_seconds(child.id(), "ladder") > 2.0);
    signal(&child, "-INT");
    let (status, out, err) = ended_and_printed(&mut child);
    assert_eq!(status.code(), Some(130));
    let document: Value = serde_json::from_str(&out).expect("one document");
    assert_eq!(document["interrupted"], true);
    assert!(document["curve"].as_array().is_some_and(|curve| !curve.is_empty()), "{document:#}");
    assert!(err.starts_with("error: interrupted; the figures are of the time before"), "{err}");
    fits_schema(folder.path(), "ladder", &document);
    assert!(names(folder.path()).is_empty());
}

/// CPU time of a process's threads of this name (proc(5)); 0 where there is none.
fn cpu_seconds(process: u32, thread: &str) -> f64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0.0 };
    let one = |path: &Path| {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let (_, fields) = stat.split_once(&format!("({thread}) "))?;
        let ticks = |i: usize| fields.split(' ').nth(i)?.parse::<f64>().ok();
        // utime and stime, in hundredths of a second; the first field here is the third of all.
        Some((ticks(11)? + ticks(12)?) / 100.0)
    };
    tasks.filter_map(|task| one(&task.ok()?.path())).sum()
}

#[test]
fn its_help_names_the_flags() {
    let folder = place();
    let help = works(folder.path(), &["probe", "--help"]).out;
    for flag in
        ["--ladder", "--remote", "--destroy", "--runtime", "--rounds", "--max-set", "--size", "--html"]
    {
        assert!(help.contains(flag), "{flag}: {help}");
    }
}
