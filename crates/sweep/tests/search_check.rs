//! `sweep check-search`: screened searches on known figures under noise.

use std::collections::BTreeMap;

use measure::simulation::machine::World;
use measure::simulation::trial::on_all_cpus;
use sweep::check_search::{
    EXHAUSTIVE_PASSES, Found, Method, MethodResult, SCHEMA, SearchCheck, Truth, analysed, screen, screened,
};
use sweep::model::Point;
use sweep::recommend::recommend;
use sweep::space::Space;
use sweep::work::Work;

/// Stands for the papers' machine: dimensions that act on some work only, and some that depend on others.
fn stand_in() -> Truth {
    let text = include_str!("../../../examples/dash-io.toml");
    let points = Space::parse("dash-io.toml", text).unwrap().points;
    let figure = |point: &Point| {
        let value = |name: &str| point.settings[name].as_str();
        let width: f64 = value("width").parse().unwrap();
        let chunk = ["16k", "64k", "256k"].iter().position(|chunk| *chunk == value("chunk")).unwrap_or(2);
        let (raw, idles) = (value("filesystem") == "raw", value("scheduler") == "bfq");
        let test = point.test_type.unwrap();
        let depth = f64::from(test.iodepth());
        match (test.is_sequential(), test.is_read()) {
            (true, read) => {
                let caps = match (read, test.iodepth()) {
                    (true, 1) => [722.0, 935.0, 1016.0],
                    (true, _) => [1130.0, 1253.0, 1290.0],
                    (false, 1) => [575.0, 710.0, 780.0],
                    (false, 4) => [940.0, 1047.0, 1090.0],
                    (false, _) => [1050.0, 1157.0, 1190.0],
                };
                (204.0 * width).min(caps[chunk])
                    * if raw { 1.0 } else { 0.97 }
                    * if idles { 0.98 } else { 1.0 }
            }
            (false, true) => {
                let drives = 39_800.0 * width * depth / (depth + 2.0 * width);
                drives.min(560_000.0) * if raw { 1.0 } else { 0.93 } * if idles { 0.45 } else { 1.0 }
            }
            (false, false) => {
                let drives = 10_700.0 * width * depth / (depth + width);
                if raw { drives } else { drives.min(19_000.0).min(drives * 0.5) }
            }
        }
    };
    let figures = points.iter().map(figure).collect();
    Truth::new(points, figures)
}

#[test]
fn only_screened_searches_that_are_near_too_seldom_are_a_miss() {
    let line = |method, near| MethodResult {
        method,
        runs_most: 0.05,
        builds_most: 0.1,
        near,
        shares: Vec::new(),
        least: 0.9,
        verdicts: None,
    };
    let check = |near| SearchCheck {
        schema: SCHEMA.to_owned(),
        points: 0,
        constructions: 0,
        exhaustive_runs: 0,
        world: World::Vm,
        run_s: 10.0,
        seeds: 50,
        works: Vec::new(),
        methods: vec![line(Method::Random, 0.1), line(Method::Screen, near)],
    };
    assert_eq!(check(0.94).missed(), Some(0.94));
    assert_eq!(check(0.95).missed(), None);
    assert_eq!(check(1.0).missed(), None);
}

#[test]
fn a_twentieth_of_the_runs_and_a_tenth_of_the_constructions_find_what_is_near_the_best() {
    let truth = stand_in();
    let found: Vec<Found> = on_all_cpus(4, |seed| screen(&truth, World::Normal, 10.0, seed as u64).unwrap());
    for found in &found {
        assert!(found.runs <= truth.points.len() * EXHAUSTIVE_PASSES / 20 + 8, "{found:?}");
        assert!(found.builds <= 3, "{found:?}");
        assert!(found.shares.iter().all(|share| *share >= 0.95), "{found:?}");
    }
    assert_eq!(found[1], screen(&truth, World::Normal, 10.0, 1).unwrap(), "the seed decides");
}

/// One work with 512 settings and nothing to build, in which single dimensions act independently.
fn one_contest() -> Truth {
    let text = "[sweep]\n[base]\nrw = 'randread'\n[space]\niodepth = [1, 2, 4, 8, 16, 32, 64, 128]\nnumjobs = [1, 2, 4, 8]\n\
                pages = ['auto', 'base', 'thp', 'huge']\nnorandommap = [false, true]\nlatency_clock = ['batch', 'each']\n";
    let points = Space::parse("one.toml", text).unwrap().points;
    let figure = |point: &Point| {
        let of = |name: &str, values: &[(&str, f64)]| {
            values.iter().find(|(value, _)| *value == point.settings[name]).unwrap().1
        };
        let depths = [
            ("1", 0.3),
            ("2", 0.5),
            ("4", 0.7),
            ("8", 0.85),
            ("16", 0.95),
            ("32", 0.98),
            ("64", 1.0),
            ("128", 0.99),
        ];
        1e9 * of("iodepth", &depths)
            * of("numjobs", &[("1", 0.9), ("2", 0.97), ("4", 1.0), ("8", 0.99)])
            * of("pages", &[("auto", 1.0), ("base", 0.97), ("thp", 1.01), ("huge", 0.985)])
            * of("norandommap", &[("0", 1.0), ("1", 1.02)])
            * of("latency_clock", &[("batch", 1.0), ("each", 0.95)])
    };
    let figures = points.iter().map(figure).collect();
    Truth::new(points, figures)
}

