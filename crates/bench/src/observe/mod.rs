//! Everything of a run that is seen from outside the hot loop.
//!
//! A run's own counts say what was asked for and when it came back. Whether that is a figure of the
//! drive shows only from beside it: what the block devices really did, what the CPUs were busy with,
//! what else went on. Two kinds of observation, because looking must not disturb what is looked at:
//!
//! 1. **Counters** ([`diskstats`], [`cpu`]) are read at the two ends of the measured interval, with
//!    the jobs running: a few reads of proc and sysfs, whose cost stands in
//!    [`Observed::snapshot_ns`]. The clock and the disk counters come last at the beginning and first
//!    at the end, so that they enclose the same time.
//! 2. **Surroundings** ([`settings`], [`activity`], [`heat`]) change slowly and cost more (a walk over
//!    all processes, an admin command to a drive). They are read before the jobs start and after they
//!    have ended.
//!
//! What heats up, and arrays that are resynced meanwhile, change within a run, so while it goes on [`Observation::watch`] looks at
//! what costs next to nothing: `/proc/mdstat` once a second, the sensors once in ten seconds. A sensor is read by a command to the
//! drive, and a drive that hangs does not answer it, so a thread of its own reads the sensors: the caller of `watch` never
//! waits for a drive.
//!
//! The order is held by types: [`Observer::prepare`] → [`Prepared::begin`] → [`Observation::end`] →
//! [`Ended::conclude`] → [`Observed`]. What of it lies is decided in [`crate::lies`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use measure::record::{Bounds, CpuCounts, DriveCounts, HostFacts, Throttle};
use storage::device::Device;
use storage::survey::Host;
use storage::sysfs::Sysfs;

pub mod activity;
pub mod cpu;
pub mod diskstats;
pub mod ext4;
pub mod heat;
pub mod host;
pub mod idle;
pub mod links;
pub mod settings;
pub mod stack;
pub mod subject;
pub mod throttle;

pub use settings::Settings;
pub use stack::{Layer, Stack};
pub use subject::Subject;

/// A small file's text without surrounding white space; none where there is nothing to read.
fn read(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Entries of a folder whose names begin with `prefix`, sorted.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = listing
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

/// What was seen beside one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// From the first reading of the disk counters to the second, nanoseconds. Longer than the
    /// record's interval by the time it took to get there.
    pub window_ns: u64,
    /// What each block device below the target did, nearest first.
    pub drives: Vec<DriveCounts>,
    /// Devices that vanished or were replaced in between, and so have no counts.
    pub lost: Vec<String>,
    /// Devices for which the kernel never counts, and so have none either.
    pub silent: Vec<String>,
    /// What each CPU did.
    pub cpus: Vec<CpuCounts>,
    /// Interrupts of the drives' own controllers by CPU.
    pub drive_interrupts: BTreeMap<u32, u64>,
    /// Queue settings before the run.
    pub settings_before: Settings,
    /// Queue settings after the run.
    pub settings_after: Settings,
    /// Background work on the drives that was seen before, within or after the run.
    pub background_work: BTreeSet<String>,
    /// Temperatures before the run.
    pub heat_before: Vec<heat::Temperature>,
    /// Temperatures within the run, all readings.
    pub heat_during: Vec<heat::Temperature>,
    /// Temperatures after the run.
    pub heat_after: Vec<heat::Temperature>,
    /// The idle states that a CPU may enter; empty where the kernel names none.
    pub idle_states: Vec<idle::IdleState>,
    /// What bounds the devices from outside.
    pub bounds: Bounds,
    /// Requests a second that one thread makes of the run's shape where a device answers at once; None where the run was
    /// far from it, or it was not looked for.
    pub generator_iops: Option<f64>,
    /// What the two readings of counters cost together, nanoseconds of this thread's time.
    pub snapshot_ns: u64,
}

impl Observed {
    /// The counts of `device`, where the kernel kept any: the device was there throughout, and its
    /// `queue/iostats` was on. A partition has no queue of its own, so its disk's counts decide.
    #[must_use]
    pub fn counted(&self, device: &Layer) -> Option<&DriveCounts> {
        let with_queue = device.device.disk.as_deref().unwrap_or(device.name());
        let on = |settings: &Settings| settings.get(with_queue, "iostats").is_none_or(|value| value != "0");
        if !on(&self.settings_before) || !on(&self.settings_after) {
            return None;
        }
        self.drives.iter().find(|drive| drive.name == device.name())
    }
}

