//! What labels are for: members in any order are a volume, and members that are none are told why.

mod rig;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rig::{KIB, MIB, pattern};
use storage::device::{DeviceKind, DeviceSpec, ErrorClass, OpenOptions};
use volume::{Flaw, NewVolume, Volume, VolumeError};

const SIZE: u64 = 2 * MIB;
const CHUNK: u64 = 16 * KIB;
/// Where the copies of a label begin on a file of that size.
const COPIES: [u64; 2] = [4096, SIZE - 4096];

struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    /// A volume of `width` files, `m0`, `m1`, ….
    fn with(width: usize) -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap() };
        lab.make("m", width).unwrap();
        lab
    }

    fn make(&self, letter: &str, width: usize) -> Result<volume::Label, VolumeError> {
        let members =
            (0..width).map(|n| format!("file:{}?size={SIZE}", self.path(&format!("{letter}{n}")).display()));
        let spec = format!("volume:{}", members.collect::<Vec<_>>().join(","));
        let new = NewVolume { name: format!("of {letter}"), chunk: CHUNK, ..NewVolume::default() };
        volume::create(&DeviceSpec::parse(&spec).unwrap(), &new, &[])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spec(&self, names: &[&str]) -> DeviceSpec {
        DeviceSpec::Volume { members: names.iter().map(|name| DeviceSpec::Path(self.path(name))).collect() }
    }

    fn open(&self, names: &[&str]) -> Result<Volume, VolumeError> {
        Volume::open(&self.spec(names), &OpenOptions::writing().buffered())
    }

    fn read(&self, names: &[&str]) -> Result<Volume, VolumeError> {
        Volume::open(&self.spec(names), &OpenOptions::default())
    }

    fn flaw(&self, names: &[&str]) -> Flaw {
        match self.read(names) {
            Err(VolumeError::Flaw(flaw)) => flaw,
            other => panic!("{other:?}"),
        }
    }

    fn bytes(&self, name: &str, at: u64, length: usize) -> Vec<u8> {
        let mut file = fs::File::open(self.path(name)).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn put(&self, name: &str, at: u64, bytes: &[u8]) {
        let mut file = fs::OpenOptions::new().write(true).open(self.path(name)).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
    }
}

#[test]
fn members_in_any_order_are_the_same_volume() {
    let lab = Lab::with(3);
    let contents = pattern(3, 300_000);
    lab.open(&["m0", "m1", "m2"]).unwrap().write_at(&contents, 12_345).unwrap();
    for names in [["m0", "m1", "m2"], ["m2", "m1", "m0"], ["m1", "m2", "m0"]] {
        let volume = lab.read(&names).unwrap();
        let mut found = vec![0; contents.len()];
        volume.read_at(&mut found, 12_345).unwrap();
        assert!(found == contents, "{names:?}");
        assert_eq!(volume.device().kind(), DeviceKind::Volume);
        let members: Vec<_> = volume.members().iter().map(|m| m.path().unwrap().to_owned()).collect();
        assert_eq!(members, ["m0", "m1", "m2"].map(|name| lab.path(name)));
    }
}

#[test]
fn data_lie_behind_the_label_where_raid0_puts_them() {
    let lab = Lab::with(3);
    let volume = lab.open(&["m0", "m1", "m2"]).unwrap();
    let each = (SIZE - 4096 - MIB) / CHUNK * CHUNK;
    assert_eq!((volume.size(), volume.chunk()), (3 * each, Some(CHUNK)));
    let contents = pattern(4, volume.size() as usize);
    volume.write_at(&contents, 0).unwrap();
    for byte in [0, CHUNK - 1, CHUNK, 3 * CHUNK + 7, volume.size() - 1] {
        let (member, offset) = rig::raid0(CHUNK, 3, byte);
        let found = lab.bytes(&format!("m{member}"), MIB + offset, 1);
        assert_eq!(found[0], contents[byte as usize], "byte {byte}");
    }
    drop(volume);
    lab.read(&["m0", "m1", "m2"]).expect("writing all of it touches no label");
}

#[test]
fn a_missing_member_is_named_by_its_number() {
    let lab = Lab::with(4);
    let flaw = lab.flaw(&["m3", "m0"]);
    assert!(matches!(&flaw, Flaw::Missing { width: 4, positions, .. } if positions == &[2, 3]), "{flaw:?}");
    assert!(flaw.to_string().ends_with("has 4 members; missing are members 2 and 3"), "{flaw}");
    assert_eq!(flaw.class(), ErrorClass::Invalid);
}

#[test]
fn a_member_of_another_volume_is_foreign_and_the_minority_is_at_fault() {
    let lab = Lab::with(3);
    lab.make("o", 3).unwrap();
    for names in [["m0", "o1", "m2"], ["o1", "m0", "m2"]] {
        let flaw = lab.flaw(&names);
        assert!(matches!(&flaw, Flaw::Foreign { member, .. } if member.ends_with("o1")), "{flaw:?}");
        assert!(flaw.to_string().contains("'of o'") && flaw.to_string().contains("'of m'"), "{flaw}");
    }
    fs::write(lab.path("plain"), vec![1; SIZE as usize]).unwrap();
    let flaw = lab.flaw(&["m0", "plain", "m2"]);
    assert!(matches!(&flaw, Flaw::Unlabelled { member } if member.ends_with("plain")), "{flaw:?}");
}

#[test]
fn the_same_member_by_two_paths_and_a_copied_image_are_told_apart() {
    let lab = Lab::with(2);
    std::os::unix::fs::symlink(lab.path("m0"), lab.path("link")).unwrap();
    fs::hard_link(lab.path("m0"), lab.path("hard")).unwrap();
    for name in ["link", "hard"] {
        let error = lab.read(&["m0", "m1", name]).unwrap_err();
        assert!(matches!(&error, VolumeError::Twice { member, .. } if member.ends_with(name)), "{error:?}");
    }
    let thrice = lab.spec(&["m0", "m1", "link"]);
    let named: Vec<PathBuf> = ["m0", "m1"].map(|name| lab.path(name)).to_vec();
    for refused in [
        volume::survey::look(thrice.members()).map(drop),
        volume::survey::check(thrice.members(), &[]).map(drop),
        volume::survey::check_data(thrice.members(), |_| true).map(drop),
        volume::destroy(thrice.members(), &named).map(drop),
    ] {
        assert!(matches!(&refused, Err(VolumeError::Twice { .. })), "{refused:?}");
    }
    fs::copy(lab.path("m0"), lab.path("copy")).unwrap();
    let flaw = lab.flaw(&["m0", "m1", "copy"]);
    assert!(matches!(&flaw, Flaw::Copied { position: 1, .. }), "{flaw:?}");
    assert_eq!(flaw.class(), ErrorClass::Refused);
    lab.read(&["copy", "m1"]).expect("a copy in the place of the original is one");
}

#[test]
fn a_member_that_grew_or_shrank_is_refused() {
    let lab = Lab::with(2);
    let file = fs::OpenOptions::new().write(true).open(lab.path("m1")).unwrap();
    for size in [SIZE + 4096, SIZE - 4096, SIZE + 1, SIZE - 1, MIB + 64 * KIB] {
        file.set_len(size).unwrap();
        let flaw = lab.flaw(&["m0", "m1"]);
        assert!(
            matches!(&flaw, Flaw::Resized { member, actual, labelled: SIZE, .. } if *actual == size && member.ends_with("m1")),
            "{flaw:?}"
        );
    }
    assert_eq!(lab.flaw(&["m0", "m1"]).class(), ErrorClass::Refused);
}

#[test]
fn an_old_image_brought_back_is_refused_and_named_by_whoever_opens_checks_or_repairs() {
    let lab = Lab::with(3);
    let names = ["m0", "m1", "m2"];
    // As it was made, and after one more session: as old as can be, and as young.
    let earliest = fs::read(lab.path("m1")).unwrap();
    let mut images = vec![earliest.clone()];
    for text in [b"first", b"later"] {
        images.push(fs::read(lab.path("m1")).unwrap());
        lab.open(&names).unwrap().write_at(text, 0).unwrap();
    }
    let current = fs::read(lab.path("m1")).unwrap();
    for image in images {
        fs::write(lab.path("m1"), image).unwrap();
        let flaw = lab.flaw(&names);
        assert!(matches!(&flaw, Flaw::Older { member, newest: 5, .. } if member.ends_with("m1")), "{flaw:?}");
        assert_eq!(flaw.class(), ErrorClass::Refused);
        assert!(matches!(lab.open(&names), Err(VolumeError::Flaw(Flaw::Older { .. }))));
        let members = lab.spec(&names);
        assert!(matches!(
            volume::survey::check(members.members(), &[]),
            Err(VolumeError::Flaw(Flaw::Older { .. }))
        ));
        assert!(matches!(volume::repair(&members), Err(VolumeError::Flaw(Flaw::Older { .. }))));
        let shown = volume::survey::look(members.members()).unwrap();
        assert!(
            !shown.volumes[0].whole && shown.volumes[0].problem.as_ref().unwrap().contains("m1"),
            "{shown:?}"
        );
    }
    fs::write(lab.path("m1"), &current).unwrap();
    lab.open(&names).expect("the image of the present");

    let of = |image: &[u8], at: u64| image[at as usize..][..4096].to_vec();
    // Where only the old one is left nothing is made of it.
    for (at, other) in [(COPIES[0], COPIES[1]), (COPIES[1], COPIES[0])] {
        lab.put("m1", at, &of(&earliest, at));
        lab.put("m1", other, &[0; 4096]);
        assert!(matches!(volume::repair(&lab.spec(&names)), Err(VolumeError::Flaw(Flaw::Older { .. }))));
        assert!(matches!(lab.flaw(&names), Flaw::Older { .. }));
        fs::write(lab.path("m1"), &current).unwrap();
    }
}

/// A restore that broke off, from either end, of an older image of the member or of another's.
#[test]
fn a_member_of_which_a_part_is_of_another_time_or_volume_is_refused_by_whoever_opens_checks_or_repairs() {
    let lab = Lab::with(2);
    let names = ["m0", "m1"];
    let member = || fs::read(lab.path("m1")).unwrap();
    let mut others = vec![member()];
    for text in [b"first", b"later", b"third"] {
        lab.open(&names).unwrap().write_at(text, 0).unwrap();
        others.push(member());
    }
    let current = others.pop().unwrap();
    others.push(fs::read(lab.path("m0")).unwrap());
    lab.make("o", 2).unwrap();
    for _ in 0..2 {
        others.push(fs::read(lab.path("o1")).unwrap());
        // As many generations as the member has.
        (0..3).for_each(|_| lab.open(&["o0", "o1"]).unwrap().write_at(b"other", 0).unwrap());
    }
    for (other, number) in others.iter().zip(0..) {
        for cut in [8192, SIZE as usize - 4096, MIB as usize + 5000] {
            for (head, tail) in [(other, &current), (&current, other)] {
                let mixed = [&head[..cut], &tail[cut..]].concat();
                fs::write(lab.path("m1"), &mixed).unwrap();
                let members = lab.spec(&names);
                for error in [
                    lab.read(&names).unwrap_err(),
                    lab.open(&names).unwrap_err(),
                    volume::survey::check(members.members(), &[]).unwrap_err(),
                    volume::repair(&members).unwrap_err(),
                ] {
                    assert!(
                        matches!(&error, VolumeError::Flaw(Flaw::Mixed { member, .. }) if member.ends_with("m1")),
                        "{number}: {error:?}"
                    );
                    assert_eq!(error.class(), ErrorClass::Refused);
                }
                assert!(member() == mixed, "nothing was written");
            }
        }
    }
    fs::write(lab.path("m1"), &current).unwrap();
    lab.open(&names).expect("all of it is back");
}

#[test]
fn copies_of_a_volume_that_were_each_written_do_not_mix() {
    let lab = Lab::with(2);
    for name in ["m0", "m1"] {
        fs::copy(lab.path(name), lab.path(&format!("copy of {name}"))).unwrap();
    }
    lab.open(&["m0", "m1"]).unwrap().write_at(b"here", 0).unwrap();
    lab.open(&["copy of m0", "copy of m1"]).unwrap().write_at(b"and there", 0).unwrap();
    let flaw = lab.flaw(&["m0", "copy of m1"]);
    let Flaw::Apart { one, other, .. } = &flaw else { panic!("{flaw:?}") };
    let has = |ending: &str| [one, other].iter().any(|named| named.ends_with(ending));
    assert!(has("/m0") && has("/copy of m1"), "{flaw:?}");
    assert_eq!(flaw.class(), ErrorClass::Refused);
    lab.read(&["copy of m1", "copy of m0"]).expect("each copy is a volume");
}

#[test]
fn a_volume_that_is_written_is_said_to_be_open_until_it_is_closed_and_a_reader_says_nothing() {
    let lab = Lab::with(2);
    let names = ["m0", "m1"];
    let epochs = || {
        let shown = volume::survey::look(lab.spec(&names).members()).unwrap();
        let volume = &shown.volumes[0];
        (volume.members[0].epoch, volume.members[1].epoch, volume.clean)
    };
    let volume = lab.open(&names).unwrap();
    let mut bytes = [0; 5];
    volume.read_at(&mut bytes, 0).unwrap();
    volume.sync().unwrap();
    drop(volume);
    assert_eq!(epochs(), (1, 1, true), "what was opened and not written stays what it was");
    let volume = lab.open(&names).unwrap();
    volume.write_at(b"first", 0).unwrap();
    assert_eq!(epochs(), (2, 2, false));
    let reader = lab.read(&names).expect("not closed is no reason to refuse it");
    reader.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"first");
    drop(reader);
    assert_eq!(epochs(), (2, 2, false));
    drop(volume);
    assert_eq!(epochs(), (3, 3, true));
    let volume = lab.open(&names).unwrap();
    let mut queue = volume.queue(&volume::QueueOptions::default()).unwrap();
    queue.write(0, vec![7; 100_000]).unwrap();
    queue.wait().unwrap().unwrap().result.unwrap();
    assert_eq!(epochs(), (4, 4, false), "engines write past the volume, and not before it is open");
    drop((queue, volume));
    assert_eq!(epochs(), (5, 5, true));
}

