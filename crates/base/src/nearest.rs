//! The known word that a mistyped one was meant to be.

/// No known word is longer; the comparison takes time and memory by the product of the lengths.
const LONGEST_CHARS: usize = 64;

/// The known word with the fewest edits from `typed`, where they are at most a third of its characters, and at least one is
/// allowed. None for words of more than 64 characters. Of several that are as near, the first.
pub fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let chars = typed.chars().count();
    if chars > LONGEST_CHARS {
        return None;
    }
    let allowed = (chars / 3).max(1);
    let near = known.into_iter().map(|word| (edit_distance(typed, word), word));
    near.filter(|(edits, _)| *edits <= allowed).min_by_key(|(edits, _)| *edits).map(|(_, word)| word)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words (optimal string alignment, after Damerau,
/// 1964).
#[must_use]
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_the_word_that_was_meant() {
        let known = ["read", "write", "randread", "iodepth", "bs"];
        for (typed, meant) in [
            ("wirte", Some("write")),
            ("ranread", Some("randread")),
            ("iodpeth", Some("iodepth")),
            ("b", Some("bs")),
            ("colour", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
        assert_eq!(nearest(&"x".repeat(65), known), None);
    }

    #[test]
    fn edits_are_counted_as_optimal_string_alignment_counts_them() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "ba", 1),
            ("abc", "c", 2),
            ("ca", "abc", 3),
            ("größe", "grosse", 3),
        ] {
            assert_eq!((edit_distance(a, b), edit_distance(b, a)), (edits, edits), "{a} {b}");
        }
    }
}
