//! Sizes that may be negative, as steps between blocks are.

/// Reads `8k` or `-8k`.
///
/// # Errors
/// What is wrong with the text.
pub fn signed_size(text: &str) -> Result<i64, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let bytes = units::size(digits).map_err(|error| error.to_string())?;
    let bytes = i64::try_from(bytes).map_err(|_| format!("'{text}' is out of range"))?;
    Ok(sign * bytes)
}

/// A signed number of bytes as [`signed_size`] reads it.
#[must_use]
pub fn signed_size_text(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", units::bytes_short(bytes.unsigned_abs()))
}
