//! Lies about the drive, its state and its other users.

use bench::lies::Traffic;
use bench::observe::heat::Temperature;
use measure::WarningCode::*;
use measure::workload::Rw;
use storage::sysfs::{MapperFacts, RaidFacts};

use crate::case::{Case, GIB, IOPS, KIB, MIB, SECONDS, healthy, layer};

#[test]
fn jobs_that_ran_beside_on_the_same_drive_are_no_other_traffic() {
    let mut case = healthy();
    for drive in &mut case.observed.drives {
        drive.read_bytes *= 2;
        drive.read_ios *= 2;
    }
    assert_eq!(case.codes(), [OtherTraffic]);
    let mut elsewhere = case.record.clone();
    elsewhere.target.block_devices = vec!["sdz".into()];
    let group = [case.record.clone(), case.record.clone(), elsewhere];
    case.known.beside = Traffic::beside(&group, 0);
    assert_eq!(case.known.beside.read_ios, case.record.read.ios, "one other job is on this drive");
    assert_eq!(case.codes(), []);
}

pub(super) fn volatile_cache() -> Case {
    let mut case = healthy().writing();
    case.queue().write_cache = Some("write back".into());
    case
}

/// After three fifths of the run a drive writes at a quarter of its rate.
pub(super) fn cache_used_up() -> Case {
    let mut case = healthy().writing();
    let steps = case.record.samples.len();
    for sample in &mut case.record.samples[steps * 3 / 5..] {
        sample.write_bytes /= 4;
    }
    case
}

#[test]
fn a_cliff_is_told_with_what_was_written_before_it() {
    let message = cache_used_up().message(SlcCache);
    assert!(
        message.starts_with("after 2.29 GiB the rate fell for good from 820 MB/s to 205 MB/s"),
        "{message}"
    );
    let mut recovered = cache_used_up();
    let steps = recovered.record.samples.len();
    for sample in &mut recovered.record.samples[steps * 7 / 10..] {
        sample.write_bytes *= 4;
    }
    assert!(!recovered.codes().contains(&SlcCache), "a dip is no cliff");
    let mut disk = cache_used_up();
    disk.queue().rotational = Some(true);
    assert!(!disk.codes().contains(&SlcCache), "a disk has no flash");
    disk.drive().transport = "virtio".into();
    assert!(disk.codes().contains(&SlcCache), "a virtual disk's flag is a default");
    let mut buffered = cache_used_up();
    buffered.workload().direct = false;
    assert!(!buffered.codes().contains(&SlcCache), "the page cache was full");
}

/// Random requests of 256 KiB on an md array with chunks of 64 KiB.
pub(super) fn small_chunks() -> Case {
    let mut array = layer(0, "md0", "md", &["nvme0n1", "nvme1n1"]);
    array.device.raid = Some(RaidFacts {
        level: "raid0".into(),
        raid_disks: Some(2),
        chunk_bytes: Some(64 * KIB),
        ..RaidFacts::default()
    });
    let mut case = healthy();
    case = case.on(vec![array, layer(1, "nvme0n1", "nvme", &[]), layer(1, "nvme1n1", "nvme", &[])]);
    case.workload().bs = 256 * KIB;
    let ios = IOPS * SECONDS / 64;
    case.record.read.ios = ios;
    for drive in &mut case.observed.drives {
        drive.read_ios = ios;
    }
    for drive in &mut case.observed.drives[1..] {
        (drive.read_ios, drive.read_bytes) = (ios, drive.read_bytes / 2);
    }
    case
}

#[test]
fn a_request_within_a_chunk_or_a_stream_over_many_is_no_finding() {
    let message = small_chunks().message(Chunk);
    assert_eq!(message, "random requests of 256 KiB on chunks of 64 KiB of md0: each goes to 2 of 2 drives");
    let mut fits = small_chunks();
    fits.workload().bs = 64 * KIB;
    assert!(!fits.codes().contains(&Chunk));
    let mut stream = small_chunks();
    stream.workload().rw = Rw::Read;
    assert!(!stream.codes().contains(&Chunk));
    let mut mirror = small_chunks();
    mirror.stack.layers[0].device.raid.as_mut().expect("an array").level = "raid1".into();
    assert!(!mirror.codes().contains(&Chunk));
    let mut stripe = healthy();
    (stripe.stack.members, stripe.stack.chunk) = (4, Some(KIB));
    assert!(stripe.message(Chunk).contains("of the target: each goes to 4 of 4 drives"));
}

