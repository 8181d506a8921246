//! Settings of the machine that nobody asked to vary, held against those of the runs before.
//!
//! Runs are compared as if nothing differed between them but what the space varies. A record keeps the settings of the queues
//! below its target and the frequency governor; where one of them is not what it was in the first run that met it, the run
//! measures another machine, and is void (`W-SETTINGS-DRIFT`): its figures stay, and nothing is concluded from them. What was
//! measured before the change stays comparable, and what is measured after it is undone is so again.
//!
//! What is held against what follows from where a setting comes from:
//!
//! | setting | is compared among |
//! |---|---|
//! | of the first queue below the target, which a record does not name, and of an array's or a mapping's own | runs on one target with one layout: another layout is another device |
//! | of a drive that is named (`sda.scheduler`) | all runs whose layouts ask the same of queues, whatever is built on the drive |
//! | the governor | all runs |
//!
//! What is in one record only is no change, and of all that a record's layout says only [`QUEUE_SETTINGS`] are the machine's: how
//! a load is dealt out to drives, or what a layout is made of, belongs to the point. A scheduler brings a number of requests and a
//! throttle of its own along, and taking it away brings the kernel's, so that these two tell nothing where schedulers vary.

use std::collections::{BTreeMap, BTreeSet};

use measure::RunRecord;
use measure::record::QUEUE_SETTINGS;
use measure::warning::Severity;

use crate::model::{CONSTRUCTION, Point};
use crate::store::{Store, StoreError};

/// What a scheduler sets besides itself.
const OF_A_SCHEDULER: [&str; 2] = ["nr_requests", "wbt_lat_usec"];

/// Among which runs a setting is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// A target with a layout.
    Target(String, BTreeMap<String, String>),
    /// Runs that ask this of queues.
    Queues(BTreeMap<String, String>),
    Machine,
}

/// The settings that the first runs met.
#[derive(Debug, Default)]
pub(super) struct Surroundings(BTreeMap<(Scope, String), String>);

impl Surroundings {
    /// As the sessions before this one met them.
    pub(super) fn of(store: &Store) -> Result<Self, StoreError> {
        let points = store.points()?;
        let points: BTreeMap<u32, &Point> = points.iter().map(|point| (point.id, point)).collect();
        let (mut all, mut seen) = (Self::default(), BTreeSet::new());
        let mut runs = store.runs()?;
        runs.sort_by_key(|run| (run.started_unix_ns, run.position));
        for run in runs.iter().filter(|run| !run.is_void()) {
            let Some(point) = points.get(&run.point) else { continue };
            if seen.insert((&point.target, &point.layout)) {
                all.meet(point, &store.record(run.id)?);
            }
        }
        Ok(all)
    }

    /// What is not as it was, each in words; what is new is remembered, unless the record is void by itself.
    pub(super) fn meet(&mut self, point: &Point, record: &RunRecord) -> Vec<String> {
        let found = settings(point, record);
        let change = |(key, now): (&(Scope, String), &String)| {
            let then = self.0.get(key).filter(|then| *then != now)?;
            Some(format!("{}: {then} → {now}", key.1))
        };
        let changes: Vec<String> = found.iter().filter_map(change).collect();
        if changes.is_empty() && !is_void(record) {
            for (key, value) in found {
                self.0.entry(key).or_insert(value);
            }
        }
        changes
    }
}

fn is_void(record: &RunRecord) -> bool {
    record.warnings.iter().any(|warning| warning.code.explain().severity == Severity::Void)
}

/// The machine's settings in a record, each with its scope.
fn settings(point: &Point, record: &RunRecord) -> BTreeMap<(Scope, String), String> {
    let queues = point.layout.iter().filter(|(name, _)| !CONSTRUCTION.contains(&name.as_str()));
    let queues: BTreeMap<String, String> = queues.map(|(n, v)| (n.clone(), v.clone())).collect();
    let is_varied = |name: &str| {
        queues.contains_key(name) || (queues.contains_key("scheduler") && OF_A_SCHEDULER.contains(&name))
    };
    let mut found = BTreeMap::new();
    for (key, value) in &record.layout {
        let (device, name) = key.rsplit_once('.').map_or((None, key.as_str()), |(d, n)| (Some(d), n));
        if !QUEUE_SETTINGS.contains(&name) || is_varied(name) {
            continue;
        }
        // Arrays and mappings are numbered as they come.
        let is_drive = |device: &str| !device.starts_with("dm-") && !device.starts_with("md");
        let scope = if device.is_some_and(is_drive) {
            Scope::Queues(queues.clone())
        } else {
            Scope::Target(point.target.clone(), point.layout.clone())
        };
        found.insert((scope, key.clone()), value.clone());
    }
    if let Some(governor) = &record.host.governor {
        found.insert((Scope::Machine, "governor".to_owned()), governor.clone());
    }
    found
}

#[cfg(test)]
mod tests {
    use measure::Workload;

