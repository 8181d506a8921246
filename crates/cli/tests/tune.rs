//! `flashwright tune`: what a sweep recommends, shown, exported, set and set back.

#[path = "../../sweep/tests/report_data/mod.rs"]
mod report_data;

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::loop_device::LoopDevice;
use common::{command, finish, fits_schema, is_root, json, names, place, refused, skipped, tool, works};
use report_data::layouts::{SMALL, layouts};
use serde_json::Value;
use sweep::report::Report;

/// A directory with the results.json of a sweep of layouts on these drives, with a queue setting besides.
fn results(folder: &Path, drives: &[String], settings: &[(&str, &str)]) -> PathBuf {
    let mut data = layouts(&SMALL);
    for point in &mut data.points {
        point.layout.insert("drives".to_owned(), drives.join(","));
        for (name, value) in settings {
            point.layout.insert((*name).to_owned(), (*value).to_owned());
            point.settings.entry((*name).to_owned()).and_modify(|known| *known = (*value).to_owned());
        }
    }
    data.host = None;
    let directory = folder.join("results");
    std::fs::create_dir(&directory).expect("makes");
    let report = Report::new(&data).expect("a report");
    std::fs::write(directory.join("results.json"), sweep::report::json(&report)).expect("writes");
    directory
}

fn sixteen() -> Vec<String> {
    (0..16).map(|n| format!("/dev/flash{n}")).collect()
}

#[test]
fn show_prints_each_setting_with_the_measurement_behind_it() {
    let folder = place();
    results(folder.path(), &sixteen(), &[]);
    let text = works(folder.path(), &["tune", "show", "results"]).out;
    let mut lines = text.lines().skip_while(|line| *line != "scheduler=none");
    let evidence = lines.nth(1).expect("a line below the scheduler");
    assert!(evidence.contains("× (") && evidence.contains("bfq, the baseline; 8 runs"), "{evidence}");
    assert!(text.contains("random-reads-4k") && text.contains("--rw=randread --bs=4k"), "{text}");
    let document: Value = json(folder.path(), &["tune", "show", "results", "--json"]);
    assert_eq!(document["settings"]["scheduler"]["value"], "none");
    assert!(document["layout"].as_str().expect("a layout").starts_with("separate("));
    assert_eq!(document["schema"], "flashwright.tune/1");
    fits_schema(folder.path(), "tune", &document);
}

#[test]
fn one_kind_of_work_has_settings_of_its_own_and_an_unknown_one_is_named() {
    let folder = place();
    results(folder.path(), &sixteen(), &[]);
    let only = json(folder.path(), &["tune", "show", "results", "--for", "random-writes-4k", "--json"]);
    assert_eq!(only["settings"]["filesystem"]["value"], "raw");
    refused(
        folder.path(),
        &["tune", "show", "results", "--for", "reads"],
        2,
        "error: --for=reads: the sweep has no such work\n\
         hint: there are: streaming-reads, streaming-writes, random-reads-4k, random-writes-4k\n",
    );
}

#[test]
fn export_writes_rules_a_profile_and_a_script_each_line_with_its_measurement() {
    let folder = place();
    results(folder.path(), &sixteen(), &[("nr_requests", "64")]);
    works(folder.path(), &["tune", "export", "results", "--output", "tuned"]);
    let at = folder.path().join("tuned");
    assert_eq!(names(&at), ["60-flashwright.rules", "flashwright-build.sh", "fstab", "tuned.conf"]);
    let read = |name: &str| std::fs::read_to_string(at.join(name)).expect("reads");
    let rules = read("60-flashwright.rules");
    let mut before = "";
    for line in rules.lines() {
        if line.starts_with("ACTION") {
            assert!(before.starts_with("#   "), "{line}");
            assert!(line.contains("KERNEL==\"flash0|flash1|"), "{line}");
        }
        before = line;
    }
    // A scheduler resets the number of requests, so it comes first.
    let place_of = |what: &str| rules.find(what).unwrap_or_else(|| panic!("{what}: {rules}"));
    assert!(place_of("ATTR{queue/scheduler}=\"none\"") < place_of("ATTR{queue/nr_requests}=\"64\""));
    let profile = read("tuned.conf");
    assert!(
        profile.contains("[disk]\ndevices=flash0,") && profile.contains("\nelevator=none\n"),
        "{profile}"
    );
    assert!(profile.contains("[sysfs]\n") && profile.contains("/sys/block/flash15/queue/nr_requests=64"));
    let script = at.join("flashwright-build.sh");
    assert!(tool("bash", &["-n", &script.display().to_string()]).is_some());
    if tool("udevadm", &["verify", "--help"]).is_some() {
        let rules = at.join("60-flashwright.rules");
        assert!(tool("udevadm", &["verify", "--no-style", &rules.display().to_string()]).is_some());
    } else {
        skipped("this udevadm has no verify");
    }
}

