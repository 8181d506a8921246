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
//!
//! A file says in its bytes which application wrote it, under which path and in which version, so that a state is
//! told from its neighbours, and a torn file from both.

use std::collections::BTreeMap;
use std::fs::{self, File};
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

/// What a planted file holds.
const STRANGER: &[u8] = b"a stranger's";
/// The user that the second server works for where this is root.
const OTHER_USER: u32 = 65534;
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

/// Path to version.
type State = BTreeMap<String, u64>;

/// An application: a directory that it writes to, and every state that the directory had.
struct Application {
    name: char,
    source: PathBuf,
    states: Vec<State>,
    /// The state at the first request for this source.
    first_asked: Option<usize>,
}

impl Application {
    fn now(&self) -> &State {
        self.states.last().expect("there is a first state")
    }

    /// The bytes of a file. Its size goes by the path alone, so that versions differ in nothing but bytes and times.
    fn bytes(&self, path: &str, version: u64) -> Vec<u8> {
        let line = format!("{} {path} {version:06}\n", self.name);
        let size = 1000 + path.bytes().fold(0_usize, |sum, byte| (sum * 31 + usize::from(byte)) % 70_000);
        let size = if path.ends_with("large") { (4 << 20) + size } else { size };
        line.bytes().cycle().take(size).collect()
    }
}

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
}