    use super::*;

    fn point(layout: &[(&str, &str)]) -> Point {
        let layout = layout.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let (target, workload) = ("layout".to_owned(), Workload::default());
        Point { id: 0, settings: BTreeMap::new(), test_type: None, target, workload, layout }
    }

    fn record(layout: &[(&str, &str)], governor: &str) -> RunRecord {
        let layout = layout.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let mut record = RunRecord { layout, ..RunRecord::default() };
        record.host.governor = Some(governor.to_owned());
        record
    }

    /// Settings by name.
    type Asked<'a> = &'a [(&'a str, &'a str)];

    /// What the last of some runs, each with what its layout asks and what was found, is said to differ in.
    fn last(runs: &[(Asked<'_>, Asked<'_>)]) -> Vec<String> {
        let mut all = Surroundings::default();
        let told = runs.iter().map(|(asked, found)| all.meet(&point(asked), &record(found, "performance")));
        told.last().unwrap_or_default()
    }

    #[test]
    fn a_setting_that_nobody_asked_to_vary_is_a_change() {
        let none: &[(&str, &str)] = &[];
        let found = last(&[(none, &[("read_ahead_kb", "128")]), (none, &[("read_ahead_kb", "4096")])]);
        assert_eq!(found, ["read_ahead_kb: 128 → 4096"]);
        let found = last(&[(none, &[("sda.iostats", "1")]), (none, &[("sda.iostats", "0")])]);
        assert_eq!(found, ["sda.iostats: 1 → 0"]);
        let mut all = Surroundings::default();
        assert_eq!(all.meet(&point(none), &record(&[], "performance")), [""; 0]);
        assert_eq!(all.meet(&point(none), &record(&[], "powersave")), ["governor: performance → powersave"]);
        assert_eq!(all.meet(&point(none), &record(&[], "performance")), [""; 0], "it was set back");
    }

    #[test]
    fn a_drive_is_the_same_whatever_is_built_on_it() {
        let (md, lvm) = ([("layout", "md-raid0"), ("chunk", "64k")], [("layout", "lvm-stripe")]);
        let found = last(&[(&md, &[("sda.wbt_lat_usec", "2000")]), (&lvm, &[("sda.wbt_lat_usec", "0")])]);
        assert_eq!(found, ["sda.wbt_lat_usec: 2000 → 0"]);
    }

    #[test]
    fn what_belongs_to_the_point_is_none() {
        let separate: &[(&str, &str)] = &[("layout", "separate")];
        let dealt = last(&[
            (
                separate,
                &[("separate.depth_per_drive", "1"), ("sda.scheduler", "none"), ("contents", "as found")],
            ),
            (separate, &[("separate.depth_per_drive", "16 or 17"), ("contents", "laid for this sweep")]),
        ]);
        assert_eq!(dealt, [""; 0]);
        let (narrow, wide) =
            ([("layout", "md-raid0"), ("chunk", "4k")], [("layout", "md-raid0"), ("chunk", "1m")]);
        let arrays = last(&[
            (
                &narrow,
                &[("read_ahead_kb", "128"), ("dm-0.read_ahead_kb", "128"), ("md127.max_sectors_kb", "4")],
            ),
            (
                &wide,
                &[
                    ("read_ahead_kb", "4096"),
                    ("dm-0.read_ahead_kb", "8192"),
                    ("md127.max_sectors_kb", "1024"),
                ],
            ),
        ]);
        assert_eq!(arrays, [""; 0]);
        let (single, xfs) = ([("layout", "single")], [("layout", "single"), ("filesystem", "xfs")]);
        assert_eq!(last(&[(&single, &[("rotational", "0")]), (&xfs, &[("rotational", "1")])]), [""; 0]);
    }

    #[test]
    fn what_the_space_varies_and_what_follows_from_it_is_none() {
        let (none, deadline) = ([("scheduler", "none")], [("scheduler", "mq-deadline")]);
        let of = |scheduler, requests, throttle| {
            [
                ("sda.scheduler", scheduler),
                ("sda.nr_requests", requests),
                ("scheduler", scheduler),
                ("nr_requests", requests),
                ("wbt_lat_usec", throttle),
            ]
        };
        let (first, second, again) =
            (of("none", "1023", "0"), of("mq-deadline", "256", "2000"), of("none", "1023", "2000"));
        assert_eq!(last(&[(&none, &first), (&deadline, &second), (&none, &again)]), [""; 0]);
        let (short, long) = ([("read_ahead_kb", "128")], [("read_ahead_kb", "4096")]);
        let runs: [(&[_], &[_]); 2] = [
            (&short, &[("sda.read_ahead_kb", "128"), ("read_ahead_kb", "128")]),
            (&long, &[("sda.read_ahead_kb", "4096"), ("read_ahead_kb", "4096")]),
        ];
        assert_eq!(last(&runs), [""; 0]);
    }
}
