//! Options of the course of a run: logs, least rates, steady states, flows, and where buffers lie.

use std::time::Duration;

use measure::workload::NumberList;
use storage::usage::MemoryPolicy;

use super::Draft;
use crate::error::Problem;
use crate::values::{self, ByDirection};
use bench::run::conduct::{Conduct, Floor, RingConduct};
use bench::run::flow::Flow;
use bench::run::log::LogPlan;
use bench::run::search::LatencyGoal;
use bench::run::steady::{Criterion, SteadyPlan};

/// What a section says of the course of its run.
#[derive(Debug, Clone)]
pub struct ConductDraft {
    pub bw_log: Option<LogName>,
    pub lat_log: Option<LogName>,
    pub iops_log: Option<LogName>,
    pub log: LogPlan,
    pub rate_min: ByDirection<u64>,
    pub rate_iops_min: ByDirection<u64>,
    pub rate_cycle: Duration,
    steady: Option<Limit>,
    pub steady_window: Duration,
    pub steady_ramp: Duration,
    steady_interval: Duration,
    pub flow: u32,
    pub flow_id: u32,
    pub flow_sleep: Duration,
    memory: Option<MemoryPolicy>,
    pub latency_target: Duration,
    pub latency_window: Duration,
    latency_percentile: f64,
    pub latency_run: bool,
    pub ring: RingConduct,
}

/// What the names of a log begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogName {
    /// The job's name.
    OfJob,
    /// What was given.
    Given(String),
}

/// A criterion with its limit.
#[derive(Debug, Clone, Copy)]
struct Limit {
    criterion: Criterion,
    slope: bool,
    limit: f64,
    percent: bool,
}

impl Default for ConductDraft {
    /// fio's defaults.
    fn default() -> Self {
        Self {
            bw_log: None,
            lat_log: None,
            iops_log: None,
            log: LogPlan::default(),
            rate_min: [None; 3],
            rate_iops_min: [None; 3],
            rate_cycle: Duration::from_secs(1),
            steady: None,
            steady_window: Duration::ZERO,
            steady_ramp: Duration::ZERO,
            steady_interval: Duration::from_secs(1),
            flow: 0,
            flow_id: 0,
            flow_sleep: Duration::ZERO,
            memory: None,
            latency_target: Duration::ZERO,
            latency_window: Duration::ZERO,
            latency_percentile: 100.0,
            latency_run: false,
            ring: RingConduct::default(),
        }
    }
}

impl ConductDraft {
    /// What the run is to do. The error names the key at fault.
    pub fn resolve(&self) -> Result<Conduct, (&'static str, Problem)> {
        let logs = self.bw_log.is_some() || self.lat_log.is_some() || self.iops_log.is_some();
        let floor = Floor {
            bytes: self.rate_min.map(Option::unwrap_or_default),
            ios: self.rate_iops_min.map(Option::unwrap_or_default),
            cycle: self.rate_cycle,
        };
        Ok(Conduct {
            log: logs.then_some(self.log),
            floor: Some(floor),
            steady: self.steady()?,
            flow: (self.flow > 0).then_some(Flow {
                id: self.flow_id,
                weight: self.flow,
                sleep: self.flow_sleep,
            }),
            memory: self.memory.clone(),
            burn: None,
            latency: self.latency()?,
            ring: self.ring.clone(),
            ..Conduct::default()
        })
    }

    fn latency(&self) -> Result<Option<LatencyGoal>, (&'static str, Problem)> {
        if self.latency_target.is_zero() {
            return Ok(None);
        }
        if self.latency_window.is_zero() {
            let problem = Problem::new("nothing says how long a depth is tried", "add latency_window=1s");
            return Err(("latency_target", problem));
        }
        Ok(Some(LatencyGoal {
            target: self.latency_target,
            window: self.latency_window,
            percentile: self.latency_percentile,
            goes_on: self.latency_run,
        }))
    }

    /// As in fio, a criterion without a window is none.
    fn steady(&self) -> Result<Option<SteadyPlan>, (&'static str, Problem)> {
        let Some(limit) = self.steady else { return Ok(None) };
        if self.steady_window.is_zero() {
            return Ok(None);
        }
        if self.steady_window < self.steady_interval * 2 {
            let reason = "the window holds less than two figures";
            let problem =
                Problem::new(reason, "write a longer window, or a shorter steadystate_check_interval");
            return Err(("steadystate_duration", problem));
        }
        let Limit { criterion, slope, limit, percent } = limit;
        let (window, ramp, interval) = (self.steady_window, self.steady_ramp, self.steady_interval);
        Ok(Some(SteadyPlan { criterion, slope, limit, percent, window, ramp, interval }))
    }

