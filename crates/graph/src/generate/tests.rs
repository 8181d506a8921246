use std::collections::{HashMap, HashSet, VecDeque};

use super::*;
use crate::edges::EdgeList;

fn spec(kind: GraphKind, scale: u32, threads: usize) -> GraphSpec {
    GraphSpec { kind, scale, edge_factor: 16, seed: 7, threads }
}

/// Generates, and reads the file back.
fn pairs(spec: &GraphSpec) -> (EdgesHeader, Vec<(u64, u64)>) {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("made.el");
    let header = generate(spec, &path, &Steps::default()).expect("generates");
    let list = EdgeList::open(&path).expect("opens");
    assert_eq!(list.header(), &header);
    let mut scan = list.scan(0..header.blocks(), 3).expect("begins");
    let mut pairs = Vec::new();
    while let Some((_, block)) = scan.next_block().expect("reads") {
        pairs.extend(block.iter());
    }
    assert_eq!(pairs.len() as u64, header.edges);
    assert!(pairs.iter().all(|(source, target)| source.max(target) < &header.vertices));
    (header, pairs)
}

/// Vertices that a search from the vertex with most edges reaches, and its deepest level.
fn reach(pairs: &[(u64, u64)]) -> (usize, usize) {
    let mut lists: HashMap<u64, Vec<u64>> = HashMap::new();
    for &(source, target) in pairs {
        lists.entry(source).or_default().push(target);
        lists.entry(target).or_default().push(source);
    }
    let hub = *lists.iter().max_by_key(|(vertex, list)| (list.len(), **vertex)).expect("an edge").0;
    let (mut seen, mut queue, mut deepest) = (HashSet::from([hub]), VecDeque::from([(hub, 0)]), 0);
    while let Some((vertex, level)) = queue.pop_front() {
        deepest = deepest.max(level);
        for &next in &lists[&vertex] {
            if seen.insert(next) {
                queue.push_back((next, level + 1));
            }
        }
    }
    (seen.len(), deepest)
}

fn largest_degree(pairs: &[(u64, u64)]) -> u64 {
    let mut degrees: HashMap<u64, u64> = HashMap::new();
    for &(source, target) in pairs {
        *degrees.entry(source).or_default() += 1;
        *degrees.entry(target).or_default() += 1;
    }
    degrees.into_values().max().expect("an edge")
}

#[test]
fn the_same_seed_gives_the_same_edges_with_any_number_of_threads() {
    for kind in [GraphKind::Kronecker, GraphKind::Uniform, GraphKind::Grid, GraphKind::Web] {
        let one = GraphSpec { edge_factor: 4, ..spec(kind, 17, 1) };
        let made = pairs(&one);
        assert!(made == pairs(&GraphSpec { threads: 3, ..one }), "{kind:?}");
        assert!(made.1 != pairs(&GraphSpec { seed: 8, ..one }).1, "{kind:?}: the seed matters");
    }
}

#[test]
fn kronecker_edges_fall_into_the_quadrants_as_graph500_says() {
    let scale = 14;
    let (_, pairs) = pairs(&spec(GraphKind::Kronecker, scale, 2));
    assert_eq!(pairs.len(), 16 << scale);
    let mut original = HashMap::new();
    for number in 0..1u64 << scale {
        let new = random::permuted(7, scale, number);
        assert!(new < 1 << scale && original.insert(new, number).is_none(), "not a permutation");
    }
    let mut counts = [0u32; 4];
    for (source, target) in &pairs {
        let [source, target] = [source, target].map(|vertex| original[vertex] >> (scale - 1));
        counts[(source * 2 + target) as usize] += 1;
    }
    for (count, share) in counts.into_iter().zip([0.57, 0.19, 0.19, 0.05]) {
        let found = f64::from(count) / pairs.len() as f64;
        assert!((found - share).abs() < 0.005, "{found} of {share}");
    }
    let moved = original.iter().filter(|(new, number)| new != number).count();
    assert!(moved > original.len() * 9 / 10, "vertices are renumbered");
}

#[test]
fn kinds_differ_in_degrees_and_diameter_as_documented() {
    let of = |kind| {
        let (header, pairs) = pairs(&spec(kind, 14, 2));
        let (reached, depth) = reach(&pairs);
        (header, largest_degree(&pairs), reached as f64 / f64::from(1 << 14), depth, pairs.len() as f64)
    };
    let (_, hub, _, depth, _) = of(GraphKind::Kronecker);
    assert!(hub > 1000 && depth < 10, "{hub} {depth}");
    let (_, hub, share, depth, _) = of(GraphKind::Uniform);
    assert!(hub < 80 && share > 0.999 && depth < 10, "{hub} {share} {depth}");
    let (_, hub, share, depth, edges) = of(GraphKind::Grid);
    assert!(hub <= 4 && share > 0.9 && depth > 128, "{hub} {share} {depth}");
    assert!((edges / f64::from(1 << 14) - 1.4).abs() < 0.05, "{edges}");
    let (header, hub, share, depth, edges) = of(GraphKind::Web);
    assert!(header.directed && hub > 1000 && share > 0.99, "{hub} {share} {depth}");
    assert!((8.0..24.0).contains(&(edges / f64::from(1 << 14))), "{edges}");
}

#[test]
fn the_smallest_graphs_are_made() {
    for kind in [GraphKind::Kronecker, GraphKind::Uniform, GraphKind::Grid, GraphKind::Web] {
        for scale in 0..4 {
            let (header, _) = pairs(&spec(kind, scale, 4));
            assert_eq!(header.vertices, 1 << scale);
        }
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let refused = |spec: GraphSpec| {
        generate(&spec, Path::new("never.el"), &Steps::default()).expect_err("not possible").to_string()
    };
    assert_eq!(refused(spec(GraphKind::Grid, 49, 1)), "scale 49 is above 48");
    let none = GraphSpec { edge_factor: 0, ..spec(GraphKind::Uniform, 4, 1) };
    assert_eq!(refused(none), "a graph needs at least one edge a vertex");
}

#[test]
fn an_interrupted_generation_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    let steps = Steps::default();
    steps.stop();
    let error = generate(&spec(GraphKind::Uniform, 10, 1), &folder.path().join("made.el"), &steps);
    assert!(matches!(error, Err(GraphError::Interrupted { .. })), "{error:?}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
}
