//! The drive against what is known of flash: amplification, the cliff, conservation, the map.

use measure::pattern::Rng;
use proptest::prelude::*;

use super::ftl::decay;
use super::*;
use crate::alone::{Load, Seen, run, series};

/// A small drive: 4 planes on 4 dies.
fn small() -> FlashSpec {
    toml::from_str(
        r#"
        channels = 2
        chips_per_channel = 1
        dies_per_chip = 2
        planes_per_die = 1
        blocks_per_plane = 128
        pages_per_block = 16
        page_bytes = "4k"
        over_provisioning = 0.28
        read_us = 50
        program_us = 200
        erase_us = 2000
        channel_bytes_per_s = 4e8
        write_buffer_bytes = "64k"
        link_bytes_per_s = 1e9
        queue_depth = 256
        "#,
    )
    .expect("the description is TOML")
}

fn load(reads: f64, depth: u32, ramp: u64, commands: u64) -> Load {
    Load { reads, random: true, block_bytes: 4096, align_bytes: 4096, share: 1.0, depth, ramp, commands }
}

fn seen(spec: &FlashSpec, load: &Load) -> Seen {
    spec.check("drive").expect("the description is valid");
    run(&mut spec.build(1), load, 7)
}

/// Pages programmed per page written by the host under uniform random writes, without time.
fn amplification(spec: &FlashSpec) -> f64 {
    let mut rng = Rng::new(3);
    let mut ftl = Ftl::new(spec, &mut rng, &|| false);
    let pages = spec.data_pages();
    let (mut programs, writes) = (0, 6 * pages);
    for written in 0..writes {
        let logical = rng.below(pages) as u32;
        let plane = ftl.choose(logical).expect("collection keeps room");
        ftl.write_to(logical, plane, Stream::New);
        while ftl.wants_collection(plane) {
            let block = ftl.collect(plane, &mut rng).expect("a block has pages to gain");
            for (page, logical) in ftl.valid_pages(block).collect::<Vec<(u32, u32)>>() {
                ftl.relocate(logical, page);
                programs += u64::from(written >= writes / 2);
            }
            ftl.erased(block);
        }
    }
    1.0 + programs as f64 / (writes - writes / 2) as f64
}

/// A share of spare pages in `blocks` blocks, beside the 6 that are open or in reserve (4 if collection is exclusive).
fn spare(share: f64, blocks: u32, gc: Collection) -> FlashSpec {
    let blocks_per_plane = blocks + if gc == Collection::Paced { 6 } else { 4 };
    let over_provisioning = (1.0 + share) * f64::from(blocks_per_plane) / f64::from(blocks) - 1.0;
    FlashSpec { over_provisioning, blocks_per_plane, gc, gc_start_free: 0.0, pages_per_block: 64, ..small() }
}

/// Greedy collection under uniform random writes; the known figures are from other simulators, with physical over logical pages,
/// less one, as the share of spare.
#[test]
fn greedy_amplification_is_that_of_other_simulators() {
    for (share, known) in [(0.10, 5.2), (0.12, 4.5), (0.15, 3.8), (0.20, 3.05), (0.28, 2.4), (0.50, 1.7)] {
        let spec = FlashSpec { channels: 1, dies_per_chip: 1, ..spare(share, 384, Collection::Exclusive) };
        let found = amplification(&spec);
        assert!((found / known - 1.0).abs() < 0.06, "spare {share}: {found:.2} against {known}");
    }
}

/// α/(α + W(−αe^−α)) for 470 GB of flash, against a published test of a card at four sizes in use.
#[test]
fn amplification_by_formula_matches_a_published_card() {
    for (gigabytes, mib_s) in [(130.0, 959.0), (200.0, 850.0), (260.0, 685.0), (360.0, 417.0)] {
        let alpha = 470.0 / gigabytes;
        let found = 960.0 * decay(alpha) / alpha;
        assert!((found / mib_s - 1.0_f64).abs() < 0.07, "{gigabytes} GB: {found:.0} against {mib_s} MiB/s");
    }
}

