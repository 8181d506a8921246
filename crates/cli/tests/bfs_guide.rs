//! The commands of docs/bfs-guide.md, in their order, on a smaller graph.

mod common;

use std::path::Path;

use common::{names, place, works};

#[test]
fn the_guide_s_commands_work_in_their_order() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bfs-guide.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    let place = place();
    let mut ran = Vec::new();
    let mut is_command = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_command = line == "```sh";
        } else if is_command {
            let line = line.replace("--scale 22", "--scale 14");
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["flashwright", arguments @ ..] = &words[..] else { panic!("'{line}' is another program") };
            let came = works(place.path(), arguments);
            assert_eq!(came.err, "", "{line}");
            ran.push(arguments[1].to_owned());
        }
    }
    let verbs = ["generate", "build", "info", "run", "run", "validate", "validate", "run", "export", "bench"];
    assert_eq!(ran, verbs);
    let made = ["kron-mr.out", "kron.el", "kron.fwg", "kron.out", "kron.parquet", "kron.sg"];
    assert_eq!(names(place.path()), made);
}
