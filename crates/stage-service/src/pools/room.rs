//! Which requests are granted room, in which order, and where their sets go.
//!
//! A request is tried in one transaction of the ledger: the name is free, and all bounds hold after the grant. One that
//! does not fit now waits in its pool's queue until there is room, its time is up, or it is given up.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::ledger::{self, Reserved};
use super::{Balance, Live, POLL, Pool, Pools, Reservation, Waiting, Wish};
use stage::calls;
use stage::error::{StageError, shown};
use stage::names::PathText;

impl Pools {
    /// Reserves room for a set of `owner`, this process's user, and makes the directory to write to. Where there is no room, waits for
    /// it as long as the wish says, or not at all; `wanted` is asked every half second whether to go on. What can never
    /// fit is refused at once.
    ///
    /// # Errors
    /// There is no such pool, the user has no place in it, the name is taken or malformed; [`StageError::Refused`] where
    /// there is no room (in time), with what holds it; [`StageError::Stopped`] once it is not wanted.
    pub fn reserve(
        &self,
        wish: &Wish,
        owner: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Reservation, StageError> {
        let pool = self.pool(&wish.pool)?;
        check(pool, wish, owner)?;
        let until = wish.wait.map(|wait| self.clock.now().steady.saturating_add(wait));
        let ticket = self.queue_up(wish);
        let granted = loop {
            let no_room = match self.attempt(pool, wish, owner, ticket) {
                Ok(Err(no_room)) => no_room,
                Ok(Ok(row)) => break Ok(row),
                Err(error) => break Err(error),
            };
            let left = until.map(|until| until.saturating_sub(self.clock.now().steady));
            match left {
                _ if !wanted() => break Err(StageError::Stopped { what: "the wait for room".to_owned() }),
                None | Some(Duration::ZERO) => break Err(refused(wish, &no_room)),
                Some(left) => {
                    let patience = self.clock.patience(left.min(POLL));
                    let slept = self.room.wait_timeout(self.lock(), patience);
                    drop(slept.unwrap_or_else(PoisonError::into_inner));
                }
            }
        };
        if let Some(queue) = self.lock().queues.get_mut(&wish.pool) {
            queue.retain(|waiting| waiting.ticket != ticket);
        }
        // The next request may have room, now that this one is not before it.
        self.room.notify_all();
        self.make(pool, granted?)
    }

    fn queue_up(&self, wish: &Wish) -> u64 {
        let mut shared = self.lock();
        shared.last_ticket += 1;
        let ticket = shared.last_ticket;
        shared.queues.entry(wish.pool.clone()).or_default().push_back(Waiting { ticket, bytes: wish.bytes });
        ticket
    }

    /// One attempt, if no other request is before it: a reservation, or why there is no room.
    fn attempt(
        &self,
        pool: &Pool,
        wish: &Wish,
        owner: u32,
        ticket: u64,
    ) -> Result<Result<Reserved, String>, StageError> {
        let queue = |waiting: &Waiting| waiting.ticket != ticket;
        let before =
            self.lock().queues.get(&wish.pool).into_iter().flatten().take_while(|w| queue(w)).count();
        match before {
            0 => self.try_reserve(pool, wish, owner),
            1 => Ok(Err("another request waits for room".to_owned())),
            n => Ok(Err(format!("{n} other requests wait for room"))),
        }
    }

    fn try_reserve(
        &self,
        pool: &Pool,
        wish: &Wish,
        owner: u32,
    ) -> Result<Result<Reserved, String>, StageError> {
        self.ledger.step(|step| {
            let live = self.purge(step);
            let balance = self.balance(&live, &wish.pool, pool, false)?;
            let directory = ledger::directory(owner, &wish.name);
            let taken = balance.rows.iter().any(|(row, _)| row.directory() == directory);
            if taken || balance.usage.sets.contains_key(&directory) {
                return Err(is_there(&pool.config.path.join(directory)));
            }
            if let Some(no_room) = self.lacking(&live, pool, wish, owner, &balance)? {
                return Ok(Err(no_room));
            }
            let row = Reserved {
                id: 0,
                pool: wish.pool.clone(),
                owner,
                label: wish.name.clone(),
                bytes: wish.bytes,
                created: self.clock.now().wall.as_secs(),
                lease: self.lease(),
            };
            step.insert(row).map(Ok)
        })
    }

    /// The bound that the request does not keep, if there is one.
    fn lacking(
        &self,
        live: &Live,
        pool: &Pool,
        wish: &Wish,
        owner: u32,
        balance: &Balance,
    ) -> Result<Option<String>, StageError> {
        let (config, bytes) = (&pool.config, wish.bytes);
        let exceeds = |used: u64, reserved: u64, most: u64| {
            (used.saturating_add(reserved).saturating_add(bytes) > most).then(|| {
                let (used, reserved, most) = (units::bytes(used), units::bytes(reserved), units::bytes(most));
                format!("{used} used and {reserved} reserved of {most}")
            })
        };
        if let Some(share) = config.reserve_per_user {
            let used = balance.usage.by_owner.get(&owner).copied().unwrap_or(0);
            let own = balance.rows.iter().filter(|(row, _)| row.owner == owner);
            let reserved: u64 = own.map(|(row, used)| row.bytes.saturating_sub(*used)).sum();
            if let Some(figures) = exceeds(used, reserved, share) {
                return Ok(Some(format!("user {owner} has {figures}")));
            }
        }
        if let Some(figures) = exceeds(balance.usage.bytes, balance.reserved, config.quota) {
            return Ok(Some(figures));
        }
        // Free space is read last, so that what is written meanwhile is missing in it.
        let promised = self.promised(live, pool)?;
        let free = self.free(pool)?;
        Ok((promised.saturating_add(bytes) > free).then(|| {
            let (free, promised) = (units::bytes(free), units::bytes(promised));
            format!("the file system has {free} free, of which {promised} are reserved")
        }))
    }

    /// Makes the directory of a reservation; gives the reservation back if it cannot.
    fn make(&self, pool: &Pool, row: Reserved) -> Result<Reservation, StageError> {
        let directory = pool.config.path.join(row.directory());
        if let Err(error) = make_directory(pool, &row) {
            self.release(row.id, row.owner)?;
            return Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::EXIST) => is_there(&directory),
                _ => StageError::io("make the directory of a reservation", &directory, error),
            });
        }
        let (bytes, expires) = (row.bytes, row.lease.expires);
        Ok(Reservation { id: row.id, directory: PathText(directory), bytes, expires })
    }
}

