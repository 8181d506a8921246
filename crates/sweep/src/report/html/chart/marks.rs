//! What stands in a figure: lines, symbols, bars and whiskers.

use std::fmt::Write;

use serde_json::Value;

use super::{CHARACTER, Field, class_of, plain};

/// Draws the traces, later ones on top.
pub(super) fn draw(out: &mut String, traces: &[&Value], layout: &Value, field: &Field) {
    let bars: Vec<&&Value> = traces.iter().filter(|trace| trace["type"] == "bar").collect();
    let gap = layout["bargap"].as_f64().unwrap_or(0.25);
    for trace in traces {
        if trace["type"] == "bar" {
            let at = bars.iter().position(|bar| std::ptr::eq(**bar, *trace)).unwrap_or(0);
            of_bars(out, trace, field, Slot { at, of: bars.len(), gap });
        } else {
            scatter(out, trace, field);
        }
    }
}

/// The class of a trace's colour, or of one of its marks.
pub(super) fn class(trace: &Value, i: usize) -> &'static str {
    let of_marker = &trace["marker"]["color"];
    let colour =
        of_marker.as_str().or_else(|| of_marker[i].as_str()).or_else(|| trace["line"]["color"].as_str());
    class_of(colour.unwrap_or_default())
}

/// A line in a trace's dash and width.
pub(super) fn stroke(out: &mut String, trace: &Value, path: &str) {
    let dash = match trace["line"]["dash"].as_str().unwrap_or("solid") {
        "dash" => " stroke-dasharray=\"8 5\"",
        "dot" => " stroke-dasharray=\"2 4\"",
        "dashdot" => " stroke-dasharray=\"8 4 2 4\"",
        "longdash" => " stroke-dasharray=\"14 6\"",
        _ => "",
    };
    let width = trace["line"]["width"].as_f64().unwrap_or(2.0);
    let opacity = trace["opacity"].as_f64().map_or_else(String::new, |o| format!(" opacity=\"{o}\""));
    let _ = write!(
        out,
        "<path fill=\"none\" stroke=\"currentColor\" stroke-width=\"{width}\"{dash}{opacity} d=\"{path}\"/>"
    );
}

/// A symbol at a place; `title` is what it stands for.
pub(super) fn symbol(out: &mut String, marker: &Value, x: f64, y: f64, title: Option<&str>) {
    let r = marker["size"].as_f64().unwrap_or(8.0) / 2.0;
    let kind = marker["symbol"].as_str().unwrap_or("circle");
    let (shape, is_open) = kind.strip_suffix("-open").map_or((kind, false), |shape| (shape, true));
    let paint = if is_open {
        "fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\""
    } else {
        "fill=\"currentColor\""
    };
    let path = match shape {
        "square" => format!("M{:.1} {:.1}h{d:.1}v{d:.1}h-{d:.1}Z", x - r, y - r, d = 2.0 * r),
        "diamond" => {
            format!("M{x:.1} {:.1}l{d:.1} {d:.1}l-{d:.1} {d:.1}l-{d:.1} -{d:.1}Z", y - 1.3 * r, d = 1.3 * r)
        }
        "triangle-up" => {
            format!("M{x:.1} {:.1}l{w:.1} {h:.1}h-{:.1}Z", y - 1.2 * r, 2.4 * r, w = 1.2 * r, h = 2.2 * r)
        }
        "cross" => format!("M{:.1} {y:.1}h{d:.1}M{x:.1} {:.1}v{d:.1}", x - r, y - r, d = 2.0 * r),
        "x" => format!("M{:.1} {:.1}l{d:.1} {d:.1}m0 -{d:.1}l-{d:.1} {d:.1}", x - r, y - r, d = 2.0 * r),
        _ => String::new(),
    };
    let title = title.map_or_else(String::new, |title| format!("<title>{title}</title>"));
    let _ = match shape {
        "cross" | "x" => write!(
            out,
            "<path fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.5\" d=\"{path}\">{title}</path>"
        ),
        _ if path.is_empty() => {
            write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\" {paint}>{title}</circle>")
        }
        _ => write!(out, "<path {paint} d=\"{path}\">{title}</path>"),
    };
}

fn scatter(out: &mut String, trace: &Value, field: &Field) {
    let mode = trace["mode"].as_str().unwrap_or("lines");
    let count = trace["x"].as_array().map_or(0, Vec::len);
    let place = |i: usize| Some((field.x(&trace["x"][i])?, field.y(&trace["y"][i])?));
    let places: Vec<Option<(f64, f64)>> = (0..count).map(place).collect();
    let _ = write!(out, "<g class=\"{}\">", class(trace, 0));
    if mode.contains("lines") {
        stroke(out, trace, &path(&places, trace["line"]["shape"] == "hv"));
    }
    for (i, (x, y)) in places.iter().enumerate().filter_map(|(i, place)| Some((i, (*place)?))) {
        whiskers(out, trace, field, i, (x, y));
        let title = title(trace, field, i);
        if mode.contains("markers") {
            symbol(out, &trace["marker"], x, y, title.as_deref());
        } else if let Some(title) = title {
            let _ = write!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" class=\"spot\"><title>{title}</title></circle>"
            );
        }
        if let Some(text) = trace["text"][i].as_str().filter(|text| mode.contains("text") && !text.is_empty())
        {
            let (at, anchor) =
                if trace["textposition"] == "top left" { (x - 6.0, "end") } else { (x, "middle") };
            let _ = write!(
                out,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                y - 6.0,
                plain(text)
            );
        }
    }
    out.push_str("</g>");
}

