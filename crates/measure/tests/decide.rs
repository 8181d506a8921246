//! Races whose answer is known: synthetic figures, missing runs, replay, and agreement of interval and verdict.

use measure::decide::{Answer, Decision, Outcome, Race, Rules, Standing};
use measure::stats::Direction;

/// Numbers that look random, the same on every machine.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal: the sum of twelve uniform numbers.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// One block of the living settings of a race: a level for the block, and noise of `sd` for each run.
fn block(race: &Race, levels: &[f64], sd: f64, noise: &mut Noise) -> Vec<(usize, f64)> {
    let machine = 0.3 * noise.normal();
    let mut order: Vec<usize> = race.alive().to_vec();
    for i in (1..order.len()).rev() {
        order.swap(i, (noise.uniform() * (i + 1) as f64) as usize);
    }
    order.into_iter().map(|i| (i, levels[i] * (machine + sd * noise.normal()).exp())).collect()
}

fn run(levels: &[f64], sd: f64, rules: Rules, most: usize, seed: u64) -> Race {
    let mut race = Race::new(levels.len(), rules);
    let mut noise = Noise(seed);
    while race.decided().is_none() && race.blocks() < most {
        let runs = block(&race, levels, sd, &mut noise);
        race.block(&runs);
    }
    race
}

#[test]
fn the_best_of_four_is_found_although_blocks_move_far_more_than_settings_differ() {
    let race = run(&[1e9, 1.2e9, 1e9, 1e9], 0.05, Rules::default(), 60, 1);
    let outcome = race.outcome();
    let Answer::Better { winner, gain } = outcome.answer else { panic!("{:?}", outcome.answer) };
    let gain = gain.expect("all settings ran");
    assert_eq!((winner, race.decided()), (1, Some(Decision::Better)));
    assert!(gain.bounds.low > 1.0 && gain.bounds.low < 1.2 && gain.bounds.high > 1.2, "{gain:?}");
    assert_eq!(outcome.recommended(), Some(1));
}

#[test]
fn equal_settings_are_equivalent_and_the_cheapest_is_recommended() {
    let race = run(&[1e9; 4], 0.03, Rules::default(), 100, 2);
    let outcome = race.outcome();
    let Answer::Equivalent { reference, within } = outcome.answer else { panic!("{:?}", outcome.answer) };
    let within = within.expect("certificates have intervals");
    assert_eq!((reference, outcome.recommended()), (0, Some(0)));
    assert!(within.low >= 1.0 / 1.05 && within.high <= 1.05, "{within:?}");
}

#[test]
fn wide_noise_stays_undecided_and_says_how_large_a_difference_it_may_hide() {
    let race = run(&[1e9; 3], 0.2, Rules::default(), 10, 3);
    let Answer::Undecided { could_be, more_blocks, .. } = race.answer() else { panic!() };
    assert!(could_be.expect("an interval exists after ten blocks") > 1.05);
    let more = more_blocks.expect("ten blocks suffice for a forecast");
    assert!(more.low <= more.likely && more.likely <= more.high, "{more:?}");
}

#[test]
fn the_cheapest_suffices_where_no_other_is_better_although_how_much_worse_they_are_is_open() {
    // The third is so noisy that it is neither dropped nor certified; but it is far from being better.
    let mut race = Race::new(3, Rules::default());
    let mut noise = Noise(11);
    for _ in 0..9 {
        let mut runs = block(&race, &[1e9, 0.98e9, 0.92e9], 0.01, &mut noise);
        let rough = (0.08 * noise.normal()).exp();
        runs.iter_mut().filter(|run| run.0 == 2).for_each(|run| run.1 *= rough);
        race.block(&runs);
    }
    let outcome = race.outcome();
    let Answer::Sufficient { reference: 0, at_most, .. } = outcome.answer else {
        panic!("{:?}", outcome.answer)
    };
    assert!((1.0..=1.05).contains(&at_most), "{at_most}");
    assert_eq!((outcome.recommended(), race.decided()), (Some(0), None), "more blocks may tell the rest");
    assert_eq!(outcome.settings[2].standing, Standing::Alive);
    // As dear as the others and as good, it would not do: it might be better by more.
    let could_be_better = run(&[1e9; 3], 0.1, Rules::default(), 8, 3).answer();
    assert!(matches!(could_be_better, Answer::Undecided { .. }), "{could_be_better:?}");
}

