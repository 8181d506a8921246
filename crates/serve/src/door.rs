//! Who is let in: the places that connections have, and who gives one up when there are none left.
//!
//! A place belongs to its connection ([`Seat`]) and is given back when that is dropped, by nobody else and once: a
//! connection that is refused never had one.
//!
//! **A crowd keeps nobody out for ever.** At a full door the first of these that applies gives its place to the newcomer:
//!
//! 1. of a peer that has more than half of the places, where the newcomer's peer has less than that: its oldest
//!    handshake; else the connection without a request for longest; else the one with requests under way that came last.
//!    However little or much such a peer asks, it cannot keep others out;
//! 2. the oldest handshake that has taken more than [`HURRY`];
//! 3. any connection that has had no request for [`IDLE`]: the one that had none for longest.
//!
//! So a connection with requests under way keeps its place, unless its peer has more than its share. A peer is a user on a
//! Unix socket, an address of IPv4, and a network of 64 bits of IPv6, which is what one host has at least.
//!
//! A connection that is to go is shut down, so that its thread finds the end of its input at once, whatever it waits
//! for. Its place is free for the newcomer from then on; threads that have not seen it yet are bounded by twice the
//! number of places.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

/// How long a handshake may take at a full door.
pub(crate) const HURRY: Duration = Duration::from_secs(1);
/// How long a connection may be without a request at a full door.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// Whose connection it is, for shares of the places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A user of this host.
    User(u32),
    /// A host, or a network of which one host has all addresses.
    Host(IpAddr),
    /// A peer that the kernel does not name.
    Unknown,
}

impl Peer {
    /// The peer at an address.
    pub fn at(address: IpAddr) -> Self {
        Self::Host(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            address => address,
        })
    }
}

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It agrees on an export, since it was accepted.
    Handshake,
    /// It has requests under way, or had until a moment ago.
    Work,
    /// It waits for a request, since then.
    Rest(Instant),
}

#[derive(Debug)]
struct Holder {
    peer: Peer,
    socket: OwnedFd,
    accepted: Instant,
    doing: Doing,
    /// It was told to go.
    leaves: bool,
}

impl Holder {
    /// Since when it could give its place up.
    fn waits_since(&self) -> Option<Instant> {
        match self.doing {
            Doing::Handshake => Some(self.accepted),
            Doing::Rest(since) => Some(since),
            Doing::Work => None,
        }
    }
}

#[derive(Debug, Default)]
struct Held {
    last: u64,
    holders: BTreeMap<u64, Holder>,
}

impl Held {
    /// Those that were not told to go.
    fn staying(&self) -> impl Iterator<Item = (u64, &Holder)> {
        self.holders.iter().filter(|(_, holder)| !holder.leaves).map(|(number, holder)| (*number, holder))
    }

    fn of(&self, peer: Peer) -> usize {
        self.staying().filter(|(_, holder)| holder.peer == peer).count()
    }

    /// The connection that gives its place to `newcomer`: see the module's argument.
    fn gives_way(&self, newcomer: Peer, most: usize, now: Instant) -> Option<u64> {
        let share = most.div_ceil(2);
        if self.of(newcomer) < share {
            let surplus = self
                .staying()
                .filter(|(_, holder)| self.of(holder.peer) > share)
                .min_by_key(|(number, holder)| match holder.doing {
                    Doing::Handshake => (0, Some(holder.accepted), 0),
                    Doing::Rest(since) => (1, Some(since), 0),
                    Doing::Work => (2, None, u64::MAX - number),
                })
                .map(|(number, _)| number);
            if surplus.is_some() {
                return surplus;
            }
        }
        let longest = |least: Duration, may: &dyn Fn(&Holder) -> bool| {
            self.staying()
                .filter(|(_, holder)| may(holder))
                .filter_map(|(number, holder)| Some((holder.waits_since()?, number)))
                .filter(|(since, _)| now.saturating_duration_since(*since) >= least)
                .min()
                .map(|(_, number)| number)
        };
        longest(HURRY, &|holder| holder.doing == Doing::Handshake).or_else(|| longest(IDLE, &|_| true))
    }
}