#[test]
fn chunks_of_lvm_and_btrfs_are_found_and_what_only_looks_like_one_is_not() {
    let volume = |uuid: &str| {
        let mut case = small_chunks();
        let device = &mut case.stack.layers[0].device;
        (device.name, device.raid) = ("dm-0".into(), None);
        device.mapper = Some(MapperFacts { name: "vg-lv".into(), uuid: Some(uuid.into()) });
        let queue = device.queue.as_mut().expect("a queue");
        (queue.minimum_io_bytes, queue.optimal_io_bytes) = (Some(64 * KIB), Some(128 * KIB));
        case
    };
    let message = volume("LVM-abc").message(Chunk);
    assert_eq!(message, "random requests of 256 KiB on chunks of 64 KiB of dm-0: each goes to 2 of 2 drives");
    assert!(!volume("LVM-abc-tpool").codes().contains(&Chunk), "a thin pool's blocks");
    let mut linear = volume("LVM-abc");
    linear.stack.layers[1].device.queue.as_mut().expect("a queue").minimum_io_bytes = Some(64 * KIB);
    assert!(!linear.codes().contains(&Chunk), "what the drives say of themselves");
    let mut wide = volume("LVM-abc");
    wide.stack.layers[0].device.queue.as_mut().expect("a queue").optimal_io_bytes = Some(MIB);
    assert!(!wide.codes().contains(&Chunk), "sixteen chunks on two drives");
    let mut btrfs = healthy().mounted("btrfs", "rw");
    btrfs.stack.btrfs_stripe_drives = Some(2);
    assert!(!btrfs.codes().contains(&Chunk), "4 KiB lie within a chunk");
    btrfs.workload().bs = 256 * KIB;
    assert!(btrfs.message(Chunk).contains("chunks of 64 KiB of btrfs: each goes to 2 of 2 drives"));
}

#[test]
fn requests_that_cross_from_one_chunk_to_the_next_are_found_by_size_and_on_a_raw_stripe_by_offset() {
    let mut case = small_chunks();
    case.workload().bs = 12 * KIB;
    let message = case.message(Chunk);
    assert!(
        message.ends_with("12 KiB on chunks of 64 KiB of md0, 12.5 % go to two drives (limit 5.0 %)"),
        "{message}"
    );
    case.workload().blockalign = Some(64 * KIB);
    assert!(!case.codes().contains(&Chunk), "each begins a chunk");
    case.workload().blockalign = None;
    (case.workload().bs, case.workload().offset) = (64 * KIB, 4 * KIB);
    assert!(!case.codes().contains(&Chunk), "where the file begins is not known");
    case.record.target.kind = "block".into();
    assert!(case.message(Chunk).contains("100 % go to two drives"));
    case.workload().offset = 128 * KIB;
    assert!(!case.codes().contains(&Chunk));
}

pub(super) fn hot() -> Case {
    let reading = |celsius| Temperature {
        drive: "nvme0n1".into(),
        label: "Composite".into(),
        celsius,
        warning_celsius: Some(82.0),
        alarm: false,
    };
    let mut case = healthy();
    case.observed.heat_before = vec![reading(61.0)];
    case.observed.heat_after = vec![reading(84.0)];
    case
}

#[test]
fn heat_is_the_highest_reading_above_the_drives_own_threshold() {
    assert_eq!(hot().message(Heat), "nvme0n1 (Composite) was at 84 °C; it warns at 82 °C");
    let mut warm = hot();
    warm.observed.heat_after[0].celsius = 81.0;
    assert_eq!(warm.codes(), []);
    let mut cooled = hot();
    cooled.observed.heat_during =
        std::mem::replace(&mut cooled.observed.heat_after, cooled.observed.heat_before.clone());
    assert_eq!(cooled.codes(), [Heat], "it was hot within the run");
}

pub(super) fn merged() -> Case {
    let mut case = healthy();
    case.workload().rw = Rw::Read;
    for drive in &mut case.observed.drives {
        drive.read_merges = drive.read_ios / 4 * 3;
        drive.read_ios /= 4;
    }
    case
}

