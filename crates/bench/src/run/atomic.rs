//! Whether a job's writes can be atomic: fio's `atomic`.
//!
//! The kernel refuses a write with RWF_ATOMIC that it cannot keep whole, request by request and with an error that says
//! little. So what it asks is looked up before anything runs (statx(2)): a drive and a file system that have such writes, a
//! size in their range that is a power of two, and offsets at multiples of it.

use storage::device::atomic_writes;

use super::{BenchError, Job};

/// Fails where a write of the job would be refused.
pub(super) fn check(job: &Job) -> Result<(), BenchError> {
    let (w, device) = (&job.workload, &job.device);
    let refuse = |why: String| Err(BenchError::NotAtomic { device: device.spec().to_owned(), why });
    let is_one = device.members().is_empty() && device.spread().is_none();
    if !is_one || device.memory().is_some() || device.remote().is_some() || device.performs().is_some() {
        return refuse("it is not one file or block device of this host".to_owned());
    }
    if !device.is_direct() {
        return refuse("it is not opened with direct=1".to_owned());
    }
    let sizes = match atomic_writes(device.fd()) {
        Ok(Some(sizes)) => sizes,
        Ok(None) => {
            let why = "the kernel names no writes that are atomic there; it takes Linux 6.11 or later, and a drive and a \
                       file system that have them";
            return refuse(why.to_owned());
        }
        Err(error) => return refuse(format!("the kernel does not say which writes are atomic: {error}")),
    };
    if !w.bs.is_power_of_two() || !sizes.contains(&w.bs) {
        let (least, most) = (units::bytes_short(*sizes.start()), units::bytes_short(*sizes.end()));
        return refuse(format!(
            "bs={} is not among its atomic writes, powers of two from {least} to {most}",
            units::bytes_short(w.bs)
        ));
    }
    let places = [
        ("offset", w.offset),
        ("offset_increment", w.offset_increment.unwrap_or(0)),
        ("blockalign", w.blockalign.unwrap_or(0)),
        ("zoneskip", w.zoneskip),
        ("rw_step", w.rw_step.unsigned_abs()),
    ];
    match places.into_iter().find(|(_, place)| !place.is_multiple_of(w.bs)) {
        Some((option, _)) => refuse(format!(
            "{option} is not a multiple of bs, and atomic writes lie at multiples of their size"
        )),
        None => Ok(()),
    }
}
