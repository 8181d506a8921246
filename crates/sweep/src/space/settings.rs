//! Which options a space may set or vary, how each value may be typed, and how it is spelled after.
//!
//! Two spellings of one value (`4096`, `"4k"`) must not become two points, so every value has one
//! canonical text: what a user would type after `--option=`. The same text is stored with the point,
//! matched by `[[exclude]]` and `[[only]]`, and shown in tables.

use base::Words;
use measure::options::{self, ValueKind, WorkloadOption};
use measure::workload::{DataPattern, NumberList, RandomDistribution};
use measure::{TestType, Workload};

use super::SpaceError;
use super::document::{Entry, Node, Source, Value};
use super::layouts::{self, OptionKind};
use super::names;

/// How the values of an option are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 1 to 14.
    TestType,
    /// A device spec.
    Target,
    /// An option of a workload.
    Workload(ValueKind),
    /// An option of a layout.
    Layout(OptionKind),
}

/// The options of workloads that a space may name. A point's name is made from its settings, so it is none of them.
fn of_workloads() -> impl Iterator<Item = &'static WorkloadOption> + Clone {
    options::OPTIONS.iter().filter(|option| option.name != "name")
}

/// The names of all options.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    let of_layouts = layouts::OPTIONS.iter().map(|(name, _)| *name);
    ["test_type", "target"].into_iter().chain(of_workloads().map(|option| option.name)).chain(of_layouts)
}

/// The kind of the option of that name.
pub(super) fn kind_of(name: &str) -> Option<Kind> {
    match name {
        "test_type" => return Some(Kind::TestType),
        "target" => return Some(Kind::Target),
        _ => {}
    }
    let of_workload = of_workloads().find(|option| option.name == name);
    let of_layout = layouts::OPTIONS.iter().find(|(known, _)| *known == name);
    of_workload
        .map(|option| Kind::Workload(option.kind))
        .or_else(|| of_layout.map(|(_, kind)| Kind::Layout(*kind)))
}

/// One value of one option, understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// As it would be typed.
    pub text: String,
    /// Line on which it stands; none where a flag gave it.
    pub line: Option<usize>,
    value: Meaning,
}

/// What a value means to a workload.
#[derive(Debug, Clone, PartialEq)]
enum Meaning {
    TestType(TestType),
    Target(String),
    /// For the workload's field of the option's name.
    Field(toml::Value),
    /// Its text is all that is needed.
    Layout,
}

impl Setting {
    /// Drives that a flag named.
    pub fn drives(paths: &[String]) -> Self {
        Self { text: paths.join(","), line: None, value: Meaning::Layout }
    }

    /// Whether it is an option of a layout.
    pub fn is_of_layout(&self) -> bool {
        self.value == Meaning::Layout
    }

    /// A target that a flag named.
    pub fn target(spec: &str) -> Self {
        Self { text: spec.to_owned(), line: None, value: Meaning::Target(spec.to_owned()) }
    }

    /// A size that a flag named, in bytes.
    pub fn size(bytes: u64) -> Self {
        Self {
            text: units::bytes_short(bytes),
            line: None,
            value: Meaning::Field(toml::Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX))),
        }
    }

    /// A duration that a flag named.
    pub fn duration(value: std::time::Duration) -> Self {
        let seconds = value.as_secs_f64();
        Self { text: format!("{seconds}s"), line: None, value: Meaning::Field(toml::Value::Float(seconds)) }
    }

    /// The test type, where it is one.
    pub fn test_type(&self) -> Option<TestType> {
        match self.value {
            Meaning::TestType(test_type) => Some(test_type),
            _ => None,
        }
    }

    /// The device spec, where it is one.
    pub fn device_spec(&self) -> Option<&str> {
        match &self.value {
            Meaning::Target(spec) => Some(spec),
            _ => None,
        }
    }

    /// The value of the workload's field, where it has one.
    pub fn field(&self) -> Option<&toml::Value> {
        match &self.value {
            Meaning::Field(value) => Some(value),
            _ => None,
        }
    }
}

