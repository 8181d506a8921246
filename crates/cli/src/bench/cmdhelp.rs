//! `bench --cmdhelp`: every key of fio's job files and what becomes of it here.

use std::fmt::Write;

use fio::{KeyInfo, KeySupport, keys};

use crate::failure::Failure;

/// A line for each key, or for the one that is named by any of its spellings; `all` names every key, as in fio.
pub fn cmdhelp(wanted: &str) -> Result<String, Failure> {
    let is_wanted = |key: &KeyInfo| wanted == "all" || key.name == wanted || key.aliases.contains(&wanted);
    let mut text = String::new();
    for key in keys().filter(is_wanted) {
        let names =
            std::iter::once(key.name).chain(key.aliases.iter().copied()).collect::<Vec<_>>().join(", ");
        let note = key.note;
        // Writing to a string cannot fail.
        let _ = match key.support {
            KeySupport::Supported if note.is_empty() => writeln!(text, "{names}: supported"),
            KeySupport::Supported => writeln!(text, "{names}: supported; {note}"),
            KeySupport::Accepted([]) => writeln!(text, "{names}: accepted, without effect; {note}"),
            KeySupport::Accepted(values) => {
                writeln!(text, "{names}: accepted as {}, without effect; {note}", values.join(" or "))
            }
            KeySupport::Refused(hint) => writeln!(text, "{names}: refused; {note}: {hint}"),
        };
    }
    if text.is_empty() {
        let failure = Failure::invalid(format!("--cmdhelp={wanted}: fio has no such key"));
        return Err(failure.hint("--cmdhelp lists all keys"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmdhelp_prints_each_key_on_a_line_of_its_own() {
        let all = cmdhelp("all").unwrap();
        assert_eq!(all.lines().count(), keys().count());
        assert!(keys().all(|key| all.lines().any(|line| line.starts_with(key.name))));
        assert_eq!(
            cmdhelp("readwrite").unwrap(),
            "rw, readwrite: supported; all but several requests at one random offset (`randread:8`); `read:8k` skips, \
             `read:-8k` goes backwards\n"
        );
        assert!(cmdhelp("cgroup").unwrap().starts_with("cgroup: refused; "));
        assert_eq!(
            cmdhelp("no-such-key").unwrap_err().message(),
            "--cmdhelp=no-such-key: fio has no such key"
        );
    }
}
