//! A labelled volume in a world in which anything happens to its members, beside a plain model of what it must hold.
//!
//! Members are disks in memory ([`rig::disk`]). At each step chance writes, reads, syncs, closes the volume and opens it
//! again, keeps an image of a member, puts one back, or damages a label; and the power goes after any write or sync of
//! any of it, those of labels among them, so that what was not synced is there, lost or torn, sector by sector. What must
//! hold, always:
//!
//! - what was synced is read back, and of what was not, in each sector, one of the values that were written since;
//! - a volume none of whose members was put back opens, whatever the moment at which the power went;
//! - one of which some members were put back is what it was, or is refused with a word that names one of them, and is
//!   as it was when what belongs there is brought again;
//! - one of which a copy of a label rotted, was lost or was overwritten by another label is read as what it was and is not
//!   opened for writing, or is refused with a word that names the member.
//!
//! A member that is put back to a moment of the epoch that was under way when the power went is the one case that labels
//! do not tell ([`volume::Epoch`]); it is counted, and asked for nothing.
//!
//! `FLASHWRIGHT_TEST_SEED=…` has another run, `STEPS=…` a shorter or longer one.

mod checked;
#[path = "../rig/mod.rs"]
mod rig;
mod world;

use world::World;

/// Steps of all widths together.
const STEPS: u64 = 1_000_000;

fn steps() -> u64 {
    std::env::var("STEPS").ok().map_or(STEPS, |text| text.parse().expect("STEPS is a number"))
}

fn run(width: usize, share: u64) {
    let mut world = World::new(width, rig::seed().wrapping_mul(width as u64));
    for _ in 0..steps() * share / 10 {
        world.step();
    }
    println!("{width} members: {:?}", world.tally);
    world.tally.is_of_use(width);
}

#[test]
fn a_volume_of_one_member_in_a_world_of_faults_holds_what_the_model_holds() {
    run(1, 2);
}

#[test]
fn a_volume_of_two_members_in_a_world_of_faults_holds_what_the_model_holds() {
    run(2, 4);
}

#[test]
fn a_volume_of_four_members_in_a_world_of_faults_holds_what_the_model_holds() {
    run(4, 4);
}

/// The same for a volume with checksums, of which one member is at fault after a tenth of the steps.
fn run_checked(width: usize) {
    let mut world = checked::World::new(width, rig::seed().wrapping_mul(width as u64));
    let steps = steps() / 20;
    for step in 0..steps {
        if step == steps / 10 {
            world.let_fail();
        }
        world.step();
    }
    println!("{width} members with checksums: {:?}", world.tally);
    world.tally.is_of_use();
}

#[test]
fn a_volume_with_checksums_and_a_faulty_member_of_two_returns_what_was_written_or_an_error() {
    run_checked(2);
}

#[test]
fn a_volume_with_checksums_and_a_faulty_member_of_three_returns_what_was_written_or_an_error() {
    run_checked(3);
}