/// Looks at one target's surroundings, run after run.
#[derive(Debug, Clone)]
pub struct Observer {
    sysfs: Sysfs,
    subject: Subject,
    host: HostFacts,
    idle_states: Vec<idle::IdleState>,
}

impl Observer {
    /// An observer of what lies below `subject`.
    #[must_use]
    pub fn new(sysfs: Sysfs, subject: Subject) -> Self {
        let host = host::host_facts(&Host::read(&sysfs));
        let idle_states = idle::allowed(&sysfs);
        Self { sysfs, subject, host, idle_states }
    }

    /// An observer of an open device of this machine.
    ///
    /// # Errors
    /// The kernel's, where it does not say what the device's descriptor is.
    pub fn of(device: &dyn Device) -> io::Result<Self> {
        let sysfs = Sysfs::host();
        let subject = Subject::of(&sysfs, device)?;
        Ok(Self::new(sysfs, subject))
    }

    /// The machine, with the governor that is in force now: it is a setting, and a target is open for many runs.
    #[must_use]
    pub fn host(&self) -> HostFacts {
        let governor = host::governor(&storage::survey::governors(&self.sysfs));
        HostFacts { governor, ..self.host.clone() }
    }

    /// What it observes.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Looks at the surroundings; call it before the jobs start.
    #[must_use]
    pub fn prepare(&self) -> Prepared<'_> {
        Prepared { observer: self, before: self.surroundings() }
    }

    fn surroundings(&self) -> Surroundings {
        let names = self.subject.stack.layers.iter().map(Layer::name);
        Surroundings {
            settings: Settings::read(&self.sysfs, names),
            work: activity::look(&self.sysfs, &self.subject.ours),
            lazy_init: activity::LazyInit::look(&self.sysfs, &self.subject.ours),
            heat: self.subject.sensors.iter().filter_map(heat::Sensor::read).collect(),
            throttles: match self.subject.stack.is_bypassed {
                true => Vec::new(),
                false => throttle::read(&self.sysfs, &self.subject.stack.layers),
            },
        }
    }

    fn disks(&self) -> Vec<Reading> {
        let class = self.sysfs.at_root("/sys/class/block");
        let layers = self.subject.stack.layers.iter();
        layers
            .map(|layer| diskstats::DiskStats::parse(&read(&class.join(layer.name()).join("stat"))?))
            .collect()
    }

    fn processors(&self) -> Processors {
        let text = |name: &str| self.sysfs.text(name).unwrap_or_default();
        Processors {
            interrupts: cpu::Interrupts::parse(&text("/proc/interrupts")),
            softirqs: cpu::block_softirqs(&text("/proc/softirqs")),
            ticks: cpu::CpuTicks::parse(&text("/proc/stat")),
        }
    }
}

#[derive(Debug)]
struct Surroundings {
    settings: Settings,
    work: BTreeSet<String>,
    lazy_init: Option<activity::LazyInit>,
    heat: Vec<heat::Temperature>,
    throttles: Vec<Throttle>,
}

#[derive(Debug)]
struct Processors {
    interrupts: cpu::Interrupts,
    softirqs: BTreeMap<u32, u64>,
    ticks: cpu::CpuTicks,
}

/// Surroundings seen; the jobs may start.
#[derive(Debug)]
pub struct Prepared<'a> {
    observer: &'a Observer,
    before: Surroundings,
}

impl<'a> Prepared<'a> {
    /// What the kernel has initialised on the drives since the surroundings were seen.
    fn initialised(&self) -> Option<String> {
        self.before.lazy_init.as_ref()?.worked(&self.observer.sysfs, &self.observer.subject.ours)
    }

    /// Reads the counters; call it when the measured interval begins.
    #[must_use]
    pub fn begin(self) -> Observation<'a> {
        let entered = Instant::now();
        let processors = self.observer.processors();
        let disks = self.observer.disks();
        let begun = Instant::now();
        Observation {
            prepared: self,
            processors,
            disks,
            begun,
            cost_ns: nanoseconds(entered, begun),
            work: BTreeSet::new(),
            heat: Vec::new(),
            reading: None,
            next_work: begun + WORK_EVERY,
            next_heat: begun + HEAT_EVERY,
        }
    }
}

/// Counters read once; the interval is running.
#[derive(Debug)]
pub struct Observation<'a> {
    prepared: Prepared<'a>,
    processors: Processors,
    disks: Vec<Reading>,
    begun: Instant,
    cost_ns: u64,
    /// What was seen by [`Observation::watch`].
    work: BTreeSet<String>,
    heat: Vec<heat::Temperature>,
    /// The thread that reads the sensors, while it does.
    reading: Option<JoinHandle<Vec<heat::Temperature>>>,
    next_work: Instant,
    next_heat: Instant,
}

