//! What is to be under test, as it is typed: `md-raid0(chunk=64k,filesystem=xfs,scheduler=none):/dev/nvme0n1,/dev/nvme1n1`.
//!
//! A layout is a kind, settings in parentheses, and drives. What is not named is left as the machine has
//! it. The settings have the names that the dimensions of a sweep have. Only the drives that are used are
//! part of a spec: `width=4` of eight drives are the first four.
//!
//! Within the parentheses a part without `=` goes on with the value before it, so that `irq_cpus=0,2-3` and
//! `mount_options=noatime,nobarrier` are typed as they are everywhere else. Mount options have `=` of their own
//! (`logbsize=256k`); so a part behind `mount_options` whose name is no setting is one more of them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use base::{Filesystem, LayoutKind};

use crate::cpus;
use crate::knobs::{KNOBS, knob};

/// What is to be under test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayoutSpec {
    /// How the drives are made into one.
    pub kind: LayoutKind,
    /// The drives, in order; at least one, each once.
    pub drives: Vec<PathBuf>,
    /// Bytes that one drive holds before the next; none is [`LayoutKind::default_chunk`].
    pub chunk: Option<u64>,
    /// The file system; none is none (`raw`), but for `btrfs-raid0`, which is one.
    pub filesystem: Option<Filesystem>,
    /// Options of the mount, as mount(8) takes them.
    pub mount_options: Option<String>,
    /// Settings of the drives' queues by name, as they are written.
    pub queue: BTreeMap<String, String>,
    /// The CPUs that take the drives' interrupts: a list, or `spread`.
    pub irq_cpus: Option<String>,
}

/// A layout that makes no sense. The message names the setting and its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A text without drives or without the form of a layout.
    #[error("'{text}': {problem}")]
    Form {
        /// What was typed.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A setting that is not known.
    #[error("'{name}={value}': there is no such setting of a layout")]
    Unknown {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A value that makes no sense, by itself or beside the others.
    #[error("{name}={value}: {problem}")]
    Value {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
        /// Why not.
        problem: String,
        /// What to do.
        hint: String,
    },
}

impl SpecError {
    fn value(name: &str, value: &str, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Value { name: name.into(), value: value.into(), problem: problem.into(), hint: hint.into() }
    }

    /// What to type instead.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Form { .. } => {
                "for instance md-raid0(chunk=64k,filesystem=xfs,scheduler=none):/dev/nvme0n1,/dev/nvme1n1"
                    .to_owned()
            }
            Self::Unknown { .. } => format!("there are {}", setting_names().join(", ")),
            Self::Value { hint, .. } => hint.clone(),
        }
    }
}

/// The names of all settings of a layout, which are dimensions of a sweep as well.
#[must_use]
pub fn setting_names() -> Vec<&'static str> {
    let construction = ["layout", "drives", "width", "chunk", "filesystem", "mount_options"];
    construction.into_iter().chain(KNOBS.iter().map(|knob| knob.name)).chain(["irq_cpus"]).collect()
}

