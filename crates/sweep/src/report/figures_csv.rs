//! The numbers of all figures as one table of comma-separated values (RFC 4180): a row for each mark, in full.

use crate::analysis::{Interval, Metric};

use super::csv::push_row;
use super::{Report, papers};

const COLUMNS: [&str; 9] =
    ["figure", "papers", "series", "x", "value", "unit", "low", "high", "configurations"];

/// One mark of a figure.
struct Mark<'a> {
    figure: &'a str,
    papers: &'a str,
    series: String,
    x: String,
    value: f64,
    unit: &'a str,
    interval: Option<Interval>,
    configurations: u64,
}

/// Every mark of every figure. `low` and `high` are the ends of its 95 % interval, empty where it has none.
#[must_use]
pub fn figures_csv(report: &Report) -> String {
    let mut text = String::new();
    push_row(&mut text, &COLUMNS.map(str::to_owned));
    let mut marks = Vec::new();
    by_setting(report, &mut |mark| marks.push(mark.row()));
    scaling(report, &mut |mark| marks.push(mark.row()));
    depth(report, &mut |mark| marks.push(mark.row()));
    ladders(report, &mut |mark| marks.push(mark.row()));
    passes(report, &mut |mark| marks.push(mark.row()));
    effects(report, &mut |mark| marks.push(mark.row()));
    marks.iter().for_each(|row| push_row(&mut text, row));
    text
}

impl Mark<'_> {
    fn row(&self) -> [String; 9] {
        let end = |end: Option<f64>| end.map_or_else(String::new, |end| end.to_string());
        [
            self.figure.to_owned(),
            self.papers.to_owned(),
            self.series.clone(),
            self.x.clone(),
            self.value.to_string(),
            self.unit.to_owned(),
            end(self.interval.map(|i| i.low)),
            end(self.interval.map(|i| i.high)),
            self.configurations.to_string(),
        ]
    }
}

type Put<'p> = &'p mut dyn FnMut(Mark<'_>);

const BANDWIDTH: &str = "bytes/s";

fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::Iops => "IOPS",
        Metric::Bandwidth => BANDWIDTH,
    }
}

fn by_setting(report: &Report, put: Put<'_>) {
    for of in papers::in_order(&report.by_setting) {
        for bar in &of.bars {
            let number = bar.test_type.map(|t| t.number().to_string());
            put(Mark {
                figure: &format!("by-{}", of.setting),
                papers: papers::of_setting(&of.setting).unwrap_or_default(),
                series: bar.value.clone(),
                x: number.unwrap_or_else(|| bar.workload.clone()),
                value: bar.bandwidth.mean,
                unit: BANDWIDTH,
                interval: bar.bandwidth.interval,
                configurations: bar.configurations,
            });
        }
    }
}

fn scaling(report: &Report, put: Put<'_>) {
    for of in &report.scaling {
        for curve in &of.curves {
            let layout = curve.layout.as_deref().unwrap_or_default();
            let series = format!("{} {layout} depth {}", of.work.label(), curve.iodepth);
            for step in &curve.steps {
                let mark = |series: &str, value, unit, interval| Mark {
                    figure: "scaling",
                    papers: papers::of_scaling(&of.work).unwrap_or_default(),
                    series: series.to_owned(),
                    x: step.width.to_string(),
                    value,
                    unit,
                    interval,
                    configurations: 1,
                };
                put(mark(&series, step.figure.mean, unit(of.metric), step.figure.interval));
                put(mark(&series, step.of_drives, "of the sum of the drives", step.of_drives_interval));
            }
        }
    }
}

fn depth(report: &Report, put: Put<'_>) {
    for curve in &report.depth {
        for step in &curve.steps {
            put(Mark {
                figure: "depth",
                papers: papers::DEPTH,
                series: curve.label.clone(),
                x: step.iodepth.to_string(),
                value: step.bandwidth.mean,
                unit: BANDWIDTH,
                interval: step.bandwidth.interval,
                configurations: step.points.len() as u64,
            });
        }
    }
}

fn ladders(report: &Report, put: Put<'_>) {
    for of in &report.ladders {
        let mark = |x: String, figure: crate::analysis::Estimate| Mark {
            figure: "ladder",
            papers: papers::LADDER,
            series: of.work.label(),
            x,
            value: figure.mean,
            unit: unit(of.metric),
            interval: figure.interval,
            configurations: 1,
        };
        put(mark("baseline".to_owned(), of.figure));
        for rung in &of.rungs {
            let changes: Vec<String> = rung.changes.iter().map(crate::recommend::Change::words).collect();
            put(mark(changes.join(", "), rung.figure));
        }
    }
}

fn passes(report: &Report, put: Put<'_>) {
    for trend in &report.passes {
        for pass in &trend.passes {
            put(Mark {
                figure: "passes",
                papers: papers::PASSES,
                series: trend.direction.plural().to_owned(),
                x: pass.pass.to_string(),
                value: pass.relative,
                unit: "of the configuration's mean",
                interval: pass.interval,
                configurations: pass.points,
            });
        }
    }
    for point in &report.points {
        for (series, value) in [("before cleaning", point.cv_before), ("after", point.cv_after)] {
            if let Some(value) = value {
                put(Mark {
                    figure: "variation",
                    papers: papers::VARIATION,
                    series: series.to_owned(),
                    x: point.point.to_string(),
                    value,
                    unit: "coefficient of variation",
                    interval: None,
                    configurations: 1,
                });
            }
        }
    }
}

fn effects(report: &Report, put: Put<'_>) {
    for of in &report.effects {
        for value in &of.values {
            put(Mark {
                figure: "effects",
                papers: "",
                series: format!("{}: {} against {}", of.work.label(), of.dimension, of.best),
                x: value.value.clone(),
                value: value.ratio,
                unit: "of the best value",
                interval: value.interval,
                configurations: value.pairs,
            });
        }
    }
    for of in &report.interactions {
        for cell in &of.cells {
            put(Mark {
                figure: "together",
                papers: "",
                series: format!("{}: {}={}", of.work.label(), of.first, cell.first),
                x: format!("{}={}", of.second, cell.second),
                value: cell.level,
                unit: "of the mean over all",
                interval: None,
                configurations: of.blocks,
            });
        }
    }
}
