//! A model of what may be seen, and random interleavings held against it.
//!
//! Applications write sets, two servers move and copy them to one name, requests come twice, processes are killed,
//! the power fails, a stranger plants directories: in any order, at any call. Whatever happens ([`World::judge`]):
//!
//! 1. What stands at the destination is a state that its source had since it was first asked for, whole, or it is
//!    the stranger's.
//! 2. Every file that an application wrote last is in its source or at the destination, with those bytes.
//! 3. What the stranger made is untouched.
//! 4. A request that is done has its source's state at that request, or a later one, at the destination.
//! 5. When every job is done, no part is left.
//! 6. A job whose source is there and whose destination is free, or equal, ends: within a bounded number of calls, and
//!    done when it was begun again three times at most.
//!
//! A file says in its bytes which application wrote it, under which path and in which version, and its mode and time go
//! by the version too, so that a state is told from its neighbours, and a torn file from both. A symbolic link likewise.
//!
//! Half of the changes are directed: a whole set is written anew between the copies of two of its files, which makes a mixture if
//! nobody compares. One world in three has a file system like NFS. [`FOUND`] says what the model finds by itself.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use stage::fault::Call;
use stage::job::JobId;
use stage::names::PathText;
use stage::{JobSpec, Level, Options, Place, State as JobState, Verb};

use crate::child::{Change, Ended, Hit, Order, Report, Strike, command, run, run_as};
use crate::device::{Drive, Host, lacking};
use crate::sample::{self, Random};

#[path = "model/deeds.rs"]
mod deeds;
#[path = "model/judge.rs"]
mod judge;

use deeds::{Application, STRANGER, State, summary};
use judge::{count, tagged};

/// The user that the second server works for where this is root.
const OTHER_USER: u32 = 65534;
/// Most calls of a mover with a few small jobs: ten times what the longest takes.
const MOST_CALLS: usize = 40_000;
/// Calls before which the world may change. Not unlinkat(2): it takes a name, so what is written to a file between
/// the last check of it and its removal is lost, as docs/faults.md says.
const MOMENTS: [Call; 9] = [
    Call::Openat,
    Call::Read,
    Call::Write,
    Call::Statx,
    Call::Getdents,
    Call::Journal,
    Call::Syncfs,
    Call::Fsync,
    Call::Renameat,
];

/// A server: its journal, whose user it is, and what it was asked for.
struct Server {
    state: PathBuf,
    user: Option<u32>,
    /// Jobs by number, each with the application and its state when it was last asked for.
    asked: Vec<(JobId, usize, usize)>,
}

struct World {
    name: String,
    random: Random,
    _homes: Vec<tempfile::TempDir>,
    fast: PathBuf,
    slow: PathBuf,
    destination: PathBuf,
    applications: Vec<Application>,
    servers: Vec<Server>,
    versions: u64,
    planted: usize,
    marks: usize,
    log: Vec<String>,
    /// Every file is synced by itself, and renameat2(2) does not know RENAME_NOREPLACE.
    is_like_nfs: bool,
    /// The check that is left out.
    left_out: Option<&'static str>,
    /// Nothing is done at once, so that what comes about does not depend on who is first.
    is_in_turn: bool,
}

