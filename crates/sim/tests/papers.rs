//! The papers' figures from one set of constants.

use sim::papers::figures::{Reproduced, Standing, figures, reproduce};
use sim::papers::refit::{PINS, refit};
use sim::papers::shapes::shapes;

fn print(one: &Reproduced) {
    let (source, what, paper) = (one.figure.source, one.figure.what, one.figure.paper);
    println!("{source}, {what}: {paper:.0}, model {:.0}, {:+.1} %", one.model, one.error() * 100.0);
}

#[test]
fn the_papers_figures_come_out_within_a_tenth_and_the_misses_do_not() {
    let all = reproduce();
    for one in &all {
        print(one);
        let is_expected = one.figure.standing != Standing::Miss;
        assert_eq!(one.holds(), is_expected, "{}, {}", one.figure.source, one.figure.what);
    }
    let count = |standing| all.iter().filter(|one| one.figure.standing == standing).count();
    let counts = [Standing::Fit, Standing::Predicted, Standing::Miss].map(count);
    assert_eq!(counts, [15, 15, 1], "docs/papers.md states them");
}

#[test]
fn constants_that_are_set_again_from_fifteen_figures_give_the_other_sixteen() {
    for figure in figures() {
        let pins = PINS.iter().filter(|pin| pin.is_of(&figure)).count();
        assert_eq!(pins, usize::from(figure.standing == Standing::Fit), "{}, {}", figure.source, figure.what);
    }
    let refit = refit();
    for constant in &refit.constants {
        let pin = constant.pin;
        println!("{} {}: {:?}, {:+.1?}", pin.machine, pin.key, constant.value, constant.moved());
        match constant.moved() {
            Some(moved) => assert!(moved.abs() <= 0.15, "{pin:?} moved by {moved}"),
            None => assert_eq!(constant.value, pin.of_file(), "{pin:?}"),
        }
    }
    refit.figures.iter().for_each(print);
    let (held_out, fitted): (Vec<_>, Vec<_>) = refit.figures.iter().partition(|one| one.is_held_out());
    assert_eq!(held_out.len(), 16);
    for one in fitted {
        assert!(one.error().abs() <= 0.07, "{}, {}", one.figure.source, one.figure.what);
    }
    for one in held_out {
        let is_expected = one.figure.standing != Standing::Miss;
        assert_eq!(one.holds(), is_expected, "{}, {}", one.figure.source, one.figure.what);
    }
}

#[test]
fn the_papers_shapes_are_those_of_the_model() {
    for shape in shapes() {
        println!("{}: {}: {:.0?}", shape.source, shape.claim, shape.model);
        assert!(shape.holds, "{}: {}: {:?}", shape.source, shape.claim, shape.model);
    }
}