/// Understands the value of an option.
pub(super) fn read(source: Source<'_>, name: &str, kind: Kind, node: &Node) -> Result<Setting, SpaceError> {
    let (text, value) = match kind {
        Kind::TestType => test_type(source, name, node)?,
        Kind::Target => target(source, name, node)?,
        Kind::Workload(kind) => match kind {
            ValueKind::Size | ValueKind::PositiveSize => size(source, name, node)?,
            ValueKind::Duration | ValueKind::PositiveDuration => duration(source, name, node)?,
            ValueKind::Switch => switch(source, name, node)?,
            ValueKind::Count | ValueKind::Seed | ValueKind::Rate | ValueKind::Percent => {
                count(source, name, node)?
            }
            ValueKind::Fraction => fraction(source, name, node)?,
            ValueKind::SignedSize => signed_size(source, name, node)?,
            ValueKind::Word(words) => word(source, name, node, words)?,
            ValueKind::Distribution => distribution(source, name, node)?,
            ValueKind::Split => split(source, name, node)?,
            ValueKind::Numbers => numbers(source, name, node)?,
            ValueKind::Pattern => pattern(source, name, node)?,
            ValueKind::Text => unreachable!("no option of a space is any text"),
        },
        Kind::Layout(kind) => (layouts::read(source, name, kind, node)?, Meaning::Layout),
    };
    let setting = Setting { text, line: Some(node.line), value };
    // The workload's own reader has the last word on ranges (a u8, a u32).
    if let Meaning::Field(value) = &setting.value {
        let one = toml::Table::from_iter([(name.to_owned(), value.clone())]);
        if let Err(error) = toml::Value::Table(one).try_into::<Workload>() {
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            return Err(source.bad_value(name, node, reason, ""));
        }
    }
    Ok(setting)
}

type Read = Result<(String, Meaning), SpaceError>;

fn field(text: String, value: impl Into<toml::Value>) -> (String, Meaning) {
    (text, Meaning::Field(value.into()))
}

fn test_type(source: Source<'_>, name: &str, node: &Node) -> Read {
    let number = match node.value {
        Value::Integer(n) => u8::try_from(n).ok(),
        _ => None,
    };
    match number.map(TestType::try_from) {
        Some(Ok(found)) => Ok((found.number().to_string(), Meaning::TestType(found))),
        _ => Err(source.bad_value(
            name,
            node,
            "the papers number their test types 1 to 14",
            "write for instance [1, 2, 9, 10]",
        )),
    }
}

fn target(source: Source<'_>, name: &str, node: &Node) -> Read {
    match &node.value {
        Value::Text(spec) if !spec.trim().is_empty() => Ok((spec.clone(), Meaning::Target(spec.clone()))),
        _ => Err(source.bad_value(
            name,
            node,
            "is not a device spec",
            "a path, \"file:PATH?size=4G\" or \"mem:4G\", in quotes",
        )),
    }
}

fn size(source: Source<'_>, name: &str, node: &Node) -> Read {
    let hint = "sizes are bytes (4096) or fio's spelling in quotes (\"4k\", \"1m\")";
    let bytes = match &node.value {
        Value::Integer(n) => u64::try_from(*n).map_err(|_| "is out of range".to_owned()),
        Value::Text(text) => units::size(text).map_err(|e| e.to_string()),
        _ => Err("is not a size".to_owned()),
    };
    let bytes = bytes.and_then(|n| i64::try_from(n).map_err(|_| "is out of range".to_owned()));
    match bytes {
        Ok(n) => Ok(field(units::bytes_short(n.unsigned_abs()), n)),
        Err(reason) => Err(source.bad_value(name, node, reason, hint)),
    }
}

fn duration(source: Source<'_>, name: &str, node: &Node) -> Read {
    let seconds = read_duration(node).map(|d| d.as_secs_f64());
    match seconds {
        Ok(seconds) => Ok(field(format!("{seconds}s"), seconds)),
        Err(reason) => {
            Err(source.bad_value(name, node, reason, "seconds (0.5) or with a unit in quotes (\"500ms\")"))
        }
    }
}

/// A duration as a number of seconds or with its unit.
pub(super) fn read_duration(node: &Node) -> Result<std::time::Duration, String> {
    let of_seconds =
        |s: f64| std::time::Duration::try_from_secs_f64(s).map_err(|_| "is out of range".to_owned());
    match &node.value {
        Value::Integer(n) => of_seconds(*n as f64),
        Value::Float(s) => of_seconds(*s),
        Value::Text(text) => units::duration(text).map_err(|e| e.to_string()),
        _ => Err("is not a duration".to_owned()),
    }
}

fn switch(source: Source<'_>, name: &str, node: &Node) -> Read {
    match node.value {
        Value::Boolean(on) => Ok(field(u8::from(on).to_string(), on)),
        Value::Integer(n @ (0 | 1)) => Ok(field(n.to_string(), n == 1)),
        _ => {
            Err(source.bad_value(name, node, "is neither on nor off", "write true or false, without quotes"))
        }
    }
}

