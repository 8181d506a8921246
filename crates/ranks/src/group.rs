//! Collectives over a [`Transport`], and who is lost.
//!
//! Each collective is one exchange: every other rank sends a contribution *up*, the root waits for all of them and sends an answer
//! *down*, which ends it. So no rank leaves a collective before every rank has entered it, and a frame of another
//! collective is always a fault. Clock offsets put pings between the two.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::system::uname;
use serde::{Deserialize, Serialize};

use crate::clock::{ClockOffset, now_ns};
use crate::error::{Lost, RanksError, Why};
use crate::frame::{Kind, PAYLOAD_MAX_BYTES, decode, encode};
use crate::transport::{Alone, Received, Transport};

/// How much longer than the deadline a rank waits for the root's answer, in which the root names the rank that is lost.
pub const ROOT_GRACE: Duration = Duration::from_secs(2);

/// How long the root tries to tell the other ranks of a lost one, altogether.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval at which a wait looks whether it is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// A rank, as all others know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name of its node.
    pub node: String,
    /// Its number among the ranks of its node.
    pub rank_on_node: u32,
    /// Its process on that node.
    pub pid: u32,
}

/// This process among others that do one thing with it.
///
/// # Errors
/// What all ranks do together fails with [`Lost`] where one of them does not come in time, ended, or is out of step, and so does
/// every such call after it.
pub struct Ranks {
    transport: Box<dyn Transport>,
    members: Vec<Member>,
    /// Number of the collective.
    sequence: u32,
    /// When this rank entered it.
    begun: Instant,
    lost: Option<Lost>,
    stop: Option<Arc<AtomicBool>>,
}

impl Ranks {
    /// Meets the others.
    ///
    /// # Errors
    /// [`Lost`] where a rank does not come in time.
    pub fn join(transport: Box<dyn Transport>, until: Instant) -> Result<Self, RanksError> {
        let node = uname().nodename().to_string_lossy().into_owned();
        let begun = Instant::now();
        let mut ranks = Self { transport, members: Vec::new(), sequence: 0, begun, lost: None, stop: None };
        let own = (node, std::process::id());
        let gathered = ranks.gather(&json(&own), until)?;
        let members = gathered.map(|all| json(&meet(&all)));
        let members = ranks.broadcast(members.as_deref(), until)?;
        ranks.members = serde_json::from_slice(&members)
            .map_err(|error| ranks.lose(0, Why::OutOfStep(format!("its list of ranks: {error}"))))?;
        Ok(ranks)
    }