#[test]
fn of_settings_that_suffice_the_cheapest_is_recommended_and_not_the_one_with_the_highest_estimate() {
    // The first is so noisy that it may not be dropped; it does not suffice.
    let recommended = (0..60).filter_map(|seed| {
        let mut race = Race::new(5, Rules::default());
        let mut noise = Noise(seed);
        for _ in 0..9 {
            let mut runs = block(&race, &[0.96e9, 1e9, 1e9, 1e9, 1.003e9], 0.004, &mut noise);
            let rough = (0.03 * noise.normal()).exp();
            runs.iter_mut().filter(|run| run.0 == 0).for_each(|run| run.1 *= rough);
            race.block(&runs);
        }
        match race.answer() {
            Answer::Sufficient { reference, .. } => Some(reference),
            _ => None,
        }
    });
    let recommended: Vec<usize> = recommended.collect();
    let of_second = recommended.iter().filter(|setting| **setting == 1).count();
    assert!(of_second > 5 && of_second > recommended.len() * 9 / 10, "{recommended:?}");
}

#[test]
fn of_two_settings_the_interval_and_the_words_agree_with_the_answer() {
    let mut seen = 0;
    for seed in 0..60 {
        let race = run(&[1e9, 1e9], 0.03, Rules::default(), 9, seed);
        let outcome = race.outcome();
        let Answer::Sufficient { reference, at_most, .. } = outcome.answer else { continue };
        seen += 1;
        let of = outcome.b_by_a(reference, 1 - reference).expect("there are nine blocks");
        assert!(of.high <= at_most && of.low <= of.ratio && of.ratio <= of.high, "{of:?}, at most {at_most}");
        let turned = outcome.b_by_a(1 - reference, reference).expect("the same");
        assert!((turned.low - of.high.recip()).abs() < 1e-12, "{turned:?} {of:?}");
        let words = outcome.words_of_two(["A", "B"]).expect("both have figures");
        let other = ["A", "B"][1 - reference];
        assert!(words.starts_with(&format!("undecided: {other} could be better by at most ")), "{words}");
    }
    assert!(seen > 5, "{seen}");
}

#[test]
fn nothing_is_sufficient_before_the_least_number_of_blocks() {
    let race = run(&[1e9, 0.99e9, 0.98e9, 0.97e9], 0.0005, Rules::default(), 3, 12);
    assert!(matches!(race.answer(), Answer::Undecided { .. }), "{:?}", race.answer());
}

#[test]
fn of_latencies_the_lower_is_better() {
    let rules = Rules { direction: Direction::LowerIsBetter, ..Rules::default() };
    let race = run(&[1000.0, 800.0], 0.03, rules, 60, 4);
    let Answer::Better { winner: 1, gain: Some(gain) } = race.answer() else { panic!("{:?}", race.answer()) };
    assert!(gain.bounds.low < 1.25 && gain.bounds.high > 1.25, "{gain:?}");
}

#[test]
fn the_same_blocks_give_the_same_race() {
    let levels = [1e9, 1.05e9, 0.9e9, 1e9, 1.02e9, 0.5e9, 1e9, 1e9, 1e9, 1e9];
    let (mut once, mut blocks, mut noise) = (Race::new(10, Rules::default()), Vec::new(), Noise(5));
    for _ in 0..30 {
        let runs = block(&once, &levels, 0.08, &mut noise);
        once.block(&runs);
        blocks.push(runs);
    }
    let mut replayed = Race::new(10, Rules::default());
    blocks.iter().for_each(|runs| replayed.block(runs));
    assert_eq!(replayed, once);
    assert_eq!(replayed.outcome(), once.outcome());
}

#[test]
fn a_setting_that_never_ran_leaves_the_race_and_the_others_are_decided() {
    let mut race = Race::new(3, Rules::default());
    let mut noise = Noise(6);
    for _ in 0..40 {
        let mut runs = block(&race, &[1e9, 1e9, 1.3e9], 0.03, &mut noise);
        runs.iter_mut().filter(|run| run.0 == 1).for_each(|run| run.1 = 0.0);
        race.block(&runs);
    }
    let outcome = race.outcome();
    assert_eq!(outcome.settings[1].standing, Standing::Failed);
    assert_eq!(outcome.settings[1].of_best, None);
    assert!(matches!(outcome.answer, Answer::Better { winner: 2, .. }), "{:?}", outcome.answer);
}

