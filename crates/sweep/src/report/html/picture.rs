//! The report as one picture: title, answer and its first figures, for a page or a slide that has no room for more.

use std::fmt::Write;

use super::super::Report;
use super::chart::{self, Size};
use super::figures::{self, Figure};
use super::{Page, escape};

/// Width of the picture, and of each of the figures that stand side by side in it.
const WIDTH: f64 = 1104.0;
/// What stays free at the left and at the right.
const MARGIN: f64 = 12.0;
const FIGURE: Size = Size { width: 540.0, height: 330.0, has_titles: true };
/// Figures that are shown.
const SHOWN: usize = 4;
/// Characters of the answer on a line.
const LINE: usize = 108;

/// What the page's style sheet does for figures, with the colours of both kinds of page.
const STYLE: &str = "\
svg { --ink: #1c1e21; --muted: #5c636b; --rule: #deded8; --paper: #fdfdfb; font-family: system-ui, sans-serif; }
.c0 { color: #0072b2; } .c1 { color: #d55e00; } .c2 { color: #009e73; } .c3 { color: #cc79a7; }
.c4 { color: #e69f00; } .c5 { color: #56b4e9; } .c6 { color: #5c636b; }
text { fill: var(--ink); font-size: 11px; } .ticks text { fill: var(--muted); } .title { font-size: 15px; font-weight: 600; }
.answer { font-size: 18px; } .grid { stroke: var(--rule); fill: none; } .bar { fill: currentColor; }
.spot { fill: transparent; } .inside { fill: #fff; } .paper { fill: var(--paper); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e7e6e2; --muted: #a0a8b0; --rule: #32383e; --paper: #15181b; }
  .c0 { color: #3d9fdb; } .c1 { color: #f0803c; } .c2 { color: #2fc79b; } .c3 { color: #e39cc4; }
  .c4 { color: #f5be4a; } .c5 { color: #9ad4f7; } .c6 { color: #a0a8b0; }
}
";

/// The picture, as an SVG document that needs no other file.
#[must_use]
pub fn svg(report: &Report) -> String {
    let measured = figures::measured(report).into_iter().chain(figures::latency(report));
    let shown: Vec<_> = measured.filter(|figure| figure.height.is_none()).take(SHOWN).collect();
    let mut page = Picture::new(&report.title(), &report.headline);
    for pair in shown.chunks(2) {
        for (figure, x) in pair.iter().zip([MARGIN, MARGIN + WIDTH / 2.0]) {
            page.draw(figure, x, FIGURE);
        }
        page.below(FIGURE);
    }
    page.end()
}

/// A page's answer and charts as one picture.
#[must_use]
pub fn page_svg(page: &Page) -> String {
    let mut picture = Picture::new(&page.title, &page.answer);
    for (number, chart) in page.charts.iter().enumerate() {
        let figure = figures::page(number, chart);
        let height = figure.height.map_or(400.0, |pixels| pixels as f64);
        let size = Size { width: WIDTH - 2.0 * MARGIN, height, has_titles: true };
        picture.draw(&figure, MARGIN, size);
        picture.below(size);
    }
    picture.end()
}

/// A picture that grows downwards.
struct Picture {
    title: String,
    drawn: String,
    /// Where the next figure begins.
    top: f64,
}

impl Picture {
    fn new(title: &str, answer: &str) -> Self {
        let mut drawn = String::new();
        let lines = lines(answer);
        for (i, line) in lines.iter().enumerate() {
            let y = 58.0 + 26.0 * i as f64;
            let _ = writeln!(
                drawn,
                "<text class=\"answer\" x=\"{MARGIN}\" y=\"{y:.0}\">{}</text>",
                escape::text(line)
            );
        }
        Self { title: escape::text(title), drawn, top: 60.0 + 26.0 * lines.len() as f64 }
    }

    fn draw(&mut self, figure: &Figure, x: f64, size: Size) {
        let drawn = chart::svg(&figure.plot.json(), size);
        let _ = writeln!(
            self.drawn,
            "<text class=\"title\" x=\"{x:.0}\" y=\"{:.0}\">{}</text>\n<g transform=\"translate({x:.0} {:.0})\">{drawn}</g>",
            self.top + 16.0,
            escape::text(&figure.title),
            self.top + 26.0
        );
    }

    fn below(&mut self, size: Size) {
        self.top += size.height + 40.0;
    }

    fn end(self) -> String {
        let Self { title, drawn, top } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top:.0}\" role=\"img\">\n\
             <title>{title}</title>\n<desc>flashwright report</desc>\n<style>\n{STYLE}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"{MARGIN}\" y=\"28\">{title}</text>\n{drawn}</svg>\n"
        )
    }
}

/// A text in lines that fit.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
