//! Opening devices: what is handed out works as it says, what is refused is refused with a reason.

mod lab;

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use lab::{Loop, Mounted, run};
use storage::device::{
    Device, DeviceKind, DeviceSpec, ErrorClass, OpenError, OpenOptions, WriteSync, check_written, open,
};

const MIB: u64 = 1 << 20;

fn at(path: &Path) -> DeviceSpec {
    DeviceSpec::from(path)
}

fn sized(path: &Path, size: u64) -> DeviceSpec {
    DeviceSpec::File { path: path.to_owned(), size: Some(size) }
}

fn buffered() -> OpenOptions {
    OpenOptions { direct: false, ..OpenOptions::writing() }
}

fn refused(spec: &DeviceSpec, options: &OpenOptions, class: ErrorClass, part: &str) -> OpenError {
    let error = open(spec, options).err().unwrap_or_else(|| panic!("{spec} must not open"));
    assert_eq!(error.class(), class, "{error}");
    assert!(error.to_string().contains(part), "'{error}' does not say '{part}'");
    error
}

/// Bytes go in and come out at any offset, bounds hold, and the kernel is not asked for what it refuses.
fn behaves(device: &Arc<dyn Device>) {
    let data: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
    for offset in [0, 1, 511, 512, 4095, 4096, device.size() - data.len() as u64] {
        device.write_at(&data, offset).unwrap();
        let mut back = vec![0; data.len()];
        device.read_at(&mut back, offset).unwrap();
        assert_eq!(back, data, "{} at {offset}", device.spec());
    }
    // A write of a part of a block leaves its neighbours alone.
    device.write_at(&[1; 8192], 0).unwrap();
    device.write_at(&[2; 10], 4091).unwrap();
    let mut back = vec![0; 8192];
    device.read_at(&mut back, 0).unwrap();
    assert!(back[..4091].iter().chain(&back[4101..]).all(|b| *b == 1));
    assert!(back[4091..4101].iter().all(|b| *b == 2));
    device.sync_data().unwrap();
    let mut one = [0; 1];
    assert!(device.read_at(&mut one, device.size()).is_err());
    assert!(device.read_at(&mut one, u64::MAX).is_err());
    assert!(device.write_at(&one, device.size()).is_err());
    assert!(device.discard(device.size() - 4096, 8192).is_err());
    device.discard(0, 0).unwrap();
}

#[test]
fn a_scratch_file_is_made_with_its_space_and_can_be_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scratch");
    for options in [OpenOptions::writing(), buffered(), OpenOptions::writing()] {
        let device = open(&sized(&path, 4 * MIB), &options).unwrap();
        assert_eq!((device.kind(), device.size()), (DeviceKind::File, 4 * MIB));
        assert_eq!(device.is_direct(), options.direct);
        assert!(device.is_writable());
        behaves(&device);
        device.discard(MIB, MIB).unwrap();
        let mut back = vec![1; 4096];
        device.read_at(&mut back, MIB).unwrap();
        assert!(back.iter().all(|b| *b == 0), "a discarded range of a file reads as zeros");
    }
    use std::os::unix::fs::MetadataExt;
    assert!(fs::metadata(&path).unwrap().blocks() >= 2 * MIB / 512);
}

#[test]
fn memory_behaves_as_a_device() {
    let device = open(&DeviceSpec::Memory { size: 8 * MIB }, &OpenOptions::writing()).unwrap();
    assert_eq!((device.kind(), device.size(), device.is_direct()), (DeviceKind::Memory, 8 * MIB, false));
    behaves(&device);
    assert!(device.memory().is_some());
    let asleep = open(&DeviceSpec::Memory { size: MIB }, &OpenOptions::reading()).unwrap();
    assert!(asleep.write_at(&[1], 0).is_err());
    assert!(asleep.discard(0, 4096).is_err());
}

#[test]
fn memory_that_is_not_there_is_refused_before_it_is_taken() {
    let spec = DeviceSpec::Memory { size: 1 << 50 };
    let error = refused(&spec, &OpenOptions::writing(), ErrorClass::Failed, "mem:1p");
    assert!(error.hint().is_some());
}

