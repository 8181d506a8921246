//! Each workload by the values of one setting: the papers' Figs. 8, 11 and 12, and the same for any other setting.

use crate::analysis::{BySetting, SettingBar};

use super::super::super::{Report, papers, sheets};
use super::super::escape;
use super::bandwidth::log_if_wide;
use super::{Axis, Figure, GREY, Layout, Marker, Plot, Scale, Trace, Whiskers, colour, reach, slug};

/// One figure a setting, those of the papers first and in their order.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    papers::in_order(&report.by_setting).into_iter().map(figure).collect()
}

fn figure(of: &BySetting) -> Figure {
    let means: Vec<f64> = of.bars.iter().map(|bar| bar.bandwidth.mean).collect();
    let scale = Scale::of(means.iter().copied().fold(0.0, f64::max));
    let mut plot = Plot::default();
    for (i, value) in of.values.iter().enumerate() {
        let bars: Vec<&SettingBar> = of.bars.iter().filter(|bar| bar.value == *value).collect();
        plot.add_trace(trace(value, &bars, &scale, colour(i)));
    }
    let typed = of.bars.iter().all(|bar| bar.test_type.is_some());
    let mut places: Vec<String> = Vec::new();
    for bar in &of.bars {
        let place = place(bar);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let x =
        Axis::new(if typed { "Test type, as the papers number them" } else { "" }).of_names_in_order(places);
    let y = log_if_wide(&scale, &means);
    plot.set_layout(Layout::new(x, y).bar_gap(0.2).legend(true));
    Figure {
        id: format!("by-{}", slug(&of.setting)),
        title: papers::title(&of.setting),
        papers: papers::of_setting(&of.setting),
        caption: caption(of),
        plot,
        sheet: sheets::by_setting(of),
        wide: true,
        height: None,
    }
}

/// Where a bar stands on the axis.
fn place(bar: &SettingBar) -> String {
    bar.test_type.map_or_else(|| escape::label(&bar.workload), |t| t.number().to_string())
}

fn trace(value: &str, bars: &[&SettingBar], scale: &Scale, fill: &'static str) -> Trace {
    let hover = |bar: &&SettingBar| {
        let over = if bar.configurations == 1 { "one configuration" } else { "mean over configurations" };
        format!(
            "<b>{}</b> {}<br>{}<br>{}, {over} ({})",
            place(bar),
            escape::label(&bar.workload),
            escape::label(value),
            sheets::bandwidth(bar.bandwidth),
            bar.configurations
        )
    };
    let (up, down) = bars.iter().map(|bar| reach(&bar.bandwidth, scale)).unzip();
    Trace::bars(bars.iter().map(|bar| place(bar)), bars.iter().map(|bar| scale.of_value(bar.bandwidth.mean)))
        .name(escape::label(value))
        .marker(Marker::new(fill))
        .error_y(Whiskers::new(up, down, GREY))
        .hover(bars.iter().map(hover))
}

/// Where the setting matters most, and how the bars were made.
fn caption(of: &BySetting) -> String {
    let mut widest: Option<(f64, &SettingBar, &SettingBar)> = None;
    for bar in &of.bars {
        let same = of.bars.iter().filter(|other| other.workload == bar.workload);
        for other in same.filter(|other| other.bandwidth.mean > 0.0) {
            let ratio = bar.bandwidth.mean / other.bandwidth.mean;
            if widest.is_none_or(|(most, ..)| ratio > most) {
                widest = Some((ratio, bar, other));
            }
        }
    }
    let mut text =
        widest.filter(|(ratio, ..)| *ratio > 1.0).map_or_else(String::new, |(ratio, more, less)| {
            format!(
                "Furthest apart for {}: {} {} that of {}. ",
                more.workload,
                crate::recommend::choice::words(&of.setting, &more.value),
                crate::recommend::words::times(ratio),
                crate::recommend::choice::words(&of.setting, &less.value)
            )
        });
    text += if of.matched {
        "Each bar is the mean over the other settings, the same ones for every value; whiskers: 95 % intervals from the scatter \
         of the passes."
    } else {
        "Each bar is the mean over all that was measured with that value, which is not the same for every value; the \
         effects below compare like with like."
    };
    text
}
