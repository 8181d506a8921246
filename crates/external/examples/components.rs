//! Connected components of a graph whose edges do not fit in memory: external sorts and scans only.
//!
//!     components FILE MEMORY DIRECTORY      FILE holds edges as pairs of 32-bit numbers, MEMORY is in bytes
//!
//! The algorithm alternates two steps until neither changes anything (Kiveris et al., "Connected Components in MapReduce and
//! Beyond", SoCC 2014). m(v) is the lowest vertex among v and its neighbours.
//!
//! 1. *Large star*: every v connects each neighbour above v with m(v).
//! 2. *Small star*: every v connects each neighbour below v, and v itself, with m(v).
//!
//! In the end every vertex is connected with the lowest one of its component, and with nothing else. A step is one sort by
//! v and one pass; in memory are the sorter's budget and a few blocks.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use external::{
    ExternalError, Sorted, Sorter, SorterOptions, Source, Space, SpaceOptions, Stream, StreamWriter,
};

/// An edge: the vertex it is grouped by in the upper half, the neighbour in the lower half.
fn edge(vertex: u64, neighbour: u64) -> u64 {
    vertex << 32 | neighbour
}

fn ends(edge: u64) -> (u64, u64) {
    (edge >> 32, edge & 0xffff_ffff)
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    LargeStar,
    SmallStar,
}

/// Sorts edges as a step groups them: in both directions for the large star, from the higher vertex for the small one.
fn grouped(
    edges: &Stream<u64>,
    step: Step,
    memory: u64,
    space: &Space,
) -> Result<Sorted<u64>, ExternalError> {
    let mut sorter = Sorter::new(space, &SorterOptions::new(memory).unique(|a, b| a == b))?;
    let mut reader = edges.reader(4);
    while let Some(next) = reader.next_record()? {
        let (a, b) = ends(next);
        sorter.push(edge(a.max(b), a.min(b)))?;
        if step == Step::LargeStar {
            sorter.push(edge(a.min(b), a.max(b)))?;
        }
    }
    sorter.finish()
}

/// One step: the new edges, and whether any differs from what was there.
fn connect(
    edges: &Stream<u64>,
    step: Step,
    memory: u64,
    space: &Space,
) -> Result<(Stream<u64>, bool), ExternalError> {
    let mut sorted = grouped(edges, step, memory, space)?;
    let mut connected = StreamWriter::new(space, 4);
    let mut has_changed = false;
    let mut group: Option<(u64, u64)> = None;
    while let Some(next) = sorted.next_record()? {
        let (vertex, neighbour) = ends(next);
        // Neighbours come in ascending order, so the first one decides m(vertex).
        let is_first = group.is_none_or(|(of, _)| of != vertex);
        let (_, lowest) = *group.insert(match group {
            Some(same) if !is_first => same,
            _ => (vertex, vertex.min(neighbour)),
        });
        match step {
            Step::LargeStar if neighbour > vertex => {
                connected.push(edge(neighbour, lowest))?;
                has_changed |= lowest != vertex;
            }
            Step::LargeStar => {}
            Step::SmallStar if is_first => connected.push(edge(vertex, lowest))?,
            Step::SmallStar => {
                connected.push(edge(neighbour, lowest))?;
                has_changed = true;
            }
        }
    }
    Ok((connected.finish()?, has_changed))
}

/// For each vertex with an edge but the lowest of its component: itself, and that lowest one, ascending.
fn components(mut edges: Stream<u64>, memory: u64, space: &Space) -> Result<Sorted<u64>, ExternalError> {
    loop {
        let (large, is_changed_by_large) = connect(&edges, Step::LargeStar, memory, space)?;
        let (small, is_changed_by_small) = connect(&large, Step::SmallStar, memory, space)?;
        edges = small;
        if !is_changed_by_large && !is_changed_by_small {
            return grouped(&edges, Step::SmallStar, memory, space);
        }
    }
}

/// Reads pairs; self-loops connect nothing and are left out.
fn edges_of(path: &Path, space: &Space) -> Result<Stream<u64>, Box<dyn Error>> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut edges = StreamWriter::new(space, 4);
    let mut pair = [0; 8];
    for _ in 0..file.get_ref().metadata()?.len() / 8 {
        file.read_exact(&mut pair)?;
        let (low, high) = ends(u64::from_le_bytes(pair));
        if low != high {
            edges.push(edge(high, low))?;
        }
    }
    Ok(edges.finish()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, memory, directory] = &arguments[..] else {
        return Err("components FILE MEMORY DIRECTORY".into());
    };
    let memory: u64 = memory.parse()?;
    let bytes = std::fs::metadata(file)?.len();
    let space = Space::scratch(Path::new(directory), 8 * bytes + (64 << 20), &SpaceOptions::default())?;
    let edges = edges_of(Path::new(file), &space)?;
    let mut members = 0_u64;
    let mut lowest = Sorter::new(&space, &SorterOptions::new(memory / 2).unique(|a, b| a == b))?;
    for member in components(edges, memory / 2, &space)? {
        let (_, component) = ends(member?);
        lowest.push(component)?;
        members += 1;
    }
    let mut count = 0_u64;
    for component in lowest.finish()? {
        component?;
        count += 1;
    }
    let usage = space.usage();
    println!("{count} components of {} vertices in all", members + count);
    println!("{} bytes read, {} bytes written", usage.bytes_read, usage.bytes_written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Union-find in memory.
    fn expected(edges: &[(u64, u64)], vertices: u64) -> Vec<u64> {
        let mut parent: Vec<u64> = (0..vertices).collect();
        fn root(parent: &[u64], mut vertex: u64) -> u64 {
            while parent[vertex as usize] != vertex {
                vertex = parent[vertex as usize];
            }
            vertex
        }
        for &(a, b) in edges {
            let (a, b) = (root(&parent, a), root(&parent, b));
            parent[a.max(b) as usize] = a.min(b);
        }
        (0..vertices).map(|vertex| root(&parent, vertex)).collect()
    }

    fn check(edges: &[(u64, u64)], vertices: u64) {
        let directory = tempfile::tempdir().expect("a directory");
        let options = SpaceOptions { block_bytes: 4096, ..SpaceOptions::default() };
        let space = Space::scratch(directory.path(), 16 << 20, &options).expect("is made");
        let mut stream = StreamWriter::new(&space, 2);
        for &(a, b) in edges.iter().filter(|(a, b)| a != b) {
            stream.push(edge(a, b)).expect("fits");
        }
        let found: Vec<(u64, u64)> = components(stream.finish().expect("is written"), 96 << 10, &space)
            .expect("is sorted")
            .map(|member| ends(member.expect("is read")))
            .collect();
        let expected: Vec<(u64, u64)> =
            (0..).zip(expected(edges, vertices)).filter(|(vertex, lowest)| vertex != lowest).collect();
        assert!(found == expected, "{} of {} vertices", found.len(), expected.len());
    }

    #[test]
    fn a_path_a_star_and_separate_pairs_are_told_apart() {
        check(&(0..500).map(|v| (v, v + 1)).collect::<Vec<_>>(), 501);
        check(&(1..500).map(|v| (v, 500)).collect::<Vec<_>>(), 501);
        check(&(0..250).map(|v| (2 * v + 1, 2 * v)).collect::<Vec<_>>(), 500);
    }

    #[test]
    fn components_of_a_random_graph_are_those_of_union_find() {
        let mut state = 2009_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let edges: Vec<(u64, u64)> = (0..30_000).map(|_| (random() % 50_000, random() % 50_000)).collect();
        check(&edges, 50_000);
    }
}
