//! Spaces and plans in which something is built: the papers' Table 1, grouping, shards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use sweep::model::{LAYOUT, Point};
use sweep::plan::{Margin, Order, Plan, Prepare, Protocol, Rules, Step, StepKind};
use sweep::space::{Overrides, Space};

const TABLE_1: &str = include_str!("../../../examples/dash-io.toml");
const ELEVATORS: &str = include_str!("../../../examples/dash-io-2010.toml");

fn space(text: &str) -> Space {
    Space::parse("s.toml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn complaint(text: &str) -> String {
    Space::parse("s.toml", text).expect_err("must be refused").to_string()
}

#[test]
fn table_1_of_the_papers_is_240_configurations_and_16800_runs_of_46_hours_40() {
    let space = space(TABLE_1);
    let configurations: BTreeSet<&BTreeMap<String, String>> =
        space.points.iter().map(|p| &p.layout).collect();
    assert_eq!((configurations.len(), space.points.len(), space.excluded), (240, 3360, 0));
    let plan = space.plan(1);
    assert_eq!(plan.runs.len(), 16_800);
    assert_eq!(plan.measuring(), Duration::from_secs((46 * 60 + 40) * 60));
    assert_eq!(plan.changes().constructions, 3 * 5 * 2, "chunk, width and file system are built once each");
    let control = &plan.points[plan.rules.control.unwrap() as usize];
    assert_eq!(control.test_type.unwrap().number(), 9);
    assert!(space.points.iter().all(|p| p.target == LAYOUT && p.layout["drives"].split(',').count() == 16));
}

#[test]
fn the_papers_own_schedulers_are_20_configurations_and_1400_runs() {
    let space = space(ELEVATORS);
    let configurations: BTreeSet<&BTreeMap<String, String>> =
        space.points.iter().map(|p| &p.layout).collect();
    assert_eq!((configurations.len(), space.points.len()), (20, 280));
    assert_eq!(space.plan(1).runs.len(), 1_400);
}

#[test]
fn a_layout_is_what_base_and_dimensions_say_of_it() {
    let text = "[base]\ndrives = ['/dev/a', '/dev/b']\nlayout = 'md-raid0'\nread_ahead_kb = 0\nbs = '4k'\n\
                [space]\nchunk = ['64k', 262144]\nfilesystem = ['raw', 'xfs']\niodepth = [1]";
    let points = space(text).points;
    let expected = [
        ("chunk", "256k"),
        ("drives", "/dev/a,/dev/b"),
        ("filesystem", "xfs"),
        ("layout", "md-raid0"),
        ("read_ahead_kb", "0"),
    ];
    assert_eq!(points[3].layout, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    assert_eq!(points[3].settings.keys().collect::<Vec<_>>(), ["chunk", "filesystem", "iodepth"]);
    assert_eq!(
        points[3].construction().unwrap(),
        "layout=md-raid0 chunk=256k filesystem=xfs drives=/dev/a,/dev/b"
    );
}

#[test]
fn what_means_nothing_to_a_layout_is_measured_once_and_counted() {
    let text = "[base]\ndrives = ['/dev/a', '/dev/b']\n[space]\nlayout = ['single', 'md-raid0', 'separate']\n\
                chunk = ['16k', '64k', '256k']\nwidth = [1, 2]";
    let space = space(text);
    // One single, two widths of separate, six arrays.
    assert_eq!((space.points.len(), space.excluded), (9, 9));
    let reasons: Vec<(&str, u64)> =
        space.left_out.iter().map(|l| (l.reason.as_str(), l.combinations)).collect();
    assert_eq!(
        reasons,
        [("chunk, width mean nothing to layout=single", 5), ("chunk means nothing to layout=separate", 4)]
    );
    let single = &space.points[0];
    assert_eq!((single.settings["chunk"].as_str(), single.settings["width"].as_str()), ("-", "1"));
    assert!(!single.layout.contains_key("chunk") && !single.layout.contains_key("width"));
}

#[test]
fn combinations_that_cannot_be_built_are_left_out_with_their_reason() {
    let text = "[base]\ndrives = ['/dev/a', '/dev/b']\nmount_options = 'noatime'\n[space]\n\
                layout = ['md-raid0', 'btrfs-raid0']\nfilesystem = ['raw', 'xfs', 'btrfs']";
    let space = space(text);
    assert_eq!(space.points.len(), 4);
    let reasons: Vec<&str> = space.left_out.iter().map(|l| l.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["layout=btrfs-raid0 is a btrfs, and no raw", "layout=btrfs-raid0 is a btrfs, and no xfs"]
    );
    assert!(!space.points[0].layout.contains_key("mount_options"), "raw has none");
    assert_eq!(space.points[1].layout["mount_options"], "noatime");
}

#[test]
fn layouts_that_contradict_themselves_are_refused_at_their_line() {
    for (text, message) in [
        (
            "[space]\nscheduler = ['none']",
            "s.toml:2: scheduler=none: says what is to be built, and no drives",
        ),
        ("[base]\nchunk = '64k'\n[space]\nbs = ['4k']", "s.toml:2: chunk=64k: says what is to be built"),
        (
            "[base]\ndrives = ['/dev/a']\ntarget = '/dev/b'\n[space]\nbs = ['4k']",
            "s.toml:3: target=/dev/b: stands beside drives",
        ),
        (
            "[base]\ndrives = ['/dev/a']\n[space]\ntarget = ['/dev/b']",
            "s.toml:4: target=/dev/b: stands beside drives",
        ),
        (
            "[base]\ndrives = ['/dev/a', '/dev/b']\nlayout = 'stripe'\n[space]\nwidth = [1,\n 4]",
            "s.toml:6: width=4: is more than the 2 drives",
        ),
        (
            "[base]\ndrives = ['/dev/a', '/dev/b']\n[space]\nscheduler = ['none']",
            "s.toml:2: drives=/dev/a,/dev/b: are several, and no layout",
        ),
        (
            "[base]\ndrives = ['/dev/a']\nlayout = 'btrfs-raid0'\nfilesystem = 'xfs'\n[space]\nbs = ['4k']",
            "s.toml:4: filesystem=xfs: layout=btrfs-raid0 is a btrfs, and no xfs",
        ),
        (
            "[base]\ndrives = ['/dev/a']\nlayout = 'single'\n[space]\nchunk = ['16k', '64k']",
            "s.toml:5: chunk=16k: means nothing",
        ),
        (
            "[base]\ndrives = ['/dev/a']\nmount_options = 'noatime'\n[space]\nfilesystem = ['raw']",
            "s.toml:3: mount_options=noatime: means nothing",
        ),
        ("[space]\ndrives = ['/dev/a']", "s.toml:2: drives: is what all points are built of"),
        ("[base]\ndrives = '/dev/a'\n[space]\nbs = ['4k']", "s.toml:2: drives='/dev/a': is not a list"),
        ("[base]\ndrives = ['sda']\n[space]\nbs = ['4k']", "s.toml:2: drives='sda': is not an absolute path"),
        ("[base]\ndrives = ['/dev/a', '/dev/a']\n[space]\nbs = ['4k']", "stands here twice"),
        ("[base]\ndrives = []\n[space]\nbs = ['4k']", "has no drive"),
        ("[base]\ndrives = ['/dev/a']\n[space]\nscheduler = ['mq deadline']", "is not a name"),
        (
            "[base]\ndrives = ['/dev/a']\n[space]\nchunk = ['48k']",
            "s.toml:4: chunk='48k': is no power of two",
        ),
        ("[base]\ndrives = ['/dev/a']\n[space]\nnomerges = [3]", "from 0 to 2"),
        (
            "[base]\ndrives = ['/dev/a']\n[space]\nlayout = ['raid0']",
            "s.toml:4: layout='raid0': is not known",
        ),
        ("[base]\ndrives = ['/dev/a']\n[space]\nirq_cpus = ['3-1']", "names no CPUs"),
        (
            "[base]\ndrives = ['/dev/a']\n[space]\nstripe_size = ['64k']",
            "s.toml:4: stripe_size: is not known",
        ),
    ] {
        let got = complaint(text);
        assert!(got.contains(message), "{text}\n  got: {got}\n want: {message}");
        assert!(!got.contains('\n'), "an error is one line: {got}");
    }
}

#[test]
fn values_that_the_machine_lacks_are_left_out_aloud_and_the_rest_is_planned() {
    let text = "[base]\ndrives = ['/dev/a']\n[space]\nscheduler = ['none', 'kyber', 'bfq']\niodepth = [1, 2]";
    let lacks_kyber = |name: &str, value: &str| {
        (name == "scheduler" && value == "kyber").then(|| "the kernel does not know it".to_owned())
    };
    let there = space(text).without(lacks_kyber).unwrap();
    assert_eq!(there.points.len(), 4);
    assert_eq!(there.unavailable, ["scheduler=kyber: the kernel does not know it"]);
    assert_eq!(there.dimensions[0].values().collect::<Vec<_>>(), ["none", "bfq"]);
    let nothing = |name: &str, _: &str| (name == "scheduler").then(|| "no queue".to_owned());
    assert!(space(text).without(nothing).unwrap_err().to_string().contains("scheduler=bfq: no queue"));
    let base = "[base]\ndrives = ['/dev/a']\nscheduler = 'bfq'\n[space]\niodepth = [1, 2]";
    let error = space(base).without(nothing).unwrap_err().to_string();
    assert!(error.starts_with("s.toml:3: scheduler=bfq: no queue"), "{error}");
}

#[test]
fn drives_can_be_named_by_a_flag() {
    let with = |drives: &[&str]| {
        let drives = drives.iter().map(|d| (*d).to_owned()).collect();
        space(TABLE_1).with(&Overrides { drives, ..Overrides::default() })
    };
    let sixteen: Vec<String> = (0..16).map(|n| format!("/dev/loop{n}")).collect();
    let sixteen: Vec<&str> = sixteen.iter().map(String::as_str).collect();
    assert_eq!(with(&sixteen).unwrap().drives(), sixteen);
    assert!(with(&["/dev/a"]).unwrap_err().to_string().contains("width=2: is more than the 1 drives"));
    let error = with(&["/dev/a", "/dev/a"]).unwrap_err().to_string();
    assert!(error.contains("--drives=/dev/a: stands here twice"), "{error}");
    let target = Overrides { targets: vec!["/dev/x".into()], ..Overrides::default() };
    assert!(space(TABLE_1).with(&target).unwrap_err().to_string().contains("--target=/dev/x"));
}

/// Points over a few constructions, in any mixture.
fn built(constructions: &[u8]) -> Vec<Point> {
    let text = "[base]\ndrives = ['/dev/a']\n[space]\nscheduler = ['none']";
    let model = space(text).points.remove(0);
    let point = |(id, construction): (usize, &u8)| {
        let mut point = Point { id: id as u32, ..model.clone() };
        point.layout.insert("chunk".into(), format!("{construction}k"));
        point.layout.insert("scheduler".into(), format!("s{}", id % 3));
        point.workload.iodepth = 1 + id as u32 % 4;
        point
    };
    constructions.iter().enumerate().map(point).collect()
}

fn rules(passes: u32, seed: u64, control: Option<u32>, shards: u32) -> Rules {
    Rules {
        passes,
        order: Order::Random,
        control,
        control_every: 3,
        seed,
        shards,
        prepare: Prepare::default(),
        protocol: Protocol::Dash,
        equivalence: Margin::default(),
        spacing: std::time::Duration::ZERO,
    }
}

/// The steps in runs of the same construction.
fn stretches(plan: &Plan) -> Vec<(String, Vec<Step>)> {
    let mut all: Vec<(String, Vec<Step>)> = Vec::new();
    for step in plan.steps() {
        let construction = plan.points[step.planned.point as usize].construction().unwrap();
        match all.last_mut() {
            Some((last, steps)) if *last == construction => steps.push(step),
            _ => all.push((construction, vec![step])),
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_construction_is_built_once_and_holds_whole_blocks(
        constructions in prop::collection::vec(0u8..6, 1..40), passes in 1u32..5, seed: u64,
    ) {
        let points = built(&constructions);
        let plan = Plan::new(points, rules(passes, seed, Some(0), 1));
        let stretches = stretches(&plan);
        let kinds: BTreeSet<u8> = constructions.iter().copied().collect();
        prop_assert_eq!(stretches.len(), kinds.len());
        prop_assert_eq!(plan.changes().constructions, kinds.len());
        for (_, steps) in &stretches {
            prop_assert_eq!(steps[0].kind, StepKind::Control, "a group opens with a control of its own");
            prop_assert_eq!(steps.last().unwrap().kind, StepKind::Control);
            let runs: Vec<_> = steps.iter().filter(|s| s.kind == StepKind::Run).collect();
            let members: BTreeSet<u32> = runs.iter().map(|s| s.planned.point).collect();
            for (pass, block) in (1..).zip(runs.chunks(members.len())) {
                prop_assert!(block.iter().all(|s| s.planned.pass == pass));
                let seen: BTreeSet<u32> = block.iter().map(|s| s.planned.point).collect();
                prop_assert_eq!(&seen, &members);
            }
            // One control point a group, and its workload is the control's where a member has that.
            let controls: BTreeSet<u32> = steps
                .iter()
                .filter(|s| s.kind == StepKind::Control)
                .map(|s| s.planned.point)
                .collect();
            prop_assert_eq!(controls.len(), 1);
            let wanted = plan.points[0].workload.iodepth;
            let has = members.iter().any(|id| plan.points[*id as usize].workload.iodepth == wanted);
            let control = &plan.points[*controls.first().unwrap() as usize];
            prop_assert!(!has || control.workload.iodepth == wanted);
        }
        let positions: Vec<u32> = plan.steps().iter().map(|s| s.planned.position).collect();
        prop_assert_eq!(positions, (0..plan.steps().len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn a_further_pass_changes_the_order_of_no_block(
        constructions in prop::collection::vec(0u8..4, 1..24), passes in 1u32..4, seed: u64,
    ) {
        let order = |plan: &Plan, pass: u32| -> Vec<u32> {
            plan.runs.iter().filter(|r| r.pass == pass).map(|r| r.point).collect()
        };
        let plan = Plan::new(built(&constructions), rules(passes, seed, None, 1));
        let longer = Plan::new(built(&constructions), rules(passes + 1, seed, None, 1));
        for pass in 1..=passes {
            prop_assert_eq!(order(&plan, pass), order(&longer, pass));
        }
    }

    #[test]
    fn shards_are_disjoint_complete_stable_and_split_no_construction(
        constructions in prop::collection::vec(0u8..8, 1..40), is_built: bool, passes in 1u32..4, seed: u64, shards in 1u32..6,
    ) {
        let mut points = built(&constructions);
        if !is_built {
            points.iter_mut().for_each(|point| point.layout.clear());
        }
        let shards = shards.min(Plan::most_shards(&points, Protocol::Dash));
        let rules = rules(passes, seed, Some(0), shards);
        let whole = Plan::new(points.clone(), rules);
        let mut together: Vec<Step> = Vec::new();
        let mut homes: BTreeMap<String, u32> = BTreeMap::new();
        for shard in 1..=shards {
            let part = Plan::of_shards(points.clone(), rules, |s| s == shard);
            prop_assert_eq!(&part, &Plan::of_shards(points.clone(), rules, |s| s == shard));
            prop_assert!(!part.runs.is_empty(), "nobody stands idle");
            prop_assert_eq!(part.steps()[0].kind, StepKind::Control, "each machine begins with a control");
            for run in &part.runs {
                let unit = points[run.point as usize].construction().unwrap_or_else(|| run.point.to_string());
                prop_assert_eq!(*homes.entry(unit).or_insert(shard), shard);
            }
            together.extend(part.steps());
        }
        together.sort_by_key(|step| step.planned.position);
        prop_assert_eq!(together, whole.steps());
    }
}

#[test]
fn a_shard_is_asked_for_within_bounds_and_all_shards_agree_on_a_seed() {
    let small =
        || space("[base]\ndrives = ['/dev/a']\n[space]\nfilesystem = ['raw', 'xfs']\niodepth = [1, 2]");
    let error = small().share(1, 3).unwrap_err().to_string();
    assert!(error.contains("--shard=1/3: the space has 2 constructions to share"), "{error}");
    assert!(small().share(3, 2).is_err());
    let (one, two) = (small().share(1, 2).unwrap(), small().share(2, 2).unwrap());
    assert_eq!(one.common_seed(), two.common_seed());
    assert_eq!(one.plan(one.common_seed()).digest(), two.plan(two.common_seed()).digest());
    assert_eq!(one.plan_here(1).runs.len() + two.plan_here(1).runs.len(), one.plan(1).runs.len());
    let other = small().with(&Overrides { passes: Some(3), ..Overrides::default() }).unwrap();
    assert_ne!(other.share(1, 2).unwrap().common_seed(), one.common_seed(), "other runs are another sweep");
}
