//! Figures as SVG: drawn when the page is made, so that it needs neither a plotting library nor a script.
//!
//! A figure is described in plotly's terms (`data` and `layout` as its JSON has them), of which this draws what the figures
//! use: scatter and bars, whiskers, linear, logarithmic and category axes, a legend, vertical lines. What a mark stands for
//! is its `<title>`, which browsers show on hover and screen readers read. Each figure is drawn for a wide and for a narrow
//! page, because text in a picture that is scaled down cannot be read; the style sheet shows one of them.
//!
//! Colours are classes ([`class_of`]), so that the page's style decides on them, on a dark page too.

mod axis;
mod marks;

use std::fmt::Write;

use serde_json::Value;

use axis::{Axis, Extent};

/// Pixels of a character of a tick, on average.
const CHARACTER: f64 = 6.1;
/// Pixels of a row of the legend.
const ROW: f64 = 18.0;

/// How a figure is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Whether marks say on hover what they stand for.
    pub(super) has_titles: bool,
}

/// The rectangle that marks are drawn in, and the two axes that place them.
struct Field {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    /// What is free to the right of it.
    margin: f64,
    x: Axis,
    y: Axis,
    has_titles: bool,
}

impl Field {
    fn x(&self, value: &Value) -> Option<f64> {
        Some(self.left + self.x.place(value)? * self.width)
    }

    fn y(&self, value: &Value) -> Option<f64> {
        Some(self.top + (1.0 - self.y.place(value)?) * self.height)
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }
}

/// The picture of a plot, as an `svg` element of this size.
pub(super) fn svg(plot: &Value, size: Size) -> String {
    let traces: Vec<&Value> = plot["data"].as_array().map(|data| data.iter().collect()).unwrap_or_default();
    let layout = &plot["layout"];
    let legend = legend(&traces, layout, size.width);
    let rows = legend.iter().map(|(_, row, _)| row + 1).max().unwrap_or(0);
    let field = field(&traces, layout, size, rows as f64 * ROW);
    let mut out = format!(
        "<svg viewBox=\"0 0 {:.0} {:.0}\" width=\"{:.0}\" height=\"{:.0}\" role=\"presentation\">",
        size.width, size.height, size.width, size.height
    );
    for (trace, row, x) in legend {
        legend_entry(&mut out, trace, x, 10.0 + row as f64 * ROW);
    }
    axes(&mut out, &field);
    for shape in layout["shapes"].as_array().into_iter().flatten() {
        if let Some(x) = field.x(&shape["x0"]) {
            let (top, bottom) = (field.top, field.bottom());
            let _ = write!(
                out,
                "<path class=\"c6\" stroke=\"currentColor\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>"
            );
        }
    }
    marks::draw(&mut out, &traces, layout, &field);
    out.push_str("</svg>");
    out
}

/// Which traces the legend names: row and left end of each.
fn legend<'a>(traces: &[&'a Value], layout: &Value, width: f64) -> Vec<(&'a Value, usize, f64)> {
    let is_named = |trace: &&&Value| trace["showlegend"] != false && trace["name"].is_string();
    let named: Vec<&Value> = traces.iter().filter(is_named).copied().collect();
    let is_wanted = layout["showlegend"] == true || layout["showlegend"].is_null() && named.len() > 1;
    if !is_wanted {
        return Vec::new();
    }
    let (mut row, mut x) = (0, 4.0);
    named
        .into_iter()
        .map(|trace| {
            let wide =
                34.0 + plain(trace["name"].as_str().unwrap_or_default()).chars().count() as f64 * CHARACTER;
            if x > 4.0 && x + wide > width {
                (row, x) = (row + 1, 4.0);
            }
            let at = x;
            x += wide;
            (trace, row, at)
        })
        .collect()
}

fn legend_entry(out: &mut String, trace: &Value, x: f64, y: f64) {
    let name = fitted(&plain(trace["name"].as_str().unwrap_or_default()), 52);
    let class = marks::class(trace, 0);
    let _ = write!(out, "<g class=\"{class}\">");
    if trace["type"] == "bar" {
        let _ = write!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"9\" fill=\"currentColor\"/>",
            y - 5.0
        );
    } else {
        let mode = trace["mode"].as_str().unwrap_or("lines");
        if mode.contains("lines") {
            marks::stroke(out, trace, &format!("M{x:.1} {y:.1}h20"));
        }
        if mode.contains("markers") {
            marks::symbol(out, &trace["marker"], x + 10.0, y, None);
        }
    }
    let _ = write!(out, "</g><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>", x + 25.0, y + 4.0);
}

/// Pixels that the title of the upright axis takes.
fn title_room(y: &Axis) -> f64 {
    if y.title.is_empty() { 2.0 } else { 18.0 }
}

