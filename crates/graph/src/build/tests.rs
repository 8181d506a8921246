use std::collections::BTreeMap;
use std::fs::File;

use super::*;
use crate::VertexId;
use crate::edges::{EdgeWriter, EdgesConfig};
use crate::format::Fwg;
use crate::generate::{GraphKind, GraphSpec, generate};

const MEMORY: u64 = 64 << 20;

fn options(order: Order) -> BuildOptions {
    BuildOptions {
        memory: MEMORY,
        directed: None,
        keep_duplicates: false,
        keep_self_loops: false,
        order: Some(order),
        heads: 2,
        scratch: None,
        threads: 2,
    }
}

fn write_list(path: &Path, width: IdWidth, vertices: u64, directed: bool, pairs: &[(u64, u64)]) -> EdgeList {
    let config = EdgesConfig { vertices: Some(vertices), directed, width, origin: "a test".to_owned() };
    let mut writer = EdgeWriter::create(path, config).expect("creates");
    writer.extend(pairs).expect("writes");
    writer.finish().expect("finishes");
    EdgeList::open(path).expect("opens")
}

/// The neighbours of each vertex by definition, in input numbers, ascending.
fn expected(list: &EdgeList, options: &BuildOptions) -> Vec<Vec<VertexId>> {
    let directed = options.directed.unwrap_or(list.header().directed);
    let mut lists = vec![Vec::new(); list.header().vertices as usize];
    let mut scan = list.scan(0..list.header().blocks(), 2).expect("begins");
    while let Some((_, pairs)) = scan.next_block().expect("reads") {
        for (source, target) in pairs.iter() {
            if source != target || options.keep_self_loops {
                lists[source as usize].push(target);
            }
            if source != target && !directed {
                lists[target as usize].push(source);
            }
        }
    }
    for list in &mut lists {
        list.sort_unstable();
        if !options.keep_duplicates {
            list.dedup();
        }
    }
    lists
}

/// The same of a stored graph, whose order is checked as well.
fn stored(path: &Path) -> Vec<Vec<VertexId>> {
    let graph = Fwg::open(path.to_str().expect("UTF-8")).expect("opens");
    let header = graph.header().clone();
    let index = graph.index().expect("reads");
    let mut cursor = index.cursor();
    let mut lists = vec![Vec::new(); header.vertices as usize];
    let input: Vec<_> = (0..header.vertices).map(|new| graph.input_number(new).expect("reads")).collect();
    let mut last_degree = u64::MAX;
    for new in 0..header.vertices {
        let neighbours =
            if new < header.listed { graph.neighbours(&mut cursor, new).expect("reads") } else { Vec::new() };
        assert!(neighbours.is_sorted());
        if header.order == Order::Degree {
            assert!(neighbours.len() as u64 <= last_degree);
            last_degree = neighbours.len() as u64;
        }
        let old = input[new as usize];
        assert_eq!(graph.stored_number(old).expect("reads"), new);
        let mut neighbours: Vec<VertexId> = neighbours.iter().map(|new| input[*new as usize]).collect();
        neighbours.sort_unstable();
        lists[old as usize] = neighbours;
    }
    lists
}

/// Pairs with self-loops, duplicates in both directions and vertices without edges.
fn awkward(vertices: u64, edges: u64) -> Vec<(u64, u64)> {
    let vertex = |edge: u64| edge.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % (vertices * 3 / 4);
    (0..edges).map(|edge| (vertex(edge) % (1 + edge % 97), vertex(edge ^ 0x5555))).collect()
}

#[test]
fn lists_are_what_the_edges_say_in_every_combination_of_options() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    for width in [IdWidth::Four, IdWidth::Eight] {
        let list = write_list(&el, width, 400, width == IdWidth::Eight, &awkward(400, 3000));
        for bits in 0..16 {
            let is = |bit: u32| (bits >> bit) & 1 == 1;
            let options = BuildOptions {
                keep_duplicates: is(0),
                keep_self_loops: is(1),
                directed: is(2).then_some(width == IdWidth::Four),
                ..options(if is(3) { Order::Given } else { Order::Degree })
            };
            let built = build(&list, &fwg, &options, &Steps::default()).expect("builds");
            let expected = expected(&list, &options);
            assert!(stored(&fwg) == expected, "{options:?}");
            assert_eq!(built.header.entries, expected.iter().map(|list| list.len() as u64).sum::<u64>());
            assert_eq!(built.header.input_edges, 3000);
            assert!(!built.resumed);
            assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 2, "nothing else stays");
        }
    }
}