/// The cliff of the Cray paper's Fig. 1 (15 % spare): a drive that was written once takes random writes at full rate until they
/// equal its spare, then at about a fifth, which settles at 0.23; sequential overwriting stays near full rate.
#[test]
fn random_writes_slow_down_when_they_have_used_the_spare() {
    let timing = |spec| FlashSpec {
        channels: 1,
        state: Preconditioning::Full,
        program_us: 250.0,
        read_us: 25.0,
        ..spec
    };
    let spec = timing(spare(0.15, 256, Collection::Paced));
    let pages = spec.data_pages();
    let window = pages / 50;
    let random = Load { commands: window, ..load(0.0, 32, 0, 0) };
    let rates: Vec<f64> = series(&mut spec.build(1), &random, 2, 75).iter().map(|seen| seen.iops).collect();
    let slow = rates.iter().position(|rate| *rate < 0.6 * rates[0]).expect("the rate falls");
    let written = slow as f64 * window as f64 / pages as f64;
    assert!((0.09..=0.17).contains(&written), "full rate until {written:.2} of the drive is written");
    let settled = rates[50..].iter().sum::<f64>() / 25.0 / rates[0];
    assert!((0.19..=0.26).contains(&settled), "settles at {settled:.3}");
    let sequential = Load { random: false, ..random };
    let rates: Vec<f64> =
        series(&mut spec.build(1), &sequential, 2, 60).iter().map(|seen| seen.iops).collect();
    let settled = rates[20..].iter().sum::<f64>() / 40.0 / rates[0];
    assert!(settled > 0.85, "sequential overwriting settles at {settled:.3}");
}

#[test]
fn writes_of_a_drive_in_its_steady_state_do_not_drift() {
    let spec = FlashSpec { over_provisioning: 0.20, blocks_per_plane: 256, ..small() };
    let all = series(&mut spec.build(1), &load(0.0, 32, 1000, 4000), 2, 3);
    for seen in &all {
        let change = seen.write_amplification / all[2].write_amplification - 1.0;
        assert!(change.abs() < 0.12, "{all:?}");
    }
}

#[test]
fn trimmed_space_is_spare() {
    let spec = FlashSpec { state: Preconditioning::Full, ..small() };
    let random = Load { share: 0.5, ..load(0.0, 16, 10_000, 3000) };
    let without = run(&mut spec.build(1), &random, 2).write_amplification;
    let mut drive = spec.build(1);
    let limits = drive.limits();
    let mut effects = Effects::default();
    let half = limits.size_bytes / 2 / 4096 * 4096;
    let trim = Command { tag: 0, operation: HostOperation::Trim, offset: half, bytes: half as u32 };
    drive.submit(0, trim, &mut effects);
    assert_eq!(effects.completions.len(), 1);
    let with = run(&mut drive, &random, 2).write_amplification;
    assert!(with < 1.1 && without > 1.2, "{with:.2} with trim, {without:.2} without");
}

#[test]
fn small_sequential_writes_fill_pages_in_the_buffer() {
    let spec = FlashSpec { page_bytes: 16384, open_pages: 4, state: Preconditioning::Empty, ..small() };
    let sequential = Load { random: false, ..load(0.0, 8, 0, 8000) };
    let seen = seen(&spec, &sequential);
    assert!(seen.write_amplification < 1.5, "{seen:?}");
    let random = self::seen(&spec, &load(0.0, 8, 0, 4000));
    assert!(random.write_amplification > 3.5, "{random:?}");
}

#[test]
fn an_entry_of_the_map_that_is_not_in_memory_costs_a_read() {
    let one = load(1.0, 1, 0, 500);
    let spec = FlashSpec { state: Preconditioning::Full, ..small() };
    let cached = seen(&spec, &one);
    let missed = seen(&FlashSpec { mapping_cache_entries: 16, ..spec }, &one);
    let sector = 512.0 / 4e8 * 1e9;
    let extra = missed.mean_ns - cached.mean_ns;
    assert!((extra - 50_000.0 - sector).abs() < 1000.0, "{extra}");
}

