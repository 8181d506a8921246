//! The papers' figures from one set of constants.

use sim::papers::figures::{Standing, reproduce};
use sim::papers::shapes::shapes;

#[test]
fn the_papers_figures_come_out_within_a_tenth_and_the_misses_do_not() {
    let all = reproduce();
    for one in &all {
        let (source, what) = (one.figure.source, one.figure.what);
        println!(
            "{source}, {what}: {:.0}, model {:.0}, {:+.1} %",
            one.figure.paper,
            one.model,
            one.error() * 100.0
        );
        assert_eq!(
            one.holds(),
            one.figure.standing != Standing::Miss,
            "{source}, {what}: {:+.1} %",
            one.error() * 100.0
        );
    }
    let count = |standing| all.iter().filter(|one| one.figure.standing == standing).count();
    let counts = [Standing::Fit, Standing::Follows, Standing::Predicted, Standing::Miss].map(count);
    assert_eq!(counts, [15, 7, 8, 1], "docs/papers.md states them");
}

#[test]
fn the_papers_shapes_are_those_of_the_model() {
    for shape in shapes() {
        println!("{}: {}: {:.0?}", shape.source, shape.claim, shape.model);
        assert!(shape.holds, "{}: {}: {:?}", shape.source, shape.claim, shape.model);
    }
}