impl LayoutSpec {
    /// Reads a layout as it was typed. A bare path is that drive as it is.
    ///
    /// # Errors
    /// [`SpecError`] naming the part at fault.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let form = |problem| SpecError::Form { text: text.to_owned(), problem };
        if text.starts_with('/') || text.starts_with("./") {
            let settings = [("drives".to_owned(), text.to_owned())];
            return Self::from_settings(&settings.into_iter().collect());
        }
        let (head, drives) = match text.split_once("):") {
            Some((head, drives)) => (head, drives),
            None if text.contains('(') => return Err(form("'):' and the drives are missing")),
            None => text.split_once(':').ok_or_else(|| form("':' and the drives are missing"))?,
        };
        let (kind, inner) = head.split_once('(').unwrap_or((head, ""));
        let mut settings = parse_settings(inner)?;
        for (name, value) in [("layout", kind), ("drives", drives)] {
            if settings.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(form("layout and drives do not stand in the parentheses"));
            }
        }
        let named = drives.split(',').count();
        let spec = Self::from_settings(&settings)?;
        if spec.kind == LayoutKind::Single && named > 1 && !settings.contains_key("width") {
            return Err(form("single takes one drive"));
        }
        Ok(spec)
    }

    /// A layout from settings by name, as a sweep has them. What is absent is left as it is; without `layout`
    /// it is `single`, and `single` takes the first drive.
    ///
    /// # Errors
    /// [`SpecError`] naming the setting at fault.
    pub fn from_settings(settings: &BTreeMap<String, String>) -> Result<Self, SpecError> {
        let kind =
            word("layout", settings, &LayoutKind::ALL, LayoutKind::word)?.unwrap_or(LayoutKind::Single);
        let mut spec = Self {
            kind,
            drives: drives(settings, kind)?,
            chunk: None,
            filesystem: None,
            mount_options: None,
            queue: BTreeMap::new(),
            irq_cpus: None,
        };
        for (name, value) in settings {
            spec.set(name, value)?;
        }
        spec.check()?;
        Ok(spec)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), SpecError> {
        match name {
            "layout" | "drives" | "width" => {}
            "chunk" => self.chunk = Some(chunk(value)?),
            "filesystem" if value == "raw" => {}
            "filesystem" => {
                let one = BTreeMap::from([(name.to_owned(), value.to_owned())]);
                self.filesystem = word(name, &one, &Filesystem::ALL, Filesystem::word)?;
            }
            "mount_options" => self.mount_options = Some(mount_options(value)?),
            "irq_cpus" => {
                if value != "spread" && cpus::parse(value).is_none_or(|set| set.is_empty()) {
                    let problem = "is no list of CPUs";
                    return Err(SpecError::value(name, value, problem, "for instance 0, 0-3,8 or spread"));
                }
                self.irq_cpus = Some(value.to_owned());
            }
            _ => {
                let Some(knob) = knob(name) else {
                    return Err(SpecError::Unknown { name: name.to_owned(), value: value.to_owned() });
                };
                if let Some(allowed) = knob.objection(value) {
                    let problem = "is not a value of it";
                    return Err(SpecError::value(name, value, problem, format!("{name} {allowed}")));
                }
                self.queue.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(())
    }

    /// What contradicts each other.
    fn check(&self) -> Result<(), SpecError> {
        let kind = self.kind.word();
        if let Some(chunk) = self.chunk.filter(|_| !self.kind.has_chunk()) {
            let problem = format!("layout {kind} has no chunk");
            let hint = format!("leave chunk out where layout is {kind}");
            return Err(SpecError::value("chunk", &units::bytes_short(chunk), problem, hint));
        }
        if let Some(own) = self.kind.filesystem() {
            if let Some(other) = self.filesystem.filter(|fs| *fs != own) {
                let problem = format!("{kind} is a {}", own.word());
                return Err(SpecError::value("filesystem", other.word(), problem, "leave filesystem out"));
            }
            if let Some(chunk) = self.chunk.filter(|chunk| *chunk != self.kind.default_chunk()) {
                let default = self.kind.default_chunk();
                let problem = format!("{} stripes by {} and nothing else", own.word(), units::bytes(default));
                let hint = format!("leave chunk out, or say {}", units::bytes_short(default));
                return Err(SpecError::value("chunk", &units::bytes_short(chunk), problem, hint));
            }
        }
        match &self.mount_options {
            Some(options) if self.mounted_filesystem().is_none() => Err(SpecError::value(
                "mount_options",
                options,
                "nothing is mounted without a file system",
                "leave mount_options out where filesystem is raw",
            )),
            _ => Ok(()),
        }
    }

    /// The file system that is mounted; none where the target is raw.
    #[must_use]
    pub fn mounted_filesystem(&self) -> Option<Filesystem> {
        self.kind.filesystem().or(self.filesystem)
    }

    /// Drives in use.
    #[must_use]
    pub fn width(&self) -> usize {
        self.drives.len()
    }

    /// The chunk in force, bytes; none where there is no stripe.
    #[must_use]
    pub fn chunk_bytes(&self) -> Option<u64> {
        self.kind.has_chunk().then(|| self.chunk.unwrap_or(self.kind.default_chunk()))
    }

    /// The part whose change means building anew: all but the settings of queues and interrupts. Two layouts with
    /// the same text here are switched between by writing to sysfs alone.
    #[must_use]
    pub fn construction(&self) -> String {
        let bare = Self { queue: BTreeMap::new(), irq_cpus: None, ..self.clone() };
        bare.to_string()
    }

    /// The settings by name: the inverse of [`LayoutSpec::from_settings`].
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = self.queue.clone();
        settings.extend(self.named().into_iter().map(|(name, value)| (name.to_owned(), value)));
        settings.insert("layout".into(), self.kind.word().into());
        settings.insert("drives".into(), self.drives_text());
        settings
    }

    fn drives_text(&self) -> String {
        self.drives.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(",")
    }

    /// What is said in the parentheses beside the queues, in its order there but for the mount options.
    fn named(&self) -> Vec<(&'static str, String)> {
        let chunk = self.chunk.map(|chunk| ("chunk", units::bytes_short(chunk)));
        let filesystem = self.filesystem.map(|fs| ("filesystem", fs.word().to_owned()));
        let irqs = self.irq_cpus.clone().map(|cpus| ("irq_cpus", cpus));
        let options = self.mount_options.clone().map(|options| ("mount_options", options));
        chunk.into_iter().chain(filesystem).chain(irqs).chain(options).collect()
    }
}

