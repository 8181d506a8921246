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
pub(super) fn nearest<'k>(typed: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let lower = typed.to_ascii_lowercase().replace('-', "_");
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == lower).map(|(_, ours)| *ours);
    synonym.and_then(|ours| known.clone().find(|name| *name == ours)).or_else(|| base::nearest(&lower, known))
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
