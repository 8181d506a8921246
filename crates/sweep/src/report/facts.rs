//! The machine, what was measured and how, as pairs of words and figures; and the prose about cleaning.

use crate::analysis::{CleaningSummary, ContestSummary, SlowBlock, TargetSeen};

use super::{Report, time};

/// A fact and its name.
pub(super) type Fact = (&'static str, String);

/// The machine.
pub(super) fn machine(report: &Report) -> Vec<Fact> {
    let Some(host) = &report.host else { return Vec::new() };
    let mut facts = Vec::new();
    for (name, value) in [("Host", &report.meta.hostname), ("Directory", &report.meta.directory)] {
        facts.extend((!value.is_empty()).then(|| (name, value.clone())));
    }
    facts.extend([
        ("Kernel", format!("{} ({})", host.kernel, host.architecture)),
        ("Processor", format!("{}, {} CPUs", host.cpu_model, host.cpus)),
        ("Memory", units::bytes(host.memory_bytes)),
        ("NUMA nodes", host.numa_nodes.to_string()),
    ]);
    facts.push(("Frequency governor", host.governor.clone().unwrap_or_else(|| "not visible".into())));
    let virtualization = host.virtualization.as_ref().map_or("none seen".to_owned(), Clone::clone);
    facts.push(("Virtual machine", virtualization));
    if let Some(container) = &host.container {
        facts.push(("Container", container.clone()));
    }
    facts
}

/// One target.
pub(super) fn target(seen: &TargetSeen) -> Vec<Fact> {
    let t = &seen.facts;
    let mut facts = vec![("Kind", t.kind.clone()), ("Size", units::bytes(t.size_bytes))];
    let mut add = |name, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            facts.push((name, value));
        }
    };
    add("Path", t.path.clone());
    add("Drive", t.model.as_deref().map(str::trim).map(str::to_owned));
    add("Transport", t.transport.clone());
    add("Block devices", (!t.block_devices.is_empty()).then(|| t.block_devices.join(" on ")));
    add("File system", t.filesystem.clone());
    add("Mount options", t.mount_options.clone());
    add("Logical block", (t.logical_block_bytes > 0).then(|| units::bytes(t.logical_block_bytes.into())));
    add("Rotational", t.rotational.map(|r| if r { "yes, says the kernel" } else { "no" }.to_owned()));
    add("Engine", Some(seen.engine.used.clone()));
    add("Engine features", Some(seen.engine.features.join(", ")));
    add("Fallback", seen.engine.fallback.clone());
    let layout: Vec<String> = seen.layout.iter().map(|(k, v)| format!("{k}={v}")).collect();
    add("Settings around it", Some(layout.join(", ")));
    facts
}

/// How it was measured.
pub(super) fn method(report: &Report) -> Vec<Fact> {
    let meta = &report.meta;
    let mut facts = vec![
        ("Configurations", report.points.len().to_string()),
        ("Passes", passes(report)),
        ("Runs", runs(report)),
        ("Order", format!("{}, seed {}", meta.order, meta.seed)),
    ];
    if let (Some(start), Some(end)) = (meta.started_unix_ns, meta.finished_unix_ns) {
        let length = std::time::Duration::from_nanos(end.saturating_sub(start));
        facts.push(("When", format!("{}, for {}", time::utc(start), units::seconds(length))));
    }
    if !report.controls.is_empty() {
        facts.push(("Control runs", report.controls.len().to_string()));
    }
    if let Some(drift) = &report.drift {
        facts.push(("Drift of the control", drift.sentence()));
    }
    facts.extend(slow_blocks(report).into_iter().map(|text| ("Slow blocks", text)));
    if !meta.version.is_empty() {
        facts.push(("flashwright", meta.version.clone()));
    }
    facts
}

/// `Sequential reads: blocks in which every setting was slower: no. 3 at 65 %, the control point too. …`, for each work
/// that had some.
pub(super) fn slow_blocks(report: &Report) -> Vec<String> {
    let with = report.contests.iter().filter(|contest| !contest.slow_blocks.is_empty());
    let text = |contest: &ContestSummary| {
        let mut named: Vec<String> = contest.slow_blocks.iter().take(5).map(SlowBlock::words).collect();
        if contest.slow_blocks.len() > 5 {
            named.push(format!("and {} more", contest.slow_blocks.len() - 5));
        }
        format!(
            "{}: every setting was slower in {} of {} blocks ({}). Differences are taken within blocks, so they count.",
            contest.work.label(),
            contest.slow_blocks.len(),
            contest.bandwidth.blocks,
            named.join("; ")
        )
    };
    with.map(text).collect()
}

