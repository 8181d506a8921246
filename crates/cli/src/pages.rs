//! `flashwright pages`: manual pages and completions from the table of flags, for whoever packages the program.
//!
//! Nothing here is kept in the tree: pages that are made when a package is made cannot be older than the flags.

use std::path::Path;

use clap::Command;
use clap_complete::{Generator, Shell};

use crate::args::{self, PagesArgs};
use crate::failure::Failure;
use crate::output;

/// Writes a page for each verb and a file for each shell.
pub fn pages(args: &PagesArgs) -> Result<(), Failure> {
    let (manual, shells) = (args.directory.join("man1"), args.directory.join("completions"));
    for folder in [&manual, &shells] {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the directory", &error))?;
    }
    let mut command = args::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "flashwright", &mut text);
        write(&shells.join(shell.file_name("flashwright")), &text)?;
    }
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    let mut written = 0;
    page(&command, "flashwright", &manual, &mut written)?;
    output::print(&format!(
        "{written} pages in {}, 3 completions in {}\n",
        manual.display(),
        shells.display()
    ))
}

fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    output::replace(path, &String::from_utf8_lossy(text))
        .map_err(|error| Failure::io(path, "write it", &error))
}

/// The page of a verb and those of the verbs below it.
fn page(command: &Command, name: &str, folder: &Path, written: &mut u32) -> Result<(), Failure> {
    if command.is_hide_set() {
        return Ok(());
    }
    let path = folder.join(format!("{name}.1"));
    let manual = clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).manual("flashwright");
    let mut text = Vec::new();
    manual.render(&mut text).map_err(|error| Failure::io(&path, "make the page", &error))?;
    write(&path, &text)?;
    *written += 1;
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        page(verb, &format!("{name}-{}", verb.get_name()), folder, written)?;
    }
    Ok(())
}