/// Bits all over both copies (each single one is flipped where labels are read). What is flipped is told, the volume stays
/// readable by the other copy, and is not written until it is repaired.
#[test]
fn a_file_member_is_written_by_one_at_a_time_and_the_second_is_told_who_has_it() {
    let lab = Lab::with(2);
    let names = ["m0", "m1"];
    let paths: Vec<PathBuf> = names.map(|name| lab.path(name)).to_vec();
    let first = lab.open(&names).unwrap();
    first.write_at(&[1; 512], 0).unwrap();
    let refused = |attempt: Result<(), VolumeError>| {
        let error = attempt.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Refused, "{error}");
        let said = error.to_string();
        let me = format!("is being written by process {} (", std::process::id());
        assert!(said.contains("m0") && said.contains(&me), "{said}");
        assert!(error.hint().is_some());
    };
    refused(lab.open(&names).map(drop));
    refused(volume::repair(&lab.spec(&names)).map(drop));
    refused(volume::destroy(lab.spec(&names).members(), &paths).map(drop));
    let new = NewVolume { name: "another".to_owned(), chunk: CHUNK, ..NewVolume::default() };
    refused(volume::create(&lab.spec(&names), &new, &paths).map(drop));
    // A reader needs no lock, and its end does not release the writer's.
    drop(lab.read(&names).unwrap());
    refused(lab.open(&names).map(drop));
    first.write_at(&[2; 512], 0).unwrap();
    drop(first);
    drop(lab.open(&names).unwrap());
}

