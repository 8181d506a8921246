//! Lies about who did the work.

use bench::lies::blocks::Sampled;
use measure::WarningCode::*;
use measure::workload::Verify;
use storage::extents::{self, WrittenState};
use storage::sysfs::MapperFacts;

use crate::case::{Case, GIB, MIB, counts, healthy, layer};

pub(super) fn file_with_holes() -> Case {
    let mut case = healthy();
    let state = WrittenState {
        total: 16 * GIB,
        holes: GIB,
        unwritten: 2 * GIB,
        evidence: extents::Evidence::Fiemap,
        ..WrittenState::default()
    };
    case.known.written = Some(state);
    // The drive is asked for less, which the holes explain: no W-DIRECT-BUFFERED beside it.
    for drive in &mut case.observed.drives {
        drive.read_bytes = drive.read_bytes / 16 * 13;
        drive.read_ios = drive.read_ios / 16 * 13;
    }
    case
}

#[test]
fn holes_are_named_with_their_size() {
    let message = file_with_holes().message(Unwritten);
    assert_eq!(
        message,
        "3 GiB (1 GiB of holes and 2 GiB of reserved space) of 16 GiB were never written (18.8 %; limit 0.1 %)"
    );
    assert!(!file_with_holes().writing().codes().contains(&Unwritten), "a write fills holes");
}

#[test]
fn data_faster_than_the_link_was_never_on_the_drive() {
    let mut case = healthy();
    let link = case.link();
    (link.speed_gts, link.width, link.max_speed_gts, link.max_width) = (2.5, 1, 2.5, 1);
    assert!(case.message(Unwritten).contains("819 MB/s over nvme0n1's link, which carries at most 250 MB/s"));
}

pub(super) fn buffered_and_cached() -> Case {
    let mut case = healthy();
    case.workload().direct = false;
    case.workload().size = Some(256 * GIB);
    case.record.target.size_bytes = 256 * GIB;
    for drive in &mut case.observed.drives {
        drive.read_bytes /= 100;
        drive.read_ios /= 100;
    }
    case
}

#[test]
fn a_cached_read_is_told_by_what_the_device_read_of_what_was_asked() {
    let message = buffered_and_cached().message(Cached);
    assert_eq!(message, "nvme0n1p2 read 39.1 MiB of 3.81 GiB asked for (1.0 %; limit 90.0 %)");
}

#[test]
fn a_buffered_read_that_reaches_the_drive_is_not_cached() {
    let mut case = buffered_and_cached();
    case.observed.drives = vec![counts("nvme0n1p2"), counts("nvme0n1")];
    // Read-ahead makes it read more.
    case.observed.drives[0].read_bytes *= 2;
    assert_eq!(case.codes(), []);
}

#[test]
fn a_loop_device_that_reads_its_file_from_the_page_cache_is_caught_below_it() {
    let loop_device = layer(0, "loop0", "loop", &["nvme0n1"]);
    let mut case = healthy().on(vec![loop_device, layer(1, "nvme0n1", "nvme", &[])]);
    case.observed.drives[1].read_bytes = 0;
    assert_eq!(case.codes(), [Cached, Virtual]);
    assert!(
        case.message(Cached).starts_with("below loop0, nvme0n1 read 0 B of 3.81 GiB"),
        "{}",
        case.message(Cached)
    );
}

pub(super) fn direct_but_cached() -> Case {
    let mut case = healthy();
    for drive in &mut case.observed.drives {
        (drive.read_bytes, drive.read_ios) = (0, 0);
    }
    case
}

#[test]
fn o_direct_without_a_device_that_moves_is_void_for_writes_as_well() {
    assert_eq!(direct_but_cached().writing().codes(), [DirectBuffered]);
}

#[test]
fn memory_and_file_systems_without_a_device_are_not_called_buffered() {
    let mut memory = healthy().on(vec![]);
    memory.record.target.kind = "memory".into();
    memory.stack.filesystem = None;
    assert_eq!(memory.codes(), [Virtual]);

    assert_eq!(healthy().on(vec![]).mounted("tmpfs", "rw").codes(), [Virtual]);
    assert_eq!(healthy().on(vec![]).mounted("nfs4", "rw").codes(), [Unwatched]);
}

