//! BiologicalNetworks: a warehouse of genes, proteins and their relations from more than twenty sources.
//!
//! What is known of the original: nodes of three kinds, edges with direction and relation, attributes as entity–attribute–value, terms of
//! the Gene Ontology as a directed graph without cycles, and publications. What is inferred: sizes relative to each other, and the
//! distribution of degrees.
//!
//! Rows are pure functions of [`Bionet`] and a row's number, and lie in the order of loading, source after source. So what belongs to
//! one gene is scattered over each table. Picks of nodes are skewed: a few are in very many rows (hubs), most are in few.

mod rows;
pub mod tables;

use measure::pattern::split_mix;
use serde::{Deserialize, Serialize};

use crate::schema::{Rows, Table};
pub use tables::TABLES;

/// Names of a node beside its own.
pub const ALIASES: u64 = 4;
/// Attributes of a node.
pub const ATTRIBUTES: u64 = 10;
/// Edges for each node.
pub const EDGES: u64 = 8;
/// Annotations for each node.
pub const ANNOTATIONS: u64 = 6;
/// Publications for each node.
pub const PUBLICATIONS: u64 = 2;
/// Nodes that a publication names.
pub const NODES_OF_PUBLICATION: u64 = 5;
/// Publications that speak for an edge.
pub const EVIDENCE: u64 = 2;
/// Nodes of a pathway.
pub const NODES_OF_PATHWAY: u64 = 60;
/// Curated sources.
pub const SOURCES: u64 = 20;

/// A warehouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bionet {
    /// Rows of `node`, at least [`Bionet::NODES_MIN`].
    pub nodes: u64,
    /// What all rows follow from.
    pub seed: u64,
}

impl Bionet {
    /// The smallest warehouse.
    pub const NODES_MIN: u64 = 100;

    /// Terms of the ontology.
    #[must_use]
    pub fn terms(&self) -> u64 {
        (self.nodes / 20).max(20)
    }

    /// Pathways.
    #[must_use]
    pub fn pathways(&self) -> u64 {
        (self.nodes / 200).max(2)
    }

    /// Publications.
    #[must_use]
    pub fn publications(&self) -> u64 {
        self.nodes * PUBLICATIONS
    }

    /// How many rows a table has.
    #[must_use]
    pub fn rows(&self, table: &Table) -> u64 {
        match table.name {
            "node_type" => rows::TYPES.len() as u64,
            "node" => self.nodes,
            "alias" => self.nodes * ALIASES,
            "attribute" => self.nodes * ATTRIBUTES,
            "edge" => self.nodes * EDGES,
            "evidence" => self.nodes * EDGES * EVIDENCE,
            "go_term" => self.terms(),
            "go_edge" => self.terms() - 1,
            "annotation" => self.nodes * ANNOTATIONS,
            "pathway" => self.pathways(),
            "pathway_node" => self.pathways() * NODES_OF_PATHWAY,
            "publication" => self.publications(),
            _ => self.publications() * NODES_OF_PUBLICATION,
        }
    }

    /// The rows of a table from a number on.
    #[must_use]
    pub fn stream(&self, table: &Table, from: u64) -> Box<dyn Rows> {
        rows::stream(*self, table, from)
    }

    /// An alias of a node, both from 0.
    #[must_use]
    pub fn alias(&self, node: u64, alias: u64) -> String {
        rows::alias(self, node, alias)
    }

    /// The node with about the `rank`-th most edges, from 0; its number from 1, as in the tables.
    #[must_use]
    pub fn node_of_rank(&self, rank: u64) -> i64 {
        rows::shuffled(rank % self.nodes, self.nodes) as i64 + 1
    }

    /// Random bits that follow from a purpose and a number.
    fn bits(&self, purpose: u64, number: u64) -> u64 {
        let mut state = self.seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ number.rotate_left(23);
        let first = split_mix(&mut state);
        let mut state = first ^ number;
        split_mix(&mut state)
    }
}