/// With one command in the drive nothing waits: its time is the sum of its steps.
#[test]
fn a_read_alone_takes_the_sum_of_its_steps() {
    let spec = FlashSpec { command_ns: 700, controller_ns: 300, channel_command_ns: 200, ..small() };
    let seen = seen(&FlashSpec { state: Preconditioning::Full, ..spec }, &load(1.0, 1, 0, 100));
    let (channel, link) = (4096.0 / 4e8 * 1e9, 4096.0 / 1e9 * 1e9);
    assert!((seen.mean_ns - (700.0 + 300.0 + 200.0 + 50_000.0 + channel + link)).abs() < 2.0, "{seen:?}");
}

#[test]
fn a_flush_of_a_volatile_buffer_waits_for_its_programs() {
    for (volatile_cache, least) in [(true, 200_000), (false, 0)] {
        let mut drive = FlashSpec { volatile_cache, state: Preconditioning::Full, ..small() }.build(1);
        let mut effects = Effects::default();
        let write = Command { tag: 0, operation: HostOperation::Write, offset: 0, bytes: 4096 };
        drive.submit(0, write, &mut effects);
        let flush = Command { tag: 1, operation: HostOperation::Flush, offset: 0, bytes: 0 };
        drive.submit(0, flush, &mut effects);
        while let Some((at, token)) = effects.wakes.pop() {
            drive.wake(at, token, &mut effects);
        }
        let flushed = effects.completions.iter().find(|(_, tag)| *tag == 1).expect("the flush ends").0;
        let written = effects.completions.iter().find(|(_, tag)| *tag == 0).expect("the write ends").0;
        assert!(written < 50_000 && flushed >= least && flushed < least + 50_000, "{written} {flushed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let load = load(0.5, 8, 100, 2000);
    assert_eq!(seen(&small(), &load), seen(&small(), &load));
}

#[test]
fn a_description_that_cannot_be_names_its_key() {
    let check = |key: &str, change: fn(&mut FlashSpec)| {
        let mut spec = small();
        change(&mut spec);
        assert_eq!(spec.check("drive").expect_err(key).key, key);
    };
    check("drive.channels", |spec| spec.channels = 0);
    check("drive.page_bytes", |spec| spec.page_bytes = 1000);
    check("drive.max_command_bytes", |spec| spec.max_command_bytes = 512);
    check("drive.over_provisioning", |spec| spec.over_provisioning = 0.001);
    check("drive.gc_reserve_blocks", |spec| spec.gc_reserve_blocks = 1);
    check("drive.read_us", |spec| spec.read_us = f64::NAN);
    check("drive.link_bytes_per_s", |spec| spec.link_bytes_per_s = 0.0);
    check("drive.pages_per_block", |spec| (spec.blocks_per_plane, spec.pages_per_block) = (1 << 20, 1 << 15));
}

/// Commands of any kind in any order, on drives of several kinds.
fn commands() -> impl Strategy<Value = Vec<(u8, u64, u32)>> {
    prop::collection::vec((0u8..10, 0u64..600, 1u32..40), 1..300)
}

fn kinds() -> impl Strategy<Value = FlashSpec> {
    (0u32..3, 0u32..2, any::<[bool; 5]>()).prop_map(
        |(open_pages, buffer, [exclusive, fixed, chip, volatile, cache])| FlashSpec {
            blocks_per_plane: 16,
            planes_per_die: 2,
            over_provisioning: 0.9,
            open_pages: open_pages * 2,
            write_buffer_bytes: u64::from(buffer) * 16384,
            gc: if exclusive { Collection::Exclusive } else { Collection::Paced },
            placement: if fixed { Placement::Static } else { Placement::Dynamic },
            one_operation_per: if chip { Unit::Chip } else { Unit::Die },
            volatile_cache: volatile,
            mapping_cache_entries: if cache { 50 } else { 0 },
            mapping_entry_bytes: 64,
            ..small()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Each command ends exactly once and not before it came; then nothing is left in the drive, and each logical page is on
    /// at most one physical page.
    #[test]
    fn every_command_ends_once_and_leaves_nothing_behind(spec in kinds(), commands in commands()) {
        spec.check("drive").expect("the description is valid");
        let mut drive = spec.build(1);
        let mut effects = Effects::default();
        let mut wakes = std::collections::BTreeSet::new();
        let (mut now, mut ended, mut order) = (0, vec![0; commands.len()], 0u32);
        let most = drive.limits().size_bytes / 512;
        let mut step = |drive: &mut FlashDrive, effects: &mut Effects, wakes: &mut std::collections::BTreeSet<_>, until: Time| {
            loop {
                for (at, tag) in effects.completions.drain(..) {
                    assert!(at >= now, "tag {tag} ends at {at}, before {now}");
                    ended[tag as usize] += 1;
                }
                for (at, token) in effects.wakes.drain(..) {
                    assert!(at >= now);
                    order += 1;
                    wakes.insert((at, order, token));
                }
                if wakes.first().is_none_or(|(at, ..)| *at > until) {
                    break;
                }
                let (at, _, token) = wakes.pop_first().expect("it is not empty");
                now = at;
                drive.wake(now, token, effects);
            }
            now
        };
        for (tag, (kind, place, sectors)) in commands.iter().enumerate() {
            let operation = match kind {
                0..5 => HostOperation::Write,
                5..8 => HostOperation::Read,
                8 => HostOperation::Trim,
                _ => HostOperation::Flush,
            };
            let sectors = u64::from(*sectors).min(most - place);
            let bytes = if operation == HostOperation::Flush { 0 } else { sectors as u32 * 512 };
            let at = tag as Time * 20_000;
            step(&mut drive, &mut effects, &mut wakes, at);
            drive.submit(at, Command { tag: tag as u32, operation, offset: place * 512, bytes }, &mut effects);
        }
        // A page that waits for the rest of its data leaves with a flush.
        step(&mut drive, &mut effects, &mut wakes, Time::MAX);
        while !drive.open.is_empty() {
            drive.close_oldest(u64::MAX / 2, &mut effects);
            drive.start_touched(u64::MAX / 2, &mut effects);
        }
        step(&mut drive, &mut effects, &mut wakes, Time::MAX);
        prop_assert!(ended.iter().all(|times| *times == 1), "{ended:?}");
        prop_assert_eq!((drive.buffered, drive.buffered_operations), (0, 0));
        prop_assert_eq!(drive.operations.in_use(), 0);
        drive.ftl.verify();
    }
}

#[test]
fn filling_a_drive_ends_soon_after_it_is_told_to() {
    let pages = 200_000;
    for state in [Preconditioning::Full, Preconditioning::Steady] {
        let spec = FlashSpec {
            dies_per_chip: 1,
            blocks_per_plane: pages / 256,
            pages_per_block: 256,
            state,
            ..small()
        };
        let looks = std::cell::Cell::new(0);
        let filled = |most: u64| {
            looks.set(0);
            let stopped = || {
                looks.set(looks.get() + 1);
                looks.get() > most
            };
            let ftl = Ftl::new(&spec, &mut Rng::new(1), &stopped);
            (0..spec.data_pages() as u32).filter(|page| ftl.find(*page).is_some()).count()
        };
        assert_eq!(filled(u64::MAX), spec.data_pages() as usize);
        let all = looks.get();
        assert!(all >= 2 * u64::from(pages) / ftl::PAGES_BETWEEN_LOOKS as u64, "{state:?}: {all} looks");
        for most in 0..all {
            let pages = filled(most);
            assert!(pages <= most as usize * ftl::PAGES_BETWEEN_LOOKS, "{state:?}, told at {most}: {pages}");
            assert!(looks.get() <= most + 2, "{state:?}: goes on for {} looks after {most}", looks.get());
        }
    }
}
