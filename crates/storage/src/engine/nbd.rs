//! The engine of exports of other hosts, and of what is made of those and memory.
//!
//! Each member that is an export has connections of its own ([`crate::remote`]), all of them waited for together. A
//! request is put into its connection's queue when it is prepared, and [`submit`](Engine::submit) sends what is
//! queued, one call a connection however many requests there are. Members that are memory are copied from and to.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::IoEngine;

use super::slots::{Begun, CONFIGURE, Outcome, Slots, answered_by_slots};
use super::{Engine, EngineConfig, EngineError, LONGEST_WAIT, Op, RequestError, RequestFailure, copy};
use crate::device::{Device, leaves};
use crate::remote::{Call, Command, Fleet, io_error};

const NAME: &str = IoEngine::Nbd.word();

/// An engine over connections. See the module's argument.
// Fields are dropped in this order: the fleet ends before the buffers do that it fills.
#[derive(Debug)]
pub struct Nbd {
    fleet: Fleet,
    slots: Slots,
    /// By member: its number in the fleet; none of memory.
    hosts: Box<[Option<u32>]>,
    /// Parts on memory, to be copied.
    local: Vec<u32>,
    /// Whether anything was prepared since the last submission.
    prepared: bool,
}

impl Nbd {
    /// Opens the engine for a device that is an export, or made of exports and memory.
    ///
    /// # Errors
    /// [`EngineError`] where the device is anything else, connections cannot be made, or buffers cannot be had.
    pub fn new(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        let fits = |member: &&Arc<dyn Device>| member.remote().is_some() || member.memory().is_some();
        if let Some(other) = leaves(&device).iter().find(|member| !fits(member)) {
            let message = format!("{} is not reached over NBD", other.spec());
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
            return Err(EngineError { engine: NAME, operation: CONFIGURE, source });
        }
        let slots = Slots::new(NAME, device, config)?;
        let mut remotes = Vec::new();
        let hosts = slots.members().iter().map(|member| {
            let remote = member.remote()?;
            remotes.push((Arc::clone(remote), Arc::new(remote.handle())));
            Some(remotes.len() as u32 - 1)
        });
        let hosts = hosts.collect();
        let fleet = Fleet::connect(&remotes, slots.depth(), slots.ids(), config.slot_bytes as u64)
            .map_err(|error| EngineError { engine: NAME, operation: "connect", source: io_error(error) })?;
        Ok(Self { fleet, slots, hosts, local: Vec::new(), prepared: false })
    }

    #[inline]
    fn push(&mut self, id: u32) {
        let part = self.slots.part(id);
        let device = &self.slots.members()[part.member as usize];
        let Some(host) = self.hosts[part.member as usize] else {
            self.local.push(id);
            return;
        };
        let end = device.size();
        let refuse = |errno: i32| -i64::from(errno);
        let mut length = part.length;
        let (command, refused) = match part.op {
            Op::Read | Op::Write => {
                length = end.saturating_sub(part.offset).min(u64::from(length)) as u32;
                let command = if part.op == Op::Read { Command::Read } else { Command::Write };
                let refused = (part.op == Op::Write && !device.is_writable()).then(|| refuse(libc::EBADF));
                (command, refused.or((length == 0).then_some(0)))
            }
            Op::Trim => (Command::Trim, self.trim_refused(host, part.offset, length, &**device)),
            Op::SyncData | Op::Sync => {
                let can = self.fleet.remote(host).export().flags.flush();
                (Command::Flush, (!can).then(|| refuse(libc::EOPNOTSUPP)))
            }
        };
        if let Some(result) = refused {
            self.fleet.finished.push_back((id, result));
            return;
        }
        let buffer = self.slots.address(&part);
        // SAFETY: the slot is in flight until this id's result is reaped, so these bytes of its buffer are the part's
        // alone; and the fleet is dropped before the arena.
        unsafe { self.fleet.begin(Call { id, host, command, offset: part.offset, length, buffer }) };
    }