#[test]
fn the_order_follows_from_the_arcs_if_nobody_names_one() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    let order_of = |kind, directed| {
        let spec = GraphSpec { kind, scale: 14, edge_factor: 8, seed: 3, threads: 2 };
        generate(&spec, &el, &Steps::default()).expect("generates");
        let options = BuildOptions { order: None, directed, ..options(Order::Degree) };
        let list = EdgeList::open(&el).expect("opens");
        let built = build(&list, &fwg, &options, &Steps::default()).expect("builds");
        assert!(stored(&fwg) == expected(&list, &options), "{kind:?}");
        built.header.order
    };
    assert_eq!(order_of(GraphKind::Grid, None), Order::Given);
    // Hubs are parents, where levels go bottom-up; without hubs and without closeness one order is as good as another.
    assert_eq!(order_of(GraphKind::Kronecker, None), Order::Degree);
    assert_eq!(order_of(GraphKind::Uniform, None), Order::Degree);
    // Hubs and closeness: it depends on the direction.
    assert_eq!(order_of(GraphKind::Web, Some(true)), Order::Given);
    assert_eq!(order_of(GraphKind::Web, Some(false)), Order::Degree);
}

#[test]
fn an_empty_graph_and_one_vertex_are_built() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    for vertices in [0, 1, 5] {
        for order in [Order::Degree, Order::Given] {
            let list = write_list(&el, IdWidth::Four, vertices, false, &[]);
            build(&list, &fwg, &options(order), &Steps::default()).expect("builds");
            assert_eq!(stored(&fwg), vec![Vec::<u64>::new(); vertices as usize]);
        }
    }
}

/// All ways to sort first and to renumber give the same graph. A small budget makes the sorts go to disk.
#[test]
fn all_ways_to_sort_and_to_renumber_agree() {
    let folder = tempfile::tempdir().expect("a directory");
    let spec = GraphSpec { kind: GraphKind::Kronecker, scale: 17, edge_factor: 8, seed: 3, threads: 2 };
    let el = folder.path().join("a.el");
    generate(&spec, &el, &Steps::default()).expect("generates");
    let list = EdgeList::open(&el).expect("opens");
    let fwg = folder.path().join("a.fwg");
    let small = BuildOptions { memory: LEAST_MEMORY_BYTES, ..options(Order::Degree) };
    let built = build(&list, &fwg, &small, &Steps::default()).expect("builds");
    assert_eq!(
        (built.array_in_memory, built.arcs_sorted),
        (Some(true), Some(list.header().edges - loops(&list)))
    );
    assert!(built.scratch.bytes_written > 0, "the sorts did not fit in memory");
    let usual = std::fs::read(&fwg).expect("reads");
    for (arcs, array) in [(Arcs::Once, false), (Arcs::Both, false), (Arcs::Both, true)] {
        let steps = Steps::default();
        let work = WorkDirectory::open(&fwg).expect("opens");
        let space = scratch_space::<u64>(&list, false, folder.path(), &small).expect("is there");
        let sort = arcs::Sort { space: &space, budget: 8 << 20, arcs, options: &small, steps: &steps };
        sort.run::<u64>(&list, &work, "key").expect("sorts");
        let numbers = numbers::Numbers::count(work.degrees().expect("opens")).expect("counts");
        let config = FwgConfig {
            vertices: 1 << 17,
            listed: numbers.listed(),
            order: Order::Degree,
            directed: false,
            heads: 2,
            input_edges: list.header().edges,
        };
        let plan = lists::Plan { array, ..lists::Plan::new(16 << 20, 1 << 17, 2) };
        let mut writer = FwgWriter::create(&fwg, config).expect("creates");
        let sorted = work.sorted().expect("opens");
        let (space, sorted, numbers, steps, vertices) = (&space, &sorted, &numbers, &steps, 1 << 17);
        let renumbering = lists::Renumbering { space, plan, sorted, arcs, numbers, vertices, steps };
        renumbering.write::<u64>(&mut writer).expect("writes");
        writer.finish().expect("finishes");
        work.remove();
        assert!(std::fs::read(&fwg).expect("reads") == usual, "{arcs:?}, array {array}");
    }
    // A Kronecker graph has hubs: the first numbers.
    let degrees: BTreeMap<_, _> = numbers_of(&fwg);
    assert!(degrees[&0] > 1000, "{}", degrees[&0]);
}

