//! Rows of the warehouse, each a pure function of its number.

use super::{
    ALIASES, ANNOTATIONS, ATTRIBUTES, Bionet, EDGES, EVIDENCE, NODES_OF_PATHWAY, NODES_OF_PUBLICATION,
    SOURCES,
};
use crate::schema::{Rows, Table, Value};

/// What random bits are for.
mod purpose {
    pub const NODE: u64 = 1;
    pub const ATTRIBUTE: u64 = 2;
    pub const EDGE_FROM: u64 = 3;
    pub const EDGE_TO: u64 = 4;
    pub const EVIDENCE: u64 = 5;
    pub const TERM: u64 = 6;
    pub const ANNOTATION: u64 = 7;
    pub const PATHWAY: u64 = 8;
    pub const PUBLICATION: u64 = 9;
    pub const CITED: u64 = 10;
    pub const ALIAS: u64 = 11;
}

/// Types of nodes.
pub const TYPES: [&str; 8] =
    ["gene", "protein", "complex", "compound", "reaction", "regulation", "pathway", "process"];

pub fn stream(bionet: Bionet, table: &Table, from: u64) -> Box<dyn Rows> {
    let of: fn(&Bionet, u64, &mut Vec<Value>) = match table.name {
        "node_type" => node_type,
        "node" => node,
        "alias" => alias_row,
        "attribute" => attribute,
        "edge" => edge,
        "evidence" => evidence,
        "go_term" => term,
        "go_edge" => term_edge,
        "annotation" => annotation,
        "pathway" => pathway,
        "pathway_node" => pathway_node,
        "publication" => publication,
        _ => publication_node,
    };
    Box::new(Numbered { bionet, next: from, end: bionet.rows(table), of })
}

struct Numbered {
    bionet: Bionet,
    next: u64,
    end: u64,
    of: fn(&Bionet, u64, &mut Vec<Value>),
}

impl Rows for Numbered {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        if self.next >= self.end {
            return false;
        }
        row.clear();
        (self.of)(&self.bionet, self.next, row);
        self.next += 1;
        true
    }
}

/// Rank `rank` of `n` somewhere else: multiplication by a prime that does not divide `n`.
pub fn shuffled(rank: u64, n: u64) -> u64 {
    const PRIMES: [u64; 2] = [2_654_435_761, 4_294_967_291];
    let prime = if n.is_multiple_of(PRIMES[0]) { PRIMES[1] } else { PRIMES[0] };
    (u128::from(rank) * u128::from(prime) % u128::from(n)) as u64
}

/// A rank below `n` by the cube of a uniform number, so that rank r is drawn about r^(-2/3) times as often as the first.
fn skewed(bits: u64, n: u64) -> u64 {
    let part = (bits >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0);
    ((part * part * part * n as f64) as u64).min(n - 1)
}

impl Bionet {
    /// A node, from 1; hubs more often.
    fn pick(&self, purpose: u64, number: u64) -> i64 {
        shuffled(skewed(self.bits(purpose, number), self.nodes), self.nodes) as i64 + 1
    }

    /// Any node, from 1. Rows of one source lie together, so a node's rows are as far apart as its sources.
    fn any(&self, number: u64, each: u64) -> i64 {
        debug_assert!(number < self.nodes * each, "row {number}");
        shuffled(number % self.nodes, self.nodes) as i64 + 1
    }
}

fn source(number: u64, rows: u64) -> Value {
    Value::from((number * SOURCES / rows.max(1)) as i64 + 1)
}

fn id(number: u64) -> Value {
    Value::from(number as i64 + 1)
}

fn node_type(_: &Bionet, number: u64, row: &mut Vec<Value>) {
    row.extend([id(number), Value::from(TYPES[number as usize])]);
}

fn node(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    const KINDS: [&str; 8] =
        ["primary", "primary", "primary", "primary", "primary", "connector", "connector", "graph"];
    let bits = bionet.bits(purpose::NODE, number);
    row.extend([
        id(number),
        id(bits % TYPES.len() as u64),
        Value::from(KINDS[(bits >> 8) as usize % KINDS.len()]),
    ]);
    row.push(Value::Text(format!("N{:08}", number + 1)));
    row.extend([source(number, bionet.nodes), id((bits >> 16) % 8)]);
}

/// The `alias`-th name of a node, both from 0.
pub fn alias(bionet: &Bionet, node: u64, alias: u64) -> String {
    format!("{:08x}-{alias}", bionet.bits(purpose::ALIAS, node * ALIASES + alias) >> 32)
}

fn alias_row(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    let node = bionet.any(number, ALIASES);
    let name = alias(bionet, node as u64 - 1, number / bionet.nodes);
    row.extend([Value::Text(name), node.into(), source(number, bionet.nodes * ALIASES)]);
}

