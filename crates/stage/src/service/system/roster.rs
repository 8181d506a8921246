//! The workers: one for each set of credentials, started when needed, started again when it dies, retired when idle.
//!
//! A worker that dies takes nobody else with it, and loses nothing: what its journal has, the next one goes on with. One
//! that dies again at once is started after a pause that doubles to a minute. One that leaves is waited for before another
//! for the same credentials begins, because a journal has one owner.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::StageError;
use crate::service::metrics::Figures;
use crate::service::server::turn_away;
use crate::service::system::channel::{self, Heard, Report};
use crate::service::system::credentials::Credentials;
use crate::service::system::register::Register;

/// Connections that wait for a worker that is leaving.
const WAITING: usize = 16;
/// A worker that has lived for this long has not died at once.
const LIVED: Duration = Duration::from_secs(60);
/// The longest pause before a worker is started again.
const PAUSE: Duration = Duration::from_secs(60);
/// How long a worker that was asked to leave may take, with nothing under way.
const LEAVE: Duration = Duration::from_secs(60);

/// How workers are kept.
#[derive(Debug, Clone)]
pub struct RosterConfig {
    /// The program, and what stands before a worker's own flags.
    pub program: Vec<OsString>,
    /// What stands behind them: how it works, and its limits.
    pub flags: Vec<OsString>,
    /// Variables that it is to have; it gets no others.
    pub variables: Vec<(OsString, OsString)>,
    /// Workers at a time.
    pub most: usize,
    /// Workers of one user, who may have many sets of groups.
    pub most_of_user: usize,
    /// How long one may have nothing to do before it is retired.
    pub idle: Duration,
}

#[derive(Debug)]
enum Phase {
    Running { child: Child, channel: OwnedFd, since: Instant },
    Leaving { child: Child, since: Instant },
    Down { until: Instant },
}

#[derive(Debug)]
struct Slot {
    phase: Phase,
    /// Connections passed to the worker that runs.
    passed: u64,
    /// Its last word; none until it has spoken.
    report: Option<Report>,
    idle_since: Option<Instant>,
    /// How often in a row it died at once.
    deaths: u32,
    /// There may be jobs that nobody works on.
    owed: bool,
    waiting: Vec<UnixStream>,
}

/// The workers.
#[derive(Debug)]
pub struct Roster {
    config: RosterConfig,
    register: Register,
    slots: BTreeMap<Credentials, Slot>,
    /// What workers that have gone had counted.
    legacy: Figures,
    deaths: f64,
    refused: f64,
}

impl Roster {
    /// With a slot for everybody who is remembered; [`Roster::tend`] starts them.
    ///
    /// # Errors
    /// The register's.
    pub fn new(config: RosterConfig, register: Register) -> Result<Self, StageError> {
        let now = Instant::now();
        let slots =
            register.all()?.into_iter().map(|credentials| (credentials, Slot::down(now, true))).collect();
        Ok(Self { config, register, slots, legacy: Figures::default(), deaths: 0.0, refused: 0.0 })
    }

    /// Passes a connection to the worker of these credentials, which is started if need be; a connection that cannot be
    /// passed is told why.
    pub fn admit(&mut self, credentials: &Credentials, connection: UnixStream) {
        if let Err(error) = self.try_admit(credentials, &connection) {
            self.refuse(&connection, &error);
        }
    }

    /// Tells a connection why it is closed.
    pub fn refuse(&mut self, connection: &UnixStream, error: &StageError) {
        self.refused += 1.0;
        tracing::debug!(%error, "a connection was refused");
        turn_away(connection, error);
    }

