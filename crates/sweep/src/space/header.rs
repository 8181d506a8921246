//! The table `[sweep]`: how the space is run.

use std::time::Duration;

use base::Word;

use super::SpaceError;
use super::document::{Entry, Node, Source, Value};
use super::settings;
use crate::plan::{Margin, Order, Prepare, Protocol};

const KEYS: [&str; 18] = [
    "name",
    "protocol",
    "search",
    "budget",
    "block_spacing",
    "equivalence",
    "passes",
    "discard_first",
    "runtime",
    "ramp_time",
    "seed",
    "control",
    "control_every",
    "baseline",
    "order",
    "precondition",
    "purge",
    "limits",
];
const LIMITS: [&str; 3] = ["points", "time", "failures"];

/// What stops a sweep that is larger, or goes worse, than was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most points that the space may have.
    pub points: u32,
    /// The longest that the plan may take by its estimate.
    pub time: Option<Duration>,
    /// Failed runs in a row after which a session gives up, 1 or more.
    pub failures: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { points: 100_000, time: None, failures: 3 }
    }
}

/// Which point is repeated as a control.
#[derive(Debug, Clone)]
pub(super) enum Control {
    /// The first 4 KiB random read, or what comes nearest.
    Default,
    /// None.
    Off,
    /// The first point with these settings.
    Settings(Vec<Entry>),
}

/// `[sweep]`, understood.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub name: Option<String>,
    pub protocol: Option<Protocol>,
    /// The longest that blocks are run.
    pub budget: Option<Duration>,
    pub spacing: Duration,
    pub equivalence: Margin,
    pub passes: Option<u32>,
    pub discard_first: Option<bool>,
    pub runtime: Option<Node>,
    pub ramp_time: Option<Node>,
    pub seed: Option<u64>,
    pub control: Control,
    pub control_every: u32,
    /// Where the recipe's ladder starts; empty where nobody says.
    pub baseline: Vec<Entry>,
    pub order: Order,
    pub prepare: Prepare,
    pub limits: Limits,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            name: None,
            protocol: None,
            budget: None,
            spacing: measure::decide::SPACING,
            equivalence: Margin::default(),
            passes: None,
            discard_first: None,
            runtime: None,
            ramp_time: None,
            seed: None,
            control: Control::Default,
            control_every: 20,
            baseline: Vec::new(),
            order: Order::Random,
            prepare: Prepare::default(),
            limits: Limits::default(),
        }
    }
}

impl Header {
    /// Reads the entries of `[sweep]`.
    pub fn read(source: Source<'_>, entries: &[Entry]) -> Result<Self, SpaceError> {
        let mut header = Self::default();
        for entry in entries {
            let (key, node) = (entry.key.as_str(), &entry.node);
            match key {
                "name" => header.name = Some(name(source, key, node)?),
                "protocol" => header.protocol = Some(word(source, key, node, "is not a protocol")?),
                "search" => header.protocol = Some(search(source, key, node)?),
                "budget" => header.budget = Some(budget(source, key, node)?),
                "block_spacing" => header.spacing = time(source, key, node, "for instance \"5s\"")?,
                "equivalence" => header.equivalence = equivalence(source, key, node)?,
                "passes" => header.passes = Some(whole(source, key, node, 1, 10_000)? as u32),
                "discard_first" => header.discard_first = Some(truth(source, key, node)?),
                "runtime" => header.runtime = Some(node.clone()),
                "ramp_time" => header.ramp_time = Some(node.clone()),
                "seed" => header.seed = Some(whole(source, key, node, 0, u64::MAX)?),
                "control" => header.control = control(source, key, node)?,
                "control_every" => {
                    header.control_every = whole(source, key, node, 0, u64::from(u32::MAX))? as u32
                }
                "baseline" => header.baseline = baseline(source, key, node)?,
                "order" => header.order = word(source, key, node, "is not an order")?,
                "precondition" => {
                    header.prepare.how = word(source, key, node, "is no way to prepare a target")?;
                }
                "purge" => header.prepare.purge = truth(source, key, node)?,
                "limits" => header.limits = limits(source, key, node)?,
                _ => return Err(source.unknown_key(entry, "[sweep]", KEYS.into_iter())),
            }
        }
        header.check(source, entries)?;
        Ok(header)
    }

    fn check(&self, source: Source<'_>, entries: &[Entry]) -> Result<(), SpaceError> {
        let line = |key: &str| entries.iter().find(|e| e.key == key).map_or(1, |e| e.line);
        let refuse = |key: &str, reason: &str, hint: &str| Err(source.bad_key(line(key), key, reason, hint));
        if entries.iter().any(|e| e.key == "protocol") && entries.iter().any(|e| e.key == "search") {
            return refuse("search", "says what protocol says", "keep one of the two");
        }
        if self.protocol.is_some_and(Protocol::is_screened) && self.passes.is_some() {
            return refuse(
                "passes",
                "does not belong to search = \"screen\"",
                "take it out: blocks are run until a decision",
            );
        }
        let is_papers = self.protocol.is_some_and(Protocol::is_papers);
        if is_papers && self.discard_first.unwrap_or(true) && self.passes == Some(1) {
            let hint = "raise passes to 2 or more, or say discard_first = false";
            return refuse("passes", "the only pass would be set aside", hint);
        }
        if self.protocol.is_some_and(Protocol::is_planned_ahead) && self.budget.is_some() {
            return refuse(
                "budget",
                "belongs to protocol = \"blocks\"",
                "passes says how long the other takes",
            );
        }
        if self.budget.is_some() && self.passes.is_some() {
            return refuse(
                "budget",
                "cannot stand beside passes, which fixes the number of blocks",
                "keep one of the two",
            );
        }
        if self.protocol.is_some() && !is_papers && self.discard_first == Some(true) {
            return refuse(
                "discard_first",
                "belongs to protocol = \"dash\"",
                "take it out: blocks set no run aside",
            );
        }
        Ok(())
    }
}

