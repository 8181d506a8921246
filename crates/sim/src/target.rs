//! A simulated machine as a [`Target`]: workloads in, records out.
//!
//! A record has what a real one has: counts and latencies of the interval, the devices' and CPUs' counters, and the verdict
//! on what limited the run, by the code that judges real records. Nothing of the host that simulates is in it, and time is virtual: the same
//! machine, layout and workload give the same bytes. What the model does not have, such as a page cache or data to verify, is
//! refused ([`check_modelled`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::dealing;
use measure::limit::{self, Context};
use measure::record::{
    CpuCounts, DirectionCounts, DriveCounts, EngineFacts, HostFacts, JobCounts, Link, RunRecord, SCHEMA,
    TargetFacts, TotalCounts,
};
use measure::workload::InvalidWorkload;
use measure::{Target, TargetError, Workload};

use crate::device::{DeviceCounts, Time};
use crate::error::InvalidMachine;
use crate::load::Stream;
use crate::machine::{Machine, Submission};
use crate::meter::{Direction, Meter, Stop};
use crate::modelled::check_modelled;
use crate::node::{self, Counters, Layout, Node};

/// When virtual time begins: 2026-01-01 00:00 UTC, nanoseconds since 1970.
pub const EPOCH_UNIX_NS: u64 = 1_767_225_600_000_000_000;

/// A machine with a layout.
#[derive(Debug)]
pub struct SimTarget {
    machine: Arc<Machine>,
    layout: Layout,
    stop: Stop,
    facts: TargetFacts,
    /// Virtual time, nanoseconds since 1970.
    now: u64,
    device_counts: DeviceCounts,
    interrupt: Arc<AtomicBool>,
}

/// What came of a run.
#[derive(Debug)]
pub struct SimRun {
    /// What was seen until its end.
    pub record: RunRecord,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

impl SimTarget {
    /// The target.
    ///
    /// # Errors
    /// [`InvalidMachine`] naming the setting of the layout that the machine cannot have.
    pub fn new(machine: Arc<Machine>, layout: Layout, stop: Stop) -> Result<Self, InvalidMachine> {
        layout.check(&machine)?;
        let facts = facts(&machine, &layout);
        let (device_counts, interrupt) = (DeviceCounts::default(), Arc::default());
        Ok(Self { machine, layout, stop, facts, now: EPOCH_UNIX_NS, device_counts, interrupt })
    }

    /// Ends a run in progress once `flag` is set.
    #[must_use]
    pub fn interrupted_by(self, flag: Arc<AtomicBool>) -> Self {
        Self { interrupt: flag, ..self }
    }

    /// What all drives did in the last run, its first requests included.
    #[must_use]
    pub fn device_counts(&self) -> DeviceCounts {
        self.device_counts
    }

    /// Checks what the workload asks for; its streams.
    fn prepare(&self, workload: &Workload) -> Result<Vec<Stream>, InvalidWorkload> {
        workload.validate()?;
        check_modelled(workload)?;
        let end = node::target_bytes(&self.machine, &self.layout);
        let block = u64::from(self.facts.logical_block_bytes);
        if !workload.min_bs().is_multiple_of(block) {
            let value = units::bytes_short(workload.min_bs());
            let reason = "is not a multiple of the drive's block";
            return Err(InvalidWorkload { option: "bs", value, reason, hint: "--bs=4k fits every drive" });
        }
        let targets = if self.layout.is_separate() { self.layout.devices.len() as u32 } else { 1 };
        let cores = self.machine.host.cores;
        let first_cpu = u32::from(self.machine.host.interrupts.delivery == crate::machine::Delivery::OneCpu);
        let mut streams = Vec::new();
        for target in 0..targets {
            let part =
                if targets == 1 { workload.clone() } else { dealing::part_of(workload, targets, target)? };
            let regions = dealing::regions(&part, end).map_err(|_| too_small(&part, end))?;
            for region in regions {
                let number = target * workload.numjobs + region.job;
                let cpu = first_cpu + number % (cores - first_cpu);
                streams.push(Stream::new(&part, number, target, cpu, region));
            }
        }
        Ok(streams)
    }