#[test]
fn a_flipped_bit_in_one_copy_is_told_survived_and_repaired() {
    let lab = Lab::with(1);
    for at in COPIES {
        let whole = lab.bytes("m0", at, 4096);
        for bit in (0..8 * 4096).step_by(509) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            lab.put("m0", at, &flipped);
            lab.read(&["m0"]).expect("the other copy is whole");
            let check = volume::survey::check(lab.spec(&["m0"]).members(), &[]).unwrap();
            assert!(!check.sound && check.problems.len() == 1, "bit {bit}: {check:?}");
            let error = lab.open(&["m0"]).unwrap_err();
            assert!(matches!(error, VolumeError::OneCopy { .. }), "bit {bit}: {error:?}");
        }
        let mended = volume::repair(&lab.spec(&["m0"])).unwrap();
        assert_eq!(mended.len(), 1);
        assert_eq!(lab.bytes("m0", at, 4096), whole, "the copy is as it was");
        lab.open(&["m0"]).expect("good as new");
    }
}

#[test]
fn a_label_lost_in_both_copies_is_told_from_one_that_never_was() {
    let lab = Lab::with(2);
    for at in COPIES {
        lab.put("m1", at + 100, b"!");
    }
    let flaw = lab.flaw(&["m0", "m1"]);
    assert!(matches!(&flaw, Flaw::Damaged { member, .. } if member.ends_with("m1")), "{flaw:?}");
    let found = volume::survey::look(lab.spec(&["m0", "m1"]).members()).unwrap();
    assert_eq!((found.volumes.len(), found.unreadable.len()), (1, 1));
    for at in COPIES {
        lab.put("m1", at, &[0; 4096]);
    }
    assert!(matches!(lab.flaw(&["m0", "m1"]), Flaw::Unlabelled { .. }));
}

