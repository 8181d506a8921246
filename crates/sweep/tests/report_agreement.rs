//! Recipe, gains and ladder say nothing that the outcome of the same blocks contradicts.

mod report_data;

use report_data::{Random, meta, point, run};
use sweep::analysis::{Interval, PointSummary, SweepData};
use sweep::plan::Protocol;
use sweep::recommend::{Measured, Outcome, Recommendation};
use sweep::report::Report;

/// Random reads at three depths in blocks, with levels in MB/s: the machine moves by a tenth from block to block, runs by `sd` within one.
fn depths(megabytes: [f64; 3], blocks: u32, sd: f64, seed: u64) -> SweepData {
    let points: Vec<_> =
        [9, 11, 13].into_iter().zip(0..).map(|(test_type, id)| point(id, test_type)).collect();
    let mut random = Random(seed);
    let mut runs = Vec::new();
    for block in 1..=blocks {
        let machine = 0.1 * random.normal();
        for (point, megabytes) in points.iter().zip(megabytes) {
            let noise = machine + sd * random.normal();
            runs.push(run(point, block, runs.len() as u32, megabytes * noise.exp()));
        }
    }
    in_blocks(points, runs)
}

fn in_blocks(points: Vec<sweep::model::Point>, runs: Vec<sweep::model::RunRow>) -> SweepData {
    let mut meta = meta(1, runs.len());
    (meta.protocol, meta.passes, meta.discard_first) = (Protocol::Blocks, 0, false);
    SweepData { meta, points, runs, ..SweepData::default() }
}

fn leaves_1_out(interval: Option<Interval>) -> bool {
    interval.is_some_and(|i| i.low > 1.0 || i.high < 1.0)
}

/// The point that a setting was measured against.
fn other<'r>(report: &'r Report, r: &Recommendation, name: &str, measured: &Measured) -> &'r PointSummary {
    let own = report.point(r.point.unwrap()).unwrap();
    let value = |p: &PointSummary| match name {
        "iodepth" => p.iodepth.to_string(),
        _ => p.layout.get(name).cloned().unwrap_or_default(),
    };
    let same = |p: &&PointSummary| {
        let names = ["iodepth", "chunk"];
        let differ = |n: &&str| {
            let of = |p: &PointSummary| {
                if *n == "iodepth" {
                    p.iodepth.to_string()
                } else {
                    p.layout.get(*n).cloned().unwrap_or_default()
                }
            };
            of(own) != of(p)
        };
        value(p) == measured.against && names.iter().filter(|n| **n != name).all(|n| !differ(n))
    };
    report.points.iter().find(same).expect("a point")
}

/// Each figure of the recipe, the gains and the ladder against the outcome; how many pairs of settings that may both be the best were
/// looked at.
fn assert_agrees(report: &Report) -> usize {
    let mut tied_pairs = 0;
    for r in &report.recommendations {
        let Some(own) = r.point else { continue };
        let is_tied = |point: u32| r.tied.contains(&point);
        for (name, setting) in &r.settings {
            for m in &setting.measured {
                assert_eq!(m.beyond_noise, leaves_1_out(m.interval), "{name} {m:?}");
                let other = other(report, r, name, m);
                if is_tied(own) && is_tied(other.point) && r.tied.len() > 1 {
                    tied_pairs += 1;
                    assert!(!m.beyond_noise, "{}: {name} {m:?}", r.sentence);
                }
                if r.outcome == Outcome::Better && report.contests.len() == 1 {
                    assert!(
                        m.ratio >= 1.0 && m.interval.is_none_or(|i| i.low >= 1.0),
                        "{}: {m:?}",
                        r.sentence
                    );
                }
                if let (Outcome::Sufficient, Some(most), Some(i)) =
                    (r.outcome, r.undecided.and_then(|far| far.could_be), m.interval)
                    && is_tied(other.point)
                {
                    assert!(1.0 / i.low <= most + 1e-9, "{}: {m:?}", r.sentence);
                }
            }
        }
        for gain in r.over_cheapest.iter().chain(&r.over_runner_up) {
            assert_eq!(gain.beyond_noise, leaves_1_out(gain.interval));
        }
    }
    for ladder in &report.ladders {
        let r = report.recommendations.iter().find(|r| r.work == ladder.work).unwrap();
        let way: Vec<u32> =
            [ladder.baseline].into_iter().chain(ladder.rungs.iter().map(|rung| rung.point)).collect();
        let mut sorted = way.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), way.len(), "a way in a circle: {way:?}");
        let both_tied = |step: &[u32]| step.iter().all(|point| r.tied.contains(point));
        assert!(!way.windows(2).any(both_tied), "{} | {}", ladder.sentence, r.sentence);
        for rung in &ladder.rungs {
            assert!(rung.gain > 1.0 && rung.interval.is_some_and(|i| i.low > 1.0), "{rung:?}");
        }
        if let (Outcome::Better, Some(top)) = (r.outcome, ladder.rungs.last()) {
            assert!(
                report.contests.len() > 1 || r.point == Some(top.point),
                "{} | {}",
                ladder.sentence,
                r.sentence
            );
        }
    }
    tied_pairs
}