    fn record(&self, workload: &Workload, node: &mut Node, meter: &mut Meter) -> RunRecord {
        let interval = meter.interval_ns();
        let at_end = node.counters(meter.end);
        let at_begin = node.at_begin.take();
        let [read, write, trim] = std::mem::take(&mut meter.directions).map(direction_counts);
        let mut record = RunRecord {
            schema: SCHEMA.to_owned(),
            workload: workload.clone(),
            target: self.facts.clone(),
            layout: self.layout_words(),
            pass: 1,
            host: host_facts(&self.machine),
            engine: engine_facts(&self.machine, workload),
            started_unix_ns: self.now,
            interval_ns: interval,
            ramp_ns: meter.begin,
            read,
            write,
            trim,
            samples: meter.batches.clone(),
            total: TotalCounts {
                read_bytes: meter.total_bytes[0],
                write_bytes: meter.total_bytes[1],
                trim_bytes: meter.total_bytes[2],
                ios: meter.total_ios,
                elapsed_ns: meter.end,
            },
            observed_ns: interval,
            ..RunRecord::default()
        };
        self.count(
            &mut record,
            // A run that ended before its interval began counts nothing.
            &at_begin.unwrap_or_else(|| if meter.begin == 0 { zeros(&at_end) } else { at_end.clone() }),
            &at_end,
            meter,
            node.jobs_have_cpus(),
        );
        record.bounds.links = self.links(&record);
        record.verdict = Some(limit::judge(&record, &Context::default()));
        record
    }

    /// The machine's counters in the interval.
    fn count(
        &self,
        record: &mut RunRecord,
        from: &Counters,
        to: &Counters,
        meter: &Meter,
        jobs_have_cpus: bool,
    ) {
        let interval = record.interval_ns;
        record.drives = self.drive_counts(from, to);
        let ms = |ns: u64| (ns + 500_000) / 1_000_000;
        for cpu in 0..to.system_ns.len() {
            let busy = to.busy_ns[cpu] - from.busy_ns[cpu];
            assert!(busy <= interval, "CPU {cpu} worked {busy} ns in {interval} ns");
            let given = |of: fn(&Counters) -> &[u64]| of(to)[cpu] - of(from)[cpu];
            let (system, irq) = (given(|all| &all.system_ns), given(|all| &all.interrupt_ns));
            // The time worked, in the proportion of the work that was given in the interval.
            let irq = (u128::from(busy) * u128::from(irq) / u128::from((system + irq).max(1))) as u64;
            let system = busy - irq;
            let interrupts = to.interrupts[cpu] - from.interrupts[cpu];
            record.process.system_ns += system;
            record.cpus.push(CpuCounts {
                cpu: cpu as u32,
                system_ms: ms(system),
                irq_ms: ms(irq),
                idle_ms: ms(interval).saturating_sub(ms(system) + ms(irq)),
                interrupts,
                drive_interrupts: interrupts,
                ..CpuCounts::default()
            });
        }
        let first_cpu = u32::from(self.machine.host.interrupts.delivery == crate::machine::Delivery::OneCpu);
        for (stream, (ios, bytes)) in meter.streams.iter().enumerate() {
            let cpu = first_cpu + stream as u32 % (self.machine.host.cores - first_cpu);
            record.jobs.push(JobCounts {
                bytes: *bytes,
                ios: *ios,
                interval_ns: interval,
                system_ns: if jobs_have_cpus { to.streams_ns[stream] - from.streams_ns[stream] } else { 0 },
                cpu: jobs_have_cpus.then_some(cpu),
                ..JobCounts::default()
            });
        }
    }

    fn drive_counts(&self, from: &Counters, to: &Counters) -> Vec<DriveCounts> {
        let names = &self.facts.block_devices;
        let has_array = names.len() > to.members.len();
        let ms = |ns: u128| ((ns + 500_000) / 1_000_000) as u64;
        let mut drives: Vec<DriveCounts> = (from.members.iter().zip(&to.members))
            .zip(&names[usize::from(has_array)..])
            .map(|((from, to), name)| DriveCounts {
                name: name.clone(),
                read_ios: to.ios[0] - from.ios[0],
                read_merges: to.merges[0] - from.merges[0],
                read_bytes: to.bytes[0] - from.bytes[0],
                write_ios: to.ios[1] - from.ios[1],
                write_merges: to.merges[1] - from.merges[1],
                write_bytes: to.bytes[1] - from.bytes[1],
                discard_ios: to.ios[2] - from.ios[2],
                busy_ms: ms(u128::from(to.busy_ns - from.busy_ns)),
                in_flight_ms: ms(to.in_flight_ns - from.in_flight_ns),
                ..DriveCounts::default()
            })
            .collect();
        for (n, drive) in drives.iter_mut().enumerate().filter(|(_, drive)| drive.write_bytes > 0) {
            let media = to.media_write_bytes[n] - from.media_write_bytes[n];
            drive.media_write_bytes = self.is_flash(self.layout.devices[n]).then_some(media);
        }
        if has_array {
            // md passes requests on and counts no times.
            let below = drives.iter().map(|drive| drive.name.clone()).collect();
            let sum = |of: fn(&DriveCounts) -> u64| drives.iter().map(of).sum();
            let array = DriveCounts {
                name: names[0].clone(),
                read_ios: sum(|d| d.read_ios + d.read_merges),
                read_bytes: sum(|d| d.read_bytes),
                write_ios: sum(|d| d.write_ios + d.write_merges),
                write_bytes: sum(|d| d.write_bytes),
                below,
                ..DriveCounts::default()
            };
            drives.insert(0, array);
        }
        drives
    }

