//! A wrong command line, said as everything else is: one line naming flag and value, and a hint.
//!
//! The parser's own message runs over several lines and says how it is to be called; here the line says what
//! is wrong, and the hint what was most likely meant. A flag that is fio's and not ours is answered from the
//! table of fio's keys.

use std::error::Error as _;
use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use fio::{KeySupport, keys};

use crate::failure::Failure;
use crate::output;
use crate::values::BadValue;

/// Answers a command line that is not a command: prints help or version, or returns the error.
/// `root` is the whole command line.
pub fn explain(error: &Error, root: &Command) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => output::print(&styled(error)),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::tell(&styled(error));
            let failure = Failure::invalid("no verb was given");
            // A verb with verbs of its own has just listed them.
            let is_first = std::env::args_os().len() == 1;
            Err(failure.hint_if(is_first.then_some("start with `flashwright sweep`, or `flashwright probe`")))
        }
        _ => Err(failure(error, &command_of(root, std::env::args_os().skip(1)), root)),
    }
}

/// The verbs below verbs that have this name, as they are typed after the program's.
fn below_verbs(root: &Command, word: &str) -> Vec<String> {
    let verbs = root.get_subcommands().filter(|verb| verb.find_subcommand(word).is_some());
    verbs.map(|verb| format!("{} {word}", verb.get_name())).collect()
}

fn styled(error: &Error) -> String {
    error.render().ansi().to_string()
}

fn failure(error: &Error, command: &str, root: &Command) -> Failure {
    let flag = context(error, ContextKind::InvalidArg).map(|arg| flag_name(&arg));
    let value = context(error, ContextKind::InvalidValue);
    let help = format!("`{} --help` tells what there is", command);
    match (error.kind(), flag) {
        (ErrorKind::ValueValidation, Some(flag)) => {
            let cause = error.source();
            let reason = cause.map(ToString::to_string).unwrap_or_default();
            let hint = cause.and_then(|c| c.downcast_ref::<BadValue>()).map_or(help, |bad| bad.hint.clone());
            let value = value.unwrap_or_default();
            Failure::invalid(format!("{}: {reason}", setting(&flag, &value))).hint(hint)
        }
        (ErrorKind::InvalidValue, Some(flag)) => match value.filter(|v| !v.is_empty()) {
            Some(value) => Failure::invalid(format!("{}: is not known", setting(&flag, &value)))
                .hint(possible(error).unwrap_or(help)),
            None => Failure::invalid(format!("{flag} needs a value")).hint(possible(error).unwrap_or(help)),
        },
        (ErrorKind::UnknownArgument, Some(flag)) => unknown_flag(error, &flag, command),
        (ErrorKind::InvalidSubcommand, _) => {
            let word = context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let below = if command == root.get_name() { below_verbs(root, &word) } else { Vec::new() };
            let near = match below.is_empty() {
                true => context(error, ContextKind::SuggestedSubcommand),
                false => Some(below.join(" or ")),
            };
            Failure::invalid(format!("'{word}' is no verb of {}", command))
                .hint(near.map_or(help, |near| format!("did you mean {near}?")))
        }
        (ErrorKind::ArgumentConflict, Some(flag)) => {
            let other = context(error, ContextKind::PriorArg).map(|arg| flag_name(&arg));
            let message = match other {
                Some(other) if other != flag => format!("{flag} and {other} exclude each other"),
                _ => format!("{flag} is given twice"),
            };
            Failure::invalid(message).hint("give one of them")
        }
        (ErrorKind::MissingRequiredArgument, Some(missing)) => {
            Failure::invalid(format!("{} needs {missing}", command)).hint(help)
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Failure::invalid(line.strip_prefix("error: ").unwrap_or(line).to_owned()).hint(help)
        }
    }
}

/// `--bs=4x`, or `results.db` for what is no flag.
fn setting(flag: &str, value: &str) -> String {
    if flag.starts_with('-') { format!("{flag}={value}") } else { value.to_owned() }
}

fn unknown_flag(error: &Error, flag: &str, command: &str) -> Failure {
    if !flag.starts_with('-') {
        return Failure::invalid(format!("'{flag}' is one argument too many for {}", command))
            .hint(format!("`{} --help` tells what it takes", command));
    }
    let failure = Failure::invalid(format!("{flag} is no flag of {}", command));
    let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default().replace('-', "_");
    let ours = context(error, ContextKind::SuggestedArg).map(|arg| flag_name(&arg));
    // Elsewhere a flag of that name is about something else.
    let takes_jobs = ["flashwright bench", "flashwright sim"].contains(&command);
    let fio = keys().find(|key| takes_jobs && (key.name == name || key.aliases.contains(&name.as_str())));
    failure.hint(match (fio.map(|key| key.support), ours) {
        (Some(KeySupport::Accepted([])), _) => format!("fio's {name} changes nothing here; leave it out"),
        (Some(KeySupport::Accepted(values)), _) => {
            format!(
                "of fio's {name} only {} is honoured, which needs no flag; leave it out",
                values.join(" or ")
            )
        }
        (Some(KeySupport::Supported), _) => {
            format!("fio's {name} is understood in a job file: flashwright bench JOBFILE.fio")
        }
        (_, Some(near)) => format!("did you mean {near}?"),
        (Some(KeySupport::Refused(hint)), None) => hint.replace('`', ""),
        (None, None) => format!("`{} --help` lists them", command),
    })
}

fn context(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}

/// `--bs <SIZE>` → `--bs`; `[PATH|DEV]...` and `<DIR>` → what stands inside.
fn flag_name(argument: &str) -> String {
    if argument.starts_with('-') {
        let end = argument.find([' ', '=', '[']).unwrap_or(argument.len());
        return argument[..end].to_owned();
    }
    argument.trim_end_matches("...").trim_matches(['<', '>', '[', ']']).to_owned()
}

fn possible(error: &Error) -> Option<String> {
    match error.get(ContextKind::ValidValue)? {
        ContextValue::Strings(words) if !words.is_empty() => Some(format!("there are {}", words.join(", "))),
        _ => None,
    }
}

/// The command as far as it was typed: `flashwright sweep plan`. These are the verbs that `words` begin with, each below
/// the one before.
pub fn command_of(root: &Command, words: impl IntoIterator<Item = OsString>) -> String {
    let mut verb = root;
    let mut text = root.get_name().to_owned();
    for word in words {
        let Some(below) = verb.find_subcommand(word) else { break };
        text = format!("{text} {}", below.get_name());
        verb = below;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_flags_are_taken_from_their_usage() {
        for (usage, name) in [
            ("--bs <SIZE>", "--bs"),
            ("--direct[=<0|1>]", "--direct"),
            ("<DIR|results.db>", "DIR|results.db"),
            ("[PATH|DEV]...", "PATH|DEV"),
            ("--nonsense=3", "--nonsense"),
        ] {
            assert_eq!(flag_name(usage), name);
        }
    }
}
