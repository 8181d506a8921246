//! Which names are semaphores, and what each of them vouches for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use stage::error::StageError;

/// A pattern of semaphores below a directory: names with `*`, `?`, `[…]` and `{a,b}`, one for each level, separated by
/// slashes. As in a shell a wildcard does not stand for a dot at the beginning, nor for a slash anywhere.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    levels: Vec<Level>,
}

#[derive(Debug, Clone)]
struct Level {
    glob: GlobMatcher,
    dotted: bool,
}

/// What a semaphore vouches for where it does not say so itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vouches {
    /// The file or directory of this name beside it.
    Beside(OsString),
    /// The directory that it lies in.
    Around,
    /// Nothing: only what it lists.
    Listed,
}

const WILD: [char; 6] = ['*', '?', '[', ']', '{', '}'];

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is empty, absolute, leads upwards, or is no pattern.
    pub fn parse(text: &str) -> Result<Self, StageError> {
        let wrong = |why: &str| {
            StageError::invalid(
                format!("--trigger={text}: {why}"),
                "a name with a wildcard, such as '*.done', or one in each directory, such as 'ckpt-*/DONE'",
            )
        };
        if text.is_empty() {
            return Err(wrong("is empty"));
        }
        if text.starts_with('/') {
            return Err(wrong("is absolute; it is looked for below the directory that is watched"));
        }
        let mut levels = Vec::new();
        for part in text.split('/') {
            if matches!(part, "" | "." | "..") {
                return Err(wrong("has a level without a name"));
            }
            if part.contains("**") {
                return Err(wrong("** is not known; there is one name for each level"));
            }
            let glob = GlobBuilder::new(part)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|error| wrong(&error.kind().to_string()))?;
            levels.push(Level { glob: glob.compile_matcher(), dotted: part.starts_with('.') });
        }
        Ok(Self { text: text.to_owned(), levels })
    }

    /// As it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many levels of names there are; the last is the semaphores'.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Is this a name of that level?
    #[must_use]
    pub fn matches(&self, level: usize, name: &OsStr) -> bool {
        let Some(level) = self.levels.get(level) else { return false };
        let hidden = name.as_bytes().starts_with(b".");
        (level.dotted || !hidden) && level.glob.is_match(Path::new(name))
    }

    /// What a semaphore of this name vouches for: what is left of the name when the part of the pattern behind its last
    /// wildcard is cut off (`ckpt-7.done` by `*.done`: `ckpt-7`), or else the part before its first (`done-7` by
    /// `done-*`: `7`); a name without wildcard in a directory of its own, that directory.
    #[must_use]
    pub fn vouches(&self, name: &OsStr) -> Vouches {
        let pattern = self.text.rsplit('/').next().unwrap_or(&self.text);
        // A backslash makes what follows literal, in either direction; such patterns need lists.
        if pattern.contains('\\') {
            return Vouches::Listed;
        }
        let (Some(first), Some(last)) = (pattern.find(WILD), pattern.rfind(WILD)) else {
            return if self.levels.len() > 1 { Vouches::Around } else { Vouches::Listed };
        };
        let (head, tail) = (&pattern[..first], &pattern[last + 1..]);
        let bytes = name.as_bytes();
        let rest = match (bytes.strip_suffix(tail.as_bytes()), bytes.strip_prefix(head.as_bytes())) {
            (Some(rest), _) if !tail.is_empty() => rest,
            (_, Some(rest)) if !head.is_empty() => rest,
            _ => return Vouches::Listed,
        };
        if rest.is_empty() || rest == b"." || rest == b".." {
            return Vouches::Listed;
        }
        Vouches::Beside(OsStr::from_bytes(rest).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vouches(pattern: &str, name: &[u8]) -> Vouches {
        Pattern::parse(pattern).unwrap().vouches(OsStr::from_bytes(name))
    }

    #[test]
    fn a_semaphore_vouches_for_what_its_name_leaves() {
        let beside = |name: &[u8]| Vouches::Beside(OsStr::from_bytes(name).to_owned());
        assert_eq!(vouches("*.done", b"ckpt-7.done"), beside(b"ckpt-7"));
        assert_eq!(vouches("*.done", b"a\nb\xff.done"), beside(b"a\nb\xff"));
        assert_eq!(vouches("ckpt-*.done", b"ckpt-7.done"), beside(b"ckpt-7"));
        assert_eq!(vouches("done-*", b"done-7"), beside(b"7"));
        assert_eq!(vouches("rank*/*.ok", b"x.ok"), beside(b"x"));
        assert_eq!(vouches("*.{done,ok}", b"x.done"), Vouches::Listed);
        assert_eq!(vouches("ckpt-*/DONE", b"DONE"), Vouches::Around);
        assert_eq!(vouches("DONE", b"DONE"), Vouches::Listed);
        assert_eq!(vouches("*", b"x"), Vouches::Listed);
        // Cutting must not lead out of the directory.
        assert_eq!(vouches("*.done", b"...done"), Vouches::Listed);
        assert_eq!(vouches("*.done", b".done"), Vouches::Listed);
    }

    #[test]
    fn wildcards_stand_for_neither_dots_in_front_nor_slashes() {
        let pattern = Pattern::parse("*.done").unwrap();
        assert!(pattern.matches(0, OsStr::new("x.done")));
        assert!(pattern.matches(0, OsStr::from_bytes(b"\xff\n.done")));
        assert!(!pattern.matches(0, OsStr::new(".x.done")));
        assert!(!pattern.matches(0, OsStr::new("x.done.tmp")));
        assert!(!pattern.matches(1, OsStr::new("x.done")));
        assert!(Pattern::parse(".*.done").unwrap().matches(0, OsStr::new(".x.done")));
        let deep = Pattern::parse("ckpt-*/DONE").unwrap();
        assert!(deep.matches(0, OsStr::new("ckpt-7")) && deep.matches(1, OsStr::new("DONE")));
        assert!(!deep.matches(0, OsStr::new("DONE")));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_its_text() {
        for text in ["", "/x", "a//b", "../x", "a/./b", "**/x", "[", "{a"] {
            let error = Pattern::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--trigger={text}: ")), "{error}");
        }
    }
}
