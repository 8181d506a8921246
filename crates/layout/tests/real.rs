//! The same on this machine: loop devices, real mkfs, mounts and schedulers, and a process that is ended by SIGKILL at
//! each of its changes. What this machine or user cannot do is said aloud and left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[path = "../../storage/tests/lab/loop_device.rs"]
mod loop_device;

use layout::held::{Held, Identity};
use layout::system::{Host, Purpose, System};
use layout::{LayoutSpec, Layouts, Permits, Stop, error::ProgramError, undo};
use loop_device::LoopDevice;
use storage::device::{Device, OpenError};
use storage::safety::{Obstacle, Signature};
use storage::sysfs::{DeviceNumber, Sysfs};

const MIB: u64 = 1 << 20;

/// Loop devices over images in a directory of their own, detached when they go out of scope.
struct Loops {
    paths: Vec<PathBuf>,
    devices: Vec<LoopDevice>,
    directory: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program).args(arguments).env("PATH", path).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Has the test that calls it run in a process of its own, if this one runs others: a process that one thread has forked
/// holds the descriptors of all threads until it executes its program, so that a drive that another test has just closed is
/// busy, and a loop device that it has detached is still there.
fn has_run_alone() -> bool {
    const ALONE: &str = "FLASHWRIGHT_CHILD_ALONE";
    let thread = std::thread::current();
    let Some(name) = thread.name().filter(|name| *name != "main" && std::env::var_os(ALONE).is_none()) else {
        return false;
    };
    let program = std::env::current_exe().expect("this program");
    let output =
        Command::new(program).args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().expect("runs");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{name}: {}: {said}", output.status);
    true
}

impl Loops {
    /// None where there are none to be had, and where the test has run in a process of its own instead.
    fn new(count: usize) -> Option<Self> {
        if has_run_alone() {
            return None;
        }
        if run("id", &["-u"]).as_deref() != Ok("0") {
            eprintln!("SKIP layouts on loop devices: not root");
            return None;
        }
        let directory = tempfile::tempdir_in(place()).expect("a directory");
        let mut loops = Self { paths: Vec::new(), devices: Vec::new(), directory };
        for index in 0..count {
            let image = loops.directory.path().join(format!("image-{index}"));
            std::fs::File::create(&image).and_then(|file| file.set_len(400 * MIB)).expect("an image");
            match LoopDevice::attach(&image, &[]) {
                Ok(device) => {
                    loops.paths.push(device.path.clone());
                    loops.devices.push(device);
                }
                Err(reason) => {
                    eprintln!("SKIP layouts on loop devices: {reason}");
                    return None;
                }
            }
        }
        Some(loops)
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn spec(&self, head: &str) -> String {
        let paths: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        format!("{head}:{}", paths.join(","))
    }

    /// All settings of all queues, tunables of the schedulers included.
    fn settings(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        for path in &self.paths {
            let queue = Path::new("/sys/class/block").join(path.file_name().expect("a name")).join("queue");
            for directory in [queue.clone(), queue.join("iosched")] {
                for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                    // Not a setting: the kernel makes it 0 when a loop device's file system takes no such request, as tmpfs.
                    if entry.file_name() == "write_zeroes_max_bytes" {
                        continue;
                    }
                    if let Ok(text) = std::fs::read_to_string(entry.path()) {
                        all.insert(entry.path(), text);
                    }
                }
            }
        }
        all
    }

    /// Nothing is mounted, marked or left lying about.
    fn assert_bare(&self, before: &BTreeMap<PathBuf, String>, when: &str) {
        assert_eq!(&self.settings(), before, "{when}");
        for path in &self.paths {
            let found: Vec<Signature> = signatures(path);
            assert_eq!(found, [], "{when}: {}", path.display());
            let number = Sysfs::host().number(path.file_name().and_then(|n| n.to_str()).expect("a name"));
            let users = storage::safety::users(&Sysfs::host(), number.expect("a number")).expect("users");
            let mounted: Vec<_> =
                users.iter().filter(|user| matches!(user, Obstacle::Mounted { .. })).collect();
            assert!(mounted.is_empty(), "{when}: {mounted:?}");
        }
        let left: Vec<_> =
            std::fs::read_dir(self.state()).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
        assert!(left.iter().all(|name| name == "layout.lock"), "{when}: {left:?}");
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        // A test that failed may have left a layout standing.
        let _ = undo(&self.state(), &Stop::default());
    }
}