    /// Why a discard is not sent, if it is not: as a result, 0 where there is nothing to do.
    fn trim_refused(&self, host: u32, offset: u64, length: u32, device: &dyn Device) -> Option<i64> {
        let inside = offset.checked_add(u64::from(length)).is_some_and(|end| end <= device.size());
        let errno = match () {
            () if !device.is_writable() => libc::EBADF,
            () if !inside => libc::EINVAL,
            () if !self.fleet.remote(host).export().flags.trim() => libc::EOPNOTSUPP,
            () if length == 0 => return Some(0),
            () => return None,
        };
        Some(-i64::from(errno))
    }

    /// What failed, with all that is known of why.
    #[cold]
    fn explained(&mut self, slot: u32, mut failure: RequestFailure) -> RequestFailure {
        let ids = self.slots.ids_of(slot);
        let place = failure.member.as_ref().map(|member| member.offset);
        let parts = ids.clone().filter(|id| place.is_none_or(|place| self.slots.part(*id).offset == place));
        let reasons: Vec<_> = parts.filter_map(|id| self.fleet.reason(id)).collect();
        if let (Some(reason), RequestError::Os(_)) = (reasons.into_iter().next(), &failure.cause) {
            failure.cause = RequestError::Os(io_error(reason));
        }
        // Of a request that is over nothing more will be asked.
        ids.for_each(|id| drop(self.fleet.reason(id)));
        failure
    }
}

impl Engine for Nbd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn features(&self) -> Vec<String> {
        let connections = match self.fleet.connections() {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        std::iter::once(connections).chain(self.slots.page_feature()).collect()
    }

    answered_by_slots!();

    #[inline]
    fn prepare(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        self.prepared = true;
        match self.slots.begin(slot, op, offset, length) {
            Begun::One(part) => self.push(part.id),
            Begun::Several(ids) => ids.for_each(|id| self.push(id)),
            Begun::Nowhere(id, result) => self.fleet.finished.push_back((id, result)),
        }
    }

    fn submit(&mut self, min_complete: u32, timeout: Option<Duration>) -> Result<(), EngineError> {
        let failed = |source| EngineError { engine: NAME, operation: "epoll_wait", source };
        // Taken out first: a device that panics must not have its earlier requests made twice.
        let mut local = std::mem::take(&mut self.local);
        for id in local.drain(..) {
            let result = copy::perform(&self.slots, id);
            self.fleet.finished.push_back((id, result));
        }
        self.local = local;
        self.fleet.transmit();
        let wanted = self.slots.parts_of(min_complete) as usize;
        if min_complete == 0 {
            // Whoever asks again and again for what has arrived shall have it; whoever hands over more shall not pay.
            let look = !std::mem::take(&mut self.prepared) && self.fleet.outstanding() > 0;
            return if look { self.fleet.wait(Duration::ZERO).map_err(failed) } else { Ok(()) };
        }
        self.prepared = false;
        let deadline = timeout.map(|limit| Instant::now() + limit.min(LONGEST_WAIT));
        while self.fleet.finished.len() < wanted && self.fleet.outstanding() > 0 {
            let left = match deadline {
                None => LONGEST_WAIT,
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            };
            self.fleet.wait(left).map_err(failed)?;
            if left.is_zero() {
                break;
            }
        }
        Ok(())
    }

    /// The epoll instance that waits for all connections.
    fn completion_fd(&mut self) -> io::Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.fleet.fd()))
    }

    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let mut reaped = 0;
        // Each is struck off before the caller hears of it, should the caller's code panic.
        while let Some((id, result)) = self.fleet.finished.pop_front() {
            match self.slots.finish(id, result) {
                Outcome::Done(slot) => on_complete(slot, Ok(())),
                Outcome::More => continue,
                Outcome::Failed(slot, failure) => {
                    let failure = self.explained(slot, failure);
                    on_complete(slot, Err(failure));
                }
                Outcome::Retry => {
                    self.push(id);
                    continue;
                }
            }
            reaped += 1;
        }
        reaped
    }
}
