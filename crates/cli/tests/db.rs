//! `flashwright db` as a user runs it: both workloads on SQLite at small scale, documents, pages and refusals.

mod common;

use std::path::Path;

use common::{fits_schema, json, names, place, run, works};

/// Asserts a refusal of code 2, in one line with a hint, that says these words.
fn refused(folder: &Path, arguments: &[&str], words: &str) {
    let came = run(folder, arguments);
    assert_eq!((came.code, came.out.as_str()), (2, ""), "{arguments:?}: {came:#?}");
    let lines: Vec<_> = came.err.lines().collect();
    let is_whole = lines.len() == 2 && lines[0].starts_with("error: ") && lines[1].starts_with("hint: ");
    assert!(is_whole && lines[0].contains(words), "{words}: {came:#?}");
}

#[test]
fn a_database_is_loaded_asked_and_found_complete() {
    let folder = place();
    for (workload, rows) in [("ptf", "--rows=3000"), ("bionet", "--rows=300")] {
        let load = ["db", "load", workload, "--dir=.", rows, "--json"];
        let document = json(folder.path(), &load);
        fits_schema(folder.path(), "db-load", &document);
        assert_eq!(document["loaded"]["was_complete"], false);
        assert_eq!(json(folder.path(), &load)["loaded"]["was_complete"], true);
        let run = json(folder.path(), &["db", "run", workload, "--dir=.", "--explain", "--json"]);
        fits_schema(folder.path(), "db-run", &run);
        let queries = run["queries"].as_array().unwrap();
        assert!(queries.len() >= 10 && queries.len().is_multiple_of(2), "{}", queries.len());
        for pair in queries.chunks(2) {
            assert_eq!((&pair[0]["temperature"], &pair[1]["temperature"]), (&"cold".into(), &"warm".into()));
            assert_eq!(pair[0]["asked"]["answer"], pair[1]["asked"]["answer"]);
            assert!(pair[0]["plan"].as_str().is_some_and(|plan| !plan.is_empty()));
        }
    }
    let stream = [
        "db",
        "run",
        "ptf",
        "--dir=.",
        "--query=forward",
        "--rate=50",
        "--for=200ms",
        "--connections=2",
        "--json",
    ];
    let stream = json(folder.path(), &stream);
    fits_schema(folder.path(), "db-stream", &stream);
    assert_eq!(stream["stream"]["queries"], 10);
}

#[test]
fn tiers_are_compared_and_the_page_is_made_again_from_what_was_kept() {
    let folder = place();
    for tier in ["one", "other"] {
        std::fs::create_dir(folder.path().join(tier)).unwrap();
    }
    let compare = ["db", "compare", "ptf", "--tiers=a=one,b=other", "--rows=3000", "--blocks=2"];
    let queries = "--query=forward,column-scan";
    let document = json(folder.path(), &[&compare[..], &[queries, "--output=results", "--json"]].concat());
    fits_schema(folder.path(), "db-compare", &document);
    assert_eq!((&document["blocks"], document["contests"].as_array().unwrap().len()), (&2.into(), 4));
    assert_eq!(names(&folder.path().join("results")), ["compare.json", "report.html", "results.db"]);
    assert!(names(&folder.path().join("one")).is_empty(), "the database went with the comparison");
    let again = json(folder.path(), &["db", "report", "results", "--json"]);
    assert_eq!(again, document);
    let came = works(folder.path(), &["db", "report", "results"]);
    for words in ["Table 10", "Random share", "forward", "a over b"] {
        assert!(came.out.contains(words), "{words}: {}", came.out);
    }
    let twice = [&compare[..], &["--output=results"]].concat();
    refused(folder.path(), &twice, "has results of another comparison");
    // The same one has nothing left to do, and with more blocks goes on.
    let again = [&compare[..], &[queries, "--output=results", "--json"]].concat();
    assert_eq!(json(folder.path(), &again), document);
    let compare = ["db", "compare", "ptf", "--tiers=a=one,b=other", "--rows=3000", "--blocks=3"];
    let longer = json(folder.path(), &[&compare[..], &[queries, "--output=results", "--json"]].concat());
    assert_eq!((&longer["blocks"], &longer["tiers"]), (&3.into(), &document["tiers"]));
    assert!(names(&folder.path().join("one")).is_empty());
}

#[test]
fn alerts_come_in_while_cones_are_searched_and_nothing_stays() {
    let folder = place();
    let ingest = ["db", "ingest", "--dir=.", "--rows=2000", "--rate=50", "--cones=10", "--for=1s", "--json"];
    let document = json(folder.path(), &ingest);
    fits_schema(folder.path(), "db-ingest", &document);
    assert_eq!(document["ingested"]["alerts"], 50);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn wrong_requests_name_flag_and_value() {
    let folder = place();
    works(folder.path(), &["db", "load", "ptf", "--dir=.", "--rows=1000"]);
    for (arguments, words) in [
        (vec!["load", "ptf", "--dir=no"], "--dir=no: is not a directory"),
        (vec!["compare", "ptf", "--tiers=a=.,b=no"], "--tiers=b=no: is not a directory"),
        (vec!["load", "ptf", "--dir=.", "--rows=0"], "--rows=0"),
        (vec!["load", "ptf", "--dir=.", "--rows=1001"], "not ptf of 1001 rows"),
        (vec!["load", "atf", "--dir=."], "'atf' is not known"),
        (vec!["run", "bionet", "--dir=."], "there is no complete database"),
        (vec!["run", "ptf", "--dir=.", "--query=q5f"], "--query=q5f: is not a query of ptf"),
        (vec!["run", "ptf", "--dir=.", "--rate=2"], "--rate=2: is of one query"),
        (vec!["run", "ptf", "--dir=.", "--query=forward", "--rate=0"], "is not a number above zero"),
        (vec!["compare", "ptf", "--tiers=a=."], "is one tier"),
        (vec!["advise", "ptf", "--dir=.", "--try=jit=on"], "--engine=sqlite: has no settings to try"),
        (vec!["advise", "ptf", "--dir=.", "--engine=postgres", "--try=jit"], "has no ="),
        (
            vec!["advise", "ptf", "--dir=.", "--engine=postgres", "--try=jit=on"],
            "there is no complete database",
        ),
        (vec!["compare", "ptf", "--tiers=a=.,b=."], "has the name or the directory of a"),
        (vec!["compare", "ptf", "--tiers=a"], "'a' is not NAME=DIR"),
    ] {
        refused(folder.path(), &[&["db"], &arguments[..]].concat(), words);
    }
}