    fn try_admit(&mut self, credentials: &Credentials, connection: &UnixStream) -> Result<(), StageError> {
        let now = Instant::now();
        let busy = |what: String| StageError::refused(what, "try again in a moment");
        if !self.slots.contains_key(credentials) {
            self.check_room(credentials, now)?;
            self.slots.insert(credentials.clone(), Slot::down(now, false));
        }
        let Some(slot) = self.slots.get_mut(credentials) else { return Ok(()) };
        match &slot.phase {
            Phase::Leaving { .. } if slot.waiting.len() < WAITING => {
                let kept = connection.try_clone();
                slot.waiting.push(kept.map_err(|error| busy(error.to_string()))?);
                return Ok(());
            }
            Phase::Leaving { .. } => return Err(busy("too many connections wait for a worker".to_owned())),
            Phase::Down { until } if *until > now => {
                let left = until.duration_since(now).as_secs() + 1;
                return Err(busy(format!(
                    "the worker of uid {} died and is started again in {left} s",
                    credentials.uid
                )));
            }
            Phase::Down { .. } => slot.start(&self.config, &self.register, credentials, now)?,
            Phase::Running { .. } => {}
        }
        slot.pass(connection)
    }

    /// Is there room for another worker, for this user?
    fn check_room(&mut self, credentials: &Credentials, now: Instant) -> Result<(), StageError> {
        let theirs = self.slots.keys().filter(|held| held.uid == credentials.uid).count();
        if theirs < self.config.most_of_user && self.slots.len() < self.config.most {
            return Ok(());
        }
        // Whoever has nothing to do makes room, for the next try.
        for slot in self.slots.values_mut().filter(|slot| slot.idle_since.is_some()) {
            slot.leave(now);
        }
        Err(StageError::refused(
            format!("{} workers are running, {theirs} of them for uid {}", self.slots.len(), credentials.uid),
            "try again in a moment; --max-workers of the server says how many there may be",
        ))
    }

    /// Listens to the workers, and does what is due.
    pub fn tend(&mut self) {
        let now = Instant::now();
        let mut gone = Vec::new();
        for (credentials, slot) in &mut self.slots {
            if slot.listen(now) {
                let (legacy, died) = slot.bury(credentials, now);
                self.legacy = self.legacy.with(&legacy);
                self.deaths += f64::from(u8::from(died));
            }
            let is_due = matches!(slot.phase, Phase::Down { until } if until <= now);
            if is_due && (slot.owed || !slot.waiting.is_empty()) {
                slot.revive(&self.config, &self.register, credentials, now);
            } else if is_due {
                gone.push(credentials.clone());
            }
            if slot.idle_since.is_some_and(|since| now.duration_since(since) >= self.config.idle) {
                slot.leave(now);
            }
        }
        for credentials in gone {
            self.slots.remove(&credentials);
            if let Err(error) = self.register.forget(&credentials) {
                tracing::warn!(%error, "the register");
            }
        }
    }

