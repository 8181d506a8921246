//! What the report must find in a sweep of layouts whose truth is known (`report_data/layouts.rs`).

mod report_data;

use report_data::layouts::{MD_CEILING, SMALL, layouts, megabytes};
use report_data::{Random, meta, point, run};
use sweep::analysis::{Access, Direction, Metric, SweepData};
use sweep::recommend::{Ladder, Outcome, Recommendation};
use sweep::report::{Report, figures_csv, html, json, json_schema, markdown, table};

fn data() -> SweepData {
    layouts(&SMALL)
}

fn report() -> Report {
    Report::new(&data()).unwrap()
}

fn ladder(report: &Report, access: Access, direction: Direction) -> &Ladder {
    let is_it = |l: &&Ladder| (l.work.class.access, l.work.class.direction) == (access, direction);
    report.ladders.iter().find(is_it).expect("a ladder")
}

fn recommendation(report: &Report, access: Access, direction: Direction) -> &Recommendation {
    let is_it = |r: &&Recommendation| (r.work.class.access, r.work.class.direction) == (access, direction);
    report.recommendations.iter().find(is_it).expect("a recommendation")
}

#[test]
fn the_ladder_climbs_one_setting_at_a_time_to_the_best_point_of_all() {
    let report = report();
    let ladder = ladder(&report, Access::Random, Direction::Read);
    assert_eq!(ladder.metric, Metric::Iops);
    // Everything as it is written first, and the first test type of random reads.
    assert_eq!(ladder.from["scheduler"], "bfq");
    assert_eq!((ladder.from["width"].as_str(), ladder.from["iodepth"].as_str()), ("1", "32"));
    let mut changed: Vec<&str> = Vec::new();
    let mut product = 1.0;
    for rung in &ladder.rungs {
        assert!(!rung.together, "{rung:?}");
        changed.push(&rung.changes[0].setting);
        product *= rung.gain;
        assert!((rung.total / product - 1.0).abs() < 1e-9);
        assert!(rung.interval.is_some_and(|i| i.low > 1.0) && rung.p_adjusted.is_some_and(|p| p < 0.05));
    }
    changed.sort_unstable();
    assert_eq!(changed, ["filesystem", "iodepth", "layout", "scheduler", "width"], "{}", ladder.sentence);
    // A change of the layout takes the chunk with it, which means nothing without a stripe.
    let layout = ladder.rungs.iter().find(|r| r.changes[0].setting == "layout").unwrap();
    assert_eq!(layout.changes.len(), 2);
    assert_eq!((layout.changes[1].setting.as_str(), &layout.changes[1].to), ("chunk", &None));
    let mean = |id: u32| report.point(id).unwrap().bandwidth.unwrap().mean;
    let top = ladder.rungs.last().unwrap();
    let work = report.points.iter().filter(|p| p.work == ladder.work);
    let best = work.map(|p| mean(p.point)).fold(0.0, f64::max);
    assert!(mean(top.point) > best * 0.97);
}

#[test]
fn what_gives_nothing_is_no_rung() {
    let mut data = data();
    // The file system costs nothing any more.
    for run in &mut data.runs {
        let point = &data.points[run.point as usize];
        let mut raw = point.layout.clone();
        raw.insert("filesystem".into(), "raw".into());
        let wobble = run.bandwidth_bytes_per_s / (megabytes(point.test_type.unwrap(), &point.layout) * 1e6);
        run.bandwidth_bytes_per_s = megabytes(point.test_type.unwrap(), &raw) * 1e6 * wobble;
        run.iops = run.bandwidth_bytes_per_s / point.workload.bs as f64;
    }
    let report = Report::new(&data).unwrap();
    for ladder in &report.ladders {
        let named = ladder.rungs.iter().flat_map(|r| &r.changes).any(|c| c.setting == "filesystem");
        assert!(!named, "{}", ladder.sentence);
    }
    // So the compromise leaves it as it was written first.
    assert_eq!(report.compromise.unwrap().settings["filesystem"].value, "xfs");
}