/// How often arrays and file systems are asked for work of their own within a run.
const WORK_EVERY: Duration = Duration::from_secs(1);
/// How often sensors are read within a run: each reading is a command to the drive.
const HEAT_EVERY: Duration = Duration::from_secs(10);

impl<'a> Observation<'a> {
    /// Looks at what may change within the run, if it is time to; call it often.
    pub fn watch(&mut self, now: Instant) {
        let observer = self.prepared.observer;
        if now >= self.next_work {
            self.next_work = now + WORK_EVERY;
            self.work.extend(activity::by_kernel(&observer.sysfs, &observer.subject.ours));
            self.work.extend(self.prepared.initialised());
        }
        self.collect_heat();
        if now >= self.next_heat && self.reading.is_none() && !observer.subject.sensors.is_empty() {
            self.next_heat = now + HEAT_EVERY;
            let sensors = observer.subject.sensors.clone();
            let read = move || sensors.iter().filter_map(heat::Sensor::read).collect();
            // Without a thread to be had this reading is left out.
            self.reading = std::thread::Builder::new().name("sensors".into()).spawn(read).ok();
        }
    }

    /// Takes what the sensors said, if they have answered.
    fn collect_heat(&mut self) {
        if let Some(reading) = self.reading.take_if(|reading| reading.is_finished()) {
            self.heat.extend(reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    }

    /// Reads the counters again; call it when the measured interval ends.
    #[must_use]
    pub fn end(self) -> Ended<'a> {
        let ended = Instant::now();
        let disks = self.prepared.observer.disks();
        let processors = self.prepared.observer.processors();
        let cost_ns = self.cost_ns + nanoseconds(ended, Instant::now());
        let window_ns = nanoseconds(self.begun, ended);
        Ended { observation: self, processors, disks, window_ns, cost_ns }
    }
}

/// Counters read twice; the jobs may still be ending.
#[derive(Debug)]
pub struct Ended<'a> {
    observation: Observation<'a>,
    processors: Processors,
    disks: Vec<Reading>,
    window_ns: u64,
    cost_ns: u64,
}

impl Ended<'_> {
    /// Looks at the surroundings again and says what was seen; call it after the jobs have ended.
    #[must_use]
    pub fn conclude(mut self) -> Observed {
        self.observation.collect_heat();
        let initialised = self.observation.prepared.initialised();
        let Prepared { observer, before } = self.observation.prepared;
        let (mut work, heat_during) = (self.observation.work, self.observation.heat);
        let after = Prepared { observer, before: observer.surroundings() };
        work.extend(initialised.or_else(|| after.initialised()));
        let after = after.before;
        let interrupts =
            |only| self.processors.interrupts.since(&self.observation.processors.interrupts, only);
        let layers = &observer.subject.stack.layers;
        let ours: BTreeSet<u32> = layers.iter().flat_map(|layer| layer.interrupts.iter().copied()).collect();
        let drive_interrupts = interrupts(Some(&ours));
        let taken = cpu::Taken {
            interrupts: interrupts(None),
            softirqs: cpu::softirqs_since(&self.observation.processors.softirqs, &self.processors.softirqs),
            of_drives: drive_interrupts.clone(),
        };
        let mut observed = Observed {
            window_ns: self.window_ns,
            cpus: cpu::counts(&self.observation.processors.ticks, &self.processors.ticks, &taken),
            drive_interrupts,
            bounds: Bounds { throttles: before.throttles, links: observer.subject.links.clone() },
            settings_before: before.settings,
            settings_after: after.settings,
            background_work: before.work.into_iter().chain(work).chain(after.work).collect(),
            idle_states: observer.idle_states.clone(),
            heat_before: before.heat,
            heat_during,
            heat_after: after.heat,
            snapshot_ns: self.cost_ns,
            ..Observed::default()
        };
        if !observer.subject.stack.is_bypassed {
            observed.count_drives(layers, &self.observation.disks, &self.disks);
        }
        observed
    }
}

/// The counters of one device at one moment; none where they could not be read.
type Reading = Option<diskstats::DiskStats>;

