//! Names: any bytes but `/` and NUL, in documents, in messages, and beside the name that a file is to have.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use storage::uuid::Uuid;

/// Bytes that a name may have on the file systems of Linux: NAME_MAX of limits.h.
const NAME_MAX: usize = 255;

/// A path in a document: a string where it is UTF-8, otherwise `{"hex": "…"}` with two digits a byte, so that
/// every name comes back as it was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathText(pub PathBuf);

/// The document of a path that is not UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    hex: String,
}

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => text.serialize(serializer),
            None => Bytes { hex: hex(self.0.as_os_str().as_bytes()) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By what comes: a document of either form would be kept in memory whole before it is refused.
        deserializer.deserialize_any(PathForms)
    }
}

struct PathForms;

impl<'de> Visitor<'de> for PathForms {
    type Value = PathText;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a path, or its bytes as {\"hex\": \"…\"}")
    }

    fn visit_str<E>(self, text: &str) -> Result<PathText, E> {
        Ok(PathText(text.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PathText, A::Error> {
        let Bytes { hex } = Bytes::deserialize(MapAccessDeserializer::new(map))?;
        from_hex(&hex)
            .map(|bytes| PathText(OsString::from_vec(bytes).into()))
            .ok_or_else(|| serde::de::Error::custom("hex: an even number of hexadecimal digits is expected"))
    }
}

impl schemars::JsonSchema for PathText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PathText".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A path; one that is not UTF-8 as two hexadecimal digits a byte",
            "anyOf": [
                {"type": "string"},
                {"type": "object", "required": ["hex"], "properties": {"hex": {"type": "string", "pattern": "^([0-9a-f]{2})*$"}}}
            ]
        })
    }
}

impl From<&Path> for PathText {
    fn from(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

/// A path below a root, where the root itself has the empty path.
#[must_use]
pub fn joined(root: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { root.to_owned() } else { root.join(path) }
}

/// Is this one of the paths that are listed, or a directory that one of them is in?
#[must_use]
pub fn is_among(listed: &std::collections::BTreeSet<PathBuf>, path: &Path) -> bool {
    listed.range(path.to_owned()..).next().is_some_and(|listed| listed.starts_with(path))
}

/// Two hexadecimal digits a byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of what [`hex`] made, if it is that.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// A name as a person reads it: what is not printable is escaped (`\n`, `\x1b`, `\xff`), so that a name can neither
/// break a line nor command a terminal.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => text.extend(c.escape_default()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The name that `name` has until it is whole: `.NAME.UUID.part`, in the directory that it will be in. A name too
/// long for that is cut; the UUID keeps it apart from others.
#[must_use]
pub fn part_name(name: &OsStr, uuid: Uuid) -> OsString {
    let uuid = hex(&uuid.0);
    let room = NAME_MAX - uuid.len() - ".".len() * 2 - ".part".len();
    let name = name.as_bytes();
    let mut part = Vec::with_capacity(NAME_MAX);
    part.push(b'.');
    part.extend_from_slice(&name[..name.len().min(room)]);
    part.push(b'.');
    part.extend_from_slice(uuid.as_bytes());
    part.extend_from_slice(b".part");
    OsString::from_vec(part)
}

/// Does a name look like that of something that is not complete yet? It does not say who made it.
#[must_use]
pub fn is_part(name: &OsStr) -> bool {
    let Some(rest) = name.as_bytes().strip_suffix(b".part") else { return false };
    rest.first() == Some(&b'.')
        && rest.len() > 33
        && rest[rest.len() - 33] == b'.'
        && rest[rest.len() - 32..].iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_comes_back_from_a_document_as_it_was() {
        for name in
            [&b"plain"[..], b"with \n newline", b"\xff\xfe", "grüße".as_bytes(), b"", b"{\"hex\":\"00\"}"]
        {
            let path = PathText(OsString::from_vec(name.to_vec()).into());
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<PathText>(&text).unwrap(), path, "{text}");
        }
        for text in [r#"{"hex":"0"}"#, r#"{"hex":"+1"}"#, "3", r#"{"hex":"zz"}"#] {
            assert!(serde_json::from_str::<PathText>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_is_told_from_what_only_looks_like_one() {
        let uuid = Uuid([0xab; 16]);
        let part = part_name(OsStr::new("ckpt-7"), uuid);
        assert_eq!(part, OsStr::new(".ckpt-7.abababababababababababababababab.part"));
        assert!(is_part(&part));
        let long = OsString::from_vec(vec![b'x'; 255]);
        assert!(is_part(&part_name(&long, uuid)));
        assert_eq!(part_name(&long, uuid).len(), 255);
        for name in [".part", "x.part", ".x.part", ".x.abab.part", "x.abababababababababababababababab.part"]
        {
            assert!(!is_part(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn no_name_breaks_a_line_or_commands_a_terminal() {
        assert_eq!(shown(b"a\nb\x1b[2J\xff\\"), "a\\nb\\u{1b}[2J\\xff\\\\");
        assert_eq!(shown("grüße".as_bytes()), "grüße");
    }
}
