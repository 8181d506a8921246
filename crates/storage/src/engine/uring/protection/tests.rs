//! Rings of commands to a drive that makes and checks protection information itself ([`super::super::controller`]).

use super::super::commands::IoUringCmd;
use super::super::controller::{
    APPLICATION_CHECK, Controller, GUARD_CHECK, REFERENCE_CHECK, node, tuple, tuple_range,
};
use super::*;
use crate::device::{Guard, ProtectionAction, ProtectionFormat};
use crate::engine::{Engine, Tag};
use crate::kernel::Linux;
use crate::uring_abi::{Params, SETUP_CQE32, SETUP_SQE128};

type Ring = IoUringCmd<Controller>;

const ALL: TagChecks = TagChecks { guard: true, application: true, reference: true };
/// Blocks of a request, and requests in flight.
const BLOCKS: u32 = 3;
const DEPTH: u32 = 4;

/// A namespace's metadata: (type of protection or 0, guard, whether it comes first, bytes beside it).
fn metadata(
    (kind, guard, is_first, more): (u8, Guard, bool, u32),
    is_interleaved: bool,
    action: ProtectionAction,
) -> BlockMetadata {
    let protection = (kind > 0).then_some(ProtectionFormat { kind, is_first, guard });
    let tuple = if kind > 0 { guard.tuple_bytes() as u32 } else { 0 };
    let is_only = more == 0 && kind > 0;
    let transfer = match is_interleaved {
        _ if is_only && action == ProtectionAction::Controller => MetadataTransfer::None,
        true => MetadataTransfer::Interleaved,
        false => MetadataTransfer::Separate,
    };
    BlockMetadata { data_bytes: 512, bytes: tuple + more, transfer, action, protection }
}

fn config(of: BlockMetadata, checks: TagChecks) -> EngineConfig {
    let tags = Tags { application: 0x0888, mask: 0xffff, checks };
    EngineConfig {
        depth: DEPTH,
        slot_bytes: (BLOCKS * of.block_bytes()) as usize,
        protection: Some(Protection { tags, metadata_bytes: None }),
        ..EngineConfig::default()
    }
}

/// Whether the kernel sets up a ring with entries as long as commands need, and nothing else.
fn has_long_entries() -> bool {
    let mut params = Params { flags: SETUP_SQE128 | SETUP_CQE32, ..Params::default() };
    Linux.io_uring_setup(8, &mut params).is_ok()
}

/// A ring of commands to a drive. None, said aloud, where the kernel has no ring with such entries.
fn ring(controller: &Controller, of: BlockMetadata, config: &EngineConfig) -> Option<Ring> {
    match IoUringCmd::of_commands_with_kernel(controller.clone(), node(Some(of)), config) {
        Ok(engine) => Some(engine),
        Err(error) if !has_long_entries() => {
            eprintln!("SKIPPED: no ring of commands: {}", error.source);
            None
        }
        Err(error) => panic!("{}", error.source),
    }
}

/// A ring to a new drive.
fn open(of: BlockMetadata, checks: TagChecks) -> Option<(Ring, Controller)> {
    let controller = Controller::new(of);
    Some((ring(&controller, of, &config(of, checks))?, controller))
}

/// Makes the same request in each slot, one behind the other from the namespace's beginning; how they ended, by slot.
fn all(engine: &mut Ring, op: Op) -> Vec<Result<(), RequestFailure>> {
    let length = engine.buffer(0).len() as u32;
    for slot in 0..DEPTH {
        engine.prepare(slot, op, u64::from(slot * length), length);
    }
    let mut endings: Vec<Option<Result<(), RequestFailure>>> = (0..DEPTH).map(|_| None).collect();
    while engine.in_flight() > 0 {
        engine.submit(1, None).expect("is handed over");
        engine.reap(|slot, result| endings[slot as usize] = Some(result));
    }
    endings.into_iter().map(|ending| ending.expect("comes back")).collect()
}

/// Fills the slots with what looks like data, the same for a seed; returns it.
fn fill(engine: &mut Ring, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..DEPTH)
        .map(|slot| {
            let buffer = engine.buffer_mut(slot);
            buffer.fill_with(&mut byte);
            buffer.to_vec()
        })
        .collect()
}

/// What of two transfers must be the same: the data, for the metadata has become protection information.
fn data_of(of: BlockMetadata, transfers: &[u8]) -> Vec<u8> {
    let blocks = transfers.chunks_exact(of.block_bytes() as usize);
    blocks.flat_map(|block| &block[..of.data_bytes as usize]).copied().collect()
}

