//! Waiting for whoever is first: the client, the engine, the slow lane, the wish to stop.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use storage::engine::Engine;

use super::lane::Lane;
use super::settle::out_of_order;
use super::{Conversation, Intake, LOOK, TICK};
use crate::error::Ending;
use crate::link::WaitPosition;

impl<E: Engine> Conversation<'_, E> {
    /// Waits until the client, the engine or the lane has something, or takes something.
    pub(super) fn wait(&mut self) -> Result<(), Ending> {
        let place = self.place();
        let since = Instant::now();
        loop {
            let stop = self.link.stop();
            if place == WaitPosition::Between && stop.is_asked() {
                // It may have sent more since it was last looked at.
                if self.link.has_something()? {
                    self.readable = true;
                    return Ok(());
                }
                self.ending.get_or_insert(Ending::Stopped);
                return Ok(());
            }
            if self.poll_once(stop.is_asked())? {
                return Ok(());
            }
            // Requests in flight are the device's to finish, whatever time that takes; the rest is the client's.
            let working = self.engine.in_flight() > 0 || self.requests.in_lane() > 0;
            if working {
                return Ok(());
            }
            self.link.patience(place, since)?;
        }
    }

    /// Where the conversation is.
    fn place(&self) -> WaitPosition {
        let message = !matches!(self.intake, Intake::Nothing) || !self.input.available().is_empty();
        let replies = !self.output.is_empty() || !self.requests.is_empty();
        if message || replies { WaitPosition::Within } else { WaitPosition::Between }
    }

    /// One poll(2); whether anything came of it.
    fn poll_once(&mut self, stopping: bool) -> Result<bool, Ending> {
        let in_flight = self.engine.in_flight() > 0;
        let mut interest = PollFlags::empty();
        if self.has_room() {
            interest |= PollFlags::IN;
        }
        if !self.output.is_empty() {
            interest |= PollFlags::OUT;
        }
        // Where there is no room for what would tell the client's end, the kernel tells it, once.
        let lane_at_work = self.requests.in_lane() > 0 && !self.client_left;
        if lane_at_work && !interest.contains(PollFlags::IN) {
            interest |= PollFlags::RDHUP;
        }
        let stop = self.link.stop();
        let failed = |source| Ending::Io(source);
        let engine_fd = if in_flight { self.engine.completion_fd().map_err(failed)? } else { None };
        if in_flight && engine_fd.is_none() {
            // Only the engine itself can wait, so it does, and the client is looked at in between.
            self.engine.submit(1, Some(Duration::from_millis(1)))?;
            (self.call_engine, self.readable) = (true, true);
            return Ok(true);
        }
        let socket = self.link.fd();
        let lane_fd = self.lane.as_ref().map(Lane::fd);
        let stop_fd = stop.fd();
        // A client of whom nothing is wanted is left out, since its hanging up would be reported all the time.
        let mut fds = Vec::with_capacity(4);
        let mut add = |fd, flags| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            fds.len() - 1
        };
        let client_at = (!interest.is_empty()).then(|| add(socket, interest));
        let engine_at = engine_fd.map(|fd| add(fd, PollFlags::IN));
        let lane_at = lane_fd.map(|fd| add(fd, PollFlags::IN));
        if !stopping {
            add(stop_fd, PollFlags::empty());
        }
        let limit = if in_flight { LOOK } else { TICK };
        let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        let ready = match poll(&mut fds, Some(&limit)) {
            Ok(ready) => ready > 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => return Err(Ending::Io(error.into())),
        };
        let came = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
        let (client, engine, lane) = (came(client_at), came(engine_at), came(lane_at));
        let left =
            client_at.is_some_and(|at| fds[at].revents().intersects(PollFlags::RDHUP | PollFlags::HUP));
        drop(fds);
        if left && lane_at_work {
            self.client_left = true;
            self.abandon_hints();
        }
        self.readable |= client;
        self.call_engine |= engine || in_flight && !ready;
        if lane {
            self.silence_lane();
        }
        Ok(client || engine || lane)
    }

    /// Takes note that the lane has something to say; if it is gone, its requests have failed.
    fn silence_lane(&mut self) {
        if self.lane.as_mut().is_some_and(|lane| !lane.silence()) {
            self.hear_lane();
            self.lane = None;
            for id in self.requests.take_lane() {
                self.lane_failed(id, &out_of_order());
            }
        }
    }
}