impl World {
    fn new(name: &str, fast: &Path, slow: &Path) -> Self {
        let home = |root: &Path| {
            let home = tempfile::Builder::new().prefix("flashwright-model").tempdir_in(root).unwrap();
            fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
            home
        };
        let homes = vec![home(fast), home(slow), home(fast)];
        let (fast, slow, other) =
            (homes[0].path().to_owned(), homes[1].path().to_owned(), homes[2].path().to_owned());
        let mut random = Random::of(name);
        let root = rustix::process::geteuid().is_root();
        let other_user = (root && random.below(3) == 0).then_some(OTHER_USER);
        if let Some(user) = other_user {
            std::os::unix::fs::chown(&other, Some(user), Some(user)).unwrap();
            fs::set_permissions(&slow, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let application = |name, home: &Path| Application {
            name,
            source: home.join("set"),
            states: vec![State::new()],
            first_asked: None,
        };
        let server = |home: &Path, user| Server { state: home.join("state"), user, asked: Vec::new() };
        let mut world = Self {
            name: name.to_owned(),
            random,
            applications: vec![application('a', &fast), application('b', &other)],
            servers: vec![server(&fast, None), server(&other, other_user)],
            destination: slow.join("set"),
            _homes: homes,
            fast,
            slow,
            versions: 0,
            planted: 0,
            marks: 0,
            log: Vec::new(),
            is_like_nfs: false,
            left_out: None,
            is_in_turn: false,
        };
        world.is_like_nfs = crate::LIKE_NFS || world.random.below(3) == 0;
        fs::create_dir(world.fast.join("marks")).unwrap();
        fs::set_permissions(world.fast.join("marks"), fs::Permissions::from_mode(0o777)).unwrap();
        for which in 0..2 {
            world.write_first(which);
        }
        world
    }

    fn spec(&self, which: usize, verb: Verb) -> JobSpec {
        JobSpec {
            verb,
            source: Place::of_path(&self.applications[which].source).unwrap(),
            destination: Place::of_path(&self.destination).unwrap(),
            options: Options::default(),
        }
    }

    /// An order to a server: go on, and be asked for the application's set, once more where it was before.
    fn order(&mut self, server: usize, ask: bool) -> Order {
        let verb = if self.random.below(2) == 0 { Verb::Move } else { Verb::Copy };
        let mut order = Order::go_on(&self.servers[server].state);
        (order.retry, order.again) = (true, ask);
        (order.distrust, order.lacks_noreplace) = (self.is_like_nfs, self.is_like_nfs);
        order.trust = !self.is_like_nfs;
        order.left_out = self.left_out.map(str::to_owned);
        order.threads = 1 + self.random.below(3) as usize;
        if self.is_in_turn {
            order.threads = 1;
        }
        if ask {
            order.spec = Some(self.spec(server, verb));
            let application = &mut self.applications[server];
            application.first_asked.get_or_insert(application.states.len() - 1);
        }
        self.log.push(format!("server {server}: ask {ask} {verb:?}, threads {}", order.threads));
        order
    }

    fn run(&self, server: usize, order: &Order) -> Option<Report> {
        let ended = match self.servers[server].user {
            Some(user) => run_as(order, user, user).expect("the other user can run this binary"),
            None => run(order),
        };
        match ended {
            Ended::Killed => None,
            Ended::Told(report) => Some(*report),
        }
    }

    /// One server at work, while the world changes, and perhaps killed.
    fn one(&mut self, server: usize, ask: bool, disturbed: bool) {
        let mut order = self.order(server, ask);
        let asked_at = self.applications[server].states.len() - 1;
        let (mut deeds, first) = (Vec::new(), self.marks);
        if disturbed && self.random.below(4) != 0 {
            let (call, after);
            if self.random.below(2) == 0 {
                deeds = self.rewritten(server);
                // Small files are read together; a large one by itself, before or after them.
                after = self.random.below(6);
                call = if after < 3 { Call::Fallocate } else { Call::Write };
            } else {
                deeds = self.deeds(server);
                call = MOMENTS[self.random.below(MOMENTS.len() as u64) as usize];
                after = self.random.below(16);
            }
            order.again_after_change = ask && self.random.below(2) == 0;
            self.log.push(format!("  before {call:?} {after}: {} deeds", deeds.len()));
            order =
                order.strike([Strike::nth_of(call, after, Hit::Meanwhile)]).meanwhile(self.marked(&deeds));
        }
        if disturbed && self.random.below(2) == 0 {
            let n = self.random.below(160);
            self.log.push(format!("  killed at call {n}"));
            order = order.strike([Strike::nth(n, Hit::Kill)]);
        }
        let report = self.run(server, &order);
        self.note(deeds, first);
        self.take(server, asked_at, report);
        self.judge();
    }

    /// The world changes while nobody is at work.
    fn idle(&mut self, which: usize) {
        let (deeds, first) = (self.deeds(which), self.marks);
        self.log.push("nobody at work".to_owned());
        for change in self.marked(&deeds) {
            if change.make().is_err() {
                break;
            }
        }
        self.note(deeds, first);
        self.judge();
    }

    /// Every other time the stranger takes the names of the parts that a killed mover has left.
    fn swap_what_is_left(&mut self) {
        let swap = Change::SwapPart { directory: PathText(self.slow.clone()), content: STRANGER.into() };
        if self.random.below(2) == 0 && swap.make().is_ok() {
            self.planted += 1;
            self.log.push(format!("  done: {:?}", summary(&[swap])));
        }
    }

    /// Both servers at once, with nobody else about: who is first has the name.
    fn both(&mut self) {
        let orders = [self.order(0, true), self.order(1, true)];
        let asked_at = [0, 1].map(|server: usize| self.applications[server].states.len() - 1);
        let this = &*self;
        let reports = if self.is_in_turn {
            [0, 1].map(|server| this.run(server, &orders[server]))
        } else {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| this.run(1, &orders[1]));
                [this.run(0, &orders[0]), other.join().expect("the other server's order was carried out")]
            })
        };
        for (server, report) in reports.into_iter().enumerate() {
            self.take(server, asked_at[server], report);
        }
        self.judge();
    }

    /// What a server has said.
    fn take(&mut self, server: usize, asked_at: usize, report: Option<Report>) {
        let Some(report) = report else {
            self.log.push("  it was killed".to_owned());
            return self.swap_what_is_left();
        };
        if let Some(refused) = &report.refused {
            self.log.push(format!("  refused: {}", refused.message));
        }
        let latest = self.applications[server].states.len() - 1;
        for (id, asked_at) in
            report.submitted.map(|id| (id, asked_at)).into_iter().chain(report.again.map(|id| (id, latest)))
        {
            self.servers[server].asked.retain(|(job, ..)| *job != id);
            self.servers[server].asked.push((id, server, asked_at));
        }
        if report.calls.len() > MOST_CALLS {
            self.fail(&format!("6: {} calls", report.calls.len()));
        }
        for job in &report.jobs {
            let why = job.error.as_ref().map(|why| &why.message);
            self.log.push(format!("  job {} {:?} {why:?} {:?}", job.id, job.state, job.notes));
        }
        // Rule 4, of each request that is done now.
        let states: Vec<(JobId, usize, usize)> = self.servers[server].asked.clone();
        for (id, which, asked_at) in states {
            let done = report.jobs.iter().any(|job| job.id == id && job.state == JobState::Done);
            if !done {
                continue;
            }
            let application = &self.applications[which];
            let there = self.read(&self.destination);
            let whole = |state: &State| there.as_ref() == Some(&tagged(application, state));
            if !application.states[asked_at..].iter().any(whole) {
                self.fail(&format!(
                    "4: job {id} of server {server} is done, and the state that was asked for is not there: {there:?}"
                ));
            }
            // What becomes of the destination after this is another request's matter.
            self.servers[server].asked.retain(|(job, ..)| *job != id);
        }
    }

    /// Carries all that is left out, undisturbed: rules 5 and 6 on top of the others.
    fn settle(&mut self) {
        let mut open = Vec::new();
        for _ in 0..3 {
            for server in 0..2 {
                self.one(server, false, false);
            }
            let journals = self.servers.iter().map(|server| stage::journal::Journal::peek(&server.state));
            open = journals.map(Result::ok).map(Option::unwrap_or_default).collect();
            for jobs in &mut open {
                jobs.retain(|job| job.state != JobState::Done);
            }
            if open.iter().all(Vec::is_empty) {
                break;
            }
        }
        let there = self.read(&self.destination);
        for (jobs, application) in open.iter().zip(&self.applications) {
            let here = self.read(&application.source);
            let is_free = there.is_none() || there == here;
            if let (Some(job), Some(_), true) = (jobs.first(), here, is_free) {
                self.fail(&format!("6: nothing is in the way of job {}, and it is {:?}", job.id, job.state));
            }
        }
        let parts: Vec<_> = crate::world::names(&self.slow)
            .into_iter()
            .filter(|name| stage::names::is_part(name) && count(&self.slow.join(name)) == 0)
            .collect();
        if open.iter().all(Vec::is_empty) && !parts.is_empty() {
            self.fail(&format!("5: every job is done, and parts are left: {parts:?}"));
        }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{} (seed {}): {what}\n{}", self.name, sample::seed(), self.log.join("\n"))
    }
}

