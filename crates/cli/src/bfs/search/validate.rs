//! `bfs validate`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use graph::GraphError;
use graph::edges::EdgeList;
use graph::format::Fwg;
use graph::results::Results;
use graph::validate::{Validator, Verdict};

use super::args::ValidateArgs;
use super::documents::{ValidateDocument, ViolationDocument};
use crate::failure::Failure;
use crate::{output, signals};

/// Blocks of the edge list that are read at once.
const READ_DEPTH: u32 = 4;

/// Checks results; exit code 1 if they are wrong.
pub fn validate(args: &ValidateArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let graph = Fwg::open(&args.graph)?;
    let found = Results::header_of(&args.results)?.vertices;
    if found != graph.header().vertices {
        let vertices = graph.header().vertices;
        return Err(Failure::invalid(format!(
            "{}: is of a graph of {found} vertices, {} has {vertices}",
            args.results.display(),
            args.graph
        ))
        .hint("name the results of a search of this graph"));
    }
    let results = Results::open(&args.results)?;
    let verdict = against(&results, &args.edges, graph.header(), &stop)?;
    let document = ValidateDocument {
        schema: "flashwright.bfs-validate/1",
        valid: verdict.violations.is_empty(),
        source: results.header().source,
        reached: verdict.reached,
        levels: verdict.levels,
        edges: verdict.edges,
        component_edges: verdict.component_edges,
        violations: verdict
            .violations
            .iter()
            .map(|violation| ViolationDocument { check: violation.check, detail: violation.detail.clone() })
            .collect(),
    };
    if args.json {
        output::print_document(&document)?;
    } else if document.valid {
        output::print(&format!(
            "valid: {} vertices on {} levels, {} of {} input edges in the component\n",
            document.reached, document.levels, document.component_edges, document.edges
        ))?;
    }
    failure(&verdict, &args.results)
}

/// Checks results against an edge list.
pub fn against(
    results: &Results,
    edges: &Path,
    header: &graph::format::Header,
    stop: &AtomicBool,
) -> Result<Verdict, GraphError> {
    let list = EdgeList::open(edges)?;
    if list.header().vertices != header.vertices || list.header().edges != header.input_edges {
        let message = format!(
            "{}: has {} edges among {} vertices; the graph was built of {} among {}",
            edges.display(),
            list.header().edges,
            list.header().vertices,
            header.input_edges,
            header.vertices
        );
        return Err(GraphError::Invalid { message });
    }
    let mut validator = Validator::new(results, header.directed)?;
    let mut scan = list.scan(0..list.header().blocks(), READ_DEPTH)?;
    while let Some((_, pairs)) = scan.next_block()? {
        if stop.load(Ordering::Relaxed) {
            return Err(GraphError::Interrupted { during: "validating" });
        }
        validator.edges(pairs.iter());
    }
    Ok(validator.finish())
}

/// The failure that violations are.
pub fn failure(verdict: &Verdict, results: &Path) -> Result<(), Failure> {
    if verdict.violations.is_empty() {
        return Ok(());
    }
    let failed: Vec<_> =
        verdict.violations.iter().map(|v| format!("check {}: {}", v.check, v.detail)).collect();
    Err(Failure::failed(format!("{}: is not a valid search: {}", results.display(), failed.join("; ")))
        .hint("docs/verbs/bfs.md says what each check is"))
}
