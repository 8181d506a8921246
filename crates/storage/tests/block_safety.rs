//! Block devices that must not be written are not, and those that may be can.

mod lab;

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use lab::loop_device::LoopDevice;
use lab::{Loop, Mounted, run};
use storage::device::{DeviceKind, DeviceSpec, ErrorClass, OpenOptions, open};
use storage::sysfs::Sysfs;

const MIB: u64 = 1 << 20;

fn writing(destroy: &[&Path]) -> OpenOptions {
    let destroy = destroy.iter().map(|path| path.to_path_buf()).collect();
    OpenOptions { destroy, ..OpenOptions::writing() }
}

fn refused(path: &Path, options: &OpenOptions, part: &str) {
    let error = open(&DeviceSpec::from(path), options).expect_err("must be refused");
    assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    assert!(error.to_string().contains(part), "'{error}' does not say '{part}'");
    assert!(error.hint().is_some());
}

fn made(device: &Loop, tool: &str, arguments: &[&str]) -> bool {
    let all: Vec<&str> = arguments.iter().copied().chain([device.text()]).collect();
    match run(tool, &all) {
        Ok(_) => true,
        Err(reason) => {
            eprintln!("SKIPPED: {reason}");
            false
        }
    }
}

#[test]
fn a_blank_device_is_claimed_and_works() {
    let Some(looped) = Loop::new(16 * MIB) else { return };
    let spec = DeviceSpec::from(looped.path.as_path());
    let device = open(&spec, &writing(&[])).unwrap();
    assert_eq!((device.kind(), device.size(), device.is_direct()), (DeviceKind::Block, 16 * MIB, true));
    let data: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
    for offset in [0, 1, 4096, 16 * MIB - 10_000] {
        device.write_at(&data, offset).unwrap();
        let mut back = vec![0; data.len()];
        device.read_at(&mut back, offset).unwrap();
        assert_eq!(back, data);
    }
    device.sync_data().unwrap();
    device.discard(MIB, MIB).unwrap();
    let mut back = vec![1; 4096];
    device.read_at(&mut back, MIB).unwrap();
    assert!(back.iter().all(|b| *b == 0), "the loop device punches a hole");
    refused(&looped.path, &writing(&[&looped.path]), "claimed it exclusively");
    open(&spec, &OpenOptions::reading()).expect("reading needs no claim");
    drop(device);
    open(&spec, &writing(&[])).expect("the claim ends with the device");
}

#[test]
fn a_device_of_4_kib_sectors_works_to_its_last_byte() {
    let Some(looped) = Loop::with(16 * MIB, &["--sector-size", "4096"]) else { return };
    let device = open(&DeviceSpec::from(looped.path.as_path()), &writing(&[])).unwrap();
    assert_eq!(device.geometry().logical_block, 4096);
    let last = device.size() - 3;
    device.write_at(b"end", last).unwrap();
    let mut back = [0; 3];
    device.read_at(&mut back, last).unwrap();
    assert_eq!(&back, b"end");
    drop(device);
    if made(&looped, "mkfs.ext4", &["-q"]) {
        refused(&looped.path, &writing(&[]), "file system");
    }
}

#[test]
fn a_mounted_device_is_refused_with_its_mount_point_whatever_is_given_up() {
    for (tool, arguments) in [("mkfs.ext4", &["-q"][..]), ("mkfs.xfs", &["-q", "-f"])] {
        let Some(looped) = Loop::new(400 * MIB) else { return };
        if !made(&looped, tool, arguments) {
            continue;
        }
        let Some(mount) = Mounted::new(&[looped.text()]) else { return };
        let place = format!("is mounted on {}", mount.point.display());
        refused(&looped.path, &writing(&[]), &place);
        refused(&looped.path, &writing(&[&looped.path]), &place);
        open(&DeviceSpec::from(looped.path.as_path()), &OpenOptions::reading())
            .expect("a mounted device may be read");
    }
}