#[test]
fn synchronous_writes_are_a_flag_of_the_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    for (sync, expected) in
        [(WriteSync::None, 0), (WriteSync::Data, libc::O_DSYNC), (WriteSync::File, libc::O_SYNC)]
    {
        let device = open(&sized(&path, MIB), &OpenOptions { sync, ..buffered() }).unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.fd().as_raw_fd())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
        assert_eq!(flags & libc::O_SYNC, expected, "{sync:?}");
    }
}

#[test]
fn somebodys_file_is_not_written_unless_it_is_given_up_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("thesis");
    let words = b"It was the best of times. ".repeat(400);
    fs::write(&path, &words).unwrap();
    let other = directory.path().join("other");
    fs::write(&other, "x").unwrap();
    for destroy in [vec![], vec![other], vec!["/no/such/file".into()]] {
        let options = OpenOptions { destroy, ..buffered() };
        let error = refused(&at(&path), &options, ErrorClass::Refused, "thesis");
        assert!(error.hint().unwrap().contains("--destroy"));
        refused(&sized(&path, 4096), &options, ErrorClass::Refused, "thesis");
    }
    assert_eq!(fs::read(&path).unwrap(), words);
    let alias = directory.path().join("alias");
    symlink(&path, &alias).unwrap();
    refused(&at(&alias), &buffered(), ErrorClass::Refused, "alias");
    let options = OpenOptions { destroy: vec![alias], ..buffered() };
    open(&at(&path), &options).unwrap();
}

#[test]
fn a_copy_of_a_scratch_file_is_no_scratch_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scratch");
    let scratch = open(&sized(&path, MIB), &buffered()).unwrap();
    // Contents that would be somebody's, were it not for the mark.
    scratch.write_at(&b"words ".repeat(1000), 0).unwrap();
    drop(scratch);
    let copy = directory.path().join("copy");
    if let Err(reason) = run("cp", &["-a", path.to_str().unwrap(), copy.to_str().unwrap()]) {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    refused(&at(&copy), &buffered(), ErrorClass::Refused, "copy");
    drop(open(&at(&path), &buffered()).unwrap());
}

#[test]
fn what_is_no_file_or_block_device_is_named_for_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    run("mkfifo", &[fifo.to_str().unwrap()]).unwrap();
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, what) in [
        (directory.path(), "a directory"),
        (fifo.as_path(), "a FIFO"),
        (socket.as_path(), "a socket"),
        (Path::new("/dev/null"), "a character device"),
    ] {
        for options in [OpenOptions::reading(), OpenOptions::writing()] {
            let error = refused(&at(path), &options, ErrorClass::Invalid, what);
            assert!(error.hint().is_some());
        }
    }
}

#[test]
fn missing_and_empty_files_are_wrong_requests() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    for options in [OpenOptions::reading(), OpenOptions::writing()] {
        refused(&at(&missing), &options, ErrorClass::Invalid, "missing: no such file");
    }
    // To make a file for reading only would be to make one that cannot be read.
    refused(&sized(&missing, MIB), &OpenOptions::reading(), ErrorClass::Invalid, "no such file");
    assert!(!missing.exists());
    let nowhere = directory.path().join("nowhere/file");
    refused(&sized(&nowhere, MIB), &OpenOptions::writing(), ErrorClass::Invalid, "nowhere");
    let empty = directory.path().join("empty");
    fs::write(&empty, "").unwrap();
    refused(&at(&empty), &buffered(), ErrorClass::Invalid, "has 0 bytes");
    let short = directory.path().join("short");
    fs::write(&short, "abc").unwrap();
    let options = OpenOptions::reading();
    match open(&at(&short), &options) {
        Err(error) => assert_eq!(error.class(), ErrorClass::Invalid, "{error}"),
        Ok(_) => panic!("three bytes are no block"),
    }
}

#[test]
fn a_dangling_link_is_not_followed_to_make_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("target");
    let link = directory.path().join("link");
    symlink(&target, &link).unwrap();
    refused(&sized(&link, MIB), &OpenOptions::writing(), ErrorClass::Invalid, "link");
    assert!(!target.exists());
}

#[test]
fn a_size_limits_an_existing_file_and_must_not_exceed_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    fs::write(&path, vec![7; 3 * MIB as usize]).unwrap();
    let device = open(&sized(&path, MIB), &OpenOptions::reading()).unwrap();
    assert_eq!(device.size(), MIB);
    assert!(device.read_at(&mut [0; 16], MIB).is_err());
    assert!(device.write_at(&[0; 512], 0).is_err(), "opened for reading");
    refused(&sized(&path, 4 * MIB), &OpenOptions::reading(), ErrorClass::Invalid, "size=4m");
}