/// Edges from a vertex to itself.
fn loops(list: &EdgeList) -> u64 {
    let mut loops = 0;
    let mut scan = list.scan(0..list.header().blocks(), 2).expect("begins");
    while let Some((_, pairs)) = scan.next_block().expect("reads") {
        loops += pairs.iter().filter(|(source, target)| source == target).count() as u64;
    }
    loops
}

/// Counting degrees takes memory, and the given order needs both arcs of an edge.
#[test]
fn an_edge_is_sorted_once_where_that_is_enough() {
    let folder = tempfile::tempdir().expect("a directory");
    let el = folder.path().join("a.el");
    let arcs_of = |kind, directed, options: BuildOptions| {
        let spec = GraphSpec { kind, scale: 14, edge_factor: 8, seed: 3, threads: 2 };
        generate(&spec, &el, &Steps::default()).expect("generates");
        Arcs::choose(&EdgeList::open(&el).expect("opens"), directed, &options).expect("reads")
    };
    let any = BuildOptions { order: None, ..options(Order::Degree) };
    assert_eq!(arcs_of(GraphKind::Kronecker, false, any.clone()), Arcs::Once);
    assert_eq!(arcs_of(GraphKind::Kronecker, true, any.clone()), Arcs::Directed);
    assert_eq!(arcs_of(GraphKind::Kronecker, false, options(Order::Given)), Arcs::Both);
    assert_eq!(arcs_of(GraphKind::Grid, false, options(Order::Degree)), Arcs::Once);
    assert_eq!(arcs_of(GraphKind::Grid, false, any.clone()), Arcs::Both);
    // Half of what the sorts have, 4 bytes a vertex.
    let tight = BuildOptions { memory: FIXED_BYTES + (2 << 18) - 2, ..any };
    let list = write_list(&el, IdWidth::Four, 1 << 16, false, &[(0, 1 << 15)]);
    assert_eq!(Arcs::choose(&list, false, &tight).expect("reads"), Arcs::Both);
    let roomy = BuildOptions { memory: tight.memory + 2, ..tight };
    assert_eq!(Arcs::choose(&list, false, &roomy).expect("reads"), Arcs::Once);
}

fn numbers_of(path: &Path) -> BTreeMap<u64, usize> {
    let graph = Fwg::open(path.to_str().expect("UTF-8")).expect("opens");
    let index = graph.index().expect("reads");
    let mut cursor = index.cursor();
    (0..4).map(|new| (new, graph.neighbours(&mut cursor, new).expect("reads").len())).collect()
}

