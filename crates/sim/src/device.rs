//! The seam of device models: what the simulated host asks of a drive, and what a drive may answer.
//!
//! A model is a state machine without a clock of its own. The host calls [`DeviceModel::submit`] for each command, and
//! [`DeviceModel::wake`] at each instant that the model asked for; in either call the model may finish commands and ask for
//! further calls, by [`Effects`]. The rules:
//!
//! - Time never goes back: each call's `now` is at least that of the call before it. Calls of one instant come in the order
//!   in which they were asked for.
//! - The host has at most [`Limits::queue_depth`] commands in a model. A slot is free again at the instant for which its
//!   completion was announced.
//! - Each command is completed exactly once, at `now` or later. An instant that is known already may be announced at once:
//!   that saves a wake, which is most of the cost of a simple model.
//! - A model is deterministic: its answers follow from its description, its seed and the calls.

/// Virtual time, nanoseconds since the start of the run.
pub type Time = u64;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Data from the drive.
    Read,
    /// Data to the drive.
    Write,
    /// The range holds no data any more.
    Trim,
    /// All completed writes become durable.
    Flush,
}

/// One command to a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// The host's name for it, which its completion returns. Unique among the commands in the drive.
    pub tag: u32,
    /// What it does.
    pub operation: Operation,
    /// First byte, from the start of the drive; a multiple of [`Limits::logical_block_bytes`].
    pub offset: u64,
    /// Bytes; a multiple of the logical block, 0 only for [`Operation::Flush`].
    pub bytes: u32,
}

/// What a model makes happen, in the order in which it was said. The host empties it after each call and keeps its memory.
#[derive(Debug, Default)]
pub struct Effects {
    /// Commands that end: when, and their tag.
    pub completions: Vec<(Time, u32)>,
    /// Calls of [`DeviceModel::wake`] to come: when, and the token that the call returns.
    pub wakes: Vec<(Time, u32)>,
}

impl Effects {
    /// Command `tag` ends at `at`.
    #[inline]
    pub fn complete(&mut self, at: Time, tag: u32) {
        self.completions.push((at, tag));
    }

    /// Asks for a call of [`DeviceModel::wake`] at `at`, with `token`, which means what the model wants it to mean.
    #[inline]
    pub fn wake(&mut self, at: Time, token: u32) {
        self.wakes.push((at, token));
    }
}

/// What the host must know of a drive before its first command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Usable bytes.
    pub size_bytes: u64,
    /// Smallest command and alignment, bytes.
    pub logical_block_bytes: u32,
    /// Largest command, bytes; the host cuts larger requests.
    pub max_command_bytes: u32,
    /// Commands that the drive takes at once.
    pub queue_depth: u32,
}

/// What a drive did since it was made. A model leaves at 0 what it does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Bytes of write commands.
    pub host_write_bytes: u64,
    /// Bytes programmed into the medium, those of garbage collection included. Divided by the former: write amplification.
    pub media_write_bytes: u64,
    /// Blocks erased.
    pub erases: u64,
}

/// A drive.
pub trait DeviceModel: Send {
    /// What it takes. The same in each call.
    fn limits(&self) -> Limits;

    /// Takes a command at `now`.
    fn submit(&mut self, now: Time, command: Command, effects: &mut Effects);

    /// The instant `now`, for which the model asked with `token`.
    fn wake(&mut self, now: Time, token: u32, effects: &mut Effects);

    /// What it did so far.
    fn counts(&self) -> DeviceCounts;
}