#[test]
fn the_script_builds_what_was_measured_and_destroys_nothing_unasked() {
    let folder = place();
    let directory = results(folder.path(), &sixteen(), &[]);
    // The same sweep without the drives one by one: md it is.
    let path = directory.join("results.json");
    let text = std::fs::read_to_string(&path).expect("reads");
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    let settings = &mut report["compromise"]["settings"];
    for (name, value) in
        [("layout", "md-raid0"), ("chunk", "256k"), ("filesystem", "xfs"), ("mount_options", "noatime")]
    {
        settings[name] = settings["layout"].clone();
        settings[name]["value"] = value.into();
    }
    std::fs::write(&path, report.to_string()).expect("writes");
    works(folder.path(), &["tune", "export", "results", "--output", "tuned", "--mount", "/mnt/my flash"]);
    let script = folder.path().join("tuned/flashwright-build.sh");
    let lines = std::fs::read_to_string(&script).expect("reads");
    for line in [
        "mdadm --create /dev/md/flashwright --run --metadata=1.2 --level=0 --force --chunk=256 --raid-devices=16 \"${drives[@]}\"",
        "mkfs.xfs -f -L flashwright -d su=262144,sw=16 /dev/md/flashwright",
        "mount -t xfs -o noatime LABEL=flashwright '/mnt/my flash'",
    ] {
        assert!(lines.lines().any(|l| l == line), "{line}\n{lines}");
    }
    let fstab = std::fs::read_to_string(folder.path().join("tuned/fstab")).expect("reads");
    assert!(fstab.ends_with("LABEL=flashwright /mnt/my\\040flash xfs noatime,nofail 0 0\n"), "{fstab}");
    let mut bare = std::process::Command::new("bash");
    let came = finish(bare.arg(&script));
    assert_eq!((came.code, came.out.as_str()), (3, ""));
    assert!(came.err.contains("say --destroy"), "{}", came.err);
}

#[test]
fn what_comes_from_a_results_file_stays_text() {
    let folder = place();
    let directory = results(folder.path(), &sixteen(), &[]);
    let path = directory.join("results.json");
    let text = std::fs::read_to_string(&path).expect("reads");
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    report["meta"]["name"] = "x\nrm -rf /\n".into();
    report["compromise"]["sentence"] = "y\nreboot".into();
    report["compromise"]["settings"]["width"]["value"] = "2".into();
    report["compromise"]["settings"]["drives"]["value"] = "/dev/$(touch owned),/dev/a;touch owned".into();
    std::fs::write(&path, report.to_string()).expect("writes");
    let out = works(folder.path(), &["tune", "export", "results"]).out;
    assert!(!out.lines().any(|line| line.starts_with("rm ") || line.starts_with("reboot")), "{out}");
    assert!(out.contains("drives=('/dev/$(touch owned)' '/dev/a;touch owned')"), "{out}");
    assert!(!out.contains("KERNEL==\"$("), "{out}");
    // A scheduler that is none is refused, not written.
    report["compromise"]["settings"]["scheduler"]["value"] = "none\"\nRUN+=\"/bin/sh".into();
    std::fs::write(&path, report.to_string()).expect("writes");
    let came = common::run(folder.path(), &["tune", "export", "results"]);
    assert_eq!(came.code, 2, "{came:?}");
}

