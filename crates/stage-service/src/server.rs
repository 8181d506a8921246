//! Takes connections, one thread each, no more than a limit, from whom it may.
//!
//! A server works with the rights of its process. It therefore answers only that user and root (SO_PEERCRED: what the
//! kernel saw at connect(2)), and only in its own mount namespace, because in another one the same path is another file.
//! A connection beyond the limit is told so and closed. The accepting thread never reads from a client.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use stage::error::StageError;

use crate::house::House;
use crate::lines::{POLL_INTERVAL, readable};
use crate::peer::Peer;
use crate::protocol::Answer;
use crate::session::Session;

impl House {
    /// Takes a connection that this process has accepted.
    pub fn receive(self: &Arc<Self>, socket: UnixStream) {
        match self.may_enter(&socket) {
            Ok(()) => self.seat(socket),
            Err(error) => self.refuse(&socket, &error),
        }
    }

    fn refuse(&self, socket: &UnixStream, error: &StageError) {
        self.counts.refused.fetch_add(1, Relaxed);
        tracing::warn!(%error, "a connection was refused");
        turn_away(socket, error);
    }

    /// A thread of its own answers, or it is told why not.
    fn seat(self: &Arc<Self>, socket: UnixStream) {
        let seat = Seat::take(self);
        if self.counts.connections.load(Relaxed) > self.limits.connections {
            let what = format!("{} connections are open, as many as may be", self.limits.connections);
            let hint = "close some; each `stage wait` has one".to_owned();
            return self.refuse(&socket, &StageError::Busy { what, hint });
        }
        let started = std::thread::Builder::new().name("stage-session".to_owned()).spawn(move || {
            Session::hold(&seat.0, socket);
        });
        if let Err(error) = started {
            // The socket went with the closure, and the client sees that it is closed.
            tracing::warn!(%error, "no thread for a connection");
        }
    }

    fn may_enter(&self, socket: &UnixStream) -> Result<(), StageError> {
        let peer = Peer::of(socket)?;
        if peer.uid != self.facts.uid && peer.uid != 0 {
            return Err(StageError::refused(
                format!("this server works for uid {}, and {} asks", self.facts.uid, peer.uid),
                "start your own: flashwright stage serve",
            ));
        }
        peer.check_mounts()
    }
}

/// A connection's place, given back when it ends, however it ends.
struct Seat(Arc<House>);

impl Seat {
    fn take(house: &Arc<House>) -> Self {
        house.counts.connections.fetch_add(1, Relaxed);
        Self(Arc::clone(house))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Relaxed);
    }
}

/// Says why, without ever waiting for the client: a socket's buffer that was never written to takes a line.
fn turn_away(socket: &UnixStream, error: &StageError) {
    use std::io::Write;
    if socket.set_nonblocking(true).is_ok()
        && let Ok(mut line) = serde_json::to_vec(&Answer::refusal(error))
    {
        line.push(b'\n');
        let _ = (&*socket).write_all(&line);
    }
}

/// Waits a moment for a connection, and takes it.
pub(super) fn each_round(listener: &UnixListener, each: &mut dyn FnMut(UnixStream)) -> io::Result<()> {
    if !readable(listener, POLL_INTERVAL)? {
        return Ok(());
    }
    match listener.accept() {
        Ok((socket, _)) => each(socket),
        Err(error) => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            // The client has gone again, or a signal came.
            Some(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
            // Out of descriptors or memory: that passes when others close. Without a pause this would spin.
            Some(
                rustix::io::Errno::MFILE
                | rustix::io::Errno::NFILE
                | rustix::io::Errno::NOBUFS
                | rustix::io::Errno::NOMEM,
            ) => {
                tracing::warn!(%error, "cannot take a connection");
                std::thread::sleep(POLL_INTERVAL);
            }
            _ => return Err(error),
        },
    }
    Ok(())
}
