//! Options of a pass that brings flash into the steady state of random writes: `sprandom`.

use measure::pattern::SteadyWrites;

use super::Draft;
use crate::error::Problem;
use crate::values;

/// What a section says of such a pass.
#[derive(Debug, Clone)]
pub struct SteadyWritesDraft {
    pub is_on: bool,
    /// The option that was given, of those that mean nothing without `sprandom`.
    pub given: Option<&'static str>,
    pub plan: SteadyWrites,
    pub cache_bytes: u64,
}

impl Default for SteadyWritesDraft {
    /// fio's defaults.
    fn default() -> Self {
        let plan = SteadyWrites { over_provisioning: 0.15, regions: 100, defers: false };
        Self { is_on: false, given: None, plan, cache_bytes: 0 }
    }
}

pub fn over_provisioning(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let text = values::required(value)?;
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    draft.steady_writes.plan.over_provisioning = share.ok_or_else(|| {
        Problem::new(format!("'{text}' is not between 0 and 1"), "write a fraction such as 0.15 for 15 %")
    })?;
    draft.steady_writes.given = Some("spr_op");
    Ok(())
}

pub fn regions(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.steady_writes.plan.regions = values::number32(values::required(value)?, 2, 1_000_000)?;
    draft.steady_writes.given = Some("spr_num_regions");
    Ok(())
}

/// As in fio, with a cache blocks are written again at the end of the next region.
pub fn cache(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.steady_writes.cache_bytes = values::bytes(values::required(value)?)?;
    draft.steady_writes.plan.defers = draft.steady_writes.cache_bytes > 0;
    draft.steady_writes.given = Some("spr_cs");
    Ok(())
}