#[test]
fn what_lies_on_other_hosts_is_to_be_watched_there() {
    let mut case = healthy().on(vec![]);
    case.record.target.kind = "stripe".into();
    case.stack.filesystem = None;
    case.stack.hosts = vec!["h1:10809".into(), "h2:10809".into()];
    assert_eq!(case.codes(), [Unwatched]);
    let message = case.message(Unwatched);
    assert!(message.contains("their own hosts only: h1:10809 and h2:10809"), "{message}");
    assert!(Unwatched.explain().remedy.contains("on its own host"));
}

#[test]
fn a_drive_is_not_called_idle_for_what_its_fellow_members_elsewhere_did() {
    let mut case = healthy();
    for drive in &mut case.observed.drives {
        drive.read_bytes /= 2;
        drive.read_ios /= 2;
    }
    case.stack.is_partly_elsewhere = true;
    assert_eq!(case.codes(), [Unwatched]);
    case.stack.is_partly_elsewhere = false;
    assert_eq!(case.codes(), [DirectBuffered]);
}

#[test]
fn a_file_system_over_two_drives_is_judged_by_both_together() {
    let mut case = healthy().on(vec![layer(0, "sda", "sata", &[]), layer(0, "sdb", "sata", &[])]);
    for drive in &mut case.observed.drives {
        drive.read_bytes /= 2;
        drive.read_ios /= 2;
    }
    assert_eq!(case.codes(), []);
    case.observed.drives[1].read_bytes = 0;
    assert_eq!(case.codes(), [DirectBuffered]);
}

pub(super) fn iostats_off() -> Case {
    let mut case = direct_but_cached();
    case.observed.settings_before.set("nvme0n1", "iostats", "0");
    case.observed.settings_after.set("nvme0n1", "iostats", "0");
    case
}

#[test]
fn a_device_for_which_the_kernel_counts_nothing_is_unwatched_and_not_buffered() {
    let mut case = healthy();
    case.observed.drives.clear();
    case.observed.silent = vec!["nvme0n1p2".into(), "nvme0n1".into()];
    assert_eq!(case.codes(), [Unwatched]);
    assert_eq!(case.message(Unwatched), "the kernel counts nothing for nvme0n1p2 and nvme0n1");
}

#[test]
fn of_commands_past_the_block_layer_all_is_judged_that_needs_no_counters() {
    let commands = |mut case: Case| {
        case.record.engine.used = "io_uring_cmd".into();
        case.stack.is_bypassed = true;
        case.observed.drives.clear();
        case
    };
    assert_eq!(commands(healthy()).codes(), [Unwatched]);
    assert!(commands(healthy()).message(Unwatched).contains("NVMe commands pass by the block layer"));
    assert_eq!(commands(small_set()).codes(), [Unwatched, SmallSet]);
    let mut cached = commands(healthy().writing());
    cached.queue().write_cache = Some("write back".into());
    cached.known.written_before_bytes = 0;
    let codes = cached.codes();
    assert!(codes.contains(&VolatileCache) && codes.contains(&Unpreconditioned), "{codes:?}");
    cached.workload().sync = measure::workload::WriteSync::Dsync;
    assert!(!cached.codes().contains(&VolatileCache), "each write is forced");
}

#[test]
fn a_device_that_vanished_is_unwatched_by_name() {
    let mut case = healthy();
    case.observed.drives.clear();
    case.observed.lost = vec!["nvme0n1p2".into(), "nvme0n1".into()];
    assert_eq!(case.message(Unwatched), "nvme0n1p2 and nvme0n1 vanished or was replaced during the run");
}

pub(super) fn small_set() -> Case {
    let mut case = healthy();
    case.workload().size = Some(512 * MIB);
    case
}

#[test]
fn a_buffered_set_is_small_below_twice_the_memory() {
    let mut case = buffered_and_cached();
    case.workload().size = Some(100 * GIB);
    assert!(case.codes().contains(&SmallSet));
    assert!(case.message(SmallSet).contains("the run visits 100 GiB, below the limit of 128 GiB"));
}

#[test]
fn a_set_that_is_the_rest_of_the_target_counts_as_such() {
    let mut case = healthy();
    case.workload().size = None;
    case.workload().offset = 15 * GIB + 512 * MIB;
    assert_eq!(case.codes(), [SmallSet]);
}

pub(super) fn btrfs_compress() -> Case {
    direct_but_cached().mounted("btrfs", "rw,relatime,compress=zstd:3,ssd")
}

#[test]
fn one_block_of_zeros_or_one_repeat_among_64_is_told() {
    let sampled = |zero, repeated| {
        let mut case = healthy();
        case.known.sampled = Some(Sampled { blocks: 64, zero, repeated, compressed_ratio: 1.0 });
        case.codes()
    };
    assert_eq!(sampled(1, 0), [RepeatedData]);
    assert_eq!(sampled(0, 1), [RepeatedData]);
    assert_eq!(sampled(0, 0), []);
}