    /// Whether a criterion is given that no window makes one.
    pub fn steady_is_off(&self) -> bool {
        self.steady.is_some() && self.steady_window.is_zero()
    }
}

/// The name of a log; as in fio that of the job where none is given.
pub fn log_name(value: Option<&str>) -> LogName {
    match value.map(str::trim) {
        None | Some("") => LogName::OfJob,
        Some(name) => LogName::Given(name.to_owned()),
    }
}

/// A switch in fio 3.33, a word in later versions.
pub fn log_window_value(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.conduct.log.largest = match value.map(str::trim) {
        None | Some("1" | "max") => true,
        Some("0" | "avg") => false,
        _ => return Err(Problem::new("a log holds one value a window", "write avg or max")),
    };
    Ok(())
}

/// `iops:10%`, `bw_slope:1%`, `lat:5%`.
pub fn steadystate(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let example = "write for instance iops:2% or bw_slope:0.3%";
    let text = values::required(value)?;
    let (word, limit) = text.split_once(':').ok_or_else(|| Problem::new("it has no limit", example))?;
    let (word, slope) = match word.strip_suffix("_slope") {
        Some(word) => (word, true),
        None => (word, false),
    };
    let criterion = match word {
        "iops" => Criterion::Iops,
        "bw" => Criterion::Bandwidth,
        "lat" => Criterion::Latency,
        _ => {
            return Err(Problem::new(
                "it is no criterion of steadiness",
                "write iops, bw or lat, or one with _slope",
            ));
        }
    };
    let (number, percent) = match limit.strip_suffix('%') {
        Some(number) => (number, true),
        None => (limit, false),
    };
    let limit = match (number.parse::<f64>(), percent, criterion) {
        (_, false, Criterion::Latency) => {
            return Err(Problem::new(
                "a limit of latency in units of time is not supported",
                "write a percentage, such as lat:5%",
            ));
        }
        (Ok(limit), ..) if limit.is_finite() && limit >= 0.0 => limit,
        (_, false, Criterion::Bandwidth) => values::bytes(number)? as f64,
        _ => return Err(Problem::new(format!("'{number}' is not a limit"), example)),
    };
    draft.conduct.steady = Some(Limit { criterion, slope, limit, percent });
    Ok(())
}

pub fn steadystate_check_interval(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let interval = values::time(values::required(value)?)?;
    if interval < Duration::from_secs(1) {
        return Err(Problem::new("figures of less than a second are not judged", "write 1s or more"));
    }
    draft.conduct.steady_interval = interval;
    Ok(())
}

pub fn latency_percentile(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let text = values::required(value)?;
    let percent = text.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
    draft.conduct.latency_percentile =
        percent.ok_or_else(|| Problem::new("it is not a percentage above 0", "write for instance 99.9"))?;
    Ok(())
}

/// `bind:0-1`, `prefer:1`, `local`.
pub fn numa_mem_policy(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let text = values::required(value)?;
    let (mode, nodes) = match text.split_once(':') {
        Some((mode, nodes)) => (mode, nodes.trim()),
        None => (text, ""),
    };
    let list = || {
        let read = nodes.parse::<NumberList>().map(|list| list.numbers().to_vec());
        read.map_err(|error| Problem::new(error.to_string(), format!("write for instance {mode}:0-1")))
    };
    draft.conduct.memory = Some(match (mode, nodes) {
        ("default", "") => MemoryPolicy::Default,
        ("local", "") => MemoryPolicy::Local,
        ("bind", _) => MemoryPolicy::Bind(list()?),
        ("interleave", _) => MemoryPolicy::Interleave(list()?),
        ("prefer", _) => match list()?.as_slice() {
            [one] => MemoryPolicy::Prefer(*one),
            _ => return Err(Problem::new("only one node can be preferred", "write for instance prefer:0")),
        },
        _ => {
            return Err(Problem::new(
                "it is not a policy",
                "write default, local, prefer:0, bind:0-1 or interleave:0-1",
            ));
        }
    });
    Ok(())
}