#[test]
fn sparse_and_reserved_files_are_refused_for_reading_with_the_bytes_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(4 * MIB).unwrap();
    file.write_all_at(&vec![7; MIB as usize], 0).unwrap();
    let error = refused(&at(&path), &OpenOptions::reading(), ErrorClass::Refused, "3 MiB (holes)");
    assert!(error.hint().unwrap().contains("--allow-unwritten"));
    open(&at(&path), &OpenOptions { allow_unwritten: true, ..OpenOptions::reading() }).unwrap();
    open(&at(&path), &OpenOptions { region: Some(0..MIB), ..OpenOptions::reading() }).unwrap();

    let fresh = directory.path().join("fresh");
    let device = open(&sized(&fresh, 2 * MIB), &buffered()).unwrap();
    let error = check_written(device.as_ref(), 0..2 * MIB, false).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    device.write_at(&vec![7; 2 * MIB as usize], 0).unwrap();
    assert!(check_written(device.as_ref(), 0..2 * MIB, false).unwrap().is_fully_written());
}

#[test]
fn a_full_file_system_gives_one_error_and_leaves_nothing_behind() {
    let Some(mount) = Mounted::new(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"]) else { return };
    let path = mount.point.join("scratch");
    let error = refused(&sized(&path, 64 * MIB), &buffered(), ErrorClass::Failed, "64 MiB");
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error:?}");
    assert!(!path.exists());
    drop(open(&sized(&path, MIB), &buffered()).unwrap());
    // Used again in the same process whether or not this tmpfs keeps attributes.
    drop(open(&at(&path), &buffered()).unwrap());
}

#[test]
fn a_read_only_mount_refuses_writing_and_permits_reading() {
    let Some(device) = Loop::new(64 * MIB) else { return };
    if let Err(reason) = run("mkfs.ext4", &["-q", device.text()]) {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    {
        let Some(mount) = Mounted::new(&[device.text()]) else { return };
        fs::write(mount.point.join("data"), vec![7; MIB as usize]).unwrap();
    }
    let Some(mount) = Mounted::new(&["-o", "ro", device.text()]) else { return };
    let path = mount.point.join("data");
    let options = OpenOptions { destroy: vec![path.clone()], ..buffered() };
    let error = refused(&at(&path), &options, ErrorClass::Failed, "not permitted");
    assert!(error.hint().unwrap().contains("read-only"));
    refused(&sized(&mount.point.join("new"), MIB), &buffered(), ErrorClass::Failed, "not permitted");
    open(&at(&path), &OpenOptions::reading()).unwrap();
}

#[test]
fn an_immutable_file_is_a_failure_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixed");
    fs::write(&path, vec![7; 8192]).unwrap();
    if let Err(reason) = run("chattr", &["+i", path.to_str().unwrap()]) {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let options = OpenOptions { destroy: vec![path.clone()], ..buffered() };
    let result = std::panic::catch_unwind(|| {
        refused(&at(&path), &options, ErrorClass::Failed, "fixed: not permitted to open for writing")
    });
    run("chattr", &["-i", path.to_str().unwrap()]).unwrap();
    result.unwrap();
}

#[test]
fn files_work_on_every_file_system_that_can_be_made_here() {
    for (tool, arguments) in [
        ("mkfs.ext4", &["-q"][..]),
        ("mkfs.xfs", &["-q", "-f"]),
        ("mkfs.btrfs", &["-q", "-f"]),
        ("mkfs.vfat", &[]),
        ("mkfs.f2fs", &["-q", "-f"]),
    ] {
        let Some(device) = Loop::new(400 * MIB) else { return };
        let arguments: Vec<&str> = arguments.iter().copied().chain([device.text()]).collect();
        if let Err(reason) = run(tool, &arguments) {
            eprintln!("SKIPPED: {reason}");
            continue;
        }
        if let Some(mount) = Mounted::new(&[device.text()]) {
            works_below(&mount.point, tool);
        }
    }
    if let Some(mount) = Mounted::new(&["-t", "tmpfs", "tmpfs"]) {
        works_below(&mount.point, "tmpfs");
    }
}

#[test]
fn a_file_system_without_direct_io_is_an_error_and_no_silent_fallback() {
    let Some(mount) = Mounted::new(&["-t", "ramfs", "ramfs"]) else { return };
    let path = mount.point.join("data");
    fs::write(&path, vec![7; MIB as usize]).unwrap();
    let error = open(&at(&path), &OpenOptions::reading()).expect_err("ramfs has no direct I/O");
    assert!(matches!(error, OpenError::DirectUnsupported { .. }), "{error:?}");
    open(&at(&path), &OpenOptions { direct: false, ..OpenOptions::reading() }).unwrap();
}

/// A scratch file is made, written and used again, directly and buffered; too large a one leaves nothing.
fn works_below(directory: &Path, what: &str) {
    let path = directory.join("scratch");
    for options in [OpenOptions::writing(), buffered()] {
        let device = match open(&sized(&path, 8 * MIB), &options) {
            Err(error @ OpenError::DirectUnsupported { .. }) => {
                eprintln!("{what} has no direct I/O: {error}");
                assert!(!path.exists(), "{what}: debris");
                continue;
            }
            result => result.unwrap_or_else(|error| panic!("{what}: {error}")),
        };
        behaves(&device);
        device.write_at(&vec![7; 8 * MIB as usize], 0).unwrap();
        let state = check_written(device.as_ref(), 0..8 * MIB, false).unwrap();
        assert_eq!(state.never_written(), 0, "{what}: {state:?}");
    }
    drop(open(&at(&path), &OpenOptions { direct: false, ..OpenOptions::reading() }).unwrap());
    let large = directory.join("large");
    let error = open(&sized(&large, 1 << 40), &buffered()).expect_err("a terabyte does not fit");
    assert!(matches!(error, OpenError::NoSpace { .. }), "{what}: {error:?}");
    assert!(!large.exists(), "{what}: debris");
}

#[test]
fn a_file_without_permission_is_a_failure_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    fs::File::create(&path).unwrap().write_all(&[7; 8192]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        eprintln!("SKIPPED: this user may read everything");
        return;
    }
    refused(&at(&path), &OpenOptions::reading(), ErrorClass::Failed, "secret");
}

