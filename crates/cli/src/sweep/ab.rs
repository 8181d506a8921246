//! `flashwright sweep ab A B`: two targets, settings or programs that alternate within one sweep.

use measure::options::OPTIONS;
use sweep::model::{Point, SCRATCH, SIDE};
use sweep::space::{SIDES, Space};

use super::args::AbArgs;
use super::foreign::{Binary, note};
use super::request;
use super::session::{self, Beginning};
use crate::failure::Failure;
use crate::paint;

/// Runs both sides.
pub fn ab(args: &AbArgs) -> Result<(), Failure> {
    let space = request::sides_here([&args.a, &args.b], &args.overrides)?;
    let mut notes = Vec::new();
    let mut said = differences(&space);
    let flags = [("--binary-a", &args.binary_a), ("--binary-b", &args.binary_b)];
    for (side, (flag, path)) in SIDES.into_iter().zip(flags) {
        let Some(path) = path else { continue };
        if space.points.iter().any(|point| is_of(point, side) && point.target == SCRATCH) {
            let text = format!(
                "{flag}={}: another program cannot open the scratch file, which has no name",
                path.display()
            );
            return Err(Failure::invalid(text).hint("name a file or a device: --target SPEC"));
        }
        let binary = Binary::find(flag, path)?;
        said += &format!("{} {}: {}\n", paint::dim(side), binary.version(), binary.path().display());
        notes.push((note(side), binary.note()));
    }
    session::begin_here(&space, &Beginning { flags: &args.beginning, notes, said })
}

fn is_of(point: &Point, side: &str) -> bool {
    point.settings.get(SIDE).is_some_and(|own| own == side)
}

/// What the sides differ in, a line each, by their first pair.
fn differences(space: &Space) -> String {
    let first = |side: &str| space.points.iter().find(|point| is_of(point, side));
    let [Some(a), Some(b)] = SIDES.map(first) else { return String::new() };
    let mut words = [Vec::new(), Vec::new()];
    for option in OPTIONS {
        let of = [a, b].map(|point| option.text(&point.workload).unwrap_or_default());
        if of[0] != of[1] {
            words.iter_mut().zip(of).for_each(|(words, text)| words.push(format!("{}={text}", option.name)));
        }
    }
    if a.target != b.target {
        words
            .iter_mut()
            .zip([a, b])
            .for_each(|(words, point)| words.push(format!("target={}", point.target)));
    }
    if words.iter().all(Vec::is_empty) {
        return "A and B have the same settings\n".to_owned();
    }
    let line = |(side, words): (&str, Vec<String>)| format!("{} {}\n", paint::dim(side), words.join(" "));
    SIDES.into_iter().zip(words).map(line).collect()
}
