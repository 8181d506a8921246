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
    let predicted = all.iter().filter(|one| one.figure.standing != Standing::Fit).count();
    assert!(predicted * 2 >= all.len(), "{predicted} of {} are predictions", all.len());
    assert_eq!(all.iter().filter(|one| one.figure.standing == Standing::Miss).count(), 1);
}

#[test]
fn the_papers_shapes_are_those_of_the_model() {
    for shape in shapes() {
        println!("{}: {}: {:.0?}", shape.source, shape.claim, shape.model);
        assert!(shape.holds, "{}: {}: {:?}", shape.source, shape.claim, shape.model);
    }
}
