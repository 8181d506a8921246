//! Temperatures of the drives: the `hwmon` sensors that the nvme and drivetemp drivers give them.
//!
//! Names and units are those of the kernel's hwmon interface (`Documentation/hwmon/sysfs-interface.rst`):
//! `tempN_input`, `tempN_max` and `tempN_crit` in thousandths of a degree Celsius, `tempN_alarm`. For
//! NVMe `temp1` is the composite temperature, its `max` the drive's own warning threshold (WCTEMP)
//! and its alarm the drive's critical warning; that is where a drive begins to slow itself down.
//!
//! Reading an NVMe sensor sends the drive an admin command, so it is done before and after a run, and within it once in
//! ten seconds. A drive without a sensor, as in most virtual machines, has no temperature here.

use std::path::{Path, PathBuf};

/// One sensor of one drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensor {
    /// Kernel name of the drive: `nvme0n1`.
    pub drive: String,
    /// The sensor's name: `Composite`, `temp1`.
    pub label: String,
    /// Where its files are, up to the `temp1` that their names begin with.
    prefix: PathBuf,
}

/// What a sensor said at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Temperature {
    /// Kernel name of the drive.
    pub drive: String,
    /// The sensor's name.
    pub label: String,
    /// Degrees Celsius.
    pub celsius: f64,
    /// Where the drive warns, degrees Celsius, where it says so.
    pub warning_celsius: Option<f64>,
    /// Whether the drive itself raises an alarm.
    pub alarm: bool,
}

impl Temperature {
    /// Whether the drive is in the range in which it slows itself down.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.alarm || self.warning_celsius.is_some_and(|limit| self.celsius >= limit)
    }
}

/// The sensors of a drive. `folders` are those of its device and controllers, nearest first; the
/// drivers put `hwmon*` right into one, or into its `hwmon` folder. The first that has any is the
/// drive's: what comes after belongs to an enclosure or the board.
#[must_use]
pub fn sensors(drive: &str, folders: impl IntoIterator<Item = PathBuf>) -> Vec<Sensor> {
    let of_folder = |folder: PathBuf| -> Vec<Sensor> {
        let places = [folder.join("hwmon"), folder];
        let chips = places.iter().flat_map(|place| super::entries(place, "hwmon"));
        chips.flat_map(|chip| sensors_of(drive, &chip)).collect()
    };
    folders.into_iter().map(of_folder).find(|found| !found.is_empty()).unwrap_or_default()
}

fn sensors_of(drive: &str, hwmon: &Path) -> Vec<Sensor> {
    let inputs = super::entries(hwmon, "temp").into_iter();
    inputs
        .filter_map(|input| {
            let name = input.file_name()?.to_str()?.strip_suffix("_input")?.to_owned();
            let label = super::read(&hwmon.join(format!("{name}_label"))).unwrap_or_else(|| name.clone());
            Some(Sensor { drive: drive.to_owned(), label, prefix: hwmon.join(name) })
        })
        .collect()
}

impl Sensor {
    /// Asks the sensor; none where it does not answer.
    #[must_use]
    pub fn read(&self) -> Option<Temperature> {
        let number = |suffix: &str| {
            let mut path = self.prefix.clone().into_os_string();
            path.push(suffix);
            super::read(Path::new(&path))?.parse::<i64>().ok()
        };
        let celsius = |milli: i64| milli as f64 / 1000.0;
        // A threshold of zero, or of the 255 °C and more that some drives report, is none.
        let plausible = |milli: &i64| (1..=150_000).contains(milli);
        let limit = number("_max").filter(plausible).or_else(|| number("_crit").filter(plausible));
        Some(Temperature {
            drive: self.drive.clone(),
            label: self.label.clone(),
            celsius: celsius(number("_input")?),
            warning_celsius: limit.map(celsius),
            alarm: number("_alarm").is_some_and(|alarm| alarm != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        }
        dir
    }

    #[test]
    fn an_nvme_controllers_composite_sensor_is_its_namespaces() {
        let dir = tree(&[
            ("hwmon3/temp1_input", "85850\n"),
            ("hwmon3/temp1_max", "84850\n"),
            ("hwmon3/temp1_label", "Composite\n"),
            ("hwmon3/temp1_alarm", "0\n"),
            ("hwmon3/name", "nvme\n"),
        ]);
        let sensors = sensors("nvme0n1", [dir.path().to_path_buf()]);
        assert_eq!(sensors.len(), 1);
        let temperature = sensors[0].read().expect("an answer");
        assert_eq!((temperature.label.as_str(), temperature.celsius), ("Composite", 85.85));
        assert!(temperature.is_hot());
    }

    #[test]
    fn a_sata_drives_sensor_stands_in_a_hwmon_folder() {
        let dir = tree(&[("hwmon/hwmon1/temp1_input", "31000\n"), ("hwmon/hwmon1/temp1_max", "60000\n")]);
        let temperature = sensors("sda", [dir.path().to_path_buf()])[0].read().expect("an answer");
        assert!(!temperature.is_hot());
        assert_eq!(temperature.label, "temp1");
    }

    #[test]
    fn an_implausible_threshold_is_none_and_an_alarm_needs_none() {
        let dir = tree(&[("hwmon0/temp1_input", "90000\n"), ("hwmon0/temp1_max", "65261850\n")]);
        let quiet = sensors("nvme0n1", [dir.path().to_path_buf()])[0].read().expect("an answer");
        assert_eq!((quiet.warning_celsius, quiet.is_hot()), (None, false));
        std::fs::write(dir.path().join("hwmon0/temp1_alarm"), "1\n").expect("a file");
        assert!(sensors("nvme0n1", [dir.path().to_path_buf()])[0].read().expect("an answer").is_hot());
    }

    #[test]
    fn a_drive_without_sensors_has_none() {
        let dir = tree(&[("uevent", "")]);
        assert_eq!(sensors("vda", [dir.path().to_path_buf()]), []);
    }
}
