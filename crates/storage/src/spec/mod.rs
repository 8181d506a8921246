//! Device specs: the one way in which a command is told what to work on.
//!
//! A spec is a path, `file:PATH?size=4G` (a scratch file that is made with that size where there is
//! none), `mem:4G`, or a list of such specs as one device. Text is taken for a scheme only if a colon comes before any slash and what
//! precedes it could be a scheme, so `/dev/disk/by-path/pci-0000:01:00.0-nvme-1` and `./a:b` are
//! paths and nothing else. A scheme that is not understood is refused by name: a typing error must
//! never become a file called `nvme:…`.

mod members;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nbd::uri::{Uri, UriError};

pub use members::DEFAULT_CHUNK;

/// What a device spec says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceSpec {
    /// An existing file or block device.
    Path(PathBuf),
    /// `file:PATH[?size=N]`: a regular file, made with `size` bytes where it does not exist.
    File {
        /// Where it is, or is to be.
        path: PathBuf,
        /// Bytes to make it with; where it exists, the bytes of it to use.
        size: Option<u64>,
    },
    /// `mem:N`: memory of this process.
    Memory {
        /// Bytes.
        size: u64,
    },
    /// `nbd://HOST:PORT/EXPORT`, `nbd+unix:///EXPORT?socket=PATH` and the same with TLS: an export of another host.
    Nbd(Uri),
    /// `stripe(chunk=N):SPEC,SPEC,…`: RAID-0 over the members, in user space.
    Stripe {
        /// Bytes that one member holds before the next; a multiple of 512.
        chunk: u64,
        /// What it is made of; one at least, and none of them [`Separate`](Self::Separate).
        members: Vec<DeviceSpec>,
    },
    /// `separate:SPEC,SPEC,…`: the members one by one, the load spread over them.
    Separate {
        /// What it is made of; one at least, and none of them separate.
        members: Vec<DeviceSpec>,
    },
    /// `volume:SPEC,SPEC,…`: a labelled volume, its members in any order.
    Volume {
        /// Its members; one at least, each of them something that keeps a label.
        members: Vec<DeviceSpec>,
    },
}

/// Text that is no device spec. The message names the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing was given.
    #[error("the device spec is empty")]
    Empty,
    /// A scheme that is not understood.
    #[error("'{text}': '{scheme}' is not a kind of device known here")]
    UnknownScheme {
        /// What was typed.
        text: String,
        /// The part taken for a scheme.
        scheme: String,
    },
    /// A scheme with nothing behind it.
    #[error("'{text}' does not say {what}")]
    Incomplete {
        /// What was typed.
        text: String,
        /// What is missing: `which file`, `how much memory`.
        what: &'static str,
    },
    /// A size that cannot be read.
    #[error("'{text}' has an unreadable size")]
    Size {
        /// What was typed.
        text: String,
        /// Why.
        #[source]
        source: units::ParseError,
    },
    /// A size of zero, or one beyond what a file offset holds.
    #[error("'{text}': a size of {size} bytes is out of range")]
    SizeRange {
        /// What was typed.
        text: String,
        /// The size it comes to.
        size: u64,
    },
    /// An NBD URI that cannot be read.
    #[error("'{text}' is no NBD address")]
    Uri {
        /// What was typed.
        text: String,
        /// Why.
        #[source]
        source: UriError,
    },
    /// A parameter after `?` that is not understood, or that is given twice.
    #[error("'{text}': parameter '{parameter}' is not understood")]
    Parameter {
        /// What was typed.
        text: String,
        /// The parameter.
        parameter: String,
    },
    /// A parameter in parentheses that is not understood, or that is given twice.
    #[error("'{text}': parameter '{parameter}' is not understood")]
    MemberParameter {
        /// What was typed.
        text: String,
        /// The parameter.
        parameter: String,
    },
    /// A chunk that is no whole number of sectors, or far from any use.
    #[error("'{text}': chunk={} is not a multiple of 512 bytes from 512 to 1g", units::bytes_short(*chunk))]
    Chunk {
        /// What was typed.
        text: String,
        /// The chunk, bytes.
        chunk: u64,
    },
    /// Parentheses that do not match.
    #[error("'{text}': its parentheses do not match")]
    Parentheses {
        /// What was typed.
        text: String,
    },
    /// More members than can be.
    #[error("'{text}' has {members} members, more than 1024")]
    TooManyMembers {
        /// What was typed.
        text: String,
        /// How many there are.
        members: usize,
    },
    /// A member that is no device spec.
    #[error("member {number} of '{text}'")]
    Member {
        /// What was typed.
        text: String,
        /// Which one, from 1.
        number: usize,
        /// What is wrong with it.
        #[source]
        source: Box<SpecError>,
    },
    /// A stripe within another that does not stand in parentheses.
    #[error("'{text}' must stand in parentheses")]
    Ungrouped {
        /// The member.
        text: String,
    },
    /// Separate devices as a member of others.
    #[error("'{text}': separate devices are no one device that others could be made of")]
    NoAddresses {
        /// The member.
        text: String,
    },
    /// A member of a labelled volume that would not keep its label.
    #[error("'{text}' cannot be a member of a volume: {why}")]
    NoLabel {
        /// The member.
        text: String,
        /// Why not.
        why: &'static str,
    },
    /// A NUL byte, which no path holds.
    #[error("'{text}' contains a NUL byte")]
    Nul {
        /// What was typed, with the byte escaped.
        text: String,
    },
}

