//! Specs over specs: `stripe(chunk=64k):SPEC,SPEC,…`, `separate:SPEC,SPEC,…` and `volume:SPEC,SPEC,…`.
//!
//! Members are separated by commas outside of parentheses. A member that is itself made of members stands
//! in parentheses, `stripe:(stripe:a,b),c`, because otherwise nobody could tell whose the last one is. A
//! backslash takes the meaning away from a comma, a parenthesis or a backslash in a path. What is wrong
//! with a member is told with its number.

use std::fmt;

use super::{DeviceSpec, SpecError, parse_size};

/// Bytes that one member holds before the next, where nothing is said.
pub const DEFAULT_CHUNK: u64 = 64 << 10;
/// Chunks are whole sectors, so that no member is asked for a part of one.
const SMALLEST_CHUNK: u64 = 512;
const LARGEST_CHUNK: u64 = 1 << 30;
/// More members than any machine has drives.
const MOST_MEMBERS: usize = 1024;

/// Reads what follows `stripe` in `text`.
pub(super) fn parse_stripe(text: &str) -> Result<DeviceSpec, SpecError> {
    let (parameters, members) = head(text, "stripe")?;
    let mut chunk = None;
    for parameter in parameters.split(',').filter(|p| !p.is_empty()) {
        match parameter.split_once('=') {
            Some(("chunk", value)) if chunk.is_none() => chunk = Some(parse_chunk(text, value)?),
            _ => return Err(not_understood(text, parameter)),
        }
    }
    Ok(DeviceSpec::Stripe { chunk: chunk.unwrap_or(DEFAULT_CHUNK), members: parse_members(text, members)? })
}

/// Reads what follows `separate` in `text`.
pub(super) fn parse_separate(text: &str) -> Result<DeviceSpec, SpecError> {
    let (parameters, members) = head(text, "separate")?;
    if !parameters.is_empty() {
        return Err(not_understood(text, parameters));
    }
    Ok(DeviceSpec::Separate { members: parse_members(text, members)? })
}

/// Reads what follows `volume` in `text`. How its members lie is what their labels say, so there are no
/// parameters; and a member is something that still has its label when the next command comes.
pub(super) fn parse_volume(text: &str) -> Result<DeviceSpec, SpecError> {
    let (parameters, members) = head(text, "volume")?;
    if !parameters.is_empty() {
        return Err(not_understood(text, parameters));
    }
    const SEVERAL: &str = "a label lies on one device, and this is several";
    let no_label = |error| match error {
        SpecError::Ungrouped { text } => SpecError::NoLabel { text, why: SEVERAL },
        other => other,
    };
    let members = parse_members(text, members).map_err(|error| match error {
        SpecError::Member { text, number, source } => {
            SpecError::Member { text, number, source: Box::new(no_label(*source)) }
        }
        other => other,
    })?;
    for (number, member) in (1..).zip(&members) {
        let why = match member {
            DeviceSpec::Memory { .. } => "memory is gone when the command ends, and its label with it",
            _ if !member.members().is_empty() => SEVERAL,
            _ => continue,
        };
        let source = SpecError::NoLabel { text: member.to_string(), why };
        return Err(SpecError::Member { text: text.to_owned(), number, source: Box::new(source) });
    }
    Ok(DeviceSpec::Volume { members })
}

fn not_understood(text: &str, parameter: &str) -> SpecError {
    SpecError::MemberParameter { text: text.to_owned(), parameter: parameter.to_owned() }
}

/// What stands in the parentheses behind `word`, and what stands behind the colon.
fn head<'t>(text: &'t str, word: &str) -> Result<(&'t str, &'t str), SpecError> {
    let incomplete = |what| SpecError::Incomplete { text: text.to_owned(), what };
    let rest = &text[word.len()..];
    let (parameters, rest) = match rest.strip_prefix('(') {
        Some(inside) => inside.split_once(')').ok_or_else(|| incomplete("where its parameters end, ')'"))?,
        None => ("", rest),
    };
    let members = rest.strip_prefix(':').ok_or_else(|| incomplete("its members, behind a colon"))?;
    if members.is_empty() {
        return Err(incomplete("its members"));
    }
    Ok((parameters, members))
}