#[test]
fn figures_that_are_not_positive_numbers_count_as_missing() {
    let mut with = Race::new(2, Rules::default());
    let mut without = Race::new(2, Rules::default());
    let mut noise = Noise(7);
    for (at, wrong) in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.0, -5.0].into_iter().enumerate() {
        let runs = block(&with, &[1e9, 1.5e9], 0.02, &mut noise);
        with.block(&runs);
        without.block(&runs);
        with.block(&[(at % 2, wrong), (1 - at % 2, 3e9)]);
        without.block(&[(1 - at % 2, 3e9)]);
        with.block(&[]);
        without.block(&[]);
    }
    assert_eq!(with, without);
    assert!(matches!(with.answer(), Answer::Better { winner: 1, .. }), "{:?}", with.answer());
}

#[test]
fn one_setting_alone_is_single_and_none_with_figures_is_nothing() {
    let mut race = Race::new(1, Rules::default());
    for _ in 0..4 {
        assert_eq!(race.decided(), None);
        race.block(&[(0, 1e9)]);
    }
    assert_eq!((race.decided(), race.answer()), (Some(Decision::Single), Answer::Single { setting: 0 }));
    let mut race = Race::new(2, Rules::default());
    (0..4).for_each(|_| race.block(&[(0, f64::NAN), (1, 0.0)]));
    assert_eq!((race.decided(), race.answer()), (Some(Decision::Nothing), Answer::Nothing));
    assert_eq!(race.outcome().recommended(), None);
}

#[test]
fn a_fixed_number_of_blocks_keeps_every_setting_and_concludes_once() {
    let rules = Rules { stops: false, ..Rules::default() };
    let race = run(&[1e9, 1e9, 2e9], 0.02, rules, 12, 8);
    assert_eq!((race.alive(), race.blocks(), race.decided()), (&[0, 1, 2][..], 12, None));
    assert!(matches!(race.answer(), Answer::Better { winner: 2, .. }), "{:?}", race.answer());
}

#[test]
fn a_decided_race_takes_no_further_blocks() {
    let race = run(&[1e9, 2e9], 0.02, Rules::default(), 60, 9);
    let mut later = race.clone();
    (0..10).for_each(|_| later.block(&[(0, 9e9), (1, 1e9)]));
    assert_eq!(later, race);
}

#[test]
fn figures_without_any_scatter_are_decided_by_the_margin() {
    let mut race = Race::new(3, Rules::default());
    (0..20).for_each(|_| race.block(&[(0, 1e9), (1, 1e9), (2, 1.06e9)]));
    assert!(matches!(race.answer(), Answer::Better { winner: 2, .. }), "{:?}", race.answer());
    let mut race = Race::new(2, Rules::default());
    (0..20).for_each(|_| race.block(&[(0, 1e9), (1, 1e9)]));
    assert!(matches!(race.answer(), Answer::Equivalent { reference: 0, .. }), "{:?}", race.answer());
}

#[test]
fn intervals_agree_with_the_answer_after_every_block() {
    for seed in 0..60 {
        let levels = [1e9, 1.03e9, 1.1e9, 0.9e9, 1.08e9];
        let mut race = Race::new(5, Rules::default());
        let mut noise = Noise(100 + seed);
        for _ in 0..40 {
            let runs = block(&race, &levels, 0.04, &mut noise);
            race.block(&runs);
            let outcome = race.outcome();
            for contrast in &outcome.settings {
                let Some(bounds) = contrast.of_best else { continue };
                assert!(bounds.low <= bounds.high && bounds.high <= 1.0, "{contrast:?}");
                // A living setting may be the best; one dropped by the best itself may not.
                assert!(contrast.standing != Standing::Alive || bounds.high == 1.0, "{contrast:?}");
            }
            match outcome.answer {
                Answer::Better { gain: Some(gain), .. } => assert!(gain.bounds.low >= 1.0),
                Answer::Equivalent { within: Some(within), .. } => {
                    assert!(within.low >= 1.0 / 1.05 - 1e-12 && within.high <= 1.05 + 1e-12);
                }
                Answer::Undecided { could_be: Some(most), .. } => assert!(most >= 1.0),
                _ => {}
            }
        }
    }
}

