//! `flashwright pages`: manual pages and completions from the table of flags, for whoever packages the program.
//!
//! Nothing here is kept in the tree: pages that are made when a package is made cannot be older than the flags.

use std::fs::File;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

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
        clap_complete::generate_to(shell, &mut command, "flashwright", &shells)
            .map_err(|error| Failure::io(&shells, "write the completions", &error))?;
    }
    // Pages have one line a flag; the shell breaks none of them.
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

/// The page of a verb and those of the verbs below it.
fn page(command: &Command, name: &str, folder: &Path, written: &mut u32) -> Result<(), Failure> {
    if command.is_hide_set() {
        return Ok(());
    }
    let path = folder.join(format!("{name}.1"));
    let manual = clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).manual("flashwright");
    File::create(&path)
        .and_then(|mut file| manual.render(&mut file))
        .map_err(|error| Failure::io(&path, "write the page", &error))?;
    *written += 1;
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        page(verb, &format!("{name}-{}", verb.get_name()), folder, written)?;
    }
    Ok(())
}