#[test]
fn a_pattern_that_is_written_again_and_again_is_told() {
    let patterned = |text: &str| {
        let mut case = healthy().writing();
        case.workload().buffer_pattern = Some(text.parse().expect("a pattern"));
        case
    };
    assert!(patterned("0x00").message(RepeatedData).starts_with("buffer_pattern=0x00 fills each block"));
    let mut verified = healthy().writing();
    verified.workload().verify = Some(Verify::Md5);
    verified.workload().verify_pattern = Some("\"abc\"".parse().expect("a pattern"));
    assert!(verified.message(RepeatedData).starts_with("verify_pattern=\"abc\" fills each block"));
    let mut reading = healthy();
    reading.workload().verify = Some(Verify::Pattern);
    reading.workload().verify_pattern = Some("1".parse().expect("a pattern"));
    assert_eq!(reading.codes(), [], "what is read is looked at");
}

#[test]
fn a_mount_with_compression_does_not_hide_that_direct_was_buffered() {
    let known = |encoded| {
        let mut case = btrfs_compress();
        let evidence = extents::Evidence::Fiemap;
        case.known.written =
            Some(WrittenState { total: 16 * GIB, encoded, evidence, ..WrittenState::default() });
        case
    };
    assert_eq!(known(0).codes(), [DirectBuffered, Compressible], "nothing of the file is compressed");
    assert_eq!(known(GIB).codes(), [Compressible]);
    let mut random = btrfs_compress();
    random.known.sampled = Some(Sampled { blocks: 64, compressed_ratio: 1.0, ..Sampled::default() });
    assert_eq!(random.codes(), [DirectBuffered, Compressible], "random data do not compress");
    let writing = btrfs_compress().writing();
    assert_eq!(writing.codes(), [DirectBuffered, Compressible], "nor do those that are written");
    let mut half = btrfs_compress().writing();
    half.workload().buffer_compress_percentage = 50;
    assert_eq!(half.codes(), [Compressible]);
}

#[test]
fn compressing_layers_are_told_by_option_kind_extent_map_or_device() {
    for (filesystem, options) in [("zfs", ""), ("squashfs", "ro"), ("bcachefs", "rw,compression=lz4")] {
        assert_eq!(healthy().mounted(filesystem, options).codes(), [Compressible]);
    }
    for (filesystem, options) in [("btrfs", "rw,compress=no"), ("ext4", "rw,compress"), ("f2fs", "rw")] {
        assert_eq!(healthy().mounted(filesystem, options).codes(), []);
    }
    // A file with the attribute on a file system mounted without the option shows by its extents.
    let mut encoded = healthy().mounted("btrfs", "rw");
    let evidence = extents::Evidence::Fiemap;
    encoded.known.written =
        Some(WrittenState { total: GIB, encoded: MIB, evidence, ..WrittenState::default() });
    assert_eq!(encoded.codes(), [Compressible]);
    let zram = healthy().on(vec![layer(0, "zram0", "zram", &[])]);
    assert_eq!(zram.codes(), [Compressible, Virtual]);
    let mut vdo = healthy().on(vec![layer(0, "dm-3", "dm", &[])]);
    vdo.drive().mapper = Some(MapperFacts { uuid: Some("LVM-abc-vpool".into()), ..MapperFacts::default() });
    assert_eq!(vdo.codes(), [Compressible]);
}

pub(super) fn zeros() -> Case {
    let mut case = healthy();
    case.known.sampled = Some(Sampled { blocks: 64, zero: 16, repeated: 8, compressed_ratio: 0.5 });
    case
}

#[test]
fn sampled_data_are_described_and_asked_for_compression_is_no_surprise() {
    assert_eq!(
        zeros().message(RepeatedData),
        "of 64 blocks drawn from the region, 25.0 % are zeros, 12.5 % repeat another, they compress to about 50.0 %"
    );
    let mut asked = healthy();
    asked.workload().buffer_compress_percentage = 50;
    asked.known.sampled = Some(Sampled { blocks: 64, compressed_ratio: 0.48, ..Sampled::default() });
    assert_eq!(asked.codes(), []);
    let mut good = healthy();
    good.known.sampled = Some(Sampled { blocks: 64, compressed_ratio: 0.998, ..Sampled::default() });
    assert_eq!(good.codes(), []);
}
