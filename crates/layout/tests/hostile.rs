//! Journals of somebody else, and entries that no layout writes: nothing is done that they say.

mod world;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use layout::{ErrorClass, LayoutSpec, Layouts, Permits, Stop, undo_on};
use world::World;

/// A journal of these changes, in the boot of the world.
fn write(path: &Path, changes: &[String]) {
    let head = r#"{"head":{"format":"flashwright.layout-journal/1","process":1,"boot":"first"}}"#.to_owned();
    let numbered =
        |(at, change): (usize, &String)| format!(r#"{{"change":{{"number":{at},"change":{change}}}}}"#);
    let lines = [head].into_iter().chain(changes.iter().enumerate().map(numbered));
    let text: String =
        lines.map(|json| format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))).collect();
    fs::write(path, text).expect("writes");
}

fn settings(file: &str) -> String {
    format!(r#"{{"settings":{{"of":{{"this_boot":{{"what":"x"}}}},"old":[["{file}","evil"]]}}}}"#)
}

#[test]
fn entries_that_name_what_no_layout_changes_are_not_carried_out() {
    let world = World::new();
    let victim = world.at("etc/shadow");
    world.file("etc/shadow", "kept\n");
    world.file("sys/kernel/core_pattern", "kept\n");
    symlink(&victim, world.at("sys/block/nvme0n1/queue/link")).expect("a link");
    let drive = |file: &str| {
        let id = r#"{"name":"nvme0n1","serial":"SN0","size_bytes":73728}"#;
        format!(r#"{{"settings":{{"of":{{"drive":{id}}},"old":[["{file}","evil"]]}}}}"#)
    };
    let filesystem = |uuid: &str| {
        let id = r#"{"name":"nvme0n1","serial":"SN0","size_bytes":73728}"#;
        format!(r#"{{"filesystem":{{"kind":"xfs","uuid":"{uuid}","on":[{{"drive":{id}}}]}}}}"#)
    };
    let members = r#"[{"name":"nvme0n1","serial":"SN0","size_bytes":73728}]"#;
    let mut disk = fs::read(world.at("dev/nvme0n1")).expect("reads");
    disk[..4].copy_from_slice(b"XFSB");
    fs::write(world.at("dev/nvme0n1"), &disk).expect("writes");
    let mounts = world.text("proc/self/mountinfo") + "9 1 8:1 / /home rw - ext4 /dev/sda rw\n";
    world.file("proc/self/mountinfo", &mounts);
    let before = world.everything();
    for change in [
        settings("/etc/shadow"),
        settings("/sys/kernel/core_pattern"),
        settings("/proc/irq/10/../../../etc/shadow"),
        settings("/sys/block/nvme0n1/queue/../../../../../etc/shadow"),
        settings("/sys/block/nvme0n1/queue/link"),
        settings("etc/shadow"),
        drive("/etc/shadow"),
        drive("../../../../etc/shadow"),
        drive("queue/../../../../../etc/shadow"),
        drive("serial"),
        filesystem(""),
        filesystem("00"),
        r#"{"mount":{"point":"/home"}}"#.to_owned(),
        r#"{"mount":{"point":"STATE/mount-0/../../home"}}"#
            .replace("STATE", world.state.to_str().expect("text")),
        format!(r#"{{"volume":{{"group":"root_vg","uuids":["{}"],"members":{members}}}}}"#, "0".repeat(32)),
        format!(r#"{{"array":{{"uuid":"","members":{members}}}}}"#),
    ] {
        let journal = world.state.join("layout.journal");
        write(&journal, std::slice::from_ref(&change));
        let error = undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, false);
        let error = error.expect_err(&change).to_string();
        assert!(error.contains("which no layout changes"), "{change}: {error}");
        fs::remove_file(&journal).expect("removes");
        assert_eq!(world::difference(&before, &world.everything()), [""; 0], "{change}");
    }
}

#[test]
fn settings_of_an_array_or_interrupts_are_not_set_back_on_what_has_the_name_or_number_now() {
    let world = World::new();
    let other = world.at("other");
    fs::create_dir(&other).expect("makes");
    let text = "md-raid0(chunk=64k,read_ahead_kb=4096):/dev/nvme2n1,/dev/nvme3n1";
    let up = |state: &Path, text: &str| {
        let opened = Layouts::open_on(world.process(None), state, Permits::default(), Stop::default());
        let mut layouts = opened.expect("opens");
        layouts.switch(&LayoutSpec::parse(text).expect(text)).expect(text);
        layouts.leave().expect("stays");
    };
    let undo = |state: &Path| {
        undo_on(world.process(None).as_mut(), state, &Stop::default(), &mut |_| {}, false).expect("undone")
    };
    up(&world.state, text);
    // Another array has the name: the kernel has counted another disk.
    let sequence = world.at("sys/block/md127/diskseq");
    fs::write(&sequence, "4711\n").expect("writes");
    fs::write(world.at("sys/block/md127/queue/read_ahead_kb"), "77\n").expect("writes");
    let undone = std::cell::Cell::new(false);
    let _ = undo_on(
        world.process(None).as_mut(),
        &world.state,
        &Stop::default(),
        &mut |words| {
            // Settings come first, and then the array itself, with its directory.
            if words.contains("md array") {
                undone.set(true);
                assert_eq!(world.text("sys/block/md127/queue/read_ahead_kb"), "77\n");
            }
        },
        false,
    );
    assert!(undone.get());

    // Another drive has the number of an interrupt.
    up(&other, "single(irq_cpus=2):/dev/nvme1n1");
    assert_eq!(world.text("proc/irq/20/smp_affinity_list"), "2\n");
    fs::remove_file(world.at("sys/devices/pci1/msi_irqs/20")).expect("removes");
    undo(&other);
    assert_eq!(world.text("proc/irq/20/smp_affinity_list"), "2\n", "another's by now");
    assert_eq!(world.text("proc/irq/21/smp_affinity_list"), "0-3\n");
}

#[test]
fn a_journal_that_others_can_write_is_not_believed() {
    let world = World::new();
    let journal = world.state.join("layout.journal");
    let nomerges = || settings("/sys/block/nvme0n1/queue/nomerges").replace("evil", "2");
    let refused = |why: &str| {
        let error = undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, true)
            .expect_err(why);
        assert_eq!(error.class(), ErrorClass::Refused, "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(world.text("sys/block/nvme0n1/queue/nomerges"), "0\n", "{why}");
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("sets");
    mode(&world.state, 0o755);
    write(&journal, &[nomerges()]);
    mode(&journal, 0o666);
    refused("layout.journal: others may write to it");
    mode(&journal, 0o644);
    mode(&world.state, 0o777);
    refused("state: others may write to it");
    mode(&world.state, 0o755);
    let elsewhere = world.at("elsewhere");
    fs::rename(&journal, &elsewhere).expect("renames");
    symlink(&elsewhere, &journal).expect("a link");
    refused("is a symbolic link");
    fs::remove_file(&journal).expect("removes");
    fs::rename(&elsewhere, &journal).expect("renames");
    if chown(&journal, Some(65_534), None).is_ok() {
        refused("belongs to uid 65534");
        chown(&journal, Some(0), None).expect("gives back");
        chown(&world.state, Some(65_534), None).expect("gives away");
        refused("belongs to uid 65534");
        chown(&world.state, Some(0), None).expect("gives back");
    } else {
        println!("SKIP a journal of another user: it takes root to make one");
    }
    undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, false)
        .expect("one's own");
    assert_eq!(world.text("sys/block/nvme0n1/queue/nomerges"), "2\n");
}
