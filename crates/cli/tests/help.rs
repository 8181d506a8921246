//! What `--help` says of every verb, kept as text (`tests/snapshots`): a change of it is seen and meant.
//!
//! `INSTA_UPDATE=always cargo test -p flashwright --test help` takes what is said now.

use std::collections::BTreeSet;
use std::process::Command;

use measure::remedy::OptionsBy;
use measure::{RunRecord, WarningCode, Workload};

/// The help of a command, 80 columns wide, whatever the environment sets.
fn help(verbs: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashwright"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FLASHWRIGHT_") {
            command.env_remove(name);
        }
    }
    let output = command.args(verbs).arg("--help").env("COLUMNS", "80").output().unwrap();
    assert!(output.status.success(), "{verbs:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{verbs:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs below, by the list that a help has of them.
fn verbs_below(help: &str) -> Vec<String> {
    let list = help
        .lines()
        .skip_while(|line| !["Commands:", "Verbs:", "Besides running one:"].contains(line))
        .skip(1);
    let rows = list.take_while(|line| !line.is_empty());
    // A row begins two columns in; what it goes on with is further in.
    let names = rows.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn describe(verbs: &[String], text: &mut String) {
    let help = help(verbs);
    text.push_str(&format!("$ flashwright {} --help\n\n{help}\n", verbs.join(" ")));
    for verb in verbs_below(&help) {
        describe(&[verbs, &[verb]].concat(), text);
    }
}

/// The flags that a text names: `--NAME`.
fn flags(text: &str) -> BTreeSet<String> {
    let named = text.split("--").skip(1);
    let name = |rest: &str| {
        rest.split(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)).next().map(str::to_owned)
    };
    named.filter_map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn remedies_of_warnings_name_flags_that_their_command_has() {
    let [bench, sweep] = ["bench", "sweep"].map(|verb| flags(&help(&[verb.to_owned()])));
    for code in WarningCode::ALL {
        let by_flags = [false, true].map(|direct| {
            let workload = Workload { direct, ..Workload::default() };
            code.remedy_by(&RunRecord { workload, ..RunRecord::default() }, OptionsBy::Flags)
        });
        for (remedy, known) in by_flags.iter().map(|r| (r, &bench)).chain([(&code.remedy_in_sweep(), &sweep)])
        {
            // A command in backticks has flags of its own.
            let prose: String = remedy.split('`').step_by(2).collect();
            let unknown: Vec<_> = flags(&prose).difference(known).cloned().collect();
            assert!(unknown.is_empty(), "{code}: {unknown:?} in {remedy:?}");
        }
    }
}

#[test]
fn the_help_of_every_verb_is_as_it_was_agreed() {
    let first = help(&[]);
    insta::assert_snapshot!("flashwright", first);
    let verbs = verbs_below(&first);
    assert!(verbs.len() > 5, "{verbs:?}");
    for verb in verbs {
        let mut text = String::new();
        describe(std::slice::from_ref(&verb), &mut text);
        insta::assert_snapshot!(verb, text);
    }
}

#[test]
fn no_line_of_a_help_is_wider_than_a_terminal() {
    let mut text = String::new();
    for verb in verbs_below(&help(&[])) {
        describe(&[verb], &mut text);
    }
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}