/// A line through the places that there are; in steps where it is one.
fn path(places: &[Option<(f64, f64)>], in_steps: bool) -> String {
    let mut path = String::new();
    let mut pen = 'M';
    for place in places {
        let Some((x, y)) = place else {
            pen = 'M';
            continue;
        };
        let _ = match (pen, in_steps) {
            ('L', true) => write!(path, "H{x:.1}V{y:.1}"),
            _ => write!(path, "{pen}{x:.1} {y:.1}"),
        };
        pen = 'L';
    }
    path
}

/// What a mark stands for.
fn title(trace: &Value, field: &Field, i: usize) -> Option<String> {
    let text = trace["hovertext"][i].as_str().filter(|_| field.has_titles)?;
    Some(plain(text))
}

/// How far a mark's interval reaches.
fn whiskers(out: &mut String, trace: &Value, field: &Field, i: usize, (x, y): (f64, f64)) {
    for (key, error) in [("x", &trace["error_x"]), ("y", &trace["error_y"])] {
        let Some(value) = trace[key][i].as_f64() else { continue };
        let reach = |side: &str| error[side][i].as_f64().unwrap_or(0.0);
        let (up, down) = (reach("array"), reach("arrayminus"));
        if up <= 0.0 && down <= 0.0 {
            continue;
        }
        let at = |v: f64| Value::from(v);
        let path = if key == "x" {
            let (Some(a), Some(b)) = (field.x(&at(value - down)), field.x(&at(value + up))) else { continue };
            format!("M{a:.1} {:.1}v6M{a:.1} {y:.1}H{b:.1}M{b:.1} {:.1}v6", y - 3.0, y - 3.0)
        } else {
            let (Some(a), Some(b)) = (field.y(&at(value - down)), field.y(&at(value + up))) else { continue };
            format!("M{:.1} {a:.1}h6M{x:.1} {a:.1}V{b:.1}M{:.1} {b:.1}h6", x - 3.0, x - 3.0)
        };
        let class = class_of(error["color"].as_str().unwrap_or_default());
        let _ = write!(
            out,
            "<path class=\"{class}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.4\" d=\"{path}\"/>"
        );
    }
}

/// Which of the bars of one name.
#[derive(Clone, Copy)]
struct Slot {
    at: usize,
    of: usize,
    gap: f64,
}

fn of_bars(out: &mut String, trace: &Value, field: &Field, slot: Slot) {
    let is_lying = trace["orientation"] == "h";
    let (names, values) = if is_lying { ("y", "x") } else { ("x", "y") };
    let (axis, length) = if is_lying { (&field.y, field.height) } else { (&field.x, field.width) };
    let thick = (axis.share() * length * (1.0 - slot.gap) / slot.of as f64).min(46.0);
    let shift = (slot.at as f64 - (slot.of as f64 - 1.0) / 2.0) * thick;
    let ground = Value::from(0.0);
    for i in 0..trace[values].as_array().map_or(0, Vec::len) {
        let (name, value) = (&trace[names][i], &trace[values][i]);
        let title =
            title(trace, field, i).map_or_else(String::new, |title| format!("<title>{title}</title>"));
        let _ = write!(out, "<g class=\"{}\">", class(trace, i));
        if is_lying {
            let (Some(y), Some(from), Some(to)) = (field.y(name), field.x(&ground), field.x(value)) else {
                out.push_str("</g>");
                continue;
            };
            let (y, from) = (y - shift, from.max(field.left));
            let (a, b) = (y - thick / 2.0, y + thick / 2.0);
            let _ = write!(
                out,
                "<path class=\"bar\" d=\"M{from:.1} {a:.1}H{to:.1}V{b:.1}H{from:.1}Z\">{title}</path></g>"
            );
            whiskers(out, trace, field, i, (to, y));
            beside(out, trace, field, i, (from, to, y));
        } else {
            let (Some(x), Some(from), Some(to)) = (field.x(name), field.y(&ground), field.y(value)) else {
                out.push_str("</g>");
                continue;
            };
            let (x, from) = (x + shift, from.min(field.bottom()));
            let (a, b) = (x - thick / 2.0, x + thick / 2.0);
            let _ = write!(
                out,
                "<path class=\"bar\" d=\"M{a:.1} {from:.1}V{to:.1}H{b:.1}V{from:.1}Z\">{title}</path></g>"
            );
            whiskers(out, trace, field, i, (x, to));
        }
    }
}

/// The figure of a lying bar: behind its end, or in it where there is no room.
fn beside(out: &mut String, trace: &Value, field: &Field, i: usize, (from, to, y): (f64, f64, f64)) {
    let Some(text) = trace["text"][i].as_str().filter(|text| !text.is_empty()) else { return };
    let text = plain(text);
    let wide = text.chars().count() as f64 * CHARACTER;
    let reach =
        trace["error_x"]["array"][i].as_f64().zip(trace["x"][i].as_f64()).map(|(up, value)| value + up);
    let end = reach.and_then(|v| field.x(&Value::from(v))).unwrap_or(to).max(to) + 8.0;
    let y = y + 4.0;
    let _ = if end + wide <= field.right() + field.margin {
        write!(out, "<text x=\"{end:.1}\" y=\"{y:.1}\">{text}</text>")
    } else if to - from > wide + 12.0 {
        write!(
            out,
            "<text class=\"inside\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>",
            to - 8.0
        )
    } else {
        write!(
            out,
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>",
            field.right() + field.margin
        )
    };
}