/// Every format: types, guards, places of the tuple, with and without other metadata, interleaved and apart.
fn formats() -> impl Iterator<Item = ((u8, Guard, bool, u32), bool)> {
    let kinds =
        [1, 2, 3].into_iter().flat_map(|kind| [Guard::Bits16, Guard::Bits64].map(|guard| (kind, guard)));
    let places = kinds.flat_map(|of| [(of, false), (of, true)]).flat_map(|of| [(of, 0), (of, 5)]);
    places.flat_map(|(((kind, guard), is_first), more)| {
        [false, true].map(|is_interleaved| ((kind, guard, is_first, more), is_interleaved))
    })
}

#[test]
fn what_is_written_with_tags_is_read_back_with_them_in_every_format() {
    for ((kind, guard, is_first, more), is_interleaved) in formats() {
        let checks = TagChecks { reference: kind != 3, ..ALL };
        for action in [ProtectionAction::Host, ProtectionAction::Controller] {
            let of = metadata((kind, guard, is_first, more), is_interleaved, action);
            let Some((mut engine, controller)) = open(of, checks) else { return };
            let written = fill(&mut engine, u64::from(more) + u64::from(kind));
            for ending in all(&mut engine, Op::Write) {
                ending.unwrap_or_else(|failure| panic!("{of:?}: {failure:?}"));
            }
            let stored = controller.blocks();
            assert_eq!(stored.len() as u32, DEPTH * BLOCKS);
            for (number, (data, with)) in &stored {
                let format = of.protection.expect("has some");
                let reference = if kind == 3 { 0 } else { *number };
                let expected = tuple(format, data, with, (0x0888, reference));
                assert_eq!(with[tuple_range(format, with)], expected, "{of:?}, block {number}");
            }
            (0..DEPTH).for_each(|slot| engine.buffer_mut(slot).fill(0));
            for (slot, ending) in all(&mut engine, Op::Read).into_iter().enumerate() {
                ending.unwrap_or_else(|failure| panic!("{of:?}: {failure:?}"));
                assert_eq!(data_of(of, engine.buffer(slot as u32)), data_of(of, &written[slot]), "{of:?}");
            }
            assert!(controller.refusals().is_empty());
            let by = if action == ProtectionAction::Host { "host" } else { "controller" };
            let said = engine.features().join("; ");
            assert!(said.contains(&format!("type {kind} by the {by}, which checks GUARD,APPTAG")), "{said}");
        }
    }
}

#[test]
fn a_tag_that_is_spoilt_on_the_drive_is_found_by_the_drive_and_here_where_the_drive_overlooks_it() {
    let checks = |tag| TagChecks {
        guard: tag == Tag::Guard,
        application: tag == Tag::Application,
        reference: tag == Tag::Reference,
    };
    let tags = [
        (Tag::Guard, 0, GUARD_CHECK),
        (Tag::Application, 2, APPLICATION_CHECK),
        (Tag::Reference, 5, REFERENCE_CHECK),
    ];
    for (tag, at, status) in tags {
        for is_interleaved in [false, true] {
            let of = metadata((1, Guard::Bits16, false, 0), is_interleaved, ProtectionAction::Host);
            for (checks, is_blind) in [(ALL, false), (ALL, true), (checks(tag), true)] {
                let Some((mut engine, controller)) = open(of, checks) else { return };
                fill(&mut engine, 7);
                all(&mut engine, Op::Write).into_iter().for_each(|ending| ending.expect("is written"));
                // The second block of the second request.
                let block = u64::from(BLOCKS) + 1;
                controller.spoil(block, at);
                controller.overlook(is_blind);
                let mut endings = all(&mut engine, Op::Read);
                let failure = endings.remove(1).expect_err("one tag is wrong");
                endings.into_iter().for_each(|ending| ending.expect("the others are right"));
                let RequestError::Os(error) = &failure.cause else { panic!("{failure:?}") };
                let found = error.get_ref().and_then(|error| error.downcast_ref::<TagMismatch>());
                if !is_blind {
                    assert_eq!((found, controller.refusals()), (None, vec![status]));
                    continue;
                }
                let wrong = found.unwrap_or_else(|| panic!("{failure:?}"));
                let offset = block * u64::from(of.block_bytes());
                assert_eq!((wrong.tag, wrong.block, wrong.offset), (tag, block, offset));
                assert_ne!(wrong.expected, wrong.found);
                let said = error.to_string();
                assert!(said.contains(&format!("at offset {offset}: the ")), "{said}");
                let unchecked = ring(&controller.copy(), of, &config(of, TagChecks::default()));
                let Some(mut engine) = unchecked else { return };
                all(&mut engine, Op::Read).into_iter().for_each(|ending| ending.expect("nothing is checked"));
            }
        }
    }
}