#[test]
fn a_sweep_without_layouts_shows_its_loads_and_has_nothing_to_apply() {
    let folder = place();
    let directory = folder.path().join("results");
    std::fs::create_dir(&directory).expect("makes");
    let mut data = report_data::fourteen(6);
    data.host = None;
    let report = Report::new(&data).expect("a report");
    std::fs::write(directory.join("results.json"), sweep::report::json(&report)).expect("writes");
    let text = works(folder.path(), &["tune", "show", "results"]).out;
    assert!(text.contains("nothing to set") && text.contains("--rw=randread"), "{text}");
    refused(
        folder.path(),
        &["tune", "apply", "results"],
        2,
        "error: results: the sweep had no layouts, so there is nothing to set\n\
         hint: sweep a space with settings of a layout, such as scheduler or read_ahead_kb\n",
    );
}

/// All that stands below the queues of these devices.
fn queues(devices: &[LoopDevice]) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for device in devices {
        let queue =
            Path::new("/sys/class/block").join(device.text().trim_start_matches("/dev/")).join("queue");
        for entry in std::fs::read_dir(queue).expect("lists").flatten() {
            if let Ok(text) = std::fs::read_to_string(entry.path()) {
                all.insert(entry.path(), text);
            }
        }
    }
    all
}

/// What a command printed, which has to work and to fit its schema.
fn document(folder: &Path, schema: &str, came: &common::Came) -> Value {
    assert_eq!(came.code, 0, "{came:?}");
    let document = serde_json::from_str(&came.out).expect("JSON");
    fits_schema(folder, schema, &document);
    document
}

#[test]
fn apply_sets_drives_that_are_at_work_and_undo_sets_them_back_byte_for_byte() {
    if !is_root() {
        return skipped("settings of queues need root");
    }
    let folder = place();
    let mut devices = Vec::new();
    for n in 0..16 {
        let image = folder.path().join(format!("image{n}"));
        std::fs::File::create(&image).and_then(|f| f.set_len(16 << 20)).expect("makes");
        let Ok(device) = LoopDevice::attach(&image, &[]) else {
            return skipped("no loop device can be had");
        };
        devices.push(device);
    }
    let drives: Vec<String> = devices.iter().map(|d| d.text().to_owned()).collect();
    results(folder.path(), &drives, &[("read_ahead_kb", "52"), ("nomerges", "2")]);
    let state = folder.path().join("state");
    let tune = |arguments: &[&str]| {
        let mut prepared = command(folder.path(), arguments);
        finish(prepared.env("FLASHWRIGHT_STATE", &state))
    };
    let before = queues(&devices);
    // Somebody uses one of them.
    let _open = std::fs::File::open(&drives[0]).expect("opens");
    document(folder.path(), "layout", &tune(&["tune", "apply", "results", "--json"]));
    let value = |name: &str, drive: &str| {
        let name =
            Path::new("/sys/class/block").join(drive.trim_start_matches("/dev/")).join("queue").join(name);
        std::fs::read_to_string(name).expect("reads")
    };
    for drive in &drives {
        assert_eq!((value("read_ahead_kb", drive).trim(), value("nomerges", drive).trim()), ("52", "2"));
    }
    let again = tune(&["tune", "apply", "results"]);
    assert_eq!(again.code, 3, "{again:?}");
    assert!(again.err.contains("flashwright tune undo"), "{}", again.err);
    let undone = document(folder.path(), "layout-undone", &tune(&["tune", "undo", "--json"]));
    assert!(!undone["undone"].as_array().expect("a list").is_empty(), "{undone}");
    assert_eq!(queues(&devices), before);
    assert_eq!(tune(&["tune", "undo"]).out, "nothing was applied, nothing is changed\n");
}
