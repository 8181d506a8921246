//! Commands on their way through the node, in one array that is reused.

use crate::device::{Operation, Time};

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// A command to a block device, or one of those into which a RAID controller cuts it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    pub operation: Operation,
    pub bytes: u32,
    pub offset: u64,
    /// The request that it belongs to.
    pub request: u32,
    /// The process that made it.
    pub owner: u32,
    /// The next command merged into this one, and of a head, the last.
    pub next: u32,
    last: u32,
    /// The block device.
    pub member: u32,
    /// The drive, for what a RAID controller cut.
    pub drive: u32,
    /// What it was cut from.
    pub parent: u32,
    /// Commands that it was cut into, and are not done.
    pub pieces: u32,
    /// When it left the queue.
    pub dispatched: Time,
}

/// All commands.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    all: Vec<Command>,
    free: Vec<u32>,
}

impl Commands {
    /// A command for a block device.
    #[inline]
    pub fn make(&mut self, operation: Operation, member: u32, offset: u64, bytes: u32, request: u32) -> u32 {
        let command = Command {
            operation,
            bytes,
            offset,
            request,
            owner: NONE,
            next: NONE,
            last: NONE,
            member,
            drive: NONE,
            parent: NONE,
            pieces: 0,
            dispatched: 0,
        };
        match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = command;
                id
            }
            None => {
                self.all.push(command);
                self.all.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub fn get(&self, id: u32) -> &Command {
        &self.all[id as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Command {
        &mut self.all[id as usize]
    }

    #[inline]
    pub fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Appends command `id`, with what was merged into it, to `head` if it follows it on the device and the whole stays within `max_bytes`.
    #[inline]
    pub fn merge(&mut self, head: u32, id: u32, max_bytes: u32) -> bool {
        let own = self.all[id as usize];
        let first = self.all[head as usize];
        let follows = first.offset + u64::from(first.bytes) == own.offset && first.operation == own.operation;
        if !follows || first.bytes + own.bytes > max_bytes {
            return false;
        }
        let tail = if first.last == NONE { head } else { first.last };
        self.all[tail as usize].next = id;
        let first = &mut self.all[head as usize];
        first.last = if own.last == NONE { id } else { own.last };
        first.bytes += own.bytes;
        true
    }
}