impl Observed {
    /// Puts in the counts of each device that was there at both ends and counts at all, and the names
    /// of the others.
    fn count_drives(&mut self, layers: &[Layer], before: &[Reading], after: &[Reading]) {
        for ((layer, then), now) in layers.iter().zip(before).zip(after) {
            let name = layer.name();
            let counts = then.as_ref().zip(now.as_ref()).and_then(|(then, now)| now.since(then, name));
            match counts {
                Some(_) if now.is_some_and(|now| now.is_silent()) => self.silent.push(name.to_owned()),
                Some(counts) => self.drives.push(DriveCounts { below: layer.below.clone(), ..counts }),
                None => self.lost.push(name.to_owned()),
            }
        }
    }
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    const BEFORE: &str = "10 0 80 1 0 0 0 0 0 1 1";
    const AFTER: &str = "20 5 160 2 3 0 24 0 0 9 9";
    const SILENT: &str = "0 0 0 0 0 0 0 0 0 0 0";

    /// A tree with these devices' counters, and an observer of a target on all of them.
    fn watched(devices: &[(&str, &str)]) -> (tempfile::TempDir, Observer) {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, stat) in devices {
            put(dir.path(), &format!("sys/class/block/{name}/stat"), stat);
            put(dir.path(), &format!("sys/block/{name}/queue/iostats"), "1");
        }
        put(dir.path(), "proc/stat", "cpu0 100 0 0 100 0 0 0 0\n");
        put(dir.path(), "proc/interrupts", "  CPU0\n 35: 7 x nvme0q1\n 36: 1 x other\n");
        let layer = |name: &str| Layer {
            device: storage::sysfs::BlockDevice { name: name.into(), ..Default::default() },
            interrupts: BTreeSet::from([35]),
            ..Layer::default()
        };
        let layers = devices.iter().map(|(name, _)| layer(name)).collect();
        let stack = Stack { layers, ..Stack::default() };
        let subject = Subject { stack, ..Subject::default() };
        let observer = Observer::new(Sysfs::at(dir.path()), subject);
        (dir, observer)
    }

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn what_happened_in_between_is_seen_once_and_nothing_else() {
        let (dir, observer) = watched(&[("sda", BEFORE)]);
        let observation = observer.prepare().begin();
        put(dir.path(), "sys/class/block/sda/stat", AFTER);
        put(dir.path(), "proc/stat", "cpu0 150 0 0 140 0 0 0 10\n");
        put(dir.path(), "proc/interrupts", "  CPU0\n 35: 9 x nvme0q1\n 36: 4 x other\n");
        let ended = observation.end();
        put(dir.path(), "sys/class/block/sda/stat", "999 0 999 0 0 0 0 0 0 0 0");
        put(dir.path(), "sys/block/sda/queue/iostats", "0");
        let observed = ended.conclude();
        let drive = &observed.drives[0];
        assert_eq!((drive.read_ios, drive.read_merges, drive.read_bytes), (10, 5, 80 * 512));
        assert_eq!((drive.write_ios, drive.write_bytes, drive.busy_ms), (3, 24 * 512, 8));
        let cpu = &observed.cpus[0];
        assert_eq!((cpu.user_ms, cpu.idle_ms, cpu.steal_ms, cpu.interrupts), (500, 400, 100, 5));
        assert_eq!(observed.drive_interrupts, BTreeMap::from([(0, 2)]));
        assert_eq!(observed.settings_before.changes(&observed.settings_after).len(), 1);
        assert!(observed.window_ns > 0 && observed.snapshot_ns > 0);
    }

    #[test]
    fn what_the_block_layer_counts_and_throttles_is_not_taken_for_requests_that_pass_by_it() {
        let (dir, mut observer) = watched(&[("sda", BEFORE)]);
        observer.subject.stack.is_bypassed = true;
        let observation = observer.prepare().begin();
        put(dir.path(), "sys/class/block/sda/stat", AFTER);
        put(dir.path(), "proc/interrupts", "  CPU0\n 35: 9 x nvme0q1\n 36: 4 x other\n");
        let observed = observation.end().conclude();
        assert!(observed.counted(&observer.subject().stack.layers[0]).is_none());
        assert!(observed.drives.is_empty() && observed.lost.is_empty() && observed.silent.is_empty());
        assert_eq!(observed.drive_interrupts, BTreeMap::from([(0, 2)]), "the drive's own are its");
    }

    #[test]
    fn a_resync_and_a_heat_wave_that_come_and_go_within_the_run_are_seen() {
        let (dir, mut observer) = watched(&[("sda", BEFORE)]);
        let heat = |celsius: &str| put(dir.path(), "device/hwmon0/temp1_input", celsius);
        heat("41000");
        put(dir.path(), "device/hwmon0/temp1_max", "70000");
        observer.subject.sensors = heat::sensors("sda", [dir.path().join("device")]);
        observer.subject.ours.devices.insert("sda".into());
        let mut observation = observer.prepare().begin();
        let begun = observation.begun;
        put(dir.path(), "proc/mdstat", "md0 : active raid1 sdb[1] sda[0]\n  [=>..]  resync =  5.0% (1/2)\n");
        heat("75000");
        observation.watch(begun + Duration::from_millis(500));
        assert!(observation.work.is_empty() && observation.heat.is_empty(), "not yet");
        observation.watch(begun + Duration::from_secs(1));
        assert!(observation.heat.is_empty(), "a sensor is not read each second");
        observation.watch(begun + Duration::from_secs(10));
        while observation.heat.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            observation.watch(begun + Duration::from_secs(10));
        }
        put(dir.path(), "proc/mdstat", "md0 : active raid1 sdb[1] sda[0]\n");
        heat("41000");
        let observed = observation.end().conclude();
        assert_eq!(observed.background_work.iter().collect::<Vec<_>>(), ["md resync of md0 (5.0% done)"]);
        assert!(observed.heat_during.iter().any(heat::Temperature::is_hot));
        assert!(!observed.heat_before.iter().chain(&observed.heat_after).any(heat::Temperature::is_hot));
    }

    #[test]
    fn a_sensor_of_a_drive_that_hangs_is_not_waited_for() {
        let (dir, mut observer) = watched(&[("sda", BEFORE)]);
        let input = dir.path().join("device/hwmon0/temp1_input");
        put(dir.path(), "device/hwmon0/temp1_input", "41000");
        observer.subject.sensors = heat::sensors("sda", [dir.path().join("device")]);
        let mut observation = observer.prepare().begin();
        let begun = observation.begun;
        // A FIFO is read until it has no writer.
        fs::remove_file(&input).expect("it was there");
        assert!(
            std::process::Command::new("mkfifo").arg(&input).status().expect("there is mkfifo").success()
        );
        let writer = fs::OpenOptions::new().read(true).write(true).open(&input).expect("opens");
        observation.watch(begun + Duration::from_secs(10));
        observation.watch(begun + Duration::from_secs(20));
        assert!(observation.reading.is_some() && observation.heat.is_empty(), "it waits beside");
        put(dir.path(), "other", "42000");
        fs::rename(dir.path().join("other"), &input).expect("renames");
        drop(writer);
        while observation.reading.is_some() {
            std::thread::sleep(Duration::from_millis(1));
            observation.watch(begun + Duration::from_secs(19));
        }
        assert_eq!(observation.end().conclude().heat_after.len(), 1);
    }

    #[test]
    fn devices_that_vanish_are_replaced_or_never_count_have_no_counts() {
        let (dir, observer) = watched(&[("sda", BEFORE), ("sdb", AFTER), ("sdc", SILENT), ("sdd", BEFORE)]);
        let observation = observer.prepare().begin();
        fs::remove_file(dir.path().join("sys/class/block/sda/stat")).expect("it was there");
        put(dir.path(), "sys/class/block/sdb/stat", BEFORE);
        let observed = observation.end().conclude();
        assert_eq!(observed.lost, ["sda", "sdb"]);
        assert_eq!(observed.silent, ["sdc"]);
        assert_eq!(observed.drives.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["sdd"]);
    }

    #[test]
    fn a_device_counts_only_while_its_disks_iostats_are_on() {
        let (_dir, observer) = watched(&[("sda", BEFORE)]);
        let mut observed = observer.prepare().begin().end().conclude();
        let mut layer = observer.subject().stack.layers[0].clone();
        assert!(observed.counted(&layer).is_some());
        observed.settings_after.set("sda", "iostats", "0");
        assert!(observed.counted(&layer).is_none());
        observed.settings_after.set("sda", "iostats", "1");
        layer.device.disk = Some("sdz".into());
        observed.settings_before.set("sdz", "iostats", "0");
        assert!(observed.counted(&layer).is_none(), "a partition has its disk's queue");
    }

    #[test]
    fn a_machine_without_any_of_these_files_is_observed_without_a_fault() {
        let dir = tempfile::tempdir().expect("a directory");
        let observer = Observer::new(Sysfs::at(dir.path()), Subject::default());
        let observed = observer.prepare().begin().end().conclude();
        assert_eq!((observed.drives.len(), observed.cpus.len(), observed.background_work.len()), (0, 0, 0));
    }
}