fn parse_chunk(text: &str, value: &str) -> Result<u64, SpecError> {
    let chunk = parse_size(text, value)?;
    if !(SMALLEST_CHUNK..=LARGEST_CHUNK).contains(&chunk) || !chunk.is_multiple_of(SMALLEST_CHUNK) {
        return Err(SpecError::Chunk { text: text.to_owned(), chunk });
    }
    Ok(chunk)
}

fn parse_members(text: &str, list: &str) -> Result<Vec<DeviceSpec>, SpecError> {
    let texts = split(list).ok_or_else(|| SpecError::Parentheses { text: text.to_owned() })?;
    if texts.len() > MOST_MEMBERS {
        return Err(SpecError::TooManyMembers { text: text.to_owned(), members: texts.len() });
    }
    (1..).zip(&texts).map(|(number, member)| parse_member(text, number, member)).collect()
}

/// The parts between the commas that stand outside of parentheses; none where those do not match.
fn split(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut depth, mut escaped) = (Vec::new(), 0, 0_u32, false);
    for (at, letter) in list.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match letter {
            '\\' => escaped = true,
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[begin..]);
    (depth == 0).then_some(parts)
}

fn parse_member(text: &str, number: usize, member: &str) -> Result<DeviceSpec, SpecError> {
    let wrong = |source| SpecError::Member { text: text.to_owned(), number, source: Box::new(source) };
    let spec = match grouped(member) {
        // What stands in parentheses has its own backslashes.
        Some(inside) => DeviceSpec::parse(inside).map_err(wrong)?,
        None => DeviceSpec::parse(&plain(member)).map_err(wrong)?,
    };
    match spec {
        DeviceSpec::Separate { .. } => Err(wrong(SpecError::NoAddresses { text: member.to_owned() })),
        DeviceSpec::Stripe { .. } | DeviceSpec::Volume { .. } if grouped(member).is_none() => {
            Err(wrong(SpecError::Ungrouped { text: member.to_owned() }))
        }
        spec => Ok(spec),
    }
}

/// What stands between a parenthesis that opens a member and the one that closes it.
fn grouped(member: &str) -> Option<&str> {
    member.strip_prefix('(')?.strip_suffix(')')
}

