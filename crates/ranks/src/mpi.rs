//! Ranks that a launcher of MPI started.
//!
//! A frame goes as pieces of `PIECE_BYTES`, which every MPI library sends eagerly by default: the call returns without the
//! receiver. After `WINDOW` pieces the sender waits for the receiver's credit, so that a receiver that is stopped holds a
//! bounded number of them. So no call of MPI here waits for another process, and every wait has its end.
//!
//! A launcher ends all processes when one dies: Open MPI's sends SIGTERM a second later, and SIGKILL after another one or when a
//! further process has ended, whichever is first. Nothing here notices a dead process by itself: it is the one that does not
//! answer any more. So after that signal every wait ends soon (`ROOT_ENDS`, `OTHERS_END`), and the other ranks stay until then,
//! so that the root has that time to name the dead rank and to say what is known.

use std::io;
use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use mpi::environment::{Universe, library_version};
use mpi::point_to_point::Status;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, MatchedReceiveVec, Source};
use mpi::{Tag, Threading};

use crate::error::RanksError;
use crate::frame::{HEAD_BYTES, PAYLOAD_MAX_BYTES};
use crate::group::Ranks;
use crate::launch::launched;
use crate::transport::{Received, Transport};

/// Bytes of a piece: half of the smallest eager limit known (4 KiB, Open MPI's shared memory).
const PIECE_BYTES: usize = 2048;

/// Pieces of a frame that are sent before the sender waits for a credit.
const WINDOW: usize = 64;

/// A piece: 1 if it ends its frame, else 0, and the bytes. One tag for all, because MPI keeps the order of messages within a tag.
const PIECE: Tag = 1;
/// The receiver has taken `WINDOW` pieces.
const CREDIT: Tag = 2;

/// How long a wait uses the CPU, so that an exchange of clocks is quick; after that it sleeps between two looks.
const SPIN: Duration = Duration::from_millis(1);
const SLEEP: Duration = Duration::from_micros(500);

/// After the launcher's signal: how long the root waits for the next piece of any rank, and how long they wait for the root's.
const ROOT_ENDS: Duration = Duration::from_millis(250);
const OTHERS_END: Duration = Duration::from_millis(700);

/// Joins the processes that the launcher started; None if no launcher started this one. `ending` is set when the launcher
/// asks this process to end.
///
/// # Errors
/// If the library was built for another launcher; if a process does not join in time.
pub fn join(ending: &Arc<AtomicBool>, until: Instant) -> Result<Option<Ranks>, RanksError> {
    let Some(launch) = launched() else { return Ok(None) };
    let failed = |why: String| RanksError::Start {
        what: "join the processes that mpirun started".to_owned(),
        source: io::Error::other(why),
    };
    let (universe, _) = mpi::initialize_with_threading(Threading::Serialized)
        .ok_or_else(|| failed("MPI was initialised before".to_owned()))?;
    let world = SimpleCommunicator::world();
    let (rank, size) = (world.rank() as u32, world.size() as u32);
    let pieces = vec![Pieces::default(); size as usize];
    let ending = Ending {
        asked: Arc::clone(ending),
        seen: None,
        grace: if rank == 0 { ROOT_ENDS } else { OTHERS_END },
    };
    let mpi = Mpi { universe: Some(universe), rank, size, pieces, ending, ended_well: false };
    if size != launch.size {
        let library = library_version().unwrap_or_default();
        let library = library.split([',', '\n', '\0']).next().unwrap_or_default();
        let (started, seen) = (launch.size, size);
        return Err(failed(format!(
            "it started {started}, and {library}, which this program uses, sees {seen}"
        )));
    }
    Ranks::join(Box::new(mpi), until).map(Some)
}

/// What has arrived of a frame of one rank.
#[derive(Debug, Clone, Default)]
struct Pieces {
    bytes: Vec<u8>,
    taken: usize,
}

/// Whether the launcher ends this process.
#[derive(Debug, Clone)]
struct Ending {
    asked: Arc<AtomicBool>,
    /// When that was noticed, or the last piece came after that.
    seen: Option<Instant>,
    grace: Duration,
}

