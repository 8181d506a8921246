//! What front and worker say to each other: a pair of sockets that keep messages apart (SOCK_SEQPACKET).
//!
//! Front to worker: a byte, and a connection in its ancillary data. Worker to front: a report of fixed length. Nothing of
//! what a user says goes through here. When the front's end closes, the worker stops; when the worker's end closes, it has died.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};

use crate::service::metrics::{Figures, SERIES};

const WORD: usize = size_of::<u64>();
/// Bytes of a report: how many connections have come, how many jobs are open, and all figures.
const REPORT_BYTES: usize = WORD * (2 + SERIES.len());

/// Two ends.
///
/// # Errors
/// The kernel's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Is it an end of such a pair?
#[must_use]
pub fn is_end(fd: &impl AsFd) -> bool {
    use rustix::net::sockopt::{socket_domain, socket_type};
    socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)
}

/// Passes a connection on, without waiting.
///
/// # Errors
/// EAGAIN where the worker has too many before it; EPIPE where it has died.
pub fn pass(channel: &impl AsFd, connection: &UnixStream) -> io::Result<()> {
    let connections = [connection.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let has_room = ancillary.push(SendAncillaryMessage::ScmRights(&connections));
    debug_assert!(has_room, "there is room for one descriptor");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(channel, &[IoSlice::new(b"c")], &mut ancillary, flags)?;
    Ok(())
}

/// What has come from the front.
#[derive(Debug)]
pub enum Passed {
    /// A connection.
    Connection(UnixStream),
    /// A connection that got lost on the way, because this process has too many descriptors.
    Lost,
    /// Nothing yet.
    Nothing,
    /// The front has gone, or wants the worker to stop.
    End,
}

/// Takes what has come, without waiting.
///
/// # Errors
/// The kernel's; a message that no front sends.
pub fn take(channel: &impl AsFd) -> io::Result<Passed> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(channel, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Passed::Nothing),
        Err(Errno::CONNRESET) => return Ok(Passed::End),
        Err(error) => return Err(error.into()),
    };
    if received == 0 {
        return Ok(Passed::End);
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    match descriptors.flatten().next() {
        Some(connection) => Ok(Passed::Connection(connection.into())),
        // The kernel drops the descriptor where this process may have no more of them (unix(7)).
        None => Ok(Passed::Lost),
    }
}

/// How a worker is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Connections that have come so far: what the front has passed and is not in here yet, is on its way.
    pub received: u64,
    /// Jobs that have not ended.
    pub open_jobs: u64,
    /// Its figures.
    pub figures: Figures,
}

/// Tells the front, without waiting. A front that does not listen has newer reports to come.
///
/// # Errors
/// The front has gone.
pub fn report(channel: &impl AsFd, report: &Report) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(REPORT_BYTES);
    bytes.extend_from_slice(&report.received.to_le_bytes());
    bytes.extend_from_slice(&report.open_jobs.to_le_bytes());
    for value in report.figures.values() {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    match send(channel, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What has come from a worker.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// How it is.
    Report(Box<Report>),
    /// Nothing yet.
    Nothing,
    /// It has gone.
    End,
}

/// Listens to a worker, without waiting.
///
/// # Errors
/// The kernel's; a message that no worker sends.
pub fn hear(channel: &impl AsFd) -> io::Result<Heard> {
    let mut bytes = [0; REPORT_BYTES];
    let whole = match recv(channel, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
        Ok((_, whole)) => whole,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Heard::Nothing),
        Err(Errno::CONNRESET) => return Ok(Heard::End),
        Err(error) => return Err(error.into()),
    };
    if whole == 0 {
        return Ok(Heard::End);
    }
    if whole != REPORT_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a report of {whole} bytes")));
    }
    let word = |index: usize| -> [u8; WORD] { std::array::from_fn(|byte| bytes[index * WORD + byte]) };
    let values = std::array::from_fn(|index| {
        let value = f64::from_le_bytes(word(index + 2));
        if value.is_finite() { value } else { 0.0 }
    });
    Ok(Heard::Report(Box::new(Report {
        received: u64::from_le_bytes(word(0)),
        open_jobs: u64::from_le_bytes(word(1)),
        figures: Figures::of_values(values),
    })))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_connection_and_a_report_arrive_as_they_were_sent() {
        let (front, worker) = pair().unwrap();
        assert!(is_end(&front) && !is_end(&UnixStream::pair().unwrap().0));
        assert!(matches!(take(&worker).unwrap(), Passed::Nothing));
        let (mut client, connection) = UnixStream::pair().unwrap();
        pass(&front, &connection).unwrap();
        drop(connection);
        let Passed::Connection(mut taken) = take(&worker).unwrap() else { panic!("nothing came") };
        client.write_all(b"x").unwrap();
        let mut byte = [0];
        taken.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");

        let figures = Figures { bytes_written: 7.0, workers: 1.0, ..Figures::default() };
        let sent = Report { received: 1, open_jobs: 3, figures };
        report(&worker, &sent).unwrap();
        assert_eq!(hear(&front).unwrap(), Heard::Report(Box::new(sent)));
        assert_eq!(hear(&front).unwrap(), Heard::Nothing);
    }

    #[test]
    fn whichever_end_goes_the_other_learns_it_and_nonsense_is_an_error() {
        let (front, worker) = pair().unwrap();
        drop(front);
        assert!(matches!(take(&worker).unwrap(), Passed::End));
        assert!(report(&worker, &Report::default()).is_err());
        let (front, worker) = pair().unwrap();
        send(&worker, b"nonsense", SendFlags::empty()).unwrap();
        assert!(hear(&front).is_err());
        send(&worker, &[0; REPORT_BYTES + 8], SendFlags::empty()).unwrap();
        assert!(hear(&front).is_err());
        drop(worker);
        assert_eq!(hear(&front).unwrap(), Heard::End);
    }
}