    /// Whether all drives of a device of the host are flash.
    fn is_flash(&self, device: u32) -> bool {
        let each = self.machine.drives / self.machine.host_devices();
        (device * each..(device + 1) * each).all(|drive| self.machine.drive_spec(drive).is_flash())
    }

    /// The links and buses that the model has.
    fn links(&self, record: &RunRecord) -> Vec<Link> {
        let members: Vec<&DriveCounts> =
            record.drives.iter().filter(|drive| drive.below.is_empty()).collect();
        let mut links: Vec<Link> = Vec::new();
        let controller = self.machine.controller.as_ref();
        let is_raid = self.machine.host_devices() != self.machine.drives;
        let per_controller = if is_raid { 1 } else { controller.map_or(1, |c| c.drives()) };
        for (device, member) in self.layout.devices.iter().zip(&members) {
            if let Some(bytes_per_s) =
                self.machine.drive_spec(*device).link_bytes_per_s().filter(|_| !is_raid)
            {
                let devices = vec![member.name.clone()];
                let address = format!("port{device}");
                links.push(Link { address, kind: "drive link".into(), bytes_per_s, devices });
            }
            let Some(controller) = controller else { continue };
            let address = format!("controller{}", device / per_controller);
            match links.iter_mut().find(|link| link.address == address) {
                Some(link) => link.devices.push(member.name.clone()),
                None => links.push(Link {
                    address,
                    kind: "controller bus".into(),
                    bytes_per_s: controller.bus_bytes_per_s(),
                    devices: vec![member.name.clone()],
                }),
            }
        }
        links
    }

    /// The settings in force, by name.
    fn layout_words(&self) -> BTreeMap<String, String> {
        let mut words = BTreeMap::from([
            ("layout".to_owned(), self.layout.kind.word().to_owned()),
            ("width".to_owned(), self.layout.devices.len().to_string()),
            ("filesystem".to_owned(), self.layout.filesystem.map_or("raw", |fs| fs.word()).to_owned()),
        ]);
        if self.layout.kind.has_chunk() {
            words.insert("chunk".into(), units::bytes_short(self.layout.chunk_bytes));
        }
        if let Some(scheduler) = &self.layout.scheduler {
            words.insert("scheduler".into(), scheduler.clone());
        }
        words
    }
}

/// Of a workload whose jobs have no place on a target of `end` bytes, the option that is to blame.
fn too_small(workload: &Workload, end: u64) -> InvalidWorkload {
    let asked = workload.size.unwrap_or(end.saturating_sub(workload.offset));
    let (option, value) = match workload.size {
        Some(size) => ("size", size),
        None => ("offset", workload.offset),
    };
    if workload.offset.saturating_add(asked) > end || asked == 0 {
        return InvalidWorkload {
            option,
            value: units::bytes_short(value),
            reason: "reaches beyond the end of the target",
            hint: "give a smaller one, or leave it out",
        };
    }
    InvalidWorkload {
        option: "size",
        value: units::bytes_short(asked),
        reason: "has not a block for each job",
        hint: "raise --size or lower --numjobs",
    }
}

impl Target for SimTarget {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        let run = self.run_once(workload)?;
        if run.interrupted { Err(TargetError::Interrupted) } else { Ok(run.record) }
    }
}

