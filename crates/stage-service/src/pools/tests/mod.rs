//! Pools on real directories, with a file system whose size, and a clock that, the test decides.

mod grants;
mod random;
mod shared;

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use tempfile::TempDir;

use super::lease::{LEASE, Uptime};
use super::*;
use crate::qos::Now;

const BLOCK: u64 = 4096;
const ALICE: u32 = 1000;
const BOB: u32 = 1001;

/// Time that passes where somebody waits, on a machine whose clock is set and that is started anew.
#[derive(Debug, Default)]
struct TestClock {
    steady: Mutex<Duration>,
    set: Mutex<i64>,
    boots: Mutex<u32>,
}

impl TestClock {
    fn pass(&self, time: Duration) {
        *self.steady.lock().unwrap() += time;
    }

    fn set(&self, seconds: i64) {
        *self.set.lock().unwrap() += seconds;
    }

    fn reboot(&self) {
        *self.boots.lock().unwrap() += 1;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        let steady = *self.steady.lock().unwrap();
        let wall = Duration::from_secs(1_800_000_000_u64.saturating_add_signed(*self.set.lock().unwrap()));
        Now { steady, wall: wall + steady }
    }

    fn patience(&self, most: Duration) -> Duration {
        self.pass(most);
        Duration::ZERO
    }
}

#[derive(Debug)]
struct TestHost {
    size: u64,
    root: PathBuf,
    clock: Arc<TestClock>,
}

impl Host for TestHost {
    fn quota_used(&self, _: &Path) -> std::io::Result<Option<u64>> {
        Ok(None)
    }

    fn free(&self, _: BorrowedFd<'_>) -> std::io::Result<u64> {
        let root = calls::open_directory(&self.root)?;
        Ok(self.size.saturating_sub(usage::walk(root.as_fd())?.bytes))
    }

    fn uptime(&self) -> Option<Uptime> {
        let boot = format!("test {}", self.clock.boots.lock().unwrap());
        Some(Uptime { boot, seconds: self.clock.steady.lock().unwrap().as_secs() })
    }
}

struct Fixture {
    directory: TempDir,
    clock: Arc<TestClock>,
    size: u64,
    pools: Pools,
}

/// Pool `a` with this many blocks and pool `b` with as many, on a file system of this many.
fn fixture(quota: u64, share: u64, size: u64) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let text = ["a", "b"].map(|name| {
        let path = directory.path().join("tier").join(name);
        fs::create_dir_all(&path).unwrap();
        format!(
            "[pool.{name}]\npath = {path:?}\nquota = {}\nreserve_per_user = {}\nhigh = 0.8\nlow = 0.5\n",
            quota * BLOCK,
            share * BLOCK
        )
    });
    fs::write(directory.path().join("pools.toml"), text.concat()).unwrap();
    let clock = Arc::<TestClock>::default();
    let pools = open(&directory, &clock, size);
    Fixture { directory, clock, size, pools }
}

fn open(directory: &TempDir, clock: &Arc<TestClock>, size: u64) -> Pools {
    let root = directory.path().join("tier");
    let host = TestHost { size: size * BLOCK, root, clock: Arc::clone(clock) };
    let ledger = directory.path().join("ledger");
    Pools::open_on(&directory.path().join("pools.toml"), &ledger, clock.clone(), Box::new(host)).unwrap()
}

fn wish(pool: &str, name: &str, blocks: u64, wait: Option<Duration>) -> Wish {
    Wish { pool: pool.into(), name: name.into(), bytes: blocks * BLOCK, wait }
}

fn reserve(
    pools: &Pools,
    pool: &str,
    owner: u32,
    name: &str,
    blocks: u64,
) -> Result<Reservation, StageError> {
    pools.reserve(&wish(pool, name, blocks, None), owner, &|| true)
}

fn status(pools: &Pools, name: &str) -> PoolStatus {
    pools.list().unwrap().into_iter().find(|pool| pool.name == name).unwrap()
}

fn write(reservation: &Reservation, name: &str, blocks: u64) {
    fs::write(reservation.directory.0.join(name), vec![7; (blocks * BLOCK) as usize]).unwrap();
}

impl Fixture {
    fn reserve(&self, pool: &str, owner: u32, name: &str, blocks: u64) -> Result<Reservation, StageError> {
        reserve(&self.pools, pool, owner, name, blocks)
    }

    fn refused(&self, pool: &str, owner: u32, name: &str, blocks: u64) -> String {
        let error = self.reserve(pool, owner, name, blocks).unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
        assert!(error.hint().is_some());
        error.to_string()
    }

    fn status(&self, name: &str) -> PoolStatus {
        status(&self.pools, name)
    }

    fn at(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// The same pools, as another process opens them.
    fn reopened(&self) -> Pools {
        open(&self.directory, &self.clock, self.size)
    }
}
