//! Colours, and only here. Whoever writes decides whether they stay ([`crate::output`]).

use anstyle::{AnsiColor, Style};

const TITLE: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const WARN: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// A heading, or the figure that matters.
pub fn title(text: &str) -> String {
    paint(TITLE, text)
}

/// What is well, or recommended.
pub fn good(text: &str) -> String {
    paint(GOOD, text)
}

/// What deserves attention.
pub fn warn(text: &str) -> String {
    paint(WARN, text)
}

/// What is void or failed.
pub fn bad(text: &str) -> String {
    paint(BAD, text)
}

/// What may be skipped.
pub fn dim(text: &str) -> String {
    paint(DIM, text)
}

/// A line of a sweep's table.
pub fn line(line: &sweep::report::Line) -> String {
    use sweep::report::Style as Meaning;
    let mut text = String::new();
    for span in &line.spans {
        text += &match span.style {
            Meaning::Plain => span.text.clone(),
            Meaning::Title => title(&span.text),
            Meaning::Good => good(&span.text),
            Meaning::Warn => warn(&span.text),
            Meaning::Bad => bad(&span.text),
            Meaning::Dim => dim(&span.text),
        };
    }
    text
}
