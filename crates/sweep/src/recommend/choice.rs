//! What a setting is called, what it costs, and how it is typed.

use std::collections::BTreeMap;

use crate::analysis::PointSummary;
use crate::analysis::choices::choices;
use crate::model::{SCRATCH, SIDE};

/// What orders settings by cost, as [`crate::model::Point::cost`].
pub(super) fn cost(point: &PointSummary) -> (u64, u32, bool, u32) {
    point.cost
}

/// The choices that differ among the alternatives; only these are worth naming.
pub(super) struct Varying {
    names: Vec<String>,
}

impl Varying {
    pub(super) fn among(points: &[&PointSummary]) -> Self {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for point in points {
            for (name, value) in choices(point) {
                values.entry(name).or_default().push(value);
            }
        }
        // A choice that only some points name varies as well.
        let varies = |of: &Vec<String>| of.len() < points.len() || of.iter().any(|value| *value != of[0]);
        Self { names: values.into_iter().filter(|(_, of)| varies(of)).map(|(n, _)| n).collect() }
    }

    /// `random seeking, depth 16`; the whole label where nothing varies.
    pub(super) fn setting(&self, point: &PointSummary) -> String {
        self.words(point, |_| true)
    }

    /// The same, of what differs from `other` only.
    pub(super) fn difference(&self, point: &PointSummary, other: &PointSummary) -> String {
        let same = choices(other);
        self.words(point, |choice| !same.contains(choice))
    }

    fn words(&self, point: &PointSummary, named: impl Fn(&(String, String)) -> bool) -> String {
        let words: Vec<String> = choices(point)
            .into_iter()
            .filter(|choice| self.names.contains(&choice.0) && named(choice))
            .map(|(name, value)| self::words(&name, &value))
            .collect();
        if words.is_empty() { point.label.clone() } else { words.join(", ") }
    }
}

/// Where a setting stands, in sentences as in what is made of them: what is built, then queues, of which the scheduler comes first
/// because it resets others, then the load.
#[must_use]
pub fn rank(name: &str) -> usize {
    const ORDER: [&str; 17] = [
        "layout",
        "width",
        "chunk",
        "filesystem",
        "mount_options",
        "scheduler",
        "nr_requests",
        "wbt_lat_usec",
        "max_sectors_kb",
        "read_ahead_kb",
        "nomerges",
        "rq_affinity",
        "irq_cpus",
        "rw",
        "bs",
        "iodepth",
        "numjobs",
    ];
    ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
}

/// Settings in words, in that order.
pub(crate) fn in_words<'a>(settings: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    let mut settings: Vec<(&String, &String)> = settings.collect();
    settings.sort_by_key(|(name, _)| rank(name));
    settings.into_iter().map(|(name, value)| words(name, value)).collect()
}

/// A setting for people: `depth 16`, `16 drives`, `scheduler=none`.
pub(crate) fn words(name: &str, value: &str) -> String {
    match name {
        "rw" if value.starts_with("rand") => "random seeking".to_owned(),
        "rw" => "sequential seeking".to_owned(),
        "bs" => format!("{value} requests"),
        "iodepth" => format!("depth {value}"),
        "numjobs" if value == "1" => "1 job".to_owned(),
        "numjobs" => format!("{value} jobs"),
        "width" if value == "1" => "1 drive".to_owned(),
        "width" => format!("{value} drives"),
        "layout" | "target" => value.to_owned(),
        SIDE => format!("side {value}"),
        "chunk" => format!("{value} chunks"),
        "filesystem" if value == "raw" => "no file system".to_owned(),
        "filesystem" => value.to_owned(),
        _ => format!("{name}={value}"),
    }
}

/// `--rw=randread --bs=4k --iodepth=128`, as `flashwright bench` takes them. A layout is no flag of it.
pub(super) fn flags(point: &PointSummary) -> String {
    let size = if point.request.contains('/') { "bssplit" } else { "bs" };
    let mut flags = vec![
        format!("--rw={}", point.rw),
        format!("--{size}={}", point.request),
        format!("--iodepth={}", point.iodepth),
    ];
    if point.numjobs > 1 {
        flags.push(format!("--numjobs={}", point.numjobs));
    }
    // Of two sides all settings are conditions, and some of them stand above.
    for option in point.options.iter().chain(&point.work.conditions) {
        let flag = quoted(&format!("--{option}"));
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    if point.target != SCRATCH && point.layout.is_empty() {
        flags.push(quoted(&format!("--target={}", point.target)));
    }
    flags.join(" ")
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_reads_quoted_words_back() {
        assert_eq!(quoted("--bs=4k"), "--bs=4k");
        assert_eq!(quoted("--target=/my disk"), "'--target=/my disk'");
        assert_eq!(quoted("a'b; rm -rf /"), r"'a'\''b; rm -rf /'");
    }
}
