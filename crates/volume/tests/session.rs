//! What it costs that members are kept of one time, and what becomes of a volume where that cannot be had.

mod rig;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rig::disk::{Clock, Disk};
use rig::{KIB, MIB};
use storage::device::Device;
use volume::{NewVolume, Volume};

const WIDTH: usize = 4;
const CHUNK: u64 = 16 * KIB;

fn disks(clock: &Arc<Clock>) -> Vec<Arc<Disk>> {
    let disks: Vec<_> =
        (0..WIDTH).map(|number| Disk::of(number, vec![0; (2 * MIB) as usize], clock)).collect();
    volume::create_on(
        &devices(&disks),
        &NewVolume { name: "counted".to_owned(), chunk: CHUNK, ..NewVolume::default() },
    )
    .expect("it is made");
    disks
}

fn devices(disks: &[Arc<Disk>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect()
}

/// Writes and syncs of each member since this was last asked.
fn counts(disks: &[Arc<Disk>]) -> Vec<(u64, u64)> {
    let take =
        |disk: &Arc<Disk>| (disk.writes.swap(0, Ordering::Relaxed), disk.syncs.swap(0, Ordering::Relaxed));
    disks.iter().map(take).collect()
}

#[test]
fn a_request_costs_what_it_would_without_labels_but_for_the_first_and_the_end() {
    let disks = disks(&Arc::default());
    counts(&disks);
    let (volume, _) = Volume::of_members(devices(&disks)).expect("a volume");
    volume.read_at(&mut [0; 100], 0).expect("reads");
    volume.sync().expect("syncs");
    assert_eq!(counts(&disks), [(0, 1); WIDTH], "who only reads writes nothing");
    volume.write_at(&[1; 512], 0).expect("writes");
    assert_eq!(counts(&disks), [(4, 3), (3, 3), (3, 3), (3, 3)], "three labels each, and one write of data");
    for round in 0..1000 {
        volume.write_at(&[2; 512], round * 512).expect("writes");
    }
    let writes: u64 = counts(&disks).iter().map(|(writes, syncs)| writes + 1000 * syncs).sum();
    assert_eq!(writes, 1000, "one write of one member each, and no sync");
    volume.sync().expect("syncs");
    assert_eq!(counts(&disks), [(0, 1); WIDTH]);
    drop(volume);
    assert_eq!(counts(&disks), [(3, 4); WIDTH], "the data once more, and three labels");
}

#[test]
fn a_volume_that_cannot_say_that_it_is_written_is_not_written() {
    let clock = Arc::new(Clock::default());
    let disks = disks(&clock);
    // Each write and sync of the labels: four of each step, and three steps.
    for stop_at in 0..24 {
        let (volume, _) = Volume::of_members(devices(&disks)).expect("a volume");
        let data = || -> Vec<Vec<u8>> {
            let of = |disk: &Arc<Disk>| disk.image()[MIB as usize..(2 * MIB - 4 * KIB) as usize].to_vec();
            disks.iter().map(of).collect()
        };
        let before = data();
        clock.stop_after(stop_at);
        let error = volume.write_at(&[9; 512], 0).expect_err("labels cannot be written");
        let said = error.to_string();
        assert!(said.contains("the label of disk") && said.ends_with("the power went"), "{said}");
        clock.go_on();
        // Whether the labels are durable now nobody knows, so nothing is tried again.
        let again = volume.write_at(&[9; 512], 0).expect_err("as before");
        assert_eq!(again.to_string(), said);
        volume.read_at(&mut [0; 512], 0).expect("reading works");
        drop(volume);
        assert_eq!(data(), before);
    }
}
