//! `flashwright plan`: the papers' tables as a user gets them, measured figures in place of stated ones, and hostile input.

mod common;

use std::path::Path;

use common::{fits_schema, json, place, refused, run, works};
use measure::ladder::Kind;
use serde_json::Value;

const DASH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/prices/dash-2010.toml");
const TIERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/prices/dash-tiers-2010.toml");
const CURVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/working-set.csv");
const CRAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/prices/cray-2013.toml");

fn near(value: &Value, expected: f64) -> bool {
    let value = value.as_f64().expect("a number");
    (value - expected).abs() <= 0.005 * expected.abs()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn the_papers_tables_come_out_with_their_discrepancies() {
    let folder = place();
    let cost = works(folder.path(), &["plan", "cost", "--prices", DASH]).out;
    for words in [
        "dash-supernode  86,500    768   0.487    113    52.0    5,854  2010-02",
        "note: dash-supernode: the source prints 5853 for iops_per_gb; its inputs give 5,854",
        "He et al., DASH, SC 2010, Table 1",
    ] {
        assert!(cost.contains(words), "{cost}");
    }
    let power = json(folder.path(), &["plan", "power", "--prices", DASH, "--json"]);
    fits_schema(folder.path(), "plan-efficiency", &power);
    assert!(near(&power["products"][1]["iops_per_w"], 712.0));
    assert_eq!(power["discrepancies"].as_array().unwrap().len(), 3);
    let arguments = ["plan", "checkpoint", "--size=1200TB", "--interval=1h", "--fast=2.25TB/s"];
    let tiers = ["--fast-capacity=2.25PB", "--alone=1TB/s", "--prices", CRAY, "--json"];
    let table = json(folder.path(), &[&arguments[..], &tiers].concat());
    fits_schema(folder.path(), "plan-checkpoint", &table);
    let (hybrid, alone) = (&table["purchases"][0], &table["purchases"][1]);
    assert!(near(&hybrid["price"], 22_109e3) && near(&alone["price"], 22_000e3));
    assert!(near(&hybrid["write_s"], 533.3) && near(&hybrid["slow_capacity"], 20.86e15));
}

#[test]
fn a_bench_takes_the_place_of_the_figures_of_a_product() {
    let folder = place();
    common::written(folder.path(), "file", 16);
    let flags = ["bench", "--rw=randread", "--bs=4k", "--runtime=300ms", "--ramp_time=0", "--json"];
    let done = works(folder.path(), &[&flags[..], &["--target", "file"]].concat());
    write(folder.path(), "bench.json", &done.out);
    write(
        folder.path(),
        "prices.toml",
        "name = \"mine\"\n[[product]]\nname = \"nvme\"\ndate = \"2026-11\"\nsource = \"a shop\"\nprice = 300\ncapacity_gb = 1000\nrandom_read_iops = 1\n",
    );
    let bench: Value = serde_json::from_str(&done.out).unwrap();
    let arguments = ["plan", "cost", "--prices", "prices.toml", "nvme=bench.json", "--json"];
    let cost = run(folder.path(), &arguments);
    // Where the file system makes the figure void it does not count, and that is said.
    if bench["warnings"].as_array().unwrap().iter().any(|w| w["severity"] == "void") {
        assert!(cost.err.starts_with("error: nvme=bench.json: holds no figure that counts"), "{cost:?}");
        return;
    }
    let cost: Value = serde_json::from_str(&cost.out).unwrap();
    let product = &cost["products"][0];
    assert!(near(&product["iops_per_price"], bench["iops"].as_f64().unwrap() / 300.0), "{product}");
    assert!(product["performance"]["random_read"]["from"].as_str().unwrap().contains("randread"));
}

#[test]
fn simulated_failures_agree_with_the_formula_and_a_seed_repeats_them() {
    let folder = place();
    let arguments =
        ["plan", "checkpoint", "--mtbf=24h", "--write-time=2m", "--simulate", "--runs=5000", "--json"];
    let first = json(folder.path(), &arguments);
    assert_eq!(first, json(folder.path(), &arguments));
    fits_schema(folder.path(), "plan-checkpoint", &first);
    for rule in first["rules"].as_array().unwrap() {
        let seen = rule["simulated"]["waste"].as_f64().unwrap();
        let waste = rule["waste"].as_f64().unwrap();
        assert!((waste / seen - 1.0).abs() < 0.02, "{rule}");
    }
    let status = r#"{"schema":"flashwright.stage-status/1","jobs":[{"created":5,"durable":null,"bytes_total":9},
        {"created":100,"durable":101,"bytes_total":9e12,"bytes_written":9e12,"spec":{"options":{"inward":true}}},
        {"created":100,"durable":1100,"bytes_total":2e12,"bytes_written":1000000000000}]}"#;
    write(folder.path(), "drain.json", status);
    let levels = ["--size=2TB", "--fast=10GB/s", "--slow=drain.json", "--slow-failures=0.1", "--json"];
    let two = json(folder.path(), &[&["plan", "checkpoint", "--mtbf=30d"], &levels[..]].concat());
    assert!(two["levels"]["schedule"]["slow_every"].as_u64().unwrap() >= 2, "{two}");
    assert_eq!(two["levels"]["levels"]["slow_write_s"], 2000.0, "2 TB by the drain's 1 GB/s");
    assert_eq!(two["measured"][0]["flag"], "slow", "{two}");
    assert!(two["measured"][0]["from"].as_str().unwrap().starts_with("drain of 931"), "{two}");
    fits_schema(folder.path(), "plan-checkpoint", &two);
}

