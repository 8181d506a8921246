//! Screened sweeps: what they run, that it follows from what is stored, and what they recommend and say.

mod fake;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fake::{check_that_blocks_follow_from_what_was_stored, identity};
use measure::record::TargetFacts;
use measure::{RunRecord, Target, TargetError, Workload};
use sweep::load::load;
use sweep::model::Point;
use sweep::plan::Protocol;
use sweep::report::{Report, html, markdown};
use sweep::run::{Ended, Outcome, Quiet, Runner, TargetFactory, begin};
use sweep::space::{Overrides, Space};
use sweep::store::Store;

const SPACE: &str = "
[sweep]
search = 'screen'
block_spacing = '0s'
seed = 5
runtime = '0.01s'
control_every = 40
[base]
drives = ['/dev/a', '/dev/b', '/dev/c', '/dev/d', '/dev/e', '/dev/f', '/dev/g', '/dev/h']
layout = 'md-raid0'
[space]
chunk = ['16k', '64k', '256k']
width = [1, 2, 4, 8]
filesystem = ['raw', 'xfs']
scheduler = ['none', 'mq-deadline', 'bfq']
iodepth = [1, 4, 16, 64]
rw = ['randread', 'randwrite']
";

/// How fast layouts are; targets fail after `stop_after` runs as if the user had interrupted.
#[derive(Clone)]
struct Machine {
    speed: fn(&BTreeMap<String, String>) -> f64,
    asked: Arc<AtomicUsize>,
    stop_after: usize,
    stop: Arc<AtomicBool>,
}

struct Built {
    machine: Machine,
    layout: BTreeMap<String, String>,
    facts: TargetFacts,
}

impl TargetFactory for Machine {
    fn open(&mut self, _: &str, point: &Point) -> Result<Box<dyn Target>, TargetError> {
        let (machine, layout) = (self.clone(), point.layout.clone());
        Ok(Box::new(Built { machine, layout, facts: TargetFacts::default() }))
    }

    fn key(&self, point: &Point) -> String {
        format!("{:?}", point.layout)
    }
}

impl Target for Built {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        let asked = self.machine.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.machine.stop.store(asked.is_multiple_of(self.machine.stop_after), Ordering::Relaxed);
        Ok(fake::record(workload, &self.facts, (self.machine.speed)(&self.layout)))
    }
}

/// As expected: more drives, larger chunks and no file system are faster.
fn as_expected(layout: &BTreeMap<String, String>) -> f64 {
    let chunk = match layout["chunk"].as_str() {
        "16k" => 0.7,
        "64k" => 0.9,
        _ => 1.0,
    };
    let filesystem = if layout["filesystem"] == "raw" { 1.0 } else { 0.6 };
    let scheduler = if layout["scheduler"] == "bfq" { 0.5 } else { 1.0 };
    layout["width"].parse::<f64>().unwrap() * chunk * filesystem * scheduler
}

/// Against what is expected: small chunks and the file system are faster.
fn against_expectation(layout: &BTreeMap<String, String>) -> f64 {
    let chunk = if layout["chunk"] == "16k" { 1.5 } else { 1.0 };
    let filesystem = if layout["filesystem"] == "raw" { 0.7 } else { 1.0 };
    layout["width"].parse::<f64>().unwrap() * chunk * filesystem
}

fn machine(speed: fn(&BTreeMap<String, String>) -> f64, stop_after: usize) -> Machine {
    Machine { speed, asked: Arc::default(), stop_after, stop: Arc::default() }
}

fn session(directory: &Path, machine: &Machine) -> Outcome {
    let space = Space::parse("search.toml", SPACE).unwrap();
    let mut store = begin(&directory.join("results.db"), &space, &identity()).unwrap().store;
    let (mut targets, identity) = (machine.clone(), identity());
    machine.stop.store(false, Ordering::Relaxed);
    Runner::new(&mut store, &identity, &mut targets, &mut Quiet, &machine.stop).run().unwrap()
}

fn report(store: &Store) -> Report {
    Report::new(&load(store).unwrap()).unwrap()
}

/// The recommended point of each work.
fn recommended(store: &Store) -> Vec<Point> {
    let points = store.points().unwrap();
    report(store).recommendations.iter().map(|r| points[r.point.unwrap() as usize].clone()).collect()
}