    /// The figures of all workers, of those that have gone what they had counted, and of the door.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut sum = self.legacy.clone();
        for report in self.slots.values().filter_map(|slot| slot.report.as_ref()) {
            sum = sum.with(&report.figures);
        }
        let running = self.slots.values().filter(|slot| !matches!(slot.phase, Phase::Down { .. })).count();
        sum.workers = running as f64;
        sum.worker_deaths = self.deaths;
        sum.connections_refused += self.refused;
        sum
    }

    /// Asks all to stop, and waits; those that take longer than `most` are killed, which loses nothing.
    pub fn stop(&mut self, most: Duration) {
        let since = Instant::now();
        for slot in self.slots.values_mut() {
            slot.waiting.clear();
            slot.leave(since);
        }
        while self.slots.values_mut().any(Slot::is_leaving) && since.elapsed() < most {
            std::thread::sleep(Duration::from_millis(10));
        }
        for (credentials, slot) in &mut self.slots {
            if let Phase::Leaving { child, .. } = &mut slot.phase {
                tracing::warn!(uid = credentials.uid, "a worker did not stop in time and is killed");
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Slot {
    fn down(until: Instant, owed: bool) -> Self {
        let phase = Phase::Down { until };
        Self { phase, passed: 0, report: None, idle_since: None, deaths: 0, owed, waiting: Vec::new() }
    }

    fn start(
        &mut self,
        config: &RosterConfig,
        register: &Register,
        credentials: &Credentials,
        now: Instant,
    ) -> Result<(), StageError> {
        let home = register.remember(credentials)?;
        let (child, channel) = spawn(config, credentials, &home)?;
        tracing::info!(uid = credentials.uid, gid = credentials.gid, pid = child.id(), "a worker starts");
        self.phase = Phase::Running { child, channel, since: now };
        (self.passed, self.report, self.idle_since) = (0, None, None);
        // Until it says otherwise, its journal may hold jobs.
        self.owed = true;
        for connection in std::mem::take(&mut self.waiting) {
            if let Err(error) = self.pass(&connection) {
                turn_away(&connection, &error);
            }
        }
        Ok(())
    }

    /// Starts it again, because there is something to do; if that fails, later.
    fn revive(
        &mut self,
        config: &RosterConfig,
        register: &Register,
        credentials: &Credentials,
        now: Instant,
    ) {
        if let Err(error) = self.start(config, register, credentials, now) {
            tracing::error!(uid = credentials.uid, %error, "a worker cannot be started");
            for connection in std::mem::take(&mut self.waiting) {
                turn_away(&connection, &error);
            }
            self.deaths += 1;
            self.phase = Phase::Down { until: now + pause(self.deaths) };
        }
    }

    fn pass(&mut self, connection: &UnixStream) -> Result<(), StageError> {
        let Phase::Running { channel, .. } = &self.phase else { return Ok(()) };
        channel::pass(channel, connection).map_err(|error| {
            StageError::refused(format!("the worker takes no connections: {error}"), "try again")
        })?;
        self.passed += 1;
        self.idle_since = None;
        Ok(())
    }

    /// Takes in what the worker has said. True once it has ended.
    fn listen(&mut self, now: Instant) -> bool {
        let (child, channel) = match &mut self.phase {
            Phase::Down { .. } => return false,
            Phase::Leaving { child, since } => {
                if now.duration_since(*since) > LEAVE {
                    let _ = child.kill();
                }
                return !matches!(child.try_wait(), Ok(None));
            }
            Phase::Running { child, channel, .. } => (child, channel),
        };
        loop {
            match channel::hear(channel) {
                Ok(Heard::Report(report)) => {
                    let nothing = report.received == self.passed
                        && report.open_jobs == 0
                        && report.figures.connections == 0.0;
                    self.idle_since = nothing.then(|| self.idle_since.unwrap_or(now));
                    self.owed = report.open_jobs > 0;
                    self.report = Some(*report);
                }
                Ok(Heard::Nothing) => return !matches!(child.try_wait(), Ok(None)),
                Ok(Heard::End) => {
                    // It has closed its end and is about to end, unless it is out of its mind.
                    let _ = child.kill();
                    let _ = child.wait();
                    return true;
                }
                Err(error) => {
                    tracing::error!(%error, "a worker says what no worker says");
                    let _ = child.kill();
                    let _ = child.wait();
                    return true;
                }
            }
        }
    }

    /// Puts down what has ended: what it had counted, and whether it had not been asked to.
    fn bury(&mut self, credentials: &Credentials, now: Instant) -> (Figures, bool) {
        let legacy = self.report.take().map(|report| report.figures.legacy()).unwrap_or_default();
        self.idle_since = None;
        let Phase::Running { child, since, .. } = &mut self.phase else {
            self.phase = Phase::Down { until: now };
            return (legacy, false);
        };
        let how = child.try_wait().ok().flatten().map(|status| status.to_string()).unwrap_or_default();
        self.deaths = if now.duration_since(*since) > LIVED { 1 } else { self.deaths + 1 };
        let pause = pause(self.deaths);
        tracing::error!(
            uid = credentials.uid,
            pid = child.id(),
            how,
            pause_s = pause.as_secs(),
            "a worker died"
        );
        self.phase = Phase::Down { until: now + pause };
        (legacy, true)
    }

    /// Asks it to stop: its end of the channel sees that ours is closed.
    fn leave(&mut self, now: Instant) {
        let down = Phase::Down { until: now };
        self.phase = match std::mem::replace(&mut self.phase, down) {
            Phase::Running { child, .. } => Phase::Leaving { child, since: now },
            other => other,
        };
        self.idle_since = None;
    }

    fn is_leaving(&mut self) -> bool {
        let left = match &mut self.phase {
            Phase::Leaving { child, .. } => !matches!(child.try_wait(), Ok(None)),
            _ => return false,
        };
        if left {
            self.phase = Phase::Down { until: Instant::now() };
        }
        !left
    }
}

/// How long to wait before a worker is started that has died so often in a row.
fn pause(deaths: u32) -> Duration {
    match deaths {
        0 | 1 => Duration::ZERO,
        more => Duration::from_secs(1u64 << (more - 2).min(6)).min(PAUSE),
    }
}

fn spawn(
    config: &RosterConfig,
    credentials: &Credentials,
    home: &Path,
) -> Result<(Child, OwnedFd), StageError> {
    let program = config.program.first().map(OsString::as_os_str).unwrap_or_default();
    let failed = |error: std::io::Error| StageError::io("start a worker", program.as_ref(), error);
    let (ours, theirs) = channel::pair().map_err(failed)?;
    let groups: Vec<String> = credentials.groups.iter().map(u32::to_string).collect();
    let child = Command::new(program)
        .arg0("flashwright")
        .args(&config.program[1..])
        .arg(format!("--uid={}", credentials.uid))
        .arg(format!("--gid={}", credentials.gid))
        .arg(format!("--groups={}", groups.join(",")))
        .arg("--state")
        .arg(home)
        .args(&config.flags)
        // A variable of the service's own has no business in a user's process.
        .env_clear()
        .envs(config.variables.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    Ok((child, ours))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn mine(group: u32) -> Credentials {
        let uid = rustix::process::geteuid().as_raw();
        Credentials { uid, gid: rustix::process::getegid().as_raw(), groups: vec![group] }
    }

    fn roster(directory: &Path, program: &[&str]) -> Roster {
        let config = RosterConfig {
            program: program.iter().map(Into::into).collect(),
            flags: Vec::new(),
            variables: Vec::new(),
            most: 3,
            most_of_user: 2,
            idle: Duration::from_secs(3600),
        };
        Roster::new(config, Register::open(directory).unwrap()).unwrap()
    }

    fn told(mut client: UnixStream) -> String {
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_worker_that_dies_at_once_is_started_again_later_and_later_and_whoever_asks_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let mut roster = roster(&directory.path().join("s"), &["/bin/sh", "-c", "exit 7"]);
        let (_client, connection) = UnixStream::pair().unwrap();
        roster.admit(&mine(1), connection);
        // It is started again by itself, since its journal may hold jobs, until there is a pause.
        while roster.deaths < 2.0 {
            roster.tend();
        }
        let (client, connection) = UnixStream::pair().unwrap();
        roster.admit(&mine(1), connection);
        assert!(told(client).contains("died and is started again"));
        // The first one as well, where its worker was dead before it could be passed.
        assert!([1.0, 2.0].contains(&roster.figures().connections_refused), "{:?}", roster.figures());
        assert_eq!([0, 1, 2, 3, 4, 9, 99].map(|deaths| pause(deaths).as_secs()), [0, 0, 1, 2, 4, 60, 60]);
    }

    #[test]
    fn workers_have_a_number_and_each_user_a_smaller_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut roster = roster(&directory.path().join("s"), &["/bin/sh", "-c", "exec sleep 600"]);
        let mut clients = Vec::new();
        for group in 1..=2 {
            let (client, connection) = UnixStream::pair().unwrap();
            roster.admit(&mine(group), connection);
            clients.push(client);
        }
        let (client, connection) = UnixStream::pair().unwrap();
        roster.admit(&mine(3), connection);
        assert!(told(client).contains("2 workers are running"));
        assert_eq!(roster.figures().workers, 2.0);
        // These do not know how to leave, so they are killed; both are gone afterwards.
        roster.stop(Duration::ZERO);
    }

    #[test]
    fn whoever_is_remembered_gets_a_worker_without_asking() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("s");
        Register::open(&state).unwrap().remember(&mine(1)).unwrap();
        let mut roster = roster(&state, &["/bin/sh", "-c", "exec sleep 600"]);
        assert_eq!(roster.figures().workers, 0.0);
        roster.tend();
        assert_eq!(roster.figures().workers, 1.0);
        roster.stop(Duration::ZERO);
    }
}