/// Refuses what no waiting would change.
fn check(pool: &Pool, wish: &Wish, owner: u32) -> Result<(), StageError> {
    let Wish { pool: name, name: label, bytes, .. } = wish;
    let config = &pool.config;
    if !ledger::is_label(label) {
        return Err(StageError::invalid(
            format!("{label:?} is no name for a set"),
            "up to 200 bytes, not beginning with a dot, without / and control characters",
        ));
    }
    if config.users.as_ref().is_some_and(|users| !users.contains(&owner)) {
        return Err(StageError::refused(
            format!("user {owner} has no place in pool {name}"),
            "it is for those whom `users` in its configuration names",
        ));
    }
    let stat = calls::stat(pool.root.as_fd()).map_err(|error| StageError::io("stat", &config.path, error))?;
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

fn is_there(directory: &Path) -> StageError {
    StageError::refused(format!("{} is there already", shown(directory)), "choose another name, or evict it")
}

/// Makes a set's directory, and the user's above it if that is missing. Both are the user's alone (mode 0700).
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

fn refused(wish: &Wish, why: &str) -> StageError {
    let waited = if wish.wait.is_some() { " (it was waited for)" } else { "" };
    StageError::refused(
        format!("no room for {} in pool {}: {why}{waited}", units::bytes(wish.bytes), wish.pool),
        "wait for it, or evict what is durable: stage pools, stage evict",
    )
}