/// How many cases a run has: more of them with FLASHWRIGHT_CRASH=more or full.
fn cases() -> u64 {
    sample::share(150) as u64
}

/// One random interleaving, with something left out or nothing; what came about.
fn interleave(case: u64, left_out: Option<&'static str>, is_in_turn: bool) -> Vec<String> {
    // In memory: what syncs cost is no matter of this.
    let memory = crate::world::memory();
    let mut world = World::new(&format!("model {case}"), &memory, &memory);
    (world.left_out, world.is_in_turn) = (left_out, is_in_turn);
    for _ in 0..3 + world.random.below(4) {
        match world.random.below(8) {
            0 => world.both(),
            1 => world.one(0, false, true),
            2 | 3 => world.idle(0),
            n => world.one(usize::from(n == 4), true, true),
        }
    }
    world.settle();
    std::mem::take(&mut world.log)
}

#[test]
fn whatever_interleaves_the_destination_is_one_state_and_nothing_is_lost() {
    // What came about, so that cases in which nothing happens do not pass for a proof.
    let mut reached =
        ["it was killed", "done: [\"write", "swap a part", "plant", "Done", "Failed"].map(|what| (what, 0));
    for case in 0..cases() {
        let log = interleave(case, None, false);
        for (what, count) in &mut reached {
            *count += log.iter().filter(|line| line.contains(*what)).count();
        }
    }
    println!("{} cases: {reached:?}", cases());
    assert!(reached.iter().all(|(_, count)| *count > 0), "something was never tried: {reached:?}");
}

