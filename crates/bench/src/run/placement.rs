//! Which CPUs each thread of a job may run on: fio's `cpus_allowed`, `cpus_allowed_policy` and
//! `numa_cpu_nodes`.
//!
//! A CPU that the process may not use, and a node that the machine does not have, are refused before
//! anything runs: the kernel would quietly leave them out, and the record would name CPUs that nothing ran
//! on. A thread is bound before it opens its engine, so that the engine's buffers, which it touches first,
//! and the threads that the engine starts, go with it.

use std::collections::{BTreeMap, BTreeSet};

use measure::Workload;
use measure::workload::{CpusAllowedPolicy, NumberList};

use super::BenchError;

/// Where the threads of a job run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placement {
    /// None: wherever the process may.
    cpus: Option<NumberList>,
    split: bool,
}

impl Placement {
    /// Where a workload's threads run, on a machine with these nodes, in a process that may use the CPUs
    /// `allowed`.
    pub fn new(
        workload: &Workload,
        node_of_cpu: &BTreeMap<u32, u32>,
        allowed: &[u32],
    ) -> Result<Self, BenchError> {
        let split = workload.cpus_allowed_policy == CpusAllowedPolicy::Split;
        let cpus = match (&workload.cpus_allowed, &workload.numa_cpu_nodes) {
            (Some(cpus), _) => Some(all_usable(cpus, allowed)?),
            (None, Some(nodes)) => Some(of_nodes(nodes, node_of_cpu, allowed)?),
            (None, None) => None,
        };
        Ok(Self { cpus, split })
    }

    /// The CPUs of thread `job`, from 0.
    pub fn of(&self, job: u32) -> Option<Vec<u32>> {
        let cpus = self.cpus.as_ref()?.numbers();
        Some(if self.split { vec![cpus[job as usize % cpus.len()]] } else { cpus.to_vec() })
    }
}

fn all_usable(cpus: &NumberList, allowed: &[u32]) -> Result<NumberList, BenchError> {
    if cpus.numbers().iter().all(|cpu| allowed.contains(cpu)) {
        return Ok(cpus.clone());
    }
    Err(BenchError::Cpus { option: "cpus_allowed", value: cpus.to_string(), allowed: list(allowed) })
}

fn of_nodes(
    nodes: &NumberList,
    node_of_cpu: &BTreeMap<u32, u32>,
    allowed: &[u32],
) -> Result<NumberList, BenchError> {
    let there: BTreeSet<u32> = node_of_cpu.values().copied().collect();
    if !nodes.numbers().iter().all(|node| there.contains(node)) {
        let there: Vec<u32> = there.into_iter().collect();
        return Err(BenchError::Nodes { value: nodes.to_string(), nodes: list(&there) });
    }
    let wanted = |cpu: &&u32| node_of_cpu.get(cpu).is_some_and(|node| nodes.numbers().contains(node));
    NumberList::new(allowed.iter().filter(wanted).copied()).ok_or_else(|| BenchError::Cpus {
        option: "numa_cpu_nodes",
        value: nodes.to_string(),
        allowed: list(allowed),
    })
}

/// A list for a message; empty where there is nothing.
fn list(numbers: &[u32]) -> String {
    NumberList::new(numbers.iter().copied()).map_or_else(String::new, |list| list.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(options: &str) -> Workload {
        serde_json::from_str(options).expect("a workload")
    }

    fn two_nodes() -> BTreeMap<u32, u32> {
        BTreeMap::from([(0, 0), (1, 0), (2, 1), (3, 1)])
    }

    fn place(options: &str, allowed: &[u32]) -> Result<Vec<Option<Vec<u32>>>, BenchError> {
        let placement = Placement::new(&workload(options), &two_nodes(), allowed)?;
        Ok((0..3).map(|job| placement.of(job)).collect())
    }

    #[test]
    fn jobs_share_their_cpus_or_take_one_each_in_turn() {
        let all = [0, 1, 2, 3];
        assert_eq!(place("{}", &all).expect("fits"), [None, None, None]);
        let shared = place(r#"{"cpus_allowed": "1,3"}"#, &all).expect("fits");
        assert_eq!(shared, vec![Some(vec![1, 3]); 3]);
        let split = place(r#"{"cpus_allowed": "1,3", "cpus_allowed_policy": "split"}"#, &all).expect("fits");
        assert_eq!(split, [Some(vec![1]), Some(vec![3]), Some(vec![1])]);
        let node = place(r#"{"numa_cpu_nodes": "1"}"#, &[1, 2, 3]).expect("fits");
        assert_eq!(node[0], Some(vec![2, 3]));
    }

    #[test]
    fn cpus_and_nodes_that_are_not_to_be_had_are_refused_by_name() {
        let said = |options, allowed: &[u32]| place(options, allowed).expect_err("is refused").to_string();
        let cpus = said(r#"{"cpus_allowed": "0-5"}"#, &[0, 1]);
        assert_eq!(cpus, "cpus_allowed=0-5: this process may run on CPU 0-1 only");
        let node = said(r#"{"numa_cpu_nodes": "4"}"#, &[0, 1]);
        assert_eq!(node, "numa_cpu_nodes=4: this machine has node 0-1 only");
        assert!(said(r#"{"numa_cpu_nodes": "1"}"#, &[0, 1]).contains("may run on CPU 0-1 only"));
        let none = Placement::new(&workload(r#"{"numa_cpu_nodes": "0"}"#), &BTreeMap::new(), &[0]);
        assert_eq!(
            none.expect_err("is refused").to_string(),
            "numa_cpu_nodes=0: this kernel names no NUMA nodes"
        );
    }
}
