//! Who is granted room, in which order, and where he writes then.
//!
//! A request is tried in one transaction of the ledger: the name is free, and all bounds hold after the grant. One that
//! does not fit now stands in its pool's queue until something has changed, its time is up, or it is stopped.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::ledger::{self, Reserved, Step};
use super::{Balance, LOOK, Pool, Pools, Request, Reservation, Shared, Waiting};
use stage::calls;
use stage::error::{StageError, shown};
use stage::names::PathText;
use stage::pace::Stop;

/// Why there is no room at the moment.
struct NoRoom {
    why: String,
    /// The room that is missing is missing in the user's own share.
    in_share: bool,
}

impl NoRoom {
    fn of_all(why: String) -> Self {
        Self { why, in_share: false }
    }
}

impl Pools {
    /// Reserves room and makes the directory to write to. Where there is none, waits for it as long as `wait` says, or
    /// not at all; what can never fit is refused at once.
    ///
    /// # Errors
    /// There is no such pool, the user has no place in it, the name is taken or no name; [`StageError::Refused`] where
    /// there is no room (in time), which says what holds it; [`StageError::Stopped`]; the kernel's and the ledger's.
    pub fn reserve(
        &self,
        request: &Request,
        wait: Option<Duration>,
        stop: &Stop,
    ) -> Result<Reservation, StageError> {
        self.reserve_while(request, wait, &|| !stop.asked())
    }

    /// The same for somebody who may go: `wanted` is asked every half second while there is no room.
    ///
    /// # Errors
    /// Those of [`Pools::reserve`].
    pub fn reserve_while(
        &self,
        request: &Request,
        wait: Option<Duration>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Reservation, StageError> {
        let pool = self.pool(&request.pool)?;
        self.check(pool, request)?;
        let until = wait.map(|wait| self.clock.now().steady.saturating_add(wait));
        let ticket = self.queue_up(request);
        let granted = loop {
            let no_room = match self.attempt(pool, request, ticket) {
                Ok(Err(no_room)) => no_room,
                Ok(Ok(row)) => break Ok(row),
                Err(error) => break Err(error),
            };
            let left = until.map(|until| until.saturating_sub(self.clock.now().steady));
            match left {
                _ if !wanted() => break Err(StageError::Stopped { what: "the wait for room".to_owned() }),
                None | Some(Duration::ZERO) => break Err(refused(request, &no_room, wait.is_some())),
                Some(left) => {
                    let patience = self.clock.patience(left.min(LOOK));
                    let shared = self.mark(&request.pool, ticket, no_room.in_share);
                    let slept = self.room.wait_timeout(shared, patience);
                    drop(slept.unwrap_or_else(PoisonError::into_inner));
                }
            }
        };
        if let Some(queue) = self.lock().queues.get_mut(&request.pool) {
            queue.retain(|waiting| waiting.ticket != ticket);
        }
        // Whoever is next may have room, now that this one has what it wants or has gone.
        self.room.notify_all();
        self.make(pool, granted?)
    }

    fn queue_up(&self, request: &Request) -> u64 {
        let mut shared = self.lock();
        shared.last_ticket += 1;
        let ticket = shared.last_ticket;
        let Request { owner, bytes, .. } = *request;
        let waiting = Waiting { ticket, owner, bytes, in_share: false };
        shared.queues.entry(request.pool.clone()).or_default().push_back(waiting);
        ticket
    }

    /// Notes what a request lacks. Where it has just turned out to be its own share alone, others need not wait for it.
    fn mark(&self, pool: &str, ticket: u64, in_share: bool) -> MutexGuard<'_, Shared> {
        let mut shared = self.lock();
        let mut queue = shared.queues.get_mut(pool).into_iter().flatten();
        if let Some(waiting) = queue.find(|waiting| waiting.ticket == ticket)
            && std::mem::replace(&mut waiting.in_share, in_share) != in_share
            && in_share
        {
            self.room.notify_all();
        }
        shared
    }

    /// How many stand before it.
    fn before(&self, request: &Request, ticket: u64) -> usize {
        let shared = self.lock();
        let queue = shared.queues.get(&request.pool).into_iter().flatten();
        let earlier = queue.take_while(|waiting| waiting.ticket != ticket);
        earlier.filter(|waiting| !waiting.in_share || waiting.owner == request.owner).count()
    }

    /// One attempt of whoever is first.
    fn attempt(
        &self,
        pool: &Pool,
        request: &Request,
        ticket: u64,
    ) -> Result<Result<Reserved, NoRoom>, StageError> {
        match self.before(request, ticket) {
            0 => self.try_reserve(pool, request),
            1 => Ok(Err(NoRoom::of_all("another request waits for room".to_owned()))),
            n => Ok(Err(NoRoom::of_all(format!("{n} other requests wait for room")))),
        }
    }

    /// What no waiting would change.
    fn check(&self, pool: &Pool, request: &Request) -> Result<(), StageError> {
        let Request { pool: name, owner, label, bytes, .. } = request;
        let config = &pool.config;
        if !ledger::is_label(label) {
            return Err(StageError::invalid(
                format!("{label:?} is no name for a set"),
                "up to 200 bytes, not beginning with a dot, without / and control characters",
            ));
        }
        if config.users.as_ref().is_some_and(|users| !users.contains(owner)) {
            return Err(StageError::refused(
                format!("user {owner} has no place in pool {name}"),
                "it is for those whom `users` in its configuration names",
            ));
        }
        let stat =
            calls::stat(pool.root.as_fd()).map_err(|error| StageError::io("stat", &config.path, error))?;
        ledger::check_sticky(&config.path, stat.stx_mode.into())?;
        let share = config.share();
        if *bytes > share {
            return Err(StageError::refused(
                format!(
                    "{} will never fit into pool {name}: a user may hold {} there",
                    units::bytes(*bytes),
                    units::bytes(share)
                ),
                "write it to the slow tier, or have the pool's quota raised",
            ));
        }
        Ok(())
    }