/// Reads the axes and leaves room for what stands around them.
fn field(traces: &[&Value], layout: &Value, size: Size, legend: f64) -> Field {
    let horizontal = |trace: &&Value| trace["type"] == "bar" && trace["orientation"] == "h";
    let extents = |key: &str, error: &str| {
        let mut extent = Extent::default();
        for trace in traces {
            extent.add(&trace[key], &trace[error]);
            // Bars stand on zero.
            let grows = if horizontal(trace) { "x" } else { "y" };
            extent.is_from_zero |= trace["type"] == "bar" && key == grows;
        }
        extent
    };
    let mut x = Axis::of(&layout["xaxis"], &extents("x", "error_x"), size.width / 70.0);
    let mut y = Axis::of(&layout["yaxis"], &extents("y", "error_y"), size.height / 40.0);
    let is_bar = |trace: &&Value| trace["type"] == "bar";
    if traces.iter().any(|trace| trace["mode"].as_str().is_some_and(|m| m.contains("text"))) {
        y.widen(0.06);
        x.widen(0.03);
    }
    if !traces.iter().any(is_bar) {
        x.widen(0.03);
        y.widen(0.05);
    } else if traces.iter().any(horizontal) {
        x.widen_above(0.02);
    } else {
        y.widen_above(0.06);
    }
    let longest = y.longest_tick() as f64 * CHARACTER + 10.0;
    let left = longest.min(size.width * 0.42) + title_room(&y);
    let (top, bottom) = (legend + 12.0, if x.title.is_empty() { 26.0 } else { 44.0 });
    let right = (14.0 + x.last_tick() as f64 * CHARACTER / 2.0).min(60.0);
    // The figure of a bar that reaches the end stands behind it, and not over it.
    let lying = traces.iter().copied().filter(|trace| horizontal(trace));
    let figures = lying.flat_map(|trace| trace["text"].as_array().into_iter().flatten());
    let longest = figures.filter_map(|text| Some(plain(text.as_str()?).chars().count())).max().unwrap_or(0);
    let margin = right.max((longest as f64 * CHARACTER + 12.0).min(size.width * 0.4));
    Field {
        left,
        top,
        width: (size.width - left - margin).max(40.0),
        height: (size.height - top - bottom).max(40.0),
        margin,
        x,
        y,
        has_titles: size.has_titles,
    }
}

