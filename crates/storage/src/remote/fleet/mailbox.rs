//! Connections that threads of their own make, so that nobody else waits for them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nbd::client::Session;

use super::super::waiter::Bell;
use super::super::{Again, Remote};

/// The pause before the second attempt to connect; each later one is twice as long, up to a second.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where threads that connect leave what they have.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub mail: Mutex<Mail>,
    pub stopped: Condvar,
    pub bell: Bell,
}

#[derive(Debug, Default)]
pub(super) struct Mail {
    pub stop: bool,
    pub arrived: Vec<(u32, Result<Session, Again>)>,
}

impl std::fmt::Debug for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "{error}"),
            Self::Changed(error) => write!(f, "{error}"),
        }
    }
}

impl Mailbox {
    pub fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `pause`, or until there is nobody left to connect for; returns whether there is.
    fn pause(&self, pause: Duration) -> bool {
        let mail = self.mail();
        let waited = self.stopped.wait_timeout_while(mail, pause, |mail| !mail.stop);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }

    pub fn deliver(&self, link: u32, result: Result<Session, Again>) {
        self.mail().arrived.push((link, result));
        self.bell.ring();
    }
}

/// Connects until it works, time is up, or nobody is left to connect for.
pub(super) fn connect_again(
    remote: &Remote,
    link: u32,
    fruitless: u32,
    patience: Duration,
    mailbox: &Mailbox,
) {
    let begun = Instant::now();
    // The first attempt is made at once, unless connections are had and lost again.
    let mut pause = (PAUSE * (1 << fruitless.min(8))).min(LONGEST_PAUSE);
    if !mailbox.pause(if fruitless > 1 { pause } else { Duration::ZERO }) {
        return;
    }
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        let failed = match remote.again(left.max(PAUSE)) {
            Err(Again::Failed(error)) => error,
            result => return mailbox.deliver(link, result),
        };
        if begun.elapsed() + pause >= patience {
            return mailbox.deliver(link, Err(Again::Failed(failed)));
        }
        if !mailbox.pause(pause) {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