impl SpecError {
    /// What to type instead.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownScheme { text, .. } => format!(
                "understood are PATH, file:PATH?size=4g, mem:4g, nbd://HOST/EXPORT, stripe(chunk=64k):SPEC,SPEC, \
                 separate:SPEC,SPEC and volume:SPEC,SPEC; for a file of that name type ./{text}"
            ),
            Self::Incomplete { .. } | Self::Empty => {
                "for instance /dev/nvme0n1, file:/scratch/test?size=4g or mem:4g".to_owned()
            }
            Self::Uri { source, .. } => source.hint(),
            Self::Size { .. } | Self::SizeRange { .. } => "for instance size=4g, or mem:512m".to_owned(),
            Self::Parameter { .. } => {
                "understood is size, once: file:PATH?size=4g; a path with a question mark in it is \
                 typed without 'file:'"
                    .to_owned()
            }
            Self::MemberParameter { .. } | Self::Chunk { .. } => {
                "understood is chunk, once, for a stripe: stripe(chunk=64k):/dev/nvme0n1,/dev/nvme1n1"
                    .to_owned()
            }
            Self::Parentheses { .. } => {
                "a parenthesis or comma in a path is typed with a backslash before it".to_owned()
            }
            Self::TooManyMembers { .. } => "name 1024 members at most".to_owned(),
            Self::Member { source, .. } => source.hint(),
            Self::Ungrouped { text } => format!("type ({text})"),
            Self::NoAddresses { .. } => {
                "make them a stripe, or name all drives in one separate:SPEC,SPEC".to_owned()
            }
            Self::NoLabel { .. } => {
                "name files and block devices; stripe(chunk=64k):SPEC,SPEC puts others together without labels"
                    .to_owned()
            }
            Self::Nul { .. } => "remove the NUL byte".to_owned(),
        }
    }
}