fn passes(report: &Report) -> String {
    let passes = report.meta.passes;
    if report.meta.protocol.is_screened() {
        return "blocks of what screening and race left in".to_owned();
    }
    if !report.meta.protocol.is_planned_ahead() {
        return match report.meta.budget_s {
            Some(s) => {
                let budget = std::time::Duration::try_from_secs_f64(s).unwrap_or_default();
                format!("blocks until each kind of work is decided, for {} at most", units::seconds(budget))
            }
            None => format!("{passes} blocks of each kind of work"),
        };
    }
    if report.meta.discard_first { format!("{passes}, the first set aside") } else { passes.to_string() }
}

fn runs(report: &Report) -> String {
    let c = &report.completeness;
    let counts = report.cleaning.runs;
    let mut text = format!("{} of {} planned; {} kept", c.done, c.planned, counts.kept);
    for (n, what) in [
        (counts.first_pass, "first passes set aside"),
        (counts.rejected, "rejected by Chauvenet's criterion"),
        (counts.void, "void"),
        (counts.cut, "of blocks that were cut short"),
    ] {
        if n > 0 {
            text += &format!(", {n} {what}");
        }
    }
    text
}

/// What cleaning did, and what it could not do.
pub(super) fn cleaning(c: &CleaningSummary) -> Vec<String> {
    let mut text = Vec::new();
    if !c.is_applied {
        let runs = |n| if n == 1 { "run" } else { "runs" };
        let void = (c.runs.void > 0).then(|| format!("{} void {}", c.runs.void, runs(c.runs.void)));
        let cut = (c.runs.cut > 0)
            .then(|| format!("{} {} of blocks that were cut short", c.runs.cut, runs(c.runs.cut)));
        let left_out: Vec<String> = void.into_iter().chain(cut).collect();
        text.push(match left_out.as_slice() {
            [] => "Nothing was removed before conclusions were drawn.".to_owned(),
            some => format!("Nothing was removed before conclusions were drawn, but {}.", some.join(" and ")),
        });
        return text;
    }
    if c.discard_first {
        text.push(
            "As in the papers, each configuration's first pass is set aside: it measures the state that the drive \
             was left in. Chauvenet's criterion then judges the passes that remain, once."
                .to_owned(),
        );
    } else {
        text.push(
            "No pass was set aside; Chauvenet's criterion judges all passes of a configuration, once."
                .to_owned(),
        );
    }
    if c.judged_passes > 0 {
        text.push(chauvenet(c));
    }
    let outliers = c.mad_outliers;
    text.push(match outliers {
        0 => "The robust verdict beside it (more than 14.826 MAD from the median, hyperfine's limit) flags no run.".to_owned(),
        1 => "The robust verdict beside it (more than 14.826 MAD from the median, hyperfine's limit) flags 1 run; it removes nothing.".to_owned(),
        n => format!("The robust verdict beside it (more than 14.826 MAD from the median, hyperfine's limit) flags {n} runs; it removes nothing."),
    });
    if let (Some(before), Some(after)) = (c.cv_before, c.cv_after) {
        text.push(format!(
            "The coefficient of variation of the median configuration went from {} to {}, that of the noisiest from {} to {}.",
            units::percent(before.median), units::percent(after.median), units::percent(before.max), units::percent(after.max)
        ));
    }
    text
}

fn chauvenet(c: &CleaningSummary) -> String {
    let n = c.judged_passes;
    let bounds = format!(
        "With {n} passes its limit is {:.2} sample deviations, and the largest deviation that {n} samples can have is {:.2}",
        c.limit, c.largest_possible
    );
    if !c.can_fire {
        return format!(
            "{bounds}: it can never reject anything, so that it found no outlier says nothing about the data. \
             Five or more passes after the first give it a voice."
        );
    }
    let with_first = if c.discard_first {
        format!(" With the first passes left in, it would have rejected {}.", c.rejected_with_first_pass)
    } else {
        String::new()
    };
    format!(
        "{bounds}; it rejected {} of {} runs.{with_first}",
        c.runs.rejected,
        c.runs.rejected + c.runs.kept
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::RunCounts;

    #[test]
    fn what_was_left_out_is_counted_only_where_something_was() {
        let said = |void, cut| {
            let runs = RunCounts { void, cut, kept: 9, ..RunCounts::default() };
            let summary = CleaningSummary {
                runs,
                is_applied: false,
                discard_first: false,
                judged_passes: 0,
                limit: 0.0,
                largest_possible: 0.0,
                can_fire: false,
                rejected_with_first_pass: 0,
                mad_outliers: 0,
                cv_before: None,
                cv_after: None,
            };
            cleaning(&summary).join(" ")
        };
        assert_eq!(said(0, 0), "Nothing was removed before conclusions were drawn.");
        assert_eq!(said(1, 0), "Nothing was removed before conclusions were drawn, but 1 void run.");
        let both = "Nothing was removed before conclusions were drawn, but 2 void runs and 1 run of blocks that were cut short.";
        assert_eq!(said(2, 1), both);
    }
}