    /// The number of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.transport.rank()
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.transport.size()
    }

    /// Whether this process is rank 0.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.rank() == 0
    }

    /// All ranks, by number.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Has collectives of this rank end, as if it had [failed](Self::fail), once the flag is set.
    pub fn stop_on(&mut self, flag: Arc<AtomicBool>) {
        self.stop = Some(flag);
    }

    /// Returns once every rank has called it.
    pub fn barrier(&mut self, until: Instant) -> Result<(), RanksError> {
        self.gather(&[], until).map(drop)
    }

    /// Every rank's bytes, by number, at the root; None at the others.
    ///
    /// # Errors
    /// [`Lost`]; more bytes than a message may have.
    pub fn gather(&mut self, bytes: &[u8], until: Instant) -> Result<Option<Vec<Vec<u8>>>, RanksError> {
        fits(bytes)?;
        self.begin()?;
        if self.is_root() {
            let mut all = self.collect(Kind::Up, until)?;
            all[0] = bytes.to_vec();
            self.answer(&[], until)?;
            return Ok(Some(all));
        }
        self.contribute(bytes, until)?;
        self.await_answer(until).map(|_| None)
    }

    /// The root's bytes at every rank. The others give None.
    ///
    /// # Errors
    /// [`Lost`]; more bytes than a message may have.
    ///
    /// # Panics
    /// At the root without bytes.
    pub fn broadcast(&mut self, bytes: Option<&[u8]>, until: Instant) -> Result<Vec<u8>, RanksError> {
        if self.is_root() {
            let bytes = bytes.expect("the root has the bytes of a broadcast");
            fits(bytes)?;
            self.begin()?;
            self.collect(Kind::Up, until)?;
            self.answer(bytes, until)?;
            return Ok(bytes.to_vec());
        }
        self.begin()?;
        self.contribute(&[], until)?;
        self.await_answer(until)
    }

    /// How far each rank's clock is ahead of the root's, by the quickest of `rounds` exchanges with each; every rank gets all.
    pub fn clock_offsets(&mut self, rounds: u32, until: Instant) -> Result<Vec<ClockOffset>, RanksError> {
        self.begin()?;
        let bytes = if self.is_root() {
            self.collect(Kind::Up, until)?;
            let mut offsets = vec![ClockOffset { offset_ns: 0, round_trip_ns: 0 }];
            for rank in 1..self.size() {
                let quickest = self.ping(rank, rounds.max(1), until)?;
                offsets.push(quickest);
            }
            let bytes = json(&offsets);
            self.answer(&bytes, until)?;
            bytes
        } else {
            self.contribute(&[], until)?;
            self.await_answer(until)?
        };
        let offsets = serde_json::from_slice(&bytes);
        Ok(offsets.map_err(|error| self.lose(0, Why::OutOfStep(format!("its clock offsets: {error}"))))?)
    }

    /// Reports an error of this rank's own, which ends the work of all. The error that every rank gets.
    pub fn fail(&mut self, why: &str) -> Lost {
        if self.lost.is_none() && !self.is_root() {
            // Shortened so that it is always sent; if it is not, the end of this process says the rest.
            let why: String = why.chars().take(4096).collect();
            let frame = encode(Kind::Failed, self.sequence, why.as_bytes());
            let _ = self.transport.send(0, &frame, Instant::now() + ABORT_TIMEOUT);
        }
        let rank = self.rank();
        self.lose(rank, Why::Failed(why.to_owned()))
    }

    /// Ends the work together: a barrier, after which the other ranks return; the root waits until they have ended.
    ///
    /// # Errors
    /// [`Lost`], also for a rank that ends with a failure after the barrier.
    pub fn finish(mut self, until: Instant) -> Result<(), RanksError> {
        self.barrier(until)?;
        match self.transport.close(until) {
            Some((rank, how)) => Err(self.lose(rank, Why::Ended(Some(how))).into()),
            None => Ok(()),
        }
    }

    /// Ends the processes of the other ranks at once, with what they are doing: with SIGKILL where this one started them.
    pub fn kill(&mut self) {
        self.transport = Box::new(Alone);
    }

    fn begin(&mut self) -> Result<(), Lost> {
        self.sequence = self.sequence.wrapping_add(1);
        self.begun = Instant::now();
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// At the root: a frame of each other rank.
    fn collect(&mut self, kind: Kind, until: Instant) -> Result<Vec<Vec<u8>>, Lost> {
        let mut all: Vec<Option<Vec<u8>>> = vec![None; self.size() as usize];
        all[0] = Some(Vec::new());
        while let Some(missing) = all.iter().position(Option::is_none) {
            let (from, payload) = self.next(kind, until)?.ok_or_else(|| self.late(missing as u32))?;
            if all[from as usize].replace(payload).is_some() {
                return Err(self.lose(from, Why::OutOfStep("it answered twice".to_owned())));
            }
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// The next frame of a kind, with its sender; None if there is none in time.
    fn next(&mut self, kind: Kind, until: Instant) -> Result<Option<(u32, Vec<u8>)>, Lost> {
        let (from, bytes) = match self.receive(until) {
            Ok(Received::Frame { from, bytes }) => (from, bytes),
            Ok(Received::Ended { from }) => {
                let how = self.transport.fate(from);
                return Err(self.lose(from, Why::Ended(how)));
            }
            Ok(Received::Nothing) => return Ok(None),
            Err(error) => {
                let rank = self.rank();
                return Err(self.lose(rank, Why::Failed(error.to_string())));
            }
        };
        if let Some(lost) = self.report(from, &bytes) {
            return Err(lost);
        }
        match decode(&bytes) {
            Some((Kind::Ping, sequence, _)) if !self.is_root() && sequence == self.sequence => {
                let pong = encode(Kind::Pong, sequence, &now_ns().to_le_bytes());
                let _ = self.transport.send(0, &pong, until);
                self.next(kind, until)
            }
            Some((got, sequence, payload)) if got == kind && sequence == self.sequence => {
                Ok(Some((from, payload.to_vec())))
            }
            Some((got, sequence, _)) => {
                let what = format!("{got:?} {sequence} in place of {kind:?} {}", self.sequence);
                Err(self.lose(from, Why::OutOfStep(what)))
            }
            None => Err(self.lose(from, Why::OutOfStep("it sent what is no message".to_owned()))),
        }
    }

    fn receive(&mut self, until: Instant) -> io::Result<Received> {
        loop {
            if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(io::Error::other("interrupted"));
            }
            let slice = self.stop.as_ref().map_or(until, |_| until.min(Instant::now() + STOP_INTERVAL));
            match self.transport.receive(slice)? {
                Received::Nothing if slice < until => {}
                received => return Ok(received),
            }
        }
    }

    fn answer(&mut self, bytes: &[u8], until: Instant) -> Result<(), Lost> {
        for rank in 1..self.size() {
            self.send(rank, Kind::Down, bytes, until)?;
        }
        Ok(())
    }

    fn contribute(&mut self, bytes: &[u8], until: Instant) -> Result<(), Lost> {
        self.send(0, Kind::Up, bytes, until + ROOT_GRACE)
    }

    fn await_answer(&mut self, until: Instant) -> Result<Vec<u8>, RanksError> {
        let answer = self.next(Kind::Down, until + ROOT_GRACE)?;
        let answer = answer.ok_or_else(|| self.late(0))?;
        Ok(answer.1)
    }

    fn send(&mut self, to: u32, kind: Kind, bytes: &[u8], until: Instant) -> Result<(), Lost> {
        let Err(error) = self.transport.send(to, &encode(kind, self.sequence, bytes), until) else {
            return Ok(());
        };
        if error.kind() == io::ErrorKind::TimedOut {
            return Err(self.late(to));
        }
        Err(self.ended(to))
    }

    /// The end of a rank that takes no message any more. What it said before tells more than that it ended; what others
    /// have sent meanwhile is of no use now.
    fn ended(&mut self, rank: u32) -> Lost {
        while let Ok(received) = self.transport.receive(Instant::now()) {
            match received {
                Received::Frame { from, bytes } if from == rank => {
                    if let Some(lost) = self.report(from, &bytes) {
                        return lost;
                    }
                }
                Received::Ended { from } if from == rank => break,
                Received::Nothing => break,
                _ => {}
            }
        }
        let how = self.transport.fate(rank);
        self.lose(rank, Why::Ended(how))
    }

    /// Who is lost, if that is what a frame says.
    fn report(&mut self, from: u32, frame: &[u8]) -> Option<Lost> {
        match decode(frame)? {
            (Kind::Failed, _, why) => {
                let why = String::from_utf8_lossy(why).into_owned();
                Some(self.lose(from, Why::Failed(why)))
            }
            (Kind::Abort, _, lost) if !self.is_root() => Some(match serde_json::from_slice::<Lost>(lost) {
                Ok(lost) => self.lost.insert(lost).clone(),
                Err(error) => self.lose(from, Why::OutOfStep(error.to_string())),
            }),
            _ => None,
        }
    }

    fn ping(&mut self, rank: u32, rounds: u32, until: Instant) -> Result<ClockOffset, Lost> {
        let mut quickest: Option<ClockOffset> = None;
        for _ in 0..rounds {
            let asked = now_ns();
            self.send(rank, Kind::Ping, &[], until)?;
            let pong = self.next(Kind::Pong, until)?;
            let answered = now_ns();
            let time = pong.ok_or_else(|| self.late(rank))?;
            let theirs = time.1.try_into().map(i64::from_le_bytes);
            let theirs =
                theirs.map_err(|_| self.lose(rank, Why::OutOfStep("its time is no number".to_owned())))?;
            let offset = ClockOffset::of(asked, theirs, answered);
            if quickest.is_none_or(|quickest| offset.round_trip_ns < quickest.round_trip_ns) {
                quickest = Some(offset);
            }
        }
        Ok(quickest.expect("there is a round at least"))
    }

    /// The loss of a rank that has not done its part of this collective in time.
    fn late(&mut self, rank: u32) -> Lost {
        let waited_ms = self.begun.elapsed().as_millis() as u64;
        self.lose(rank, Why::Late(waited_ms))
    }

    /// Records who is lost; the first counts. The root tells the others.
    fn lose(&mut self, rank: u32, why: Why) -> Lost {
        if let Some(lost) = &self.lost {
            return lost.clone();
        }
        let node = self.members.get(rank as usize).map(|member| member.node.clone());
        let node = node.unwrap_or_else(|| "a node not known yet".to_owned());
        let lost = Lost { rank, node, why };
        if self.is_root() {
            let frame = encode(Kind::Abort, self.sequence, &json(&lost));
            let until = Instant::now() + ABORT_TIMEOUT;
            for other in 1..self.size() {
                // A rank that does not take it ends by itself when its own deadline passes.
                let _ = self.transport.send(other, &frame, until);
            }
        }
        self.lost.insert(lost).clone()
    }
}

/// The list of ranks, from each one's node and process.
fn meet(all: &[Vec<u8>]) -> Vec<Member> {
    let mut on_node: BTreeMap<String, u32> = BTreeMap::new();
    let member = |bytes: &Vec<u8>| {
        let (node, pid): (String, u32) = serde_json::from_slice(bytes).unwrap_or_default();
        let next = on_node.entry(node.clone()).or_default();
        *next += 1;
        Member { node, rank_on_node: *next - 1, pid }
    };
    all.iter().map(member).collect()
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("names and numbers have a JSON form")
}

fn fits(bytes: &[u8]) -> Result<(), RanksError> {
    let (bytes, most) = (bytes.len(), PAYLOAD_MAX_BYTES);
    if bytes > most { Err(RanksError::TooLarge { bytes, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root's connection to a rank whose frame comes at the last moment, and which takes none.
    struct Deaf;

    impl Transport for Deaf {
        fn rank(&self) -> u32 {
            0
        }

        fn size(&self) -> u32 {
            2
        }

        fn send(&mut self, _to: u32, _frame: &[u8], _until: Instant) -> io::Result<()> {
            Err(io::ErrorKind::TimedOut.into())
        }

        fn receive(&mut self, until: Instant) -> io::Result<Received> {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            Ok(Received::Frame { from: 1, bytes: encode(Kind::Up, 1, &[]) })
        }
    }

    #[test]
    fn rank_that_takes_no_answer_is_late_by_the_time_of_the_whole_collective() {
        let limit = Duration::from_millis(80);
        let lost = Ranks::join(Box::new(Deaf), Instant::now() + limit).map(drop).unwrap_err();
        let RanksError::Lost(Lost { rank: 1, why: Why::Late(waited_ms), .. }) = lost else {
            panic!("{lost}")
        };
        assert!(waited_ms >= 79, "{waited_ms} ms");
    }
}