impl DeviceSpec {
    /// Reads a spec as it was typed.
    ///
    /// # Errors
    /// [`SpecError`] naming the text and the part at fault.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        if text.is_empty() {
            return Err(SpecError::Empty);
        }
        if text.contains('\0') {
            return Err(SpecError::Nul { text: text.escape_debug().to_string() });
        }
        match scheme(text) {
            None => Ok(Self::Path(PathBuf::from(text))),
            Some("file") => parse_file(text),
            Some("mem") => parse_memory(text),
            Some("nbd" | "nbds" | "nbd+unix" | "nbds+unix") => parse_uri(text),
            Some("stripe") => members::parse_stripe(text),
            Some("separate") => members::parse_separate(text),
            Some("volume") => members::parse_volume(text),
            Some(other) => Err(SpecError::UnknownScheme { text: text.to_owned(), scheme: other.to_owned() }),
        }
    }

    /// The path, where the spec has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::File { path, .. } => Some(path),
            Self::Memory { .. }
            | Self::Nbd(_)
            | Self::Stripe { .. }
            | Self::Separate { .. }
            | Self::Volume { .. } => None,
        }
    }

    /// What it is made of; empty where it stands for itself.
    #[must_use]
    pub fn members(&self) -> &[Self] {
        match self {
            Self::Stripe { members, .. } | Self::Separate { members } | Self::Volume { members } => members,
            Self::Path(_) | Self::File { .. } | Self::Memory { .. } | Self::Nbd(_) => &[],
        }
    }

    /// The specs that stand for themselves: this one, or those of its members, in order.
    #[must_use]
    pub fn leaves(&self) -> Vec<&Self> {
        match self.members() {
            [] => vec![self],
            members => members.iter().flat_map(Self::leaves).collect(),
        }
    }

    /// The same spec with each path as `change` makes it.
    pub fn with_paths<E>(&self, change: &mut dyn FnMut(&Path) -> Result<PathBuf, E>) -> Result<Self, E> {
        let all = |members: &[Self], change: &mut dyn FnMut(&Path) -> Result<PathBuf, E>| {
            members.iter().map(|member| member.with_paths(change)).collect::<Result<Vec<_>, E>>()
        };
        Ok(match self {
            Self::Path(path) => Self::Path(change(path)?),
            Self::File { path, size } => Self::File { path: change(path)?, size: *size },
            Self::Memory { size } => Self::Memory { size: *size },
            Self::Nbd(uri) => Self::Nbd(uri.clone()),
            Self::Stripe { chunk, members } => Self::Stripe { chunk: *chunk, members: all(members, change)? },
            Self::Separate { members } => Self::Separate { members: all(members, change)? },
            Self::Volume { members } => Self::Volume { members: all(members, change)? },
        })
    }
}

/// The scheme of `text`: what precedes a colon, or an opening parenthesis as in
/// `stripe(chunk=64k):`, before any slash.
fn scheme(text: &str) -> Option<&str> {
    let head = text.split('/').next().unwrap_or(text);
    let end = head.find([':', '('])?;
    let word = &head[..end];
    // `a(1)` is a fair file name; `stripe(…):` and a cut-off `stripe(` are not.
    let is_call = head[end..].starts_with('(');
    if is_call && !head.contains(':') && !matches!(word, "stripe" | "separate" | "volume") {
        return None;
    }
    let mut letters = word.chars();
    let begins_well = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
    let goes_on_well = letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-'));
    (begins_well && goes_on_well).then_some(word)
}

fn parse_file(text: &str) -> Result<DeviceSpec, SpecError> {
    let rest = &text["file:".len()..];
    let (path, parameters) = match rest.rsplit_once('?') {
        Some((path, parameters)) => (path, Some(parameters)),
        None => (rest, None),
    };
    if path.is_empty() {
        return Err(SpecError::Incomplete { text: text.to_owned(), what: "which file" });
    }
    let mut size = None;
    for parameter in parameters.into_iter().flat_map(|p| p.split('&')) {
        match parameter.split_once('=') {
            Some(("size", value)) if size.is_none() => size = Some(parse_size(text, value)?),
            _ => {
                return Err(SpecError::Parameter { text: text.to_owned(), parameter: parameter.to_owned() });
            }
        }
    }
    Ok(DeviceSpec::File { path: PathBuf::from(path), size })
}

fn parse_memory(text: &str) -> Result<DeviceSpec, SpecError> {
    let rest = &text["mem:".len()..];
    if rest.is_empty() {
        return Err(SpecError::Incomplete { text: text.to_owned(), what: "how much memory" });
    }
    Ok(DeviceSpec::Memory { size: parse_size(text, rest)? })
}

fn parse_size(text: &str, value: &str) -> Result<u64, SpecError> {
    let size = units::size(value).map_err(|source| SpecError::Size { text: text.to_owned(), source })?;
    // File offsets are signed: off_t(3type).
    if size == 0 || i64::try_from(size).is_err() {
        return Err(SpecError::SizeRange { text: text.to_owned(), size });
    }
    Ok(size)
}

fn parse_uri(text: &str) -> Result<DeviceSpec, SpecError> {
    let wrong = |source| SpecError::Uri { text: text.to_owned(), source };
    text.parse().map(DeviceSpec::Nbd).map_err(wrong)
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text)
    }
}

