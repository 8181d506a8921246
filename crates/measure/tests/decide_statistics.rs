//! Races on simulated machines of known truth: how often answers are wrong, and what each step of the analysis is
//! for. `flashwright sweep check-statistics` does the same at full size.

use measure::decide::{Answer, MoreBlocks, Race, Rules, Steps};
use measure::pattern::Rng;
use measure::simulation::constructions;
use measure::simulation::effects::tried;
use measure::simulation::machine::{Machine, World};
use measure::simulation::practices::{Practice, claims};
use measure::simulation::report::{constructions_hold, effects_hold, holds, statistics};
use measure::simulation::trial::{Characteristics, Question, Truth, characteristics};

/// What all figures follow from, so that the tests cannot fail by chance.
const SEED: u64 = 20_261_123;

fn try_with(steps: Steps, question: Question, repetitions: usize) -> Characteristics {
    let rules = Rules { steps, ends_at_sufficient: false, ..question.rules };
    let question = Question { rules, ..question };
    characteristics(&[question], repetitions, SEED).remove(0)
}

#[test]
fn false_answers_and_coverage_keep_their_limits_in_every_world() {
    let repetitions = 60;
    let mut questions = Vec::new();
    for world in World::ALL {
        for settings in [2, 3, 6] {
            for ratio in [1.0, 1.0501] {
                questions.push(Question::new(world, settings, Truth::Best(ratio)));
            }
        }
    }
    let lines = characteristics(&questions, repetitions, SEED);
    for line in &lines {
        assert!(holds(line), "{line:#?}");
    }
    // Together the lines of one number of settings and one truth are enough for a narrow error.
    for group in questions.iter().take(6) {
        let same: Vec<_> = lines
            .iter()
            .filter(|l| l.question.settings == group.settings && l.question.truth == group.truth)
            .collect();
        let mean = |part: fn(&Characteristics) -> f64| {
            same.iter().map(|line| part(line)).sum::<f64>() / same.len() as f64
        };
        let races = (same.len() * repetitions) as f64;
        let error = |part: f64| 2.0 * (part * (1.0 - part) / races).sqrt();
        assert!(mean(|l| l.coverage) >= 0.94 - error(0.94), "{same:#?}");
        assert!(mean(|l| l.false_better) <= 0.05 + error(0.05), "{same:#?}");
        assert!(mean(|l| l.false_equivalent) <= 0.05 + error(0.05), "{same:#?}");
    }
}

#[test]
fn effects_keep_their_limits_with_shared_blocks_and_on_constructions() {
    let repetitions = 100;
    let lines = tried(repetitions, SEED);
    for line in &lines {
        assert!(effects_hold(line, repetitions), "{line:#?}");
    }
    let mean = |part: &dyn Fn(&measure::simulation::effects::EffectLine) -> f64, of_constructions: bool| {
        let of = lines.iter().filter(|l| l.factorial.widths.is_some() == of_constructions);
        let parts: Vec<f64> = of.map(part).collect();
        parts.iter().sum::<f64>() / parts.len() as f64
    };
    for of_constructions in [false, true] {
        assert!(mean(&|l| l.coverage, of_constructions) >= 0.94, "{lines:#?}");
        assert!(mean(&|l| l.false_effects, of_constructions) <= 0.05, "{lines:#?}");
    }
}

#[test]
fn a_construction_is_called_better_only_beyond_what_the_machine_moved() {
    let repetitions = 150;
    let lines = constructions::tried(repetitions, SEED);
    for line in &lines {
        assert!(constructions_hold(line, repetitions), "{line:#?}");
    }
    let of = |world, constructions| {
        let of =
            lines.iter().filter(move |l| (l.series.world, l.series.constructions) == (world, constructions));
        of.collect::<Vec<_>>()
    };
    for world in [World::Pass, World::Vm, World::VmReacting] {
        let worst = of(world, 2).iter().map(|line| line.without_movement).fold(0.0, f64::max);
        assert!(worst >= 0.12, "it is what the movement is for: {world} {worst}");
    }
    assert!(of(World::Quiet, 4).iter().all(|line| line.found[0] >= 0.95), "{lines:#?}");
    assert!(of(World::Normal, 4).iter().all(|line| line.found[1] >= 0.95), "{lines:#?}");
    assert!(of(World::Vm, 2).iter().all(|line| line.found[2] >= 0.5), "{lines:#?}");
}

#[test]
fn a_race_that_ends_at_sufficient_takes_fewer_blocks_and_still_finds_the_best() {
    let to_the_end = |k, ratio| {
        let question = Question::new(World::Vm, k, Truth::Best(ratio));
        let rules = Rules { ends_at_sufficient: false, ..question.rules };
        characteristics(&[question, Question { rules, ..question }], 40, SEED)
    };
    let equal = to_the_end(6, 1.0);
    assert!(equal[0].decided_by_20 >= 0.8 && equal[0].false_sufficient <= 0.05, "{equal:#?}");
    assert!(equal[1].decided_by_20 <= 0.4, "{equal:#?}");
    let better = to_the_end(6, 1.2);
    assert!(better[0].right_better >= 0.95 && better[0].false_sufficient <= 0.05, "{better:#?}");
}

#[test]
fn without_block_weights_equal_settings_on_a_virtual_machine_stay_undecided() {
    let question = Question::new(World::Vm, 6, Truth::Best(1.0));
    let with = try_with(Steps::default(), question, 24);
    let without = try_with(Steps { block_weights: false, ..Steps::default() }, question, 24);
    assert!(with.right_equivalent >= 0.85, "{with:#?}");
    assert!(without.right_equivalent <= 0.60, "{without:#?}");
}

