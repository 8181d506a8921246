//! What becomes of requests, connections and hosts when connections are lost: the second part of a fleet's argument.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nbd::client::ConnectError;

use super::super::link::Broken;
use super::super::{Again, RemoteError};
use super::mailbox::connect_again;
use super::{Fleet, State};

/// How often a request is sent at most.
const MOST_ATTEMPTS: u8 = 6;
/// After how many times its time-out a request fails on a connection that answers others.
const OVERTAKEN: u32 = 10;
/// How often silent connections are looked for, milliseconds.
pub(super) const LOOK: u32 = 200;

impl Fleet {
    /// Gives a connection up, and deals with what was under way on it.
    #[cold]
    pub(super) fn lose(&mut self, number: u32, broken: Broken) {
        let link = &mut self.links[number as usize];
        let host = &mut self.hosts[link.host as usize];
        let name = host.remote.host().to_owned();
        let words = match &broken {
            Broken::Closed => "closed by the server".to_owned(),
            Broken::Io(error) => error.to_string(),
            Broken::Protocol(error) => error.to_string(),
        };
        link.state = State::Lost(words.clone());
        link.in_flight = 0;
        link.fruitless += 1;
        host.up -= 1;
        host.handle.lost();
        if let Broken::Protocol(error) = broken {
            let number = link.host;
            return self.bury(number, Arc::new(RemoteError::protocol(&name, error)));
        }
        if host.up == 0 {
            host.lost_since.get_or_insert(self.now);
        }
        let timeout = host.remote.timeout();
        // Where others are up there is no hurry; where none is, what is left of the host's patience counts.
        let gone = host.lost_since.filter(|_| host.up == 0).map_or(0, |since| self.now - since);
        let patience = timeout.saturating_sub(Duration::from_millis(u64::from(gone)));
        self.send_again(number, &words);
        self.replace(number, patience);
    }

    /// Finds another connection for what was under way on one that was lost.
    fn send_again(&mut self, number: u32, words: &str) {
        for place in 0..self.table.len() {
            let entry = self.table.get(place);
            if !entry.under_way || entry.link != number {
                continue;
            }
            let host = &self.hosts[entry.call.host as usize];
            let (timeout, waited) = (host.remote.timeout(), self.now - entry.since);
            if u128::from(waited) >= timeout.as_millis() && self.is_overdue(place, number) {
                let host = host.remote.host().to_owned();
                let waited = Duration::from_millis(u64::from(waited));
                self.fail(place, Arc::new(RemoteError::Silent { host, waited, timeout }));
            } else if entry.attempts >= MOST_ATTEMPTS {
                let (host, lost, attempts) =
                    (host.remote.host().to_owned(), words.to_owned(), entry.attempts);
                self.fail(place, Arc::new(RemoteError::LostAgain { host, lost, attempts }));
            } else {
                self.assign(place);
            }
        }
    }

    /// Whether a request has been without an answer for too long.
    fn is_overdue(&self, place: u32, number: u32) -> bool {
        let entry = self.table.get(place);
        let timeout = self.hosts[entry.call.host as usize].remote.timeout().as_millis();
        let silent = u128::from(self.now - self.links[number as usize].heard) >= timeout;
        let old = u128::from(self.now - entry.since);
        (silent && old >= timeout) || old >= timeout * u128::from(OVERTAKEN)
    }

    /// Has a thread connect in the place of a link that was lost.
    fn replace(&mut self, number: u32, patience: Duration) {
        let remote = Arc::clone(&self.hosts[self.links[number as usize].host as usize].remote);
        let mailbox = Arc::clone(&self.mailbox);
        let fruitless = self.links[number as usize].fruitless;
        let name = format!("nbd-connect-{number}");
        let spawned = std::thread::Builder::new()
            .name(name)
            .spawn(move || connect_again(&remote, number, fruitless, patience, &mailbox));
        if let Err(source) = spawned {
            let host = self.hosts[self.links[number as usize].host as usize].remote.host().to_owned();
            let error = RemoteError::Local { host, operation: "start a thread", source };
            self.mailbox.deliver(number, Err(Again::Changed(error)));
        }
    }

    /// Goes on with what was interrupted for others' sake, and takes what threads have delivered.
    #[cold]
    pub(super) fn answer_the_bell(&mut self) {
        for number in 0..self.links.len() as u32 {
            if matches!(&self.links[number as usize].state, State::Up(connection) if connection.has_more) {
                self.receive(number);
            }
        }
        self.take_mail();
    }

    /// Takes the connections that threads have made, and their failures.
    fn take_mail(&mut self) {
        let arrived = std::mem::take(&mut self.mailbox.mail().arrived);
        for (number, result) in arrived {
            let host = self.links[number as usize].host;
            if self.hosts[host as usize].dead.is_some() {
                continue;
            }
            let installed = match result {
                Ok(session) => self.install(number, session).map_err(Again::Changed),
                Err(error) => Err(error),
            };
            match installed {
                Ok(()) => self.assign_waiting(host),
                Err(Again::Changed(error)) => self.bury(host, Arc::new(error)),
                Err(Again::Failed(error)) => self.do_without(number, error),
            }
        }
    }

    /// A connection could not be had again.
    fn do_without(&mut self, number: u32, source: Box<ConnectError>) {
        let before = std::mem::replace(&mut self.links[number as usize].state, State::Gone);
        let State::Lost(lost) = before else { return };
        let number = self.links[number as usize].host;
        let host = &self.hosts[number as usize];
        let mut others = self.links[host.first as usize..(host.first + host.count) as usize].iter();
        if others.any(|link| !matches!(link.state, State::Gone)) {
            return;
        }
        let (timeout, host) = (host.remote.timeout(), host.remote.host().to_owned());
        self.bury(number, Arc::new(RemoteError::Died { host, lost, timeout, source }));
    }

    /// Gives a host up: nothing is asked of it any more.
    #[cold]
    fn bury(&mut self, number: u32, error: Arc<RemoteError>) {
        let host = &mut self.hosts[number as usize];
        host.dead = Some(Arc::clone(&error));
        host.waiting.clear();
        host.up = 0;
        host.handle.lost();
        for link in host.first..host.first + host.count {
            let link = &mut self.links[link as usize];
            link.state = State::Gone;
            link.in_flight = 0;
        }
        for place in 0..self.table.len() {
            let entry = self.table.get(place);
            if entry.under_way && entry.call.host == number {
                self.fail(place, Arc::clone(&error));
            }
        }
    }

    /// Gives up connections that have been silent, or keep a request waiting, for too long.
    #[cold]
    pub(super) fn look_for_silence(&mut self) {
        self.next_look = self.now.saturating_add(LOOK);
        for number in 0..self.links.len() as u32 {
            let link = &self.links[number as usize];
            if link.in_flight == 0 || !matches!(link.state, State::Up(_)) {
                continue;
            }
            let overdue = (0..self.table.len()).any(|place| {
                let entry = self.table.get(place);
                entry.under_way && entry.link == number && self.is_overdue(place, number)
            });
            if overdue {
                self.lose(number, Broken::Io(io::ErrorKind::TimedOut.into()));
            }
        }
    }
}
