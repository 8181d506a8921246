//! The table of keys against the installed fio.

use std::process::Command;

use fio::{KeySupport, keys, options_of};

/// The table of a workload's options names a key for each that fio has; the key is read, and written where the option does
/// not have its default.
#[test]
fn options_of_a_workload_are_keys_as_their_table_says() {
    for option in measure::options::OPTIONS {
        let Some(name) = option.fio else { continue };
        let key = keys().find(|key| key.name == name).unwrap_or_else(|| panic!("{name} is no key"));
        assert!(matches!(key.support, KeySupport::Supported), "{name}");
        let mut workload = measure::Workload::default();
        option.set(&mut workload, option.example()).unwrap();
        let written = options_of(&workload);
        assert!(
            written.iter().any(|(key, _)| key == name) || name == "name",
            "{name} is not written: {written:?}"
        );
    }
}

#[test]
fn no_spelling_means_two_things() {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys() {
        for name in std::iter::once(&key.name).chain(key.aliases) {
            assert!(seen.insert(*name), "{name} is listed twice");
        }
    }
}

#[test]
fn every_option_of_the_installed_fio_has_a_place_in_the_table() {
    let output = match Command::new("fio").arg("--cmdhelp=all").output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => panic!("fio --cmdhelp=all: {}", output.status),
        Err(error) => {
            eprintln!("skipped: fio cannot be started ({error})");
            return;
        }
    };
    let text = String::from_utf8(output.stdout).expect("fio prints text");
    let known: Vec<&str> =
        keys().flat_map(|key| std::iter::once(key.name).chain(key.aliases.iter().copied())).collect();
    let mut options = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    let unknown: Vec<&str> = options.by_ref().filter(|name| !known.contains(name)).collect();
    assert!(text.lines().count() > 150, "fio listed too little:\n{text}");
    assert!(unknown.is_empty(), "fio has options that the table lacks: {unknown:?}");
}
