//! Which settings depend on each other: a line for each value of one over the values of the other.

use crate::analysis::{Interaction, InteractionCell};
use crate::recommend::words;

use super::super::super::{Report, sheets};
use super::super::escape;
use super::{Axis, Figure, Layout, Line, Mode, Plot, Trace, colour, dash, marker, slug};

/// Figures; the table in Markdown has them all.
const FIGURES: usize = 6;
/// Lines of one.
const LINES: usize = 7;

/// The strongest interactions that matter.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let matter = report.interactions.iter().filter(|i| i.matters == Some(true));
    matter.filter_map(figure).take(FIGURES).collect()
}

fn figure(of: &Interaction) -> Option<Figure> {
    // The one with fewer values makes the lines.
    let (first, second) = (values(of, |c| &c.first), values(of, |c| &c.second));
    let turned = first.len() > second.len();
    let (lines, places) = if turned { (second, first) } else { (first, second) };
    let (of_lines, of_places) = if turned { (&of.second, &of.first) } else { (&of.first, &of.second) };
    if lines.len() > LINES {
        return None;
    }
    let key = |c: &InteractionCell| {
        if turned { (c.second.clone(), c.first.clone()) } else { (c.first.clone(), c.second.clone()) }
    };
    let mut plot = Plot::default();
    for (i, line) in lines.iter().enumerate() {
        let cells: Vec<&InteractionCell> = of.cells.iter().filter(|c| key(c).0 == *line).collect();
        let hover = |c: &&InteractionCell| {
            format!(
                "{}={}, {}={}<br><b>{}</b> of the mean over all<br>{} what both effects would give",
                escape::label(&of.first),
                escape::label(&c.first),
                escape::label(&of.second),
                escape::label(&c.second),
                units::percent(c.level),
                words::times(c.ratio)
            )
        };
        plot.add_trace(
            Trace::scatter(
                cells.iter().map(|c| escape::label(&key(c).1)),
                cells.iter().map(|c| c.level),
                Mode::LinesMarkers,
            )
            .name(escape::label(&format!("{of_lines}={line}")))
            .line(Line::new(colour(i), 2.0).dash(dash(i)))
            .marker(marker(i, colour(i)))
            .hover(cells.iter().map(hover)),
        );
    }
    let x = Axis::new(&escape::label(of_places))
        .of_names_in_order(places.iter().map(|p| escape::label(p)).collect());
    let y = Axis::new("Relative to the mean over all").logarithmic();
    plot.set_layout(Layout::new(x, y).legend(true));
    let work = of.work.label();
    Some(Figure {
        id: format!("together-{}", slug(&format!("{work}-{}-{}", of.first, of.second).to_lowercase())),
        title: format!("{of_lines} and {of_places}, {}", work.to_lowercase()),
        papers: None,
        caption: caption(of),
        plot,
        sheet: sheets::interaction(of),
        wide: false,
        height: None,
    })
}

fn values(of: &Interaction, value: impl Fn(&InteractionCell) -> &String) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for cell in &of.cells {
        if !values.contains(value(cell)) {
            values.push(value(cell).clone());
        }
    }
    values
}

fn caption(of: &Interaction) -> String {
    let at = &of.largest;
    let mut text = format!(
        "{}={} with {}={} gives {} what the two effects would give if they did not depend on each other.",
        of.first,
        at.first,
        of.second,
        at.second,
        words::ratio(at.ratio, of.interval)
    );
    let best: Vec<&String> = of.best_first.values().collect();
    if of.changes_the_best && best.windows(2).any(|pair| pair[0] != pair[1]) {
        let mut by_best: Vec<(&String, Vec<String>)> = Vec::new();
        for (second, first) in &of.best_first {
            match by_best.iter_mut().find(|(known, _)| *known == first) {
                Some((_, at)) => at.push(second.clone()),
                None => by_best.push((first, vec![second.clone()])),
            }
        }
        let parts: Vec<String> = by_best
            .iter()
            .map(|(first, at)| format!("{}={first} at {}={}", of.first, of.second, words::list(at)))
            .collect();
        text += &format!(" The best is {}.", words::list(&parts));
    }
    text += " Lines side by side would mean no dependence; the axis is logarithmic.";
    text
}