impl SimTarget {
    /// Runs `workload` once. A run that is stopped has what was seen until then.
    ///
    /// # Errors
    /// [`TargetError::Invalid`], and [`TargetError::Interrupted`] where it was stopped before anything counted.
    pub fn run_once(&mut self, workload: &Workload) -> Result<SimRun, TargetError> {
        let streams = self.prepare(workload).map_err(|error| TargetError::Invalid(Box::new(error)))?;
        let node = Node::new(&self.machine, &self.layout, workload.randseed, &self.interrupt);
        let mut node = node.ok_or(TargetError::Interrupted)?;
        node.streams = streams;
        let runtime = workload.runtime.map(|runtime| runtime.as_nanos() as Time);
        // A run of a given size goes to its end, and counts all of it.
        let is_sized = runtime.is_none() && !workload.time_based && workload.size.is_some();
        let stop = Stop {
            max_interval_ns: if is_sized { Time::MAX } else { runtime.unwrap_or(self.stop.max_interval_ns) },
            min_interval_ns: self.stop.min_interval_ns.min(runtime.unwrap_or(Time::MAX)),
            precision: if is_sized { 0.0 } else { self.stop.precision },
        };
        let in_flight = node.streams.iter().map(|stream| u64::from(stream.depth)).sum();
        let in_flight = if workload.is_open_loop() { 1 } else { in_flight };
        let mut meter = Meter::new(stop, node.streams.len(), in_flight, workload.max_bs(), !is_sized);
        meter.begin_after(workload.ramp_time.as_nanos() as Time);
        let interrupted = !node.run(&mut meter, &self.interrupt);
        if interrupted && meter.interval_ns() == 0 {
            return Err(TargetError::Interrupted);
        }
        let record = self.record(workload, &mut node, &mut meter);
        self.device_counts = node.device_counts();
        self.now += meter.end;
        Ok(SimRun { record, interrupted })
    }
}

fn zeros(like: &Counters) -> Counters {
    Counters {
        members: vec![Default::default(); like.members.len()],
        media_write_bytes: vec![0; like.media_write_bytes.len()],
        busy_ns: vec![0; like.busy_ns.len()],
        system_ns: vec![0; like.system_ns.len()],
        interrupt_ns: vec![0; like.interrupt_ns.len()],
        interrupts: vec![0; like.interrupts.len()],
        streams_ns: vec![0; like.streams_ns.len()],
    }
}

fn direction_counts(direction: Direction) -> DirectionCounts {
    DirectionCounts { bytes: direction.bytes, ios: direction.ios, latency: direction.latency }
}

fn facts(machine: &Machine, layout: &Layout) -> TargetFacts {
    let drives = layout.devices.iter().map(|device| format!("drive{device}"));
    let has_array = layout.kind.has_chunk() && layout.devices.len() > 1;
    let array = has_array.then(|| if layout.md_members() > 0 { "md0" } else { "stripe0" }.to_owned());
    let target_bytes = node::target_bytes(machine, layout);
    TargetFacts {
        spec: format!("{}({}):{}", layout.kind.word(), layout.devices.len(), machine.name),
        kind: if layout.is_separate() { "separate" } else { "simulated" }.to_owned(),
        size_bytes: target_bytes * if layout.is_separate() { layout.devices.len() as u64 } else { 1 },
        logical_block_bytes: 512,
        filesystem: layout.filesystem.map(|fs| fs.word().to_owned()),
        block_devices: array.into_iter().chain(drives).collect(),
        model: Some(format!("simulated: {}", machine.name)),
        transport: Some("simulated".to_owned()),
        rotational: Some(machine.drive.is_rotational()),
        ..TargetFacts::default()
    }
}

fn host_facts(machine: &Machine) -> HostFacts {
    HostFacts {
        kernel: "virtual time".to_owned(),
        architecture: "simulated".to_owned(),
        cpu_model: format!("simulated: {}", machine.name),
        cpus: machine.host.cores,
        numa_nodes: 1,
        ..HostFacts::default()
    }
}

fn engine_facts(machine: &Machine, workload: &Workload) -> EngineFacts {
    let submission = match machine.host.submission {
        Submission::Threads => "a thread for each request",
        Submission::Jobs => "a thread for each job",
    };
    EngineFacts {
        used: "simulated".to_owned(),
        features: vec![submission.to_owned()],
        latency_clock: workload.latency_clock,
        clock_source: "virtual".to_owned(),
        ..EngineFacts::default()
    }
}
