//! The waste of `checkpoint::due` beside that of fixed intervals, over drawn histories of failures.
//!
//! `cargo run --release -p flashwright-planner --example due [HISTORIES]` draws 10⁵ where no number is given.

use planner::checkpoint::due::{FailureModel, Histories, waste_of_histories};

fn main() {
    let all: u32 =
        std::env::args().nth(1).map_or(100_000, |number| number.parse().expect("a number of histories"));
    let rows = [
        ("exponential", FailureModel::Exponential, 1e-2),
        ("exponential", FailureModel::Exponential, 1e-3),
        ("exponential", FailureModel::Exponential, 1e-4),
        ("Weibull, shape 0.5", FailureModel::Weibull(0.5), 1e-3),
        ("Weibull, shape 0.7", FailureModel::Weibull(0.7), 1e-3),
        ("Weibull, shape 1.5", FailureModel::Weibull(1.5), 1e-3),
        ("mean grows 4 times", FailureModel::Trend(4.0), 1e-3),
        ("mean falls to a quarter", FailureModel::Trend(0.25), 1e-3),
        ("mean rises and falls, 3 times", FailureModel::Wave(3.0), 1e-3),
        ("mean jumps to a tenth", FailureModel::Jump(0.1), 1e-3),
    ];
    let count = all / rows.len() as u32;
    println!(
        "| failures | checkpoint blocks, in MTBF | policy wastes | best fixed interval | its waste | policy above it | best of each history |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, model, blocked) in rows {
        for commit in [0.0, 5.0] {
            let histories = Histories {
                model,
                blocked,
                commit: commit * blocked,
                failures: 100,
                count: count / 2,
                seed: 2009,
            };
            let waste = waste_of_histories(&histories);
            println!(
                "| {name} | {blocked}, committed after {} more | {:.3} % | {:.4} MTBF | {:.3} % | {:+.2} % | {:.3} % |",
                histories.commit,
                100.0 * waste.policy,
                waste.best_interval,
                100.0 * waste.best_fixed,
                100.0 * (waste.policy / waste.best_fixed - 1.0),
                100.0 * waste.best_of_each,
            );
        }
    }
}