/// The places of a server.
#[derive(Debug)]
pub(crate) struct Door {
    most: usize,
    held: Mutex<Held>,
}

impl Door {
    /// With so many places.
    pub fn new(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    /// A place for a connection, if there is one or one is given up for it.
    ///
    /// # Errors
    /// There is no descriptor left to keep its socket by.
    pub fn enter(&self, peer: Peer, socket: BorrowedFd<'_>) -> io::Result<Option<Seat<'_>>> {
        let socket = socket.try_clone_to_owned()?;
        let now = Instant::now();
        let mut held = self.held();
        if held.staying().count() >= self.most {
            if held.holders.len() >= 2 * self.most {
                return Ok(None);
            }
            let Some(number) = held.gives_way(peer, self.most, now) else { return Ok(None) };
            if let Some(holder) = held.holders.get_mut(&number) {
                holder.leaves = true;
                // It may have been closed by its other end, which comes to the same.
                let _ = shutdown(&holder.socket, Shutdown::Both);
            }
        }
        held.last += 1;
        let number = held.last;
        let holder = Holder { peer, socket, accepted: now, doing: Doing::Handshake, leaves: false };
        held.holders.insert(number, holder);
        Ok(Some(Seat { door: self, number }))
    }

    /// Connections that have a place, with those that were told to go and have not gone.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.held().holders.len()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place, which it has until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat<'d> {
    door: &'d Door,
    number: u64,
}

impl Seat<'_> {
    /// It has requests under way from here on.
    pub fn works(&self) {
        self.does(Doing::Work);
    }

    /// It has waited for a request since then.
    pub fn rests(&self, since: Instant) {
        self.does(Doing::Rest(since));
    }

    /// Whether it was told to go.
    pub fn must_go(&self) -> bool {
        self.door.held().holders.get(&self.number).is_some_and(|holder| holder.leaves)
    }

    fn does(&self, doing: Doing) {
        if let Some(holder) = self.door.held().holders.get_mut(&self.number) {
            holder.doing = doing;
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.door.held().holders.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const ALICE: Peer = Peer::User(1);
    const BOB: Peer = Peer::User(2);
    const CAROL: Peer = Peer::User(3);

    /// A connection: what the server has of it, and the client's end.
    struct Connection<'d> {
        place: Seat<'d>,
        _server: UnixStream,
        client: UnixStream,
    }

    impl Connection<'_> {
        fn was_shut(&mut self) -> bool {
            self.client.set_nonblocking(true).expect("can be set");
            matches!(self.client.read(&mut [0; 1]), Ok(0))
        }
    }

    fn come(door: &Door, peer: Peer) -> Option<Connection<'_>> {
        let (server, client) = UnixStream::pair().expect("a pair");
        let place = door.enter(peer, server.as_fd()).expect("has descriptors")?;
        Some(Connection { place, _server: server, client })
    }

    /// As if its state had lasted for so long.
    fn age(connection: &Connection<'_>, by: Duration) {
        let mut held = connection.place.door.held();
        let holder = held.holders.get_mut(&connection.place.number).expect("is there");
        holder.accepted = holder.accepted.checked_sub(by).expect("the clock is older");
        if let Doing::Rest(since) = &mut holder.doing {
            *since = since.checked_sub(by).expect("the clock is older");
        }
    }

    #[test]
    fn who_is_refused_gives_back_nothing() {
        let door = Door::new(4);
        let mut inside: Vec<_> = (0..4).filter_map(|_| come(&door, ALICE)).collect();
        for _ in 0..5000 {
            assert!(come(&door, ALICE).is_none());
            assert_eq!(door.count(), 4);
        }
        inside.clear();
        assert_eq!(door.count(), 0);
    }