#[test]
fn without_pooling_a_large_difference_takes_more_blocks() {
    let question = Question::new(World::Normal, 6, Truth::Best(1.5));
    let with = try_with(Steps::default(), question, 40);
    let without = try_with(Steps { pooling: false, ..Steps::default() }, question, 40);
    assert!(with.blocks_median <= 5.0, "{with:#?}");
    assert!(without.blocks_median >= 6.0, "{without:#?}");
}

#[test]
fn without_the_bound_for_every_block_equal_settings_are_called_different() {
    let question = Question::new(World::Normal, 2, Truth::Best(1.0));
    let with = try_with(Steps::default(), question, 200);
    let without = try_with(Steps { every_block: false, ..Steps::default() }, question, 200);
    assert!(with.false_better <= 0.05 + 0.03, "{with:#?}");
    assert!(without.false_better >= 0.12, "{without:#?}");
}

#[test]
fn without_neighbours_a_block_of_forty_settings_takes_far_more_blocks() {
    let question = Question::new(World::Pass, 40, Truth::Best(1.2));
    let with = try_with(Steps::default(), question, 8);
    let without = try_with(Steps { neighbours: false, ..Steps::default() }, question, 8);
    assert!(with.blocks_median <= 22.0, "{with:#?}");
    assert!(without.blocks_median >= 25.0, "{without:#?}");
}

/// The part of races between six settings, one 1.0501 times better, that end *equivalent* where each setting drifts
/// by itself so that successive blocks correlate by 0.6.
fn false_equivalents_among_drifting_settings(steps: Steps, repetitions: u64) -> f64 {
    let (settings, correlation) = (6, 0.6);
    let wrong = (0..repetitions).filter(|repetition| {
        let mut random = Rng::new(SEED ^ repetition);
        let mut normal =
            || (2.0 * random.exponential()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
        let mut drifts: Vec<f64> = (0..settings).map(|_| normal()).collect();
        let mut race = Race::new(settings, Rules { steps, ..Rules::default() });
        while race.decided().is_none() && race.blocks() < 60 {
            for drift in &mut drifts {
                *drift = correlation * *drift + (1.0f64 - correlation * correlation).sqrt() * normal();
            }
            let level = |i: usize| if i == 0 { 1.0501 } else { 1.0 };
            let figures: Vec<_> =
                race.alive().iter().map(|i| (*i, level(*i) * (0.04 * drifts[*i]).exp())).collect();
            race.block(&figures);
        }
        matches!(race.answer(), Answer::Equivalent { .. })
    });
    wrong.count() as f64 / repetitions as f64
}

#[test]
fn without_memory_settings_that_drift_by_themselves_are_called_equivalent() {
    let with = false_equivalents_among_drifting_settings(Steps::default(), 60);
    let without = false_equivalents_among_drifting_settings(Steps { memory: false, ..Steps::default() }, 60);
    assert!(with <= 0.10, "{with}");
    assert!(without >= 0.25, "{without}");
}

#[test]
fn eight_of_ten_races_are_decided_within_the_blocks_that_were_forecast() {
    let (mut within, mut forecasts) = (0, 0);
    for seed in 0..40 {
        let mut machine = Machine::new(World::Vm, &[0.0, 1.1f64.ln(), 0.0, 0.0], SEED + seed);
        let (mut race, mut open) = (Race::new(4, Rules::default()), Vec::new());
        while race.decided().is_none() && race.blocks() < 200 {
            let start = machine.now();
            let order = machine.shuffled(race.alive());
            let figures: Vec<_> = order.into_iter().map(|i| (i, machine.run(i, 0.25))).collect();
            race.block(&figures);
            machine.wait_until(start + 5.0);
            if let Answer::Undecided { more_blocks: Some(more), .. }
            | Answer::Sufficient { more_blocks: Some(more), .. } = race.answer()
            {
                open.push((race.blocks(), more));
            }
        }
        forecasts += open.len();
        let holds =
            |(at, more): &&(usize, MoreBlocks)| (more.low..=more.high).contains(&(race.blocks() - at));
        within += open.iter().filter(holds).count();
    }
    assert!(forecasts > 100, "{forecasts}");
    let part = within as f64 / forecasts as f64;
    assert!((0.75..=0.98).contains(&part), "{part}");
}

#[test]
fn practices_claim_what_is_not_there_and_races_do_not() {
    let lines = claims(World::Vm, 4, 45.0, 40, SEED);
    let of =
        |practice| lines.iter().find(|line| line.practice == practice).expect("every practice has a line");
    assert_eq!(of(Practice::FioHighest).any_when_equal, 1.0);
    assert!(of(Practice::FioAboveFivePercent).any_when_equal > 0.2, "{lines:#?}");
    assert!(of(Practice::Race).any_when_equal <= 0.05, "{lines:#?}");
    assert!(of(Practice::Race).right_at_1_1 >= 0.95, "{lines:#?}");
}

#[test]
fn the_same_seed_gives_the_same_tables_however_many_threads_there_are() {
    let once = statistics(&[2], 5, SEED);
    assert_eq!(once, statistics(&[2], 5, SEED));
    assert_ne!(once.races, statistics(&[2], 5, SEED + 1).races);
    let text = once.to_string();
    assert!(text.contains("| 2 | 1.0501 | ") && text.contains("benchstat"), "{text}");
}
