//! A record's counters, put in order for the checks: which devices are the members of an array, and
//! what each of them did in the time between the readings.

use crate::record::{DriveCounts, RunRecord};

/// A record with the members that its requests were spread over.
pub(super) struct Seen<'a> {
    pub record: &'a RunRecord,
    /// The devices among which requests are divided: what the first device with several below it is made
    /// of; where the target itself lies on several, those; else the one drive at the bottom.
    pub members: Vec<Member<'a>>,
    /// Time between the readings of the counters, seconds.
    pub window_s: f64,
}

/// One member and its figures.
pub(super) struct Member<'a> {
    pub counts: &'a DriveCounts,
    window_s: f64,
}

impl Member<'_> {
    pub fn name(&self) -> &str {
        &self.counts.name
    }

    /// Requests that it completed.
    pub fn ios(&self) -> f64 {
        (self.counts.read_ios + self.counts.write_ios + self.counts.discard_ios) as f64
    }

    /// Bytes that it moved.
    pub fn bytes(&self) -> f64 {
        (self.counts.read_bytes + self.counts.write_bytes) as f64
    }

    /// Part of the time in which at least one request was in flight, 0 to 1.
    pub fn busy(&self) -> f64 {
        ratio(self.counts.busy_ms as f64 / 1e3, self.window_s).min(1.0)
    }

    /// Mean number of requests in flight.
    pub fn mean_in_flight(&self) -> f64 {
        ratio(self.counts.in_flight_ms as f64 / 1e3, self.window_s)
    }

    /// Mean time of a request in it, seconds.
    pub fn latency_s(&self) -> f64 {
        ratio(self.counts.in_flight_ms as f64 / 1e3, self.ios())
    }

    /// Requests completed in each second in which it had any.
    pub fn rate_while_busy(&self) -> f64 {
        ratio(self.ios(), self.counts.busy_ms as f64 / 1e3)
    }
}

impl<'a> Seen<'a> {
    pub fn new(record: &'a RunRecord) -> Self {
        let window_ns = if record.observed_ns > 0 { record.observed_ns } else { record.interval_ns };
        let window_s = window_ns as f64 / 1e9;
        let members = members(&record.drives).into_iter().map(|counts| Member { counts, window_s }).collect();
        Self { record, members, window_s }
    }

    /// Requests that the jobs keep in flight in a closed loop.
    pub fn asked_in_flight(&self) -> f64 {
        self.record.in_flight() as f64
    }

    /// Whether a thread or CPU is busy by design, because it polls.
    pub fn polls(&self) -> bool {
        let workload = &self.record.workload;
        workload.hipri || workload.sqthread_poll
    }

    /// Mean of the members' part of the time with requests.
    pub fn busy(&self) -> f64 {
        ratio(self.members.iter().map(Member::busy).sum(), self.members.len() as f64)
    }

    /// Part of a request's time that it spent in the members, where they keep the time: theirs for a
    /// request of theirs, times how many of those one of ours became.
    pub fn share_in_drives(&self) -> Option<f64> {
        let spent: f64 = self.members.iter().map(|m| m.counts.in_flight_ms as f64 / 1e3).sum();
        let ios: f64 = self.members.iter().map(Member::ios).sum();
        let own = self.record.latency().mean() / 1e9;
        if spent <= 0.0 || ios <= 0.0 || own <= 0.0 {
            return None;
        }
        // A request that was split waits for its parts side by side, so the mean of the parts will do.
        Some((spent / ios / own).min(1.0))
    }

    /// `nvme0n1`, or `8 drives`.
    pub fn drives_in_words(&self) -> String {
        match self.members.as_slice() {
            [only] => only.name().to_owned(),
            several => format!("{} drives", several.len()),
        }
    }
}

/// `part / whole`; 0 where there is no whole.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The median; 0 of nothing.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The devices among which requests are divided. A device without counters (it is gone, or never
/// counts) leaves the rest without meaning, so then there are none.
fn members(drives: &[DriveCounts]) -> Vec<&DriveCounts> {
    let find = |name: &String| drives.iter().find(|d| d.name == *name);
    let is_below = |name: &str| drives.iter().any(|d| d.below.iter().any(|b| b == name));
    let mut level: Vec<&DriveCounts> = drives.iter().filter(|d| !is_below(&d.name)).collect();
    // Each step goes one device down, so there are no more steps than devices.
    for _ in 0..drives.len() {
        let [only] = level.as_slice() else { break };
        if only.below.is_empty() {
            break;
        }
        match only.below.iter().map(find).collect::<Option<Vec<_>>>() {
            Some(below) => level = below,
            None => return Vec::new(),
        }
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, below: &[&str]) -> DriveCounts {
        DriveCounts {
            name: name.into(),
            below: below.iter().map(|b| (*b).to_owned()).collect(),
            ..DriveCounts::default()
        }
    }

    fn names(drives: &[DriveCounts]) -> Vec<&str> {
        members(drives).into_iter().map(|d| d.name.as_str()).collect()
    }

    #[test]
    fn members_are_what_the_first_device_with_several_below_it_is_made_of() {
        let array = [
            device("dm-0", &["md0"]),
            device("md0", &["sda1", "sdb1"]),
            device("sda1", &["sda"]),
            device("sdb1", &["sdb"]),
            device("sda", &[]),
            device("sdb", &[]),
        ];
        assert_eq!(names(&array), ["sda1", "sdb1"]);
        assert_eq!(names(&[device("sda1", &["sda"]), device("sda", &[])]), ["sda"]);
        assert_eq!(names(&[]), Vec::<&str>::new());
    }

    #[test]
    fn drives_that_a_target_lies_on_directly_are_its_members_even_if_they_share_a_disk() {
        let loops = [device("loop0", &["vda"]), device("loop1", &["vda"]), device("vda", &[])];
        assert_eq!(names(&loops), ["loop0", "loop1"]);
    }

    #[test]
    fn an_array_with_a_member_that_does_not_count_has_none() {
        assert_eq!(names(&[device("md0", &["sda", "sdb"]), device("sda", &[])]), Vec::<&str>::new());
    }

    #[test]
    fn devices_that_hold_each_other_end() {
        assert_eq!(names(&[device("a", &["b"]), device("b", &["a"])]), Vec::<&str>::new());
    }
}
