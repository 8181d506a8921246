//! The coordinator: starts the tasks, has them run each way in turn, and keeps what was measured.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::pattern::Rng;
use ranks::local::{self, Listener};
use ranks::{ClockOffset, Lost, Ranks, RanksError, Why, now_ns};
use stage::names::PathText;
use tempfile::TempDir;

use crate::error::FlashioError;
use crate::figures;
use crate::matrices::Matrices;
use crate::orders::{Calibrated, Order, Restored, Written, answers, tell};
use crate::pattern::{BLOCK_BYTES, STAMP_LIMIT};
use crate::record::{Checkpoint, Drain, Leg, Restart, RestorePair, TaskTimes, Way, Work};
use crate::room::{self, TierRoom, Tiers};
use crate::sets::{Drained, Sets};
use crate::task::CLOCK_ROUNDS;

/// How long tasks take to start, at most.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A calibration lasts no longer.
const CALIBRATION_MAX: Duration = Duration::from_secs(1);
/// Pairs of restoring and reading after a restart; even, so that each comes first as often.
const RESTORE_PAIRS: u32 = 2;
/// Computing takes at most so many times what was asked for. An iteration is one multiplication at least.
const CALIBRATION_EXCESS_MAX: f64 = 1.5;

/// What is to be run.
pub struct Config {
    /// A directory on the fast tier.
    pub fast: PathBuf,
    /// A directory on the slow tier.
    pub slow: PathBuf,
    /// How many tasks; where they were started by another program, all ranks but the root.
    pub tasks: u32,
    /// Rows and columns of the matrices.
    pub matrix: u32,
    /// Time of computing between two checkpoints, by which the work is calibrated.
    pub compute: Duration,
    /// Multiplications of an iteration, in place of a calibration.
    pub multiplications: Option<u32>,
    /// Iterations between two checkpoints.
    pub every: u32,
    /// Checkpoints of a leg.
    pub checkpoints: u32,
    /// Bytes of a task's checkpoint, a multiple of 4096.
    pub checkpoint_bytes: u64,
    /// The most blocks; fewer where all comparisons are decided before.
    pub blocks: u32,
    /// No task and no drain of one checkpoint may take longer.
    pub timeout: Duration,
    /// Seed of the order of ways.
    pub seed: u64,
    /// Leave the checkpoints where they are.
    pub keep: bool,
    /// Arguments with which this program becomes a task ([`crate::task::serve`]).
    pub arguments: Vec<OsString>,
    /// Ends the run when it is set.
    pub stop: Arc<AtomicBool>,
    /// Takes what tasks print.
    pub listener: Listener,
    /// Takes what is being done: block, way.
    pub progress: fn(u32, Way),
}

/// What was measured.
pub struct Measured {
    /// The tiers.
    pub tiers: Tiers,
    /// The work that the calibration chose.
    pub work: Work,
    /// Every leg that came to its end.
    pub legs: Vec<Leg>,
    /// Why it ended early.
    pub ended: Option<FlashioError>,
    /// Directories of the checkpoints that are kept.
    pub kept: Option<[PathBuf; 2]>,
    scratch: Scratch,
}

impl Measured {
    /// Removes the checkpoints, unless they are kept. What was measured is to be told before: a launcher of MPI that ends all
    /// processes because one was killed leaves less time than this takes.
    ///
    /// # Errors
    /// [`FlashioError::Io`].
    pub fn remove(self) -> Result<(), FlashioError> {
        if self.kept.is_some() {
            return Ok(());
        }
        self.scratch.remove()
    }
}

