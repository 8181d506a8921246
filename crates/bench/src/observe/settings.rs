//! The settings of the block queues below a target, read before and after a run.
//!
//! They go into [`measure::RunRecord::layout`], so that two records can be told apart by them, and a
//! difference between the two readings of one run voids it (`W-SETTINGS-DRIFT`). Only what somebody
//! can change while a run is under way is read here; what a device *is* stands in [`super::stack`].

use std::collections::BTreeMap;

pub use measure::record::QUEUE_SETTINGS;
use storage::sysfs::Sysfs;

/// Settings of each device's queue: device name, then setting, then value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, BTreeMap<String, String>>);

/// One setting that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Kernel name of the device.
    pub device: String,
    /// Name of the setting; `queue` where the device itself came or went.
    pub setting: String,
    /// Its value before, `absent` where there was none.
    pub before: String,
    /// Its value after, `absent` where there is none.
    pub after: String,
}

impl Settings {
    /// Reads the settings of the named devices. Those without a queue of their own (partitions, and
    /// devices that are gone) have no entry; a setting that the kernel does not have is left out.
    #[must_use]
    pub fn read<'a>(sysfs: &Sysfs, devices: impl IntoIterator<Item = &'a str>) -> Self {
        let read = |device: &str| {
            let queue = sysfs.at_root("/sys/block").join(device).join("queue");
            let settings: BTreeMap<String, String> = QUEUE_SETTINGS
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), value(name, &super::read(&queue.join(name))?))))
                .collect();
            (!settings.is_empty()).then(|| (device.to_owned(), settings))
        };
        Self(devices.into_iter().filter_map(read).collect())
    }

    /// Puts settings in by hand, as a test or a simulation does.
    pub fn set(&mut self, device: &str, setting: &str, value: &str) {
        self.0.entry(device.to_owned()).or_default().insert(setting.to_owned(), value.to_owned());
    }

    /// The value of one setting of one device.
    #[must_use]
    pub fn get(&self, device: &str, setting: &str) -> Option<&str> {
        self.0.get(device)?.get(setting).map(String::as_str)
    }

    /// What a record's `layout` says: plain names for the first of `stack` that has a queue, and
    /// `NAME.setting` for those below it.
    #[must_use]
    pub fn layout(&self, stack: &[String]) -> BTreeMap<String, String> {
        let mut layout = BTreeMap::new();
        let with_queue = stack.iter().filter_map(|device| Some((device, self.0.get(device)?)));
        for (place, (device, settings)) in with_queue.enumerate() {
            for (name, value) in settings {
                let key = if place == 0 { name.clone() } else { format!("{device}.{name}") };
                layout.insert(key, value.clone());
            }
        }
        layout
    }

    /// Every setting that differs in `after`, in the order of device and name.
    #[must_use]
    pub fn changes(&self, after: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let devices: std::collections::BTreeSet<&String> = self.0.keys().chain(after.0.keys()).collect();
        for device in devices {
            let change = |setting: &str, before: Option<&String>, after: Option<&String>| Change {
                device: device.clone(),
                setting: setting.to_owned(),
                before: before.cloned().unwrap_or_else(|| "absent".to_owned()),
                after: after.cloned().unwrap_or_else(|| "absent".to_owned()),
            };
            match (self.0.get(device), after.0.get(device)) {
                (Some(then), Some(now)) => {
                    let names: std::collections::BTreeSet<&String> = then.keys().chain(now.keys()).collect();
                    let differing = names.into_iter().filter(|name| then.get(*name) != now.get(*name));
                    changes.extend(differing.map(|name| change(name, then.get(name), now.get(name))));
                }
                (then, now) => {
                    let present = "present".to_owned();
                    changes.push(change("queue", then.map(|_| &present), now.map(|_| &present)));
                }
            }
        }
        changes
    }
}

/// The value to compare: of a choice such as `none [mq-deadline] kyber` only what is chosen, since
/// the list grows when a module is loaded.
fn value(name: &str, text: &str) -> String {
    let chosen = (name == "scheduler")
        .then(|| text.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen))
        .flatten();
    chosen.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Settings {
        let mut settings = Settings::default();
        settings.set("vda", "scheduler", "none");
        settings.set("vda", "read_ahead_kb", "128");
        settings
    }

    #[test]
    fn only_the_chosen_scheduler_counts() {
        assert_eq!(value("scheduler", "none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(value("scheduler", "none"), "none");
        assert_eq!(value("write_cache", "write back"), "write back");
    }

    #[test]
    fn equal_settings_have_no_change() {
        assert_eq!(some().changes(&some()), []);
    }

    #[test]
    fn a_change_names_device_setting_and_both_values() {
        let mut after = some();
        after.set("vda", "read_ahead_kb", "4096");
        let expected = Change {
            device: "vda".into(),
            setting: "read_ahead_kb".into(),
            before: "128".into(),
            after: "4096".into(),
        };
        assert_eq!(some().changes(&after), [expected]);
    }

    #[test]
    fn a_device_that_went_away_is_a_change() {
        let changes = some().changes(&Settings::default());
        assert_eq!((changes.len(), changes[0].after.as_str()), (1, "absent"));
    }

    #[test]
    fn a_fake_tree_is_read_and_missing_files_are_left_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let queue = dir.path().join("sys/block/nvme0n1/queue");
        std::fs::create_dir_all(&queue).expect("a queue");
        std::fs::write(queue.join("scheduler"), "[none] mq-deadline\n").expect("a setting");
        std::fs::write(queue.join("iostats"), "1\n").expect("a setting");
        let settings = Settings::read(&Sysfs::at(dir.path()), ["nvme0n1p1", "nvme0n1", "gone"]);
        let stack = ["nvme0n1p1".to_owned(), "nvme0n1".to_owned()];
        let expected = [("iostats", "1"), ("scheduler", "none")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(settings.layout(&stack), BTreeMap::from(expected));
    }

    #[test]
    fn layers_below_the_first_bear_their_device_in_the_name() {
        let mut settings = some();
        settings.set("md0", "scheduler", "none");
        let layout = settings.layout(&["md0".to_owned(), "vda".to_owned()]);
        assert_eq!(layout.get("scheduler").map(String::as_str), Some("none"));
        assert!(layout.contains_key("vda.read_ahead_kb"));
    }
}