#[test]
fn what_was_never_written_passes_and_another_applications_blocks_do_not() {
    let of = metadata((1, Guard::Bits64, false, 4), true, ProtectionAction::Host);
    let Some((mut engine, controller)) = open(of, ALL) else { return };
    all(&mut engine, Op::Read).into_iter().for_each(|ending| ending.expect("has tags that say so"));
    fill(&mut engine, 3);
    all(&mut engine, Op::Write).into_iter().for_each(|ending| ending.expect("is written"));
    let checks = TagChecks { application: true, ..TagChecks::default() };
    let tags = Tags { application: 0x0889, mask: 0x00ff, checks };
    let asked =
        EngineConfig { protection: Some(Protection { tags, metadata_bytes: None }), ..config(of, ALL) };
    controller.overlook(true);
    let Some(mut engine) = ring(&controller.copy(), of, &asked) else { return };
    for ending in all(&mut engine, Op::Read) {
        let said = ending.map_err(|failure| failure.cause.to_string()).expect_err("is another's");
        assert!(said.contains("the application tag is 0x88, and 0x89 was expected"), "{said}");
    }
}

#[test]
fn metadata_without_protection_information_comes_back_as_it_was() {
    let of = metadata((0, Guard::Bits16, false, 16), true, ProtectionAction::Controller);
    let Some((mut engine, _)) = open(of, TagChecks::default()) else { return };
    let written = fill(&mut engine, 1);
    all(&mut engine, Op::Write).into_iter().for_each(|ending| ending.expect("is written"));
    (0..DEPTH).for_each(|slot| engine.buffer_mut(slot).fill(0));
    all(&mut engine, Op::Read).into_iter().for_each(|ending| ending.expect("is read"));
    (0..DEPTH).for_each(|slot| assert_eq!(engine.buffer(slot), written[slot as usize]));
    assert!(engine.features().contains(&"16 bytes of metadata in each block".to_owned()));
}

#[test]
fn metadata_beside_the_data_is_zeros_but_for_the_tags_whatever_its_slot_has_read_before() {
    for (kind, action) in
        [(0, ProtectionAction::Controller), (1, ProtectionAction::Controller), (1, ProtectionAction::Host)]
    {
        let of = metadata((kind, Guard::Bits16, false, 24), false, action);
        let Some((mut engine, controller)) = open(of, TagChecks::default()) else { return };
        // The metadata of what was never written is ones.
        all(&mut engine, Op::Read).into_iter().for_each(|ending| ending.expect("is read"));
        fill(&mut engine, 5);
        all(&mut engine, Op::Write).into_iter().for_each(|ending| ending.expect("is written"));
        for (number, (_, with)) in controller.blocks() {
            assert_eq!(with[..24], [0; 24], "{of:?}, block {number}");
        }
    }
}

#[test]
fn a_job_and_a_namespace_that_do_not_agree_about_metadata_are_refused() {
    let host = ProtectionAction::Host;
    let of = |of: Option<BlockMetadata>, change: fn(EngineConfig) -> EngineConfig| {
        let any = metadata((1, Guard::Bits16, false, 0), false, host);
        let asked = change(config(of.unwrap_or(any), ALL));
        let error = IoUringCmd::of_commands_with_kernel(Linux, node(of), &asked).expect_err("is refused");
        error.misfit().cloned().unwrap_or_else(|| panic!("{error:?}"))
    };
    let same = |config| config;
    let protected = Some(metadata((1, Guard::Bits16, false, 0), false, host));
    let silent = of(protected, |config| EngineConfig { protection: None, ..config });
    assert!(matches!(silent, Misfit::Metadata { .. }) && silent.hint().contains("pi_act"), "{silent}");
    assert!(matches!(of(None, same), Misfit::NoMetadata { .. }));
    let plain = metadata((0, Guard::Bits16, false, 8), false, host);
    assert!(matches!(of(Some(plain), same), Misfit::NoProtection { .. }));
    let uncounted = metadata((3, Guard::Bits16, false, 0), false, host);
    assert!(matches!(of(Some(uncounted), same), Misfit::NoReferences { .. }));
    let short = of(protected, |config| {
        let protection = config.protection.map(|of| Protection { metadata_bytes: Some(23), ..of });
        EngineConfig { protection, ..config }
    });
    assert!(matches!(short, Misfit::ShortMetadata { given: 23, needed: 24, .. }), "{short}");
}