#[test]
fn a_build_goes_on_from_sorted_arcs_only_for_the_same_input_and_options() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    let list = write_list(&el, IdWidth::Four, 400, false, &awkward(400, 3000));
    let options = options(Order::Degree);
    let sorted = |options: &BuildOptions| {
        let work = WorkDirectory::open(&fwg).expect("opens");
        let space = scratch_space::<u64>(&list, false, folder.path(), options).expect("is there");
        let steps = Steps::default();
        let arcs = Arcs::choose(&list, false, options).expect("reads");
        let sort = arcs::Sort { space: &space, budget: 8 << 20, arcs, options, steps: &steps };
        let key = work::key(&list, arcs, options).expect("a key");
        sort.run::<u64>(&list, &work, &key).expect("sorts");
    };
    sorted(&options);
    assert!(folder.path().join("a.fwg.build/arcs.el").exists(), "the directory stays");
    assert!(build(&list, &fwg, &options, &Steps::default()).expect("builds").resumed);
    assert!(stored(&fwg) == expected(&list, &options));
    // Other options, and another file of the same name.
    sorted(&options);
    let other = BuildOptions { keep_duplicates: true, ..options.clone() };
    assert!(!build(&list, &fwg, &other, &Steps::default()).expect("builds").resumed);
    assert!(stored(&fwg) == expected(&list, &other));
    sorted(&options);
    let list = write_list(&el, IdWidth::Four, 400, false, &awkward(400, 2999));
    assert!(!build(&list, &fwg, &options, &Steps::default()).expect("builds").resumed);
    assert!(stored(&fwg) == expected(&list, &options));
    // The list's bytes were replaced, and its time of modification set back, as cp -p and rsync -t do.
    sorted(&options);
    let (now, modified) =
        (std::fs::read(&el).expect("reads"), std::fs::metadata(&el).expect("stat").modified());
    let others = folder.path().join("b.el");
    write_list(&others, IdWidth::Four, 400, false, &awkward(399, 2999));
    assert_eq!(std::fs::metadata(&others).expect("stat").len(), now.len() as u64);
    std::fs::write(&el, std::fs::read(&others).expect("reads")).expect("writes");
    let file = File::options().write(true).open(&el).expect("opens");
    file.set_modified(modified.expect("a time")).expect("sets");
    let list = EdgeList::open(&el).expect("opens");
    assert!(!build(&list, &fwg, &options, &Steps::default()).expect("builds").resumed);
    assert!(stored(&fwg) == expected(&list, &options));
    // Degrees of another build, which ended while its second list got its name.
    let kept = folder.path().join("a.fwg.build/arcs.el");
    let sort = |options: &BuildOptions| {
        let work = WorkDirectory::open(&fwg).expect("opens");
        let space = scratch_space::<u64>(&list, false, folder.path(), options).expect("is there");
        let (steps, arcs) = (Steps::default(), Arcs::choose(&list, false, options).expect("reads"));
        let sort = arcs::Sort { space: &space, budget: 8 << 20, arcs, options, steps: &steps };
        sort.run::<u64>(&list, &work, &work::key(&list, arcs, options).expect("a key")).expect("sorts");
    };
    sort(&options);
    let first = std::fs::read(&kept).expect("reads");
    sort(&BuildOptions { keep_duplicates: true, ..options.clone() });
    std::fs::write(&kept, first).expect("writes");
    assert!(!build(&list, &fwg, &options, &Steps::default()).expect("builds").resumed);
    assert!(stored(&fwg) == expected(&list, &options));
    // Arcs that were cut short are not used.
    sorted(&options);
    let arcs = folder.path().join("a.fwg.build/arcs.el");
    let length = std::fs::metadata(&arcs).expect("is there").len();
    std::fs::OpenOptions::new().write(true).open(&arcs).expect("opens").set_len(length - 1).expect("cuts");
    assert!(!build(&list, &fwg, &options, &Steps::default()).expect("builds").resumed);
}

/// What lies in a work directory is gone on with, and removed.
#[test]
fn a_work_directory_of_others_is_not_taken_over() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    let list = write_list(&el, IdWidth::Four, 4, false, &[(0, 1)]);
    let (work, mine) = (folder.path().join("a.fwg.build"), folder.path().join("mine"));
    std::fs::create_dir(&mine).expect("makes");
    std::fs::write(mine.join("arcs.el"), "of somebody").expect("writes");
    std::os::unix::fs::symlink(&mine, &work).expect("links");
    let refused = || build(&list, &fwg, &options(Order::Degree), &Steps::default()).expect_err("refused");
    let error = refused().to_string();
    assert!(error.contains("a.fwg.build: cannot open"), "{error}");
    assert_eq!(std::fs::read(mine.join("arcs.el")).expect("reads"), b"of somebody");
    std::fs::remove_file(&work).expect("removes");
    if !rustix::process::geteuid().is_root() {
        println!("SKIP a directory of another user: only root can make one");
        return;
    }
    std::fs::create_dir(&work).expect("makes");
    std::os::unix::fs::chown(&work, Some(65_534), None).expect("is given away");
    let error = refused().to_string();
    assert!(error.ends_with("is there already, and is not a directory of this user"), "{error}");
}