/// What an application or the stranger does next, and the state of the application after it.
struct Deed {
    changes: Vec<Change>,
    application: usize,
    after: Option<State>,
    plants: bool,
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
        };
        fs::create_dir(world.fast.join("marks")).unwrap();
        fs::set_permissions(world.fast.join("marks"), fs::Permissions::from_mode(0o777)).unwrap();
        for which in 0..2 {
            world.write_first(which);
        }
        world
    }

    fn write_first(&mut self, which: usize) {
        let large = self.random.below(4) == 0;
        let mut state = State::new();
        for path in ["one", "two", "below/three", "below/deeper/four"] {
            self.versions += 1;
            state.insert(path.to_owned(), self.versions);
        }
        if large {
            self.versions += 1;
            state.insert("large".to_owned(), self.versions);
        }
        let application = &self.applications[which];
        for (path, version) in &state {
            let path_there = application.source.join(path);
            fs::create_dir_all(path_there.parent().unwrap()).unwrap();
            fs::write(path_there, application.bytes(path, *version)).unwrap();
        }
        if let Some(user) = self.servers[which].user {
            own(&application.source, user);
        }
        self.applications[which].states[0] = state;
    }

    /// What an application or the stranger does next: one thing, or a whole set written anew, file by file.
    fn deeds(&mut self, which: usize) -> Vec<Deed> {
        let mut state = self.applications[which].now().clone();
        let mut deeds = Vec::new();
        if self.random.below(5) < 2 {
            let mut paths: Vec<String> = state.keys().cloned().collect();
            while !paths.is_empty() {
                let path = paths.swap_remove(self.random.below(paths.len() as u64) as usize);
                let how = self.random.below(4);
                deeds.push(self.deed(which, &state, how, Some(path)));
                state = deeds.last().and_then(|deed| deed.after.clone()).unwrap_or(state);
            }
            return deeds;
        }
        for _ in 0..1 + self.random.below(3) {
            let kind = self.random.below(10);
            let nth = self.random.below(state.len().max(1) as u64) as usize;
            let path = state.keys().nth(nth).cloned();
            deeds.push(self.deed(which, &state, kind, path));
            state = deeds.last().and_then(|deed| deed.after.clone()).unwrap_or(state);
        }
        deeds
    }

    /// Something that an application or the stranger may do now, as if `state` were the application's.
    fn deed(&mut self, which: usize, state: &State, kind: u64, path: Option<String>) -> Deed {
        self.versions += 1;
        let version = self.versions;
        let application = &self.applications[which];
        let at = |path: &str| PathText(application.source.join(path));
        let aside = PathText(application.source.with_file_name(format!("aside-{version}")));
        let mut after = state.clone();
        let mut plants = false;
        let changes = match (kind, path) {
            // In place, the time of modification as it was or not.
            (0..=2, Some(path)) => {
                after.insert(path.clone(), version);
                let bytes = application.bytes(&path, version);
                vec![Change::Write { path: at(&path), offset: 0, bytes, keep_times: kind == 0 }]
            }
            // By a rename over it.
            (3, Some(path)) => {
                after.insert(path.clone(), version);
                let bytes = application.bytes(&path, version);
                vec![
                    Change::Create { path: aside.clone(), bytes },
                    Change::Rename { from: aside, to: at(&path) },
                ]
            }
            (4, Some(path)) => {
                after.remove(&path);
                vec![Change::Remove { path: at(&path) }]
            }
            (5, _) if !state.is_empty() => {
                let path = format!("new-{version}");
                after.insert(path.clone(), version);
                let bytes = application.bytes(&path, version);
                vec![
                    Change::Create { path: aside.clone(), bytes },
                    Change::Rename { from: aside, to: at(&path) },
                ]
            }
            (6, Some(path)) => {
                // Another name has other bytes by the rule that a file says its path: so a rename is a removal of one
                // version and the appearance of another.
                let to = format!("renamed-{version}");
                after.remove(&path);
                after.insert(to.clone(), version);
                let bytes = application.bytes(&to, version);
                vec![
                    Change::Create { path: aside.clone(), bytes },
                    Change::Rename { from: aside, to: at(&path) },
                    Change::Rename { from: at(&path), to: at(&to) },
                ]
            }
            (7 | 8, _) => {
                plants = true;
                vec![Change::SwapPart { directory: PathText(self.slow.clone()), bytes: STRANGER.to_vec() }]
            }
            _ => {
                plants = true;
                let theirs = self.fast.join(format!("marks/theirs-{version}"));
                vec![
                    Change::Absent { path: PathText(self.destination.clone()) },
                    Change::Plant {
                        made: PathText(theirs),
                        to: PathText(self.destination.clone()),
                        bytes: STRANGER.to_vec(),
                    },
                ]
            }
        };
        let after = (!plants).then_some(after);
        Deed { changes, application: which, after, plants }
    }

    /// Deeds one after another, each followed by a mark that says that it was done.
    fn marked(&mut self, deeds: &[Deed]) -> Vec<Change> {
        let mut changes = Vec::new();
        for deed in deeds {
            changes.extend(deed.changes.iter().cloned());
            changes.push(Change::Create {
                path: PathText(self.fast.join(format!("marks/{}", self.marks))),
                bytes: Vec::new(),
            });
            self.marks += 1;
        }
        changes
    }

    /// Takes note of the deeds that have been done, from mark `first`.
    fn note(&mut self, deeds: Vec<Deed>, first: usize) {
        for (n, deed) in deeds.into_iter().enumerate() {
            if !self.fast.join(format!("marks/{}", first + n)).exists() {
                break;
            }
            self.log.push(format!("  done: {:?}", summary(&deed.changes)));
            match deed.after {
                Some(after) => self.applications[deed.application].states.push(after),
                None => self.planted += usize::from(deed.plants),
            }
        }
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
        order.threads = 1 + self.random.below(3) as usize;
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
            deeds = self.deeds(server);
            let call = MOMENTS[self.random.below(MOMENTS.len() as u64) as usize];
            let after = self.random.below(16);
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
        let swap = Change::SwapPart { directory: PathText(self.slow.clone()), bytes: STRANGER.to_vec() };
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
        let reports = std::thread::scope(|scope| {
            let other = scope.spawn(|| this.run(1, &orders[1]));
            [this.run(0, &orders[0]), other.join().expect("the other server's order was carried out")]
        });
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

    /// The five rules, as far as they hold at any moment.
    fn judge(&self) {
        let there = self.read(&self.destination);
        if let Some(there) = &there {
            let theirs = there.len() == 1 && there.contains_key("planted");
            let whole = self.applications.iter().any(|application| {
                let since = application.first_asked.unwrap_or(application.states.len());
                application.states.iter().skip(since).any(|state| *there == tagged(application, state))
            });
            if !theirs && !whole {
                self.fail(&format!("1: the destination is no state of a source: {there:?}"));
            }
        }
        for application in &self.applications {
            let here = self.read(&application.source).unwrap_or_default();
            for (path, version) in application.now() {
                let tag = (application.name, *version);
                let is = |tree: &BTreeMap<String, (char, u64)>| tree.get(path) == Some(&tag);
                if !is(&here) && !there.as_ref().is_some_and(is) {
                    self.fail(&format!(
                        "2: {path} {tag:?} is lost; the source has {here:?}, the destination {there:?}"
                    ));
                }
            }
        }
        let found = count(&self.slow);
        if found != self.planted {
            self.fail(&format!("3: the stranger planted {} files, and {found} are there", self.planted));
        }
    }

    /// Every file below, with who wrote it and which version; a file that is none of these is `?`.
    fn read(&self, root: &Path) -> Option<BTreeMap<String, (char, u64)>> {
        fs::symlink_metadata(root).ok()?;
        let mut found = BTreeMap::new();
        let mut waiting = vec![root.to_owned()];
        while let Some(directory) = waiting.pop() {
            for one in fs::read_dir(&directory).unwrap().map(Result::unwrap) {
                let path = one.path();
                if one.file_type().unwrap().is_dir() {
                    waiting.push(path);
                    continue;
                }
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                if name == crate::world::MANIFEST {
                    continue;
                }
                let tag = self.tag(&name, &fs::read(&path).unwrap());
                found.insert(name, tag);
            }
        }
        Some(found)
    }

    fn tag(&self, name: &str, bytes: &[u8]) -> (char, u64) {
        let line = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\n').next().unwrap_or_default())
            .into_owned();
        let version = line.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let who = self.applications.iter().find(|application| {
            line.starts_with(application.name) && application.bytes(name, version) == bytes
        });
        (who.map_or('?', |application| application.name), version)
    }

    /// Carries all that is left out, undisturbed: rule 5 on top of the others.
    fn settle(&mut self) {
        for server in 0..2 {
            self.one(server, false, false);
        }
        let journals = self.servers.iter().map(|server| stage::journal::Journal::peek(&server.state));
        let failed = journals.filter_map(Result::ok).flatten().any(|job| job.state != JobState::Done);
        let parts: Vec<_> = crate::world::names(&self.slow)
            .into_iter()
            .filter(|name| stage::names::is_part(name) && count(&self.slow.join(name)) == 0)
            .collect();
        if !failed && !parts.is_empty() {
            self.fail(&format!("5: every job is done, and parts are left: {parts:?}"));
        }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{} (seed {}): {what}\n{}", self.name, sample::seed(), self.log.join("\n"))
    }
}

