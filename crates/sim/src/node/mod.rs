//! The node: a request's way from the job to the drive and back, event by event.
//!
//! 1. A job makes a request, at once when one of its requests ended, or when it is due.
//! 2. A read of a file waits for the file's lock.
//! 3. A CPU takes it through file system, md and block layer. A large request becomes several bios, each of which costs time;
//!    each is put into the queue of the block device that holds it, merged with its neighbour there. Queues are plugged meanwhile: they
//!    hold back until the submission ends or several requests wait.
//! 4. The device's queue lets as many requests into the device as it takes, in the order of its scheduler.
//! 5. The controller does its part: a plain one a fixed time, a RAID processor that time for each strip.
//! 6. The drive serves it ([`crate::device`]). The bus bounds the rate of all drives of a controller together.
//! 7. An interrupt ends it, on the CPU to which interrupts go.
//! 8. A write to a file is followed by a write to the log, one after the other.

mod command;
mod cpu;
pub mod layout;
mod member;
mod path;
mod scheduler;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

pub use layout::Layout;

pub(crate) use member::Served;

use crate::device::{DeviceCounts, DeviceModel, Effects, Operation, Time};
use crate::event::Events;
use crate::load::Stream;
use crate::machine::{Controller, Delivery, Machine, Submission};
use crate::meter::Meter;
use crate::values::ns;
use command::Commands;
use cpu::Cpus;
use member::{Member, Port};

/// What happens.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A request of this stream is due.
    Due(u32),
    /// A request holds its file's lock.
    Locked(u32),
    /// A request is through the layers, in one bio.
    Submitted(u32),
    /// The next bio of a request is ready.
    Bio(u32),
    /// The controller is done with a command.
    Controlled(u32),
    /// A block device has waited long enough for a request.
    Waited(u32),
    /// A device asked for this.
    Wake { device: u32, token: u32 },
    /// A device ended a command.
    Done(u32),
    /// The data of a command are through the bus.
    Arrived(u32),
    /// The interrupt of a command was handled.
    Ended(u32),
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
struct Request {
    stream: u32,
    operation: Operation,
    bytes: u32,
    offset: u64,
    /// When it was made, or under a rate, due.
    since: Time,
    /// Bytes that were made into bios.
    submitted: u32,
    /// Bios that are not done, and one for the submission itself.
    pending: u32,
    /// Whether it is a write to the log.
    is_log: bool,
}

/// A file system on a target.
#[derive(Debug, Default)]
struct FileState {
    lock_free_at: Time,
    /// Requests whose write to the log waits; the first one's is under way.
    log_queue: VecDeque<u32>,
    log_position: u64,
}

/// A controller.
#[derive(Debug, Clone, Copy, Default)]
struct ControllerState {
    free_at: Time,
    bus_free_at: Time,
}

/// Costs of the layers, nanoseconds, as the layout makes them.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    path: Time,
    page: Time,
    bio: Time,
    completion: Time,
    interrupt: Time,
    read_lock: Time,
    log_bytes: u32,
    controller: Time,
}

/// Bytes of a file system's log, which is written round and round, where the target is larger.
const LOG_BYTES: u64 = 64 << 20;

/// No event is later, so that times can be added up: 146 years.
const END_OF_TIME: Time = 1 << 62;

/// A machine with a layout, in motion.
pub(crate) struct Node {
    events: Events<Kind>,
    cpus: Cpus,
    commands: Commands,
    requests: Vec<Request>,
    free_requests: Vec<u32>,
    members: Vec<Member>,
    devices: Vec<Box<dyn DeviceModel>>,
    ports: Vec<Port>,
    controllers: Vec<ControllerState>,
    /// The controller of each member.
    controller_of: Vec<u32>,
    files: Vec<FileState>,
    pub streams: Vec<Stream>,
    effects: Effects,
    costs: Costs,
    /// Drives of each member, more than one behind a RAID processor, and the bytes of its strips.
    drives_each: u32,
    strip_bytes: u64,
    bus_bytes_per_s: f64,
    is_separate: bool,
    chunk_bytes: u64,
    bio_bytes: u64,
    plug_requests: u32,
    shift: u64,
    submission: Submission,
    delivery: Delivery,
    /// Bytes of one target.
    pub target_bytes: u64,
    /// The counters when the interval began.
    pub at_begin: Option<Counters>,
}