/// Vertices without edges are no steps of anything else.
#[test]
fn numbering_vertices_can_be_stopped() {
    let folder = tempfile::tempdir().expect("a directory");
    let degrees = write_list(&folder.path().join("d.el"), IdWidth::Four, 10, true, &[(3, 2)]);
    let numbers = numbers::Numbers::count(degrees).expect("counts");
    let steps = Steps::default();
    let mut scan = numbers.scan(1 << 40, &steps).expect("begins");
    assert!(scan.next().expect("is there").is_some());
    steps.stop();
    let error = std::iter::from_fn(|| Some(scan.next())).find_map(Result::err).expect("ends");
    assert!(matches!(error, GraphError::Interrupted { .. }), "{error}");
}

#[test]
fn a_graph_without_room_is_refused_before_it_is_begun() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("a.fwg");
    check_room(&path, 1 << 20).expect("there is a megabyte");
    let error = check_room(&path, u64::MAX).expect_err("nobody has so much");
    assert!(error.to_string().contains("a.fwg: cannot be written whole"), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn what_is_no_graph_is_not_replaced_and_a_second_build_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    let list = write_list(&el, IdWidth::Four, 4, false, &[(0, 1)]);
    std::fs::write(&fwg, "a thesis, not a graph").expect("writes");
    let options = options(Order::Degree);
    let error = build(&list, &fwg, &options, &Steps::default()).expect_err("refused").to_string();
    assert!(
        error.ends_with("a.fwg: is there already, and is not a graph (.fwg) or an empty file"),
        "{error}"
    );
    std::fs::remove_file(&fwg).expect("removes");
    let work = WorkDirectory::open(&fwg).expect("opens");
    let error = build(&list, &fwg, &options, &Steps::default()).expect_err("refused").to_string();
    assert!(error.contains("a.fwg: is being written by process"), "{error}");
    drop(work);
    build(&list, &fwg, &options, &Steps::default()).expect("builds");
    build(&list, &fwg, &options, &Steps::default()).expect("replaces a graph");
}

#[test]
fn a_budget_that_is_too_small_and_an_edge_beyond_the_vertices_are_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    let list = write_list(&el, IdWidth::Four, 4, false, &[(0, 1), (3, 2)]);
    let small = BuildOptions { memory: 1 << 20, ..options(Order::Degree) };
    let error = build(&list, &fwg, &small, &Steps::default()).expect_err("too small").to_string();
    assert_eq!(error, "building a graph needs at least 32 MiB of memory; the budget is 1 MiB");
    // A header that promises fewer vertices, with a checksum that fits.
    let mut bytes = std::fs::read(&el).expect("reads");
    bytes[24] = 3;
    let sum = crc32c::crc32c(&bytes[..4092]);
    bytes[4092..4096].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&el, bytes).expect("writes");
    let list = EdgeList::open(&el).expect("opens");
    let error = build(&list, &fwg, &options(Order::Degree), &Steps::default()).expect_err("too large");
    assert!(error.to_string().ends_with("vertex 3 is not below 3"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1, "nothing stays");
}

#[test]
fn an_interrupted_build_keeps_nothing_half_done() {
    let folder = tempfile::tempdir().expect("a directory");
    let (el, fwg) = (folder.path().join("a.el"), folder.path().join("a.fwg"));
    let list = write_list(&el, IdWidth::Four, 4, false, &[(0, 1), (3, 2)]);
    let steps = Steps::default();
    steps.stop();
    let error = build(&list, &fwg, &options(Order::Given), &steps).expect_err("stopped");
    assert!(matches!(error, GraphError::Interrupted { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1);
}
