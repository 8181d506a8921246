//! What a volume is made of, where its bytes lie, and what is refused.

mod rig;

use std::fs;
use std::sync::Arc;

use proptest::prelude::*;
use rig::{KIB, Loop, MIB, config, files, finish, open, pattern, raid0, written};
use storage::device::{Device, DeviceKind, ErrorClass, OpenOptions};
use storage::engine::{Engine, IoUring, Libaio, Op, Psync};

/// What RAID-0 would hold on each member, if the volume holds `contents`.
fn members_of(contents: &[u8], chunk: u64, width: u64) -> Vec<Vec<u8>> {
    let mut members = vec![vec![0; contents.len() / width as usize]; width as usize];
    for (byte, value) in contents.iter().enumerate() {
        let (member, offset) = raid0(chunk, width, byte as u64);
        members[member][offset as usize] = *value;
    }
    members
}

/// Writes through an engine in requests of `request` bytes.
fn write_all<E: Engine>(mut engine: E, contents: &[u8], request: usize) {
    let requests: Vec<&[u8]> = contents.chunks(request).collect();
    for (round, batch) in requests.chunks(engine.depth() as usize).enumerate() {
        for (slot, bytes) in (0..).zip(batch) {
            engine.buffer_mut(slot)[..bytes.len()].copy_from_slice(bytes);
            let number = round * engine.depth() as usize + slot as usize;
            engine.prepare(slot, Op::Write, (number * request) as u64, bytes.len() as u32);
        }
        assert!(finish(&mut engine).into_iter().flatten().all(|ending| ending.is_ok()));
    }
}

#[test]
fn members_hold_what_raid_0_would_put_there() {
    let (chunk, width) = (24 * KIB, 3);
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("stripe(chunk={chunk}):{}", files(folder.path(), width as usize, MIB));
    let volume = written(&spec, false).expect("buffered always works");
    assert_eq!(volume.size(), width * (MIB - MIB % chunk));
    let on_members = || {
        let read = |n| fs::read(folder.path().join(format!("member{n}"))).unwrap();
        (0..width).map(|n| read(n)[..(volume.size() / width) as usize].to_vec()).collect::<Vec<_>>()
    };
    // Requests within a chunk, of several chunks, and of no relation to them.
    for (seed, request) in [(1, 4 * KIB), (2, 128 * KIB), (3, 100 * KIB)] {
        let config = config(7, request);
        let contents = pattern(seed, volume.size() as usize);
        write_all(IoUring::new(Arc::clone(&volume), &config).unwrap(), &contents, request as usize);
        assert!(on_members() == members_of(&contents, chunk, width), "io_uring, requests of {request}");
        let contents = pattern(seed + 10, volume.size() as usize);
        write_all(Libaio::new(Arc::clone(&volume), &config).unwrap(), &contents, request as usize);
        assert!(on_members() == members_of(&contents, chunk, width), "libaio, requests of {request}");
        let contents = pattern(seed + 20, volume.size() as usize);
        write_all(Psync::new(Arc::clone(&volume), &config).unwrap(), &contents, request as usize);
        assert!(on_members() == members_of(&contents, chunk, width), "psync, requests of {request}");
    }
    let contents = pattern(99, volume.size() as usize);
    volume.write_at(&contents, 0).unwrap();
    assert!(on_members() == members_of(&contents, chunk, width), "the plain path");
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Write(u64, usize),
    Read(u64, usize),
    Discard(u64, usize),
}

fn steps(size: u64) -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..size, 1_usize..100_000);
    let inside = move |(at, length): (u64, usize)| (at, length.min((size - at) as usize));
    let step = prop_oneof![
        range().prop_map(inside).prop_map(|(at, length)| Step::Write(at, length)),
        range().prop_map(inside).prop_map(|(at, length)| Step::Read(at, length)),
        range().prop_map(inside).prop_map(|(at, length)| Step::Discard(at, length)),
    ];
    prop::collection::vec(step, 1..30)
}

