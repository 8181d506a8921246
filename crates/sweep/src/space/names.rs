//! Names that a user may have meant.

/// What other tools, and people, call our options.
const SYNONYMS: [(&str, &str); 21] = [
    ("readwrite", "rw"),
    ("blocksize", "bs"),
    ("block_size", "bs"),
    ("queue_depth", "iodepth"),
    ("depth", "iodepth"),
    ("qd", "iodepth"),
    ("engine", "ioengine"),
    ("batch", "iodepth_batch"),
    ("polling", "hipri"),
    ("sqpoll", "sqthread_poll"),
    ("jobs", "numjobs"),
    ("threads", "numjobs"),
    ("device", "target"),
    ("filename", "target"),
    ("duration", "runtime"),
    ("tests", "test_type"),
    ("chunk_size", "chunk"),
    ("stripe_size", "chunk"),
    ("stripe_width", "width"),
    ("elevator", "scheduler"),
    ("devices", "drives"),
];

/// The known name nearest to what was typed: a synonym, or one that a slip of the fingers explains.
pub(super) fn nearest<'k>(typed: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // No name is that long; the comparison takes time and memory by the product of the lengths.
    if typed.len() > 64 {
        return None;
    }
    let lower = typed.to_ascii_lowercase().replace('-', "_");
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == lower).map(|(_, ours)| *ours);
    let tolerated = (lower.chars().count() / 3).max(1);
    known
        .map(|name| {
            let distance = if synonym == Some(name) { 0 } else { edit_distance(&lower, name) };
            (distance, name)
        })
        .filter(|(distance, _)| *distance <= tolerated)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words (optimal string
/// alignment, after Damerau, 1964).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = rows[i][j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_synonyms_find_the_name_that_was_meant() {
        let known = ["bs", "rw", "iodepth", "iodepth_batch", "numjobs", "ioengine", "target"];
        for (typed, meant) in [
            ("iodpeth", Some("iodepth")),
            ("IODEPTH", Some("iodepth")),
            ("queue-depth", Some("iodepth")),
            ("engine", Some("ioengine")),
            ("blocksize", Some("bs")),
            ("colour", None),
        ] {
            assert_eq!(nearest(typed, known.into_iter()), meant, "{typed}");
        }
    }
}
