//! The waste of one level of checkpoints or of two, over the period and as one input changes.

use planner::PlanError;
use planner::checkpoint::levels::Levels;
use planner::checkpoint::{Machine, time};
use schemars::JsonSchema;
use serde::Serialize;
use sweep::report::{PageChart, PageMark};

/// A machine; with two levels where failures lose the fast tier.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub machine: Machine,
    pub levels: Option<Levels>,
}

/// A period and its waste.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct CurvePoint {
    pub period_s: f64,
    pub waste: f64,
}

/// What a change of one input does.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Sensitivity {
    /// `mtbf`, `write time`, `drain time` or `restart`.
    pub input: &'static str,
    /// What it is multiplied by.
    pub factor: f64,
    /// The period of the least waste.
    pub period_s: f64,
    /// Its waste.
    pub waste: f64,
}

impl Model {
    /// The waste of a period, or of the best one.
    pub fn at(&self, period_s: Option<f64>) -> Result<CurvePoint, PlanError> {
        if let Some(levels) = &self.levels {
            let schedule = levels.schedule(period_s)?;
            return Ok(CurvePoint { period_s: schedule.period_s, waste: schedule.waste });
        }
        let period_s = period_s.unwrap_or_else(|| self.machine.exact_period());
        Ok(CurvePoint { period_s, waste: self.machine.waste(period_s) })
    }

    /// Waste over a decade below and above the best period, as far as any progress is made.
    pub fn curve(&self) -> Result<Vec<CurvePoint>, PlanError> {
        let best = self.at(None)?.period_s;
        let low = (best / 10.0).max(self.machine.write_s * 1.001);
        let points = 20;
        let period = |n: u32| low * (best * 10.0 / low).powf(f64::from(n) / f64::from(points));
        Ok((0..=points).filter_map(|n| self.at(Some(period(n))).ok()).collect())
    }

    /// The best period and its waste with each input halved, doubled and a fifth less and more.
    pub fn sensitivity(&self) -> Vec<Sensitivity> {
        let of = |input: &'static str, factor: f64| {
            let point = self.scaled(input, factor).at(None).ok()?;
            Some(Sensitivity { input, factor, period_s: point.period_s, waste: point.waste })
        };
        let inputs = ["mtbf", "write time", "drain time", "restart"];
        let inputs = inputs.into_iter().filter(|input| self.levels.is_some() || *input != "drain time");
        inputs.flat_map(|input| [0.5, 0.8, 1.25, 2.0].map(|factor| of(input, factor))).flatten().collect()
    }

    fn scaled(mut self, input: &str, factor: f64) -> Self {
        let machine = &mut self.machine;
        match input {
            "mtbf" => machine.mtbf_s *= factor,
            "write time" => machine.write_s *= factor,
            "restart" => machine.restart_s *= factor,
            _ => {}
        }
        let Some(levels) = &mut self.levels else { return self };
        (levels.mtbf_s, levels.fast_write_s, levels.fast_restart_s) =
            (machine.mtbf_s, machine.write_s, machine.restart_s);
        match input {
            "drain time" => levels.slow_write_s *= factor,
            "restart" => levels.slow_restart_s *= factor,
            _ => {}
        }
        self
    }
}

/// The curve as a chart.
pub fn curve_chart(curve: &[CurvePoint]) -> PageChart {
    let mark = |p: &CurvePoint| PageMark {
        label: time(p.period_s),
        x: p.period_s,
        y: p.waste,
        words: units::percent(p.waste),
    };
    PageChart {
        title: "Waste over the period".to_owned(),
        x: Some("Period (s)"),
        y: "Waste",
        is_logarithmic: false,
        marks: curve.iter().map(mark).collect(),
    }
}

/// What changes of inputs do, as a chart.
pub fn sensitivity_chart(all: &[Sensitivity]) -> PageChart {
    let mark = |s: &Sensitivity| PageMark {
        label: format!("{} × {}", s.input, s.factor),
        x: s.factor,
        y: s.waste,
        words: format!("{:.2} %, every {}", s.waste * 100.0, time(s.period_s)),
    };
    PageChart {
        title: "Least waste, and its period, as one input changes".to_owned(),
        x: None,
        y: "Waste",
        is_logarithmic: false,
        marks: all.iter().map(mark).collect(),
    }
}
