//! Which thread works on which part of which device, and with how much of the load ([`measure::dealing`]).

use std::sync::Arc;

use measure::Workload;
use measure::dealing::{Region, TooSmall, part_of, regions};
use measure::workload::InvalidWorkload;
use storage::device::{Device, DeviceKind};

use super::{BenchError, Job};

/// The most threads of a job: as many as `numjobs` may be.
const MOST_THREADS: u64 = 4096;

/// One thread's share of a job.
#[derive(Debug, Clone)]
pub(super) struct Share {
    pub device: Arc<dyn Device>,
    /// What this thread is to do, and no other.
    pub workload: Workload,
    pub region: Region,
}

/// The shares of a job's threads.
pub(super) fn shares(job: &Job) -> Result<Vec<Share>, BenchError> {
    let (workload, device) = (&job.workload, &job.device);
    let on = |device: &Arc<dyn Device>, workload: &Workload, first: u32| {
        let size = device.size();
        let too_small = |why: TooSmall| BenchError::TooSmall {
            device: device.spec().to_owned(),
            size,
            needed: why.needed,
        };
        let regions = regions(workload, size).map_err(too_small)?;
        let share = |region: Region| Share {
            device: Arc::clone(device),
            workload: workload.clone(),
            region: Region { job: first + region.job, ..region },
        };
        Ok(regions.into_iter().map(share).collect::<Vec<_>>())
    };
    if device.kind() != DeviceKind::Separate {
        return on(device, workload, 0);
    }
    let members = device.members();
    if u64::from(workload.numjobs) * members.len() as u64 > MOST_THREADS {
        return Err(too_many_threads(workload, members.len()).into());
    }
    let mut shares = Vec::new();
    for (member, number) in members.iter().zip(0..) {
        let part = part_of(workload, members.len() as u32, number)?;
        shares.extend(on(member, &part, number * workload.numjobs)?);
    }
    Ok(shares)
}

fn too_many_threads(workload: &Workload, members: usize) -> InvalidWorkload {
    InvalidWorkload {
        option: "numjobs",
        value: format!("{} on each of {members} separate devices", workload.numjobs),
        reason: "comes to more than 4096 threads",
        hint: "lower --numjobs",
    }
}