#[test]
fn a_buffered_run_is_not_judged_by_merges() {
    let mut case = merged();
    case.workload().direct = false;
    case.workload().size = Some(256 * GIB);
    case.record.target.size_bytes = 256 * GIB;
    assert_eq!(case.codes(), []);
}

pub(super) fn split() -> Case {
    let mut case = healthy();
    case.workload().bs = 4 * MIB;
    case.workload().iodepth = 1;
    case.record.read.ios = IOPS * SECONDS / 1024;
    for drive in &mut case.observed.drives {
        drive.read_ios = IOPS * SECONDS / 256;
    }
    case
}

#[test]
fn a_split_names_the_limit_that_caused_it() {
    let message = split().message(Split);
    assert!(
        message.ends_with("for 976 made of 4.00 MiB; queue/max_sectors_kb lets 1 MiB through"),
        "{message}"
    );
}

/// Two drives of their own below a target of two members, each of which did half of the requests.
fn on_two_drives(mut case: Case, kind: &str, chunk: Option<u64>) -> Case {
    let halved = case.observed.drives[1].clone();
    case = case.on(vec![layer(0, "nvme0n1", "nvme", &[]), layer(0, "nvme1n1", "nvme", &[])]);
    case.observed.drives = ["nvme0n1", "nvme1n1"]
        .map(|name| {
            let mut counts = halved.clone();
            counts.name = name.to_owned();
            counts.read_ios /= 2;
            counts.read_merges /= 2;
            counts.read_bytes /= 2;
            counts
        })
        .to_vec();
    case.record.target.kind = kind.to_owned();
    (case.stack.members, case.stack.chunk) = (2, chunk);
    case
}

#[test]
fn merges_and_splits_are_judged_over_all_members() {
    for (kind, chunk) in [("stripe", Some(8 * MIB)), ("volume", Some(4 * MIB)), ("separate", None)] {
        let message = on_two_drives(split(), kind, chunk).message(Split);
        assert!(message.starts_with("nvme0n1 and nvme1n1 did 3.91k reads"), "{kind}: {message}");
        assert!(on_two_drives(merged(), kind, chunk).codes().contains(&Merged), "{kind}");
        let sound = on_two_drives(healthy(), kind, chunk).codes();
        assert!(!sound.contains(&Merged) && !sound.contains(&Split), "{kind}: {sound:?}");
    }
}

#[test]
fn requests_that_a_stripe_cuts_itself_are_not_splits() {
    for chunk in [MIB, 6 * MIB] {
        let codes = on_two_drives(split(), "stripe", Some(chunk)).codes();
        assert!(!codes.contains(&Split), "{chunk}: {codes:?}");
    }
    let mut case = on_two_drives(split(), "stripe", Some(8 * MIB));
    case.workload().offset = MIB;
    assert!(!case.codes().contains(&Split));
    // One of the members has no device.
    let mut case = on_two_drives(split(), "stripe", Some(8 * MIB));
    case.stack.members = 3;
    assert!(!case.codes().contains(&Split));
}

#[test]
fn another_users_small_requests_are_not_taken_for_splits() {
    let mut case = healthy();
    case.observed.drives[1].read_ios *= 3;
    case.observed.drives[1].read_bytes *= 2;
    assert_eq!(case.codes(), [OtherTraffic]);
}

pub(super) fn virtio() -> Case {
    let mut case = healthy().on(vec![layer(0, "vda", "virtio", &[])]);
    case.record.host.virtualization = Some("kvm".into());
    case
}

#[test]
fn a_virtual_layer_is_named_and_so_is_the_machine() {
    assert_eq!(virtio().message(Virtual), "vda is a virtio device; the machine is a virtual one (kvm)");
    assert_eq!(healthy().on(vec![layer(0, "xvdb", "xen", &[])]).codes(), [Virtual]);
    assert_eq!(healthy().on(vec![layer(0, "sda", "sata", &[])]).codes(), []);
}

pub(super) fn misaligned() -> Case {
    let mut case = healthy();
    case.stack.layers[0].device.partition_start_bytes = Some(63 * 512);
    case
}

#[test]
fn writes_below_the_physical_block_are_misaligned_and_reads_are_not() {
    let mut case = healthy();
    case.workload().bs = 512;
    assert!(!case.codes().contains(&Misaligned));
    let mut case = case.writing();
    case.workload().offset = 512;
    assert_eq!(
        case.message(Misaligned),
        "bs=512 is no multiple of the physical block of 4 KiB; offset=512 is no multiple of the physical block of 4 KiB"
    );
}