/// Splits what stands in the parentheses.
fn parse_settings(inner: &str) -> Result<BTreeMap<String, String>, SpecError> {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for part in inner.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let known = part.contains('=') && setting_names().contains(&name.trim());
        let goes_on = last
            .as_ref()
            .filter(|last| !known && (!part.contains('=') || last.as_str() == "mount_options"))
            .and_then(|last| settings.get_mut(last));
        if let Some(before) = goes_on {
            before.push(',');
            before.push_str(part);
            continue;
        }
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        if settings.insert(name.clone(), value.clone()).is_some() {
            return Err(SpecError::value(&name, &value, "is said twice", "say it once"));
        }
        last = Some(name);
    }
    Ok(settings)
}

/// The drives that are used: the first `width` of those named.
fn drives(settings: &BTreeMap<String, String>, kind: LayoutKind) -> Result<Vec<PathBuf>, SpecError> {
    let text = settings.get("drives").map_or("", String::as_str);
    let mut drives: Vec<PathBuf> = Vec::new();
    for part in text.split(',').map(str::trim) {
        if part.is_empty() || part.contains('\0') {
            let problem = "a drive without a name";
            return Err(SpecError::value("drives", &text.escape_debug().to_string(), problem, DRIVES));
        }
        if drives.iter().any(|drive| drive == &PathBuf::from(part)) {
            return Err(SpecError::value("drives", part, "is named twice", "name each drive once"));
        }
        drives.push(part.into());
    }
    let width = match settings.get("width") {
        None => drives.len(),
        Some(text) => match text.parse::<usize>() {
            Ok(width) if width >= 1 && width <= drives.len() => width,
            Ok(width) if width > drives.len() => {
                let problem = format!("there are {} drives", drives.len());
                return Err(SpecError::value("width", text, problem, "name more drives, or ask for fewer"));
            }
            _ => return Err(SpecError::value("width", text, "is no number of drives", "for instance 4")),
        },
    };
    if kind == LayoutKind::Single {
        if width > 1 && settings.contains_key("width") {
            let problem = "layout single is one drive";
            return Err(SpecError::value("width", &settings["width"], problem, "leave width out, or say 1"));
        }
        drives.truncate(1);
    }
    drives.truncate(width);
    Ok(drives)
}