#[test]
fn a_rate_that_was_simulated_says_so() {
    let folder = place();
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/cray-flash.toml");
    let flags = ["--rw=write", "--bs=1m", "--iodepth=8", "--runtime=1s", "--json"];
    let done = works(folder.path(), &[&["sim", machine], &flags[..]].concat());
    write(folder.path(), "sim.json", &done.out);
    let text =
        works(folder.path(), &["plan", "checkpoint", "--mtbf=1d", "--size=2TB", "--fast=sim.json"]).out;
    assert!(text.contains(" from simulated: write 1"), "{text}");
}

#[test]
fn the_answer_the_rows_and_the_charts_are_of_the_levels_that_were_described() {
    let folder = place();
    let of = |flags: &[&str]| {
        let common = ["plan", "checkpoint", "--mtbf=24h", "--size=2TB", "--json"];
        json(folder.path(), &[&common[..], flags].concat())
    };
    // A drain of 4000 s does not fit between checkpoints, but one in a hundred and more drains.
    let two = of(&["--fast=100GB/s", "--slow=0.5GB/s", "--slow-failures=0.01"]);
    fits_schema(folder.path(), "plan-checkpoint", &two);
    let (waste, schedule) = (&two["waste"], &two["levels"]["schedule"]);
    assert!(near(waste, 0.0517) && two["purchases"][0]["waste"] == *waste && schedule["waste"] == *waste);
    assert_eq!(
        (&two["period_s"], &two["purchases"][0]["period_s"]),
        (&schedule["period_s"], &schedule["period_s"])
    );
    let least = two["curve"].as_array().unwrap().iter().map(|point| point["waste"].as_f64().unwrap());
    assert!(near(waste, least.fold(1.0, f64::min)));
    let given = of(&["--fast=10GB/s", "--slow=2GB/s", "--slow-failures=0.99", "--interval=4h"]);
    assert!(
        near(&given["levels"]["schedule"]["period_s"], 14_400.0) && near(&given["waste"], 0.1702),
        "{given}"
    );
    // A slow tier alone has the best period of its own.
    for (flags, waste) in [(&["--alone=1GB/s"][..], 0.218), (&["--alone=0.3GB/s", "--fast=10GB/s"], 0.392)] {
        let alone = of(flags);
        let row = alone["purchases"].as_array().unwrap().last().unwrap();
        assert!(near(&row["waste"], waste), "{row}");
    }
}

#[test]
fn endurance_is_told_for_a_product_and_for_a_drives_own_counters() {
    let folder = place();
    let product =
        ["plan", "endurance", "--prices", DASH, "--product=x25-e-of-table-4", "--write-rate=203MB/s"];
    let of_table = json(folder.path(), &[&product[..], &["--read-rate=250MB/s", "--json"]].concat());
    fits_schema(folder.path(), "plan-endurance", &of_table);
    assert!(near(&of_table["life"]["life_s"], 0.999 * 31_557_600.0));
    assert!(near(&of_table["between_bit_errors_s"], 5e5));
    let smart = r#"{"model_name":"M","user_capacity":{"bytes":1000000000000},"nvme_smart_health_information_log":
        {"percentage_used":10,"data_units_written":100000000,"power_on_hours":1000}}"#;
    write(folder.path(), "smart.json", smart);
    let counted = ["plan", "endurance", "--smart=smart.json", "--pe-cycles=3000"];
    let text = works(folder.path(), &counted).out;
    let said = "A new drive lasts 416.7 d at this load, and this one, as worn as it is, 375.0 d\n";
    assert!(text.starts_with(said) && text.contains("337.1 d to 421.3 d"), "{text}");
    assert!(text.contains("14.2 MB/s") && text.contains("5.86"), "{text}");
    let uncycled = works(folder.path(), &counted[..3]).out;
    let said = "By its own count 375.0 d of power-on time are left (337.1 d to 421.3 d)\n";
    assert!(uncycled.starts_with(said), "{uncycled}");
    // A drive that has written nothing has no rate.
    write(
        folder.path(),
        "smart.json",
        &smart.replace("\"data_units_written\":100000000", "\"data_units_written\":0"),
    );
    works(folder.path(), &counted);
}