/// Memory if it has room for what the tests of this file write at once: processes are killed here and no power fails, so that all
/// that a disk adds is its time.
fn place() -> &'static str {
    let free = run("stat", &["--file-system", "--format=%T %a %S", "/dev/shm"]).unwrap_or_default();
    let numbers: Option<Vec<u64>> =
        free.strip_prefix("tmpfs ").and_then(|n| n.split(' ').map(|n| n.parse().ok()).collect());
    let has_room = numbers.is_some_and(|numbers| numbers.iter().product::<u64>() > 2048 * MIB);
    if has_room { "/dev/shm" } else { env!("CARGO_TARGET_TMPDIR") }
}

fn signatures(path: &Path) -> Vec<Signature> {
    let file = File::open(path).expect("opens");
    storage::safety::signatures(&file, 400 * MIB).expect("readable")
}

/// This machine, under a process that kills itself before or after one of its changes.
#[derive(Debug)]
struct Mortal {
    host: Host,
    left: u64,
    after: bool,
    /// The node in `/dev` that another device takes while mount(8) runs, and that device.
    replaced: Option<(PathBuf, PathBuf)>,
}

impl Mortal {
    fn change<T>(&mut self, change: impl FnOnce(&mut Host) -> T) -> T {
        self.left -= 1;
        if self.left == 0 && !self.after {
            die();
        }
        let came = change(&mut self.host);
        if self.left == 0 {
            die();
        }
        came
    }
}

/// SIGKILL, from which nothing can be cleaned up.
fn die() -> ! {
    let _ = run("kill", &["-KILL", &std::process::id().to_string()]);
    loop {
        std::thread::park();
    }
}

impl System for Mortal {
    fn sysfs(&self) -> Sysfs {
        self.host.sysfs()
    }
    fn find_program(&self, name: &str) -> Option<PathBuf> {
        self.host.find_program(name)
    }
    fn check_free(
        &self,
        drive: &Path,
        purpose: Purpose,
        destroy: &[PathBuf],
    ) -> Result<Option<Arc<dyn Device>>, OpenError> {
        self.host.check_free(drive, purpose, destroy)
    }
    fn open_drive(&self, node: &Path) -> io::Result<File> {
        self.host.open_drive(node)
    }
    fn identity(&self, drive: &File) -> io::Result<Identity> {
        self.host.identity(drive)
    }
    fn users(&self, numbers: &[DeviceNumber]) -> io::Result<Vec<Vec<Obstacle>>> {
        self.host.users(numbers)
    }
    fn is_managed(&self, interrupt: u32) -> bool {
        self.host.is_managed(interrupt)
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.host.free_bytes(directory)
    }
    fn new_uuid(&self) -> io::Result<String> {
        self.host.new_uuid()
    }
    fn append(&mut self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(|host| host.append(file, bytes))
    }
    fn remove_file(&mut self, file: &Path) -> io::Result<()> {
        self.change(|host| host.remove_file(file))
    }
    fn make_directory(&mut self, directory: &Path) -> io::Result<()> {
        self.change(|host| host.make_directory(directory))
    }
    fn remove_directory(&mut self, directory: &Path) -> io::Result<()> {
        self.change(|host| host.remove_directory(directory))
    }
    fn write_setting(&mut self, path: &Path, value: &str) -> io::Result<()> {
        self.change(|host| host.write_setting(path, value))
    }
    fn zero(&mut self, device: &Held, ranges: &[Range<u64>]) -> io::Result<()> {
        self.change(|host| host.zero(device, ranges))
    }
    fn run(&mut self, program: &str, arguments: &[String]) -> Result<String, ProgramError> {
        let mut arguments = arguments.to_vec();
        let replaced = self.replaced.take_if(|_| program == "mount");
        if let Some((node, other)) = &replaced {
            std::fs::rename(node, node.with_extension("saved")).expect("renames");
            let (_, minor) = other.to_str().expect("text").split_once("loop").expect("a loop device");
            run("mknod", &[node.to_str().expect("text"), "b", "7", minor]).expect("makes a node");
            // As if the node was replaced after mount(8) had resolved the descriptor to its name.
            let at = arguments.len() - 2;
            arguments[at] = node.display().to_string();
        }
        let ran = self.change(|host| host.run(program, &arguments));
        if let Some((node, _)) = replaced {
            std::fs::rename(node.with_extension("saved"), node).expect("renames back");
        }
        ran
    }
    fn keep_lock(&mut self, lock: std::fs::File) {
        self.host.keep_lock(lock);
    }
    fn pause(&self) {
        self.host.pause();
    }
}

