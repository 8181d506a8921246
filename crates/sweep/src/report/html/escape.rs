//! Text from outside, made safe for where it stands.

/// Text or an attribute's value in double quotes: nothing in it is markup. Characters that HTML forbids
/// become U+FFFD.
pub(super) fn text(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len() + raw.len() / 8);
    for c in raw.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Prose of this program's own making: as [`text`], and no figure is broken from its unit.
pub(super) fn prose(raw: &str) -> String {
    const UNITS: [&str; 12] =
        ["%", "ns", "µs", "ms", "s", "B/s", "kB/s", "MB/s", "GB/s", "TB/s", "IOPS", "GiB"];
    let mut joined = String::with_capacity(raw.len() + 16);
    for word in raw.split(' ') {
        let unit = word.trim_end_matches(|c: char| ",.;:)".contains(c));
        if !joined.is_empty() {
            let bound = UNITS.contains(&unit) && joined.ends_with(|c: char| c.is_ascii_alphanumeric());
            joined.push(if bound { '\u{a0}' } else { ' ' });
        }
        joined.push_str(word);
    }
    text(&joined)
}

/// Codes with spaces between them: lines break there, and not at the hyphens in a code.
pub(super) fn codes(raw: &str) -> String {
    let each: Vec<String> =
        raw.split_whitespace().map(|code| format!("<span>{}</span>", text(code))).collect();
    each.join(" ")
}

/// JSON for a script element: still the same JSON, but no `<` in it can end the element or open a comment.
/// In JSON these characters stand only inside strings.
pub(super) fn script_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A label for a figure. Plotly reads a small part of HTML in labels (`<b>`, `<a href>`) and decodes
/// entities, so its markup is escaped like HTML's; long labels are cut, because a figure has no room.
pub(super) fn label(raw: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = raw.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    if raw.chars().count() > LONGEST {
        short.push('…');
    }
    short.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_leave_its_place() {
        assert_eq!(text("<img src=x onerror=\"a\">'"), "&lt;img src=x onerror=&quot;a&quot;&gt;&#39;");
        assert_eq!(text("a\u{0}b"), "a\u{fffd}b");
        assert_eq!(label("<a href='x'>y</a> & z"), "&lt;a href='x'&gt;y&lt;/a&gt; &amp; z");
    }

    #[test]
    fn json_in_a_script_reads_back_and_cannot_end_it() {
        let json = serde_json::to_string("</script><!--\u{2028}&").unwrap();
        let safe = script_json(&json);
        assert!(!safe.contains('<') && !safe.contains('\u{2028}'));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "</script><!--\u{2028}&");
    }
}