impl From<PathBuf> for DeviceSpec {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&Path> for DeviceSpec {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => {
                let text = path.to_string_lossy();
                // So that what is printed reads back as a path.
                if scheme(&text).is_some() {
                    f.write_str("./")?;
                }
                f.write_str(&text)
            }
            Self::File { path, size: Some(size) } => {
                write!(f, "file:{}?size={}", path.display(), units::bytes_short(*size))
            }
            Self::File { path, size: None } => write!(f, "file:{}", path.display()),
            Self::Nbd(uri) => write!(f, "{uri}"),
            Self::Memory { size } => write!(f, "mem:{}", units::bytes_short(*size)),
            Self::Stripe { chunk, members } => {
                write!(f, "stripe(chunk={}):", units::bytes_short(*chunk))?;
                members::write(f, members)
            }
            Self::Separate { members } => {
                f.write_str("separate:")?;
                members::write(f, members)
            }
            Self::Volume { members } => {
                f.write_str("volume:")?;
                members::write(f, members)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> DeviceSpec {
        DeviceSpec::Path(PathBuf::from(text))
    }

    #[test]
    fn paths_stay_paths_even_with_colons_behind_a_slash() {
        for text in [
            "/dev/nvme0n1",
            "/dev/disk/by-path/pci-0000:01:00.0-nvme-1",
            "./mem:4g",
            "dir/nbd:x",
            "plain",
            "1:2",
            "_x:y",
            "copy (2)",
            "~/file?size=4g",
        ] {
            assert_eq!(DeviceSpec::parse(text), Ok(path(text)), "{text}");
        }
    }

    #[test]
    fn files_and_memory_carry_their_sizes() {
        assert_eq!(
            DeviceSpec::parse("file:/scratch/a?size=4G"),
            Ok(DeviceSpec::File { path: "/scratch/a".into(), size: Some(4 << 30) })
        );
        assert_eq!(DeviceSpec::parse("file:a"), Ok(DeviceSpec::File { path: "a".into(), size: None }));
        assert_eq!(DeviceSpec::parse("mem:512m"), Ok(DeviceSpec::Memory { size: 512 << 20 }));
    }

    #[test]
    fn exports_of_other_hosts_are_uris() {
        for text in
            ["nbd://host:10809/export", "nbd+unix:///x?socket=/s", "nbd://[::1]/", "nbd://h?timeout=5"]
        {
            let spec = DeviceSpec::parse(text).expect("a URI");
            assert!(matches!(spec, DeviceSpec::Nbd(_)), "{text}");
            assert_eq!(spec.to_string(), text);
        }
        for text in ["nbd:x", "nbd://", "nbd+unix:///x", "nbd://h?depth=4", "nbd://h:port/"] {
            let error = DeviceSpec::parse(text).unwrap_err();
            assert!(matches!(&error, SpecError::Uri { text: told, .. } if told == text), "{error}");
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn other_schemes_are_named_and_refused() {
        for (text, scheme) in
            [("nbd+tcp://host:10809/export", "nbd+tcp"), ("iscsi://host/x", "iscsi"), ("memory:4g", "memory")]
        {
            let error = DeviceSpec::parse(text).unwrap_err();
            assert_eq!(error, SpecError::UnknownScheme { text: text.into(), scheme: scheme.into() });
            assert!(error.to_string().contains(text));
            assert!(error.hint().contains("mem:4g"));
        }
    }

    #[test]
    fn broken_specs_name_the_part_at_fault() {
        for text in [
            "",
            "file:",
            "file:?size=4g",
            "mem:",
            "mem:0",
            "mem:4x",
            "mem:-1",
            "file:a?size=0",
            "file:a?size=",
            "file:a?sise=4g",
            "file:a?",
            "file:a?size=1g&size=2g",
            "mem:16384p",
            "a\0b",
        ] {
            let error = DeviceSpec::parse(text).unwrap_err();
            assert!(!error.hint().is_empty());
            assert!(error.to_string().contains(&text.escape_debug().to_string()), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = DeviceSpec::parse(&text);
        }

        #[test]
        fn what_parses_prints_and_reads_back(text in "(file:|mem:)?[a-z0-9./:?=&]{1,16}(\\?size=[1-9][kmg])?") {
            if let Ok(spec) = DeviceSpec::parse(&text) {
                prop_assert_eq!(DeviceSpec::parse(&spec.to_string()), Ok(spec));
            }
        }
    }
}