/// Runs blocks until all comparisons are decided, the last block, or a failure. Tasks are started, or are the `joined` ranks, which
/// are not killed and started again.
///
/// # Errors
/// [`FlashioError::Invalid`] before anything is written; what fails before the first leg. A later failure is in
/// [`Measured::ended`], beside what was measured before.
pub fn run(config: &Config, joined: Option<Ranks>) -> Result<Measured, FlashioError> {
    check(config)?;
    if joined.is_none() {
        check_memory(config)?;
    }
    let legs = if config.keep { 2 * config.blocks } else { 1 };
    let tiers = room::tiers(&config.fast, &config.slow, bytes_of_leg(config).saturating_mul(legs.into()))?;
    let scratch = Scratch::new(&tiers, config.keep)?;
    let mut session = Session::start(config, &tiers, &scratch, joined)?;
    let mut legs = Vec::new();
    let (ran, work) = (session.blocks(&mut legs), session.work);
    let ended = ran.and_then(|()| session.end()).err();
    let kept =
        config.keep.then(|| [&scratch.fast, &scratch.slow].map(|directory| directory.path().to_owned()));
    Ok(Measured { tiers, work, legs, ended, kept, scratch })
}

/// Bytes that a leg leaves on a tier.
fn bytes_of_leg(config: &Config) -> u64 {
    let files = u64::from(config.tasks).saturating_mul(config.checkpoints.into());
    files.saturating_mul(config.checkpoint_bytes)
}

fn check(config: &Config) -> Result<(), FlashioError> {
    let invalid = |flag: &str, value: String, problem: String, hint| {
        Err(FlashioError::Invalid { flag: format!("{flag}={value}"), problem, hint })
    };
    if config.checkpoint_bytes == 0 || !config.checkpoint_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        let value = units::bytes_short(config.checkpoint_bytes);
        return invalid(
            "checkpoint-size",
            value,
            "is not a multiple of 4 KiB".to_owned(),
            "for instance 64m",
        );
    }
    for (flag, value) in [
        ("tasks", config.tasks),
        ("checkpoints", config.checkpoints),
        ("every", config.every),
        ("blocks", config.blocks),
        ("matrix", config.matrix),
        ("multiplications", config.multiplications.unwrap_or(1)),
    ] {
        if value == 0 || value >= STAMP_LIMIT {
            let problem = format!("is not from 1 to {}", STAMP_LIMIT - 1);
            return invalid(flag, value.to_string(), problem, "a plain number");
        }
    }
    if config.timeout < 2 * config.compute {
        let (timeout, compute) = (units::seconds(config.timeout), units::seconds(config.compute));
        let problem = format!("is less than twice the time of computing, {compute}");
        return invalid("timeout", timeout, problem, "a longer --timeout, or a shorter --compute");
    }
    Ok(())
}

/// Refuses matrices that this host's memory does not hold: the kernel would end its processes, not the tasks alone.
fn check_memory(config: &Config) -> Result<(), FlashioError> {
    let facts = rustix::system::sysinfo();
    let memory_bytes = (facts.totalram as u64).saturating_mul(facts.mem_unit.into());
    let needed_bytes = Matrices::bytes(config.matrix).saturating_mul(config.tasks.into());
    if needed_bytes <= memory_bytes {
        return Ok(());
    }
    let (needed, memory) = (units::bytes(needed_bytes), units::bytes(memory_bytes));
    Err(FlashioError::Invalid {
        flag: format!("matrix={}", config.matrix),
        problem: format!("the matrices of all tasks take {needed}, and this host has {memory} of memory"),
        hint: "a smaller --matrix, or fewer --tasks",
    })
}

/// The directories of a run, one on each tier; they go with it.
struct Scratch {
    fast: TempDir,
    slow: TempDir,
}

impl Scratch {
    fn new(tiers: &Tiers, keep: bool) -> Result<Self, FlashioError> {
        let make = |flag: &str, TierRoom { path, .. }: &TierRoom| {
            let path = &path.0;
            let mut made = tempfile::Builder::new().prefix("flashio-").tempdir_in(path);
            if let Ok(made) = &mut made {
                made.disable_cleanup(keep);
            }
            made.map_err(|error| FlashioError::Invalid {
                flag: format!("{flag}={}", path.display()),
                problem: format!("no directory can be made there: {}", error.kind()),
                hint: "name a directory that is there and may be written to",
            })
        };
        Ok(Self { fast: make("fast", &tiers.fast)?, slow: make("slow", &tiers.slow)? })
    }

