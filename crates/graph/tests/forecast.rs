//! Which search outside memory is chosen follows from the graph, the budget and the drive.

mod common;

use std::time::Duration;

use common::{grid, kronecker, store};
use graph::forecast::{DriveFigures, forecast, levels, measure};
use graph::format::{Fwg, Order};

const MEMORY: u64 = 4 << 20;

fn drive(pages_per_s: f64, bytes_per_s: f64) -> DriveFigures {
    DriveFigures { pages_per_s, bytes_per_s, measured: Duration::from_millis(400) }
}

#[test]
fn a_graph_like_roads_is_searched_in_clusters_on_a_disk_and_by_levels_in_memory() {
    let folder = tempfile::tempdir().expect("a directory");
    let header = store(&folder.path().join("g.fwg"), &grid(400, 400), Order::Given, 0);
    assert!((700.0..900.0).contains(&levels(&header)), "{}", levels(&header));
    let disk = forecast(&header, MEMORY, &drive(150.0, 150e6));
    assert!(disk.mm_s * 3.0 < disk.mr_s, "{disk:?}");
    let memory = forecast(&header, MEMORY, &drive(2e6, 10e9));
    assert!(memory.mr_s < memory.mm_s, "{memory:?}");
    assert!(memory.mr_s < disk.mr_s && memory.mm_s < disk.mm_s);
}

#[test]
fn a_graph_of_few_levels_is_searched_by_levels_on_any_drive() {
    let folder = tempfile::tempdir().expect("a directory");
    let header = store(&folder.path().join("g.fwg"), &kronecker(13, 16, 3), Order::Degree, 0);
    assert!(levels(&header) < 15.0, "{}", levels(&header));
    for drive in [drive(150.0, 150e6), drive(1e5, 1.4e9), drive(2e6, 10e9)] {
        let forecast = forecast(&header, MEMORY, &drive);
        assert!(forecast.mr_s < forecast.mm_s, "{forecast:?}");
    }
}

#[test]
fn a_drive_is_measured_by_reading_the_graph() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    // One page of lists, and many.
    for edges in [grid(2, 2), kronecker(12, 8, 3)] {
        store(&path, &edges, Order::Degree, 0);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let drive = measure(&graph).expect("reads");
        assert!(drive.pages_per_s.is_finite() && drive.pages_per_s > 0.0, "{drive:?}");
        assert!(drive.bytes_per_s.is_finite() && drive.bytes_per_s > 0.0, "{drive:?}");
    }
}
