//! `steadystate` of a job: how steady it was when it ended.

use bench::run::steady::{Criterion, Steadiness};

/// fio's `steadystate`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SteadyState {
    /// The criterion and its limit: `iops:10.000000%`.
    pub ss: String,
    /// The window, seconds.
    pub duration: u64,
    /// 1 where the job ended because it was steady.
    pub attained: u8,
    /// What was compared with the limit.
    pub criterion: String,
    /// The largest distance from the mean, in the units of the figures.
    pub max_deviation: f64,
    /// By how much the figures rise from one to the next.
    pub slope: f64,
    /// The figures.
    pub data: SteadyData,
}

/// The figures of the window, oldest first.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SteadyData {
    /// Mean of `bw`.
    pub bw_mean: u64,
    /// Mean of `iops`.
    pub iops_mean: u64,
    /// Requests a second.
    pub iops: Vec<u64>,
    /// Bytes a second.
    pub bw: Vec<u64>,
    /// Mean latencies, nanoseconds; fio 3.33 has none.
    pub lat: Vec<u64>,
}

impl SteadyState {
    pub(super) fn of(steadiness: &Steadiness) -> Self {
        let plan = &steadiness.plan;
        let word = match plan.criterion {
            Criterion::Iops => "iops",
            Criterion::Bandwidth => "bw",
            Criterion::Latency => "lat",
        };
        let (slope, unit) = (if plan.slope { "_slope" } else { "" }, if plan.percent { "%" } else { "" });
        let whole = |figures: &[f64]| figures.iter().map(|figure| figure.round() as u64).collect();
        let mean = |figures: &[f64]| (figures.iter().sum::<f64>() / figures.len().max(1) as f64) as u64;
        Self {
            ss: format!("{word}{slope}:{:.6}{unit}", plan.limit),
            duration: plan.window.as_secs(),
            attained: u8::from(steadiness.attained),
            criterion: format!("{:.6}{unit}", steadiness.criterion),
            max_deviation: steadiness.max_deviation,
            slope: steadiness.slope,
            data: SteadyData {
                bw_mean: mean(&steadiness.bandwidth),
                iops_mean: mean(&steadiness.iops),
                iops: whole(&steadiness.iops),
                bw: whole(&steadiness.bandwidth),
                lat: whole(&steadiness.latency),
            },
        }
    }
}