    fn remove(self) -> Result<(), FlashioError> {
        for directory in [self.fast, self.slow] {
            let path = directory.path().to_owned();
            directory.close().map_err(FlashioError::io("remove it", &path))?;
        }
        Ok(())
    }
}

/// The tasks, and what they work at.
struct Session<'a> {
    config: &'a Config,
    tiers: &'a Tiers,
    scratch: &'a Scratch,
    ranks: Ranks,
    offsets: Vec<ClockOffset>,
    /// Whether this process has started the tasks.
    has_started: bool,
    work: Work,
    leg: u16,
}

/// A checkpoint's place in time, for the drain's account.
struct Commit {
    committed: Instant,
    /// Seconds from the first byte to the commit.
    io_s: f64,
    durable: Instant,
}

impl<'a> Session<'a> {
    fn start(
        config: &'a Config,
        tiers: &'a Tiers,
        scratch: &'a Scratch,
        joined: Option<Ranks>,
    ) -> Result<Self, FlashioError> {
        let has_started = joined.is_none();
        let (ranks, offsets) = meet(config, joined)?;
        let Config { matrix, every, checkpoint_bytes, .. } = *config;
        let work = Work { matrix, multiplications: 1, every, checkpoint_bytes };
        let mut session = Self { config, tiers, scratch, ranks, offsets, has_started, work, leg: 0 };
        session.work.multiplications = match config.multiplications {
            Some(given) => given,
            None => session.calibrate()?,
        };
        Ok(session)
    }

    fn until(&self) -> Instant {
        Instant::now() + self.config.timeout
    }

    /// Multiplications of an iteration, from the median over tasks of the time of one.
    fn calibrate(&mut self) -> Result<u32, FlashioError> {
        let for_ms = self.config.compute.min(CALIBRATION_MAX).as_millis() as u64;
        let until = self.until();
        tell(&mut self.ranks, &Order::Calibrate { matrix: self.config.matrix, for_ms }, until)?;
        self.ranks.barrier(until)?;
        let calibrated: Vec<Calibrated> = answers(&mut self.ranks, until)?;
        let times: Vec<f64> = calibrated.iter().map(|one| one.one_ns as f64).collect();
        let one_ns = figures::median(&times).max(1.0);
        let iteration_ns = self.config.compute.as_nanos() as f64 / f64::from(self.config.every);
        if one_ns > CALIBRATION_EXCESS_MAX * iteration_ns {
            let Config { compute, every, matrix, .. } = *self.config;
            let least = units::seconds(Duration::from_nanos(one_ns as u64) * every);
            return Err(FlashioError::Invalid {
                flag: format!("compute={}", units::nanoseconds(compute.as_nanos() as f64)),
                problem: format!(
                    "{every} iterations of one multiplication of matrices of {matrix} rows take {least}"
                ),
                hint: "a smaller --matrix, a smaller --every, or --multiplications 1 to have it so",
            });
        }
        Ok(((iteration_ns / one_ns).round() as u32).clamp(1, STAMP_LIMIT - 1))
    }

