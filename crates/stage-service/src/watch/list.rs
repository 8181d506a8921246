//! What a semaphore says: nothing, or a file a line, `PATH [SIZE [DIGEST]]`.
//!
//! Fields are separated by tabs where a line has one, otherwise by blanks, read from the right: `my file 12` is the file
//! `my file` of 12 bytes. A line that begins with a backslash has `\\`, `\n`, `\r` and `\t` in its path escaped, as the
//! lists of sha256sum(1) do. Bytes that are not UTF-8 stand as they are.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, PathBuf};

use stage::digest::{Algorithm, Digest};

/// Bytes of a line at most: a path of PATH_MAX, each byte escaped, a size and a digest. No file could be opened by a longer one.
const LINE_MAX: usize = 2 * 4096 + 128;

/// Files of a list at most: what is made of each of them in memory is many times as long as a line.
const FILES_MAX: usize = 2_000_000;

/// A file that is vouched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Relative to the semaphore's directory; names only, no `.` or `..`.
    pub path: PathBuf,
    /// Bytes.
    pub size: Option<u64>,
    /// Of the whole file, and how it was made.
    pub digest: Option<(Algorithm, Digest)>,
}

/// A line that is none of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Reads a semaphore's contents; blank lines do not count, and no line is no list.
///
/// # Errors
/// The first line that is none of a list.
pub fn parse(contents: &[u8]) -> Result<Vec<Listed>, BadLine> {
    parse_at_most(FILES_MAX, contents)
}

fn parse_at_most(files: usize, contents: &[u8]) -> Result<Vec<Listed>, BadLine> {
    let mut listed = Vec::new();
    for (index, line) in contents.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let bad = |what| BadLine { line: index + 1, what };
        if line.len() > LINE_MAX {
            return Err(bad(format!("has {} bytes, and {LINE_MAX} are the most", line.len())));
        }
        if listed.len() == files {
            return Err(bad(format!("is one more than the {files} files that a list may have")));
        }
        listed.push(parse_line(line).map_err(bad)?);
    }
    Ok(listed)
}

fn parse_line(line: &[u8]) -> Result<Listed, String> {
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (path, size, digest) = if line.contains(&b'\t') { by_tabs(line)? } else { by_blanks(line) };
    let path = if escaped { unescape(path)? } else { path.to_vec() };
    let path = PathBuf::from(OsString::from_vec(path));
    if path.as_os_str().is_empty() || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err("has no path".to_owned());
    }
    // Normal names alone: `a/./b` has them too once it is taken apart.
    let names: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if names.as_os_str().is_empty() || !names.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!(
            "{}: a path is relative to the semaphore's directory and does not lead out of it",
            stage::error::shown(&path)
        ));
    }
    Ok(Listed { path: names, size, digest })
}

type Fields<'a> = (&'a [u8], Option<u64>, Option<(Algorithm, Digest)>);

fn by_tabs(line: &[u8]) -> Result<Fields<'_>, String> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
    let shown = |bytes: &[u8]| stage::names::shown(bytes);
    if fields.len() > 3 {
        return Err(format!("{} fields, where PATH, SIZE and DIGEST are all there are", fields.len()));
    }
    let size = match fields.get(1) {
        None => None,
        Some(text) => Some(number(text).ok_or_else(|| format!("'{}' is no size in bytes", shown(text)))?),
    };
    let digest = match fields.get(2) {
        None => None,
        Some(text) => Some(digest_of(text).ok_or_else(|| {
            format!("'{}' is no digest: 32 hexadecimal digits of XXH3, or 64 of BLAKE3", shown(text))
        })?),
    };
    Ok((fields[0], size, digest))
}

fn by_blanks(line: &[u8]) -> Fields<'_> {
    let line = line.trim_ascii_end();
    let Some((rest, last)) = cut_last(line) else { return (line, None, None) };
    if let (Some(digest), Some((path, size))) = (digest_of(last), cut_last(rest))
        && let Some(size) = number(size)
    {
        return (path, Some(size), Some(digest));
    }
    match number(last) {
        Some(size) => (rest, Some(size), None),
        None => (line, None, None),
    }
}

