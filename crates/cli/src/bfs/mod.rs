//! `flashwright bfs`: breadth-first search on graphs larger than memory.

pub mod args;
pub mod documents;
mod progress;
pub mod search;

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use base::ErrorClass;
use graph::GraphError;
use graph::build::{BUILD_PHASES, BuildDevice, BuildOptions, build, build_on, check_memory};
use graph::edges::{EdgeList, EdgesHeader};
use graph::export::{self, EXPORT_PHASES, ExportOptions};
use graph::format::Fwg;
use graph::generate::{GraphKind, GraphSpec, generate};
use graph::import::{ImportOptions, import};
use storage::device::{DeviceSpec, SpecError};

use self::args::{BfsArgs, BfsCommand, BuildArgs, ExportArgs, GenerateArgs, ImportArgs, InfoArgs};
use self::documents::{BuildDocument, EdgesDocument, ExportDocument, GraphDocument};
use crate::bench::text::wrapped;
use crate::failure::Failure;
use crate::output::{self, Sink};

/// Edges a vertex where nothing is said: Graph500's.
const EDGE_FACTOR: u32 = 16;

/// Does one of the verbs.
pub fn bfs(args: &BfsArgs) -> Result<(), Failure> {
    // What a sort has freed is no part of the next one's budget.
    storage::heap::return_freed_blocks();
    match &args.command {
        BfsCommand::Generate(args) => generate_list(args),
        BfsCommand::Import(args) => import_list(args),
        BfsCommand::Build(args) => build_graph(args),
        BfsCommand::Export(args) => export_graph(args),
        BfsCommand::Info(args) => info(args),
        BfsCommand::Search(command) => search::search(command),
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn generate_list(args: &GenerateArgs) -> Result<(), Failure> {
    if args.kind == GraphKind::Grid && args.edge_factor.is_some() {
        return Err(Failure::invalid("--edge-factor: a grid has its own number of edges")
            .hint("drop --edge-factor, or choose another --kind"));
    }
    check_new_list(&args.output)?;
    let spec = GraphSpec {
        kind: args.kind,
        scale: args.scale,
        edge_factor: args.edge_factor.unwrap_or(EDGE_FACTOR),
        seed: args.seed,
        threads: threads(),
    };
    let begun = Instant::now();
    let header = progress::watch(&["generating"], |steps| generate(&spec, &args.output, steps))?;
    show_list(&args.output, &header, Some(begun), args.json)
}

fn import_list(args: &ImportArgs) -> Result<(), Failure> {
    check_new_list(&args.output)?;
    Sink::File(args.output.clone()).is_none_of([args.input.as_path()])?;
    let directed = direction(args.directed, args.undirected);
    let options = ImportOptions { format: args.format, directed, vertices: args.vertices };
    let begun = Instant::now();
    let work = |steps: &_| import(&args.input, &args.output, &options, steps);
    let imported = progress::watch(&["importing"], work)?;
    show_list(&args.output, &imported.header, Some(begun), args.json)
}

fn build_graph(args: &BuildArgs) -> Result<(), Failure> {
    let list = EdgeList::open(&args.edges)?;
    check_scratch(args.scratch.as_deref())?;
    let options = BuildOptions {
        memory: args.memory,
        directed: direction(args.directed, args.undirected),
        keep_duplicates: args.keep_duplicates,
        keep_self_loops: args.keep_self_loops,
        order: args.order.0,
        heads: args.heads,
        scratch: args.scratch.clone(),
        threads: threads(),
    };
    // A device is opened when nothing else stands in the way: opening it may make files.
    check_memory(&options)?;
    let device = match place_of(&args.output) {
        Ok(GraphPlace::File(_)) if !args.destroy.is_empty() => {
            return Err(Failure::invalid("--destroy: a graph that is a file replaces nothing but a graph")
                .hint("leave --destroy out, or name a device with --output"));
        }
        Ok(GraphPlace::File(path)) => {
            if std::fs::symlink_metadata(&path).is_err() {
                Sink::of(Some(&path), false)?;
            }
            Err(path)
        }
        Ok(GraphPlace::Device(spec)) => {
            check_members(&spec, args)?;
            Ok(BuildDevice::open(&spec, &args.destroy)?)
        }
        Err(error) => {
            let failure = Failure::from(GraphError::from(error));
            return Err(failure.about(format!("--output={}", args.output.display())));
        }
    };
    let begun = Instant::now();
    let work = |steps: &_| match &device {
        Ok(device) => build_on(&list, device, &options, steps),
        Err(path) => build(&list, path, &options, steps),
    };
    let built = progress::watch(&BUILD_PHASES, work).map_err(|failure| {
        let is_interrupted = failure.class() == ErrorClass::Interrupted;
        failure.hint_if(is_interrupted.then_some("the same command again goes on where it can"))
    })?;
    let how = BuildDocument::of(&built, args.memory, begun.elapsed().as_secs_f64());
    show_graph(&GraphDocument::of(&args.output, &built.header, Some(how)), args.json)
}

fn export_graph(args: &ExportArgs) -> Result<(), Failure> {
    let graph = Fwg::open(&args.graph)?;
    check_new_file(&args.output, None)?;
    check_scratch(args.scratch.as_deref())?;
    let scratch = args.scratch.clone().unwrap_or_else(|| beside(&args.output));
    let options = ExportOptions { memory: args.memory, scratch, threads: threads() };
    let begun = Instant::now();
    let work = |steps: &_| export::gap(&graph, &args.output, &options, steps);
    let file_bytes = progress::watch(&EXPORT_PHASES, work)?;
    let header = graph.header();
    let document = ExportDocument {
        schema: "flashwright.bfs-export/1",
        path: args.output.clone(),
        graph: args.graph.clone(),
        vertices: header.vertices,
        entries: header.entries,
        directed: header.directed,
        file_bytes,
        elapsed_s: begun.elapsed().as_secs_f64(),
    };
    if args.json {
        return output::print_document(&document);
    }
    print_page(&format!(
        "exported   {} ({}, in {:.1} s)\nvertices   {}\nedges      {} list entries, {}\n",
        document.path.display(),
        units::bytes(file_bytes),
        document.elapsed_s,
        document.vertices,
        document.entries,
        if document.directed { "directed, with those of incoming edges" } else { "undirected" },
    ))
}

fn info(args: &InfoArgs) -> Result<(), Failure> {
    if let GraphPlace::File(path) = place_of(&args.file).map_err(GraphError::from)? {
        match EdgeList::open(&path) {
            Ok(list) => return show_list(&args.file, list.header(), None, args.json),
            Err(GraphError::WrongFormat { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let graph = Fwg::open(&args.file.to_string_lossy())?;
    show_graph(&GraphDocument::of(&args.file, graph.header(), None), args.json)
}

/// Refuses a device of which the edge list is a member, and members to be given up that are none: the slip that destroys another drive.
fn check_members(spec: &DeviceSpec, args: &BuildArgs) -> Result<(), Failure> {
    // A file may have several names.
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let list = identity(&args.edges);
    let is_list = |path: &&Path| list.is_some() && identity(path) == list;
    let leaves = spec.leaves();
    let output = args.output.display();
    if let Some(member) = leaves.iter().filter_map(|leaf| leaf.path()).find(is_list) {
        return Err(Failure::invalid(format!("--output={output}: {} is the edge list", member.display()))
            .hint("name other members"));
    }
    let names = |given: &Path, leaf: &DeviceSpec| match leaf.path() {
        Some(path) => path == given || identity(path).is_some_and(|member| identity(given) == Some(member)),
        None => given.to_str() == Some(&leaf.to_string()),
    };
    match args.destroy.iter().find(|given| !leaves.iter().any(|leaf| names(given, leaf))) {
        Some(given) => {
            Err(Failure::invalid(format!("--destroy={}: is no member of {output}", given.display()))
                .hint("spell it as in --output"))
        }
        None => Ok(()),
    }
}

/// Where a graph is, or is to be.
enum GraphPlace {
    File(PathBuf),
    Device(DeviceSpec),
}

/// What a name stands for: a path is a file, unless there is a block device.
fn place_of(name: &Path) -> Result<GraphPlace, SpecError> {
    // A name that is not UTF-8 is no spec.
    let Some(text) = name.to_str() else { return Ok(GraphPlace::File(name.to_owned())) };
    let spec = DeviceSpec::parse(text)?;
    let is_block =
        |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    Ok(match spec {
        DeviceSpec::Path(path) | DeviceSpec::File { path, size: None } if !is_block(&path) => {
            GraphPlace::File(path)
        }
        spec => GraphPlace::Device(spec),
    })
}

/// Where temporary files go if nothing is said: beside the graph, or beside the first of its members that is a file. A directory
/// of devices is no place for them.
fn beside_graph(graph: &str) -> Result<PathBuf, Failure> {
    let spec = DeviceSpec::parse(graph).map_err(GraphError::from)?;
    let file = spec.leaves().into_iter().filter_map(DeviceSpec::path).find(|path| path.is_file());
    file.map(beside).ok_or_else(|| {
        Failure::invalid(format!(
            "{graph}: no directory lies beside it, and the search needs one for temporary files"
        ))
        .hint("name a directory with --scratch DIR")
    })
}

/// The directory of a file, where its temporary files go.
fn beside(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

fn direction(directed: bool, undirected: bool) -> Option<bool> {
    (directed || undirected).then_some(directed)
}

/// A kind of file that a verb replaces: its name in messages, and whether a file is one.
type Replaceable = (&'static str, fn(&Path) -> bool);

/// Refuses an output that would replace something else than an empty file or one of the verb's own kind. Outputs of these verbs
/// take their place by rename, so a link, a FIFO or a device there would be lost, and its target not written.
fn check_new_file(path: &Path, replaceable: Option<Replaceable>) -> Result<(), Failure> {
    let Ok(facts) = std::fs::symlink_metadata(path) else {
        // Nothing is there that could be replaced; whether a file can be made is checked as for other outputs.
        return Sink::of(Some(path), false).map(drop);
    };
    let is_replaced = |(_, is_one): &Replaceable| is_one(path);
    if facts.is_file() && (facts.len() == 0 || replaceable.as_ref().is_some_and(is_replaced)) {
        return Ok(());
    }
    let kind = replaceable.map_or_else(String::new, |(kind, _)| format!(", and is no {kind}"));
    Err(Failure::refused(format!("--output={}: is there already{kind}", path.display()))
        .hint("name another file, or remove this one"))
}

fn check_new_list(path: &Path) -> Result<(), Failure> {
    let is_one: fn(&Path) -> bool = |path| EdgeList::open(path).is_ok();
    check_new_file(path, Some(("edge list", is_one)))
}

/// Refuses a directory for temporary files that is not there.
fn check_scratch(directory: Option<&Path>) -> Result<(), Failure> {
    match directory {
        Some(directory) if !directory.is_dir() => {
            Err(Failure::invalid(format!("--scratch={}: is not a directory", directory.display()))
                .hint("name a directory that is there"))
        }
        _ => Ok(()),
    }
}

/// Columns before a row's value.
const INDENT: usize = 11;

/// Prints a page. A row that is longer than the terminal is broken at blanks, and goes on below its value where it has a name.
/// Rows of tables are left as they are.
fn print_page(page: &str) -> Result<(), Failure> {
    let row = |row: &str| {
        let (name, value) = row.split_at(row.char_indices().nth(INDENT).map_or(0, |(at, _)| at));
        match (name.ends_with(' '), value.contains("  ")) {
            (true, false) => format!("{name}{}\n", wrapped(value, INDENT)),
            (false, false) => format!("{}\n", wrapped(row, 0)),
            (_, true) => format!("{row}\n"),
        }
    };
    output::print(&page.lines().map(row).collect::<String>())
}

fn show_list(path: &Path, header: &EdgesHeader, begun: Option<Instant>, json: bool) -> Result<(), Failure> {
    let elapsed = begun.map(|begun| begun.elapsed());
    let document = EdgesDocument::of(path, header, elapsed.map(|elapsed| elapsed.as_secs_f64()));
    if json {
        return output::print_document(&document);
    }
    let directed = if header.directed { "directed" } else { "undirected" };
    let took = elapsed.map(|elapsed| format!(", in {}", units::seconds(elapsed))).unwrap_or_default();
    print_page(&format!(
        "edge list  {} ({}{took})\nedges      {}, {directed}\nvertices   {}, {} bytes each\nfrom       {}\n",
        path.display(),
        units::bytes(document.file_bytes),
        header.edges,
        header.vertices,
        document.vertex_bytes,
        header.origin,
    ))
}

fn show_graph(document: &GraphDocument, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_document(document);
    }
    let directed = if document.directed { "directed" } else { "undirected" };
    let mut text = format!(
        "graph      {} ({})\nvertices   {}, {} bytes each, in {} order\nedges      {} list entries, {directed}, of {} \
         input edges; at most {} a vertex\n",
        document.path.display(),
        units::bytes(document.file_bytes),
        document.vertices,
        document.vertex_bytes,
        document.order,
        document.entries,
        document.input_edges,
        document.max_degree,
    );
    for section in &document.sections {
        text += &format!("{:<18} {:>10}\n", section.name, units::bytes(section.bytes));
    }
    if let Some(build) = &document.build {
        let how = if build.resumed { ", going on from an earlier build" } else { "" };
        text += &format!(
            "built      in {:.1} s within {}{how}; scratch: {} written, {} read\n",
            build.elapsed_s,
            units::bytes(build.memory_bytes),
            units::bytes(build.scratch_bytes_written),
            units::bytes(build.scratch_bytes_read),
        );
    }
    print_page(&text)
}

impl From<GraphError> for Failure {
    fn from(error: GraphError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

#[cfg(test)]
mod tests {
    use graph::format::SectionKind;

    #[test]
    fn every_section_has_a_name_for_the_table() {
        assert!(SectionKind::ALL.iter().all(|kind| !kind.word().is_empty() && kind.word().len() <= 18));
    }
}
