//! Values, read exactly as fio reads them, or refused: readers of texts, and of values that may be missing (`Option<&str>`).
//!
//! fio's own reading is lenient where that surprises: `1.5g` is one byte, `4kib` is 4000 bytes (its
//! `kb_base=1024` swaps the IEC spellings for compatibility), `5min` is five microseconds, and an
//! unknown suffix is dropped. Whoever writes these means something else, so they are refused with
//! what fio would have made of them (`parse.c`, `HOWTO` "Parameter types").

use std::time::Duration;

use base::Word;

use super::error::Problem;

/// A number of bytes, a share of the file, or a number of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Bytes(u64),
    Percent(u64),
    Zones(u64),
}

/// A size in bytes, a percentage, or a number of zones.
pub(super) fn size(text: &str) -> Result<Size, Problem> {
    let text = text.trim();
    if let Some(number) = text.strip_suffix('%') {
        let percent = number.parse::<u64>().ok().filter(|p| *p <= 100);
        return percent.map(Size::Percent).ok_or_else(|| {
            Problem::new(format!("'{text}' is not a percentage"), "write a whole number up to 100%")
        });
    }
    let zones = text.strip_suffix(['z', 'Z']).filter(|number| number.bytes().all(|c| c.is_ascii_digit()));
    if let Some(number) = zones.filter(|number| !number.is_empty()) {
        return number
            .parse()
            .map(Size::Zones)
            .map_err(|_| Problem::new(format!("'{text}' is out of range"), "write fewer zones"));
    }
    plain(text).map(Size::Bytes)
}

/// A size in bytes.
pub(super) fn bytes(text: &str) -> Result<u64, Problem> {
    match size(text)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Percent(_) => Err(Problem::new("a percentage has no meaning here", "give a size, such as 1g")),
        Size::Zones(_) => Err(Problem::new("zones have no meaning here", "give a size, such as 1g")),
    }
}

fn plain(text: &str) -> Result<u64, Problem> {
    if text.is_empty() {
        return Err(Problem::new("the value is missing", "write a number, such as 4k"));
    }
    if text.starts_with('(') {
        return Err(Problem::new("arithmetic is not evaluated here", "write the result"));
    }
    if text.starts_with('-') {
        return Err(Problem::new("the value is negative", "write a number of zero or more"));
    }
    if text.starts_with("0x") || text.starts_with("0X") {
        let digits = &text[2..];
        return u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')).ok_or_else(|| {
            Problem::new(format!("'{text}' is not a hexadecimal number"), "write for instance 0x1000")
        });
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let suffix = text[end..].to_ascii_lowercase();
    if end == 0 {
        return Err(Problem::new(format!("'{text}' is not a number"), "write a number, such as 4k"));
    }
    if suffix.starts_with('.') {
        return Err(Problem::new(
            format!("fio drops the fraction and its unit: it reads '{text}' as {}", &text[..end]),
            "write a whole number of a smaller unit",
        ));
    }
    match suffix.as_str() {
        "" | "b" | "k" | "kb" | "m" | "mb" | "g" | "gb" | "t" | "tb" | "p" | "pb" => units::size(text)
            .map_err(|error| Problem::new(error.to_string(), "write for instance 4k, 1m or 2g")),
        "kib" | "mib" | "gib" | "tib" | "pib" | "ki" | "mi" | "gi" | "ti" | "pi" => Err(Problem::new(
            "fio reads IEC suffixes as powers of 1000 unless kb_base=1000",
            format!("write {}{} for the power of 1024", &text[..end], &suffix[..1]),
        )),
        _ => Err(Problem::new(
            format!("'{suffix}' is not a unit of size"),
            "the units are k, m, g, t, p (powers of 1024)",
        )),
    }
}

/// A whole number, with fio's suffixes.
pub(super) fn number(text: &str, lowest: u64, highest: u64) -> Result<u64, Problem> {
    let value = bytes(text)?;
    if (lowest..=highest).contains(&value) {
        return Ok(value);
    }
    Err(Problem::new(
        format!("{value} is out of range"),
        format!("write a number from {lowest} to {highest}"),
    ))
}

/// A whole number that fits 32 bits.
pub(super) fn number32(text: &str, lowest: u32, highest: u32) -> Result<u32, Problem> {
    let value = number(text, u64::from(lowest), u64::from(highest))?;
    // The range was just checked.
    Ok(u32::try_from(value).unwrap_or(highest))
}

/// A time; a bare number is in seconds.
pub(super) fn time(text: &str) -> Result<Duration, Problem> {
    time_in(text, "s", 1_000_000)
}

/// A time; a bare number is in microseconds.
pub(super) fn short_time(text: &str) -> Result<Duration, Problem> {
    time_in(text, "us", 1)
}