/// Plays a history on a volume and on plain memory.
fn agrees(volume: &Arc<dyn Device>, steps: &[Step], mut through: impl Engine) {
    let mut model = vec![0_u8; volume.size() as usize];
    for (n, step) in steps.iter().enumerate() {
        match *step {
            Step::Write(at, length) => {
                let bytes = pattern(n as u64, length);
                model[at as usize..][..length].copy_from_slice(&bytes);
                through.buffer_mut(0)[..length].copy_from_slice(&bytes);
                through.prepare(0, Op::Write, at, length as u32);
            }
            Step::Read(at, length) => through.prepare(0, Op::Read, at, length as u32),
            Step::Discard(at, length) => {
                model[at as usize..][..length].fill(0);
                through.prepare(0, Op::Trim, at, length as u32);
            }
        }
        finish(&mut through).remove(0).expect("it came back").expect("it succeeds");
        if let Step::Read(at, length) = *step {
            assert!(through.buffer(0)[..length] == model[at as usize..][..length], "step {n}: {step:?}");
        }
    }
    let mut all = vec![0; model.len()];
    volume.read_at(&mut all, 0).expect("reads");
    assert!(all == model, "in the end the volume holds what plain memory does");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_volume_is_one_device_whatever_its_shape(
        shape in prop::sample::select(vec![
            "stripe(chunk=512):mem:80k,mem:80k,mem:80k",
            "stripe(chunk=4k):mem:128k,mem:64k",
            "stripe(chunk=10k):mem:60k,mem:64k,mem:70k,mem:60k",
            "stripe(chunk=4k):(stripe(chunk=12k):mem:60k,mem:60k),(stripe(chunk=1k):mem:64k,mem:64k)",
            "separate:mem:48k,mem:100k,mem:1k",
            "stripe:mem:192k",
        ]),
        engine in 0..3,
        steps in steps(100_000),
    ) {
        let volume = written(shape, false).expect("memory");
        prop_assert!(volume.size() >= 100_000, "{} has {}", shape, volume.size());
        let config = config(1, 100_000);
        match engine {
            0 => agrees(&volume, &steps, IoUring::new(Arc::clone(&volume), &config).unwrap()),
            1 => agrees(&volume, &steps, Libaio::new(Arc::clone(&volume), &config).unwrap()),
            _ => agrees(&volume, &steps, Psync::new(Arc::clone(&volume), &config).unwrap()),
        }
    }
}

#[test]
fn kinds_sizes_and_members_are_told() {
    let stripe = written("stripe(chunk=16k):mem:1m,mem:100k,mem:2m", false).unwrap();
    assert_eq!((stripe.kind(), stripe.size()), (DeviceKind::Stripe, 3 * 96 * KIB));
    assert_eq!(stripe.spec(), "stripe(chunk=16k):mem:1m,mem:100k,mem:2m");
    assert_eq!(stripe.members().len(), 3);
    assert!(stripe.is_writable() && !stripe.is_direct());
    let separate = written("separate:mem:1m,(stripe:mem:1m,mem:1m)", false).unwrap();
    assert_eq!((separate.kind(), separate.size()), (DeviceKind::Separate, 3 * MIB));
    assert_eq!(separate.members()[1].kind(), DeviceKind::Stripe);
    assert_eq!(storage::device::leaves(&separate).len(), 3);
}