/// What the killed process is told, for it is this test program again.
const ORDERS: &str = "FLASHWRIGHT_CHILD_LAYOUT";

/// Not a test: the process that is killed. It does nothing unless it is told to.
#[test]
fn the_process_that_is_killed() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let mut words = orders.splitn(4, ' ');
    let mut next = || words.next().expect("four orders");
    let left = next().parse().expect("a number");
    let after = next() == "after";
    let state = PathBuf::from(next());
    let system = Mortal { host: Host::default(), left, after, replaced: None };
    let mut layouts =
        Layouts::open_on(Box::new(system), &state, Permits::default(), Stop::default()).expect("opens");
    for spec in next().split(';') {
        layouts.switch(&LayoutSpec::parse(spec).expect(spec)).expect(spec);
    }
    layouts.down().expect("down");
}

/// Starts that process; whether it came to its end.
fn child(state: &Path, left: u64, after: bool, specs: &[String]) -> bool {
    let when = if after { "after" } else { "before" };
    let orders = format!("{left} {when} {} {}", state.display(), specs.join(";"));
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_process_that_is_killed", "--test-threads=1"])
        .env(ORDERS, orders)
        .output()
        .expect("runs");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    use std::os::unix::process::ExitStatusExt;
    assert!(output.status.success() || output.status.signal() == Some(9), "{said}");
    output.status.success()
}

/// Whether this machine can have the layout.
fn is_to_be_had(spec: &str) -> bool {
    let spec = LayoutSpec::parse(spec).expect(spec);
    match layout::survey(&spec.drives).check_spec(&spec) {
        Ok(()) => true,
        Err(reason) => {
            eprintln!("SKIP {spec}: {reason}");
            false
        }
    }
}

/// All drifts but one: other tests on this machine make file systems as well, and the kernel's thread that
/// initialises ext4 lazily serves all of them.
fn drifts(layouts: &Layouts) -> Vec<String> {
    let all = layouts.check().expect("checks");
    let ours = all.iter().filter(|drift| !drift.what.contains("lazy initialisation"));
    ours.map(ToString::to_string).collect()
}

/// Kills the process at each of its changes in turn until it lives to its end.
fn killed_at_each_change(heads: &[&str]) {
    let Some(loops) = Loops::new(2) else { return };
    let specs: Vec<String> =
        heads.iter().map(|head| loops.spec(head)).filter(|spec| is_to_be_had(spec)).collect();
    if specs.is_empty() {
        return;
    }
    let before = loops.settings();
    for after in [false, true] {
        let mut at = 1;
        while !child(&loops.state(), at, after, &specs) {
            let when = format!("{at}, {}", if after { "after" } else { "before" });
            undo(&loops.state(), &Stop::default()).unwrap_or_else(|error| panic!("{when}: {error}"));
            loops.assert_bare(&before, &when);
            at += 1;
        }
        assert!(at > 5, "only {at} changes were tried");
        loops.assert_bare(&before, "the end");
    }
}

