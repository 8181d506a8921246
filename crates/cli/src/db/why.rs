//! Why a query gained what it gained: what of the difference was waiting for reads, and what CPU time.

use database::ask::Temperature;
use database::figures::{Contest, QueryFigures};
use database::query::Query;
use measure::decide::Answer;
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::screen::{figure, grouped};

/// Numbers of blocks that differ by less are told as one.
const SAME_BLOCKS: f64 = 0.05;

/// What explains a speed-up that is decided.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Reason {
    /// The query.
    pub query: Query,
    /// What was in memory.
    pub temperature: Temperature,
    /// The tier that is compared with the last one, by its place in the list.
    pub tier: usize,
    /// The part of the difference that was waiting for reads; null where it is not measured.
    pub reads_share: Option<f64>,
    /// The part of the difference that was CPU time; null where it is not measured.
    pub cpu_share: Option<f64>,
    /// One sentence.
    pub words: String,
}

/// Of each comparison that has a winner.
pub fn reasons(figures: &[QueryFigures], contests: &[Contest], tiers: &[&str]) -> Vec<Reason> {
    contests.iter().filter_map(|contest| reason(figures, contest, tiers)).collect()
}

fn reason(figures: &[QueryFigures], contest: &Contest, tiers: &[&str]) -> Option<Reason> {
    let Answer::Better { winner, .. } = contest.outcome.answer else { return None };
    let of = |tier: usize| {
        let is_of = |of: &&QueryFigures| {
            (of.query, of.temperature, of.tier) == (contest.query, contest.temperature, tier)
        };
        Some(Side { name: tiers.get(tier)?, figures: figures.iter().find(is_of)? })
    };
    let (tier, last) = (of(contest.tier)?, of(tiers.len().checked_sub(1)?)?);
    let (fast, slow) = if winner == 0 { (tier, last) } else { (last, tier) };
    let gained = slow.figures.elapsed_ms - fast.figures.elapsed_ms;
    if gained <= 0.0 {
        // Blocks decide, and medians over all of them can lie the other way.
        return None;
    }
    let share = |of: fn(&QueryFigures) -> Option<f64>| {
        Some(((of(slow.figures)? - of(fast.figures)?) / gained).clamp(0.0, 1.0))
    };
    let (reads_share, cpu_share) = (share(|of| of.io_ms), share(|of| of.cpu_ms));
    let words = words(&fast, &slow, reads_share, cpu_share);
    let (query, temperature, tier) = (contest.query, contest.temperature, contest.tier);
    Some(Reason { query, temperature, tier, reads_share, cpu_share, words })
}

/// A tier in a comparison of two.
struct Side<'a> {
    name: &'a str,
    figures: &'a QueryFigures,
}

fn words(fast: &Side<'_>, slow: &Side<'_>, reads_share: Option<f64>, cpu_share: Option<f64>) -> String {
    let (f, s) = (fast.name, slow.name);
    let ms = |of: Option<f64>| of.map_or_else(String::new, figure);
    match (reads_share, cpu_share) {
        (Some(part), _) if part >= 0.5 => format!(
            "{f} waits {} ms for reads, {s} {} ms: {} of the difference; {}{}{}",
            ms(fast.figures.io_ms),
            ms(slow.figures.io_ms),
            units::percent(part),
            blocks(fast, slow),
            random(slow),
            rest(fast)
        ),
        (_, Some(part)) if part >= 0.5 => format!(
            "{f} takes {} ms of CPU time, {s} {} ms: {} of the difference, which is not of the tiers",
            ms(fast.figures.cpu_ms),
            ms(slow.figures.cpu_ms),
            units::percent(part)
        ),
        (None, None) => "neither the reads nor the CPU time were measured".to_owned(),
        (reads, cpu) => {
            let of = |part: Option<f64>| part.map_or_else(|| "an unknown part".to_owned(), units::percent);
            format!(
                "reads are {} of the difference and CPU time {}: neither explains half of it{}",
                of(reads),
                of(cpu),
                beside_the_plan(slow)
            )
        }
    }
}

fn blocks(fast: &Side<'_>, slow: &Side<'_>) -> String {
    match (fast.figures.blocks_read, slow.figures.blocks_read) {
        (Some(one), Some(other)) if (one - other).abs() <= SAME_BLOCKS * one.max(other) => {
            format!("both read {} blocks", grouped(other))
        }
        (Some(one), Some(other)) => {
            format!("{} reads {} blocks, {} {}", fast.name, grouped(one), slow.name, grouped(other))
        }
        _ => "blocks were not counted".to_owned(),
    }
}

/// What an engine reads that is not of the statement's plan, if it is more than that: its time is in no wait that the engine tells.
fn beside_the_plan(slow: &Side<'_>) -> String {
    let QueryFigures { bytes_in, blocks_read, block_bytes, .. } = slow.figures;
    match (bytes_in, blocks_read.map(|blocks| (blocks, blocks * f64::from(*block_bytes)))) {
        (Some(all), Some((blocks, of_plan))) if of_plan < 0.5 * all => format!(
            "; of {} that {} read, the plan's {} blocks are {}: the rest is what was read ahead and what the engine reads beside its plan",
            units::bytes(*all as u64),
            slow.name,
            grouped(blocks),
            units::bytes(of_plan as u64)
        ),
        _ => String::new(),
    }
}

fn random(slow: &Side<'_>) -> String {
    let Some(share) = slow.figures.random_share else { return String::new() };
    let rules = if share >= 0.5 { "the time of a read counts" } else { "the rate of long reads counts" };
    format!(", {} of the bytes at random: {rules}", units::percent(share))
}

/// What bounds the speed-up.
fn rest(fast: &Side<'_>) -> String {
    let QueryFigures { elapsed_ms, cpu_ms, .. } = fast.figures;
    match cpu_ms.map(|cpu| cpu / elapsed_ms) {
        Some(part) if part >= 0.5 => {
            format!("; {} of what is left is CPU time", units::percent(part.min(1.0)))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 8 KiB of a cold query.
    fn read(blocks: f64, bytes: f64) -> QueryFigures {
        QueryFigures {
            query: Query::Forward,
            temperature: Temperature::Cold,
            tier: 1,
            runs: 6,
            elapsed_ms: 1200.0,
            io_ms: Some(400.0),
            cpu_ms: Some(20.0),
            blocks_read: Some(blocks),
            block_bytes: 8192,
            bytes_in: Some(bytes),
            random_share: Some(0.9),
            rows: 4.0,
        }
    }

    #[test]
    fn what_is_read_beside_a_plan_is_told_where_it_is_more_than_the_plan() {
        let told = |bytes: f64| {
            let figures = read(36.0, bytes);
            let side = |name| Side { name, figures: &figures };
            words(&side("flash"), &side("disk"), Some(0.33), Some(0.01))
        };
        assert_eq!(
            told(4e5),
            "reads are 33.0 % of the difference and CPU time 1.0 %: neither explains half of it"
        );
        let beside = told(1_363_149.0);
        let end = "; of 1.30 MiB that disk read, the plan's 36 blocks are 288 KiB: the rest is what was read ahead and what the engine \
                   reads beside its plan";
        assert!(beside.ends_with(end), "{beside}");
    }
}
