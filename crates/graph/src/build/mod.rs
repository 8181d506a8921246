//! From an edge list to a stored graph, within a budget of memory.
//!
//! 1. **Arcs.** Each edge becomes one arc, or two if it has no direction. They are sorted by source and target
//!    ([`external::Sorter`]), duplicates are dropped, and the result is an edge list `arcs.el` in the work directory
//!    `NAME.build` beside the graph, with the degree of each vertex in `degrees.el`. For degree order one arc an edge is enough
//!    here, and step 3 makes the other (`arcs`).
//! 2. **Numbers.** In degree order a vertex's number follows from `degrees.el` and a count of the vertices of each degree
//!    (`numbers`); vertices of equal degree keep the order of the input.
//! 3. **Lists.** In degree order both ends of each arc are renumbered and the arcs sorted again; their merge goes to the
//!    [`FwgWriter`]. In the given order the lists are those of `arcs.el`. Which of both it is follows from the arcs, unless it is
//!    asked for (`order`).
//!
//! Renumbering looks numbers up in an array where half of the budget holds one. Otherwise the arcs are sorted by each end in turn
//! and merged with the numbers, which takes one more sort and no memory by the number of vertices.
//!
//! **Resuming.** `arcs.el` is complete or does not exist, and its header names the input and the options. A build that was
//! killed or stopped after step 1 goes on with step 2 if the same is asked again; before that it starts again.
//!
//! On a device (`device`) the same steps are made; the work directory then lies where the temporary files go.
//!
//! **Disk.** The sorts take scratch space of 8 or 16 bytes an arc in an unnamed file, which is gone when the process ends;
//! `arcs.el` takes as much again, or half of it.

mod arcs;
mod degrees;
mod device;
mod lists;
mod numbers;
mod order;
mod work;

use std::path::{Path, PathBuf};

use external::{Space, SpaceOptions, Usage};

use crate::edges::EdgeList;
use crate::format::{self, FwgConfig, FwgWriter, Header, Order};
use crate::{GraphError, IdWidth, Steps};

use arcs::{Arc, Arcs};
pub use device::BuildDevice;
use work::WorkDirectory;

/// The least budget, bytes.
pub const LEAST_MEMORY_BYTES: u64 = 32 << 20;
/// What a build takes beside its sorts: two edge lists that are written at the same time (8 MiB), program, threads and allocator
/// (5 MiB), page tables and other memory of the kernel (1 MiB), and pages of the file that are on their way to the drive.
const FIXED_BYTES: u64 = 18 << 20;
/// Blocks of an edge list that are read at once.
const READ_DEPTH: u32 = 3;

/// How a graph is built.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Bytes of memory for everything; at least [`LEAST_MEMORY_BYTES`].
    pub memory: u64,
    /// Whether arcs go in the direction of the edges only; None takes what the list says.
    pub directed: Option<bool>,
    /// Keep edges that occur several times as often as they occur.
    pub keep_duplicates: bool,
    /// Keep edges from a vertex to itself.
    pub keep_self_loops: bool,
    /// How vertices are numbered; None if the arcs are to decide.
    pub order: Option<Order>,
    /// Neighbours of each vertex in the heads section.
    pub heads: u32,
    /// Where the scratch file is made; None puts it beside the graph.
    pub scratch: Option<PathBuf>,
    /// Threads that sort.
    pub threads: usize,
}

/// What a build did.
#[derive(Debug)]
pub struct Built {
    /// The graph.
    pub header: Header,
    /// Whether an earlier build's arcs were used.
    pub resumed: bool,
    /// Whether renumbering took an array in memory; None if nothing was renumbered.
    pub array_in_memory: Option<bool>,
    /// Arcs that were sorted first, one or two an edge, before duplicates were dropped; None after a resumption.
    pub arcs_sorted: Option<u64>,
    /// What the sorts moved.
    pub scratch: Usage,
}

/// Phases of a build, as [`Steps`] tells them.
pub const BUILD_PHASES: [&str; 4] = ["reading edges", "sorting edges", "renumbering", "writing the graph"];

