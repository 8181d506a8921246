//! A server that panics and has not ended yet: its first process ends last.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use database::Engine;
use database::engine::SkyIndex;
use database::schema::{Rows, Value};

use super::{NAME, Sample, TABLE, rows_of, server, sql, tier, words};

/// The first process of the server in a directory.
pub fn postmaster(directory: &Path) -> u32 {
    let file = directory.join(NAME).join("data/postmaster.pid");
    fs::read_to_string(file).unwrap().lines().next().unwrap().parse().unwrap()
}

/// A server's first process, stopped until its log has had a PANIC for a while, or this is dropped.
struct Held(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Held {
    fn new(directory: &Path) -> Self {
        let (process, log) = (postmaster(directory).to_string(), directory.join(NAME).join("server.log"));
        let signal = move |name: &str| {
            assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
        };
        signal("-STOP");
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let watch = std::thread::spawn(move || {
            let has_panicked = || fs::read_to_string(&log).unwrap_or_default().contains("PANIC:");
            while !is_over.load(Ordering::Relaxed) && !has_panicked() {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(300));
            signal("-CONT");
        });
        Self(over, Some(watch))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

/// Rows in whose midst the log of the server says that it panics, and the process of the session ends as one that does.
struct Panicking {
    rows: Sample,
    log: std::path::PathBuf,
    process: String,
}

impl Rows for Panicking {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        if self.rows.next == 20_000 {
            let said = "2026-01-01 00:00:00.000 UTC [1] PANIC:  could not write to file \"pg_wal/xlogtemp.1\": No space left on device";
            let mut log = OpenOptions::new().append(true).open(&self.log).unwrap();
            writeln!(log, "{said}").unwrap();
            assert!(Command::new("kill").args(["-ABRT", &self.process]).status().unwrap().success());
        }
        self.rows.next(row)
    }
}

#[test]
fn a_server_that_panics_is_waited_for_so_that_its_reason_is_told() {
    let folder = tier();
    let Some(mut postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    postgres.create(&[TABLE]).unwrap();
    let process = rows_of(&mut postgres, &sql("SELECT CAST(pg_backend_pid() AS text)")).unwrap();
    let [Value::Text(process)] = &process[0][..] else { panic!("{process:?}") };
    let log = folder.path().join(NAME).join("server.log");
    let held = Held::new(folder.path());
    let rows = Sample { next: 1, end: 60_000 };
    let failed = postgres.load(&TABLE, &mut Panicking { rows, log, process: process.clone() }).unwrap_err();
    drop(held);
    let (said, hint) = words(&failed);
    assert!(said.contains("the server ended: PANIC:") && hint.contains("the tier is full"), "{said}; {hint}");
}
