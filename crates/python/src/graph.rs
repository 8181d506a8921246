//! `flashwright.graph`: searches whose results are buffers, without a text or a file in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};

use graph::GraphError;
use graph::fetch::Traffic;
use graph::format::Fwg;
use graph::semi::{Semi, SemiConfig, in_input_order};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::SIGNALS;
use crate::errors::raise_graph;

/// Levels as native `i32` and parents as native `i64`, by vertex in the input's numbers; −1 where a vertex was not reached.
type Found = (Vec<u8>, Vec<u8>);

/// Searches a graph breadth-first from `source` (`graph::semi`). Ctrl-C ends it.
#[pyfunction]
#[pyo3(signature = (path, source, *, memory, threads))]
pub(crate) fn bfs<'py>(
    py: Python<'py>,
    path: &str,
    source: u64,
    memory: u64,
    threads: Option<usize>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let config = SemiConfig { memory, threads: threads.unwrap_or(1).max(1), engine: base::IoEngine::Auto };
    let (found, raised) = py.detach(|| patiently(|stop| search(path, source, config, stop)));
    // What a handler raised is the caller's, also where the search came to its end all the same.
    if let Some(raised) = raised {
        return Err(raised);
    }
    let (levels, parents) = found.map_err(|error| raise_graph(&error))?;
    Ok((PyBytes::new(py, &levels), PyBytes::new(py, &parents)))
}

/// Does the work on a thread of its own, while this one, which Python's handlers run on, looks for signals.
fn patiently(
    work: impl FnOnce(&AtomicBool) -> Result<Found, GraphError> + Send,
) -> (Result<Found, GraphError>, Option<PyErr>) {
    let stop = AtomicBool::new(false);
    let (sender, results) = channel();
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            // The receiver lives as long as the scope.
            let _ = sender.send(work(stop));
        });
        let mut raised = None;
        loop {
            match results.recv_timeout(SIGNALS) {
                Ok(found) => return (found, raised),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = Python::attach(|py| py.check_signals()) {
                        raised.get_or_insert(error);
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                // The thread panicked, which the end of the scope passes on.
                Err(RecvTimeoutError::Disconnected) => {
                    return (Err(GraphError::Interrupted { during: "searching" }), raised);
                }
            }
        }
    })
}

fn search(path: &str, source: u64, config: SemiConfig, stop: &AtomicBool) -> Result<Found, GraphError> {
    let graph = Fwg::open(path)?;
    let traffic = Traffic::of(&graph);
    let mut semi = Semi::new(&graph, &traffic, config)?;
    let stored = graph.stored_number(source)?;
    semi.search(stored, stop)?;
    let memory = semi.plan().for_tree(&graph);
    let parents = semi.into_parents();
    let vertices = parents.len();
    let mut found = (Vec::with_capacity(vertices * 4), Vec::with_capacity(vertices * 8));
    in_input_order(&graph, parents, memory, stop, |vertex| {
        let (parent, level) = vertex.map_or((-1, -1), |(parent, level)| (parent as i64, level as i32));
        found.0.extend_from_slice(&level.to_ne_bytes());
        found.1.extend_from_slice(&parent.to_ne_bytes());
        Ok(())
    })?;
    Ok(found)
}