#[test]
fn a_write_amplification_is_taken_from_a_simulated_run_or_sweep() {
    let folder = place();
    let simulated = |rw: &str| {
        let args = ["sim", "dash-one-drive", rw, "--bs=4k", "--iodepth=32", "--json"];
        works(folder.path(), &args).out
    };
    write(folder.path(), "run.json", &simulated("--rw=randwrite"));
    let document: Value = serde_json::from_str(&simulated("--rw=randwrite")).unwrap();
    let drive = &document["record"]["drives"][0];
    let of = |key: &str| drive[key].as_f64().unwrap();
    let ratio = of("media_write_bytes") / of("write_bytes");
    // The machine's constant, but for pages that were in the buffer when the interval began or ended.
    assert!((ratio / 4.59 - 1.0).abs() < 0.02, "{ratio}");
    let load = ["plan", "endurance", "--capacity=64GB", "--pe-cycles=100000", "--write-rate=44MB/s"];
    let life = |results: &str| {
        let amplified = format!("--write-amplification={results}");
        json(folder.path(), &[&load[..], &[&amplified, "--json"]].concat())
    };
    let of_run = life("run.json");
    fits_schema(folder.path(), "plan-endurance", &of_run);
    assert!(near(&of_run["wear"]["write_amplification"], ratio), "{of_run}");
    assert_eq!(of_run["measured"][0]["flag"], "write-amplification");
    // Of a sweep the highest: random writes wear more than sequential ones.
    let space = "[base]\ndrives = [\"/dev/a\"]\nlayout = \"single\"\n[space]\nrw = [\"write\", \"randwrite\", \"randread\"]\nbs = [\"4k\"]\niodepth = [32]\n";
    write(folder.path(), "s.toml", space);
    let sweep = ["sweep", "s.toml", "--machine=dash-one-drive", "--passes=2", "--output=swept"];
    works(folder.path(), &sweep);
    let of_sweep = life("swept");
    let highest = of_sweep["wear"]["write_amplification"].as_f64().unwrap();
    assert!((highest / 4.59 - 1.0).abs() < 0.02, "{of_sweep}");
    assert!(of_sweep["measured"][0]["from"].as_str().unwrap().contains("randwrite"), "{of_sweep}");
    let text = works(folder.path(), &[&load[..], &["--write-amplification=run.json"]].concat()).out;
    assert!(text.contains("--write-amplification: 4.") && text.contains("from simulated: "), "{text}");
    write(folder.path(), "reads.json", &simulated("--rw=randread"));
    let refused = run(folder.path(), &[&load[..], &["--write-amplification=reads.json"]].concat());
    assert_eq!(refused.code, 2);
    let said = "error: --write-amplification=reads.json: holds no write amplification\nhint: simulate writes to flash";
    assert!(refused.err.starts_with(said), "{}", refused.err);
}