/// Does an interleaving break a rule with this left out?
fn finds(case: u64, word: &'static str, is_in_turn: bool) -> Option<String> {
    let panic = std::panic::catch_unwind(|| interleave(case, Some(word), is_in_turn)).err()?;
    let said = panic.downcast_ref::<String>()?;
    // A case that breaks down otherwise shows nothing.
    said.contains("(seed ").then(|| said.lines().next().unwrap_or_default().to_owned())
}

/// Checks that the model misses by itself when they are left out, each with the first case that shows it, with the usual
/// seed.
const FOUND: [(&str, u64); 2] = [("source-after-read", 6), ("discarded-part", 8)];

#[test]
fn the_model_misses_what_is_left_out() {
    if sample::seed() != sample::USUAL_SEED {
        println!("SKIP what the model finds: its cases are of the usual seed");
        return;
    }
    for (word, first) in FOUND {
        let found = (first..first + 10).find_map(|case| finds(case, word, true));
        println!("{word}: {}", found.unwrap_or_else(|| panic!("{word}: not found from case {first}")));
    }
}

/// Which checks the model misses, for [`FOUND`]: those that FLASHWRIGHT_MODEL names, or `all`.
#[test]
fn the_model_is_tried_with_checks_left_out() {
    let Ok(words) = std::env::var("FLASHWRIGHT_MODEL") else { return };
    let is_named = |word: &str| words == "all" || words.split(',').any(|one| one == word);
    for word in stage::fault::Check::ALL.iter().map(|check| check.word()).filter(|word| is_named(word)) {
        let found = (0..cases()).find_map(|case| Some((case, finds(case, word, false)?)));
        println!("FOUND {word} of {} cases: {found:?}", cases());
    }
}

/// The same with drives that lose their power once, at a moment of a job's past.
#[test]
fn whatever_interleaves_a_power_cut_leaves_one_state_and_loses_nothing() {
    if let Some(why) = lacking() {
        println!("SKIP the model with power cuts: {why}");
        return;
    }
    // So that cases without a job that became durable, or a mover that was killed, do not pass for a proof.
    let mut reached = ["durable at Some", "it was killed"].map(|what| (what, 0));
    for case in 0..sample::share(40) as u64 {
        let name = format!("model of power {case}");
        let mut random = Random::of(&format!("{name} drives"));
        let host = Arc::new(Host::default());
        let kinds = [["ext4", "xfs"], ["xfs", "ext4"], ["xfs", "xfs"]][random.below(3) as usize];
        let mut drives = [0, 1].map(|n| Drive::make(&host, n, 320 << 20, kinds[n]));
        let mut world = World::new(&name, &drives[0].point, &drives[1].point);
        let sync = |drives: &[Drive; 2]| {
            for drive in drives {
                rustix::fs::syncfs(fs::File::open(&drive.point).unwrap()).unwrap();
            }
        };
        if random.below(2) == 0 {
            world.one(0, true, true);
        }
        // What an application has not synced is its own to lose.
        sync(&drives);
        let begin = host.now();
        let asked_at = world.applications[0].states.len() - 1;
        let mut order = world.order(0, true);
        order.say = Some(Level::Durable);
        let mut child = command(&order).stdout(Stdio::piped()).spawn().unwrap();
        let mut durable = None;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            if line.starts_with("crash-child: durable done") {
                durable = Some(host.now());
            }
        }
        child.wait().unwrap();
        let end = host.now();
        for drive in &mut drives {
            drive.unplug();
        }
        let flushes = host.flushes(1, begin, end);
        let mut moments = vec![end, begin + random.below((end - begin) as u64) as usize];
        moments.extend(durable);
        moments.extend(flushes.get(random.below(flushes.len().max(1) as u64) as usize));
        for (n, moment) in moments.into_iter().enumerate() {
            let mut luck = (n % 2 == 1).then(|| Random::of(&format!("{name} {moment}")));
            let images = [0, 1].map(|drive| host.image(drive, moment, luck.as_mut()));
            let _mounted: Vec<_> =
                drives.iter().zip(&images).map(|(drive, image)| drive.power_up(image)).collect();
            world.log.push(format!("power cut at {moment} of {begin}..{end}, durable at {durable:?}"));
            world.judge();
            if durable.is_some_and(|durable| moment >= durable) {
                let application = &world.applications[0];
                let there = world.read(&world.destination);
                let whole = |state: &State| there.as_ref() == Some(&tagged(application, state));
                if !application.states[asked_at..].iter().any(whole) {
                    world.fail(&format!("4: it was durable, and after the power cut there is {there:?}"));
                }
            }
            world.settle();
        }
        for (what, count) in &mut reached {
            *count += world.log.iter().filter(|line| line.contains(*what)).count();
        }
    }
    println!("{reached:?}");
    let [(_, durable), (_, killed)] = reached;
    // A few cases of another seed may have no kill.
    assert!(durable > 0 && (killed > 0 || sample::seed() != sample::USUAL_SEED), "{reached:?}");
}