/// What `between` says of each pair must agree with the answer, whatever that is.
fn assert_pairs_agree(outcome: &Outcome) {
    const ROUNDING: f64 = 1e-9;
    let is_alive = |setting: usize| outcome.settings[setting].standing == Standing::Alive;
    for (a, b) in (0..outcome.settings.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let (Some(pair), Some(turned)) = (outcome.between(a, b), outcome.between(b, a)) else {
            assert_eq!(outcome.between(a, b), outcome.between(b, a));
            continue;
        };
        assert!(
            (pair.ratio * turned.ratio - 1.0).abs() < ROUNDING
                && (pair.low * turned.high - 1.0).abs() < ROUNDING
        );
        assert!(pair.low <= pair.ratio && pair.ratio <= pair.high, "{pair:?}");
        if is_alive(a) && is_alive(b) {
            assert!(pair.low <= 1.0 && pair.high >= 1.0, "both may be the best: {pair:?}");
        }
        let over = |winner: usize| outcome.between(winner, if winner == a { b } else { a }).expect("known");
        match outcome.answer {
            Answer::Better { winner, .. } if winner == a || winner == b => assert!(over(winner).low >= 1.0),
            Answer::Equivalent { reference, .. } | Answer::Sufficient { reference, .. }
                if (reference == a || reference == b) && is_alive(a) && is_alive(b) =>
            {
                let other = over(reference);
                match outcome.answer {
                    Answer::Sufficient { at_most, .. } => {
                        assert!(1.0 / other.low <= at_most + ROUNDING, "{other:?}")
                    }
                    _ => assert!(
                        1.0 / other.low <= 1.05 + ROUNDING && other.high <= 1.05 + ROUNDING,
                        "{other:?}"
                    ),
                }
            }
            _ => {}
        }
    }
}

#[test]
fn what_is_said_of_two_settings_agrees_with_the_answer_after_every_block() {
    let mut answers = [0; 4];
    for (seed, levels) in (0..250).zip(
        [
            [1e9, 1.03e9, 1.1e9, 0.9e9],
            [1e9, 1.01e9, 1e9, 0.99e9],
            [1e9, 0.99e9, 0.94e9, 0.93e9],
            [1.1e9, 1.02e9, 1.04e9, 0.97e9],
            [0.96e9, 1.03e9, 1e9, 1.06e9],
        ]
        .iter()
        .cycle(),
    ) {
        let mut race = Race::new(4, Rules::default());
        let mut noise = Noise(500 + seed);
        let sd = if seed % 2 == 0 { 0.01 } else { 0.05 };
        for number in 1..=40 {
            let runs = block(&race, levels, sd, &mut noise);
            race.block(&runs);
            let outcome = race.outcome();
            assert_pairs_agree(&outcome);
            let known = (0..4)
                .flat_map(|a| (0..a).map(move |b| (a, b)))
                .any(|(a, b)| outcome.between(a, b).is_some());
            assert!(number >= 4 || !known, "nothing is said before the least number of blocks");
            assert!(outcome.between(1, 1).is_none() && outcome.between(0, 4).is_none());
            answers[match outcome.answer {
                Answer::Better { .. } => 0,
                Answer::Equivalent { .. } => 1,
                Answer::Sufficient { .. } => 2,
                _ => 3,
            }] += 1;
        }
    }
    assert!(answers.iter().all(|count| *count > 20), "{answers:?}");
}

#[test]
fn a_dropped_setting_is_told_from_one_that_it_was_dropped_for() {
    let race = run(&[1e9, 1.2e9, 1e9, 0.7e9], 0.04, Rules::default(), 60, 3);
    let outcome = race.outcome();
    let dropped = outcome.settings.iter().filter(|s| matches!(s.standing, Standing::Dropped { .. }));
    for contrast in dropped {
        let is_behind = |i: usize| outcome.between(i, contrast.setting).is_some_and(|pair| pair.low > 1.0);
        assert!((0..4).any(is_behind), "{contrast:?}");
    }
    // Of two settings the pair is what the answer says.
    let two = run(&[1e9, 1.2e9], 0.04, Rules::default(), 60, 4).outcome();
    assert_eq!(two.between(1, 0), two.b_by_a(0, 1));
}

#[test]
fn nothing_is_said_of_two_settings_before_the_least_number_of_blocks() {
    let rules = Rules { min_blocks: 10, ..Rules::default() };
    let is_known = |most| run(&[1e9, 1e9, 2e9], 0.01, rules, most, 7).outcome().between(0, 2).is_some();
    assert_eq!([9, 10].map(is_known), [false, true]);
}

