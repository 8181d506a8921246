//! Stopping at each write and each sync of making, mending and wiping labels: what is left is no volume or a whole
//! one, and the same command can be given again.
//!
//! Two passes: the first counts the steps, the second stops at each. What was written and not yet synced is then lost,
//! there, or torn at a sector, block by block as a random number says.

mod rig;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rig::{KIB, MIB, seed};
use storage::device::{Device, DeviceKind, Geometry};
use volume::{Flaw, NewVolume, Volume, VolumeError};

const SIZE: usize = (MIB + 64 * KIB) as usize;
const WIDTH: usize = 3;
const SECTOR: usize = 512;

/// Steps that are still made; none are counted where it is absent.
#[derive(Debug, Default)]
struct Clock {
    made: u32,
    stop_at: Option<u32>,
}

/// What a disk holds: what would survive a loss of power, and what was written since.
#[derive(Debug, Clone)]
struct Media {
    durable: Vec<u8>,
    /// With all that was written since.
    current: Vec<u8>,
    since: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug)]
struct Disk {
    name: String,
    media: Mutex<Media>,
    clock: Arc<Mutex<Clock>>,
    descriptor: File,
}

impl Disk {
    fn of(number: usize, bytes: Vec<u8>, clock: &Arc<Mutex<Clock>>) -> Arc<Self> {
        let media = Mutex::new(Media { current: bytes.clone(), durable: bytes, since: Vec::new() });
        let descriptor = File::open("/dev/null").expect("there is one");
        Arc::new(Self { name: format!("disk{number}"), media, clock: Arc::clone(clock), descriptor })
    }

    /// Whether this step is still made. The one at which it stops may be made in part.
    fn step(&self) -> bool {
        let mut clock = self.clock.lock().unwrap();
        let goes_on = clock.stop_at.is_none_or(|stop| clock.made < stop);
        clock.made += u32::from(goes_on);
        goes_on
    }

    /// What is found after the power came back.
    fn after_the_crash(&self, random: &mut impl FnMut() -> u64) -> Vec<u8> {
        let media = self.media.lock().unwrap();
        let mut bytes = media.durable.clone();
        for (at, written) in &media.since {
            let fate = random() % 4;
            for (number, sector) in written.chunks(SECTOR).enumerate() {
                let kept = match fate {
                    0 => false,
                    1 => true,
                    // A prefix, or here and there.
                    2 => !random().is_multiple_of(8),
                    _ => random().is_multiple_of(2),
                };
                if kept {
                    let at = at + number * SECTOR;
                    bytes[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        bytes
    }
}

fn stopped() -> io::Error {
    io::Error::other("the power went")
}

impl Device for Disk {
    fn spec(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 512, physical_block: 512, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let media = self.media.lock().unwrap();
        buffer.copy_from_slice(&media.current[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let goes_on = self.step();
        let (mut media, at) = (self.media.lock().unwrap(), offset as usize);
        media.since.push((at, buffer.to_vec()));
        media.current[at..at + buffer.len()].copy_from_slice(buffer);
        if goes_on { Ok(()) } else { Err(stopped()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if !self.step() {
            return Err(stopped());
        }
        let mut media = self.media.lock().unwrap();
        let Media { durable, since, .. } = &mut *media;
        for (at, written) in since.drain(..) {
            durable[at..at + written.len()].copy_from_slice(&written);
        }
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

type Images = Vec<Vec<u8>>;

fn disks(images: &Images, clock: &Arc<Mutex<Clock>>) -> Vec<Arc<Disk>> {
    images.iter().enumerate().map(|(number, bytes)| Disk::of(number, bytes.clone(), clock)).collect()
}

fn devices(disks: &[Arc<Disk>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect()
}

fn named(name: &str) -> NewVolume {
    NewVolume { name: name.to_owned(), chunk: 16 * KIB }
}

/// The name of the volume that the disks are; why they are none. A volume of which one copy of a label was torn is
/// whole, and written again when that is repaired.
fn volume_on(images: &Images) -> Result<String, Flaw> {
    let mut devices = devices(&disks(images, &Arc::default()));
    devices.reverse();
    match Volume::of_members(devices.clone()) {
        Ok((_, label)) => Ok(label.name),
        Err(VolumeError::Flaw(flaw)) => Err(flaw),
        Err(VolumeError::OneCopy { .. }) => {
            assert!(!volume::repair_on(&devices).expect("the other copy is whole").is_empty());
            Ok(Volume::of_members(devices).expect("repaired").1.name)
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// The disks after `work` was stopped at each of its steps, several times each; the last ones after all of it.
fn stopped_everywhere(
    before: &Images,
    work: impl Fn(&[Arc<dyn Device>]) -> Result<(), VolumeError>,
    mut check: impl FnMut(u32, Images),
) {
    let mut state = seed() | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let clock: Arc<Mutex<Clock>> = Arc::default();
    work(&devices(&disks(before, &clock))).expect("nothing stops it");
    let steps = clock.lock().unwrap().made;
    assert!(steps > 0, "there is something to stop at");
    for stop_at in 0..=steps {
        for _ in 0..3 {
            let clock = Arc::new(Mutex::new(Clock { made: 0, stop_at: Some(stop_at) }));
            let disks = disks(before, &clock);
            let ended = work(&devices(&disks));
            assert_eq!(ended.is_ok(), stop_at == steps, "step {stop_at} of {steps}: {ended:?}");
            check(stop_at, disks.iter().map(|disk| disk.after_the_crash(&mut random)).collect());
        }
    }
}

fn blank() -> Images {
    vec![vec![0; SIZE]; WIDTH]
}

fn made(before: &Images, name: &str) -> Images {
    let disks = disks(before, &Arc::default());
    volume::create_on(&devices(&disks), &named(name)).expect("nothing stops it");
    disks.iter().map(|disk| disk.media.lock().unwrap().durable.clone()).collect()
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
        let images = disks.iter().map(|disk| disk.media.lock().unwrap().durable.clone()).collect();
        assert!(matches!(volume_on(&images), Err(Flaw::Unlabelled { .. })));
    });
}
