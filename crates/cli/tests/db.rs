//! `flashwright db` as a user runs it: both workloads on SQLite at small scale, documents, pages and refusals.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use database::ask::{Answer, Asked, PagesIn, Temperature};
use database::compare::{LoadedTier, Plan, Run};
use database::dataset::{Dataset, Loaded, Workload};
use database::engine::{Cost, EngineFacts};
use database::query::Query;
use database::store::{Meta, Store};

use common::{command, ended_and_printed, fits_schema, json, names, place, run, signal, works};

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
        let bytes = |of: &serde_json::Value| of.as_f64().unwrap();
        let ratio = bytes(&document["estimated_bytes"]) / bytes(&document["loaded"]["size_bytes"]);
        assert!((0.8..1.2).contains(&ratio), "{workload}: {ratio}");
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
    assert_eq!(document["reasons"], serde_json::json!([]), "nothing is decided after two blocks");
    assert_eq!((&document["blocks"], document["contests"].as_array().unwrap().len()), (&2.into(), 4));
    assert_eq!(names(&folder.path().join("results")), ["compare.json", "report.html", "results.db"]);
    assert!(names(&folder.path().join("one")).is_empty(), "the database went with the comparison");
    let again = json(folder.path(), &["db", "report", "results", "--json"]);
    assert_eq!(again, document);
    let came = works(folder.path(), &["db", "report", "results"]);
    // After two blocks no ratio is a fact.
    for words in ["a against b: nothing is decided yet", "Table 10", "Random share", "forward", "a over b"] {
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

/// Results of a comparison of flash and disk in so many blocks: time, CPU time (ms) and blocks of a cold query on each.
fn results(folder: &Path, name: &str, of: [(u64, u64, u64); 2], blocks: u32) -> serde_json::Value {
    let tier = |name: &str| LoadedTier {
        name: name.to_owned(),
        directory: folder.to_owned(),
        is_in_memory: false,
        engine: EngineFacts { version: "SQLite 3".to_owned(), settings: Vec::new(), is_owned: true },
        loaded: Loaded { was_complete: true, tables: Vec::new(), finish_s: 0.0, size_bytes: 1 << 20 },
        direct: None,
    };
    let tiers = ["flash", "disk"].map(tier).to_vec();
    let dataset = Dataset::new(Workload::Ptf, 1000, 7).unwrap();
    let names = ["flash", "disk"].map(str::to_owned).to_vec();
    let plan = "SEARCH c USING INDEX candidate_sky\nSEARCH b\nSEARCH b".to_owned();
    let plans = vec![Plan { query: Query::Forward, tiers: names, plan }];
    let meta =
        Meta { dataset, queries: vec![Query::Forward], tiers: tiers.clone(), plans, notes: Vec::new() };
    let mut store = Store::create(&folder.join(name), &meta).unwrap();
    for block in 0..blocks {
        let run = |(tier, (ms, cpu, read)): (usize, (u64, u64, u64))| {
            let cost = Cost {
                // No two blocks are alike to the last digit.
                elapsed_ns: ms * 1_000_000 + u64::from(block) * 1000,
                cpu_ns: Some(cpu * 1_000_000),
                io_ns: Some((ms - cpu) * 1_000_000),
                blocks_read: Some(read),
                block_bytes: 4096,
                ..Cost::default()
            };
            let pages = PagesIn { bytes: 100, runs: 10, scattered_bytes: 90 };
            let asked = Asked { answer: Answer::default(), cost, pages: Some(pages) };
            Run { block, tier, query: Query::Forward, key: 0, temperature: Temperature::Cold, asked }
        };
        let runs: Vec<_> = of.into_iter().enumerate().map(run).collect();
        store.block(&tiers, &runs).unwrap();
    }
    drop(store);
    let document = json(folder, &["db", "report", name, "--json"]);
    fits_schema(folder, "db-compare", &document);
    document
}

#[test]
fn a_decided_query_says_what_it_gained_by_and_an_undecided_one_says_nothing() {
    let folder = place();
    let mut number = 0;
    let mut reasons = |flash, disk, blocks| {
        number += 1;
        results(folder.path(), &format!("{number}.db"), [flash, disk], blocks)["reasons"].clone()
    };
    let said = |reasons: &serde_json::Value| reasons[0]["words"].as_str().unwrap().to_owned();
    let reads = reasons((20, 15, 500), (1000, 15, 500), 6);
    let words = "flash waits 5.00 ms for reads, disk 985 ms: 100 % of the difference; both read 500 blocks, 90.0 % of the bytes at \
                 random: the time of a read counts; 75.0 % of what is left is CPU time";
    assert_eq!(said(&reads), words);
    let came = works(folder.path(), &["db", "report", "1.db", "--html", "page.html"]);
    assert!(came.out.contains("What each was gained by"), "{}", came.out);
    assert!(std::fs::read_to_string(folder.path().join("page.html")).unwrap().contains(words));
    // The other way round, and with other blocks.
    let back = said(&reasons((1000, 10, 900), (100, 10, 500), 6));
    assert!(back.starts_with("disk waits 90.0 ms for reads, flash 990 ms: "), "{back}");
    assert!(back.contains("disk reads 500 blocks, flash 900"), "{back}");
    let cpu = said(&reasons((20, 15, 5), (100, 90, 5), 6));
    assert!(cpu.contains("of CPU time") && cpu.contains("not of the tiers"), "{cpu}");
    let shares = reasons((20, 10, 5), (120, 30, 5), 6);
    let share = |name: &str| shares[0][name].as_f64().unwrap();
    assert!((share("reads_share") - 0.8).abs() < 1e-9 && (share("cpu_share") - 0.2).abs() < 1e-9, "{shares}");
    for (disk, blocks) in [((100, 50, 5), 6), ((9000, 50, 5), 2)] {
        let none = reasons((100, 50, 5), disk, blocks);
        assert_eq!(none, serde_json::json!([]), "equivalent, and too few blocks");
    }
}

#[test]
fn a_report_has_the_forms_of_a_sweeps_and_says_what_was_asked_and_how_it_was_answered() {
    let folder = place();
    let document = results(folder.path(), "results.db", [(20, 15, 500), (1000, 15, 500)], 6);
    let asks = Query::Forward.asks();
    assert_eq!(document["queries"][0]["asks"], asks);
    assert_eq!(document["plans"][0]["tiers"], serde_json::json!(["flash", "disk"]));
    let report = |more: &[&str]| run(folder.path(), &[&["db", "report", "results.db"], more].concat());
    let form = |format: &str| works(folder.path(), &["db", "report", "results.db", "--format", format]).out;
    let markdown = form("md");
    assert!(
        markdown.starts_with("# db compare\n\n[//]: # (flashwright report)\n\n**flash is "),
        "{markdown}"
    );
    for words in [
        &format!("| forward | {asks} | "),
        "| forward | all | SEARCH c USING INDEX candidate\\_sky |\n|  |  | SEARCH b |\n|  |  | SEARCH b |",
        "| Query | flash (ms) | disk (ms) |",
        "\n| --- | ---: | ---: |",
        "## Formulas",
    ] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
    let csv = form("csv");
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 6 * 2, "{csv}");
    assert!(lines[0].starts_with("block,tier,query,temperature,key,elapsed_ns,"), "{csv}");
    let first = "0,flash,forward,cold,0,20000000,15000000,5000000,500,,4096,,0,0000000000000000,100,10,90";
    assert_eq!(lines[1], first);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&form("json")).unwrap(), document);
    let svg = form("svg");
    assert!(svg.starts_with("<svg ") && svg.contains("<desc>flashwright report</desc>"), "{svg}");
    assert!(svg.contains("Speed-up over disk, cold") && svg.contains("forward, flash"), "{svg}");
    // A page goes beside the results, and the other forms where they are sent; what is ours is replaced.
    let page = form("html");
    assert_eq!(page, "report.html\n");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains(asks) && page.contains("How each is answered"), "{page}");
    for _ in 0..2 {
        for file in ["runs.csv", "page.svg", "ticket.md"] {
            works(folder.path(), &["db", "report", "results.db", "--output", file]);
        }
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("runs.csv")).unwrap(), csv);
    assert_eq!(std::fs::read_to_string(folder.path().join("ticket.md")).unwrap(), markdown);
    std::fs::write(folder.path().join("mine.csv"), "block,of,wood\n").unwrap();
    for (more, code, words) in [
        (&["--output", "mine.csv"][..], 3, "--output=mine.csv: is there already"),
        (&["--output", "results.db"], 3, "--output=results.db: "),
        (&["--output", "page.pdf"], 2, "--output=page.pdf: no form has the extension .pdf"),
        (&["--output", "mine.csv", "--format", "md"], 2, "--output=mine.csv: its name says another format"),
        (&["--json", "--format", "md"], 2, "--format"),
    ] {
        let came = report(more);
        assert_eq!((came.code, came.out.is_empty()), (code, more[0] != "--json"), "{more:?}: {came:#?}");
        assert!(came.err.starts_with("error: ") && came.err.contains(words), "{words}: {came:#?}");
    }
    works(folder.path(), &["db", "report", "results.db", "--output", "mine.csv", "--force"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("mine.csv")).unwrap(), csv);
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
fn a_load_says_what_it_will_take_and_a_tier_without_the_room_is_left_as_it_was() {
    let folder = place();
    let came = works(folder.path(), &["db", "load", "ptf", "--dir=.", "--rows=3000"]);
    let line = came.err.lines().next().unwrap_or_default();
    assert!(line.starts_with("the database takes about ") && line.ends_with("are free"), "{came:?}");
    let empty = place();
    std::fs::create_dir(empty.path().join("other")).unwrap();
    let rows = "--rows=1000000000000";
    for (arguments, flag) in [
        (vec!["load", "ptf", "--dir=.", rows], "--dir=."),
        (vec!["load", "ptf", "--dir=.", rows, "--engine=postgres"], "--dir=."),
        (vec!["compare", "ptf", "--tiers=a=.,b=other", rows], "--tiers=a=."),
    ] {
        refused(empty.path(), &[&["db"], &arguments[..]].concat(), &format!("{flag}: has "));
        let came = run(empty.path(), &[&["db"], &arguments[..]].concat());
        assert!(came.err.contains("MiB free, and the database takes about"), "{came:?}");
        assert_eq!(names(empty.path()), ["other"]);
    }
}