/// Builds the graph of `list` at `path`.
///
/// # Errors
/// [`GraphError::Io`] if a file cannot be read or written, or the file system has no room for the graph; [`GraphError::External`]
/// if temporary space fails; [`GraphError::Corrupt`] or [`GraphError::VertexTooLarge`] if the list is unsound;
/// [`GraphError::Memory`] if the budget is too small; [`GraphError::Invalid`] if the options or a degree exceed what the format
/// holds; [`GraphError::Busy`] if the same graph is being built; [`GraphError::WouldReplace`] if something other than a graph is
/// at `path`, or its work directory belongs to another user; [`GraphError::Interrupted`] if `steps` asks to stop.
pub fn build(
    list: &EdgeList,
    path: &Path,
    options: &BuildOptions,
    steps: &Steps,
) -> Result<Built, GraphError> {
    check_memory(options)?;
    work::check_replaceable(path)?;
    build_at(list, Destination::File(path), options, steps)
}

/// Builds the graph of `list` on a device.
///
/// # Errors
/// As [`build`]; [`GraphError::SmallDevice`].
pub fn build_on(
    list: &EdgeList,
    device: &BuildDevice,
    options: &BuildOptions,
    steps: &Steps,
) -> Result<Built, GraphError> {
    check_memory(options)?;
    build_at(list, Destination::Device(device), options, steps)
}

/// Fails if a budget is too small for any build.
///
/// # Errors
/// [`GraphError::Memory`].
pub fn check_memory(options: &BuildOptions) -> Result<(), GraphError> {
    if options.memory >= LEAST_MEMORY_BYTES {
        return Ok(());
    }
    let (needed, budget) = (LEAST_MEMORY_BYTES, options.memory);
    Err(GraphError::Memory { purpose: "building a graph".to_owned(), needed, budget })
}

