//! Graphs, a builder of stored graphs that keeps everything in memory, and a search to compare with.

#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::VecDeque;
use std::path::Path;

use graph::format::{Fwg, FwgConfig, FwgWriter, Header, Order, SectionKind};

/// Edges among `n` vertices.
#[derive(Debug, Clone)]
pub struct Edges {
    pub name: &'static str,
    pub n: u64,
    pub directed: bool,
    pub pairs: Vec<(u64, u64)>,
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

fn undirected(name: &'static str, n: u64, pairs: Vec<(u64, u64)>) -> Edges {
    Edges { name, n, directed: false, pairs }
}

pub fn kronecker(scale: u32, factor: u64, seed: u64) -> Edges {
    let mut random = Random(seed);
    let pairs = (0..factor << scale)
        .map(|_| {
            (0..scale).fold((0, 0), |(a, b), _| match random.below(100) {
                0..57 => (a << 1, b << 1),
                57..76 => (a << 1, b << 1 | 1),
                76..95 => (a << 1 | 1, b << 1),
                _ => (a << 1 | 1, b << 1 | 1),
            })
        })
        .collect();
    undirected("kronecker", 1 << scale, pairs)
}

pub fn uniform(n: u64, edges: u64, seed: u64) -> Edges {
    let mut random = Random(seed);
    undirected("uniform", n, (0..edges).map(|_| (random.below(n), random.below(n))).collect())
}

pub fn grid(width: u64, height: u64) -> Edges {
    let at = |x, y| y * width + x;
    let mut pairs = Vec::new();
    for y in 0..height {
        for x in 0..width {
            if x + 1 < width {
                pairs.push((at(x, y), at(x + 1, y)));
            }
            if y + 1 < height {
                pairs.push((at(x, y), at(x, y + 1)));
            }
        }
    }
    undirected("grid", width * height, pairs)
}

/// Ten graphs of different kinds.
pub fn ten() -> Vec<Edges> {
    let path = undirected("path", 3000, (0..2999).map(|v| (v, v + 1)).collect());
    let star = undirected("star", 5000, (1..5000).map(|v| (4999, v % 4999)).collect());
    let tree = undirected("tree", 4095, (1..4095).map(|v| ((v - 1) / 2, v)).collect());
    let cliques: Vec<_> = (0..40)
        .flat_map(|c| (0..30).flat_map(move |a| (0..a).map(move |b| (c * 30 + a, c * 30 + b))))
        .chain((0..20).map(|c| (c * 30, c * 30 + 30)))
        .collect();
    let isolated = Edges { name: "isolated", n: 20_000, ..uniform(300, 500, 5) };
    let loops = undirected("loops", 64, (0..64).flat_map(|v| [(v, v), (v, (v + 1) % 64), (v, v)]).collect());
    let web = Edges { name: "directed web", directed: true, ..kronecker(10, 8, 11) };
    vec![
        kronecker(13, 16, 3),
        uniform(10_000, 60_000, 4),
        grid(120, 90),
        path,
        star,
        tree,
        undirected("cliques", 1200, cliques),
        isolated,
        loops,
        web,
    ]
}

/// Neighbours of each vertex, ascending, without duplicates and self-loops.
pub fn adjacency(edges: &Edges) -> Vec<Vec<u64>> {
    let mut lists = vec![Vec::new(); edges.n as usize];
    for &(a, b) in edges.pairs.iter().filter(|(a, b)| a != b) {
        lists[a as usize].push(b);
        if !edges.directed {
            lists[b as usize].push(a);
        }
    }
    for list in &mut lists {
        list.sort_unstable();
        list.dedup();
    }
    lists
}

/// Writes a stored graph.
pub fn store(path: &Path, edges: &Edges, order: Order, heads: u32) -> Header {
    let lists = adjacency(edges);
    let mut by_new: Vec<u64> = (0..edges.n).collect();
    if order == Order::Degree {
        by_new.sort_by_key(|old| (std::cmp::Reverse(lists[*old as usize].len()), *old));
    }
    let mut by_old = vec![0; edges.n as usize];
    for (new, old) in by_new.iter().enumerate() {
        by_old[*old as usize] = new as u64;
    }
    let listed = match order {
        Order::Given => edges.n,
        Order::Degree => lists.iter().filter(|list| !list.is_empty()).count() as u64,
    };
    let config = FwgConfig {
        vertices: edges.n,
        listed,
        order,
        directed: edges.directed,
        heads,
        input_edges: edges.pairs.len() as u64,
    };
    let mut writer = FwgWriter::create(path, config).expect("creates");
    for &old in &by_new {
        let mut list: Vec<u64> = lists[old as usize].iter().map(|v| by_old[*v as usize]).collect();
        list.sort_unstable();
        writer.vertex(old, &list).expect("writes");
    }
    if order == Order::Degree {
        by_old.iter().for_each(|new| writer.old_to_new(*new).expect("writes"));
    }
    writer.finish().expect("finishes")
}

/// The level of each vertex; None for what is not reached.
pub fn levels(lists: &[Vec<u64>], source: u64) -> Vec<Option<u32>> {
    let mut levels = vec![None; lists.len()];
    levels[source as usize] = Some(0);
    let mut queue = VecDeque::from([source]);
    while let Some(vertex) = queue.pop_front() {
        for &neighbour in &lists[vertex as usize] {
            if levels[neighbour as usize].is_none() {
                levels[neighbour as usize] = levels[vertex as usize].map(|level| level + 1);
                queue.push_back(neighbour);
            }
        }
    }
    levels
}

/// The stored number of each input vertex, and the other way round.
pub fn numbers(graph: &Fwg) -> [Vec<u64>; 2] {
    [SectionKind::OldToNew, SectionKind::NewToOld].map(|kind| {
        let mut all = Vec::new();
        graph
            .numbers(kind, |first, part| {
                assert_eq!(first, all.len() as u64);
                all.extend(part);
                Ok(())
            })
            .expect("reads");
        all
    })
}