/// What is before the last run of blanks, and what is behind it.
fn cut_last(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().rposition(|byte| *byte == b' ')?;
    let rest = line[..at].trim_ascii_end();
    (!rest.is_empty()).then_some((rest, &line[at + 1..]))
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn digest_of(text: &[u8]) -> Option<(Algorithm, Digest)> {
    let algorithm = match text.len() {
        32 => Algorithm::Xxh3,
        64 => Algorithm::Blake3,
        _ => return None,
    };
    Some((algorithm, Digest::parse(std::str::from_utf8(text).ok()?)?))
}

fn unescape(path: &[u8]) -> Result<Vec<u8>, String> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        plain.push(match bytes.next() {
            Some(b'\\') => b'\\',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            _ => return Err("a backslash is followed by none of \\, n, r, t".to_owned()),
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &[u8]) -> Listed {
        let mut listed = parse(line).unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        listed.remove(0)
    }

    #[test]
    fn lines_are_read_with_and_without_size_and_digest() {
        let digest = "99aa06d3014798d86001c324468d497f";
        let blake = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(one(b"a/b"), Listed { path: "a/b".into(), size: None, digest: None });
        assert_eq!(one(b"my file 12"), Listed { path: "my file".into(), size: Some(12), digest: None });
        let all = one(format!("my file  12   {digest}\n").as_bytes());
        assert_eq!((all.path, all.size), ("my file".into(), Some(12)));
        assert_eq!(all.digest, Some((Algorithm::Xxh3, Digest::parse(digest).unwrap())));
        assert_eq!(one(format!("x\t0\t{blake}").as_bytes()).digest.unwrap().0, Algorithm::Blake3);
        // Digits at the end of a name that is separated by a tab belong to the name.
        assert_eq!(one(b"my file 12\t7"), Listed { path: "my file 12".into(), size: Some(7), digest: None });
        assert_eq!(one(b"./a//b/ 3").path, PathBuf::from("a/b"));
    }

    #[test]
    fn any_name_can_be_listed() {
        assert_eq!(one(b"\\a\\nb\\\\\\t 3").path, PathBuf::from("a\nb\\\t"));
        assert_eq!(one(b"\xff\xfe 3").path, PathBuf::from(OsString::from_vec(b"\xff\xfe".to_vec())));
        assert_eq!(one("grüße 3".as_bytes()).path, PathBuf::from("grüße"));
        assert_eq!(one(b"12").path, PathBuf::from("12"));
    }

    #[test]
    fn nothing_is_no_list() {
        for nothing in [&b""[..], b"\n", b" \n\t\n\r\n"] {
            assert_eq!(parse(nothing), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_list_and_its_lines_have_bounds() {
        assert_eq!(parse_at_most(2, b"a\n\nb\n").map(|listed| listed.len()), Ok(2));
        let error = parse_at_most(2, b"a\n\nb\nc\n").unwrap_err();
        assert_eq!(error.to_string(), "line 4: is one more than the 2 files that a list may have");
        let longest = [b"\\".as_slice(), &b"\\\\".repeat(4095)].concat();
        assert_eq!(one(&longest).path.as_os_str().len(), 4095);
        let error = parse(&b"x".repeat(LINE_MAX + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("line 1: has {} bytes, and {LINE_MAX} are the most", LINE_MAX + 1)
        );
    }

    #[test]
    fn what_leads_out_or_is_no_field_is_refused_with_its_line() {
        for (line, words) in [
            (&b"/etc/shadow"[..], "does not lead out"),
            (b"../x", "does not lead out"),
            (b"a/../../x 3", "does not lead out"),
            (b".", "does not lead out"),
            (b"a\tx", "'x' is no size in bytes"),
            (b"a\t1\tzz", "'zz' is no digest"),
            (b"a\t1\t\t", "4 fields"),
            (b"\\a\\x", "a backslash"),
            (b"a\0b 3", "no path"),
        ] {
            let error = parse(&[b"fine\n", line].concat()).unwrap_err();
            assert_eq!(error.line, 2, "{error}");
            assert!(error.what.contains(words), "{error}");
        }
    }
}
