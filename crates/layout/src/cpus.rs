//! Lists of CPUs as the kernel writes them: `0-3,8` (kernel, `Documentation/admin-guide/cputopology.rst`).

use std::collections::BTreeSet;

/// As many CPUs as any kernel is built for.
const MAX_CPUS: u32 = 8192;

/// The CPUs of a list; none where it is not one.
pub(crate) fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        if from > to || to >= MAX_CPUS {
            return None;
        }
        all.extend(from..=to);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_ranges() {
        assert_eq!(parse("0-2,8\n"), Some(BTreeSet::from([0, 1, 2, 8])));
        assert_eq!(parse(""), Some(BTreeSet::new()));
        for text in ["a", "3-1", "0-", "-1", "0-99999999"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