    fn blocks(&mut self, legs: &mut Vec<Leg>) -> Result<(), FlashioError> {
        let mut rng = Rng::new(self.config.seed);
        for block in 0..self.config.blocks {
            let mut ways = Way::ALL;
            // Fisher and Yates.
            for last in (1..ways.len()).rev() {
                ways.swap(last, rng.below(last as u64 + 1) as usize);
            }
            for way in ways {
                (self.config.progress)(block, way);
                legs.push(self.leg(block, way)?);
            }
            if figures::contests(legs).iter().all(figures::Contest::is_decided) {
                break;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), FlashioError> {
        let until = Instant::now() + START_TIMEOUT;
        tell(&mut self.ranks, &Order::End, until)?;
        Ok(self.ranks.finish(until)?)
    }

    /// One way, once, in directories of its own, which are removed after it.
    fn leg(&mut self, block: u32, way: Way) -> Result<Leg, FlashioError> {
        self.leg = self.leg.wrapping_add(1);
        let name = format!("leg-{:05}", self.leg);
        let [fast, slow] = [&self.scratch.fast, &self.scratch.slow].map(|tier| tier.path().join(&name));
        for directory in [&fast, &slow] {
            std::fs::create_dir(directory).map_err(FlashioError::io("make the directory", directory))?;
            // What the leg before left to be written does not count against this one.
            sync_file_system(directory)?;
        }
        let leg = match way {
            Way::Slow => self.plain(block, way, &slow)?,
            Way::Fast => self.plain(block, way, &fast)?,
            Way::Drained => self.drained(block, &fast, &slow)?,
        };
        for directory in [&fast, &slow].into_iter().filter(|_| !self.config.keep) {
            std::fs::remove_dir_all(directory).map_err(FlashioError::io("remove it", directory))?;
        }
        Ok(leg)
    }

    fn plain(&mut self, block: u32, way: Way, directory: &Path) -> Result<Leg, FlashioError> {
        let sets = Sets::Plain(directory.to_owned());
        let (run_s, checkpoints) = self.application(&sets, |_, _, _| {})?;
        Ok(Leg { block, way, run_s, checkpoints, drain: None, checked_bytes: 0, restart: None })
    }

    fn drained(&mut self, block: u32, fast: &Path, slow: &Path) -> Result<Leg, FlashioError> {
        let drained = Arc::new(Drained::open(fast, slow, self.tiers.slow.is_in_memory)?);
        let sets = Sets::Drained(Arc::clone(&drained));
        let (stop, timeout) = (Arc::clone(&self.config.stop), self.config.timeout);
        let abandoned = AtomicBool::new(false);
        let is_over = || stop.load(Ordering::Relaxed) || abandoned.load(Ordering::Relaxed);
        let (sender, committed) = std::sync::mpsc::channel();
        let (ran, commits) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let durable = |(step, committed, io_s)| {
                    drained.wait(step, timeout, &is_over)?;
                    Ok(Commit { committed, io_s, durable: Instant::now() })
                };
                committed.into_iter().map(durable).collect::<Result<Vec<Commit>, FlashioError>>()
            });
            let ran = self.application(&sets, |step, at, io_s| {
                let _ = sender.send((step, at, io_s));
            });
            abandoned.store(ran.is_err(), Ordering::Relaxed);
            drop(sender);
            (ran, watcher.join().expect("the watcher does not panic"))
        });
        let ((run_s, mut checkpoints), commits) = (ran?, commits?);
        for (checkpoint, commit) in checkpoints.iter_mut().zip(&commits) {
            checkpoint.durable_s = Some(commit.io_s + (commit.durable - commit.committed).as_secs_f64());
        }
        let drain = Some(self.account(&commits, drained.verified_bytes()?));
        let restart = if self.has_started { Some(self.restart(&drained)?) } else { None };
        let mut checked_bytes = 0;
        for step in 1..=self.config.checkpoints {
            checked_bytes += self.read_back(step, &drained.drained(step))?;
        }
        Ok(Leg { block, way: Way::Drained, run_s, checkpoints, drain, checked_bytes, restart })
    }

    /// The tasks compute and write all checkpoints of a leg; the time of it, and each checkpoint. `committed` gets the number of a
    /// checkpoint, when it was committed, and the seconds from its first byte until then.
    fn application(
        &mut self,
        sets: &Sets,
        mut committed: impl FnMut(u32, Instant, f64),
    ) -> Result<(f64, Vec<Checkpoint>), FlashioError> {
        let (work, leg, count) = (self.work, self.leg, self.config.checkpoints);
        let mut directory = PathText(sets.begin(1)?);
        let until = self.until();
        tell(&mut self.ranks, &Order::Run { work, leg, checkpoints: count }, until)?;
        self.ranks.barrier(until)?;
        // Before the tasks are told to begin: what this process waits for a CPU after that is time of theirs.
        let begun = Instant::now();
        let (mut checkpoints, mut run_s) = (Vec::new(), 0.0);
        for step in 1..=count {
            let until = self.until();
            tell(&mut self.ranks, &directory, until)?;
            let written: Vec<Written> = answers(&mut self.ranks, until)?;
            sets.commit(step)?;
            let (now, committed_ns) = (Instant::now(), now_ns());
            let checkpoint = self.checkpoint(step, &written, committed_ns);
            run_s = (now - begun).as_secs_f64();
            committed(step, now, checkpoint.io_s());
            checkpoints.push(checkpoint);
            if step < count {
                directory = PathText(sets.begin(step + 1)?);
            }
        }
        Ok((run_s, checkpoints))
    }

    /// The times of a checkpoint, on the coordinator's clock.
    fn checkpoint(&self, step: u32, written: &[Written], committed_ns: i64) -> Checkpoint {
        let seconds = |from: i64, to: i64| (to - from) as f64 / 1e9;
        let own = |one: &Written| TaskTimes {
            compute_s: one.compute_s,
            write_s: seconds(one.begun_ns, one.ended_ns),
        };
        let begun_ns = self.on_own_clock(written, |one| one.begun_ns).min().unwrap_or(committed_ns);
        let ended_ns = self.on_own_clock(written, |one| one.ended_ns).max().unwrap_or(committed_ns);
        Checkpoint {
            step,
            tasks: written.iter().map(own).collect(),
            write_s: seconds(begun_ns, ended_ns),
            // The clock of another node is known to half of a round trip.
            publish_s: seconds(ended_ns, committed_ns).max(0.0),
            durable_s: None,
        }
    }

    /// Times of all tasks in order, each by the task's clock, as times of this process's clock.
    fn on_own_clock<'b, T>(&'b self, all: &'b [T], time: fn(&T) -> i64) -> impl Iterator<Item = i64> + 'b {
        // The first offset is that of this process.
        all.iter().zip(self.offsets.iter().skip(1)).map(move |(one, clock)| time(one) - clock.offset_ns)
    }

    fn account(&self, commits: &[Commit], verified_bytes: u64) -> Drain {
        let (mut busy, mut end) = (Duration::ZERO, None);
        for commit in commits {
            let from = end.map_or(commit.committed, |end: Instant| end.max(commit.committed));
            busy += commit.durable.saturating_duration_since(from);
            end = Some(commit.durable);
        }
        let behind = |at: Instant| {
            commits.iter().filter(|commit| commit.committed <= at && at < commit.durable).count() as u32
        };
        Drain {
            bytes: bytes_of_leg(self.config),
            verified_bytes,
            busy_s: busy.as_secs_f64(),
            most_behind: commits.iter().map(|commit| behind(commit.committed)).max().unwrap_or(0),
        }
    }

    /// Kills the tasks in the middle of an iteration, and starts them again from the newest checkpoint on the fast tier.
    fn restart(&mut self, drained: &Drained) -> Result<Restart, FlashioError> {
        let (work, leg) = (self.work, self.leg);
        let until = self.until();
        tell(&mut self.ranks, &Order::Compute { work }, until)?;
        std::thread::sleep((self.config.compute / self.config.every / 2).min(CALIBRATION_MAX));
        let killed_ns = now_ns();
        self.ranks.kill();
        (self.ranks, self.offsets) = meet(self.config, None)?;
        let started_ns = now_ns();
        let (step, directory) = drained.newest()?;
        let restored =
            self.read(&Order::Restore { work, leg, step, directory: PathText(directory), compute: true })?;
        let pairs = (0..RESTORE_PAIRS).map(|pair| self.restore_pair(drained, pair.is_multiple_of(2)));
        let pairs = pairs.collect::<Result<_, FlashioError>>()?;
        let seconds = |to: i64| (to - killed_ns) as f64 / 1e9;
        Ok(Restart {
            started_s: seconds(started_ns),
            restored_s: seconds(restored.restored_ns),
            first_step_s: seconds(restored.done_ns),
            pairs,
        })
    }

    /// Restores the newest checkpoint and reads its bytes, in this order or the other. The tasks' page cache is dropped before each
    /// of the two ([`crate::checkpoint::Files::read`]).
    fn restore_pair(&mut self, drained: &Drained, restore_first: bool) -> Result<RestorePair, FlashioError> {
        let (work, leg) = (self.work, self.leg);
        let (mut restore_s, mut read_s) = (0.0, 0.0);
        for is_restore in [restore_first, !restore_first] {
            let begun_ns = now_ns();
            let (step, directory) = drained.newest()?;
            let directory = PathText(directory);
            if is_restore {
                let order = Order::Restore { work, leg, step, directory, compute: false };
                restore_s = (self.read(&order)?.restored_ns - begun_ns) as f64 / 1e9;
            } else {
                let read = self.read(&Order::Read { work, directory })?;
                read_s = (read.restored_ns - read.begun_ns) as f64 / 1e9;
            }
        }
        Ok(RestorePair { restore_first, restore_s, read_s })
    }

    /// Has all tasks compare their files of a checkpoint; the bytes.
    fn read_back(&mut self, step: u32, directory: &Path) -> Result<u64, FlashioError> {
        let (work, leg, directory) = (self.work, self.leg, PathText(directory.to_owned()));
        let read = self.read(&Order::Restore { work, leg, step, directory, compute: false })?;
        Ok(read.blocks * BLOCK_BYTES as u64)
    }

    /// Has all tasks read; from the first that began to the last that ended, by the coordinator's clock.
    fn read(&mut self, order: &Order) -> Result<Restored, FlashioError> {
        let until = self.until();
        tell(&mut self.ranks, order, until)?;
        let all: Vec<Restored> = answers(&mut self.ranks, until)?;
        Ok(Restored {
            begun_ns: self.on_own_clock(&all, |own| own.begun_ns).min().unwrap_or_default(),
            restored_ns: self.on_own_clock(&all, |own| own.restored_ns).max().unwrap_or_default(),
            done_ns: self.on_own_clock(&all, |own| own.done_ns).max().unwrap_or_default(),
            blocks: all.iter().map(|own| own.blocks).sum(),
        })
    }
}

/// Starts the tasks, unless they have joined, and compares their clocks.
fn meet(config: &Config, joined: Option<Ranks>) -> Result<(Ranks, Vec<ClockOffset>), FlashioError> {
    let until = Instant::now() + START_TIMEOUT;
    let start = || local::start(config.tasks, &config.arguments, &config.listener, until);
    let met = joined.map_or_else(start, Ok).and_then(|mut ranks| {
        ranks.stop_on(Arc::clone(&config.stop));
        let offsets = ranks.clock_offsets(CLOCK_ROUNDS, until)?;
        Ok((ranks, offsets))
    });
    met.map_err(|error| match error {
        RanksError::Lost(lost @ Lost { why: Why::Late(_), .. }) => {
            FlashioError::NotJoined { tasks: config.tasks, lost }
        }
        other => other.into(),
    })
}

fn sync_file_system(directory: &Path) -> Result<(), FlashioError> {
    let file = std::fs::File::open(directory).map_err(FlashioError::io("open it", directory))?;
    rustix::fs::syncfs(&file).map_err(|error| FlashioError::io("syncfs", directory)(error.into()))
}
