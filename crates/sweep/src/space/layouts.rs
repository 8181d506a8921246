//! The options of a layout: what is built below a point, and with which settings.
//!
//! They are typed like all others, stand in `[base]` or `[space]` like all others, and end in
//! [`Point::layout`](crate::model::Point::layout). What is particular to them:
//!
//! - `drives` is a list under `[base]`: what everything is built of. It is needed as soon as any other of
//!   these options is named, and takes the place of `target`.
//! - Not every option means something to every layout. A dimension that means nothing to one of several
//!   layouts is written `-` in that layout's points, and of the combinations that then are the same
//!   configuration one is measured; the others are left out, counted and said ([`LeftOut`]). So are
//!   combinations that cannot be built. An option that means nothing to any point is a mistake, and refused.

use std::collections::BTreeMap;

use base::{Filesystem, LayoutKind};

use super::SpaceError;
use super::document::{Node, Source, Value};
use super::names;

/// Stands for the value of a dimension that means nothing to a point's layout.
pub const NOT_APPLICABLE: &str = "-";

/// How the values of an option of a layout are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionKind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// Bytes: `65536`, `"64k"`.
    Size,
    /// A whole number within bounds.
    Whole(u64, u64),
    /// A name that the kernel knows: `mq-deadline`.
    Name,
    /// Words of the system, as they are: `noatime,nobarrier`.
    Text,
    /// CPUs: `0`, `"0-3"`, `"spread"`.
    Cpus,
    /// Paths of devices, in a list.
    Drives,
}

/// All options of a layout, in the order in which they are explained.
pub(super) const OPTIONS: &[(&str, OptionKind)] = &[
    ("drives", OptionKind::Drives),
    ("layout", OptionKind::Word(&LayoutKind::WORDS)),
    ("chunk", OptionKind::Size),
    ("width", OptionKind::Whole(1, 1024)),
    ("filesystem", OptionKind::Word(&Filesystem::SETTINGS)),
    ("mount_options", OptionKind::Text),
    ("scheduler", OptionKind::Name),
    ("read_ahead_kb", OptionKind::Whole(0, 4 << 20)),
    ("nr_requests", OptionKind::Whole(4, 1 << 20)),
    ("nomerges", OptionKind::Whole(0, 2)),
    ("rq_affinity", OptionKind::Whole(0, 2)),
    ("write_cache", OptionKind::Word(&["write back", "write through"])),
    ("wbt_lat_usec", OptionKind::Whole(0, 100_000_000)),
    ("max_sectors_kb", OptionKind::Whole(4, 1 << 20)),
    ("io_poll", OptionKind::Whole(0, 1)),
    ("iostats", OptionKind::Whole(0, 1)),
    ("irq_cpus", OptionKind::Cpus),
];

/// Whether the option belongs to a layout.
pub(super) fn is_option(name: &str) -> bool {
    OPTIONS.iter().any(|(known, _)| *known == name)
}