pub(super) fn no_polled_queues() -> Case {
    let mut case = healthy();
    case.workload().hipri = true;
    case
}

#[test]
fn polling_that_works_is_neither_unavailable_nor_cpu_bound() {
    let mut case = super::machine::cpu_bound();
    case.workload().hipri = true;
    case.queue().io_poll = Some(true);
    assert_eq!(case.codes(), []);
    case.record.engine.used = "libaio".into();
    assert_eq!(case.codes(), [PollUnavailable, CpuBound]);
}

pub(super) fn degraded_link() -> Case {
    let mut case = healthy();
    case.link().width = 2;
    case
}

#[test]
fn a_degraded_link_names_both_ends() {
    let message = degraded_link().message(LinkDegraded);
    assert_eq!(message, "nvme0n1 runs at 16 GT/s ×2, and both ends support 16 GT/s ×4");
}

pub(super) fn resync() -> Case {
    let mut case = healthy();
    case.observed.background_work.insert("md resync of md0 (18.2% done)".into());
    case
}

pub(super) fn drift() -> Case {
    let mut case = healthy();
    case.observed.settings_after.set("nvme0n1", "read_ahead_kb", "4096");
    case
}

#[test]
fn drift_names_the_setting_and_both_values() {
    assert_eq!(drift().message(SettingsDrift), "read_ahead_kb of nvme0n1 was 128 before and 4096 after");
}

pub(super) fn neighbour() -> Case {
    let mut case = healthy();
    case.observed.drives[1].write_bytes = GIB;
    case.observed.drives[1].write_ios = 1024;
    case
}

#[test]
fn small_requests_of_a_neighbour_show_by_their_number() {
    let mut case = split();
    for drive in &mut case.observed.drives {
        drive.read_ios = IOPS * SECONDS / 1024;
    }
    case.workload().bs = 4 * MIB;
    case.observed.drives[1].write_ios = 2000;
    case.observed.drives[1].write_bytes = 2000 * 4 * KIB;
    assert_eq!(case.codes(), [OtherTraffic]);
    assert!(
        case.message(OtherTraffic).contains("did 2.00k requests in a direction"),
        "{}",
        case.message(OtherTraffic)
    );
}

#[test]
fn a_neighbour_is_seen_below_a_volume_and_not_taken_for_what_an_integrity_device_adds() {
    let below = |uuid: &str| {
        let mut upper = layer(0, "dm-0", "dm", &["nvme0n1"]);
        upper.device.mapper = Some(MapperFacts { uuid: Some(uuid.into()), ..MapperFacts::default() });
        let mut case = healthy().on(vec![upper, layer(1, "nvme0n1", "nvme", &[])]);
        case.observed.drives[1].write_bytes = GIB;
        case.codes()
    };
    assert_eq!(below("LVM-abc"), [OtherTraffic]);
    assert_eq!(below("CRYPT-LUKS2-abc"), [OtherTraffic]);
    assert_eq!(below("CRYPT-SUBDEV-abc"), []);
    assert_eq!(below("INTEGRITY-abc"), []);
}

#[test]
fn the_journal_of_a_quiet_system_and_copies_on_write_are_no_other_traffic() {
    let mut quiet = healthy();
    quiet.observed.drives[1].write_bytes = 4 * MIB;
    quiet.observed.drives[1].write_ios = 200;
    assert_eq!(quiet.codes(), []);
    let mut cow = healthy().writing().mounted("btrfs", "rw");
    cow.observed.drives[1].write_bytes *= 3;
    assert_eq!(cow.codes(), []);
}

pub(super) fn fresh() -> Case {
    let mut case = healthy().writing();
    case.known.written_before_bytes = 16 * GIB;
    case
}

#[test]
fn preconditioning_is_counted_against_twice_the_capacity() {
    let message = fresh().message(Unpreconditioned);
    assert!(message.contains("16 GiB are known") && message.contains("of 3.49 TiB"), "{message}");
    let mut disc = fresh();
    disc.queue().rotational = Some(true);
    assert_eq!(disc.codes(), [], "a disc has no fresh state");
}