fn count(source: Source<'_>, name: &str, node: &Node) -> Read {
    match node.value {
        Value::Integer(n) => match i64::try_from(n) {
            Ok(n) if n >= 0 => Ok(field(n.to_string(), n)),
            _ => Err(source.bad_value(name, node, "is out of range", "")),
        },
        _ => Err(source.bad_value(name, node, "is not a whole number", "write it without quotes")),
    }
}

fn fraction(source: Source<'_>, name: &str, node: &Node) -> Read {
    let part = match node.value {
        Value::Integer(n) => Some(n as f64),
        Value::Float(part) => Some(part),
        _ => None,
    };
    match part.filter(|part| (0.0..=1.0).contains(part)) {
        Some(part) => Ok(field(part.to_string(), part)),
        None => Err(source.bad_value(name, node, "is not a number from 0 to 1", "write it without quotes")),
    }
}

fn word(source: Source<'_>, name: &str, node: &Node, known: Words) -> Read {
    let Words { list: words, canonical } = known;
    let typed = match &node.value {
        Value::Text(typed) => typed.as_str(),
        _ => {
            return Err(source.bad_value(
                name,
                node,
                "is not a word",
                &format!("one of {}, in quotes", words.join(", ")),
            ));
        }
    };
    match canonical(typed) {
        Some(canonical) => Ok(field(canonical.to_owned(), canonical)),
        None => {
            let hint = match names::nearest(typed, words.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("one of {}", words.join(", ")),
            };
            Err(source.bad_value(name, node, "is not known", &hint))
        }
    }
}

fn signed_size(source: Source<'_>, name: &str, node: &Node) -> Read {
    let bytes = match &node.value {
        Value::Integer(bytes) => i64::try_from(*bytes).ok(),
        Value::Text(text) => measure::options::signed_size(text).ok(),
        _ => None,
    };
    let hint = "for instance \"8k\" or \"-8k\"";
    let bytes = bytes.ok_or_else(|| source.bad_value(name, node, "is not a size", hint))?;
    Ok(field(measure::options::signed_size_text(bytes), bytes))
}

fn distribution(source: Source<'_>, name: &str, node: &Node) -> Read {
    let hint = "\"random\", \"zipf:1.2\", \"pareto:0.2\", \"zoned:50/5:30/15:20/80\" or \"sequence:2,0,1\"";
    let parsed = match &node.value {
        Value::Text(text) if text == "random" => Some(RandomDistribution::Random),
        Value::Text(text) => text.split_once(':').and_then(|(shape, parameter)| match shape {
            "zoned" => measure::distribution::zones(parameter).ok().map(RandomDistribution::Zoned),
            "sequence" => measure::distribution::sequence(parameter).ok().map(RandomDistribution::Sequence),
            shape => skewed(shape, parameter.parse().ok()?),
        }),
        Value::Table(entries) => match entries.as_slice() {
            [Entry { key, node: Node { value: Value::Float(parameter), .. }, .. }] => skewed(key, *parameter),
            _ => None,
        },
        _ => None,
    };
    let (shape, parameter) = match parsed {
        Some(RandomDistribution::Random) => return Ok(field("random".to_owned(), "random")),
        Some(RandomDistribution::Zipf(theta)) => ("zipf", theta),
        Some(RandomDistribution::Pareto(h)) => ("pareto", h),
        Some(given @ (RandomDistribution::Zoned(_) | RandomDistribution::Sequence(_))) => {
            let table = toml::Value::try_from(&given)
                .map_err(|_| source.bad_value(name, node, "is no distribution", hint))?;
            return Ok(field(given.to_string(), table));
        }
        None => return Err(source.bad_value(name, node, "is no distribution", hint)),
    };
    let table = toml::Table::from_iter([(shape.to_owned(), toml::Value::Float(parameter))]);
    Ok(field(format!("{shape}:{parameter}"), table))
}

fn skewed(shape: &str, parameter: f64) -> Option<RandomDistribution> {
    match shape {
        "zipf" => Some(RandomDistribution::Zipf(parameter)),
        "pareto" => Some(RandomDistribution::Pareto(parameter)),
        _ => None,
    }
}

fn split(source: Source<'_>, name: &str, node: &Node) -> Read {
    let hint = "sizes and percentages as fio writes them: \"4k/60:64k/40\"";
    let Value::Text(text) = &node.value else {
        return Err(source.bad_value(name, node, "is not a list of sizes and shares", hint));
    };
    let part = |part: &str| -> Option<(i64, i64)> {
        let (bs, percent) = part.split_once('/')?;
        Some((i64::try_from(units::size(bs).ok()?).ok()?, i64::from(percent.parse::<u8>().ok()?)))
    };
    let Some(parts) = text.split(':').map(part).collect::<Option<Vec<_>>>() else {
        return Err(source.bad_value(name, node, "is not a list of sizes and shares", hint));
    };
    let words: Vec<String> = parts
        .iter()
        .map(|(bs, percent)| format!("{}/{percent}", units::bytes_short(bs.unsigned_abs())))
        .collect();
    let shares: toml::value::Array = parts
        .iter()
        .map(|(bs, percent)| {
            let entries = [("bs".to_owned(), (*bs).into()), ("percent".to_owned(), (*percent).into())];
            toml::Value::Table(toml::Table::from_iter(entries))
        })
        .collect();
    Ok(field(words.join(":"), shares))
}

