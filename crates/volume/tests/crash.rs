//! Stopping at each write and each sync of making, mending and wiping labels: what is left is no volume or a whole
//! one, and the same command can be given again.
//!
//! Two passes: the first counts the steps, the second stops at each. What was written and not yet synced is then lost,
//! there, or torn at a sector, block by block as a random number says.

mod rig;

use std::sync::Arc;

use rig::disk::{Clock, Disk, SECTOR};
use rig::random::Random;
use rig::{KIB, MIB, seed};
use storage::device::Device;
use volume::{Flaw, NewVolume, Volume, VolumeError};

const SIZE: usize = (MIB + 64 * KIB) as usize;
const WIDTH: usize = 3;

type Images = Vec<Vec<u8>>;

fn disks(images: &Images, clock: &Arc<Clock>) -> Vec<Arc<Disk>> {
    images.iter().enumerate().map(|(number, bytes)| Disk::of(number, bytes.clone(), clock)).collect()
}

fn images_of(disks: &[Arc<Disk>]) -> Images {
    disks.iter().map(|disk| disk.image()).collect()
}

fn devices(disks: &[Arc<Disk>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect()
}

fn named(name: &str) -> NewVolume {
    NewVolume { name: name.to_owned(), chunk: 16 * KIB, ..NewVolume::default() }
}

/// The volume that the disks are, its name, and the disks; why they are none. A volume of which one copy of a label was
/// torn is whole, and written again when that is repaired.
fn opened(images: &Images) -> Result<(Volume, String, Vec<Arc<Disk>>), Flaw> {
    let disks = disks(images, &Arc::default());
    let mut devices = devices(&disks);
    devices.reverse();
    let opened = match Volume::of_members(devices.clone()) {
        Err(VolumeError::OneCopy { .. }) => {
            assert!(!volume::repair_on(&devices).expect("the other copy is whole").is_empty());
            Volume::of_members(devices)
        }
        opened => opened,
    };
    match opened {
        Ok((volume, label)) => Ok((volume, label.name, disks)),
        Err(VolumeError::Flaw(flaw)) => Err(flaw),
        Err(other) => panic!("{other:?}"),
    }
}

fn volume_on(images: &Images) -> Result<String, Flaw> {
    opened(images).map(|(_, name, _)| name)
}

/// The disks after `work` was stopped at each of its steps, several times each; the last ones after all of it.
fn stopped_everywhere(
    before: &Images,
    work: impl Fn(&[Arc<dyn Device>]) -> Result<(), VolumeError>,
    mut check: impl FnMut(u32, Images),
) {
    let mut random = Random::of(seed());
    let clock = Arc::new(Clock::default());
    work(&devices(&disks(before, &clock))).expect("nothing stops it");
    let steps = clock.made();
    assert!(steps > 0, "there is something to stop at");
    for stop_at in 0..=steps {
        for _ in 0..3 {
            let clock = Arc::new(Clock::default());
            clock.stop_after(stop_at);
            let disks = disks(before, &clock);
            let ended = work(&devices(&disks));
            // What ends with the volume cannot say that it failed.
            assert_eq!(
                ended.is_ok() && !clock.is_stopped(),
                stop_at == steps,
                "step {stop_at} of {steps}: {ended:?}"
            );
            let after = |disk: &Arc<Disk>| {
                disk.lose_power(&mut random);
                disk.image()
            };
            check(stop_at, disks.iter().map(after).collect());
        }
    }
}

fn blank() -> Images {
    vec![vec![0; SIZE]; WIDTH]
}

fn made(before: &Images, name: &str) -> Images {
    let disks = disks(before, &Arc::default());
    volume::create_on(&devices(&disks), &named(name)).expect("nothing stops it");
    images_of(&disks)
}

fn create(devices: &[Arc<dyn Device>]) -> Result<(), VolumeError> {
    volume::create_on(devices, &named("new")).map(drop)
}

#[test]
fn a_volume_whose_making_was_stopped_is_none_or_whole_and_can_be_made_again() {
    let (mut none, mut half, mut whole) = (0, 0, 0);
    stopped_everywhere(&blank(), create, |step, images| {
        match volume_on(&images) {
            Ok(name) => {
                assert_eq!(name, "new");
                whole += 1;
            }
            Err(Flaw::HalfMade { .. }) => half += 1,
            Err(Flaw::Unlabelled { .. } | Flaw::Damaged { .. }) => none += 1,
            Err(other) => panic!("step {step}: {other:?}"),
        }
        assert_eq!(volume_on(&made(&images, "again")), Ok("again".to_owned()), "step {step}");
    });
    assert!(none > 0 && half > 0 && whole > 0, "{none} {half} {whole}");
}

#[test]
fn a_whole_volume_given_up_for_another_is_the_one_or_the_other_or_none() {
    let mut names = std::collections::BTreeSet::new();
    stopped_everywhere(&made(&blank(), "old"), create, |step, images| {
        match volume_on(&images) {
            Ok(name) => {
                names.insert(name);
            }
            // Some of its members are wiped, or labelled anew.
            Err(
                Flaw::HalfMade { .. } | Flaw::Unlabelled { .. } | Flaw::Damaged { .. } | Flaw::Foreign { .. },
            ) => {}
            Err(other) => panic!("step {step}: {other:?}"),
        }
        assert_eq!(volume_on(&made(&images, "again")), Ok("again".to_owned()), "step {step}");
    });
    assert!(names.contains("old") && names.contains("new"), "{names:?}");
}

#[test]
fn a_repair_that_was_stopped_leaves_the_whole_copy_alone() {
    let mut images = made(&blank(), "kept");
    images[0][4096 + 40] ^= 1;
    images[1][SIZE - 4096 + 200] ^= 4;
    images[2][4096..8192].fill(0);
    let repair = |devices: &[Arc<dyn Device>]| volume::repair_on(devices).map(drop);
    stopped_everywhere(&images, repair, |step, images| {
        assert_eq!(volume_on(&images), Ok("kept".to_owned()), "step {step}");
    });
}

#[test]
fn a_destruction_that_was_stopped_can_be_made_again() {
    stopped_everywhere(&made(&blank(), "doomed"), volume::destroy_on, |step, images| {
        match volume_on(&images) {
            Ok(name) => assert_eq!(name, "doomed"),
            Err(Flaw::Unlabelled { .. } | Flaw::Damaged { .. }) => {}
            Err(other) => panic!("step {step}: {other:?}"),
        }
        let disks = disks(&images, &Arc::default());
        volume::destroy_on(&devices(&disks)).expect("nothing stops it");
        let images = images_of(&disks);
        assert!(matches!(volume_on(&images), Err(Flaw::Unlabelled { .. })));
    });
}

/// At each write and sync of labels and data, from the first to the end: it is a volume, with nothing that was synced lost.
#[test]
fn a_session_that_was_stopped_leaves_a_volume_that_opens() {
    let text = [7; 2 * SECTOR];
    let write = |devices: &[Arc<dyn Device>]| {
        let (volume, _) = Volume::of_members(devices.to_vec())?;
        let ended = volume.write_at(&text, 0).and_then(|()| volume.sync());
        ended.map_err(|source| VolumeError::System { operation: "write", source })
    };
    let mut before = made(&blank(), "used");
    let mut found = std::collections::BTreeSet::new();
    // Of a volume at rest, and of one whose last session was stopped.
    for _ in 0..2 {
        let mut stopped = before.clone();
        stopped_everywhere(&before, write, |step, images| {
            let (volume, _, disks) = opened(&images).unwrap_or_else(|flaw| panic!("step {step}: {flaw}"));
            let mut bytes = [0; 2 * SECTOR];
            volume.read_at(&mut bytes, 0).expect("reads");
            let sectors = bytes.chunks(SECTOR).map(|sector| (sector[0], sector[SECTOR - 1]));
            found.extend(sectors);
            if step % 3 == 1 {
                stopped = images_of(&disks);
            }
        });
        before = stopped;
    }
    assert!(found.contains(&(0, 0)) && found.contains(&(7, 7)), "{found:?}");
}
