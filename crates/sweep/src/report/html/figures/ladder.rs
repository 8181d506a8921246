//! From the baseline to the best, one setting at a time: DASH's Fig. 3.

use crate::analysis::Direction;
use crate::recommend::{Change, Ladder, Rung, words};

use super::super::super::{Report, papers, sheets};
use super::super::escape;
use super::{
    Axis, Figure, GREY, Layout, Marker, ORANGE, Plot, Trace, Whiskers, of_direction, reach_by, slug,
};

/// One figure for each kind of work that has a way up.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let random_first = |l: &&Ladder| (l.work.request.is_none(), l.work.class.direction);
    let mut ladders: Vec<&Ladder> = report.ladders.iter().filter(|l| !l.rungs.is_empty()).collect();
    ladders.sort_by_key(random_first);
    ladders.into_iter().map(figure).collect()
}

fn figure(ladder: &Ladder) -> Figure {
    let mut places = vec!["baseline".to_owned()];
    // A blank apart, so that two rungs of the same words do not fall into one bar.
    places.extend(
        ladder.rungs.iter().enumerate().map(|(i, rung)| format!("{}{}", name(rung), "\u{200b}".repeat(i))),
    );
    let mut figures = vec![ladder.figure];
    figures.extend(ladder.rungs.iter().map(|rung| rung.figure));
    let fill = of_direction(ladder.work.class.direction);
    let mut fills = vec![GREY];
    fills.extend(ladder.rungs.iter().map(|rung| if rung.together { ORANGE } else { fill }));
    let text = |i: usize| match i {
        0 => ladder.metric.words(ladder.figure.mean),
        i => {
            let rung = &ladder.rungs[i - 1];
            format!("{} · {}", ladder.metric.words(rung.figure.mean), words::times(rung.total))
        }
    };
    let divisor = match ladder.metric {
        crate::analysis::Metric::Iops => 1e3,
        crate::analysis::Metric::Bandwidth => 1e6,
    };
    let (up, down): (Vec<f64>, Vec<f64>) = figures.iter().map(|f| reach_by(f, divisor)).rev().unzip();
    let reversed = |values: Vec<String>| values.into_iter().rev().collect::<Vec<_>>();
    let count = figures.len();
    let largest = figures.iter().map(|f| f.mean / divisor).fold(0.0, f64::max);
    let bar = Trace::lying_bars(figures.iter().rev().map(|f| f.mean / divisor), reversed(places))
        .marker(Marker::of_each(fills.into_iter().rev().collect()))
        .error_x(Whiskers::new(up, down, GREY))
        .text(reversed((0..count).map(text).collect()))
        .hover(reversed((0..count).map(|i| hover(ladder, i)).collect()));
    let mut plot = Plot::default();
    plot.add_trace(bar);
    let title = match ladder.metric {
        crate::analysis::Metric::Iops => "Thousand IOPS",
        crate::analysis::Metric::Bandwidth => "Bandwidth (MB/s)",
    };
    let height = 110 + 34 * count;
    // Room for the figures that stand beside the bars.
    let x = Axis::new(title).beginning_at_zero().range(0.0, largest * 1.6);
    let y = Axis::new("").of_names();
    plot.set_layout(Layout::new(x, y));
    let paper = (ladder.work.class.direction == Direction::Read && ladder.work.request.is_some())
        .then_some(papers::LADDER);
    Figure {
        id: format!("ladder-{}", slug(&ladder.work.label().to_lowercase())),
        title: ladder.work.label(),
        papers: paper,
        caption: caption(ladder),
        plot,
        sheet: sheets::ladder(ladder),
        wide: false,
        height: Some(height),
    }
}

/// `+ 16 drives`; of many changes at once, how many.
fn name(rung: &Rung) -> String {
    match rung.changes.as_slice() {
        changes if rung.together && changes.len() > 2 => format!("{} at once", changes.len()),
        changes => {
            let words: Vec<String> = changes.iter().map(Change::words).collect();
            escape::label(&words.join(", "))
        }
    }
}

fn hover(ladder: &Ladder, i: usize) -> String {
    if i == 0 {
        let from: Vec<String> = ladder.from.iter().map(|(n, v)| escape::label(&format!("{n}={v}"))).collect();
        return format!("<b>baseline</b><br>{}", from.join("<br>"));
    }
    let rung = &ladder.rungs[i - 1];
    let changes: Vec<String> = rung.changes.iter().map(|c| escape::label(&sheets::change(c))).collect();
    format!(
        "<b>{}</b><br>{}<br>{} the rung below",
        changes.join("<br>"),
        ladder.metric.words(rung.figure.mean),
        words::ratio(rung.gain, rung.interval)
    )
}

fn caption(ladder: &Ladder) -> String {
    let from = crate::recommend::choice::in_words(ladder.from.iter());
    let mut text = format!("{} The baseline is {}.", ladder.sentence, words::list(&from));
    if ladder.rungs.iter().any(|rung| rung.together) {
        text += " The last rung needs all its changes at once: none of them helps alone, because they depend on each other.";
    }
    text
}