#[test]
fn a_ladder_has_prices_and_watts_by_names_and_kinds() {
    let folder = place();
    let level = |name: &str, kind, ns: f64| measure::ladder::Level {
        name: name.to_owned(),
        kind,
        about: String::new(),
        capacity_bytes: Some(1_000_000_000),
        knee_bytes: None,
        sighting: None,
        latency_ns: Some(measure::stats::Estimate { value: ns, samples: 1, interval: None }),
        latency_cycles: None,
        figures: measure::ladder::FourFigures::default(),
        requests: measure::ladder::Requests::default(),
        notes: Vec::new(),
        warnings: Vec::new(),
    };
    let levels = vec![level("DRAM", Kind::Memory, 100.0), level("nvme0n1", Kind::Flash, 1e5)];
    let gaps = measure::ladder::gaps(&levels);
    let ladder = measure::ladder::Ladder {
        schema: measure::ladder::SCHEMA.to_owned(),
        interrupted: false,
        started_unix_ns: 0,
        host: measure::record::HostFacts::default(),
        method: measure::ladder::Method::default(),
        curve: Vec::new(),
        widest: measure::ladder::widest(&gaps).cloned(),
        levels,
        gaps,
        absent: Vec::new(),
        warnings: Vec::new(),
    };
    write(folder.path(), "ladder.json", &serde_json::to_string(&ladder).unwrap());
    let document = json(folder.path(), &["plan", "hierarchy", "ladder.json", "--prices", TIERS, "--json"]);
    fits_schema(folder.path(), "plan-hierarchy", &document);
    let levels = &document["levels"];
    assert!(near(&levels[0]["price"], 112.63) && near(&levels[0]["active_w"], 5.0));
    assert!(near(&levels[1]["price"], 19.43) && near(&levels[1]["gap"], 1000.0), "{levels}");
    refused(
        folder.path(),
        &["plan", "checkpoint", "--mtbf=1d", "--size=1TB", "--fast=ladder.json"],
        2,
        "error: --fast=ladder.json: is a ladder, of which a flag cannot name a level\n\
         hint: give the rate of one of DRAM, nvme0n1, such as 2GB/s\n",
    );
    let text = works(folder.path(), &["plan", "hierarchy", "ladder.json"]).out;
    assert!(text.starts_with("The widest gap is from DRAM to nvme0n1, 1000× (3.0 orders"), "{text}");
}

#[test]
fn the_cheapest_tiers_meet_the_target_and_beat_every_other_choice() {
    let folder = place();
    let arguments = ["plan", "tier", CURVE, "--prices", TIERS, "--access-time=100us", "--json"];
    let document = json(folder.path(), &arguments);
    fits_schema(folder.path(), "plan-tier", &document);
    let mixes = document["mixes"].as_array().unwrap();
    assert_eq!(mixes[0]["tiers"].as_array().unwrap().len(), 3, "{}", mixes[0]);
    assert!(mixes[0]["access_ns"].as_f64().unwrap() <= 100_001.0);
    assert!(mixes.windows(2).all(|pair| pair[0]["price"].as_f64() <= pair[1]["price"].as_f64()));
}

#[test]
fn a_page_is_written_and_needs_no_network() {
    let folder = place();
    works(folder.path(), &["plan", "checkpoint", "--mtbf=24h", "--write-time=5m", "--html", "page.html"]);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(
        page.contains("A checkpoint every 2\u{a0}h") || page.contains("A checkpoint every 2 h"),
        "the answer"
    );
    assert!(page.contains("<figure id=\"page-0\"") && page.contains("default-src 'none'"));
}

/// Commands of docs/verbs/plan.md and of the examples of help that need no file of the user's.
#[test]
fn commands_of_the_documentation_work() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap();
    let page = std::fs::read_to_string(tree.join("docs/verbs/plan.md")).unwrap();
    let help = works(tree, &["plan", "--help"]).out;
    let text = (page + &help).replace("\\\n", " ");
    let mut done = 0;
    for line in text.lines().map(str::trim).filter(|line| line.starts_with("flashwright plan ")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let is_file = |word: &&&str| [".toml", ".csv", ".json"].iter().any(|end| word.ends_with(end));
        let is_usage = line.contains(['[', '|', '…', '=']);
        if !is_usage && words.iter().filter(is_file).all(|file| tree.join(file).exists()) {
            works(tree, &words);
            done += 1;
        }
    }
    assert!(done >= 10, "{done}");
}

