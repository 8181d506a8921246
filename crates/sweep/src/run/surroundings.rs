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
//! | of a drive that is named (`sda.scheduler`) | all runs whose layouts ask the same of queues, whatever is built on the drive, and whatever the kernel calls it: another boot may have given its name to another drive, so it is known by what its record says that lasts ([`lasting_names`](measure::record::TargetFacts::lasting_names)), and by its name only where it has nothing else |
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

/// A setting: among which runs it is compared, and of what it is; for the latter `SETTING` or `DRIVE.SETTING`.
type SettingKey = (Scope, String);

/// A setting of a record.
#[derive(Debug, PartialEq)]
struct Setting {
    /// As the record calls it.
    name: String,
    value: String,
}

/// The settings that the first runs met.
#[derive(Debug, Default)]
pub(super) struct Surroundings(BTreeMap<SettingKey, String>);

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
        let change = |(key, now): (&SettingKey, &Setting)| {
            let then = self.0.get(key).filter(|then| **then != now.value)?;
            Some(format!("{}: {then} → {}", now.name, now.value))
        };
        let changes: Vec<String> = found.iter().filter_map(change).collect();
        if changes.is_empty() && !is_void(record) {
            for (key, setting) in found {
                self.0.entry(key).or_insert(setting.value);
            }
        }
        changes
    }
}

fn is_void(record: &RunRecord) -> bool {
    record.warnings.iter().any(|warning| warning.code.explain().severity == Severity::Void)
}

/// The machine's settings in a record, each with its scope.
fn settings(point: &Point, record: &RunRecord) -> BTreeMap<SettingKey, Setting> {
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
        let lasting = device.and_then(|device| record.target.lasting_names.get(device));
        let of = lasting.map_or_else(|| key.clone(), |lasting| format!("{lasting}.{name}"));
        found.insert((scope, of), Setting { name: key.clone(), value: value.clone() });
    }
    if let Some(governor) = &record.host.governor {
        let name = "governor".to_owned();
        found.insert((Scope::Machine, name.clone()), Setting { name, value: governor.clone() });
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
    fn a_drive_is_the_same_whatever_a_boot_calls_it() {
        let named = |found: &[(&str, &str)], names: &[(&str, &str)]| {
            let mut record = record(found, "performance");
            record.target.lasting_names =
                names.iter().map(|(kernel, lasting)| ((*kernel).to_owned(), (*lasting).to_owned())).collect();
            record
        };
        let (fast, slow) = ("serial:FAST", "wwid:naa.5");
        let before =
            named(&[("sda.nr_requests", "1023"), ("sdb.nr_requests", "64")], &[("sda", fast), ("sdb", slow)]);
        let swapped =
            named(&[("sda.nr_requests", "64"), ("sdb.nr_requests", "1023")], &[("sda", slow), ("sdb", fast)]);
        let mut all = Surroundings::default();
        assert_eq!(all.meet(&point(&[]), &before), [""; 0]);
        assert_eq!(all.meet(&point(&[]), &swapped), [""; 0], "another boot has exchanged the names");
        let changed = named(&[("sdc.nr_requests", "32")], &[("sdc", slow)]);
        assert_eq!(
            all.meet(&point(&[]), &changed),
            ["sdc.nr_requests: 64 → 32"],
            "by the name that it has now"
        );
        // Without a lasting name, as in records of earlier versions, the kernel's is all there is.
        let mut all = Surroundings::default();
        assert_eq!(all.meet(&point(&[]), &named(&[("sda.nr_requests", "1023")], &[])), [""; 0]);
        let found = all.meet(&point(&[]), &named(&[("sda.nr_requests", "64")], &[]));
        assert_eq!(found, ["sda.nr_requests: 1023 → 64"]);
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
