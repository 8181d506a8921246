//! Names of files as keys of objects, and back.
//!
//! A file's name may hold any byte but `/` and NUL; a key is UTF-8, travels in URLs and in XML, and `object_store`
//! forbids control characters, empty segments, `.` and `..` in it. So a name is percent-encoded: letters, digits and
//! `-_.=,:@!()` stand for themselves, and so do characters beyond ASCII that are neither control characters nor
//! noncharacters; every other byte is `%` and two capital hexadecimal digits. `.` and `..` are `%2E` and `%2E%2E`.
//!
//! A name has one key, and no other name has it: [`unescape`] gives the name back.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The object that makes a set exist: beneath the set's own name.
pub const MANIFEST: &str = ".flashwright-manifest";

/// The object that a drain keeps others from a name with, while it is at work.
pub const CLAIM: &str = ".flashwright-claim";

/// Bytes that a key may have (Amazon S3 User Guide, "Naming Amazon S3 objects").
pub const KEY_BYTES_MAX: usize = 1024;

/// Does the character stand for itself?
fn plain(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || "-_.=,:@!()".contains(character);
    }
    let code = u32::from(character);
    let noncharacter = code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code);
    // Line and paragraph separators break lines in listings; the mark of byte order is eaten by parsers at a beginning.
    let breaks = matches!(code, 0x2028 | 0x2029 | 0xfeff);
    !(character.is_control() || character.is_whitespace() || noncharacter || breaks)
}

/// One name, without `/`, as one segment of a key.
#[must_use]
pub fn encode(name: &[u8]) -> String {
    match name {
        b"." => return "%2E".to_owned(),
        b".." => return "%2E%2E".to_owned(),
        _ => {}
    }
    let mut key = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if plain(character) {
                key.push(character);
            } else {
                let mut room = [0; 4];
                escape(&mut key, character.encode_utf8(&mut room).as_bytes());
            }
        }
        escape(&mut key, chunk.invalid());
    }
    key
}

fn escape(key: &mut String, bytes: &[u8]) {
    use std::fmt::Write;
    for byte in bytes {
        let _ = write!(key, "%{byte:02X}");
    }
}

/// Text without its percent-encoding, whichever characters have it; none where a `%` is not followed by two digits.
#[must_use]
pub fn unescape(segment: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            name.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &rest[2..];
        } else {
            name.push(byte);
        }
    }
    Some(name)
}

/// A relative path as a key beneath a set's prefix; each of its names as [`encode`] has it.
#[must_use]
pub fn of_path(path: &Path) -> String {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    names.map(encode).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;

    /// Names made of what is likely to hurt, and of any bytes at all.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let hurtful = prop::sample::select(vec![
            "%", "%2E", ".", "..", " ", "+", "#1", "~", "\n", "\r", "\u{7f}", "\u{85}", "\u{2028}", "ü",
            "日", "\u{feff}", "\u{ffff}", "\\", "a", "{", "&", "<", "e\u{301}",
        ]);
        let glued = prop::collection::vec(hurtful, 1..6).prop_map(|parts| parts.concat().into_bytes());
        let bytes = prop::collection::vec(any::<u8>(), 1..40);
        prop_oneof![glued, bytes]
            .prop_map(|name| name.into_iter().filter(|byte| *byte != 0 && *byte != b'/').collect::<Vec<u8>>())
            .prop_filter("a name is not empty", |name| !name.is_empty())
    }

    proptest! {
        #[test]
        fn a_name_comes_back_from_its_key(name in names()) {
            let key = encode(&name);
            prop_assert_eq!(unescape(&key), Some(name));
        }

        #[test]
        fn two_names_never_share_a_key(a in names(), b in names()) {
            prop_assert_eq!(encode(&a) == encode(&b), a == b);
        }

        #[test]
        fn paths_come_back(names in prop::collection::vec(names(), 1..4)) {
            let path = names.join(&b'/');
            prop_assert_eq!(unescape(&of_path(Path::new(OsStr::from_bytes(&path)))), Some(path));
        }
    }

    #[test]
    fn usual_names_are_their_own_keys() {
        for name in [
            "model-00001-of-00008.safetensors",
            "epoch=3,step=100.ckpt",
            "grüße",
            "12:30",
            ".metadata",
            "日本",
        ] {
            assert_eq!(encode(name.as_bytes()), name);
        }
        assert_eq!(encode(b"a b~\xff%"), "a%20b%7E%FF%25");
    }
}