#[test]
fn each_member_of_a_mounted_btrfs_is_refused() {
    let (Some(a), Some(b)) = (Loop::new(300 * MIB), Loop::new(300 * MIB)) else { return };
    if !made(&b, "mkfs.btrfs", &["-q", "-f", a.text()]) {
        return;
    }
    let option = format!("device={}", b.text());
    let Some(mount) = Mounted::new(&["-o", &option, a.text()]) else { return };
    let place = format!("is mounted on {} (btrfs)", mount.point.display());
    refused(&a.path, &writing(&[&a.path]), &place);
    refused(&b.path, &writing(&[&b.path]), &place);
    let backing = Sysfs::host().backing(&mount.point).unwrap();
    assert_eq!(backing.filesystem.as_deref(), Some("btrfs"));
    let mut names: Vec<_> = backing.block_devices.iter().map(|d| d.dev_path()).collect();
    names.retain(|name| name.starts_with("/dev/loop"));
    names.sort();
    let mut expected = [a.text(), b.text()];
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn a_signature_is_refused_and_lifted_by_any_name_of_that_very_device_only() {
    let (Some(looped), Some(other)) = (Loop::new(64 * MIB), Loop::new(MIB)) else { return };
    if !made(&looped, "mkfs.ext4", &["-q", "-L", "thesis"]) {
        return;
    }
    refused(&looped.path, &writing(&[]), "ext4 file system labelled 'thesis'");
    refused(&looped.path, &writing(&[&other.path]), "ext4");
    // The backing file is not the device.
    refused(&looped.path, &writing(&[&looped.image]), "ext4");
    let alias = looped.directory().join("by-id");
    symlink(&looped.path, &alias).unwrap();
    refused(&alias, &writing(&[]), "ext4");
    drop(open(&DeviceSpec::from(looped.path.as_path()), &writing(&[&alias])).unwrap());
    drop(open(&DeviceSpec::from(alias.as_path()), &writing(&[&looped.path])).unwrap());
}

#[test]
fn swap_in_use_is_refused() {
    let Some(looped) = Loop::new(16 * MIB) else { return };
    if !made(&looped, "mkswap", &[]) || !made(&looped, "swapon", &[]) {
        return;
    }
    let result = std::panic::catch_unwind(|| {
        refused(&looped.path, &writing(&[&looped.path]), "is swapped to");
    });
    run("swapoff", &[looped.text()]).unwrap();
    result.unwrap();
    refused(&looped.path, &writing(&[]), "swap space");
}

#[test]
fn a_partition_in_use_protects_the_disk() {
    let Some(disk) = Loop::new(200 * MIB) else { return };
    // One MBR entry, from 1 MiB for 100 MiB, written by hand: sfdisk need not be there.
    let mut entry = [0u8; 66];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&2048u32.to_le_bytes());
    entry[12..16].copy_from_slice(&204_800u32.to_le_bytes());
    entry[64..].copy_from_slice(&[0x55, 0xaa]);
    File::options().write(true).open(&disk.image).unwrap().write_all_at(&entry, 446).unwrap();
    refused(&disk.path, &writing(&[]), "MBR partition table");
    // The kernel may know no partition tables, but it can always be told of a partition.
    if let Err(reason) = run("addpart", &[disk.text(), "1", "2048", "204800"]) {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let result = std::panic::catch_unwind(|| partition_protects(&disk.path));
    run("delpart", &[disk.text(), "1"]).unwrap();
    result.unwrap();
}

fn partition_protects(disk: &Path) {
    let partition = format!("{}p1", disk.display());
    let facts = Sysfs::host().block_device(partition.trim_start_matches("/dev/")).unwrap();
    assert_eq!((facts.partition, facts.partition_start_bytes), (Some(1), Some(MIB)));
    if let Err(reason) = run("mkfs.ext4", &["-q", &partition]) {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let Some(mount) = Mounted::new(&[&partition]) else { return };
    let place = format!("{partition} is mounted on {}", mount.point.display());
    refused(disk, &writing(&[disk]), &place);
    refused(Path::new(&partition), &writing(&[Path::new(&partition)]), &place);
    let backing = Sysfs::host().backing(&mount.point).unwrap();
    assert_eq!(&backing.block_devices[0].dev_path(), &partition);
    assert_eq!(Path::new(&backing.block_devices[1].dev_path()), disk);
}

#[test]
fn a_device_mapper_holder_is_named() {
    let Some(looped) = Loop::new(16 * MIB) else { return };
    let name = format!("flashwright-test-{}", std::process::id());
    let table = format!("0 32768 linear {} 0", looped.text());
    if let Err(reason) = run("dmsetup", &["create", &name, "--table", &table]) {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        refused(&looped.path, &writing(&[&looped.path]), &name);
    });
    run("dmsetup", &["remove", &name]).unwrap();
    result.unwrap();
}

#[test]
fn what_is_behind_a_loop_device_is_refused() {
    let Some(lower) = Loop::new(16 * MIB) else { return };
    let upper_device = LoopDevice::attach(&lower.path, &[]).unwrap();
    let upper = upper_device.text().to_owned();
    let result = std::panic::catch_unwind(|| {
        refused(&lower.path, &writing(&[&lower.path]), &format!("is what is behind {upper}"));
        refused(&lower.image, &writing(&[&lower.image]), &format!("is what is behind {}", lower.text()));
    });
    let stack = Sysfs::host().stack(upper.trim_start_matches("/dev/"));
    drop(upper_device);
    result.unwrap();
    let names: Vec<_> = stack.iter().map(|d| d.dev_path()).collect();
    assert_eq!(&names[..2], [upper.as_str(), lower.text()]);
}

#[test]
fn a_device_open_elsewhere_is_refused_with_the_process_named() {
    let Some(looped) = Loop::new(16 * MIB) else { return };
    let file = File::options().read(true).write(true).open(&looped.path).unwrap();
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::from(file)).spawn().unwrap();
    let result = std::panic::catch_unwind(|| {
        let who = format!("process {} (", child.id());
        refused(&looped.path, &writing(&[&looped.path]), &who);
    });
    child.kill().unwrap();
    child.wait().unwrap();
    result.unwrap();
    let _exclusive = File::options().read(true).custom_flags(libc::O_EXCL).open(&looped.path).unwrap();
    refused(&looped.path, &writing(&[&looped.path]), "claimed it exclusively");
}

#[test]
fn a_read_only_device_is_not_opened_for_writing() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    File::create(&image).unwrap().set_len(MIB).unwrap();
    let Ok(device) = LoopDevice::attach(&image, &["--read-only"]) else {
        eprintln!("SKIPPED: no loop device");
        return;
    };
    let error = open(&DeviceSpec::from(device.path.as_path()), &writing(&[])).expect_err("must not open");
    assert_eq!(error.class(), ErrorClass::Failed, "{error}");
    assert!(error.to_string().contains(device.text()));
}

#[test]
fn this_machines_root_device_is_refused() {
    let backing = Sysfs::host().backing(Path::new("/")).unwrap();
    let Some(root) = backing.block_devices.first() else {
        eprintln!("SKIPPED: the root file system is on no block device");
        return;
    };
    let path = root.dev_path();
    if !Path::new(&path).exists() {
        eprintln!("SKIPPED: no node {path} here");
        return;
    }
    let drive = backing.drives().next().unwrap().dev_path();
    for device in [Path::new(&path), Path::new(&drive)] {
        refused(device, &writing(&[device]), "is mounted on");
    }
}