    #[test]
    fn a_handshake_that_takes_long_gives_way_and_one_under_way_does_not() {
        let door = Door::new(2);
        let (mut slow, quick) = (come(&door, ALICE).expect("room"), come(&door, CAROL).expect("room"));
        assert!(come(&door, BOB).is_none(), "nobody is late");
        age(&slow, HURRY);
        let newcomer = come(&door, BOB).expect("a place is given up");
        assert!(slow.was_shut() && slow.place.must_go() && !quick.place.must_go());
        assert_eq!(door.count(), 3, "the one who leaves has not gone");
        drop(slow);
        assert_eq!(door.count(), 2);
        drop((quick, newcomer));
        assert_eq!(door.count(), 0);
    }

    #[test]
    fn a_peer_with_more_than_its_share_makes_room_for_another_and_not_for_itself() {
        let door = Door::new(4);
        let alice: Vec<_> = (0..4).filter_map(|_| come(&door, ALICE)).collect();
        for (nth, connection) in (1..).zip(&alice) {
            connection.place.rests(Instant::now());
            age(connection, HURRY * nth);
        }
        assert!(come(&door, ALICE).is_none(), "she has more than her share");
        let bob: Vec<_> = (0..4).filter_map(|_| come(&door, BOB)).collect();
        assert_eq!(bob.len(), 2, "until each has half");
        let gone: Vec<bool> = alice.iter().map(|connection| connection.place.must_go()).collect();
        assert_eq!(gone, [false, false, true, true], "those silent for longest");
    }

    #[test]
    fn no_peer_keeps_others_out_by_what_it_does() {
        let door = Door::new(6);
        let alice: Vec<_> = (0..6).filter_map(|_| come(&door, ALICE)).collect();
        // Always at work, or at rest since a moment ago; the last one has only just come.
        alice[..3].iter().for_each(|connection| connection.place.works());
        alice[3..5].iter().for_each(|connection| connection.place.rests(Instant::now()));
        assert!(come(&door, ALICE).is_none(), "she has more than her share");
        let mut gone = Vec::new();
        let bob: Vec<_> = (0..6)
            .filter_map(|_| {
                let bob = come(&door, BOB)?;
                bob.place.works();
                gone.extend(
                    (0..6)
                        .filter(|nth| alice[*nth].place.must_go() && !gone.contains(nth))
                        .collect::<Vec<_>>(),
                );
                Some(bob)
            })
            .collect();
        assert_eq!((bob.len(), gone), (3, vec![5, 3, 4]), "the handshake, and those at rest");
        drop(bob);
        let door = Door::new(4);
        let alice: Vec<_> = (0..4).filter_map(|_| come(&door, ALICE)).collect();
        alice.iter().for_each(|connection| connection.place.works());
        assert_eq!(
            (0..4).filter_map(|_| come(&door, BOB)).collect::<Vec<_>>().len(),
            2,
            "as many as are his"
        );
        let gone: Vec<bool> = alice.iter().map(|connection| connection.place.must_go()).collect();
        assert_eq!(gone, [false, false, true, true], "those that came last");
    }

    #[test]
    fn a_connection_with_requests_under_way_stays() {
        let door = Door::new(1);
        let busy = come(&door, ALICE).expect("room");
        busy.place.works();
        age(&busy, IDLE * 10);
        assert!(come(&door, BOB).is_none());
        busy.place.rests(Instant::now());
        assert!(come(&door, BOB).is_none(), "it rests since a moment ago");
        age(&busy, IDLE);
        let newcomer = come(&door, BOB).expect("a place is given up");
        newcomer.place.works();
        assert!(come(&door, BOB).is_none(), "twice as many threads as places are the most");
    }

    #[test]
    fn the_addresses_of_one_host_are_one_peer() {
        let at = |text: &str| Peer::at(text.parse().expect("an address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:3:4:5"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
