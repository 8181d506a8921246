//! Settings of a block queue, and the order in which they are written.
//!
//! The order is part of the meaning. A change of the scheduler gives the queue the new scheduler's
//! number of requests and may switch writeback throttling on or off (kernel, `block/elevator.c`,
//! `block/blk-wbt.c`), and it throws away what was set below `queue/iosched/`. So the scheduler comes before
//! what it resets, when settings are made and again when they are restored.

use storage::sysfs::Sysfs;

use std::path::Path;

/// What a setting may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// A word of letters, digits and dashes.
    Word,
    /// A number from this one on.
    From(u64),
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// A file below `/sys/block/NAME/queue`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Knob {
    /// Its name there and in a layout.
    pub name: &'static str,
    /// What it may be.
    pub values: Values,
    /// The others that a change of it resets.
    pub resets: &'static [&'static str],
}

const SWITCH: Values = Values::OneOf(&["0", "1"]);
const THREE: Values = Values::OneOf(&["0", "1", "2"]);

/// All settings of a queue, in the order in which they are written (kernel, `Documentation/ABI/stable/sysfs-block`).
pub(crate) const KNOBS: [Knob; 10] = [
    Knob {
        name: "write_cache",
        values: Values::OneOf(&["write back", "write through"]),
        resets: &["wbt_lat_usec"],
    },
    Knob { name: "scheduler", values: Values::Word, resets: &["nr_requests", "wbt_lat_usec"] },
    Knob { name: "nr_requests", values: Values::From(4), resets: &[] },
    Knob { name: "wbt_lat_usec", values: Values::From(0), resets: &[] },
    Knob { name: "max_sectors_kb", values: Values::From(4), resets: &[] },
    Knob { name: "read_ahead_kb", values: Values::From(0), resets: &[] },
    Knob { name: "nomerges", values: THREE, resets: &[] },
    Knob { name: "rq_affinity", values: THREE, resets: &[] },
    Knob { name: "io_poll", values: SWITCH, resets: &[] },
    Knob { name: "iostats", values: SWITCH, resets: &[] },
];

/// The setting of that name.
pub(crate) fn knob(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

/// Where in the order of writing a file `queue/…` stands: the scheduler's own tunables come after it.
pub(crate) fn rank(file: &str) -> usize {
    let name = file.trim_start_matches("queue/");
    let scheduler = KNOBS.iter().position(|knob| knob.name == "scheduler").unwrap_or(0);
    if name.starts_with("iosched/") {
        return 2 * scheduler + 1;
    }
    2 * KNOBS.iter().position(|knob| knob.name == name).unwrap_or(KNOBS.len())
}

impl Knob {
    /// Why `value` makes no sense here, and what would; none where it does.
    pub(crate) fn objection(&self, value: &str) -> Option<String> {
        match self.values {
            Values::Word => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                (value.is_empty() || !value.chars().all(is_word))
                    .then(|| "is a word, for instance none or mq-deadline".to_owned())
            }
            Values::From(least) => value
                .parse::<u64>()
                .map_or(true, |number| number < least || number.to_string() != value)
                .then(|| format!("is a whole number from {least} on")),
            Values::OneOf(words) => {
                (!words.contains(&value)).then(|| format!("is one of {}", words.join(", ")))
            }
        }
    }
}

/// The text of a setting as it is written back: of `none [mq-deadline]` the word in brackets.
pub(crate) fn read(system: &Sysfs, path: &Path) -> Option<String> {
    let text = system.text(path)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    Some(chosen.map_or_else(|| text.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_comes_after_whatever_resets_it() {
        for knob in &KNOBS {
            for reset in knob.resets {
                assert!(rank(&format!("queue/{}", knob.name)) < rank(&format!("queue/{reset}")), "{reset}");
            }
        }
        assert!(rank("queue/scheduler") < rank("queue/iosched/read_expire"));
        assert!(rank("queue/iosched/read_expire") < rank("queue/nr_requests"));
    }

    #[test]
    fn values_that_make_no_sense_are_told_from_those_that_do() {
        let objects = |name: &str, value: &str| knob(name).unwrap().objection(value).is_some();
        for (name, value) in [
            ("scheduler", "mq-deadline"),
            ("read_ahead_kb", "0"),
            ("nomerges", "2"),
            ("write_cache", "write through"),
        ] {
            assert!(!objects(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("scheduler", ""),
            ("scheduler", "a b"),
            ("nr_requests", "3"),
            ("nr_requests", "-1"),
            ("read_ahead_kb", "04"),
            ("read_ahead_kb", "4k"),
            ("nomerges", "3"),
            ("write_cache", "on"),
        ] {
            assert!(objects(name, value), "{name}={value}");
        }
    }
}