#[test]
fn sigkill_at_each_change_of_an_xfs_is_undone() {
    killed_at_each_change(&[
        "separate(filesystem=xfs,width=1,scheduler=mq-deadline,nr_requests=64,read_ahead_kb=0,nomerges=2)",
    ]);
}

#[test]
fn sigkill_at_each_change_of_a_btrfs_over_two_drives_is_undone() {
    killed_at_each_change(&["btrfs-raid0(scheduler=bfq,wbt_lat_usec=0,read_ahead_kb=64)"]);
}

#[test]
fn sigkill_at_each_change_from_ext4_to_f2fs_to_raw_is_undone() {
    killed_at_each_change(&[
        "separate(filesystem=ext4,width=1,scheduler=kyber)",
        "separate(filesystem=f2fs,width=1,mount_options=noatime)",
        "stripe(chunk=64k,scheduler=mq-deadline,rq_affinity=2)",
    ]);
}

#[test]
fn sigkill_at_each_change_of_an_array_or_a_volume_is_undone() {
    killed_at_each_change(&[
        "md-raid0(chunk=64k,filesystem=xfs,scheduler=none)",
        "lvm-stripe(chunk=64k,filesystem=ext4)",
    ]);
}

#[test]
fn each_file_system_is_made_mounted_checked_and_taken_down() {
    let Some(loops) = Loops::new(2) else { return };
    let before = loops.settings();
    let mut layouts = Layouts::open(&loops.state(), Permits::default(), Stop::default()).expect("opens");
    for head in [
        "separate(filesystem=xfs,mount_options=noatime,logbsize=64k)",
        "separate(filesystem=xfs,scheduler=kyber,nr_requests=32)",
        "stripe(chunk=64k,filesystem=ext4)",
        "separate(width=1,filesystem=btrfs)",
        "btrfs-raid0(read_ahead_kb=64)",
        "separate(filesystem=f2fs)",
        "separate(scheduler=bfq)",
    ] {
        let text = loops.spec(head);
        if !is_to_be_had(&text) {
            continue;
        }
        let spec = LayoutSpec::parse(&text).expect("a layout");
        let built = layouts.switch(&spec).unwrap_or_else(|error| panic!("{spec}: {error:?}"));
        assert_eq!(drifts(&layouts), [""; 0], "{spec}");
        for (name, value) in &spec.queue {
            assert_eq!(built.facts.get(name), Some(value), "{spec}");
        }
        assert_eq!(built.files.len(), built.mounts.len());
        for file in &built.files {
            std::fs::write(file, b"measured").expect("a file on it");
        }
        // The same again is nothing to do: what the caller made is still there.
        let again = layouts.switch(&spec).expect("the same again");
        assert_eq!((again.mounts, &again.files), (built.mounts.clone(), &built.files));
        assert!(built.files.iter().all(|file| file.exists()), "{spec}");
    }
    layouts.down().expect("down");
    loops.assert_bare(&before, "down");
}

#[test]
fn a_setting_changed_by_somebody_else_and_a_vanished_mount_are_drifts() {
    let Some(loops) = Loops::new(1) else { return };
    let before = loops.settings();
    let text = loops.spec("single(filesystem=ext4,scheduler=mq-deadline)");
    if !is_to_be_had(&text) {
        return;
    }
    let mut layouts = Layouts::open(&loops.state(), Permits::default(), Stop::default()).expect("opens");
    let built = layouts.switch(&LayoutSpec::parse(&text).expect("a layout")).expect("made");
    assert_eq!(drifts(&layouts), [""; 0]);
    let name = loops.paths[0].file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let queue = Path::new("/sys/class/block").join(&name).join("queue");
    std::fs::write(queue.join("scheduler"), "none").expect("writes");
    std::fs::write(queue.join("nomerges"), "2").expect("writes");
    std::fs::write(queue.join("iostats"), "0").expect("writes");
    run("umount", &[built.mounts[0].to_str().expect("text")]).expect("unmounts");
    let drifts = drifts(&layouts);
    for part in ["scheduler", "nomerges", "iostats", "mount on"] {
        assert!(drifts.iter().any(|drift| drift.contains(part)), "{part}: {drifts:?}");
    }
    std::fs::write(queue.join("nomerges"), "0").expect("writes");
    std::fs::write(queue.join("iostats"), "1").expect("writes");
    drop(layouts);
    loops.assert_bare(&before, "the end of it undoes all");
}