/// A value's canonical text.
pub(super) fn read(
    source: Source<'_>,
    name: &str,
    kind: OptionKind,
    node: &Node,
) -> Result<String, SpaceError> {
    let bad = |reason: &str, hint: &str| source.bad_value(name, node, reason, hint);
    match (kind, &node.value) {
        (OptionKind::Word(words), Value::Text(typed)) => {
            let hint = match names::nearest(typed, words.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("one of {}", words.join(", ")),
            };
            let known = words.contains(&typed.as_str());
            known.then(|| typed.clone()).ok_or_else(|| bad("is not known", &hint))
        }
        (OptionKind::Word(words), _) => {
            Err(bad("is not a word", &format!("one of {}, in quotes", words.join(", "))))
        }
        (OptionKind::Size, value) => {
            let bytes = match value {
                Value::Integer(n) => u64::try_from(*n).map_err(|_| "is out of range".to_owned()),
                Value::Text(text) => units::size(text).map_err(|e| e.to_string()),
                _ => Err("is not a size".to_owned()),
            };
            let hint = "sizes are bytes (65536) or fio's spelling in quotes (\"64k\")";
            match bytes {
                Ok(bytes) if bytes.is_power_of_two() && (4 << 10..=1 << 30).contains(&bytes) => {
                    Ok(units::bytes_short(bytes))
                }
                Ok(_) => Err(bad("is no power of two from 4k to 1g, as all layouts can have", hint)),
                Err(reason) => Err(bad(&reason, hint)),
            }
        }
        (OptionKind::Whole(least, most), Value::Integer(n)) => match u64::try_from(*n) {
            Ok(n) if (least..=most).contains(&n) => Ok(n.to_string()),
            _ => Err(bad(&format!("must be a whole number from {least} to {most}"), "")),
        },
        (OptionKind::Whole(..), _) => Err(bad("is not a whole number", "write it without quotes")),
        (OptionKind::Name, Value::Text(text)) if is_name(text) => Ok(text.clone()),
        (OptionKind::Name, _) => Err(bad("is not a name", "as the kernel spells it, in quotes: \"none\"")),
        (OptionKind::Text, Value::Text(text)) if is_plain(text) => Ok(text.clone()),
        (OptionKind::Text, _) => Err(bad("is not a text", "as mount(8) takes them: \"noatime,nobarrier\"")),
        (OptionKind::Cpus, Value::Integer(n)) if u32::try_from(*n).is_ok() => Ok(n.to_string()),
        (OptionKind::Cpus, Value::Text(text)) if is_cpus(text) => Ok(text.clone()),
        (OptionKind::Cpus, _) => Err(bad("names no CPUs", "0, \"0-3\", \"0,2\" or \"spread\"")),
        (OptionKind::Drives, _) => drives(source, name, node),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// Whether a text can stand in one line between brackets: a layout is written so.
fn is_plain(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(|c: char| c.is_control() || "():".contains(c))
}

fn is_cpus(text: &str) -> bool {
    let number = |n: &str| n.parse::<u32>().ok();
    let part = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
        None => number(part).is_some(),
    };
    text == "spread" || text.split(',').all(part)
}

fn drives(source: Source<'_>, name: &str, node: &Node) -> Result<String, SpaceError> {
    let hint = "a list of block devices, [\"/dev/nvme0n1\", \"/dev/nvme1n1\"]";
    let Value::Array(nodes) = &node.value else {
        return Err(source.bad_value(name, node, "is not a list", hint));
    };
    let mut paths: Vec<&str> = Vec::new();
    for node in nodes {
        match &node.value {
            Value::Text(path) => match check_drive(path, &paths) {
                Ok(()) => paths.push(path),
                Err(reason) => return Err(source.bad_value(name, node, reason, hint)),
            },
            _ => return Err(source.bad_value(name, node, "is not a path", hint)),
        }
    }
    if paths.is_empty() {
        return Err(source.bad_value(name, node, "has no drive", hint));
    }
    Ok(paths.join(","))
}

/// Whether a path may be one more of the drives.
pub(super) fn check_drive(path: &str, before: &[&str]) -> Result<(), &'static str> {
    if !path.starts_with('/') || path.contains(|c: char| c.is_control() || ",()".contains(c)) {
        return Err("is not an absolute path of a device");
    }
    if before.contains(&path) {
        return Err("stands here twice");
    }
    Ok(())
}

/// Combinations that are no points, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// One line for people.
    pub reason: String,
    /// How many combinations.
    pub combinations: u64,
}

/// A combination of a layout's options, fitted to what its layout is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fitted {
    /// What the layout is made with.
    pub layout: BTreeMap<String, String>,
    /// Options whose typed value means nothing here, with what is written in its place.
    pub replaced: BTreeMap<&'static str, &'static str>,
    /// Why, in words, where something is replaced.
    pub why: Option<String>,
}

/// What of the typed options the layout can be made with.
///
/// # Errors
/// The option at fault, and why the combination cannot be built.
pub(super) fn fit(typed: &BTreeMap<String, String>) -> Result<Fitted, (&'static str, String)> {
    let mut layout = typed.clone();
    let word = layout.entry("layout".to_owned()).or_insert_with(|| "single".to_owned()).clone();
    let mut replaced: BTreeMap<&'static str, &'static str> = BTreeMap::new();
    if let Some(kind) = LayoutKind::from_word(&word) {
        if kind == LayoutKind::Single {
            replaced.insert("width", "1");
        }
        // A file system over the drives has one chunk.
        if !kind.has_chunk() || kind.filesystem().is_some() {
            replaced.insert("chunk", NOT_APPLICABLE);
        }
        if let Some(own) = kind.filesystem().map(Filesystem::word) {
            let asked = layout.entry("filesystem".to_owned()).or_insert_with(|| own.to_owned());
            if asked != own {
                return Err(("filesystem", format!("layout={word} is a {own}, and no {asked}")));
            }
        }
    }
    if layout.get("filesystem").is_none_or(|f| f == Filesystem::RAW) {
        replaced.insert("mount_options", NOT_APPLICABLE);
    }
    replaced.retain(|name, _| layout.remove(*name).is_some());
    let why = (!replaced.is_empty()).then(|| {
        let names: Vec<&str> = replaced.keys().copied().collect();
        let (names, means) = match names.as_slice() {
            ["mount_options"] => return "filesystem=raw has no mount_options".to_owned(),
            [one] => ((*one).to_owned(), "means"),
            several => (several.join(", "), "mean"),
        };
        format!("{names} {means} nothing to layout={word}")
    });
    Ok(Fitted { layout, replaced, why })
}