/// Refused, with these words in the message, and nothing made.
fn refused(spec: &str, options: &OpenOptions, class: ErrorClass, words: &[&str]) {
    let error = open(spec, options).expect_err(spec);
    let said = error.to_string();
    assert_eq!(error.class(), class, "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    assert!(error.hint().is_some(), "{said}");
}

#[test]
fn a_member_that_does_not_fit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("small"), [0; 4096]).unwrap();
    fs::write(at("thesis"), "my thesis\n".repeat(10_000)).unwrap();
    fs::hard_link(at("small"), at("alias")).unwrap();
    let options = rig::writing(false);
    let invalid = ErrorClass::Invalid;
    let (small, alias, thesis) = (at("small"), at("alias"), at("thesis"));
    refused(&format!("stripe:mem:1m,{small}"), &options, invalid, &["small", "4 KiB", "64 KiB"]);
    refused(&format!("separate:{small},{alias}"), &options, invalid, &["alias", "twice"]);
    refused(&format!("separate:{small},mem:1m,{small}"), &options, invalid, &["small", "twice"]);
    refused(&format!("stripe(chunk=4k):{small},{}", at("none")), &options, invalid, &["none", "no such"]);
    refused(
        &format!("stripe(chunk=4k):{small},{thesis}"),
        &options,
        ErrorClass::Refused,
        &["thesis", "destroy"],
    );
    let given_up = OpenOptions { destroy: vec![thesis.clone().into()], ..options };
    open(&format!("stripe(chunk=4k):{small},{thesis}"), &given_up).expect("its contents were given up");
}

#[test]
fn files_that_were_made_in_vain_are_gone_again() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("stripe:{},/no/such/device", files(folder.path(), 3, MIB));
    open(&spec, &rig::writing(false)).expect_err("one member is missing");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let spec = format!("stripe:{}", files(folder.path(), 3, MIB));
    drop(open(&spec, &rig::writing(false)).expect("can be made"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn reading_what_no_member_ever_wrote_is_refused_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("stripe(chunk=64k):{}", files(folder.path(), 2, MIB));
    let volume = written(&spec, false).unwrap();
    volume.write_at(&pattern(1, 64 * KIB as usize), 0).unwrap();
    volume.sync_data().unwrap();
    let reading = |end| OpenOptions { direct: false, region: Some(0..end), ..OpenOptions::default() };
    match open(&spec, &reading(128 * KIB)) {
        Err(error) => {
            assert_eq!(error.class(), ErrorClass::Refused);
            assert!(error.to_string().contains("member1"), "{error}");
            open(&spec, &reading(64 * KIB)).expect("the first chunk was written");
        }
        Ok(_) => eprintln!("SKIP unwritten extents: this file system does not tell them"),
    }
}

#[test]
fn every_block_device_of_a_volume_is_claimed_and_a_signature_on_one_refuses_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(loops) = Loop::several(folder.path(), 2, 32 * MIB) else { return };
    let spec = format!("separate:{},{}", loops[0].path, loops[1].path);
    let volume = open(&spec, &rig::writing(true)).expect("blank devices");
    let second = open(&loops[1].path, &rig::writing(true)).expect_err("is claimed");
    assert_eq!(second.class(), ErrorClass::Refused);
    drop(volume);
    if let Err(reason) = rig::run("mkfs.ext4", &["-q", "-F", &loops[1].path]) {
        return eprintln!("SKIP signatures: {reason}");
    }
    refused(&spec, &rig::writing(true), ErrorClass::Refused, &[&loops[1].path, "ext4"]);
    let given_up = OpenOptions { destroy: vec![loops[1].path.clone().into()], ..rig::writing(true) };
    open(&spec, &given_up).expect("its contents were given up");
}

#[test]
fn chunks_that_cut_a_block_are_refused_and_blocks_are_those_of_the_coarsest_member() {
    let folder = tempfile::tempdir().unwrap();
    let images: Vec<_> = (0..2).map(|n| folder.path().join(format!("image{n}"))).collect();
    for image in &images {
        fs::File::create(image).unwrap().set_len(MIB).unwrap();
    }
    let Some(fine) = Loop::over(&images[0], &[]) else { return };
    let Some(coarse) = Loop::over(&images[1], &["--sector-size", "4096"]) else { return };
    let spec = |chunk: &str| format!("stripe(chunk={chunk}):{},{}", fine.path, coarse.path);
    let volume = open(&spec("8k"), &rig::writing(true)).expect("blank devices");
    assert_eq!(volume.geometry().logical_block, 4096);
    drop(volume);
    refused(&spec("2k"), &rig::writing(true), ErrorClass::Invalid, &["chunk=2k", "4096", &coarse.path]);
}
