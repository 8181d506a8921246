//! Words of later versions: a record that a newer program wrote stays readable, and what it says is kept as it stands.

use std::collections::BTreeSet;
use std::sync::Mutex;

/// The most characters of a word.
const LONGEST_CHARS: usize = 64;
/// The most words that a process keeps; each stays in memory to its end.
const MOST_WORDS: usize = 1024;

static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// A word that this version does not know, such as a warning's code, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaterWord(&'static str);

impl LaterWord {
    /// Keeps a word. None if it is not 1 to 64 letters, digits and hyphens of ASCII, or if this process has kept 1024 others.
    #[must_use]
    pub fn new(word: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if word.is_empty() || word.len() > LONGEST_CHARS || !word.bytes().all(is_plain) {
            return None;
        }
        let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(kept) = known.get(word) {
            return Some(Self(kept));
        }
        if known.len() >= MOST_WORDS {
            return None;
        }
        let kept: &'static str = Box::leak(word.to_owned().into_boxed_str());
        known.insert(kept);
        Some(Self(kept))
    }

    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.0
    }
}

/// The schema of words that are known, with their meanings, or of a later version.
pub(crate) fn schema(known: &[(&str, &str)], pattern: &str) -> schemars::Schema {
    let known = known.iter().map(
        |(word, meaning)| serde_json::json!({ "type": "string", "const": word, "description": meaning }),
    );
    let later =
        serde_json::json!({ "type": "string", "pattern": pattern, "description": "One of a later version." });
    let any: Vec<_> = known.chain([later]).collect();
    schemars::json_schema!({ "anyOf": any })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_word_is_kept_once_and_no_text_is_one() {
        let (first, second) = (LaterWord::new("W-TOMORROW").unwrap(), LaterWord::new("W-TOMORROW").unwrap());
        assert!(first == second && std::ptr::eq(first.word(), second.word()));
        for text in ["", "two words", "a\nb", "größe", &"x".repeat(65)] {
            assert_eq!(LaterWord::new(text), None, "{text:?}");
        }
    }
}
