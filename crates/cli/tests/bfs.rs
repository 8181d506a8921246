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
    assert_eq!(built["build"]["arcs_sorted"].as_u64().map(|arcs| arcs > 100_000), Some(true));
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