fn attribute(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    let bits = bionet.bits(purpose::ATTRIBUTE, number);
    let value = Value::Text(format!("{bits:016x}{:016x}", bits.rotate_left(13)));
    row.extend([bionet.any(number, ATTRIBUTES).into(), id(number / bionet.nodes), value]);
}

fn edge(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    let from = bionet.pick(purpose::EDGE_FROM, number);
    let bits = bionet.bits(purpose::EDGE_TO, number);
    // The other end is any node, never the same one.
    let step = 1 + (bits % (bionet.nodes - 1)) as i64;
    let to = (from - 1 + step) % bionet.nodes as i64 + 1;
    row.extend([
        id(number),
        from.into(),
        to.into(),
        id((bits >> 40) % 12),
        Value::from((bits >> 60 & 1) as i64),
    ]);
    row.push(source(number, bionet.nodes * EDGES));
}

fn evidence(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    let edges = bionet.nodes * EDGES;
    let edge = shuffled(number % edges, edges);
    let publication =
        bionet.bits(purpose::EVIDENCE, edge * EVIDENCE + number / edges) % bionet.publications();
    row.extend([id(edge), id(publication)]);
}

fn term(_: &Bionet, number: u64, row: &mut Vec<Value>) {
    let depth = (number + 1).ilog2();
    row.extend([id(number), Value::Text(format!("GO:{:07}", number + 1)), Value::from(i64::from(depth))]);
}

/// The parent of each term but the root has a smaller number, so there is no cycle.
fn term_edge(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    row.extend([id(number + 1), id(bionet.bits(purpose::TERM, number) % (number + 1))]);
}

fn annotation(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    let bits = bionet.bits(purpose::ANNOTATION, number);
    let term = skewed(bits, bionet.terms());
    row.extend([bionet.pick(purpose::ANNOTATION + 100, number).into(), id(term), id(bits % 10)]);
    row.push(source(number, bionet.nodes * ANNOTATIONS));
}

fn pathway(_: &Bionet, number: u64, row: &mut Vec<Value>) {
    row.extend([id(number), Value::Text(format!("pathway {}", number + 1))]);
}

fn pathway_node(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    // A stride within the pathway: its nodes are distinct.
    let (pathway, place) = (number / NODES_OF_PATHWAY, number % NODES_OF_PATHWAY);
    let first = bionet.bits(purpose::PATHWAY, pathway);
    row.extend([id(pathway), id(shuffled((first % bionet.nodes + place) % bionet.nodes, bionet.nodes))]);
}

fn publication(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    let bits = bionet.bits(purpose::PUBLICATION, number);
    let year = 1950 + (number * 60 / bionet.publications()) as i64;
    row.extend([id(number), Value::from(year), Value::Text(format!("On {bits:016x} in {:016x}", !bits))]);
}

fn publication_node(bionet: &Bionet, number: u64, row: &mut Vec<Value>) {
    let cited = bionet.pick(purpose::CITED, number);
    row.extend([id(number / NODES_OF_PUBLICATION), cited.into()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bionet::TABLES;

    const SMALL: Bionet = Bionet { nodes: 300, seed: 3 };

    fn all(table: &Table, from: u64) -> Vec<Vec<Value>> {
        let (mut rows, mut row, mut all) = (SMALL.stream(table, from), Vec::new(), Vec::new());
        while rows.next(&mut row) {
            assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            all.push(row.clone());
        }
        all
    }

    #[test]
    fn a_stream_that_begins_in_the_middle_has_the_same_rows() {
        for table in &TABLES {
            let rows = all(table, 0);
            assert_eq!(rows.len() as u64, SMALL.rows(table), "{}", table.name);
            for from in [1, rows.len() / 2, rows.len()] {
                assert_eq!(all(table, from as u64), rows[from..], "{} from {from}", table.name);
            }
        }
    }

    #[test]
    fn every_node_has_its_aliases_and_attributes_and_hubs_have_most_edges() {
        for (table, column, each) in [(&TABLES[2], 1, ALIASES), (&TABLES[3], 0, ATTRIBUTES)] {
            let mut count = vec![0; 301];
            for row in all(table, 0) {
                let Value::Integer(node) = row[column] else { panic!("{row:?}") };
                count[node as usize] += 1;
            }
            assert!(count[1..].iter().all(|n| *n == each), "{}", table.name);
        }
        let mut degree = vec![0; 301];
        for row in all(&TABLES[4], 0) {
            assert_ne!(row[1], row[2]);
            let Value::Integer(node) = row[1] else { panic!("{row:?}") };
            degree[node as usize] += 1;
        }
        let hub = degree[SMALL.node_of_rank(0) as usize];
        assert_eq!(degree.iter().max(), Some(&hub));
        assert!(hub > 100, "{hub} of 2400");
    }
}