/// A time; a bare number is in `unit`, which is so many microseconds.
fn time_in(text: &str, unit: &str, bare: u64) -> Result<Duration, Problem> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let units = format!("the units are us, ms, s, m, h, d; a bare number is in {unit}");
    let number: u64 =
        text[..end].parse().map_err(|_| Problem::new(format!("'{text}' is not a time"), &*units))?;
    let suffix = text[end..].to_ascii_lowercase();
    let micros = match suffix.as_str() {
        "" => bare,
        "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ if suffix.starts_with('.') => {
            return Err(Problem::new(
                format!("fio drops the fraction and its unit: it reads '{text}' as {number} {unit}"),
                "write a whole number of a smaller unit, such as 500ms",
            ));
        }
        _ => {
            return Err(Problem::new(
                format!("'{suffix}' is not a unit of time; fio reads it as microseconds"),
                units,
            ));
        }
    };
    number
        .checked_mul(micros)
        // A century and more: nobody means it, and sums of times must not overflow.
        .filter(|us| *us <= 1 << 52)
        .map(Duration::from_micros)
        .ok_or_else(|| Problem::new(format!("'{text}' is out of range"), "write a shorter time"))
}

/// An option that needs 0 or 1.
pub(super) fn boolean(value: Option<&str>) -> Result<bool, Problem> {
    match value.map(str::trim) {
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(Problem::new(format!("'{other}' is neither 0 nor 1"), "write 0 or 1")),
        None => Err(Problem::new("it needs a value", "write =0 or =1")),
    }
}

/// An option that is on when it is there, and may be switched off with 0.
pub(super) fn switch(value: Option<&str>) -> Result<bool, Problem> {
    if value.is_none() { Ok(true) } else { boolean(value) }
}

/// The value of an option that needs one.
pub(super) fn required(value: Option<&str>) -> Result<&str, Problem> {
    match value.map(str::trim) {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(Problem::new("it needs a value", "write it as key=value")),
    }
}

/// The value of an option that needs one, as a reader of texts has it.
pub(super) fn read<T>(
    value: Option<&str>,
    reader: impl Fn(&str) -> Result<T, Problem>,
) -> Result<T, Problem> {
    reader(required(value)?)
}

/// One of the words of a type; `problem` says what another one is.
pub(super) fn word<W: Word>(value: Option<&str>, problem: &str) -> Result<W, Problem> {
    let hint = || {
        let (last, others) = W::WORDS.split_last().expect("a type has words");
        format!("write {} or {last}", others.join(", "))
    };
    W::from_word(required(value)?).ok_or_else(|| Problem::new(problem, hint()))
}

/// A whole number of 32 bits in a range.
pub(super) fn count(value: Option<&str>, lowest: u32, highest: u32) -> Result<u32, Problem> {
    number32(required(value)?, lowest, highest)
}

/// What 0 says nothing of.
pub(super) fn none_if_zero<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|value| *value != T::default())
}

/// A text.
pub(super) fn text(text: &str) -> Result<String, Problem> {
    Ok(text.to_owned())
}

/// A whole number up to 100.
pub(super) fn percent(text: &str) -> Result<u8, Problem> {
    Ok(number(text, 0, 100)? as u8)
}

/// A number from 0 to 1.
pub(super) fn fraction(text: &str) -> Result<f64, Problem> {
    let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| {
        Problem::new(format!("'{text}' is not a number from 0 to 1"), "write for instance 0.5")
    })
}

/// The size of a block.
pub(super) fn block(text: &str) -> Result<u64, Problem> {
    number(text, 1, 1 << 30)
}

/// A rate in requests.
pub(super) fn requests_per_second(text: &str) -> Result<u64, Problem> {
    number(text, 0, u64::from(u32::MAX))
}

/// One value for each of reads, writes and trims: fio's comma lists. A value that no comma ends holds
/// for the directions after it as well; one left out keeps the default.
pub(super) type ByDirection<T> = [Option<T>; 3];

/// Splits a comma list and reads each part.
pub(super) fn by_direction<T: Clone>(
    value: Option<&str>,
    reader: impl Fn(&str) -> Result<T, Problem>,
) -> Result<ByDirection<T>, Problem> {
    let parts: Vec<&str> = required(value)?.split(',').map(str::trim).collect();
    if parts.len() > 4 || (parts.len() == 4 && !parts[3].is_empty()) {
        return Err(Problem::new(
            "more than three values",
            "give at most one for reads, one for writes and one for trims",
        ));
    }
    let mut out: ByDirection<T> = [None, None, None];
    for (slot, part) in out.iter_mut().zip(&parts) {
        if !part.is_empty() {
            *slot = Some(reader(part)?);
        }
    }
    if out.iter().all(Option::is_none) {
        return Err(Problem::new("it needs a value", "write it as key=value"));
    }
    let last = parts.len().min(3);
    if !parts.last().is_some_and(|part| part.is_empty()) {
        let value = out[last - 1].clone();
        out[last..].iter_mut().for_each(|slot| slot.clone_from(&value));
    }
    Ok(out)
}
