//! `flashwright bfs` as a user meets it.

mod common;

use common::{command, fits_schema, json, names, place, refused, run, signal, wait_until, works};

#[test]
fn a_graph_is_generated_built_and_shown() {
    let place = place();
    let folder = place.path();
    let made = json(folder, &["bfs", "generate", "--scale", "12", "--output", "a.el", "--json"]);
    fits_schema(folder, "edges", &made);
    assert_eq!((made["vertices"].as_u64(), made["edges"].as_u64()), (Some(4096), Some(65536)));
    assert_eq!(made["origin"], "kronecker scale=12 edge_factor=16 seed=1");
    let built = json(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m", "--json"]);
    fits_schema(folder, "graph", &built);
    assert_eq!((built["order"].as_str(), built["input_edges"].as_u64()), (Some("degree"), Some(65536)));
    // Each edge once, but for those from a vertex to itself.
    assert_eq!(
        built["build"]["arcs_sorted"].as_u64().map(|arcs| (60_000..65_536).contains(&arcs)),
        Some(true)
    );
    assert_eq!(names(folder), ["a.el", "a.fwg"]);
    let mut shown = json(folder, &["bfs", "info", "a.fwg", "--json"]);
    fits_schema(folder, "graph", &shown);
    assert!(shown["build"].is_null());
    shown["build"] = built["build"].clone();
    assert_eq!(shown, built);
    let shown = json(folder, &["bfs", "info", "a.el", "--json"]);
    fits_schema(folder, "edges", &shown);
    assert!(shown["elapsed_s"].is_null());
    assert!(works(folder, &["bfs", "info", "a.fwg"]).out.starts_with("graph      a.fwg ("));
    assert!(works(folder, &["bfs", "info", "a.el"]).out.contains("edges      65536, undirected\n"));
}

#[test]
fn text_is_imported_and_its_bad_lines_are_named() {
    let place = place();
    let folder = place.path();
    std::fs::write(folder.join("roads.txt"), "# roads\n0 1\n2 x7\n").expect("writes");
    refused(
        folder,
        &["bfs", "import", "roads.txt", "--output", "roads.el"],
        2,
        "error: roads.txt: line 3: 'x7' is not a vertex\nhint: correct it, or choose another --format\n",
    );
    assert_eq!(names(folder), ["roads.txt"]);
    std::fs::write(folder.join("roads.txt"), "# roads\n0 1\n2 7\n").expect("writes");
    let made = json(folder, &["bfs", "import", "roads.txt", "--output", "roads.el", "--directed", "--json"]);
    assert_eq!((made["vertices"].as_u64(), made["directed"].as_bool()), (Some(8), Some(true)));
}

#[test]
fn wrong_requests_are_named_with_a_hint() {
    let place = place();
    let folder = place.path();
    std::fs::write(folder.join("thesis"), "years of work").expect("writes");
    works(folder, &["bfs", "generate", "--scale", "4", "--kind", "grid", "--output", "a.el"]);
    refused(
        folder,
        &["bfs", "generate", "--scale", "4", "--output", "thesis"],
        3,
        "error: --output=thesis: is there already, and is no edge list\nhint: name another file, or remove this one\n",
    );
    refused(
        folder,
        &["bfs", "build", "a.el", "--output", "thesis"],
        3,
        "error: thesis: is there already, and is not a graph (.fwg) or an empty file\n\
         hint: name another file, or remove this one\n",
    );
    refused(
        folder,
        &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "1m"],
        2,
        "error: building a graph needs at least 32 MiB of memory; the budget is 1 MiB\nhint: --memory 32m\n",
    );
    refused(
        folder,
        &["bfs", "build", "thesis", "--output", "a.fwg"],
        2,
        "error: thesis: is not an edge list (.el)\n\
         hint: bfs generate and bfs import make edge lists, bfs build makes graphs\n",
    );
    refused(
        folder,
        &["bfs", "build", "none.el", "--output", "a.fwg"],
        2,
        "error: none.el: cannot open: No such file or directory (os error 2)\nhint: name a file that is there\n",
    );
    refused(
        folder,
        &["bfs", "build", "a.el", "--output", "none/a.fwg"],
        2,
        "error: --output=none/a.fwg: there is no directory none\nhint: make it first, or name another file\n",
    );
    refused(
        folder,
        &["bfs", "run", "a.fwg", "--source", "0", "--threads", "0"],
        2,
        "error: --threads=0: 0 is not from 1 to 1024\n\
         hint: leave it out for one a CPU; fewer run where memory has no room for the buffers of all\n",
    );
    let unknown = run(folder, &["bfs", "generate", "--scale", "4", "--kind", "kroneker", "--output", "b.el"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("did you mean kronecker?"), "{}", unknown.err);
}

#[test]
fn a_killed_build_goes_on_from_its_sorted_arcs() {
    let place = place();
    let folder = place.path();
    works(folder, &["bfs", "generate", "--scale", "17", "--output", "a.el"]);
    let build = ["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m", "--json"];
    let mut child = command(folder, &build).stdout(std::process::Stdio::null()).spawn().expect("starts");
    wait_until("the first sort", || folder.join("a.fwg.build/arcs.el").exists());
    signal(&child, "-KILL");
    child.wait().expect("ends");
    assert!(!folder.join("a.fwg").exists(), "it was killed before its end");
    let built = json(folder, &build);
    assert_eq!(
        (built["build"]["resumed"].as_bool(), built["build"]["arcs_sorted"].as_u64()),
        (Some(true), None)
    );
    assert_eq!(names(folder), ["a.el", "a.fwg"]);
    let resumed = std::fs::read(folder.join("a.fwg")).expect("reads");
    let built = json(folder, &build);
    assert_eq!(built["build"]["resumed"].as_bool(), Some(false));
    assert!(std::fs::read(folder.join("a.fwg")).expect("reads") == resumed, "the same graph");
}

/// A graph of 1,024 vertices in a folder, as `a.el` and `a.fwg`.
fn built(folder: &std::path::Path) {
    works(folder, &["bfs", "generate", "--scale", "10", "--output", "a.el"]);
    works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m"]);
}

#[test]
fn each_algorithm_finds_the_same_levels_and_a_valid_tree() {
    let place = place();
    let folder = place.path();
    built(folder);
    let mut found = Vec::new();
    for algorithm in ["auto", "semi", "mr", "mm"] {
        let out = format!("{algorithm}.out");
        let search = ["bfs", "run", "a.fwg", "--source", "3", "--algorithm", algorithm, "--memory", "64m"];
        let run = json(folder, &[&search[..], &["--output", &out, "--json"]].concat());
        fits_schema(folder, "bfs", &run);
        let chosen = if algorithm == "auto" { "semi" } else { algorithm };
        assert_eq!(run["algorithm"], chosen);
        let valid = json(folder, &["bfs", "validate", "a.fwg", &out, "--edges", "a.el", "--json"]);
        fits_schema(folder, "bfs-validate", &valid);
        assert_eq!((valid["valid"].as_bool(), valid["source"].as_u64()), (Some(true), Some(3)));
        assert_eq!(valid["edges"].as_u64(), Some(16 << 10));
        assert_eq!((&valid["reached"], &valid["levels"]), (&run["reached"], &run["levels"]));
        found.push((run["reached"].clone(), run["levels"].clone(), run["entries"].clone()));
    }
    assert!(found[0].0.as_u64() > Some(500), "{found:?}");
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    let names = names(folder);
    assert_eq!(names, ["a.el", "a.fwg", "auto.out", "mm.out", "mr.out", "semi.out"], "nothing else is left");
}

#[test]
fn many_searches_at_once_find_what_each_finds() {
    let place = place();
    let folder = place.path();
    built(folder);
    std::fs::write(folder.join("keys"), "# keys\n3\n\n77 # another\n1023\n").expect("writes");
    let many = json(folder, &["bfs", "run", "a.fwg", "--sources", "keys", "--memory", "64m", "--json"]);
    fits_schema(folder, "bfs-many", &many);
    for (key, one) in ["3", "77", "1023"].iter().zip(many["sources"].as_array().expect("a list")) {
        let alone = json(folder, &["bfs", "run", "a.fwg", "--source", key, "--memory", "64m", "--json"]);
        assert_eq!(one["reached"], alone["reached"], "from {key}");
        assert_eq!(one["levels"].as_array().map(Vec::len), alone["levels"].as_u64().map(|n| n as usize));
    }
    let bench = ["bfs", "bench", "a.fwg", "--keys", "4", "--memory", "64m", "--edges", "a.el", "--json"];
    let bench = json(folder, &bench);
    fits_schema(folder, "bfs-bench", &bench);
    assert_eq!(bench["validated"].as_bool(), Some(true));
    assert_eq!(bench["searches"].as_array().map(Vec::len), Some(4));
    assert_eq!(names(folder), ["a.el", "a.fwg", "keys"], "nothing else is left");
}

#[test]
fn wrong_searches_and_wrong_results_are_named() {
    let place = place();
    let folder = place.path();
    built(folder);
    let outside = run(folder, &["bfs", "run", "a.fwg", "--source", "1024"]);
    assert_eq!(outside.code, 2);
    assert!(outside.err.contains("has no vertex 1024: vertices are 0 to 1023"), "{}", outside.err);
    let small =
        run(folder, &["bfs", "run", "a.fwg", "--source", "3", "--algorithm", "semi", "--memory", "1m"]);
    assert_eq!(small.code, 2);
    assert!(small.err.contains("the budget is 1 MiB\nhint: --memory "), "{}", small.err);
    let unchecked =
        run(folder, &["bfs", "bench", "a.fwg", "--keys", "1", "--memory", "9m", "--edges", "a.el"]);
    assert_eq!(unchecked.code, 2, "{unchecked:#?}");
    assert!(unchecked.err.contains("validating a search of this graph needs at least"), "{}", unchecked.err);
    std::fs::write(folder.join("keys"), "3\nfour\n").expect("writes");
    refused(
        folder,
        &["bfs", "run", "a.fwg", "--sources", "keys"],
        2,
        "error: --sources=keys: line 2: 'four' is not a vertex\nhint: one vertex a line\n",
    );
    let thesis = run(folder, &["bfs", "run", "a.fwg", "--source", "3", "--output", "a.el"]);
    assert_eq!(thesis.code, 3, "{}", thesis.err);
    works(folder, &["bfs", "info", "a.el"]);
    // The tree of one vertex, said to be of another graph's edges.
    works(folder, &["bfs", "run", "a.fwg", "--source", "3", "--output", "a.out"]);
    works(folder, &["bfs", "generate", "--scale", "10", "--seed", "2", "--output", "b.el"]);
    let wrong = run(folder, &["bfs", "validate", "a.fwg", "a.out", "--edges", "b.el"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("a.out: is not a valid search: check "), "{}", wrong.err);
    works(folder, &["bfs", "run", "a.fwg", "--source", "3", "--output", "a.PARQUET"]);
    assert!(std::fs::read(folder.join("a.PARQUET")).expect("reads").starts_with(b"PAR1"));
    refused(
        folder,
        &["bfs", "validate", "a.fwg", "a.PARQUET", "--edges", "a.el"],
        2,
        "error: a.PARQUET: is not results of a search\nhint: bfs run --output FILE.out writes them\n",
    );
    let mut bytes = std::fs::read(folder.join("a.out")).expect("reads");
    bytes[5000] ^= 1;
    std::fs::write(folder.join("a.out"), bytes).expect("writes");
    let corrupt = run(folder, &["bfs", "validate", "a.fwg", "a.out", "--edges", "a.el"]);
    assert_eq!(corrupt.code, 1);
    assert!(corrupt.err.contains("at offset 4096"), "{}", corrupt.err);
}

#[test]
fn an_export_is_read_back_as_the_same_graph_and_replaces_nothing() {
    let place = place();
    let folder = place.path();
    built(folder);
    let export = ["bfs", "export", "a.fwg", "--output", "a.sg", "--json"];
    let made = json(folder, &export);
    fits_schema(folder, "bfs-export", &made);
    let length = std::fs::metadata(folder.join("a.sg")).expect("is there").len();
    assert_eq!(made["file_bytes"].as_u64(), Some(length));
    assert_eq!(names(folder), ["a.el", "a.fwg", "a.sg"]);
    works(folder, &["bfs", "import", "a.sg", "--output", "b.el"]);
    works(folder, &["bfs", "build", "b.el", "--output", "b.fwg", "--memory", "32m"]);
    for source in ["3", "77"] {
        let found =
            |graph| json(folder, &["bfs", "run", graph, "--source", source, "--memory", "64m", "--json"]);
        let (one, other) = (found("a.fwg"), found("b.fwg"));
        assert!(one["reached"].as_u64() > Some(500));
        for figure in ["reached", "levels", "entries"] {
            assert_eq!(one[figure], other[figure], "{figure} from {source}");
        }
    }
    assert_eq!(run(folder, &export).code, 3, "what is there stays");
    let small = run(folder, &["bfs", "export", "a.fwg", "--output", "c.sg", "--memory", "1m"]);
    assert_eq!(small.code, 2);
    assert!(small.err.contains("the budget is 1 MiB\nhint: --memory "), "{}", small.err);
    assert!(!folder.join("c.sg").exists());
}

#[test]
fn an_output_replaces_neither_documents_nor_what_is_no_regular_file() {
    let place = place();
    let folder = place.path();
    built(folder);
    let report = "<!doctype html>\n<meta name=\"generator\" content=\"flashwright\">";
    std::fs::write(folder.join("report.html"), report).expect("writes");
    std::fs::write(folder.join("results.json"), "{\n  \"schema\": \"flashwright.bench/1\"").expect("writes");
    std::os::unix::fs::symlink("report.html", folder.join("link")).expect("links");
    std::os::unix::fs::symlink("nothing", folder.join("to-nothing.parquet")).expect("links");
    let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).expect("binds");
    common::tool("mkfifo", &[folder.join("fifo.parquet").to_str().expect("a name")]).expect("makes a FIFO");
    let mut there =
        vec!["report.html", "results.json", "link", "to-nothing.parquet", "socket", "fifo.parquet"];
    if common::is_root() {
        // A device of this test, so that a failure costs no other program its own.
        let node = folder.join("null");
        if common::tool("mknod", &[node.to_str().expect("a name"), "c", "1", "3"]).is_some() {
            there.push("null");
        }
    }
    let kind = |name: &str| std::fs::symlink_metadata(folder.join(name)).expect("is there").file_type();
    for name in there {
        let before = kind(name);
        let hint = "hint: name another file, or remove this one\n";
        refused(
            folder,
            &["bfs", "export", "a.fwg", "--output", name],
            3,
            &format!("error: --output={name}: is there already\n{hint}"),
        );
        refused(
            folder,
            &["bfs", "run", "a.fwg", "--source", "3", "--output", name],
            3,
            &format!("error: --output={name}: is there already, and is no file of results\n{hint}"),
        );
        assert_eq!(kind(name), before, "{name}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("report.html")).expect("reads"), report);
    // An empty file, as of mktemp(1), and earlier results are replaced.
    for name in ["empty.sg", "empty.out"] {
        std::fs::write(folder.join(name), "").expect("writes");
    }
    works(folder, &["bfs", "export", "a.fwg", "--output", "empty.sg"]);
    for source in ["3", "77"] {
        works(folder, &["bfs", "run", "a.fwg", "--source", source, "--output", "empty.out"]);
    }
    refused(
        folder,
        &["bfs", "export", "a.fwg", "--output", "b.sg", "--scratch", "nodir"],
        2,
        "error: --scratch=nodir: is not a directory\nhint: name a directory that is there\n",
    );
}

#[test]
fn media_need_directories_and_names_of_their_own() {
    let place = place();
    let folder = place.path();
    built(folder);
    if common::memory_beside(folder).is_none() {
        return;
    }
    for (tiers, words) in [
        (
            "flash=., flash=a.el",
            "error: --tiers: flash=a.el: another medium has this name\nhint: give each medium a name of its own\n",
        ),
        (
            "flash=a.el",
            "error: --tiers: flash=a.el: is not a directory\nhint: name a directory on the medium\n",
        ),
    ] {
        refused(folder, &["bfs", "bench", "a.fwg", "--tiers", tiers], 2, words);
    }
    let proc = run(folder, &["bfs", "bench", "a.fwg", "--keys", "1", "--tiers", "flash=/proc"]);
    assert!(
        proc.err.starts_with("error: --tiers: flash=/proc: no copy of the graph can be made in it"),
        "{}",
        proc.err
    );
    assert!(proc.err.ends_with("\nhint: name a directory in which files can be made\n"), "{}", proc.err);
    let found =
        json(folder, &["bfs", "bench", "a.fwg", "--keys", "1", "--tiers", "flash=., disk=.", "--json"]);
    assert_eq!(
        (found["tiers"][0]["name"].as_str(), found["tiers"][1]["name"].as_str()),
        (Some("flash"), Some("disk"))
    );
}

/// Whether a process has a file open that has no name (any more).
fn has_unnamed_file(process: u32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.any(|target| {
        let target = target.to_string_lossy();
        target.starts_with('/') && !target.starts_with("/memfd:") && target.ends_with(" (deleted)")
    })
}

#[test]
fn a_bench_that_is_killed_leaves_nothing() {
    let place = place();
    let folder = place.path();
    built(folder);
    for algorithm in ["semi", "mr"] {
        let bench = ["bfs", "bench", "a.fwg", "--keys", "20000", "--edges", "a.el", "--algorithm", algorithm];
        let mut child = command(folder, &bench)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        wait_until("results without a name", || has_unnamed_file(child.id()));
        child.kill().expect("is killed");
        child.wait().expect("ends");
        assert_eq!(names(folder), ["a.el", "a.fwg"], "{algorithm}");
    }
}

#[test]
fn the_results_of_many_searches_are_files_of_their_own() {
    let place = place();
    let folder = place.path();
    built(folder);
    // One of them twice, and one without neighbours if there is such a vertex.
    std::fs::write(folder.join("keys"), "3\n77\n3\n1023\n").expect("writes");
    let many = ["bfs", "run", "a.fwg", "--sources", "keys", "--memory", "64m"];
    let found = json(folder, &[&many[..], &["--output", "many.out", "--json"]].concat());
    fits_schema(folder, "bfs-many", &found);
    let files: Vec<_> =
        found["sources"].as_array().expect("a list").iter().map(|one| one["output"].as_str()).collect();
    assert_eq!(files, ["many-3.out", "many-77.out", "many-3.out", "many-1023.out"].map(Some));
    for (key, file) in [(3, "many-3.out"), (77, "many-77.out"), (1023, "many-1023.out")] {
        let valid = json(folder, &["bfs", "validate", "a.fwg", file, "--edges", "a.el", "--json"]);
        assert_eq!(valid["source"].as_u64(), Some(key));
        let wanted = found["sources"].as_array().and_then(|all| all.iter().find(|one| one["source"] == key));
        let wanted = wanted.expect("is there");
        assert_eq!(valid["reached"], wanted["reached"], "from {key}");
        assert_eq!(valid["levels"].as_u64(), wanted["levels"].as_array().map(|all| all.len() as u64));
    }
    let text = works(folder, &[&many[..], &["--output", "many.parquet"]].concat()).out;
    assert!(text.contains("\noutputs    3 files in "), "{text}");
    for name in ["many-3.parquet", "many-77.parquet", "many-1023.parquet"] {
        let bytes = std::fs::read(folder.join(name)).expect("reads");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{name}");
    }
    // What is no file of results is not replaced, and nothing is searched.
    std::fs::write(folder.join("thesis-77.out"), "years of work").expect("writes");
    refused(
        folder,
        &[&many[..], &["--output", "thesis.out"]].concat(),
        3,
        "error: --output=thesis-77.out: is there already, and is no file of results\n\
         hint: name another file, or remove this one\n",
    );
    assert!(!folder.join("thesis-3.out").exists());
}

/// A graph whose vertices do not fit in memory, though its edges are few.
#[test]
fn auto_asks_the_drive_where_vertices_do_not_fit_and_says_so() {
    let place = place();
    let folder = place.path();
    std::fs::write(folder.join("a.txt"), "0 1\n1 2\n2 3\n").expect("writes");
    works(folder, &["bfs", "import", "a.txt", "--vertices", "3000000", "--output", "a.el"]);
    works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "64m"]);
    let search = ["bfs", "run", "a.fwg", "--source", "0", "--memory", "20m", "--json"];
    let found = json(folder, &search);
    fits_schema(folder, "bfs", &found);
    assert!(matches!(found["algorithm"].as_str(), Some("mr" | "mm")), "{found}");
    assert_eq!(found["reached"].as_u64(), Some(4));
    let reason = found["reason"].as_str().expect("a reason");
    for words in ["3000000 vertices do not fit into 20 MiB", "measured for", "mr would take about", "and mm"]
    {
        assert!(reason.contains(words), "{reason}");
    }
    assert!(found["drive"]["pages_per_s"].as_f64() > Some(0.0), "{found}");
    let search = ["bfs", "run", "a.fwg", "--source", "0", "--memory", "256m", "--json"];
    let found = json(folder, &search);
    assert_eq!((found["algorithm"].as_str(), found["drive"].is_null()), (Some("semi"), true));
}

/// Rows go on below their values, and tables are left as they are.
#[test]
fn pages_are_as_wide_as_the_terminal() {
    let place = place();
    let folder = place.path();
    built(folder);
    std::fs::write(folder.join("keys"), "3\n4\n").expect("writes");
    for arguments in [
        &["bfs", "info", "a.fwg"][..],
        &["bfs", "run", "a.fwg", "--source", "3"],
        &["bfs", "run", "a.fwg", "--source", "3", "--algorithm", "mr"],
        &["bfs", "run", "a.fwg", "--sources", "keys"],
        &["bfs", "bench", "a.fwg", "--keys", "2"],
    ] {
        let came = common::finish(command(folder, arguments).env("COLUMNS", "80"));
        assert_eq!(came.code, 0, "{came:#?}");
        let long: Vec<_> = came.out.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{arguments:?}: {long:#?}");
    }
}

#[test]
fn an_interrupted_search_does_not_promise_to_go_on() {
    let place = place();
    let folder = place.path();
    built(folder);
    let bench = ["bfs", "bench", "a.fwg", "--keys", "20000", "--edges", "a.el"];
    let mut child = command(folder, &bench)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    wait_until("a search", || has_unnamed_file(child.id()));
    signal(&child, "-TERM");
    let (status, _, error) = common::ended_and_printed(&mut child);
    assert_eq!(status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted") && !error.contains("goes on"), "{error}");
}

#[test]
fn a_table_is_written_where_the_name_asks_for_one() {
    let place = place();
    let folder = place.path();
    built(folder);
    for algorithm in ["semi", "mr"] {
        let out = format!("{algorithm}.parquet");
        // The second time such a table is there, and is replaced as results of the other form are.
        for source in ["5", "3"] {
            works(
                folder,
                &["bfs", "run", "a.fwg", "--source", source, "--algorithm", algorithm, "--output", &out],
            );
        }
    }
    // Somebody's table is not: this one is of the same bytes, but for the fact that says what it is.
    let mut foreign = std::fs::read(folder.join("semi.parquet")).expect("reads");
    let key = b"flashwright.bfs.source";
    let at = foreign.windows(key.len()).position(|bytes| bytes == key).expect("it names its source");
    foreign[at] = b'F';
    std::fs::write(folder.join("theirs.parquet"), &foreign).expect("writes");
    let refused = run(folder, &["bfs", "run", "a.fwg", "--source", "3", "--output", "theirs.parquet"]);
    assert_eq!(refused.code, 3, "{refused:#?}");
    assert_eq!(std::fs::read(folder.join("theirs.parquet")).expect("is there"), foreign);
    std::fs::remove_file(folder.join("theirs.parquet")).expect("removes");
    // What is in them is compared in the library's tests.
    for name in ["semi.parquet", "mr.parquet"] {
        let bytes = std::fs::read(folder.join(name)).expect("reads");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{name}");
    }
    assert_eq!(names(folder), ["a.el", "a.fwg", "mr.parquet", "semi.parquet"]);
}

#[test]
fn media_are_compared_on_copies_of_which_nothing_is_left() {
    let place = place();
    let folder = place.path();
    built(folder);
    let Some(memory) = common::memory_beside(folder) else { return };
    std::fs::create_dir(folder.join("flash")).expect("creates");
    let tiers = format!("memory={},flash=flash", memory.path().display());
    for algorithm in ["semi", "mr", "mm"] {
        let bench = ["bfs", "bench", "a.fwg", "--keys", "3", "--memory", "32m", "--algorithm", algorithm];
        let bench = [&bench[..], &["--edges", "a.el", "--tiers", &tiers]].concat();
        let found = json(folder, &[&bench[..], &["--json"]].concat());
        fits_schema(folder, "bfs-tiers", &found);
        assert_eq!(
            (found["algorithm"].as_str(), found["validated"].as_bool()),
            (Some(algorithm), Some(true))
        );
        let tiers = found["tiers"].as_array().expect("a list");
        let names: Vec<_> = tiers.iter().map(|tier| tier["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["memory", "flash"]);
        let reached = |tier: &serde_json::Value| -> Vec<_> {
            let searches = tier["searches"].as_array().expect("a list");
            searches.iter().map(|key| (key["source"].clone(), key["reached"].clone())).collect()
        };
        assert_eq!(reached(&tiers[0]), reached(&tiers[1]));
        let of_slowest = tiers.iter().filter(|tier| tier["io_speedup"].as_f64() == Some(1.0));
        assert!(of_slowest.clone().count() >= 1 && of_slowest.clone().all(|tier| tier["run_speedup"] == 1.0));
        for tier in tiers {
            let range = |end: usize| tier["run_speedup_range"][end].as_f64().expect("each key takes time");
            let all = tier["run_speedup"].as_f64().expect("a number");
            assert!(range(0) <= all * 1.000_001 && all <= range(1) * 1.000_001, "{tier}");
        }
        assert!(works(folder, &bench).out.contains("\nmemory "), "{algorithm}");
    }
    let lied = format!("flash={}", memory.path().display());
    let lied = run(folder, &["bfs", "bench", "a.fwg", "--tiers", &lied]);
    assert_eq!(lied.code, 2);
    assert!(lied.err.contains("lies in memory (tmpfs)\nhint: call it memory="), "{}", lied.err);
    // Interrupted in the middle: copies and results have no names.
    for algorithm in ["semi", "mr"] {
        let bench = ["bfs", "bench", "a.fwg", "--keys", "2000", "--algorithm", algorithm, "--edges", "a.el"];
        let bench = [&bench[..], &["--memory", "32m", "--tiers", &tiers]].concat();
        let mut child = command(folder, &bench)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        wait_until("a search", || has_unnamed_file(child.id()));
        signal(&child, "-INT");
        assert_eq!(child.wait().expect("ends").code(), Some(130), "{algorithm}");
        assert!(names(memory.path()).is_empty() && names(&folder.join("flash")).is_empty(), "{algorithm}");
    }
    assert_eq!(names(folder), ["a.el", "a.fwg", "flash"]);
}