#[test]
fn a_screened_sweep_finds_the_best_of_576_points_on_three_of_24_constructions() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = session(directory.path(), &machine(as_expected, usize::MAX));
    assert_eq!(outcome.ended, Ended::Complete, "{outcome:?}");
    assert!(outcome.runs <= 240, "{} runs", outcome.runs);
    let store = Store::open_read_only(directory.path()).unwrap();
    for point in recommended(&store) {
        assert_eq!((point.layout["chunk"].as_str(), point.layout["width"].as_str()), ("256k", "8"));
        assert_eq!((point.layout["filesystem"].as_str(), point.workload.iodepth), ("raw", 64));
        assert_ne!(point.layout["scheduler"], "bfq");
    }
    let search = report(&store).search.unwrap();
    assert!(search.built.len() <= 3 && search.built[0].contains("chunk=256k width=8 filesystem=raw"));
    let first = &search.contests[0].effects;
    let matters: Vec<&str> = first.iter().filter(|e| e.matters).map(|e| e.name.as_str()).collect();
    assert_eq!(matters, ["iodepth", "scheduler"]);
    check_that_blocks_follow_from_what_was_stored(&store);
    drop(store);
    assert_eq!(
        session(directory.path(), &machine(as_expected, usize::MAX)).runs,
        0,
        "a full sweep runs nothing"
    );
}

#[test]
fn measurements_overrule_what_was_expected_of_constructions() {
    let directory = tempfile::tempdir().unwrap();
    session(directory.path(), &machine(against_expectation, usize::MAX));
    let store = Store::open_read_only(directory.path()).unwrap();
    for point in recommended(&store) {
        assert_eq!((point.layout["chunk"].as_str(), point.layout["width"].as_str()), ("16k", "8"));
        assert_eq!(point.layout["filesystem"], "xfs");
    }
}

#[test]
fn an_interrupted_search_goes_on_with_what_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine(as_expected, 29);
    let sessions = (1..100).find(|_| session(directory.path(), &machine).ended == Ended::Complete);
    assert!(sessions.is_some_and(|sessions| sessions > 5), "{sessions:?} sessions");
    let store = Store::open_read_only(directory.path()).unwrap();
    assert!(!store.cut().unwrap().is_empty());
    check_that_blocks_follow_from_what_was_stored(&store);
    assert!(report(&store).search.unwrap().built.len() <= 3);
}

#[test]
fn every_form_of_the_report_says_what_was_not_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    session(directory.path(), &machine(as_expected, usize::MAX));
    let report = report(&Store::open_read_only(directory.path()).unwrap());
    let sentences = report.search.as_ref().unwrap().sentences();
    assert!(sentences[1].starts_with("Not looked at: 21 constructions"), "{sentences:?}");
    assert!(sentences[1].contains("width=1"), "{sentences:?}");
    let table: String = sweep::report::table(&report, 1000).iter().map(|line| line.plain() + "\n").collect();
    for (form, text) in [("html", html(&report)), ("markdown", markdown(&report)), ("table", table)] {
        assert!(text.contains("Not looked at: 21 constructions"), "{form}");
    }
}

#[test]
fn what_a_screened_sweep_cannot_do_is_said_with_the_flag() {
    let space = || Space::parse("search.toml", SPACE).unwrap();
    let passes = Overrides { passes: Some(3), ..Overrides::default() };
    let message = space().with(&passes).unwrap_err().to_string();
    assert!(message.contains("--passes") && message.contains('3'), "{message}");
    let message = space().share(1, 2).unwrap_err().to_string();
    assert!(message.contains("--shard") && message.contains("1/2"), "{message}");
    // What a file says of passes gives way to the flag.
    let papers = Space::parse("dash-io.toml", include_str!("../../../examples/dash-io.toml")).unwrap();
    let screened =
        papers.with(&Overrides { protocol: Some(Protocol::Screen), ..Overrides::default() }).unwrap();
    assert_eq!((screened.passes, screened.discard_first, screened.budget), (0, false, None));
    let both = SPACE.replace("seed = 5", "protocol = 'dash'");
    assert!(Space::parse("s.toml", &both).unwrap_err().to_string().contains("search"));
    let unknown = SPACE.replace("'screen'", "'some'");
    assert!(Space::parse("s.toml", &unknown).unwrap_err().to_string().contains("some"));
}