/// Grid, ticks and titles.
fn axes(out: &mut String, field: &Field) {
    let (left, right, top, bottom) = (field.left, field.right(), field.top, field.bottom());
    out.push_str("<g class=\"grid\">");
    for tick in field.x.ticks.iter().filter(|_| field.x.has_grid) {
        let x = left + tick.at * field.width;
        let _ = write!(out, "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>");
    }
    for tick in field.y.ticks.iter().filter(|_| field.y.has_grid) {
        let y = bottom - tick.at * field.height;
        let _ = write!(out, "<path d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
    }
    let _ = write!(out, "</g><g class=\"ticks\">");
    let room = field.width / field.x.ticks.len().max(1) as f64 / CHARACTER;
    let mut free = f64::NEG_INFINITY;
    for tick in &field.x.ticks {
        let x = left + tick.at * field.width;
        let text =
            if field.x.is_category { fitted(&tick.text, (room as usize).max(3)) } else { tick.text.clone() };
        let half = text.chars().count() as f64 * CHARACTER / 2.0;
        if x - half < free {
            continue;
        }
        free = x + half + 4.0;
        let _ =
            write!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>", bottom + 16.0);
    }
    let most = ((left - 10.0 - title_room(&field.y)) / CHARACTER + 0.01) as usize;
    for tick in &field.y.ticks {
        let y = bottom - tick.at * field.height + 4.0;
        let text = fitted(&tick.text, most.max(4));
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>", left - 7.0);
    }
    if !field.x.title.is_empty() {
        let (x, y) = (left + field.width / 2.0, bottom + 36.0);
        let _ =
            write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", field.x.title);
    }
    if !field.y.title.is_empty() {
        let y = top + field.height / 2.0;
        let title = &field.y.title;
        let _ = write!(
            out,
            "<text transform=\"translate(12 {y:.1}) rotate(-90)\" text-anchor=\"middle\">{title}</text>"
        );
    }
    out.push_str("</g>");
}

/// A label without plotly's tags. Its entities stay, which SVG has too; no other `<` is left.
fn plain(label: &str) -> String {
    let mut text = label.replace("<br>", "\n");
    while let (Some(begin), Some(end)) = (text.find("<sub>"), text.find("</sub>")) {
        if end < begin {
            break;
        }
        text.replace_range(begin..end + "</sub>".len(), "");
    }
    text.replace("<b>", "").replace("</b>", "").replace('<', "&lt;").trim().to_owned()
}

/// At most so many characters, cut in the middle, because what tells names apart stands at their ends.
fn fitted(text: &str, most: usize) -> String {
    // An entity that is cut would show its letters, or make the picture unreadable.
    if text.chars().count() <= most || text.contains('&') {
        return text.to_owned();
    }
    let tail = most.saturating_sub(1) / 2;
    let head: String = text.chars().take(most.saturating_sub(1 + tail)).collect();
    let tail: String = text.chars().skip(text.chars().count() - tail).collect();
    format!("{head}…{tail}")
}

/// The class of a colour of the figures.
fn class_of(colour: &str) -> &'static str {
    const CLASSES: [&str; 7] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"];
    super::figures::SERIES.iter().position(|c| *c == colour).map_or("c6", |at| CLASSES[at])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drawn(plot: &Value) -> String {
        svg(plot, Size { width: 700.0, height: 350.0, has_titles: true })
    }

    #[test]
    fn a_line_is_drawn_from_mark_to_mark_with_what_each_stands_for() {
        let text = drawn(&json!({
            "data": [{"type": "scatter", "mode": "lines+markers", "x": [1, 10, 100], "y": [1.0, 2.0, 4.0],
                      "hovertext": ["<b>one</b><br>1 &lt; 2", "two", "three"], "line": {"color": "#D55E00", "dash": "dot"}}],
            "layout": {"xaxis": {"type": "log", "title": {"text": "Depth"}}, "yaxis": {}},
        }));
        assert_eq!(text.matches("<title>").count(), 3);
        assert!(text.contains("<title>one\n1 &lt; 2</title>") && text.contains("stroke-dasharray"), "{text}");
        assert!(text.contains("class=\"c1\"") && text.contains(">Depth</text>"), "{text}");
        let marks: Vec<f64> = text
            .match_indices("<circle cx=\"")
            .map(|(at, word)| text[at + word.len()..].split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((marks[1] - marks[0] - (marks[2] - marks[1])).abs() < 0.2, "a logarithmic axis: {marks:?}");
    }

    #[test]
    fn bars_of_two_traces_stand_side_by_side_on_zero() {
        let text = drawn(&json!({
            "data": [{"type": "bar", "name": "a", "x": ["p", "q"], "y": [1.0, 2.0]},
                     {"type": "bar", "name": "b", "x": ["p", "q"], "y": [3.0, 4.0], "marker": {"color": "#009E73"}}],
            "layout": {"barmode": "group", "xaxis": {"type": "category"}, "yaxis": {}},
        }));
        let bars: Vec<(f64, f64)> = text
            .match_indices("<path class=\"bar\" d=\"M")
            .map(|(at, word)| {
                let mut numbers =
                    text[at + word.len()..].split([' ', 'V', 'H', 'Z', '"']).map(|n| n.parse().unwrap());
                (numbers.next().unwrap(), numbers.next().unwrap())
            })
            .collect();
        assert_eq!(bars.len(), 4);
        assert!(bars.iter().all(|(_, y)| (y - bars[0].1).abs() < 0.01), "one ground: {bars:?}");
        assert!(bars[0].0 < bars[2].0 && bars[2].0 < bars[1].0, "side by side: {bars:?}");
        assert!(text.contains(">a</text>") && text.contains(">b</text>"), "a legend");
    }

    #[test]
    fn names_are_whole_where_there_is_room_and_figures_stand_behind_their_bars() {
        let (name, figure) = ("depth 4, random seeking", "1.78 GB/s · 1.32×");
        let plot = json!({"data": [{"type": "bar", "orientation": "h", "x": [1.0, 2.0], "y": ["baseline", name],
                                    "text": ["1 GB/s", figure], "error_x": {"array": [0.1, 0.2], "arrayminus": [0.1, 0.2]}}],
                          "layout": {"yaxis": {"type": "category"}}});
        assert!(drawn(&plot).contains(&format!(">{name}</text>")));
        let narrow = svg(&plot, Size { width: 360.0, height: 200.0, has_titles: false });
        let number = |text: &str| text.split(['"', 'V', 'H']).next().unwrap().parse::<f64>().unwrap();
        let end_of_bar = number(narrow.split("class=\"bar\"").nth(2).unwrap().split('H').nth(1).unwrap());
        let before = &narrow[..narrow.find(figure).unwrap()];
        let begin = number(before.rsplit("<text x=\"").next().unwrap());
        assert!(begin > end_of_bar && begin + 17.0 * CHARACTER <= 360.0, "{begin}, {end_of_bar}: {narrow}");
    }

    #[test]
    fn nothing_to_draw_is_no_error_and_names_are_no_markup() {
        drawn(&json!({}));
        drawn(
            &json!({"data": [{"type": "scatter", "x": [], "y": []}], "layout": {"xaxis": {"type": "log"}}}),
        );
        let text =
            drawn(&json!({"data": [{"type": "bar", "orientation": "h", "x": [1.0], "y": ["<script>"]}]}));
        assert!(!text.contains("<script>"), "{text}");
    }
}
