//! Files with names and keys, as psktool of GnuTLS writes them: a line each, `name:key in hexadecimal digits`. A name
//! that begins with `#` is in hexadecimal digits as well.

use std::path::Path;

use super::TlsError;

/// The longest file that is read. A line has 1.3 KB at most.
const LONGEST_FILE: u64 = 1 << 20;
/// The longest name: what a peer with OpenSSL sends or takes (`PSK_MAX_IDENTITY_LEN`).
const LONGEST_NAME: usize = 128;
/// The longest key (`PSK_MAX_PSK_LEN`).
const LONGEST_KEY: usize = 256;
/// The shortest key. A key that can be tried out offline is none; RFC 9257, section 6, asks for 128 bits.
const SHORTEST_KEY: usize = 16;

/// A name and its key.
#[derive(Clone)]
pub(super) struct Entry {
    pub name: Vec<u8>,
    pub key: Vec<u8>,
}

/// The entries of a file; there is at least one.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, TlsError> {
    let text = super::read_text(path, LONGEST_FILE)?;
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        let entry =
            parse(line).map_err(|problem| TlsError::Key { path: path.into(), line: number, problem })?;
        if entries.iter().any(|other| other.name == entry.name) {
            let problem = "its name is there before";
            return Err(TlsError::Key { path: path.into(), line: number, problem });
        }
        entries.push(entry);
    }
    if entries.is_empty() {
        return Err(TlsError::NoKey { path: path.into() });
    }
    Ok(entries)
}

fn parse(line: &str) -> Result<Entry, &'static str> {
    let (name, key) = line.split_once(':').ok_or("it is not `name:key`")?;
    let name = match name.strip_prefix('#') {
        Some(digits) => hex(digits).ok_or("its name begins with # and is not hexadecimal")?,
        None => name.as_bytes().to_vec(),
    };
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(&0) {
        return Err("its name is empty, longer than 128 bytes, or has a NUL in it");
    }
    let key = hex(key).ok_or("its key is not hexadecimal")?;
    match key.len() {
        0..SHORTEST_KEY => Err("its key is shorter than 16 bytes (32 digits)"),
        SHORTEST_KEY..=LONGEST_KEY => Ok(Entry { name, key }),
        _ => Err("its key is longer than 256 bytes"),
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16);
    digits
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_psktool_writes_them() {
        let entry = parse("alice:00112233445566778899aabbccddeeff").unwrap();
        assert_eq!((entry.name.as_slice(), entry.key.len(), entry.key[1]), (&b"alice"[..], 16, 0x11));
        assert_eq!(parse("#616c:00112233445566778899AABBCCDDEEFF").unwrap().name, b"al");
    }

    #[test]
    fn what_is_no_key_is_refused_by_line_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        for (text, says) in [
            ("alice", "not `name:key`"),
            ("alice:0011", "shorter than 16"),
            ("alice:zz", "not hexadecimal"),
            (":00112233445566778899aabbccddeeff", "name is empty"),
            ("a:00112233445566778899aabbccddeeff\na:00112233445566778899aabbccddeef0", "there before"),
            ("", "no key"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
            assert!(!error.contains("00112233"), "{error}");
        }
    }
}