#[test]
fn a_baseline_that_the_space_names_is_where_the_ladder_starts() {
    let mut data = data();
    data.meta.baseline = [("width".to_owned(), "16".to_owned())].into();
    let report = Report::new(&data).unwrap();
    let ladder = ladder(&report, Access::Random, Direction::Read);
    assert_eq!(ladder.from["width"], "16");
    assert!(ladder.rungs.iter().all(|r| r.changes[0].setting != "width"));
}

#[test]
fn settings_that_help_only_together_are_the_last_rung() {
    let mut data = data();
    // Two settings of which each alone costs a tenth, and both together give a half more.
    for run in &mut data.runs {
        let layout = &data.points[run.point as usize].layout;
        let (raw, none) = (layout["filesystem"] == "raw", layout["scheduler"] == "none");
        let factor = match (raw, none) {
            (true, true) => 1.5,
            (false, false) => 1.0,
            _ => 0.9,
        };
        let wobble = 1.0 + 0.001 * f64::from(run.position % 7);
        run.bandwidth_bytes_per_s = 1e9 * factor * wobble;
        run.iops = 1e5 * factor * wobble;
    }
    let report = Report::new(&data).unwrap();
    let ladder = ladder(&report, Access::Random, Direction::Read);
    let top = ladder.rungs.last().expect("a rung");
    assert!(top.together, "{}", ladder.sentence);
    let mut names: Vec<&str> = top.changes.iter().map(|c| c.setting.as_str()).collect();
    names.retain(|name| ["filesystem", "scheduler"].contains(name));
    assert_eq!(names, ["filesystem", "scheduler"]);
    let strongest = &report.interactions[0];
    assert_eq!((strongest.first.as_str(), strongest.second.as_str()), ("filesystem", "scheduler"));
    assert!(strongest.matters == Some(true) && strongest.changes_the_best);
}

#[test]
fn the_ceiling_of_md_shows_in_the_scaling_and_the_drives_one_by_one_have_none() {
    let report = report();
    let is_it = |s: &&sweep::analysis::Scaling| {
        (s.work.class.access, s.work.class.direction) == (Access::Random, Direction::Read)
    };
    let scaling = report.scaling.iter().find(is_it).unwrap();
    let last = |layout: &str| {
        let curve = scaling.curves.iter().find(|c| c.layout.as_deref() == Some(layout) && c.iodepth == 512);
        curve.unwrap().steps.last().unwrap().clone()
    };
    let (md, separate) = (last("md-raid0"), last("separate"));
    assert_eq!((md.width, separate.width), (16, 16));
    assert!(md.figure.mean < MD_CEILING * 1.02 && md.of_drives < 0.65, "{md:?}");
    assert!(separate.of_drives > 0.88, "{separate:?}");
    assert!(
        separate
            .of_drives_interval
            .is_some_and(|i| i.low < separate.of_drives && separate.of_drives < i.high)
    );
    assert!(scaling.curves.iter().all(|c| c.one_drive_width == 1 && !c.held.contains_key("width")));
}

#[test]
fn each_setting_has_its_figure_over_the_same_configurations_for_every_value() {
    let report = report();
    let names: Vec<&str> = report.by_setting.iter().map(|f| f.setting.as_str()).collect();
    assert_eq!(names, ["chunk", "filesystem", "layout", "scheduler", "width"]);
    for figure in &report.by_setting {
        let is_layout = figure.setting == "layout";
        // With the chunk, md has what the drives one by one cannot have.
        assert_eq!(figure.matched, !is_layout, "{}", figure.setting);
        assert_eq!(figure.bars.len(), 14 * figure.values.len());
        assert!(figure.bars.iter().all(|bar| bar.bandwidth.interval.is_some()));
    }
    let bar = |setting: &str, test: u8, value: &str| {
        let figure = report.by_setting.iter().find(|f| f.setting == setting).unwrap();
        let is_it = |b: &&sweep::analysis::SettingBar| {
            b.value == value && b.test_type.is_some_and(|t| t.number() == test)
        };
        figure.bars.iter().find(is_it).unwrap().bandwidth.mean
    };
    // As the papers found: XFS costs random writes most, sequential work next to nothing.
    assert!(bar("filesystem", 14, "xfs") < 0.5 * bar("filesystem", 14, "raw"));
    assert!(bar("filesystem", 7, "xfs") > 0.97 * bar("filesystem", 7, "raw"));
    assert!(bar("chunk", 7, "16k") < 0.8 * bar("chunk", 7, "256k"));
}