#[test]
fn a_drive_in_use_is_refused_with_its_reason_and_left_alone() {
    use layout::ErrorClass;
    let Some(loops) = Loops::new(2) else { return };
    let before = loops.settings();
    let text = loops.spec("separate(filesystem=xfs,scheduler=kyber)");
    if !is_to_be_had(&text) {
        return;
    }
    let second = loops.paths[1].to_str().expect("text");
    run("mkfs.ext4", &["-q", "-L", "thesis", second]).expect("a file system of somebody");
    let attempt = |destroy: &[&Path]| {
        let permits = Permits { destroy: destroy.iter().map(|path| path.to_path_buf()).collect() };
        let mut layouts = Layouts::open(&loops.state(), permits, Stop::default()).expect("opens");
        let error = layouts.switch(&LayoutSpec::parse(&text).expect("a layout")).expect_err("refused");
        assert_eq!(error.class(), ErrorClass::Refused, "{error}");
        error.to_string()
    };
    assert!(attempt(&[]).contains("thesis"));
    assert!(attempt(&[&loops.paths[0]]).contains("thesis"), "the other drive was given up, not this one");
    let point = loops.directory.path().join("mnt");
    std::fs::create_dir(&point).expect("a directory");
    run("mount", &[second, point.to_str().expect("text")]).expect("mounts");
    let said = std::panic::catch_unwind(|| attempt(&[&loops.paths[0], &loops.paths[1]]));
    run("umount", &[point.to_str().expect("text")]).expect("unmounts");
    assert!(said.expect("no panic").contains("is mounted on"), "--destroy does not lift that");
    let mark = signatures(&loops.paths[1]);
    assert_eq!(mark[0].label.as_deref(), Some("thesis"), "and it was left alone");
    assert_eq!(loops.settings(), before);
    assert_eq!(signatures(&loops.paths[0]), []);
}

#[test]
fn a_loop_device_that_is_replaced_while_another_is_made_is_not_written() {
    let Some(loops) = Loops::new(2) else { return };
    let text = loops.spec("separate(filesystem=xfs)");
    if !is_to_be_had(&text) {
        return;
    }
    let intruder = loops.directory.path().join("intruder");
    std::fs::File::create(&intruder).and_then(|file| file.set_len(400 * MIB)).expect("an image");
    let intruder = intruder.to_str().expect("text").to_owned();
    run("mkfs.ext4", &["-q", "-F", "-L", "thesis", &intruder]).expect("a file system of somebody");
    let second = loops.paths[1].clone();
    let directory = loops.directory.path().to_owned();
    let mut layouts = Layouts::open(&loops.state(), Permits::default(), Stop::default()).expect("opens");
    let (image, device) = (intruder.clone(), second.clone());
    let tried = Arc::new(AtomicBool::new(false));
    let tries = Arc::clone(&tried);
    layouts.tell(move |words| {
        // The first drive has its file system; the second is next. It is held open, so it stays what it is.
        if words.starts_with("mount") && !tries.swap(true, Ordering::Relaxed) {
            assert!(loop_device::is_over(&device, &directory), "it is attached");
            loop_device::detach(&device, &directory).expect("asks for it");
            let _ = run("losetup", &[device.to_str().expect("text"), &image]);
        }
    });
    let before = std::fs::read(&intruder).expect("reads");
    let made = layouts.switch(&LayoutSpec::parse(&text).expect("a layout"));
    assert!(tried.load(Ordering::Relaxed), "nothing was replaced: {made:?}");
    drop(layouts);
    // If the image was attached in its place, it is no more.
    loop_device::detach(&second, loops.directory.path()).expect("detaches");
    assert!(std::fs::read(&intruder).expect("reads") == before, "{made:?}");
}

