//! What machine this is, as a record tells it: [`storage::survey::Host`] in a record's words.

use std::collections::BTreeMap;

use measure::record::HostFacts;
use storage::survey::Host;

use super::cpu;

/// The facts that a record carries.
#[must_use]
pub fn host_facts(host: &Host) -> HostFacts {
    HostFacts {
        kernel: host.kernel.clone(),
        architecture: host.architecture.clone(),
        cpu_model: host.cpu_model.clone().unwrap_or_else(|| "unknown".to_owned()),
        cpus: host.cpus.max(1),
        numa_nodes: u32::try_from(host.numa_nodes.len()).unwrap_or(u32::MAX).max(1),
        memory_bytes: host.memory_bytes,
        governor: governor(&host.governors),
        virtualization: host.virtualization.clone(),
        container: host.container.clone(),
    }
}

/// CPUs may have different governors, and a record has room for one: the first that is not
/// `performance`, because that is the one that bears on the figure.
pub(super) fn governor(all: &[String]) -> Option<String> {
    all.iter().find(|governor| *governor != "performance").or(all.first()).cloned()
}

/// The NUMA node of each CPU.
#[must_use]
pub fn node_of_cpu(host: &Host) -> BTreeMap<u32, u32> {
    let of_node = |node: &storage::survey::NumaNode| {
        let number = node.node;
        cpu::parse_list(&node.cpus).into_iter().map(move |cpu| (cpu, number))
    };
    host.numa_nodes.iter().flat_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::survey::NumaNode;

    fn server() -> Host {
        let node = |node, cpus: &str| NumaNode { node, cpus: cpus.into(), memory_bytes: 1 << 30 };
        Host {
            kernel: "6.1.0".into(),
            cpus: 4,
            numa_nodes: vec![node(0, "0-1"), node(1, "2-3")],
            governors: vec!["performance".into(), "schedutil".into()],
            ..Host::default()
        }
    }

    #[test]
    fn the_governor_that_bears_on_the_figure_is_told() {
        assert_eq!(host_facts(&server()).governor.as_deref(), Some("schedutil"));
        let fast = Host { governors: vec!["performance".into()], ..server() };
        assert_eq!(host_facts(&fast).governor.as_deref(), Some("performance"));
        assert_eq!(host_facts(&Host { governors: vec![], ..server() }).governor, None);
    }

    #[test]
    fn a_machine_that_says_nothing_still_has_one_cpu_and_one_node() {
        let facts = host_facts(&Host::default());
        assert_eq!((facts.cpus, facts.numa_nodes, facts.cpu_model.as_str()), (1, 1, "unknown"));
    }

    #[test]
    fn each_cpu_has_the_node_that_lists_it() {
        assert_eq!(node_of_cpu(&server()), BTreeMap::from([(0, 0), (1, 0), (2, 1), (3, 1)]));
    }
}