#[test]
fn every_recommended_setting_carries_what_is_lost_without_it() {
    let report = report();
    let reads = recommendation(&report, Access::Random, Direction::Read);
    assert_eq!(reads.settings["scheduler"].value, "none");
    let scheduler = &reads.settings["scheduler"].measured[0];
    assert_eq!((scheduler.against.as_str(), scheduler.is_baseline, scheduler.runs), ("bfq", true, 8));
    assert!(scheduler.beyond_noise && scheduler.interval.is_some_and(|i| i.low > 1.2));
    // The chunk goes with the layout; of the others the best is compared.
    let layout = &reads.settings["layout"];
    assert_eq!((layout.matters, layout.measured[0].against.as_str()), (Some(true), "md-raid0"));
    assert!(reads.settings["width"].of_layout && !reads.settings["iodepth"].of_layout);
    // What the layout is made of is no flag of `bench`.
    let flags = reads.flags.as_ref().unwrap();
    assert!(!flags.contains("scheduler") && !flags.contains("target"), "{flags}");
    let all = report.compromise.as_ref().unwrap();
    assert_eq!(all.settings["width"].value, "16");
    assert_eq!(all.settings["layout"].value, "separate");
    assert_eq!(all.settings["drives"].value.split(',').count(), 16);
    assert_eq!(all.works.len(), 4);
    assert!(all.works.iter().all(|w| w.of_best > 0.95 && w.over_baseline.is_some_and(|r| r > 5.0)));
}

#[test]
fn a_missing_run_leaves_neither_ladder_nor_compromise() {
    let mut data = data();
    let random_read = data.points.iter().find(|p| p.test_type.is_some_and(|t| t.number() == 9)).unwrap().id;
    data.runs.retain(|r| (r.point, r.pass) != (random_read, 3));
    let report = Report::new(&data).unwrap();
    assert!(report.compromise.is_none());
    assert_eq!(report.ladders.len(), 3);
}

#[test]
fn the_forms_show_the_papers_figures_and_fit_the_schema() {
    let report = report();
    let page = html(&report);
    for id in [
        "ladder-random-reads-4k",
        "ladder-streaming-writes",
        "by-chunk",
        "by-filesystem",
        "by-scheduler",
        "scaling-random-reads-4k",
        "depth-streaming",
        "depth-random",
        "passes-reads",
        "passes-writes",
        "variation",
    ] {
        assert!(page.contains(&format!("<figure id=\"{id}\"")), "{id}");
    }
    for paper in
        ["DASH Fig. 3", "DASH-IO Fig. 8", "DASH-IO Figs. 9, 10", "DASH-IO Fig. 11", "DASH-IO Fig. 12"]
    {
        assert!(page.contains(paper), "{paper}");
    }
    let text = markdown(&report);
    assert!(text.contains("## One layout for all") && text.contains("over the number of drives"));
    let document: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    let validator = jsonschema::validator_for(&json_schema()).unwrap();
    assert!(validator.is_valid(&document));
    assert_eq!(document["recommendations"][2]["settings"]["scheduler"]["value"], "none");
    let read: Report = serde_json::from_value(document).unwrap();
    // A figure may come back one bit away, so words are compared.
    assert_eq!(read.headline, report.headline);
    assert_eq!(markdown(&read), text);
    // A terminal is told what matters, not every configuration.
    assert!(table(&report, 120).len() < 120);
}

