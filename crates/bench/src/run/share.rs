//! Which thread works on which part of which device, and with how much of the load ([`measure::dealing`]).

use std::sync::Arc;

use measure::Workload;
use measure::dealing::{Region, TooSmall, part_of, regions};
use measure::workload::InvalidWorkload;
use storage::device::{Device, DeviceKind};

use super::{BenchError, Job};
use crate::zones::{self, Announcement, Walk, ZoneError, ZoneTable};

/// The most threads of a job: as many as `numjobs` may be.
const MOST_THREADS: u64 = 4096;

/// One thread's share of a job.
#[derive(Debug, Clone)]
pub(super) struct Share {
    pub device: Arc<dyn Device>,
    /// What this thread is to do, and no other.
    pub workload: Workload,
    pub region: Region,
    /// The zones that its requests keep to.
    pub zones: Option<Arc<ZoneTable>>,
    /// That it is going to write there.
    pub announced: Option<Arc<Announcement>>,
}

impl Share {
    /// Resets the zones that a job is going to verify. To be called before any thread begins, so that none resets what another
    /// has written. False if `is_over` said so before all of them were.
    pub fn clear_zones(&self, is_over: &dyn Fn() -> bool) -> Result<bool, ZoneError> {
        let Self { device, workload, region, zones, .. } = self;
        match zones {
            Some(zones) if workload.verify.is_some() && workload.rw.writes() => {
                Walk::new(zones, device, workload, region, 0).clear(is_over)
            }
            _ => Ok(true),
        }
    }

    /// A request in flight will not be answered.
    pub fn lose_zones(&self) {
        if let Some(zones) = &self.zones {
            zones.lose();
        }
    }
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
        let zones = workload.is_zbd().then(|| job.zones.of(device, workload)).transpose()?;
        let regions = match &zones {
            Some(zones) => zones::regions_of(zones, workload, size),
            None => regions(workload, size),
        };
        let regions = regions.map_err(too_small)?;
        let announced = |region: &Region| {
            let zones = zones.as_ref().filter(|_| workload.rw.writes())?;
            Some(Arc::new(zones.announce(region.start..region.start + region.length)))
        };
        let share = |region: Region| Share {
            announced: announced(&region),
            device: Arc::clone(device),
            workload: workload.clone(),
            region: Region { job: first + region.job, ..region },
            zones: zones.clone(),
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