const DRIVES: &str = "for instance /dev/nvme0n1,/dev/nvme1n1";

fn chunk(value: &str) -> Result<u64, SpecError> {
    let hint = "a power of two from 4k to 1g, for instance 64k";
    let bytes = units::size(value).map_err(|e| SpecError::value("chunk", value, e.to_string(), hint))?;
    if !bytes.is_power_of_two() || !(4 << 10..=1 << 30).contains(&bytes) {
        return Err(SpecError::value("chunk", value, "is not a chunk that all layouts can have", hint));
    }
    Ok(bytes)
}

fn mount_options(value: &str) -> Result<String, SpecError> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '(' | ')' | ':');
    let empty = value.split(',').any(str::is_empty);
    if empty || value.contains(bad) {
        let problem = "are no options of a mount";
        return Err(SpecError::value("mount_options", value, problem, "for instance noatime,logbsize=256k"));
    }
    Ok(value.to_owned())
}

/// One of a set of words.
fn word<T: Copy>(
    name: &str,
    settings: &BTreeMap<String, String>,
    all: &[T],
    text: fn(T) -> &'static str,
) -> Result<Option<T>, SpecError> {
    let Some(value) = settings.get(name) else { return Ok(None) };
    match all.iter().find(|one| text(**one) == value) {
        Some(one) => Ok(Some(*one)),
        None => {
            let words: Vec<_> = all.iter().map(|one| text(*one)).collect();
            let raw = if name == "filesystem" { "raw, " } else { "" };
            let hint = format!("there are {raw}{}", words.join(", "));
            Err(SpecError::value(name, value, "is not known", hint))
        }
    }
}

impl fmt::Display for LayoutSpec {
    /// The canonical text, which reads back as the same layout. Mount options come last, for they may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        let (options, named): (Vec<_>, Vec<_>) =
            self.named().into_iter().partition(|(name, _)| *name == "mount_options");
        let queue = KNOBS.iter().filter_map(|knob| Some((knob.name, self.queue.get(knob.name)?.clone())));
        let all: Vec<String> = named
            .into_iter()
            .chain(queue)
            .chain(options)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !all.is_empty() {
            write!(f, "({})", all.join(","))?;
        }
        write!(f, ":{}", self.drives_text())
    }
}

impl FromStr for LayoutSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> LayoutSpec {
        LayoutSpec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_layout_reads_as_it_is_typed_and_prints_canonically() {
        let text = "md-raid0(scheduler=none,width=2,chunk=65536,filesystem=xfs):/dev/a,/dev/b,/dev/c";
        let spec = parse(text);
        assert_eq!((spec.kind, spec.width(), spec.chunk), (LayoutKind::MdRaid0, 2, Some(65536)));
        assert_eq!(spec.to_string(), "md-raid0(chunk=64k,filesystem=xfs,scheduler=none):/dev/a,/dev/b");
        assert_eq!(spec.construction(), "md-raid0(chunk=64k,filesystem=xfs):/dev/a,/dev/b");
        assert_eq!(parse("/dev/nvme0n1").to_string(), "single:/dev/nvme0n1");
        assert_eq!(parse("separate:/dev/a,/dev/b").chunk_bytes(), None);
        assert_eq!(parse("btrfs-raid0:/dev/a,/dev/b").mounted_filesystem(), Some(Filesystem::Btrfs));
    }

    #[test]
    fn lists_and_mount_options_keep_their_commas_and_equal_signs() {
        let spec = parse(
            "single(irq_cpus=0,2-3,filesystem=xfs,mount_options=noatime,logbsize=256k,nomerges=2):/dev/a",
        );
        assert_eq!(spec.irq_cpus.as_deref(), Some("0,2-3"));
        assert_eq!(spec.mount_options.as_deref(), Some("noatime,logbsize=256k"));
        assert_eq!(spec.queue["nomerges"], "2");
        assert_eq!(parse(&spec.to_string()), spec);
        assert_eq!(LayoutSpec::from_settings(&spec.settings()), Ok(spec));
    }