fn name(source: Source<'_>, key: &str, node: &Node) -> Result<String, SpaceError> {
    match &node.value {
        Value::Text(text) if !text.trim().is_empty() && !text.contains(char::is_control) => {
            Ok(text.trim().to_owned())
        }
        _ => Err(source.bad_value(key, node, "is not a name", "some words in quotes, on one line")),
    }
}

/// A word of an enum.
fn word<W: Word>(source: Source<'_>, key: &str, node: &Node, reason: &str) -> Result<W, SpaceError> {
    choice(source, key, node, reason, W::WORDS, W::from_word)
}

fn search(source: Source<'_>, key: &str, node: &Node) -> Result<Protocol, SpaceError> {
    let words = Protocol::ALL.map(Protocol::search_word);
    choice(source, key, node, "is not a way to search", &words, Protocol::from_search)
}

/// What one of `words` means.
fn choice<T>(
    source: Source<'_>,
    key: &str,
    node: &Node,
    reason: &str,
    words: &[&str],
    meaning: fn(&str) -> Option<T>,
) -> Result<T, SpaceError> {
    let found = match &node.value {
        Value::Text(word) => meaning(word),
        _ => None,
    };
    let hint = || {
        let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let (last, others) = words.split_last().expect("a key with a word has several");
        format!("{} or {last}", others.join(", "))
    };
    found.ok_or_else(|| source.bad_value(key, node, reason, &hint()))
}

fn time(source: Source<'_>, key: &str, node: &Node, hint: &str) -> Result<Duration, SpaceError> {
    settings::read_duration(node).map_err(|reason| source.bad_value(key, node, reason, hint))
}

fn budget(source: Source<'_>, key: &str, node: &Node) -> Result<Duration, SpaceError> {
    let hint = "for instance \"30m\"";
    match time(source, key, node, hint)? {
        Duration::ZERO => Err(source.bad_value(key, node, "leaves no time to measure", hint)),
        budget => Ok(budget),
    }
}

fn equivalence(source: Source<'_>, key: &str, node: &Node) -> Result<Margin, SpaceError> {
    let margin = match &node.value {
        Value::Text(text) => Margin::parse(text),
        _ => None,
    };
    let hint = "for instance \"3%\", within 0.01 % and 50 %";
    margin.ok_or_else(|| source.bad_value(key, node, "is no margin of equivalence", hint))
}

/// A whole number within bounds.
fn whole(source: Source<'_>, key: &str, node: &Node, least: u64, most: u64) -> Result<u64, SpaceError> {
    let found = match node.value {
        Value::Integer(n) => u64::try_from(n).ok().filter(|n| (least..=most).contains(n)),
        _ => None,
    };
    found.ok_or_else(|| {
        source.bad_value(key, node, format!("must be a whole number from {least} to {most}"), "")
    })
}

fn truth(source: Source<'_>, key: &str, node: &Node) -> Result<bool, SpaceError> {
    match node.value {
        Value::Boolean(truth) => Ok(truth),
        _ => Err(source.bad_value(
            key,
            node,
            "is neither true nor false",
            "write true or false, without quotes",
        )),
    }
}

fn control(source: Source<'_>, key: &str, node: &Node) -> Result<Control, SpaceError> {
    match &node.value {
        Value::Boolean(true) => Ok(Control::Default),
        Value::Boolean(false) => Ok(Control::Off),
        Value::Table(entries) if !entries.is_empty() => Ok(Control::Settings(entries.clone())),
        _ => Err(source.bad_value(
            key,
            node,
            "names no point",
            "true, false, or settings of a point such as { test_type = 9 }",
        )),
    }
}

fn baseline(source: Source<'_>, key: &str, node: &Node) -> Result<Vec<Entry>, SpaceError> {
    node.table().map(<[Entry]>::to_vec).ok_or_else(|| {
        let hint = "settings of the space such as { width = 16, scheduler = \"mq-deadline\" }";
        source.bad_value(key, node, "is not a table", hint)
    })
}

fn limits(source: Source<'_>, key: &str, node: &Node) -> Result<Limits, SpaceError> {
    let Some(entries) = node.table() else {
        return Err(source.bad_value(
            key,
            node,
            "is not a table",
            "for instance { points = 1000, time = \"3h\" }",
        ));
    };
    let mut limits = Limits::default();
    for entry in entries {
        let (key, node) = (entry.key.as_str(), &entry.node);
        match key {
            "points" => limits.points = whole(source, key, node, 1, 10_000_000)? as u32,
            "failures" => limits.failures = whole(source, key, node, 1, u64::from(u32::MAX))? as u32,
            "time" => {
                let time = settings::read_duration(node);
                limits.time =
                    Some(time.map_err(|reason| source.bad_value(key, node, reason, "for instance \"3h\""))?);
            }
            _ => return Err(source.unknown_key(entry, "limits", LIMITS.into_iter())),
        }
    }
    Ok(limits)
}