/// The screen strikes what is three SDs behind after a block or two, long before the race could drop it.
#[test]
fn on_a_quiet_machine_no_setting_is_tied_that_is_worse_by_more_than_the_margin() {
    let truth = one_contest();
    let best = truth.figures.iter().copied().fold(0.0, f64::max);
    let found = on_all_cpus(6, |seed| {
        let (runs, board) = screened(&truth, World::Quiet, 1.0, seed as u64);
        let analysis = analysed(&truth, runs, &board).unwrap();
        let search = analysis.search.clone().unwrap();
        (recommend(&analysis), search.contests[0].struck.len())
    });
    assert!(found.iter().any(|(_, struck)| *struck > 3), "nothing was struck");
    for (recommended, _) in found {
        let [recommended] = recommended.as_slice() else { panic!("{recommended:?}") };
        let shares = || recommended.tied.iter().map(|point| truth.figures[*point as usize] / best);
        assert!(shares().all(|share| share > 1.0 / 1.05), "{:?}", shares().collect::<Vec<_>>());
        assert!(truth.figures[recommended.point.unwrap() as usize] / best > 1.0 / 1.05, "{recommended:?}");
    }
}

/// One setting is far ahead: the screening leaves no other one, or one that loses.
#[test]
fn a_race_of_which_one_setting_is_left_ends_decided() {
    let mut truth = one_contest();
    let best =
        (0..truth.points.len()).max_by(|a, b| truth.figures[*a].total_cmp(&truth.figures[*b])).unwrap();
    let value = |at: usize, name: &str| truth.points[at].settings[name].clone();
    for at in 0..truth.points.len() {
        let differing = ["iodepth", "numjobs", "pages", "norandommap", "latency_clock"]
            .into_iter()
            .filter(|name| value(at, name) != value(best, name));
        truth.figures[at] = 1e9 * 0.6f64.powi(differing.count() as i32);
    }
    for found in on_all_cpus(4, |seed| screen(&truth, World::Quiet, 1.0, seed as u64).unwrap()) {
        let verdicts = found.verdicts.unwrap();
        assert_eq!((verdicts.decided, verdicts.races_decided), (1, 1), "{found:?}");
        assert_eq!(found.shares, [1.0]);
        assert!(found.runs < 100, "the runs that are left are not made: {found:?}");
    }
}

/// Neighbours in a block have few values in common, which leaves what resembles all others for the end. But every second block is turned around: a trend
/// within blocks would be taken for an effect.
#[test]
fn no_setting_runs_later_in_its_block_for_its_likeness_to_the_others() {
    let truth = stand_in();
    let likeness = |a: u32, b: u32| {
        let (a, b) = (&truth.points[a as usize].settings, &truth.points[b as usize].settings);
        a.iter().filter(|(name, value)| b.get(*name) == Some(value)).count() as f64
    };
    let blocks = on_all_cpus(6, |seed| {
        let mut blocks: BTreeMap<(Work, String, u32), Vec<u32>> = BTreeMap::new();
        for run in screened(&truth, World::Quiet, 1.0, seed as u64).0 {
            let point = &truth.points[run.point as usize];
            let contest = (Work::of(point), point.construction().unwrap_or_default(), run.pass);
            blocks.entry(contest).or_default().push(run.point);
        }
        blocks.into_values().filter(|block| block.len() > 2).collect::<Vec<_>>()
    });
    let (mut products, mut squares, mut runs) = (0.0, 0.0, 0);
    for block in blocks.iter().flatten() {
        let of = |a: &u32| block.iter().filter(|b| *b != a).map(|b| likeness(*a, *b)).sum::<f64>();
        let likenesses: Vec<f64> = block.iter().map(of).collect();
        let mean = likenesses.iter().sum::<f64>() / block.len() as f64;
        for (place, likeness) in likenesses.iter().enumerate() {
            // From -1, the first, to 1, the last.
            let place = 2.0 * place as f64 / (block.len() as f64 - 1.0) - 1.0;
            products += place * (likeness - mean);
            squares += (likeness - mean).powi(2);
            runs += 1;
        }
    }
    let slope = products / squares;
    assert!(runs > 3_000 && squares > 500.0, "{runs} runs, {squares}");
    assert!(slope.abs() < 0.1, "{slope}");
}

#[test]
fn a_machine_that_slows_down_within_each_block_is_searched_as_well() {
    let truth = stand_in();
    for found in on_all_cpus(4, |seed| screen(&truth, World::Trend, 10.0, seed as u64).unwrap()) {
        assert!(found.shares.iter().all(|share| *share >= 0.95), "{found:?}");
    }
}
