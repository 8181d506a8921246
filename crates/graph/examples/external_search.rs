//! Searches a stored graph outside memory and prints the figures as a line of JSON, for comparisons.
//!
//!     external_search mr|mm GRAPH.fwg SOURCE MEMORY DIRECTORY
//!
//! MEMORY is in bytes; temporary data go to a scratch file in DIRECTORY.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use external::Space;
use graph::format::Fwg;
use graph::fully_external::{ExternalSearchOptions, mehlhorn_meyer, munagala_ranade};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [algorithm, path, source, memory, directory] = &arguments[..] else {
        return Err("external_search mr|mm GRAPH.fwg SOURCE MEMORY DIRECTORY".into());
    };
    let search = match algorithm.as_str() {
        "mr" => munagala_ranade,
        "mm" => mehlhorn_meyer,
        _ => return Err(format!("algorithm {algorithm} is neither mr nor mm").into()),
    };
    let (source, memory): (u64, u64) = (source.parse()?, memory.parse()?);
    let graph = Fwg::open(path)?;
    let bytes = 64 * graph.header().entries + 80 * graph.header().vertices + (64 << 20);
    let space = Space::scratch(Path::new(directory), bytes, &ExternalSearchOptions::space_options(memory))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);

    let start = Instant::now();
    let options = ExternalSearchOptions { memory, threads, space };
    let mut tree = search(&graph, source, &options)?;
    let mut sum_of_levels = 0;
    while let Some(reached) = tree.next_reached()? {
        sum_of_levels += reached.level;
    }
    let seconds = start.elapsed().as_secs_f64();
    let figures = tree.figures();
    println!(
        "{{\"seconds\": {seconds:.4}, \"levels\": {}, \"reached\": {}, \"sum_of_levels\": {sum_of_levels}, \
         \"entries\": {}, \"bytes_read\": {}, \"bytes_written\": {}, \"bytes_in_theory\": {}, \
         \"expanding\": {:.4}, \"merging\": {:.4}, \"finishing\": {:.4}, \"waited\": {:.4}}}",
        figures.levels,
        figures.reached,
        figures.entries,
        figures.graph_bytes_read + figures.space_bytes_read,
        figures.space_bytes_written,
        figures.bytes_in_theory,
        figures.expanding.as_secs_f64(),
        figures.merging.as_secs_f64(),
        figures.finishing.as_secs_f64(),
        figures.waited.span.as_secs_f64(),
    );
    Ok(())
}