#[test]
fn wrong_requests_name_the_flag_or_the_key_and_its_value() {
    let folder = place();
    let product = "name = \"x\"\n[[product]]\nname = \"a\"\ndate = \"2026\"\nsource = \"s\"\n";
    write(folder.path(), "p.toml", product);
    let sold = "price = 410\ncapacity_gb = 3840\n";
    let disk = product.split_once("[[").unwrap().1.replace("\"a\"", "\"disk\"");
    let sold = format!("{}{sold}[[{disk}{sold}", product.replace("\"a\"", "\"flash\""));
    write(folder.path(), "sold.toml", &sold);
    write(folder.path(), "bom.csv", "\u{feff}bytes,miss_ratio\n1e9,0.5\n2e9,0\n");
    std::fs::copy(CRAY, folder.path().join("cray.toml")).unwrap();
    std::os::unix::fs::symlink("cray.toml", folder.path().join("link.html")).unwrap();
    write(folder.path(), "typo.toml", &(product.to_owned() + "prise = 3\n"));
    write(folder.path(), "text.json", "{}");
    write(folder.path(), "curve.csv", "bytes,miss_ratio\n1e9,0.5\n2e9,2\n");
    let wear = ["--capacity=1TB", "--pe-cycles=3000", "--write-rate=1GB/s"];
    let amplified = [&["endurance", "--write-amplification=0.5"], &wear[..]].concat();
    let levels =
        ["checkpoint", "--mtbf=1d", "--size=2TB", "--fast=9GB/s", "--slow=2GB/s", "--slow-failures=0.1"];
    let target = ["checkpoint", "--mtbf=24h", "--size=1200TB", "--target-waste=0.1"];
    let timed = ["checkpoint", "--mtbf=24h", "--write-time=5m"];
    let twice = ["cost", "--prices", DASH, "fusion-io=drain.json", "fusion-io=drain.json"];
    let cases: [(&[&str], &str); 44] = [
        (
            &[&timed[..], &["--html=no/page.html"]].concat(),
            "error: --html=no/page.html: there is no directory no\n",
        ),
        (
            &["tier", "bom.csv", "--prices", TIERS, "--access-time=1ns"],
            "error: --access-time=1 ns: dram takes",
        ),
        (
            &["tier", "/dev/zero", "--prices", TIERS, "--rate=9"],
            "error: /dev/zero: cannot be read: is not a regular",
        ),
        (
            &[&target[..], &["--prices=cray.toml", "--force", "--html=link.html"]].concat(),
            "error: --html=link.html: is what this command reads\n",
        ),
        (
            &[&timed[..], &["--interval=40d", "--simulate", "--runs=99"]].concat(),
            "error: --simulate: the machine fails so often that its runs do not end\n",
        ),
        (
            &[&target[..], &["--prices", CRAY, "--interval=1h"]].concat(),
            "error: --target-waste and --interval exclude",
        ),
        (
            &[&target[..], &["--prices", CRAY, "--alone=1GB/s"]].concat(),
            "error: --target-waste and --alone exclude",
        ),
        (&[&timed[..], &["--slow=1GB/s"]].concat(), "error: --write-time and --slow exclude each other\n"),
        (&[&timed[..], &["--keep=2"]].concat(), "error: --keep needs tiers\n"),
        (&["endurance", "--uber=1e-15"], "error: flashwright plan endurance needs --read-rate\n"),
        (&["endurance", "--read-rate=1GB/s"], "error: plan endurance needs --uber beside --read-rate\n"),
        (&twice, "error: fusion-io=drain.json: results of this product are given before\n"),
        (
            &[&target[..], &["--prices=sold.toml"]].concat(),
            "error: --prices=sold.toml: flash: price_per_gb_per_s (or price and",
        ),
        (&[&levels[..], &["--overlap=0.5"]].concat(), "error: --overlap=0.5: two levels wait for"),
        (&[&levels[..], &["--slow-failures=1"]].concat(), "error: --slow-failures is given twice\n"),
        (
            &["checkpoint", "--interval=1h", "--write-time=5m"],
            "error: plan checkpoint needs --mtbf, or tiers to compare\n",
        ),
        (&["endurance"], "error: plan endurance needs a drive and its load\n"),
        (
            &["endurance", "--write-rate=1GB/s"],
            "error: plan endurance needs --capacity and --pe-cycles beside",
        ),
        (&amplified, "error: --write-amplification=0.5: is below 1\n"),
        (&["endurance", "--uber=0", "--read-rate=1GB/s"], "error: --uber=0: must be a number above zero\n"),
        (&["endurance", "--smart=text.json"], "error: --smart=text.json: smart: tells neither"),
        (&["hierarchy", "text.json"], "error: text.json: is no ladder: missing field `schema`"),
        (&["hierarchy"], "error: flashwright plan hierarchy needs LADDER\n"),
        (&["tier", "none.csv", "--prices", TIERS], "error: none.csv: cannot be read: No such file"),
        (
            &["tier", "curve.csv", "--prices", TIERS],
            "error: curve.csv: line 3: '2e9,2' has a miss ratio above 1\n",
        ),
        (&["tier", CURVE, "--prices", TIERS], "error: --access-time: is lacking, and so is rate\n"),
        (&["tier", CURVE, "--prices", TIERS, "--rate=9", "--tiers=flash,tape"], "error: --prices="),
        (&["cost"], "error: flashwright plan cost needs --prices\n"),
        (&["cost", "--prices", "none.toml"], "error: none.toml: cannot be read: No such file"),
        (&["cost", "--prices", "typo.toml"], "error: --prices=typo.toml: line 6: unknown field `prise`"),
        (&["cost", "--prices", "p.toml"], "error: --prices=p.toml: no product has price\n"),
        (&["power", "--prices", DASH, "--years=0"], "error: --years=0: must be a number above zero\n"),
        (&["power", "--prices", DASH, "--duty=2"], "error: --duty=2: is not a share\n"),
        (&["power", "--prices", DASH, "--pue=x"], "error: --pue=x: 'x' is not a number\n"),
        (&["cost", "--prices", DASH, "nvme=r"], "error: nvme=r: nvme is no product of the price file\n"),
        (&["cost", "--prices", DASH, "fusion-io=text.json"], "error: fusion-io=text.json: is no document"),
        (&["cost", "--prices", DASH, "fusion-io"], "error: fusion-io: is not NAME=RESULTS\n"),
        (&["checkpoint", "--mtbf=24h"], "error: plan checkpoint needs --write-time, or --size and --fast\n"),
        (&["checkpoint", "--write-time=5m"], "error: plan checkpoint needs --mtbf or --interval\n"),
        (&["checkpoint", "--mtbf=0s", "--write-time=5m"], "error: --mtbf=0s: must be above zero\n"),
        (
            &["checkpoint", "--mtbf=1m", "--write-time=1h"],
            "error: --mtbf=1 min 00 s: with checkpoints of 1 h",
        ),
        (
            &["checkpoint", "--mtbf=1d", "--size=2TB", "--fast=1Gb/s"],
            "error: --fast=1Gb/s: '1Gb/s' counts bits\n",
        ),
        (
            &["checkpoint", "--mtbf=1d", "--write-time=5m", "--simulate", "--weibull=0"],
            "error: --weibull=0: is out of range\n",
        ),
        (
            &["checkpoint", "--mtbf=1d", "--write-time=5m", "--interval=4m"],
            "error: --interval=4 min 00 s: a checkpoint takes 5 min 00 s\n",
        ),
    ];
    for (arguments, words) in cases {
        let came = run(folder.path(), &[&["plan"], arguments].concat());
        assert_eq!((came.code, came.out.as_str()), (2, ""), "{arguments:?}: {came:?}");
        assert!(came.err.starts_with(words), "{arguments:?}: {came:?}");
        assert!(came.err.contains("\nhint: "), "{came:?}");
    }
}

