//! Who is granted room, in which order, and where he writes then.
//!
//! A request is tried in one transaction of the ledger: the name is free, and all bounds hold after the grant. One that
//! does not fit now stands in its pool's queue until something has changed, its time is up, or it is stopped.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::ledger::{self, Reserved, Step};
use super::{Balance, LEASE, LOOK, Pool, Pools, Request, Reservation, Shared};
use crate::calls;
use crate::error::{StageError, shown};
use crate::names::PathText;
use crate::pace::Stop;

/// Why there is no room at the moment.
struct NoRoom(String);

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
        let pool = self.pool(&request.pool)?;
        self.check(pool, request)?;
        let until = wait.map(|wait| self.clock.now().steady + wait);
        let mut shared = self.lock();
        shared.last_ticket += 1;
        let ticket = shared.last_ticket;
        shared.queues.entry(request.pool.clone()).or_default().push_back(ticket);
        let granted = loop {
            let before = self.lock_position(&shared, &request.pool, ticket);
            drop(shared);
            let tried = match before {
                0 => self.try_reserve(pool, request),
                1 => Ok(Err(NoRoom("another request waits for room".to_owned()))),
                n => Ok(Err(NoRoom(format!("{n} other requests wait for room")))),
            };
            shared = self.lock();
            let no_room = match tried {
                Ok(Err(no_room)) => no_room,
                Ok(Ok(row)) => break Ok(row),
                Err(error) => break Err(error),
            };
            let left = until.map(|until| until.saturating_sub(self.clock.now().steady));
            match left {
                _ if stop.asked() => {
                    break Err(StageError::Stopped { what: "the wait for room".to_owned() });
                }
                None | Some(Duration::ZERO) => break Err(refused(request, &no_room, wait.is_some())),
                Some(left) => {
                    let patience = self.clock.patience(left.min(LOOK));
                    shared =
                        self.room.wait_timeout(shared, patience).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        if let Some(queue) = shared.queues.get_mut(&request.pool) {
            queue.retain(|waiting| *waiting != ticket);
        }
        drop(shared);
        // Whoever is next may have room, now that this one has what it wants or has gone.
        self.room.notify_all();
        self.make(pool, granted?)
    }

    fn lock_position(&self, shared: &Shared, pool: &str, ticket: u64) -> usize {
        let queue = shared.queues.get(pool);
        queue.and_then(|queue| queue.iter().position(|waiting| *waiting == ticket)).unwrap_or(0)
    }

    /// What no waiting would change.
    fn check(&self, pool: &Pool, request: &Request) -> Result<(), StageError> {
        let Request { pool: name, owner, label, bytes, .. } = request;
        let config = &pool.config;
        let plain = |byte: u8| byte != b'/' && !byte.is_ascii_control();
        if label.is_empty() || label.len() > 200 || label.starts_with('.') || !label.bytes().all(plain) {
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
        let share = config.reserve_per_user.unwrap_or(config.quota);
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
        self.ledger.step("reserve", |step| {
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
            let now = self.clock.now().wall;
            let mut row = Reserved {
                id: 0,
                pool: request.pool.clone(),
                owner: request.owner,
                label: request.label.clone(),
                bytes: request.bytes,
                created: now.as_secs(),
                expires: request.process.is_none().then(|| (now + LEASE).as_secs()),
                process: request.process.clone(),
            };
            row.id = step.insert(&row).map_err(|error| self.ledger.failed(error))?;
            Ok(Ok(row))
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
        let no_room = |what: String| Ok(Some(NoRoom(what)));
        let figures = |used: u64, reserved: u64, most: u64| {
            let (used, reserved, most) = (units::bytes(used), units::bytes(reserved), units::bytes(most));
            format!("{used} used and {reserved} reserved of {most}")
        };
        let (used, reserved) = (balance.usage.bytes, balance.reserved);
        if used.saturating_add(reserved).saturating_add(bytes) > config.quota {
            return no_room(figures(used, reserved, config.quota));
        }
        if let Some(share) = config.reserve_per_user {
            let used = balance.usage.by_owner.get(&request.owner).copied().unwrap_or(0);
            let own = balance.rows.iter().filter(|(row, _)| row.owner == request.owner);
            let reserved: u64 = own.map(|(row, used)| row.bytes.saturating_sub(*used)).sum();
            if used.saturating_add(reserved).saturating_add(bytes) > share {
                return no_room(format!("user {} has {}", request.owner, figures(used, reserved, share)));
            }
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
        if let Err(error) = make_directory(pool, row.owner, &row.label) {
            self.release(row.id, row.owner)?;
            return Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::EXIST) => StageError::refused(
                    format!("{} is there already", shown(&directory)),
                    "choose another name, or evict it",
                ),
                _ => StageError::io("make the directory of a reservation", &directory, error),
            });
        }
        Ok(Reservation { id: row.id, directory: PathText(directory), bytes: row.bytes, expires: row.expires })
    }
}

/// A user's directory may be there already, a set's not. Both are the user's; nobody else looks into them.
fn make_directory(pool: &Pool, owner: u32, label: &str) -> std::io::Result<()> {
    let (user, label) = (owner.to_string(), OsStr::new(label));
    let user = OsStr::new(&user);
    let foreign = rustix::process::geteuid().is_root() && owner != 0;
    let root = pool.root.as_fd();
    let made = match calls::make_directory(root, user, Mode::RWXU) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let of_user = calls::open_at(root, user, flags, Mode::empty())?;
    let stat = calls::stat(of_user.as_fd())?;
    if made && foreign {
        calls::set_owner(of_user.as_fd(), owner, stat.stx_gid)?;
    } else if !made && foreign && stat.stx_uid != owner && stat.stx_uid != 0 {
        // Somebody else made a directory of this name in a pool that others may write to.
        return Err(Errno::PERM.into());
    }
    if made {
        calls::sync(root)?;
    }
    calls::make_directory(of_user.as_fd(), label, Mode::RWXU)?;
    if foreign {
        let set = calls::open_at(of_user.as_fd(), label, flags, Mode::empty())?;
        calls::set_owner(set.as_fd(), owner, stat.stx_gid)?;
    }
    calls::sync(of_user.as_fd())
}

fn refused(request: &Request, NoRoom(why): &NoRoom, waited: bool) -> StageError {
    let waited = if waited { " (it was waited for)" } else { "" };
    StageError::refused(
        format!("no room for {} in pool {}: {why}{waited}", units::bytes(request.bytes), request.pool),
        "wait for it, or evict what is durable: stage pools, stage evict",
    )
}