#[test]
fn a_member_that_something_else_was_made_on_is_not_written() {
    let lab = Lab::with(2);
    lab.put("m1", 0, b"XFSB");
    let error = lab.open(&["m0", "m1"]).unwrap_err();
    assert!(
        matches!(&error, VolumeError::Overwritten { signature, .. } if signature.contains("xfs")),
        "{error:?}"
    );
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(volume::repair(&lab.spec(&["m0", "m1"])).is_err());
    let check = volume::survey::check(lab.spec(&["m0", "m1"]).members(), &[]).unwrap();
    assert!(check.problems[0].contains("xfs"), "{check:?}");
    lab.read(&["m0", "m1"]).expect("reading works");
}

/// A file system in the volume begins where the first member's data do.
#[test]
fn what_lies_in_the_volume_is_no_signature_of_a_member() {
    let lab = Lab::with(2);
    let volume = lab.open(&["m0", "m1"]).unwrap();
    volume.write_at(b"\x0d\xd0\x01\xc0", 0).unwrap();
    let near_the_end = volume.size() / 2 - 64 * KIB;
    for at in (0..volume.size()).filter(|at| at % (2 * CHUNK) > CHUNK || *at > near_the_end).step_by(1024) {
        volume.write_at(&0x00ba_b10c_u64.to_le_bytes(), at / 1024 * 1024).unwrap();
    }
    drop(volume);
    lab.open(&["m0", "m1"]).expect("the labels are whole and nothing lies beside them");
}