impl Ending {
    /// The end of a wait that would end at `until`.
    fn before(&mut self, until: Instant) -> Instant {
        if self.seen.is_none() && self.asked.load(Ordering::Relaxed) {
            self.seen = Some(Instant::now());
        }
        self.seen.map_or(until, |seen| until.min(seen + self.grace))
    }
}

struct Mpi {
    /// None once it is given up.
    universe: Option<Universe>,
    rank: u32,
    size: u32,
    pieces: Vec<Pieces>,
    ending: Ending,
    ended_well: bool,
}

impl Mpi {
    /// Takes what has arrived, up to the end of a frame.
    fn take(&mut self) -> io::Result<Option<Received>> {
        let world = SimpleCommunicator::world();
        while let Some(arrived) = world.any_process().immediate_matched_probe_with_tag(PIECE) {
            let (piece, status): (Vec<u8>, Status) = arrived.matched_receive_vec();
            let rank = status.source_rank();
            let pieces = &mut self.pieces[rank as usize];
            let (last, bytes) = piece.split_first().ok_or(io::ErrorKind::InvalidData)?;
            pieces.bytes.extend(bytes);
            pieces.taken += 1;
            self.ending.seen = self.ending.seen.map(|_| Instant::now());
            if pieces.bytes.len() > HEAD_BYTES + PAYLOAD_MAX_BYTES {
                return Err(io::Error::other(format!("a frame of rank {rank} is too long")));
            }
            if *last == 1 {
                let bytes = std::mem::take(pieces).bytes;
                return Ok(Some(Received::Frame { from: rank as u32, bytes }));
            }
            if pieces.taken.is_multiple_of(WINDOW) {
                world.process_at_rank(rank).send_with_tag(&[0_u8; 0][..], CREDIT);
            }
        }
        Ok(None)
    }
}

/// Looks for something until it is there; None if it is not in time.
fn poll<S, T>(
    until: Instant,
    side: &mut S,
    ending: impl Fn(&mut S) -> &mut Ending,
    mut look: impl FnMut(&mut S) -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let begun = Instant::now();
    loop {
        let until = ending(side).before(until);
        if let Some(found) = look(side)? {
            return Ok(Some(found));
        }
        let now = Instant::now();
        if now >= until {
            return Ok(None);
        }
        if now - begun < SPIN { yield_now() } else { sleep(SLEEP.min(until - now)) }
    }
}

impl Transport for Mpi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, to: u32, frame: &[u8], until: Instant) -> io::Result<()> {
        let world = SimpleCommunicator::world();
        let to = world.process_at_rank(to as i32);
        let pieces = frame.len().div_ceil(PIECE_BYTES);
        for (number, bytes) in (1..).zip(frame.chunks(PIECE_BYTES)) {
            let last = number == pieces;
            to.send_with_tag(&[&[u8::from(last)], bytes].concat()[..], PIECE);
            if !last && number.is_multiple_of(WINDOW) {
                let credit = poll(
                    until,
                    &mut self.ending,
                    |ending| ending,
                    |_| Ok(to.immediate_matched_probe_with_tag(CREDIT)),
                )?;
                let _: (Vec<u8>, Status) = credit.ok_or(io::ErrorKind::TimedOut)?.matched_receive_vec();
            }
        }
        Ok(())
    }

    fn receive(&mut self, until: Instant) -> io::Result<Received> {
        let received = poll(until, self, |mpi| &mut mpi.ending, Self::take)?;
        Ok(received.unwrap_or(Received::Nothing))
    }

    fn close(&mut self, _until: Instant) -> Option<(u32, String)> {
        self.ended_well = true;
        None
    }
}

/// `MPI_Finalize` waits for every process, so that it is called only after all of them came to their end. A process that
/// ends without it has the launcher end the others: the root is given time to say what is known.
impl Drop for Mpi {
    fn drop(&mut self) {
        if !self.ended_well {
            if self.rank != 0 {
                sleep(OTHERS_END);
            }
            forget(self.universe.take());
        }
    }
}
