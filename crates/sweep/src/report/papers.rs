//! Which figures of the papers the report's own correspond to.

use crate::analysis::{Access, BySetting, Direction, Work};

/// What a figure over the values of a setting shows.
pub(super) fn title(setting: &str) -> String {
    match setting {
        "chunk" => "Bandwidth by chunk size".to_owned(),
        "filesystem" => "Bandwidth with and without a file system".to_owned(),
        "scheduler" => "Bandwidth by I/O scheduler".to_owned(),
        "read_ahead_kb" => "Bandwidth by read-ahead".to_owned(),
        "width" => "Bandwidth by number of drives".to_owned(),
        "layout" => "Bandwidth by layout".to_owned(),
        other => format!("Bandwidth by {other}"),
    }
}

/// Where the papers have it.
pub(super) fn of_setting(setting: &str) -> Option<&'static str> {
    Some(match setting {
        "chunk" => "DASH-IO Fig. 8",
        "filesystem" => "DASH-IO Fig. 11",
        "scheduler" => "DASH-IO Fig. 12",
        "read_ahead_kb" => "DASH-IO §3.1, not shown there",
        "layout" => "DASH Table 7",
        _ => return None,
    })
}

/// Where the papers have bandwidth by pass.
pub(super) const PASSES: &str = "DASH-IO Figs. 4, 5";
/// Where they have the scatter of the passes before and after cleaning.
pub(super) const VARIATION: &str = "DASH-IO Figs. 6, 7";
/// Where they have random reads over the number of drives: Fig. 9 with message-signalled interrupts, Fig. 10 without.
pub(super) const SCALING: &str = "DASH-IO Figs. 9, 10; DASH Fig. 4";
/// Where they have queue depth, of sequential and of random work.
pub(super) const DEPTH: &str = "DASH-IO Figs. 13, 14";
/// Where they have the way from the baseline to the best.
pub(super) const LADDER: &str = "DASH Fig. 3";

/// Where the papers have the scaling of this work.
pub(super) fn of_scaling(work: &Work) -> Option<&'static str> {
    ((work.class.access, work.class.direction) == (Access::Random, Direction::Read)).then_some(SCALING)
}

/// Those that the papers have, in their order, then the others.
pub(super) fn in_order(figures: &[BySetting]) -> Vec<&BySetting> {
    const ORDER: [&str; 6] = ["chunk", "filesystem", "scheduler", "read_ahead_kb", "layout", "width"];
    let place = |of: &&BySetting| ORDER.iter().position(|name| *name == of.setting).unwrap_or(ORDER.len());
    let mut ordered: Vec<&BySetting> = figures.iter().collect();
    ordered.sort_by_key(place);
    ordered
}