#[test]
fn members_are_written_by_others_only_if_they_are_given_up() {
    let lab = Lab::with(2);
    let member = DeviceSpec::Path(lab.path("m0"));
    let options = OpenOptions::writing().buffered();
    let refused = |spec: &DeviceSpec, options: &OpenOptions| match volume::open(spec, options) {
        Err(error) => assert_eq!(error.class(), ErrorClass::Refused, "{error}"),
        Ok(device) => panic!("{} may be written", device.spec()),
    };
    refused(&member, &options);
    refused(&lab.spec(&["m0", "m1"]), &options);
    let stripe = DeviceSpec::Stripe { chunk: CHUNK, members: vec![member.clone()] };
    refused(&stripe, &options);
    assert!(lab.make("m", 2).is_err(), "not even to make a volume of them");
    // Only the copy at the end is left.
    lab.put("m0", COPIES[0], &[0; 4096]);
    refused(&member, &options);
    let given_up = OpenOptions { destroy: vec![lab.path("m0"), lab.path("m1")], ..options };
    volume::open(&member, &given_up).expect("given up");
}

#[test]
fn destroyed_members_are_free_and_only_labelled_ones_are_destroyed() {
    let lab = Lab::with(2);
    let both = lab.spec(&["m0", "m1"]);
    let named: Vec<PathBuf> = ["m0", "m1"].map(|name| lab.path(name)).to_vec();
    let error = volume::destroy(both.members(), &named[..1]).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    lab.read(&["m0", "m1"]).expect("nothing was wiped");
    fs::write(lab.path("plain"), vec![1; SIZE as usize]).unwrap();
    let error = volume::destroy(&[DeviceSpec::Path(lab.path("plain"))], &[lab.path("plain")]).unwrap_err();
    assert!(matches!(error, VolumeError::Flaw(Flaw::Unlabelled { .. })), "{error:?}");
    volume::destroy(both.members(), &named).unwrap();
    assert!(matches!(lab.flaw(&["m0", "m1"]), Flaw::Unlabelled { .. }));
    volume::open(&DeviceSpec::Path(lab.path("m0")), &OpenOptions::writing().buffered()).expect("free");
    lab.make("m", 2).expect("and can be made again");
}

