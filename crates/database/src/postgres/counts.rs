//! What a statement cost the server, counted while it ran and for that run alone.
//!
//! Blocks and times of reads come from auto_explain, which sends the plan that was executed to the client as a notice (`LOAD` takes a
//! superuser); CPU time and bytes of devices come from the kernel's counters of the session's process, for a server on this machine
//! that we may look into. What cannot be counted is None: a statement with parallel workers has no CPU time here, because the
//! counters are of one process.

use std::fs;

use serde_json::Value as Json;

use crate::engine::Cost;

/// Counters of the session's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessCounts {
    cpu_ns: Option<u64>,
    device_bytes: Option<u64>,
}

impl ProcessCounts {
    /// Of a process of this machine.
    pub(super) fn read(process: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).ok();
        Self {
            cpu_ns: read("schedstat").and_then(|text| text.split_whitespace().next()?.parse().ok()),
            device_bytes: read("io").and_then(|text| {
                text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
            }),
        }
    }

    /// Adds to a cost what was counted since.
    pub(super) fn add_since(self, before: Self, cost: &mut Cost) {
        let since = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        cost.cpu_ns = since(self.cpu_ns, before.cpu_ns);
        cost.device_bytes = since(self.device_bytes, before.device_bytes);
    }
}

/// Adds to a cost the blocks and times of auto_explain's notice: `duration: 0.1 ms  plan:` and a document.
pub(super) fn add_notice(notice: &str, cost: &mut Cost) {
    let Some(plan) = notice.find('{').and_then(|at| serde_json::from_str::<Json>(&notice[at..]).ok()) else {
        return;
    };
    let plan = &plan["Plan"];
    let blocks = |kind: &str| {
        let of = |owner: &str| plan[format!("{owner} {kind} Blocks")].as_u64();
        // Tables and indexes, and what did not fit into work_mem.
        Some(of("Shared")? + of("Local").unwrap_or(0) + of("Temp").unwrap_or(0))
    };
    cost.blocks_read = blocks("Read");
    cost.blocks_hit = blocks("Hit");
    // Version 17 has a name for each owner of blocks. Times of 0 are left out by some versions.
    let names = ["I/O Read Time", "Shared I/O Read Time", "Local I/O Read Time", "Temp I/O Read Time"];
    let milliseconds: f64 = names.iter().filter_map(|name| plan[*name].as_f64()).sum();
    cost.io_ns = names.iter().any(|name| plan.get(*name).is_some()).then_some((milliseconds * 1e6) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_read_time_of_a_plan_are_added() {
        let mut cost = Cost::default();
        let plan = r#"duration: 3.1 ms  plan:
            {"Query Text": "q { }", "Plan": {"Node Type": "Sort", "Shared Hit Blocks": 7, "Shared Read Blocks": 82,
             "Local Hit Blocks": 0, "Local Read Blocks": 0, "Temp Read Blocks": 3, "I/O Read Time": 2.5}}"#;
        add_notice(plan, &mut cost);
        assert_eq!((cost.blocks_read, cost.blocks_hit, cost.io_ns), (Some(85), Some(7), Some(2_500_000)));
        let of_17 = plan
            .replace("\"I/O Read Time\": 2.5", "\"Shared I/O Read Time\": 1.0, \"Temp I/O Read Time\": 0.5");
        add_notice(&of_17, &mut cost);
        assert_eq!(cost.io_ns, Some(1_500_000));
    }

    #[test]
    fn a_notice_of_something_else_counts_nothing() {
        let mut cost = Cost::default();
        add_notice("relation \"t\" already exists, skipping", &mut cost);
        assert_eq!(cost, Cost::default());
    }

    #[test]
    fn counters_of_this_process_only_grow() {
        let before = ProcessCounts::read(std::process::id());
        let mut cost = Cost::default();
        ProcessCounts::read(std::process::id()).add_since(before, &mut cost);
        assert_eq!(cost.cpu_ns.is_some(), before.cpu_ns.is_some());
        assert_eq!(ProcessCounts::read(0), ProcessCounts::default());
    }
}