fn tagged(application: &Application, state: &State) -> BTreeMap<String, (char, u64)> {
    state.iter().map(|(path, version)| (path.clone(), (application.name, *version))).collect()
}

/// What was done, without the bytes.
fn summary(changes: &[Change]) -> Vec<String> {
    let short = |change: &Change| match change {
        Change::Write { path, keep_times, .. } => {
            format!("write {}, keep times {keep_times}", path.0.display())
        }
        Change::Create { path, .. } => format!("create {}", path.0.display()),
        Change::Plant { to, .. } => format!("plant {}", to.0.display()),
        Change::SwapPart { .. } => "swap a part".to_owned(),
        other => format!("{other:?}"),
    };
    changes.iter().map(short).collect()
}

fn own(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for one in fs::read_dir(path).unwrap() {
            own(&one.unwrap().path(), user);
        }
    }
}

/// Files of the stranger's below.
fn count(root: &Path) -> usize {
    let Ok(metadata) = fs::symlink_metadata(root) else { return 0 };
    if metadata.is_dir() {
        return fs::read_dir(root).unwrap().map(|one| count(&one.unwrap().path())).sum();
    }
    usize::from(metadata.is_file() && fs::read(root).is_ok_and(|bytes| bytes == STRANGER))
}

/// How many cases a run has: more of them with FLASHWRIGHT_CRASH=more or full.
fn cases() -> u64 {
    sample::share(250) as u64
}

#[test]
fn whatever_interleaves_the_destination_is_one_state_and_nothing_is_lost() {
    // What came about, so that cases in which nothing happens do not pass for a proof.
    let mut reached =
        ["it was killed", "done: [\"write", "swap a part", "plant", "Done", "Failed"].map(|what| (what, 0));
    for case in 0..cases() {
        let mut world = World::new(&format!("model {case}"), &crate::world::memory(), &std::env::temp_dir());
        for _ in 0..3 + world.random.below(4) {
            match world.random.below(8) {
                0 => world.both(),
                1 => world.one(0, false, true),
                2 | 3 => world.idle(0),
                n => world.one(usize::from(n == 4), true, true),
            }
        }
        world.settle();
        for (what, count) in &mut reached {
            *count += world.log.iter().filter(|line| line.contains(*what)).count();
        }
    }
    println!("{} cases: {reached:?}", cases());
    assert!(reached.iter().all(|(_, count)| *count > 0), "something was never tried: {reached:?}");
}

/// The same with drives that lose their power once, at a moment of a job's past.
#[test]
fn whatever_interleaves_a_power_cut_leaves_one_state_and_loses_nothing() {
    if let Some(why) = lacking() {
        println!("SKIP the model with power cuts: {why}");
        return;
    }
    for case in 0..sample::share(20) as u64 {
        let name = format!("model of power {case}");
        let mut random = Random::of(&format!("{name} drives"));
        let host = Arc::new(Host::default());
        let kinds = [["ext4", "xfs"], ["xfs", "ext4"], ["xfs", "xfs"]][random.below(3) as usize];
        let mut drives = [0, 1].map(|n| Drive::make(&host, n, 320 << 20, kinds[n]));
        let mut world = World::new(&name, &drives[0].point, &drives[1].point);
        let sync = |drives: &[Drive; 2]| {
            for drive in drives {
                rustix::fs::syncfs(File::open(&drive.point).unwrap()).unwrap();
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
    }
}
