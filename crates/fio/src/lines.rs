//! From text to sections: comments, includes, `[global]`, and variables. Nothing is interpreted here.
//!
//! The rules are fio's (`HOWTO`, "Job file format"; `init.c`): a line is cut at its first `;` or `#`;
//! a section whose name begins with `global` sets defaults for all that follow; `include FILE` stands
//! inside a section, its file holds options only, and is looked for first as named, then beside the
//! including file; `${NAME}` is the environment's. Stricter than fio, because silence would hide a
//! typing error: a variable that is not set is refused instead of read as empty, includes that go in
//! circles are refused instead of followed, and a section's name must end in `]`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Faults, JobFileError, Location};

/// Includes within includes; fio's own examples need one.
const MAX_DEPTH: usize = 16;
/// No job file is larger, and `include /dev/zero` must end.
const MAX_BYTES: u64 = 1 << 20;
/// All files of one job file together: includes may branch.
const MAX_SETTINGS: usize = 100_000;
/// fio keeps 255 characters of a section's name.
const MAX_NAME: usize = 255;

/// Where `${NAME}` is looked up.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `key=value`, or a bare key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub key: String,
    pub value: Option<String>,
    pub at: Location,
}

/// A section with its settings in order, those of includes in their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub name: String,
    pub at: Location,
    pub settings: Vec<Setting>,
}

impl Section {
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// What a job file says, and what is wrong with single lines of it.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub sections: Vec<Section>,
    pub faults: Faults,
}

/// Reads the file at `path` and all that it includes.
pub(super) fn read(path: &Path, environment: Environment<'_>) -> Result<Source, JobFileError> {
    let text = load(path, None)?;
    split(&text, path, environment)
}

/// Splits `text`, which is what stands at `path`.
pub(super) fn split(text: &str, path: &Path, environment: Environment<'_>) -> Result<Source, JobFileError> {
    let file: Arc<Path> = Arc::from(path);
    let mut reader =
        Reader { environment, open: vec![identity(path)], settings: 0, faults: Faults::default() };
    let mut sections: Vec<Section> = Vec::new();
    for (line, at) in lines(text, &file) {
        if line.starts_with('[') {
            let name = section_name(line, &at)?;
            sections.push(Section { name, at, settings: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            reader.line(line, at, &mut section.settings)?;
        } else {
            return Err(JobFileError::Syntax {
                at,
                reason: format!("'{line}' stands before the first section"),
                hint: "begin with [global] or [name-of-the-job]".to_owned(),
            });
        }
    }
    Ok(Source { sections, faults: reader.faults })
}

/// The lines that say something, without blanks around them and without comments.
fn lines<'a>(text: &'a str, file: &'a Arc<Path>) -> impl Iterator<Item = (&'a str, Location)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let end = line.find([';', '#']).unwrap_or(line.len());
        let line = line[..end].trim_matches(|c: char| c.is_whitespace() || c.is_control());
        (!line.is_empty()).then(|| (line, Location::new(file, index + 1)))
    })
}

fn section_name(line: &str, at: &Location) -> Result<String, JobFileError> {
    let syntax =
        |reason: String, hint: &str| JobFileError::Syntax { at: at.clone(), reason, hint: hint.to_owned() };
    let name = line[1..]
        .strip_suffix(']')
        .ok_or_else(|| syntax(format!("section '{line}' does not end in ']'"), "write [name]"))?;
    if name.is_empty() {
        return Err(syntax("section [] has no name".to_owned(), "write [name]"));
    }
    if name.len() > MAX_NAME {
        return Err(syntax(
            format!("a section's name of {} bytes is too long", name.len()),
            "use at most 255 bytes",
        ));
    }
    Ok(name.to_owned())
}

struct Reader<'a> {
    environment: Environment<'a>,
    /// The files being read, outermost first, by what they really are.
    open: Vec<PathBuf>,
    settings: usize,
    faults: Faults,
}

impl Reader<'_> {
    fn line(&mut self, line: &str, at: Location, into: &mut Vec<Setting>) -> Result<(), JobFileError> {
        if let Some(rest) = line.strip_prefix("include")
            && rest.starts_with(char::is_whitespace)
        {
            return self.include(rest.trim_start(), at, into);
        }
        self.settings += 1;
        if self.settings > MAX_SETTINGS {
            return Err(JobFileError::Syntax {
                at,
                reason: format!("more than {MAX_SETTINGS} options"),
                hint: "check the includes".to_owned(),
            });
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value)),
            None => (line, None),
        };
        let value = value.map(|text| self.substitute(key, text, &at));
        into.push(Setting { key: key.to_owned(), value, at });
        Ok(())
    }

    fn include(&mut self, name: &str, at: Location, into: &mut Vec<Setting>) -> Result<(), JobFileError> {
        let refuse = |reason: String, hint: &str| JobFileError::Refused {
            at: at.clone(),
            key: "include".to_owned(),
            value: Some(name.to_owned()),
            reason,
            hint: hint.to_owned(),
        };
        let path = find(name, at.file());
        let real = identity(&path);
        if self.open.contains(&real) {
            return Err(refuse(
                "the file includes itself, directly or through others".to_owned(),
                "break the circle",
            ));
        }
        if self.open.len() > MAX_DEPTH {
            return Err(refuse(
                format!("includes are nested more than {MAX_DEPTH} deep"),
                "include fewer files within files",
            ));
        }
        let text = load(&path, Some(&at))?;
        let file: Arc<Path> = Arc::from(path);
        self.open.push(real);
        for (line, at) in lines(&text, &file) {
            if line.starts_with('[') {
                return Err(JobFileError::Syntax {
                    at,
                    reason: format!("section '{line}' in an included file"),
                    hint: "an included file holds options only, as in fio".to_owned(),
                });
            }
            self.line(line, at, into)?;
        }
        self.open.pop();
        Ok(())
    }

    /// Puts the environment's value in the place of each `${NAME}`. A variable that is not set is a fault.
    fn substitute(&mut self, key: &str, text: &str, at: &Location) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start + 2..].find('}') else {
                break;
            };
            let name = &rest[start + 2..start + 2 + length];
            out.push_str(&rest[..start]);
            match (self.environment)(name) {
                Some(value) => out.push_str(&value),
                None => self.faults.push(JobFileError::Refused {
                    at: at.clone(),
                    key: key.to_owned(),
                    value: Some(text.to_owned()),
                    reason: format!("the environment variable '{name}' is not set"),
                    hint: format!("run it as {name}=… flashwright bench {}", at.file().display()),
                }),
            }
            rest = &rest[start + 2 + length + 1..];
        }
        out.push_str(rest);
        out.trim().to_owned()
    }
}

/// As named if that exists, else beside the file that includes it: fio's order.
fn find(name: &str, including: &Path) -> PathBuf {
    let as_named = PathBuf::from(name);
    if as_named.exists() {
        return as_named;
    }
    match including.parent() {
        Some(directory) if as_named.is_relative() => directory.join(as_named),
        _ => as_named,
    }
}

/// One name for one file, so that a circle through a link is seen.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn load(path: &Path, from: Option<&Location>) -> Result<String, JobFileError> {
    let read = |source| JobFileError::Read { path: path.to_owned(), from: from.cloned(), source };
    let not = |reason: String| JobFileError::NotAJobFile { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(read)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(not("it is larger than 1 MiB".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|b| **b == b'\n').count() + 1;
        not(format!("line {line} is not UTF-8 text"))
    })?;
    match text.find('\0') {
        Some(at) => Err(not(format!("line {} holds a NUL byte", text[..at].lines().count().max(1)))),
        None => Ok(text),
    }
}