#[test]
fn impossible_requests_say_what_would_make_them_possible() {
    let folder = place();
    let came = run(folder.path(), &["plan", "checkpoint", "--mtbf=6h", "--size=2TB", "--fast=10"]);
    assert_eq!(came.code, 2, "{came:?}");
    assert!(
        came.err.contains("\n  --size=1.82 TiB by --fast=10 B/s"),
        "a unit that was forgotten is seen: {came:?}"
    );
    assert!(came.err.contains(" is a checkpoint of 6337.6 years\nhint: "), "{came:?}");
    refused(
        folder.path(),
        &["plan", "checkpoint", "--interval=1h", "--size=1200TB", "--fast=2TB/s", "--slow=200GB/s"],
        2,
        "error: --slow=200 GB/s: a checkpoint of 1.20 PB takes 1 h 40 min, and the next comes after 1 h 00 min\n\
         hint: more than 333 GB/s, an --interval above 1 h 40 min, or checkpoints below 720 TB\n",
    );
    refused(
        folder.path(),
        &["plan", "tier", CURVE, "--prices", TIERS, "--access-time=10ns"],
        2,
        "error: --access-time=10 ns: dram takes 42 ns if it holds everything\n\
         hint: at least 42 ns, or a faster tier\n",
    );
    refused(
        folder.path(),
        &[
            "plan",
            "checkpoint",
            "--mtbf=1h",
            "--downtime=30m",
            "--size=1TB",
            "--target-waste=0.1",
            "--prices",
            CRAY,
        ],
        2,
        "error: --target-waste=0.1: down times and restarts alone waste 39.3 %\n\
         hint: a larger --target-waste, a larger --mtbf, a shorter --downtime or --restart\n",
    );
}
