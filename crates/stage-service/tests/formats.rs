//! A semaphore's list is read for ever: the fixture of `formats/`.

#[path = "../../../formats/fixture.rs"]
mod fixture;

use std::path::PathBuf;

use fixture::fixture;
use stage::digest::Algorithm;
use stage_service::watch::list;

/// As an application writes it: with tabs, with blanks, with a digest, and with a name that is escaped.
const LIST: &str = "model.bin\t1048576\t99aa06d3014798d86001c324468d497f\noptimizer state 4096\nindex.json\n\\odd\\nname\t3\n";

#[test]
fn a_list_of_files_is_read() {
    let listed = list::parse(&fixture("semaphore.txt", || LIST.into())).unwrap();
    let found: Vec<_> = listed
        .iter()
        .map(|file| (file.path.clone(), file.size, file.digest.as_ref().map(|(algorithm, _)| *algorithm)))
        .collect();
    assert_eq!(
        found,
        [
            (PathBuf::from("model.bin"), Some(1 << 20), Some(Algorithm::Xxh3)),
            (PathBuf::from("optimizer state"), Some(4096), None),
            (PathBuf::from("index.json"), None, None),
            (PathBuf::from("odd\nname"), Some(3), None),
        ]
    );
}