fn numbers(source: Source<'_>, name: &str, node: &Node) -> Read {
    let hint = "a number, or a list in quotes: \"0-3,8\"";
    let list = match &node.value {
        Value::Integer(n) => u32::try_from(*n).ok().and_then(|n| NumberList::new([n])),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    match list {
        Some(list) => Ok(field(list.to_string(), list.to_string())),
        None => Err(source.bad_value(name, node, "is no list of numbers", hint)),
    }
}

/// Bytes that are repeated, as fio writes them.
fn pattern(source: Source<'_>, name: &str, node: &Node) -> Read {
    let Value::Text(text) = &node.value else {
        return Err(source.bad_value(name, node, "is no pattern", "write it in quotes: '0xdeadface'"));
    };
    match text.parse::<DataPattern>() {
        Ok(pattern) => Ok(field(pattern.to_string(), pattern.to_string())),
        Err(why) => Err(source.bad_value(name, node, why.to_string(), "for instance '0xdeadface'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_a_workload_is_read_as_its_text_is_written() {
        for option in of_workloads() {
            let mut workload = Workload::default();
            option.set(&mut workload, option.example()).unwrap();
            let text = option.text(&workload).unwrap();
            let is_bare = matches!(
                option.kind,
                ValueKind::Switch
                    | ValueKind::Count
                    | ValueKind::Seed
                    | ValueKind::Rate
                    | ValueKind::Percent
                    | ValueKind::Fraction
            );
            let line = if is_bare {
                format!("{} = {text}", option.name)
            } else {
                format!("{} = '{text}'", option.name)
            };
            let source = Source { origin: "t", text: &line };
            let entry = source.parse().unwrap().remove(0);
            let setting = read(source, option.name, kind_of(option.name).unwrap(), &entry.node).expect(&line);
            assert_eq!(setting.text, text, "{line}");
            let field = toml::Table::from_iter([(option.name.to_owned(), setting.field().unwrap().clone())]);
            let read: Workload = toml::Value::Table(field).try_into().unwrap();
            assert_eq!(read, workload, "{line}");
        }
    }

    #[test]
    fn spellings_of_one_value_have_one_text() {
        let read_one = |line: &str| {
            let source = Source { origin: "t", text: line };
            let entry = source.parse().unwrap().remove(0);
            read(source, &entry.key, kind_of(&entry.key).unwrap(), &entry.node).map(|s| s.text)
        };
        for (line, text) in [
            ("bs = 4096", "4k"),
            ("bs = '4k'", "4k"),
            ("bs = '0x1000'", "4k"),
            ("runtime = '500ms'", "0.5s"),
            ("runtime = 0.5", "0.5s"),
            ("direct = 1", "1"),
            ("direct = true", "1"),
            ("rw = 'readwrite'", "rw"),
            ("random_distribution = 'zipf:1.2'", "zipf:1.2"),
            ("random_distribution = { zipf = 1.2 }", "zipf:1.2"),
            ("bssplit = '4096/60:64k/40'", "4k/60:64k/40"),
            ("test_type = 9", "9"),
            ("iodepth = 1_000", "1000"),
            ("cpus_allowed = '3,0-1,2'", "0-3"),
            ("cpus_allowed = 2", "2"),
            ("pages = '4k'", "base"),
        ] {
            assert_eq!(read_one(line).unwrap(), text, "{line}");
        }
        for line in [
            "bs = '4x'",
            "bs = -1",
            "bs = 1.5",
            "runtime = -1",
            "runtime = true",
            "direct = 2",
            "rw = 'raed'",
            "random_distribution = 'zipf'",
            "bssplit = '4k'",
            "test_type = 15",
            "iodepth = '4'",
            "rwmixread = 300",
            "iodepth = 99999999999",
            "bs = 1979-05-27",
            "target = ''",
            "cpus_allowed = 'all'",
            "numa_cpu_nodes = -1",
            "pages = 'mmaphuge'",
        ] {
            assert!(read_one(line).is_err(), "{line} must be refused");
        }
    }
}