/// A member without the backslashes.
fn plain(member: &str) -> String {
    let mut letters = member.chars();
    let mut text = String::with_capacity(member.len());
    while let Some(letter) = letters.next() {
        text.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    text
}

/// Writes members so that they read back.
pub(super) fn write(f: &mut fmt::Formatter<'_>, members: &[DeviceSpec]) -> fmt::Result {
    for (at, member) in members.iter().enumerate() {
        if at > 0 {
            f.write_str(",")?;
        }
        if !member.members().is_empty() {
            write!(f, "({member})")?;
            continue;
        }
        for letter in member.to_string().chars() {
            if matches!(letter, ',' | '(' | ')' | '\\') {
                f.write_str("\\")?;
            }
            write!(f, "{letter}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<DeviceSpec, SpecError> {
        DeviceSpec::parse(text)
    }

    fn path(text: &str) -> DeviceSpec {
        DeviceSpec::Path(text.into())
    }

    fn stripe(chunk: u64, members: &[DeviceSpec]) -> DeviceSpec {
        DeviceSpec::Stripe { chunk, members: members.to_vec() }
    }

    #[test]
    fn members_of_all_kinds_are_read() {
        let members = [
            path("/dev/a"),
            DeviceSpec::File { path: "b".into(), size: Some(1 << 30) },
            DeviceSpec::Memory { size: 1 << 20 },
        ];
        let text = "stripe(chunk=16k):/dev/a,file:b?size=1g,mem:1m";
        assert_eq!(parse(text), Ok(stripe(16 << 10, &members)));
        assert_eq!(parse("stripe:/dev/a"), Ok(stripe(DEFAULT_CHUNK, &[path("/dev/a")])));
        assert_eq!(parse("separate:/dev/a"), Ok(DeviceSpec::Separate { members: vec![path("/dev/a")] }));
    }

    #[test]
    fn stripes_in_parentheses_are_members_too() {
        let inner = stripe(4096, &[path("a"), path("b")]);
        let text = "stripe:(stripe(chunk=4k):a,b),c";
        assert_eq!(parse(text), Ok(stripe(DEFAULT_CHUNK, &[inner.clone(), path("c")])));
        let text = "separate:(stripe(chunk=4k):a,b),(stripe(chunk=4k):a,b)";
        assert_eq!(parse(text), Ok(DeviceSpec::Separate { members: vec![inner.clone(), inner] }));
    }

    #[test]
    fn labelled_volumes_are_devices_that_others_are_made_of() {
        let volume = DeviceSpec::Volume { members: vec![path("/dev/a"), path("b")] };
        assert_eq!(parse("volume:/dev/a,b"), Ok(volume.clone()));
        assert_eq!(parse("separate:(volume:/dev/a,b)"), Ok(DeviceSpec::Separate { members: vec![volume] }));
    }

    #[test]
    fn backslashes_keep_commas_and_parentheses_in_paths() {
        assert_eq!(parse(r"separate:a\,b,c\(,d (2)"), {
            Ok(DeviceSpec::Separate { members: vec![path("a,b"), path("c("), path("d (2)")] })
        });
    }

    #[test]
    fn broken_lists_name_the_member_and_the_part_at_fault() {
        for (text, parts) in [
            ("stripe:a,,b", &["member 2", "empty"][..]),
            ("stripe:a,mem:0", &["member 2", "mem:0"]),
            ("stripe:a,nbd:x", &["member 2", "nbd"]),
            ("stripe:stripe:a,b", &["member 1", "parentheses"]),
            ("stripe:(separate:a,b),c", &["member 1", "separate"]),
            ("stripe(chunk=64k)", &["its members"]),
            ("stripe(", &["parameters end"]),
            ("stripe:", &["its members"]),
            ("separate", &[]),
            ("separate(chunk=64k):a", &["chunk=64k"]),
            ("stripe(chunk=64k,chunk=4k):a", &["chunk=4k"]),
            ("stripe(width=2):a", &["width=2"]),
            ("stripe(chunk=100):a", &["chunk=100"]),
            ("stripe(chunk=2g):a", &["chunk=2g"]),
            ("stripe(chunk=x):a", &["size"]),
            ("stripe:(a,b", &["parentheses"]),
            ("stripe:a)", &["parentheses"]),
            ("volume:a,mem:1m", &["member 2", "mem:1m", "memory is gone"]),
            ("volume:(stripe:a,b),c", &["member 1", "several"]),
            ("volume:(volume:a,b),c", &["member 1", "several"]),
            ("volume(chunk=64k):a", &["chunk=64k"]),
            ("volume:", &["its members"]),
            ("stripe:volume:a,b", &["member 1", "parentheses"]),
        ] {
            // `separate` alone is a fair file name.
            let Err(error) = parse(text) else {
                assert!(parts.is_empty(), "{text}");
                continue;
            };
            let mut said = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                said += &format!(": {error}");
                cause = error.source();
            }
            assert!(said.contains(text), "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            assert!(!error.hint().is_empty());
        }
    }

    fn any_spec() -> impl Strategy<Value = DeviceSpec> {
        let plain = prop_oneof![
            // Some texts are never read as paths: `a:` is one of an unknown kind, and printed as `./a:`.
            r"[a-z/:,()\\ ?=-]{1,12}"
                .prop_filter("is a path", |text| parse(text) == Ok(path(text)))
                .prop_map(|text| path(&text)),
            "[a-z/,()]{1,8}".prop_map(|text| DeviceSpec::File { path: text.into(), size: Some(1 << 20) }),
            (1_u64..1 << 40).prop_map(|size| DeviceSpec::Memory { size }),
        ];
        let striped = plain.prop_recursive(2, 8, 4, |member| {
            (1_u64..1 << 21, prop::collection::vec(member, 1..4))
                .prop_map(|(sectors, members)| stripe(sectors * 512, &members))
        });
        (any::<bool>(), prop::collection::vec(striped, 1..4)).prop_map(|(alone, mut members)| {
            if alone { members.remove(0) } else { DeviceSpec::Separate { members } }
        })
    }

    proptest! {
        #[test]
        fn any_spec_prints_and_reads_back(spec in any_spec()) {
            prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
        }

        #[test]
        fn no_list_makes_the_parser_panic(text in r"(stripe|separate|volume)[a-z:,()\\=?0-9]{0,24}") {
            let _ = parse(&text);
        }
    }
}