#[test]
fn what_cannot_be_a_volume_is_refused_before_anything_is_written() {
    let lab = Lab { folder: tempfile::tempdir().unwrap() };
    let create = |text: &str, name: &str, chunk| {
        let new = NewVolume { name: name.to_owned(), chunk, ..NewVolume::default() };
        volume::create(&DeviceSpec::parse(text).unwrap(), &new, &[])
    };
    let file = |name: &str, size| format!("volume:file:{}?size={size}", lab.path(name).display());
    // Data begin at 1 MiB, and the label at the end has 4 KiB.
    let least = MIB + CHUNK + 4 * KIB;
    for size in [512, MIB, least - 4 * KIB, least - 1] {
        let error = create(&file("a", size), "", CHUNK).unwrap_err();
        assert!(
            matches!(error, VolumeError::TooSmall { needed, .. } if needed == least),
            "{size}: {error:?}"
        );
    }
    create(&file("least", least), "", CHUNK).expect("one chunk fits");
    fs::remove_file(lab.path("least")).unwrap();
    assert!(matches!(create(&file("a", 4 * MIB), &"n".repeat(65), CHUNK), Err(VolumeError::Name { .. })));
    assert!(matches!(create(&file("a", 4 * MIB), "a\nb", CHUNK), Err(VolumeError::Name { .. })));
    let twice = format!("{0},file:{1}/a?size=4m", file("a", 4 * MIB), lab.folder.path().display());
    assert!(matches!(create(&twice, "", CHUNK), Err(VolumeError::Twice { .. })));
    fs::write(lab.path("thesis"), b"my thesis\n".repeat(400_000)).unwrap();
    let error = create(&format!("volume:{}", lab.path("thesis").display()), "", CHUNK).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    assert_eq!(names(lab.folder.path()), ["thesis"], "files that were made are gone again");
    create(&file("b", 4 * MIB), "", CHUNK).unwrap();
    let error = create(&file("b", 3 * MIB), "", CHUNK).unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Refused | ErrorClass::Invalid), "{error}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_lay_on_a_member_before_is_gone() {
    let lab = Lab { folder: tempfile::tempdir().unwrap() };
    let mut image = vec![0; SIZE as usize];
    image[..4].copy_from_slice(b"XFSB");
    let end = image.len();
    image[end - 512..][..8].copy_from_slice(b"EFI PART");
    fs::write(lab.path("m0"), &image).unwrap();
    let spec = lab.spec(&["m0"]);
    volume::create(&spec, &NewVolume::default(), &[lab.path("m0")]).unwrap();
    assert!(volume::survey::check(spec.members(), &[]).unwrap().sound);
    lab.open(&["m0"]).expect("nothing but the label");
}