#[test]
fn the_numbers_of_every_figure_stand_in_one_table() {
    let report = report();
    let text = figures_csv(&report);
    let mut lines = text.split("\r\n");
    assert_eq!(lines.next(), Some("figure,papers,series,x,value,unit,low,high,configurations"));
    let figures: std::collections::BTreeSet<&str> = lines.filter_map(|l| l.split(',').next()).collect();
    for figure in ["by-chunk", "by-scheduler", "depth", "effects", "ladder", "passes", "scaling", "together"]
    {
        assert!(figures.contains(figure), "{figure}: {figures:?}");
    }
}

/// Chunks that are equal, at three depths. Each construction's passes have levels of their own: a tenth from pass to pass, three
/// hundredths within one.
fn equal_chunks(seed: u64) -> SweepData {
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
        for pass in 1..=6 {
            let level = 0.1 * random.normal();
            for (point, megabytes) in members.iter().zip([400.0, 700.0, 720.0]) {
                let noise = level + 0.03 * random.normal();
                runs.push(run(point, pass, runs.len() as u32, megabytes * noise.exp()));
            }
        }
    }
    SweepData { meta: meta(6, runs.len()), points, runs, ..SweepData::default() }
}

#[test]
fn noise_between_constructions_makes_no_layout_better() {
    let reports: Vec<Report> = (0..40).map(|seed| Report::new(&equal_chunks(seed)).unwrap()).collect();
    let compromises = reports.iter().map(|r| r.compromise.as_ref().expect("a sweep of layouts has one"));
    let by_compromise = compromises.filter(|c| c.settings.values().any(|s| s.matters == Some(true))).count();
    let rungs = |r: &Report| {
        r.ladders.iter().flat_map(|l| &l.rungs).flat_map(|rung| &rung.changes).any(|c| c.setting == "chunk")
    };
    let by_ladder = reports.iter().filter(|r| rungs(r)).count();
    let effects = |r: &Report| r.effects.iter().any(|e| e.dimension == "chunk" && e.matters == Some(true));
    let by_effects = reports.iter().filter(|r| effects(r)).count();
    let better = |r: &Report| r.recommendations.iter().any(|r| r.outcome == Outcome::Better);
    let by_outcome = reports.iter().filter(|r| better(r)).count();
    assert!(
        by_ladder <= 4 && by_outcome <= 4,
        "of 40 sweeps of equal chunks: recipe {by_ladder}, outcome {by_outcome}"
    );
    // The depths of one construction share its noise, and each chunk was built once: no effect of it can be told.
    assert!(by_effects == 0 && by_compromise <= 4, "compromise {by_compromise}, effects {by_effects}");
    let chunks = reports.iter().flat_map(|r| &r.effects).filter(|e| e.dimension == "chunk");
    for value in chunks.flat_map(|e| &e.values) {
        assert_eq!(value.word(), "one construction each: cannot be told");
    }
}

/// Two equal chunks, each built once and measured in twelve passes, on a machine whose speed drifts by 15 %.
fn drifting_chunks(seed: u64) -> SweepData {
    let mut random = Random(seed);
    let mut drift = random.normal();
    let (mut points, mut runs) = (Vec::new(), Vec::new());
    for chunk in ["16k", "64k"] {
        let layout = [("layout", "md-raid0"), ("width", "4"), ("chunk", chunk)];
        let layout: std::collections::BTreeMap<String, String> =
            layout.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let built: Vec<_> = [9, 11].into_iter().map(|test_type| point(0, test_type)).collect();
        for mut built in built {
            built.id = points.len() as u32;
            built.settings.extend(layout.clone());
            built.layout.clone_from(&layout);
            points.push(built);
        }
        for pass in 1..=12 {
            drift = 0.7 * drift + (1.0f64 - 0.7 * 0.7).sqrt() * random.normal();
            for point in &points[points.len() - 2..] {
                // The second depth is far better, so that each construction has one setting left.
                let megabytes = if point.id % 2 == 0 { 100.0 } else { 400.0 };
                let noise = 0.15 * drift + 0.02 * random.normal();
                runs.push(run(point, pass, runs.len() as u32, megabytes * noise.exp()));
            }
        }
    }
    SweepData { meta: meta(12, runs.len()), points, runs, ..SweepData::default() }
}