    #[test]
    fn a_drive_by_path_may_hold_colons() {
        let spec = parse("separate(scheduler=none):/dev/disk/by-path/pci-0000:01:00.0-nvme-1,/dev/b");
        assert_eq!(spec.drives[0], PathBuf::from("/dev/disk/by-path/pci-0000:01:00.0-nvme-1"));
        let bare = parse("single:/dev/disk/by-path/pci-0000:01:00.0-nvme-1");
        assert_eq!(parse(&bare.to_string()), bare);
    }

    #[test]
    fn contradictions_and_misspellings_name_setting_and_value() {
        for (text, words) in [
            ("", "missing"),
            ("md-raid0", "missing"),
            ("md-raid0(chunk=64k", "missing"),
            ("md-raid0:", "without a name"),
            ("raid0:/dev/a", "layout=raid0"),
            ("md-raid0(chunk=3k):/dev/a", "chunk=3k"),
            ("md-raid0(chunk=lots):/dev/a", "chunk=lots"),
            ("md-raid0(filesystem=zfs):/dev/a", "filesystem=zfs"),
            ("md-raid0(sheduler=none):/dev/a", "sheduler=none"),
            ("md-raid0(width=3):/dev/a,/dev/b", "width=3"),
            ("md-raid0(width=0):/dev/a,/dev/b", "width=0"),
            ("md-raid0(nomerges=3):/dev/a", "nomerges=3"),
            ("md-raid0(irq_cpus=x):/dev/a", "irq_cpus=x"),
            ("md-raid0(mount_options=noatime):/dev/a", "mount_options=noatime"),
            ("md-raid0(chunk=64k,chunk=4k):/dev/a", "chunk=4k"),
            ("separate(chunk=64k):/dev/a", "chunk=64k"),
            ("single:/dev/a,/dev/b", "one drive"),
            ("separate:/dev/a,/dev/a", "/dev/a"),
            ("btrfs-raid0(chunk=128k):/dev/a,/dev/b", "chunk=128k"),
            ("btrfs-raid0(filesystem=xfs):/dev/a,/dev/b", "filesystem=xfs"),
        ] {
            let error = LayoutSpec::parse(text).expect_err(text);
            assert!(error.to_string().contains(words), "{text}: {error}");
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn single_of_many_drives_in_a_sweep_is_the_first() {
        let settings = BTreeMap::from([
            ("layout".to_owned(), "single".to_owned()),
            ("drives".to_owned(), "/dev/a,/dev/b".to_owned()),
        ]);
        assert_eq!(LayoutSpec::from_settings(&settings).unwrap().drives, [PathBuf::from("/dev/a")]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-z0-9(),:=/-]{0,60}|.{0,40}") {
            let _ = LayoutSpec::parse(&text);
        }

        #[test]
        fn what_reads_prints_and_reads_back(
            kind in "single|separate|stripe|md-raid0|btrfs-raid0|lvm-stripe",
            inner in "((chunk=64k|filesystem=(xfs|btrfs|raw)|scheduler=none|irq_cpus=0(,2)?|mount_options=a(,b=c)?|nomerges=1|write_cache=write back|width=1),){0,4}",
        ) {
            let text = format!("{kind}({inner}):/dev/a,/dev/b");
            if let Ok(spec) = LayoutSpec::parse(&text) {
                prop_assert_eq!(LayoutSpec::parse(&spec.to_string()), Ok(spec.clone()));
                prop_assert_eq!(LayoutSpec::from_settings(&spec.settings()), Ok(spec));
            }
        }
    }
}
