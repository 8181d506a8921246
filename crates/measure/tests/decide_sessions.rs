//! Two sessions compared: equal ones do not differ, and a change against the reference is found.

use measure::decide::Rules;
use measure::decide::sessions::{Block, ShiftVerdict, Tau, compare, estimate_tau};
use measure::pattern::Rng;
use measure::simulation::sessions::{called, session};
use measure::stats::Direction;

/// What all figures follow from, so that the tests cannot fail by chance.
const SEED: u64 = 20_261_123;

/// The part of pairs of sessions in which any setting but the reference is called better or worse; and the part in
/// which the one that is `ratio` times better in the second is called better.
fn called_different(ratio: f64, passes: usize, tau: &Tau, repetitions: u64) -> (f64, f64) {
    let all: Vec<[bool; 2]> =
        (0..repetitions).map(|n| called(ratio, passes, tau, SEED ^ (n << 20))).collect();
    let part = |which: usize| all.iter().filter(|called| called[which]).count() as f64 / repetitions as f64;
    (part(0), part(1))
}

#[test]
fn two_sessions_of_the_same_settings_do_not_differ_and_without_tau_they_seem_to() {
    // A default sweep keeps five passes.
    for passes in [5, 12] {
        let (any, _) = called_different(1.0, passes, &Tau::default(), 300);
        assert!(any <= 0.05, "{passes} passes: {any}");
    }
    let (without, _) = called_different(1.0, 12, &Tau { sd: 0.0, freedom: None, sessions: 0 }, 300);
    assert!(without >= 0.08, "{without}");
    let (_, right) = called_different(1.2, 12, &Tau::default(), 60);
    assert!(right >= 0.9, "{right}");
}

#[test]
fn a_level_that_moves_as_a_whole_is_no_difference() {
    let mut random = Rng::new(SEED);
    let first = session(&[1.0; 4], 12, 0.0, &mut random);
    let second: Vec<Block> =
        first.iter().map(|block| block.iter().map(|(i, figure)| (*i, 1.5 * figure)).collect()).collect();
    for shift in &compare(4, 0, [&first, &second], &Rules::default(), &Tau::default(), 3)[1..] {
        let bounds = shift.bounds.expect("twelve blocks have an interval");
        assert!((bounds.ratio - 1.0).abs() < 1e-9, "{shift:?}");
        assert!(matches!(shift.verdict, ShiftVerdict::Equivalent | ShiftVerdict::Undecided), "{shift:?}");
    }
}

#[test]
fn of_latencies_a_ratio_below_one_is_better() {
    let mut random = Rng::new(SEED);
    let first = session(&[1.0; 4], 12, 0.0, &mut random);
    let second = session(&[1.0, 0.7, 1.0, 1.0], 12, 0.0, &mut random);
    let rules = Rules { direction: Direction::LowerIsBetter, ..Rules::default() };
    let shifts = compare(4, 0, [&first, &second], &rules, &Tau::default(), 3);
    assert_eq!(shifts[1].verdict, ShiftVerdict::Better);
    let bounds = shifts[1].bounds.expect("twelve blocks have an interval");
    assert!(bounds.low < 0.7 && bounds.high > 0.7 && bounds.high < 1.0, "{bounds:?}");
    assert_eq!(shifts[0].verdict, ShiftVerdict::NotEnoughData, "the reference has no contrast");
}

#[test]
fn tau_is_estimated_from_three_sessions_or_more() {
    let sessions = |count: usize, sd: f64| -> Vec<Vec<(usize, usize, Vec<Block>)>> {
        let mut random = Rng::new(SEED + count as u64);
        (0..count).map(|_| vec![(4, 0, session(&[1.0; 4], 12, sd, &mut random))]).collect()
    };
    assert_eq!(estimate_tau(&sessions(2, 0.05), &Rules::default()), None);
    // A contrast of two levels moves by √2 times as much as a level.
    let tau = estimate_tau(&sessions(40, 0.06), &Rules::default()).expect("forty sessions");
    assert!((0.065..0.105).contains(&tau.sd), "{tau:?}");
    assert_eq!((tau.sessions, tau.freedom), (40, Some(41.0)));
    let tau = estimate_tau(&sessions(3, 0.0), &Rules::default()).expect("three sessions");
    assert!(tau.sd >= 0.02 / 2f64.sqrt() - 1e-9, "never far below the default: {tau:?}");
}