    /// One attempt: a row, or why there is no room.
    fn try_reserve(&self, pool: &Pool, request: &Request) -> Result<Result<Reserved, NoRoom>, StageError> {
        self.ledger.step(|step| {
            let balance = self.balance(step, &request.pool, pool)?;
            let directory = ledger::directory(request.owner, &request.label);
            let taken = balance.rows.iter().any(|(row, _)| row.directory() == directory);
            if taken || balance.usage.sets.contains_key(&directory) {
                return Err(StageError::refused(
                    format!("{} is there already", shown(&pool.config.path.join(directory))),
                    "choose another name, or evict it",
                ));
            }
            if let Some(no_room) = self.lacking(step, pool, request, &balance)? {
                return Ok(Err(no_room));
            }
            let row = Reserved {
                id: 0,
                pool: request.pool.clone(),
                owner: request.owner,
                label: request.label.clone(),
                bytes: request.bytes,
                created: self.clock.now().wall.as_secs(),
                lease: request.process.is_none().then(|| self.lease()),
                process: request.process.clone(),
            };
            step.insert(row).map(Ok)
        })
    }

    /// Which of the bounds there is no room within.
    fn lacking(
        &self,
        step: &Step<'_>,
        pool: &Pool,
        request: &Request,
        balance: &Balance,
    ) -> Result<Option<NoRoom>, StageError> {
        let (config, bytes) = (&pool.config, request.bytes);
        let no_room = |what: String| Ok(Some(NoRoom::of_all(what)));
        let figures = |used: u64, reserved: u64, most: u64| {
            let (used, reserved, most) = (units::bytes(used), units::bytes(reserved), units::bytes(most));
            format!("{used} used and {reserved} reserved of {most}")
        };
        let (used, reserved) = (balance.usage.bytes, balance.reserved);
        // First: who has used up his own share is not to wait for the room of others.
        if let Some(share) = config.reserve_per_user {
            let used = balance.usage.by_owner.get(&request.owner).copied().unwrap_or(0);
            let own = balance.rows.iter().filter(|(row, _)| row.owner == request.owner);
            let reserved: u64 = own.map(|(row, used)| row.bytes.saturating_sub(*used)).sum();
            if used.saturating_add(reserved).saturating_add(bytes) > share {
                let why = format!("user {} has {}", request.owner, figures(used, reserved, share));
                // A share that is the whole quota is no share: others have to wait for the same room.
                return Ok(Some(NoRoom { why, in_share: share < config.quota }));
            }
        }
        if used.saturating_add(reserved).saturating_add(bytes) > config.quota {
            return no_room(figures(used, reserved, config.quota));
        }
        // Last, so that what is written meanwhile is missing in it.
        let promised = self.promised_in(step, pool)?;
        let free = self.free(pool)?;
        if promised.saturating_add(bytes) > free {
            let (free, promised) = (units::bytes(free), units::bytes(promised));
            return no_room(format!("the file system has {free} free, of which {promised} are reserved"));
        }
        Ok(None)
    }

    /// Makes the directory of a reservation; gives the reservation back if it cannot.
    fn make(&self, pool: &Pool, row: Reserved) -> Result<Reservation, StageError> {
        let directory = pool.config.path.join(row.directory());
        if let Err(error) = make_directory(pool, &row) {
            self.release(row.id, row.owner)?;
            return Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::EXIST) => StageError::refused(
                    format!("{} is there already", shown(&directory)),
                    "choose another name, or evict it",
                ),
                _ => StageError::io("make the directory of a reservation", &directory, error),
            });
        }
        let expires = row.lease.map(|lease| lease.expires);
        Ok(Reservation { id: row.id, directory: PathText(directory), bytes: row.bytes, expires })
    }
}

/// A user's directory may be there already, a set's not. Both are the user's; nobody else looks into them.
fn make_directory(pool: &Pool, reserved: &Reserved) -> std::io::Result<()> {
    let (user, label) = (reserved.owner.to_string(), OsStr::new(&reserved.label));
    let user = OsStr::new(&user);
    let root = pool.root.as_fd();
    match calls::make_directory(root, user, Mode::RWXU) {
        Ok(()) => calls::sync_outside_move(root)?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let of_user = calls::open_at(root, user, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    if calls::stat(of_user.as_fd())?.stx_uid != rustix::process::geteuid().as_raw() {
        // Another member of the pool has made a directory of this name.
        return Err(Errno::PERM.into());
    }
    calls::make_directory(of_user.as_fd(), label, Mode::RWXU)?;
    calls::sync_outside_move(of_user.as_fd())
}

fn refused(request: &Request, NoRoom { why, .. }: &NoRoom, waited: bool) -> StageError {
    let waited = if waited { " (it was waited for)" } else { "" };
    StageError::refused(
        format!("no room for {} in pool {}: {why}{waited}", units::bytes(request.bytes), request.pool),
        "wait for it, or evict what is durable: stage pools, stage evict",
    )
}