#[test]
fn direct_geometry_is_what_the_kernel_takes() {
    use std::os::fd::AsFd;
    let directory = tempfile::tempdir().unwrap();
    let device = open(&sized(&directory.path().join("a"), 4 * MIB), &OpenOptions::writing()).unwrap();
    let geometry = device.geometry();
    assert!(geometry.logical_block.is_power_of_two() && geometry.memory_alignment.is_power_of_two());
    assert!(geometry.physical_block >= geometry.logical_block);
    assert_eq!(device.size() % u64::from(geometry.logical_block), 0);
    let file = fs::File::from(device.fd().as_fd().try_clone_to_owned().unwrap());
    let block = geometry.logical_block as usize;
    let alignment = geometry.memory_alignment as usize;
    // A buffer aligned to what was promised, and to no more.
    let memory = vec![0u8; 3 * block.max(alignment) + alignment];
    let start = memory.as_ptr().align_offset(2 * alignment) + alignment;
    let mut memory = memory;
    let buffer = &mut memory[start..start + block];
    file.read_exact_at(buffer, block as u64).unwrap();
}

#[test]
fn the_access_time_is_left_alone_by_reading() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    fs::write(&path, vec![7; 8192]).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_times(fs::FileTimes::new().set_accessed(long_ago))
        .unwrap();
    let device = open(&at(&path), &OpenOptions { direct: false, ..OpenOptions::reading() }).unwrap();
    device.read_at(&mut [0; 4096], 0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), long_ago);
}

#[test]
fn hints_advise_neither_to_remove_a_device_node_nor_to_give_a_size_twice() {
    let small = |path: &str| OpenError::TooSmall { path: path.into(), size: 0, needed: 512 }.hint().unwrap();
    assert_eq!(small("/dev/zram0"), "name another target");
    assert!(small("image").starts_with("remove it"));
    let missing = |path: &str| OpenError::Missing { path: path.into() }.hint().unwrap();
    assert!(missing("nosuch?size=16m").ends_with("is file:nosuch?size=16m"));
    assert!(missing("nosuch").ends_with("file:nosuch?size=1g"));
}