#[test]
fn a_drift_between_constructions_makes_none_of_them_better() {
    let reports: Vec<Report> = (0..60).map(|seed| Report::new(&drifting_chunks(seed)).unwrap()).collect();
    let better = reports.iter().filter(|r| r.recommendations[0].outcome == Outcome::Better).count();
    // Without what the machine moved these are 20 or more.
    assert!(better <= 3, "{better} of 60");
    for report in &reports {
        let recommendation = &report.recommendations[0];
        let said = recommendation
            .caveats
            .iter()
            .any(|caveat| caveat.contains("what the machine moved from block to block"));
        assert!(said, "{:?}", recommendation.caveats);
        // What is not told apart says how much better another one could be.
        let could_be = recommendation.undecided.and_then(|far| far.could_be);
        assert!(recommendation.outcome == Outcome::Better || could_be.is_some(), "{recommendation:#?}");
    }
}

#[test]
fn neither_effects_nor_recipe_contradict_an_equivalence() {
    let points: Vec<_> =
        [9, 11, 13].into_iter().zip(0..).map(|(test_type, id)| point(id, test_type)).collect();
    let (mut equivalent, mut better) = (0, 0);
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut runs = Vec::new();
        for pass in 1..=24 {
            let level = 0.1 * random.normal();
            // Alternately 1.8 % between neighbours and 20 %.
            let step = if seed % 2 == 0 { 1.018f64 } else { 1.2 };
            for (point, power) in points.iter().zip([-1, 0, 1]) {
                let noise = level + 0.005 * random.normal();
                runs.push(run(point, pass, runs.len() as u32, 400.0 * step.powi(power) * noise.exp()));
            }
        }
        let mut meta = meta(24, runs.len());
        meta.equivalence = sweep::plan::Margin::parse("7%").unwrap();
        (meta.protocol, meta.passes, meta.discard_first) = (sweep::plan::Protocol::Blocks, 0, false);
        let data = SweepData { meta, points: points.clone(), runs, ..SweepData::default() };
        let report = Report::new(&data).unwrap();
        let values = || report.effects.iter().flat_map(|e| &e.values);
        match report.recommendations[0].outcome {
            Outcome::Equivalent => {
                equivalent += 1;
                assert!(report.effects.iter().all(|e| e.matters != Some(true)), "{:#?}", report.effects);
                let ladder = &report.ladders[0];
                let way: Vec<u32> = ladder.rungs.iter().map(|rung| rung.point).collect();
                let way = [vec![ladder.baseline], way].concat();
                let is_tied = |point: &u32| report.recommendations[0].tied.contains(point);
                assert!(!way.windows(2).any(|step| step.iter().all(is_tied)), "{}", ladder.sentence);
                // An interval that leaves 1 out has its reason beside it.
                let leaves_1_out = values().filter(|v| v.interval.is_some_and(|i| i.high < 1.0));
                leaves_1_out.for_each(|v| {
                    assert_eq!(v.word(), "differs within the margin of equivalence");
                });
            }
            Outcome::Better => {
                better += 1;
                let depth = report.effects.iter().find(|e| e.dimension == "iodepth").unwrap();
                assert_eq!(depth.best, report.points[2].iodepth.to_string());
                // For one dimension the bound is that of the race.
                assert!(depth.values.iter().all(|v| v.word() != "not told apart"), "{depth:#?}");
            }
            _ => {}
        }
    }
    assert!(equivalent >= 8 && better >= 8, "{equivalent} {better}");
}