/// Interrupts a command later and later, until it has figures, which it prints before it ends.
fn interrupted(folder: &Path, arguments: &[&str]) -> (serde_json::Value, String) {
    for attempt in 0..8 {
        let mut command = command(folder, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500 << attempt));
        signal(&child, "-INT");
        let (status, out, err) = ended_and_printed(&mut child);
        // It may not have listened to signals yet.
        assert!([Some(130), None].contains(&status.code()), "{status:?}: {err}");
        let document: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        if document["error"].is_null() && !document.is_null() {
            return (document, err);
        }
    }
    panic!("no figures after two minutes");
}

#[test]
fn an_interrupted_stream_prints_the_figures_so_far_and_leaves_nothing() {
    let folder = place();
    works(folder.path(), &["db", "load", "ptf", "--dir=.", "--rows=3000"]);
    let run = ["db", "run", "ptf", "--dir=.", "--query=forward", "--rate=50", "--for=1h", "--json"];
    let (document, err) = interrupted(folder.path(), &run);
    fits_schema(folder.path(), "db-stream", &document);
    assert!(document["stream"]["queries"].as_u64().unwrap() > 0);
    assert_eq!(document["stream"]["is_interrupted"], true);
    assert!(err.starts_with("error: interrupted\nhint: the figures are of what came until then"), "{err}");
    let empty = place();
    let ingest = ["db", "ingest", "--dir=.", "--rows=2000", "--rate=50", "--cones=40", "--for=1h", "--json"];
    let (document, _) = interrupted(empty.path(), &ingest);
    fits_schema(empty.path(), "db-ingest", &document);
    assert_eq!(document["ingested"]["is_interrupted"], true);
    assert!(document["ingested"]["alerts"].as_u64().unwrap() > 0);
    assert!(names(empty.path()).is_empty());
}

#[test]
fn a_stream_on_a_database_that_stays_in_memory_is_refused() {
    let folder = place();
    works(folder.path(), &["db", "load", "ptf", "--dir=.", "--rows=3000"]);
    let stream = ["db", "run", "ptf", "--dir=.", "--query=object", "--rate=20", "--for=100ms"];
    works(folder.path(), &stream);
    // Pages that a process has mapped are not dropped.
    let maps = "import mmap, sys\n\
                file = open('flashwright-ptf.sqlite', 'rb')\n\
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n\
                sum(mapped[::4096])\n\
                print('mapped', flush=True)\n\
                sys.stdin.read()";
    let mut python = Command::new("python3");
    python.args(["-c", maps]).current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut python) = python.spawn() else {
        return common::skipped("SKIP a database that stays in memory: there is no python3");
    };
    let mut said = String::new();
    BufReader::new(python.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    let came = run(folder.path(), &stream);
    drop(python.stdin.take());
    python.wait().unwrap();
    assert_eq!(said, "mapped\n");
    assert_eq!((came.code, came.out.as_str()), (1, ""), "{came:?}");
    assert!(came.err.contains("bytes stay in the page cache, so the database is not cold"), "{came:?}");
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
