//! Stations one behind the other, each serving one command at a time: a path over a network, remote memory, a file server;
//! or, with one station, a queue of the text books.
//!
//! A command's service at a station is a fixed time and one by its bytes. With exponential service each time is drawn with that mean
//! (a closed network of K such stations with N commands gives K-th part of the rate by N/(N + K − 1): Lazowska et al.,
//! *Quantitative System Performance*, ch. 5). After the last station the answer needs the latency of the way back.

use measure::pattern::Rng;
use serde::Deserialize;

use crate::device::{Command, DeviceCounts, DeviceModel, Effects, Limits, Operation, Time};
use crate::values::{self, Bytes, Checked, ns};

/// What the model is made of.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Usable bytes.
    pub size: Bytes,
    /// Commands at once.
    pub queue_depth: u32,
    /// Stations that each command passes.
    pub stations: u32,
    /// Fixed service time of a station.
    #[serde(default)]
    pub service_us: f64,
    /// Rate at which a station moves data that are read, bytes a second.
    pub read_bytes_per_s: f64,
    /// The same for data that are written.
    pub write_bytes_per_s: f64,
    /// Time on the way that occupies no station.
    #[serde(default)]
    pub latency_us: f64,
    /// Whether service times are drawn, with the above as mean.
    #[serde(default)]
    pub exponential: bool,
}

impl NetworkSpec {
    /// Checks each value; `table` leads to them.
    ///
    /// # Errors
    /// [`InvalidMachine`](crate::error::InvalidMachine) naming the first that cannot be.
    pub fn check(&self, table: &str) -> Checked {
        let key = |name: &str| format!("{table}.{name}");
        values::multiple(&key("size"), self.size, 512, "a sector")?;
        values::count(&key("queue_depth"), self.queue_depth, 1 << 20)?;
        values::count(&key("stations"), self.stations, 1024)?;
        values::rate(&key("read_bytes_per_s"), self.read_bytes_per_s)?;
        values::rate(&key("write_bytes_per_s"), self.write_bytes_per_s)?;
        values::micros(&key("latency_us"), self.latency_us)?;
        values::micros(&key("service_us"), self.service_us)
    }
}

/// The stations.
#[derive(Debug)]
pub struct Network {
    spec: NetworkSpec,
    latency_ns: Time,
    free_at: Vec<Time>,
    rng: Rng,
    /// Commands on their way by token: the command, and the next station.
    travellers: Vec<(Command, u32)>,
    free_tokens: Vec<u32>,
    counts: DeviceCounts,
}

impl Network {
    /// Stations whose service times follow from `seed`.
    #[must_use]
    pub fn new(spec: NetworkSpec, seed: u64) -> Self {
        Self {
            free_at: vec![0; spec.stations as usize],
            rng: Rng::new(seed),
            travellers: Vec::new(),
            free_tokens: Vec::new(),
            counts: DeviceCounts::default(),
            latency_ns: ns(spec.latency_us),
            spec,
        }
    }

    fn service(&mut self, command: &Command) -> Time {
        let rate = match command.operation {
            Operation::Read => self.spec.read_bytes_per_s,
            _ => self.spec.write_bytes_per_s,
        };
        let mean = self.spec.service_us * 1e3 + f64::from(command.bytes) / rate * 1e9;
        let drawn = if self.spec.exponential { mean * self.rng.exponential() } else { mean };
        drawn.round() as Time
    }

    /// Puts a command through `station`, and returns when it leaves.
    fn serve(&mut self, now: Time, station: u32, command: &Command) -> Time {
        let service = self.service(command);
        let free = &mut self.free_at[station as usize];
        *free = (*free).max(now).saturating_add(service);
        *free
    }
}

impl DeviceModel for Network {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: self.spec.size.0,
            logical_block_bytes: 512,
            max_command_bytes: 1 << 30,
            queue_depth: self.spec.queue_depth,
        }
    }

    fn submit(&mut self, now: Time, command: Command, effects: &mut Effects) {
        if command.operation == Operation::Write {
            self.counts.host_write_bytes += u64::from(command.bytes);
            self.counts.media_write_bytes += u64::from(command.bytes);
        }
        let left = self.serve(now, 0, &command);
        if self.spec.stations == 1 {
            return effects.complete(left.saturating_add(self.latency_ns), command.tag);
        }
        let token = self.free_tokens.pop().unwrap_or_else(|| {
            self.travellers.push((command, 1));
            self.travellers.len() as u32 - 1
        });
        self.travellers[token as usize] = (command, 1);
        effects.wake(left, token);
    }

    fn wake(&mut self, now: Time, token: u32, effects: &mut Effects) {
        let (command, station) = self.travellers[token as usize];
        let left = self.serve(now, station, &command);
        if station + 1 == self.spec.stations {
            self.free_tokens.push(token);
            effects.complete(left.saturating_add(self.latency_ns), command.tag);
        } else {
            self.travellers[token as usize].1 = station + 1;
            effects.wake(left, token);
        }
    }

    fn counts(&self) -> DeviceCounts {
        self.counts
    }
}