#[test]
fn what_comes_onto_a_drive_after_its_check_is_not_wiped() {
    let Some(loops) = Loops::new(2) else { return };
    let text = loops.spec("separate(filesystem=xfs)");
    if !is_to_be_had(&text) {
        return;
    }
    let mut layouts = Layouts::open(&loops.state(), Permits::default(), Stop::default()).expect("opens");
    let second = loops.paths[1].clone();
    layouts.tell(move |words| {
        if words.starts_with("mount") {
            // As dd does it, which asks nobody.
            use std::os::unix::fs::FileExt;
            let drive = File::options().write(true).open(&second).expect("opens");
            drive.write_all_at(b"XFSB", 0).and_then(|()| drive.sync_all()).expect("writes");
        }
    });
    let error = layouts.switch(&LayoutSpec::parse(&text).expect("a layout")).expect_err("refused");
    assert!(matches!(error, layout::LayoutError::Appeared { .. }), "{error}");
    drop(layouts);
    let found = signatures(&loops.paths[1]);
    assert!(found[0].kind.to_lowercase().contains("xfs"), "{found:?}");
}

#[test]
fn settings_of_a_loop_device_from_two_state_directories_are_undone_newest_first() {
    let Some(loops) = Loops::new(1) else { return };
    let before = loops.settings();
    let other = loops.directory.path().join("other");
    let up = |state: &Path, head: &str| {
        let spec = LayoutSpec::parse(&loops.spec(head)).expect("a layout");
        let mut layouts = Layouts::open(state, Permits::default(), Stop::default()).expect("opens");
        layouts.switch(&spec).expect("made");
        layouts.leave().expect("stays");
    };
    up(&loops.state(), "single(scheduler=mq-deadline,nomerges=2)");
    let between = loops.settings();
    up(&other, "single(scheduler=none,nomerges=1)");
    let error = undo(&loops.state(), &Stop::default()).expect_err("a newer one stands");
    assert!(matches!(error, layout::LayoutError::Newer { .. }), "{error}");
    undo(&other, &Stop::default()).expect("the newest");
    assert_eq!(loops.settings(), between);
    undo(&loops.state(), &Stop::default()).expect("the other");
    loops.assert_bare(&before, "both are undone");
}

#[test]
fn a_node_that_is_replaced_below_mount_is_noticed_and_the_other_device_unmounted() {
    let Some(loops) = Loops::new(2) else { return };
    let [node, other] = [&loops.paths[0], &loops.paths[1]];
    let text = format!("single(filesystem=xfs):{}", node.display());
    if !is_to_be_had(&text) {
        return;
    }
    run("mkfs.xfs", &["-q", "-L", "thesis", other.to_str().expect("text")])
        .expect("a file system of somebody");
    let before = loops.settings();
    let system = Mortal {
        host: Host::default(),
        left: u64::MAX,
        after: false,
        replaced: Some((node.clone(), other.clone())),
    };
    let mut layouts = Layouts::open_on(Box::new(system), &loops.state(), Permits::default(), Stop::default())
        .expect("opens");
    let made = layouts.switch(&LayoutSpec::parse(&text).expect("a layout"));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("reads");
    let error = made.expect_err("another device was mounted");
    assert!(matches!(error, layout::LayoutError::Replaced { .. }), "{error}");
    assert!(!mounts.contains(loops.state().to_str().expect("text")), "{mounts}");
    layouts.down().expect("down");
    assert_eq!(signatures(other)[0].label.as_deref(), Some("thesis"));
    run("wipefs", &["-a", other.to_str().expect("text")]).expect("wipes");
    loops.assert_bare(&before, "down");
}
