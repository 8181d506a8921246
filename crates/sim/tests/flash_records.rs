//! Records of drives with a translation layer, by their digest: what makes the model faster must leave each of them as it was,
//! byte for byte. A change of the model itself changes them, and is then to be named where the new digests are put in.

use std::sync::Arc;

use measure::workload::Rw;
use measure::{Target, Workload};
use sim::{Layout, Machine, SimTarget, Stop};

const HOST: &str = "name = \"digest\"\ndrives = 1\n[host]\ncores = 8\nsubmission = \"threads\"\npath_us = 1\n\
                    [host.interrupts]\ndelivery = \"any-cpu\"\ncompletion_us = 0.5\n";

const DRIVE: &str = "[drive]\nmodel = \"ftl\"\nchannels = 4\nchips_per_channel = 2\ndies_per_chip = 2\nplanes_per_die = 2\n\
                     blocks_per_plane = 64\npages_per_block = 48\npage_bytes = \"8k\"\nread_us = 50\nprogram_us = 300\n\
                     erase_us = 2000\nchannel_bytes_per_s = 4e8\nlink_bytes_per_s = 2e9\nqueue_depth = 64\n";

/// FNV-1a, which needs no library.
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The digest of the record of one workload on a drive with these keys besides.
fn record(keys: &str, workload: &Workload) -> u64 {
    let machine = Machine::parse("digest", &format!("{HOST}{DRIVE}{keys}")).expect("can be");
    let layout = Layout::all(&machine);
    let stop = Stop { precision: 0.0, min_interval_ns: 0, max_interval_ns: 400_000_000 };
    let mut target = SimTarget::new(Arc::new(machine), layout, stop).expect("can be");
    let mut record = target.run(workload).expect("runs");
    // The digest has these bytes in `counts`.
    record.drives.iter_mut().for_each(|drive| drive.media_write_bytes = None);
    let counts = target.device_counts();
    let text = serde_json::to_string(&record).expect("is JSON");
    // What was asked for is not the model's, and gains options.
    let asked = serde_json::to_string(&record.workload).expect("is JSON");
    digest(&format!("{} {counts:?}", text.replace(&asked, "")))
}

fn digests(keys: &str) -> Vec<u64> {
    let load = |rw, bs, iodepth| Workload { rw, bs, iodepth, norandommap: true, ..Workload::default() };
    [
        load(Rw::RandWrite, 8192, 64),
        load(Rw::RandRw, 4096, 32),
        load(Rw::RandRead, 65536, 16),
        load(Rw::Write, 4096, 8),
    ]
    .iter()
    .map(|workload| record(keys, workload))
    .collect()
}

#[test]
fn records_of_paced_collection_from_all_blocks_are_as_they_were() {
    let keys = "over_provisioning = 0.4\nwrite_buffer_bytes = \"256k\"\nopen_pages = 4\n";
    assert_eq!(
        digests(keys),
        [0x47b8_f3ed_8ca0_e769, 0xe946_5b05_6396_361c, 0xf5a9_6e7d_38b7_ee1e, 0x39be_dffc_c3ea_0e13]
    );
}

#[test]
fn records_of_exclusive_collection_by_sample_are_as_they_were() {
    let keys = "over_provisioning = 0.6\nwrite_buffer_bytes = \"1m\"\none_operation_per = \"chip\"\nplacement = \"static\"\n\
                gc = \"exclusive\"\ngc_start_free = 0.06\ngc_reserve_blocks = 4\ngc_sample_blocks = 6\n";
    assert_eq!(
        digests(keys),
        [0x198b_3386_11ca_7af9, 0xae3c_8add_5a77_1604, 0xd8c5_f6c1_9177_64ba, 0x0824_7bfe_6af6_1de1]
    );
}

#[test]
fn records_without_a_buffer_and_with_a_map_that_is_mostly_on_flash_are_as_they_were() {
    let keys = "over_provisioning = 0.6\nwrite_buffer_bytes = 0\nmapping_cache_entries = 5000\nmapping_entry_bytes = 8\n";
    assert_eq!(
        digests(keys),
        [0xa7b0_9c22_1ea2_ef11, 0x1df4_7bed_6f29_a165, 0xf4d2_69c5_25d5_9981, 0xe3c3_0db0_d020_dacc]
    );
}

#[test]
fn a_record_has_the_write_amplification_of_its_flash_where_it_wrote() {
    let keys = "over_provisioning = 0.4\nwrite_buffer_bytes = \"256k\"\nopen_pages = 4\n";
    let host = HOST.replace("drives = 1", "drives = 2");
    let machine = Arc::new(Machine::parse("two", &format!("{host}{DRIVE}{keys}")).expect("can be"));
    let run = |rw| {
        let layout = Layout::all(&machine);
        let stop = Stop { precision: 0.0, min_interval_ns: 0, max_interval_ns: 400_000_000 };
        let mut target = SimTarget::new(Arc::clone(&machine), layout, stop).expect("can be");
        let load = Workload { rw, bs: 8192, iodepth: 64, norandommap: true, ..Workload::default() };
        (target.run(&load).expect("runs"), target.device_counts())
    };
    let (written, counts) = run(Rw::RandWrite);
    let ratio = written.write_amplification().expect("flash was written");
    // All of the run, its first requests included.
    let whole = counts.media_write_bytes as f64 / counts.host_write_bytes as f64;
    assert!(whole > 1.05 && (ratio / whole - 1.0).abs() < 0.05, "{ratio} in the interval, {whole} in all");
    // What lies above the drives counts no medium, and would count it twice.
    let (above, drives): (Vec<_>, Vec<_>) = written.drives.iter().partition(|drive| !drive.below.is_empty());
    assert!(above.iter().all(|array| array.media_write_bytes.is_none()));
    assert!(
        drives.len() == 2 && drives.iter().all(|drive| drive.media_write_bytes > Some(drive.write_bytes))
    );
    let (read, _) = run(Rw::RandRead);
    assert_eq!(read.write_amplification(), None);
    assert!(!serde_json::to_string(&read).expect("is JSON").contains("media_write_bytes"));
}