/// Counters of the machine at an instant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    pub members: Vec<Served>,
    /// Bytes that the drives of each member wrote to their medium.
    pub media_write_bytes: Vec<u64>,
    /// Time that each CPU has worked, nanoseconds, and the work that it was given, some of which may be still to do.
    pub busy_ns: Vec<u64>,
    pub system_ns: Vec<u64>,
    pub interrupt_ns: Vec<u64>,
    pub interrupts: Vec<u64>,
    /// CPU time of the requests of each stream, nanoseconds.
    pub streams_ns: Vec<u64>,
}

impl Node {
    /// A machine at rest, with a layout that it can have; all that is drawn follows from `seed`. None where `stop` is set while a drive
    /// is filled, which takes seconds for a large one.
    pub fn new(machine: &Machine, layout: &Layout, seed: u64, stop: &AtomicBool) -> Option<Self> {
        let host = &machine.host;
        let (drives_each, strip_bytes, controller_ns, queue_depth) = match &machine.controller {
            Some(Controller::Raid { drives, io_us, untuned_us, strip_bytes, queue_depth, .. }) => {
                (*drives, strip_bytes.0, ns(io_us + untuned_us), Some(*queue_depth))
            }
            Some(Controller::Hba { io_us, .. }) => (1, 0, ns(*io_us), None),
            None => (1, 0, 0, None),
        };
        let drive_indices: Vec<u32> = layout
            .devices
            .iter()
            .flat_map(|device| (0..drives_each).map(move |n| device * drives_each + n))
            .collect();
        // Asked only by drives that take time to fill.
        let given_up = Cell::new(false);
        let stopped = || {
            given_up.set(stop.load(Ordering::Relaxed));
            given_up.get()
        };
        let build = |n: &u32| (!given_up.get()).then(|| machine.drive_spec(*n).build(seed, *n, &stopped));
        let devices: Vec<_> = drive_indices.iter().map_while(build).collect();
        if given_up.get() {
            return None;
        }
        let scheduler = layout.scheduler_of(machine);
        let max_bytes = layout.request_bytes.map_or(host.request_bytes.0, u64::from);
        let member = |first: usize| {
            let limits = devices[first].limits();
            let depth = queue_depth.unwrap_or(limits.queue_depth);
            Member::new(depth, scheduler, max_bytes.min(u64::from(limits.max_command_bytes)) as u32)
        };
        let members = (0..layout.devices.len()).map(|n| member(n * drives_each as usize)).collect();
        let per_controller = machine.controller.as_ref().map_or(1, |controller| match controller {
            Controller::Hba { drives, .. } => *drives,
            Controller::Raid { .. } => 1,
        });
        let files = layout.filesystem.and_then(|fs| host.filesystems.get(fs.word()));
        let md_us = if layout.md_members() > 0 { host.md_us.unwrap_or(0.0) } else { 0.0 };
        let interrupts = &host.interrupts;
        let reserved = u32::from(interrupts.delivery == Delivery::OneCpu);
        let targets = if layout.is_separate() { layout.devices.len() } else { 1 };
        Some(Self {
            events: Events::default(),
            cpus: Cpus::new(host.cores, reserved),
            commands: Commands::default(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            members,
            ports: (devices.iter())
                .map(|device| Port { depth: device.limits().queue_depth, ..Port::default() })
                .collect(),
            controllers: vec![ControllerState::default(); machine.host_devices() as usize],
            controller_of: layout.devices.iter().map(|device| device / per_controller).collect(),
            files: (0..targets).map(|_| FileState::default()).collect(),
            streams: Vec::new(),
            effects: Effects::default(),
            costs: Costs {
                path: ns(host.path_us + md_us + scheduler.map_or(0.0, |scheduler| scheduler.io_us)),
                page: ns(host.page_us),
                bio: ns(host.bio_us),
                completion: ns(
                    interrupts.completion_us + interrupts.member_us * f64::from(layout.md_members())
                ),
                interrupt: ns(interrupts.interrupt_us),
                read_lock: files.map_or(0, |files| ns(files.read_lock_us)),
                log_bytes: files.and_then(|files| files.log_bytes).map_or(0, |bytes| bytes.0 as u32),
                controller: controller_ns,
            },
            drives_each,
            strip_bytes,
            bus_bytes_per_s: machine.controller.as_ref().map_or(0.0, Controller::bus_bytes_per_s),
            is_separate: layout.is_separate(),
            chunk_bytes: if layout.devices.len() > 1 && !layout.is_separate() {
                layout.chunk_bytes
            } else {
                0
            },
            bio_bytes: host.bio_bytes.0,
            plug_requests: host.plug_requests,
            shift: u64::from(host.partition_offset_bytes),
            submission: host.submission,
            delivery: interrupts.delivery,
            target_bytes: target_bytes(machine, layout),
            at_begin: None,
            devices,
        })
    }

    /// Runs until the meter has seen enough, no request is left, or `stop` is set, which is looked at when requests end: then all counters
    /// are of the instant of the last one. False if it was stopped.
    pub fn run(&mut self, meter: &mut Meter, stop: &AtomicBool) -> bool {
        for stream in 0..self.streams.len() as u32 {
            self.begin(stream);
        }
        while !meter.is_done() {
            let Some(event) = self.events.pop().filter(|event| event.at < END_OF_TIME) else { break };
            let now = event.at;
            match event.kind {
                Kind::Due(stream) => self.due(now, stream),
                Kind::Locked(request) => self.enter(now, request),
                Kind::Submitted(request) => self.submit_whole(now, request),
                Kind::Bio(request) => self.submit_bio(now, request),
                Kind::Controlled(command) => self.reach_drive(now, command),
                Kind::Waited(member) => self.dispatch(now, member),
                Kind::Wake { device, token } => {
                    self.devices[device as usize].wake(now, token, &mut self.effects);
                    self.take_effects(device);
                }
                Kind::Done(command) => self.done(now, command),
                Kind::Arrived(command) => self.interrupt(now, command),
                Kind::Ended(command) => {
                    self.ended(now, command, meter);
                    if meter.end == now && stop.load(Ordering::Relaxed) {
                        return meter.is_done();
                    }
                }
            }
        }
        true
    }

    /// The counters at `now`, which is not before any event so far.
    pub fn counters(&mut self, now: Time) -> Counters {
        Counters {
            members: self.members.iter_mut().map(|member| member.served(now)).collect(),
            media_write_bytes: (self.devices.chunks(self.drives_each as usize))
                .map(|drives| drives.iter().map(|drive| drive.counts().media_write_bytes).sum())
                .collect(),
            busy_ns: self.cpus.busy_ns(now),
            system_ns: self.cpus.system_ns.clone(),
            interrupt_ns: self.cpus.interrupt_ns.clone(),
            interrupts: self.cpus.interrupts.clone(),
            streams_ns: self.streams.iter().map(|stream| stream.cpu_ns).collect(),
        }
    }

    /// What all drives did until now.
    pub fn device_counts(&self) -> DeviceCounts {
        self.devices.iter().map(|device| device.counts()).fold(DeviceCounts::default(), |all, one| {
            DeviceCounts {
                host_write_bytes: all.host_write_bytes + one.host_write_bytes,
                media_write_bytes: all.media_write_bytes + one.media_write_bytes,
                erases: all.erases + one.erases,
            }
        })
    }

    /// Whether requests are made on CPUs of the jobs.
    pub fn jobs_have_cpus(&self) -> bool {
        self.submission == Submission::Jobs
    }
}

/// Bytes of a target of this layout.
pub(crate) fn target_bytes(machine: &Machine, layout: &Layout) -> u64 {
    let drives_each = machine.drives / machine.host_devices();
    let of_device = |device: &u32| {
        let drives = device * drives_each..(device + 1) * drives_each;
        let least = drives.map(|n| machine.drive_spec(n).size_bytes()).min().unwrap_or(0);
        least * u64::from(drives_each)
    };
    let least = layout.devices.iter().map(of_device).min().unwrap_or(0);
    if layout.devices.len() == 1 || layout.is_separate() {
        return least - u64::from(machine.host.partition_offset_bytes).min(least);
    }
    let whole = least / layout.chunk_bytes * layout.chunk_bytes * layout.devices.len() as u64;
    whole.saturating_sub(u64::from(machine.host.partition_offset_bytes))
}