#[test]
fn recipe_and_ladder_agree_with_what_the_blocks_decided() {
    let (mut tied, mut outcomes) = (0, std::collections::BTreeMap::new());
    for seed in 0..240 {
        let megabytes =
            [[400.0, 400.0, 400.0], [400.0, 430.0, 470.0], [400.0, 396.0, 380.0]][seed as usize % 3];
        let sd = [0.01, 0.04, 0.08, 0.03][seed as usize / 3 % 4];
        let report = Report::new(&depths(megabytes, 5 + (seed % 11) as u32, sd, seed)).unwrap();
        tied += assert_agrees(&report);
        *outcomes.entry(format!("{:?}", report.recommendations[0].outcome)).or_insert(0) += 1;
    }
    assert!(tied > 60, "{tied} {outcomes:?}");
    assert!(
        ["Better", "Equivalent", "Sufficient", "Undecided"].iter().all(|o| outcomes[*o] >= 5),
        "{outcomes:?}"
    );
}

#[test]
fn settings_of_equal_chunks_on_their_own_constructions_are_told_apart_only_where_the_outcome_does() {
    let mut tied = 0;
    for seed in 0..60 {
        let mut random = Random(seed);
        let (mut points, mut runs) = (Vec::new(), Vec::new());
        for chunk in ["64k", "128k", "256k", "512k"] {
            for test_type in [9, 11, 13] {
                let mut point = point(points.len() as u32, test_type);
                let layout = [("layout", "md-raid0"), ("chunk", chunk), ("width", "4")];
                point.layout = layout.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
                point.settings.insert("chunk".to_owned(), chunk.to_owned());
                points.push(point);
            }
        }
        for members in points.chunks(3) {
            for block in 1..=7 {
                let level = 0.1 * random.normal();
                for (point, megabytes) in members.iter().zip([640.0, 700.0, 720.0]) {
                    let noise = level + 0.03 * random.normal();
                    runs.push(run(point, block, runs.len() as u32, megabytes * noise.exp()));
                }
            }
        }
        tied += assert_agrees(&Report::new(&in_blocks(points, runs)).unwrap());
    }
    assert!(tied > 40, "{tied}");
}

#[test]
fn settings_that_lost_early_are_ordered_by_blocks_and_not_by_the_speed_of_the_machine_then() {
    let mut points: Vec<_> =
        [9, 11, 13, 13].into_iter().zip(0..).map(|(test_type, id)| point(id, test_type)).collect();
    points[3].test_type = None;
    points[3].settings = [("iodepth".to_owned(), "1024".to_owned())].into();
    points[3].workload.iodepth = 1024;
    let mut random = Random(5);
    let mut runs = Vec::new();
    for block in 1..=14 {
        // As long as all four run, the machine is three times as fast.
        let (machine, first) = if block <= 5 { (3.0, 0) } else { (1.0, 2) };
        for (point, megabytes) in points.iter().zip([100.0, 150.0, 200.0, 203.0]).skip(first) {
            let noise = (0.01 * random.normal()).exp();
            runs.push(run(point, block, runs.len() as u32, megabytes * machine * noise));
        }
    }
    let report = Report::new(&in_blocks(points, runs)).unwrap();
    let mean = |id: usize| report.points[id].bandwidth.unwrap().mean;
    assert!(mean(1) > 1.2 * mean(2), "the plant");
    let rung = report.ladders[0].rungs.last().expect("a rung");
    assert!(rung.point >= 2 && (1.9..2.1).contains(&rung.gain), "{}", report.ladders[0].sentence);
    assert_agrees(&report);
}
