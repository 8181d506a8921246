//! Pools as a server keeps them: who may ask for what, and where the ledger is.
//!
//! Whose reservation it is, is never said in a request: a server reserves for its own user ([`Kept`]), and so does a process
//! that works on the ledger itself. [`Relayed`] asks a server.

use std::path::PathBuf;
use std::sync::Arc;

use crate::client::Client;
use crate::pools::{PoolStatus, Pools, Reservation, Wish};
use stage::error::StageError;

/// Pools, as one user has them.
pub trait PoolDesk: Send + Sync {
    /// All of them, and what the user may know of what is in them.
    fn list(&self) -> Result<Vec<PoolStatus>, StageError>;

    /// Figures for metrics; none where they are another process's to tell.
    fn figures(&self) -> Result<Vec<PoolStatus>, StageError> {
        Ok(Vec::new())
    }

    /// Reserves room for a set of the user's. `wanted` is asked repeatedly while there is none.
    ///
    /// # Errors
    /// As [`Pools::reserve`].
    fn reserve(&self, wish: &Wish, wanted: &dyn Fn() -> bool) -> Result<Reservation, StageError>;

    /// Gives a reservation of the user's back.
    ///
    /// # Errors
    /// It is another user's.
    fn release(&self, id: i64) -> Result<(), StageError>;

    /// Has a reservation of the user's last for a day from now on; false if it is gone.
    ///
    /// # Errors
    /// It is another user's.
    fn renew(&self, id: i64) -> Result<bool, StageError>;
}

/// Pools whose ledger this process has, for one user.
#[derive(Debug, Clone)]
pub struct Kept {
    pools: Arc<Pools>,
    user: u32,
}

impl Kept {
    /// For this user: the one of the server, or the one whom the kernel names as the peer of a connection.
    #[must_use]
    pub fn new(pools: Arc<Pools>, user: u32) -> Self {
        Self { pools, user }
    }
}

impl PoolDesk for Kept {
    fn list(&self) -> Result<Vec<PoolStatus>, StageError> {
        Ok(self.pools.list()?.into_iter().map(|pool| pool.seen_by(self.user)).collect())
    }

    fn figures(&self) -> Result<Vec<PoolStatus>, StageError> {
        self.pools.figures()
    }

    fn reserve(&self, wish: &Wish, wanted: &dyn Fn() -> bool) -> Result<Reservation, StageError> {
        let reservation = self.pools.reserve(wish, self.user, wanted)?;
        let Reservation { id, bytes, .. } = reservation;
        tracing::info!(id, uid = self.user, pool = wish.pool, bytes, "room reserved");
        Ok(reservation)
    }

    fn release(&self, id: i64) -> Result<(), StageError> {
        self.pools.release(id, self.user)?;
        tracing::info!(id, uid = self.user, "reservation released");
        Ok(())
    }

    fn renew(&self, id: i64) -> Result<bool, StageError> {
        self.pools.renew(id, self.user)
    }
}

/// Pools that another process keeps. It has to be asked by a process of the user whose pools they are to be.
#[derive(Debug, Clone)]
pub struct Relayed {
    keeper: PathBuf,
}

impl Relayed {
    /// By the keeper's socket.
    #[must_use]
    pub fn new(keeper: PathBuf) -> Self {
        Self { keeper }
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, StageError>) -> Result<T, StageError> {
        ask(&mut Client::connect(Some(&self.keeper))?)
    }
}

impl PoolDesk for Relayed {
    fn list(&self) -> Result<Vec<PoolStatus>, StageError> {
        self.ask(Client::pools)
    }

    fn reserve(&self, wish: &Wish, wanted: &dyn Fn() -> bool) -> Result<Reservation, StageError> {
        self.ask(|client| client.reserve(wish, wanted))
    }

    fn release(&self, id: i64) -> Result<(), StageError> {
        self.ask(|client| client.release(id))
    }

    fn renew(&self, id: i64) -> Result<bool, StageError> {
        self.ask(|client| client.renew(id))
    }
}

/// What a server says that keeps none.
pub(super) fn none_here() -> StageError {
    StageError::refused(
        "this server keeps no pools",
        "describe them in a file, and name it to the server: stage serve --pools FILE.toml",
    )
}
