//! A screen that is kept up to date, and lines where there is none.
//!
//! The terminal's second screen is drawn on, from its first line, each line to its end and no further, so that nothing
//! flickers and a change of its size can spoil one picture at most. The terminal gets its first screen back whatever
//! happens to the view, and the last picture is then printed there.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;
use crate::output;

/// The other screen, no cursor, lines cut at the margin.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// A picture is shown when it is whole, by terminals that know this (synchronised output, mode 2026).
const BEGIN: &str = "\x1b[?2026h\x1b[H";
const BELOW: &str = "\x1b[J";
const END: &str = "\x1b[?2026l";

/// The terminal while something is shown on it.
#[derive(Debug)]
pub struct Screen(());

impl Screen {
    /// Takes the terminal; none where standard output is no terminal that can be drawn on.
    pub fn take() -> Result<Option<Self>, Failure> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !io::stdout().is_terminal() || dumb {
            return Ok(None);
        }
        raw(ENTER)?;
        Ok(Some(Self(())))
    }

    /// Shows lines, as many as there is room for; what is left out is counted in the last of them.
    pub fn show(&self, lines: &[String]) -> Result<(), Failure> {
        let rows = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
        raw(&picture(lines, rows))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to be told that this failed.
        let _ = raw(LEAVE);
    }
}

fn picture(lines: &[String], rows: usize) -> String {
    let mut text = BEGIN.to_owned();
    let fits = lines.len() <= rows;
    let shown = if fits { lines.len() } else { rows.saturating_sub(1) };
    let more = format!("… {} lines more: make the window higher", lines.len() - shown);
    let last = (!fits).then_some(&more);
    let mut first = true;
    for line in lines[..shown].iter().chain(last) {
        if !first {
            text.push_str("\r\n");
        }
        first = false;
        // Erased first: after its last column was written, the cursor still stands on it.
        text.push_str("\x1b[K");
        text.push_str(line);
        text.push_str("\x1b[0m");
    }
    if shown + usize::from(!fits) < rows {
        text.push_str("\r\n");
        text.push_str(BELOW);
    }
    text.push_str(END);
    text
}

fn raw(text: &str) -> Result<(), Failure> {
    // Colours are dropped under NO_COLOR; what moves the cursor is not.
    let colours = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    let text = if colours { text.to_owned() } else { without_colours(text) };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::failed(format!("cannot write to the terminal: {error}")))
}

/// Takes `ESC [ … m` away.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        plain.push_str(&rest[..at]);
        let sequence = &rest[at..];
        let end = sequence[2..].find(|c: char| c.is_ascii_alphabetic()).map_or(sequence.len(), |end| end + 3);
        if !sequence[..end].ends_with('m') {
            plain.push_str(&sequence[..end]);
        }
        rest = &sequence[end..];
    }
    plain.push_str(rest);
    plain
}

/// Prints the last picture on the first screen.
pub fn leave(screen: Screen, lines: &[String]) -> Result<(), Failure> {
    drop(screen);
    output::print(&(lines.join("\n") + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines: Vec<String> = (0..5).map(|n| n.to_string()).collect();
        let text = picture(&lines, 3);
        assert!(text.contains("\x1b[K0\x1b[0m\r\n\x1b[K1\x1b[0m\r\n\x1b[K… 3 lines more"), "{text:?}");
        assert!(!picture(&lines, 5).contains("more"));
        // What is below is erased where there is something below, and never the last line itself.
        assert!(picture(&lines, 6).contains(BELOW) && !picture(&lines, 5).contains(BELOW));
    }

    #[test]
    fn only_colours_are_taken_away() {
        assert_eq!(without_colours("\x1b[H\x1b[1;32mx\x1b[0m\x1b[K"), "\x1b[Hx\x1b[K");
        assert_eq!(without_colours("plain\x1b["), "plain\x1b[");
    }
}