/// Where a graph is built.
#[derive(Debug, Clone, Copy)]
enum Destination<'a> {
    File(&'a Path),
    Device(&'a BuildDevice),
}

impl<'a> Destination<'a> {
    fn work_directory(self, list: &EdgeList, options: &BuildOptions) -> Result<WorkDirectory, GraphError> {
        match self {
            Self::File(path) => WorkDirectory::open(path),
            Self::Device(device) => {
                let path = device.work_directory(list.path(), options.scratch.as_deref());
                WorkDirectory::at(path, device.name())
            }
        }
    }

    /// Where temporary files go if nothing else is said.
    fn folder(self, list: &'a EdgeList) -> &'a Path {
        match self {
            Self::File(path) => folder_of(path),
            Self::Device(_) => folder_of(list.path()),
        }
    }

    /// Bytes of memory for the checksums that the device itself keeps.
    fn sums_bytes(self, config: &FwgConfig, entries: u64) -> u64 {
        match self {
            Self::File(_) => 0,
            Self::Device(device) => {
                format::device_sums_bytes(&**device.device(), config.least_bytes(entries))
            }
        }
    }

    fn writer(self, config: FwgConfig, entries: u64) -> Result<FwgWriter, GraphError> {
        let device = match self {
            Self::File(path) => {
                check_room(path, config.least_bytes(entries))?;
                return FwgWriter::create(path, config);
            }
            Self::Device(device) => device,
        };
        let size = device.device().size();
        // An earlier graph is given up only where the new one is sure to fit.
        let needed = match device.bears_graph()? {
            true => config.most_bytes(entries),
            false => config.least_bytes(entries),
        };
        if size < needed {
            return Err(GraphError::SmallDevice { device: device.name().to_owned(), size, needed });
        }
        FwgWriter::on(std::sync::Arc::clone(device.device()), device.name(), config)
    }
}

/// Fails if a file system surely has no room for a graph. What it cannot tell is tried.
fn check_room(path: &Path, needed: u64) -> Result<(), GraphError> {
    let free =
        rustix::fs::statvfs(folder_of(path)).map(|facts| facts.f_bavail.saturating_mul(facts.f_frsize));
    if free.is_ok_and(|free| free < needed) {
        let full = rustix::io::Errno::NOSPC.into();
        return Err(GraphError::io("be written whole", path, full));
    }
    Ok(())
}

/// The directory of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn build_at(
    list: &EdgeList,
    destination: Destination<'_>,
    options: &BuildOptions,
    steps: &Steps,
) -> Result<Built, GraphError> {
    match list.header().width {
        IdWidth::Four => build_with::<u64>(list, destination, options, steps),
        IdWidth::Eight => build_with::<[u64; 2]>(list, destination, options, steps),
    }
}

fn build_with<A: Arc>(
    list: &EdgeList,
    destination: Destination<'_>,
    options: &BuildOptions,
    steps: &Steps,
) -> Result<Built, GraphError> {
    let directed = options.directed.unwrap_or(list.header().directed);
    let work = destination.work_directory(list, options)?;
    let space = scratch_space::<A>(list, directed, destination.folder(list), options)?;
    let budget = options.memory - FIXED_BYTES;
    let arcs = Arcs::choose(list, directed, options)?;
    let key = work::key(list, arcs, options)?;
    let resumed = work.is_sorted(&key);
    let mut arcs_sorted = None;
    if !resumed {
        let sort = arcs::Sort { space: &space, budget, arcs, options, steps };
        arcs_sorted = Some(sort.run::<A>(list, &work, &key)?);
    }
    let sorted = work.sorted()?;
    let numbers = numbers::Numbers::count(work.degrees()?)?;
    let vertices = list.header().vertices;
    let order = match (options.order, arcs) {
        (Some(order), _) => order,
        (None, Arcs::Once) => Order::Degree,
        (None, Arcs::Directed | Arcs::Both) => order::choose(&sorted, &numbers, directed)?,
    };
    let listed = match order {
        Order::Degree => numbers.listed(),
        Order::Given => vertices,
    };
    let (heads, input_edges) = (options.heads, list.header().edges);
    let config = FwgConfig { vertices, listed, order, directed, heads, input_edges };
    let entries = numbers.entries();
    let writer_bytes = config.memory_bytes(entries) + destination.sums_bytes(&config, entries);
    let rest = budget.checked_sub(writer_bytes + numbers.memory_bytes()).filter(|rest| *rest >= 8 << 20);
    let Some(rest) = rest else {
        let needed = options.memory - budget + writer_bytes + numbers.memory_bytes() + (8 << 20);
        let purpose = format!("writing a graph of {entries} list entries");
        return Err(GraphError::Memory { purpose, needed, budget: options.memory });
    };
    let mut writer = destination.writer(config, entries)?;
    let array_in_memory = match order {
        Order::Given => {
            lists::write_given(&sorted, &numbers, vertices, &mut writer, steps)?;
            None
        }
        Order::Degree => {
            let plan = lists::Plan::new(rest, vertices, options.threads);
            let (space, sorted, numbers) = (&space, &sorted, &numbers);
            let renumbering = lists::Renumbering { space, plan, sorted, arcs, numbers, vertices, steps };
            renumbering.write::<A>(&mut writer)?;
            Some(plan.array)
        }
    };
    let header = writer.finish()?;
    if let Destination::Device(device) = destination {
        device.keep()?;
    }
    work.remove();
    Ok(Built { header, resumed, array_in_memory, arcs_sorted, scratch: space.usage() })
}

/// Scratch space for the sorts, of which at most two are under way, in `folder` if the options name no directory.
fn scratch_space<A: Arc>(
    list: &EdgeList,
    directed: bool,
    folder: &Path,
    options: &BuildOptions,
) -> Result<Space, GraphError> {
    let arcs = list.header().edges * if directed { 1 } else { 2 };
    let record = size_of::<A>() as u64;
    let fits =
        options.order == Some(Order::Given) || lists::Plan::fits_array(options.memory - FIXED_BYTES, list);
    let copies = if fits { 1 } else { 2 };
    let records = arcs * copies + list.header().vertices;
    // A bound, not a need: the file grows as it is used. The last block of each run is not full.
    let bytes = 2 * records * record + (64 << 20);
    let folder = options.scratch.as_deref().unwrap_or(folder);
    Ok(Space::scratch(folder, bytes, &SpaceOptions::default())?)
}

#[cfg(test)]
mod tests;