#[test]
fn settings_that_are_both_left_are_not_told_apart_where_their_blocks_disagree() {
    // 0 loses to 1 where both run; beside 2, which 0 beats, it is far above 1.
    let mut race = Race::new(3, Rules { stops: false, ..Rules::default() });
    let mut noise = Noise(9);
    for number in 0..40 {
        let levels = match number % 4 {
            0 => [Some(1.0), Some(1.2), None],
            1 | 2 => [Some(3.0), None, Some(1.0)],
            _ => [None, Some(1.0), Some(1.0)],
        };
        let figures = levels.iter().enumerate().filter_map(|(i, level)| Some((i, level.as_ref()? * 1e9)));
        let block: Vec<_> = figures.map(|(i, figure)| (i, figure * (0.005 * noise.normal()).exp())).collect();
        race.block(&block);
    }
    let outcome = race.outcome();
    let alive = |i: usize| outcome.settings[i].standing == Standing::Alive;
    assert!(alive(0) && alive(1) && !alive(2), "{:?}", outcome.settings);
    assert_pairs_agree(&outcome);
}

#[test]
fn the_winner_is_below_no_setting_that_a_third_one_dropped() {
    for winner in [0, 2] {
        let loser = 2 - winner;
        let mut race = Race::new(3, Rules::default());
        let mut noise = Noise(11);
        // Beside the loser the winner's figures scatter widely; 1 drops the loser, and later loses itself.
        for number in 0..60 {
            let early = if number % 2 == 0 { 0.95 } else { 1.4 };
            let of_winner = if race.alive().contains(&loser) { early } else { 2.6 };
            let mut figures = [(1, 1.3), (winner, of_winner), (loser, 1.0)]
                .map(|(i, figure)| (i, figure * (0.01 * noise.normal()).exp()));
            figures.sort_by_key(|(i, _)| *i);
            race.block(&figures);
        }
        let outcome = race.outcome();
        assert!(
            matches!(outcome.answer, Answer::Better { winner: found, .. } if found == winner),
            "{:?}",
            outcome.answer
        );
        let pair = outcome.between(winner, loser).expect("both ran");
        assert!(pair.low == 1.0 && pair.high > 1.2, "the plant: {pair:?}");
        assert_pairs_agree(&outcome);
    }
}

#[test]
fn a_struck_setting_is_neither_tied_nor_beaten_and_the_race_is_decided_without_it() {
    let levels = [1e9, 1e9, 0.93e9, 0.7e9];
    let (mut race, mut noise) = (Race::new(4, Rules::default()), Noise(5));
    race.block(&block(&race, &levels, 0.01, &mut noise));
    assert_eq!(race.strike(&[2]), [2]);
    assert!(race.strike(&[2]).is_empty(), "it is out already");
    while race.decided().is_none() && race.blocks() < 40 {
        race.block(&block(&race, &levels, 0.01, &mut noise));
    }
    let outcome = race.outcome();
    let Answer::Equivalent { reference: 0, within: Some(within) } = outcome.answer else {
        panic!("{:?}", outcome.answer)
    };
    assert!((within.ratio - 1.0).abs() < 0.02, "{within:?}");
    assert_eq!(outcome.settings[2].standing, Standing::Struck { after_blocks: 1 });
    assert_eq!(outcome.settings[2].equivalence, None);
    assert!(matches!(outcome.settings[3].standing, Standing::Dropped { .. }));
    assert_eq!(race.alive(), [0, 1]);
}

#[test]
fn two_settings_stay_so_that_the_race_decides_between_them() {
    let levels = [1e9, 0.7e9, 0.98e9];
    let (mut race, mut noise) = (Race::new(3, Rules::default()), Noise(5));
    race.block(&block(&race, &levels, 0.01, &mut noise));
    assert_eq!(race.strike(&[2, 1, 0]), [2]);
    while race.decided().is_none() && race.blocks() < 40 {
        race.block(&block(&race, &levels, 0.01, &mut noise));
    }
    let Answer::Better { winner: 0, gain: Some(gain) } = race.answer() else { panic!("{:?}", race.answer()) };
    assert_eq!(gain.over, 1, "nothing is concluded of the struck one");
}

#[test]
fn what_was_certified_against_a_struck_setting_is_so_no_longer() {
    // The third is so noisy that it is not certified.
    let (mut race, mut noise) = (Race::new(3, Rules::default()), Noise(11));
    for _ in 0..20 {
        let mut runs = block(&race, &[1e9; 3], 0.01, &mut noise);
        let rough = (0.15 * noise.normal()).exp();
        runs.iter_mut().filter(|run| run.0 == 2).for_each(|run| run.1 *= rough);
        race.block(&runs);
    }
    assert!(race.outcome().settings[1].equivalence.is_some() && race.decided().is_none());
    race.strike(&[0]);
    let outcome = race.outcome();
    assert_eq!((outcome.settings[1].equivalence, race.decided()), (None, None));
    assert!(!matches!(outcome.answer, Answer::Equivalent { .. }), "{:?}", outcome.answer);
}
