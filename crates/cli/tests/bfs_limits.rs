//! `flashwright bfs` where memory or room on the disk is short. Needs root: version 1's memory controller, and tmpfs.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Came, command, finish, names, place, run, skipped, tool, wait_until, works};

/// Mebibytes of a group beside a command's data: page tables and other memory of the kernel (0.7), and pages of files that are
/// written, which the kernel cannot drop before the disk has them. How many these are is chance, and more on a busy machine: of the
/// 8 MiB that are built here, all at worst.
const BESIDE_DATA: u64 = 9;

/// A control group that kills what holds more memory than it allows. Page cache counts; the kernel drops it first, once it is clean.
struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let at = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
            (kind == "cgroup" && options.split(',').any(|option| option == "memory")).then_some(at)
        })?;
        let folder = Path::new(at).join(format!("flashwright-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let group = Self { folder };
        let is_usable = std::fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() <= 1)
            && group.limit(1 << 30);
        is_usable.then_some(group)
    }

    fn limit(&self, bytes: u64) -> bool {
        std::fs::write(self.folder.join("memory.limit_in_bytes"), bytes.to_string()).is_ok()
    }

    /// Runs a command in the group.
    fn run(&self, inner: &Command) -> Came {
        let script = format!("echo $$ > {} && exec \"$@\"", self.folder.join("cgroup.procs").display());
        let mut outer = Command::new("sh");
        outer.args(["-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        outer.current_dir(inner.get_current_dir().expect("a directory"));
        finish(&mut outer)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
fn the_budget_holds_under_a_limit_that_kills_what_takes_more() {
    let Some(group) = MemoryGroup::new("bfs") else {
        return skipped("budgets of bfs: no memory controller of version 1 to be had, or swap is on");
    };
    let place = place();
    let folder = place.path();
    works(folder, &["bfs", "generate", "--scale", "16", "--output", "a.el"]);
    let limited = |budget: u64, arguments: &[&str]| {
        assert!(group.limit((budget + BESIDE_DATA) << 20), "a limit of {budget} MiB and {BESIDE_DATA}");
        let came = group.run(&command(folder, arguments));
        assert_eq!(came.code, 0, "{arguments:?} within {budget} MiB and {BESIDE_DATA}: {came:#?}");
    };
    limited(32, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m"]);
    for algorithm in ["semi", "mr", "mm"] {
        let out = format!("{algorithm}.out");
        let search = ["bfs", "run", "a.fwg", "--source", "7", "--algorithm", algorithm, "--memory", "16m"];
        limited(16, &[&search[..], &["--output", &out]].concat());
        limited(16, &["bfs", "validate", "a.fwg", &out, "--edges", "a.el"]);
    }
    std::fs::write(folder.join("keys"), "7\n8\n9\n").expect("writes");
    limited(24, &["bfs", "run", "a.fwg", "--sources", "keys", "--memory", "24m"]);
    limited(24, &["bfs", "run", "a.fwg", "--sources", "keys", "--memory", "24m", "--output", "many.out"]);
    limited(16, &["bfs", "validate", "a.fwg", "many-8.out", "--edges", "a.el"]);
    // The limit is a real one: the same graph with a budget of more than the group allows is killed.
    assert!(group.limit(16 << 20));
    let search = ["bfs", "run", "a.fwg", "--source", "7", "--algorithm", "mr", "--memory", "64m"];
    assert_ne!(group.run(&command(folder, &search)).code, 0, "64 MiB do not fit into 16");
}

/// Chunks and batches of one sort are gone before the next begins: what a search holds is its budget, and 2 MiB of kernel memory.
/// Nothing is written through the page cache here.
#[test]
fn searches_by_sorting_hold_no_more_than_their_budget() {
    let Some(group) = MemoryGroup::new("sorts") else {
        return skipped("budgets of mr and mm: no memory controller of version 1 to be had, or swap is on");
    };
    let place = place();
    let folder = place.path();
    works(folder, &["bfs", "generate", "--scale", "16", "--output", "a.el"]);
    works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "64m"]);
    for (algorithm, budget) in [("mr", 24), ("mm", 24), ("mm", 48)] {
        assert!(group.limit((budget + 2) << 20), "a limit of {budget} MiB and 2");
        let memory = format!("{budget}m");
        let search = ["bfs", "run", "a.fwg", "--source", "7", "--algorithm", algorithm, "--memory", &memory];
        let came = group.run(&command(folder, &search));
        assert_eq!(came.code, 0, "{algorithm} within {budget} MiB and 2: {came:#?}");
    }
}

/// A file system in memory, with as much room as it is told.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(at).expect("creates");
        let options = format!("size={size}");
        tool("mount", &["-t", "tmpfs", "-o", &options, "none", at.to_str()?])?;
        Some(Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_each_verb_with_its_name_and_leaves_nothing_half_made() {
    let place = place();
    let folder = place.path();
    let Some(_mount) = Mount::tmpfs(&folder.join("full"), "2m") else {
        return skipped("a full disk under bfs: tmpfs cannot be mounted here");
    };
    works(folder, &["bfs", "generate", "--scale", "16", "--output", "a.el"]);
    works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m"]);
    let verbs: [&[&str]; 5] = [
        &["bfs", "generate", "--scale", "16", "--output", "full/a.el"],
        &["bfs", "build", "a.el", "--output", "a2.fwg", "--memory", "32m", "--scratch", "full"],
        &["bfs", "build", "a.el", "--output", "full/a.fwg", "--memory", "32m", "--scratch", "."],
        &[
            "bfs",
            "run",
            "a.fwg",
            "--source",
            "7",
            "--algorithm",
            "mr",
            "--memory",
            "16m",
            "--scratch",
            "full",
        ],
        &["bfs", "run", "a.fwg", "--source", "7", "--memory", "16m", "--output", "full/a.out"],
    ];
    // Room for the parents, not for the levels.
    let ballast = vec![1; (2 << 20) - (300 << 10)];
    for verb in verbs {
        if verb.contains(&"full/a.out") {
            // The kernel gives a scratch file's room back a moment after the process has ended, where io_uring had it open.
            wait_until("room", || std::fs::write(folder.join("full/ballast"), &ballast).is_ok());
        }
        let came = run(folder, verb);
        assert_eq!(came.code, 1, "{verb:?}: {came:#?}");
        assert!(came.err.starts_with("error: ") && came.err.contains("full"), "{verb:?}: {came:#?}");
        assert!(came.err.contains("o space left") || came.err.contains("room"), "{verb:?}: {came:#?}");
        let left = names(&folder.join("full"));
        let allowed = ["ballast".to_owned(), "a.fwg.build".to_owned()];
        assert!(left.iter().all(|name| allowed.contains(name)), "{verb:?} left {left:?}");
        let _ = std::fs::remove_dir_all(folder.join("full/a.fwg.build"));
    }
    assert!(!folder.join("a2.fwg").exists() && !folder.join("a2.fwg.build").exists());
}

#[test]
fn a_search_of_a_small_component_takes_little_of_the_disk_however_large_the_graph() {
    let place = place();
    let folder = place.path();
    let Some(_mount) = Mount::tmpfs(&folder.join("small"), "1m") else {
        return skipped("a small scratch disk under bfs: tmpfs cannot be mounted here");
    };
    let ring = (10..40_000).map(|vertex| format!("{vertex} {}\n", vertex + 1));
    let text: String = ["0 1\n".to_owned(), "1 2\n".to_owned()].into_iter().chain(ring).collect();
    std::fs::write(folder.join("a.txt"), text).expect("writes");
    works(folder, &["bfs", "import", "a.txt", "--output", "a.el"]);
    works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m"]);
    let search = ["bfs", "run", "a.fwg", "--source", "1", "--memory", "32m", "--scratch", "small", "--json"];
    let found = common::json(folder, &[&search[..], &["--algorithm", "mr"]].concat());
    assert_eq!(found["reached"].as_u64(), Some(3));
}

/// MiB that the error of a command says it needs at least.
fn needed(came: &Came) -> f64 {
    assert_eq!(came.code, 2, "{came:#?}");
    let words = came.err.split_once("needs at least ").expect("says what it needs").1;
    let (figure, unit) = words.split(' ').next().zip(words.split(' ').nth(1)).expect("a figure and a unit");
    assert_eq!(unit, "MiB", "{came:#?}");
    figure.parse().expect("a figure")
}

#[test]
fn a_comparison_of_media_counts_the_checksums_of_all_copies() {
    let place = place();
    let folder = place.path();
    if common::memory_beside(folder).is_none() {
        return;
    }
    works(folder, &["bfs", "generate", "--scale", "16", "--output", "a.el"]);
    works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m"]);
    // 4 bytes of each page of the graph: 16 further copies of 8 MB take 0.1 MiB.
    let pages = std::fs::metadata(folder.join("a.fwg")).expect("is there").len() / 4096;
    let all = (0..17).map(|at| format!("m{at}=.")).collect::<Vec<_>>().join(",");
    for algorithm in ["semi", "mr"] {
        let bench =
            ["bfs", "bench", "a.fwg", "--keys", "1", "--memory", "1m", "--algorithm", algorithm, "--tiers"];
        let of = |tiers: &str| needed(&run(folder, &[&bench[..], &[tiers]].concat()));
        let (one, seventeen) = (of("m0=."), of(&all));
        let further = (16 * 4 * pages) as f64 / f64::from(1 << 20);
        // Figures have three digits.
        let counted = (seventeen - one) / further;
        assert!((0.5..1.5).contains(&counted), "{one} and {seventeen}");
    }
}

#[test]
fn one_vertex_and_vertices_without_neighbours_are_searched_by_all() {
    let place = place();
    let folder = place.path();
    for (text, vertices, source, reached) in
        [("0 0\n", "1", "0", 1), ("2 3\n", "9", "8", 1), ("2 3\n", "9", "3", 2)]
    {
        std::fs::write(folder.join("a.txt"), text).expect("writes");
        let import = ["bfs", "import", "a.txt", "--vertices", vertices, "--output", "a.el"];
        works(folder, &import);
        works(folder, &["bfs", "build", "a.el", "--output", "a.fwg", "--memory", "32m"]);
        for algorithm in ["semi", "mr", "mm"] {
            let search = ["bfs", "run", "a.fwg", "--source", source, "--algorithm", algorithm];
            let found = common::json(folder, &[&search[..], &["--output", "a.out", "--json"]].concat());
            assert_eq!(found["reached"].as_u64(), Some(reached), "{text:?} by {algorithm}");
            works(folder, &["bfs", "validate", "a.fwg", "a.out", "--edges", "a.el"]);
            let outside = ["bfs", "run", "a.fwg", "--source", vertices, "--algorithm", algorithm];
            let came = run(folder, &outside);
            assert!(came.code == 2 && came.err.contains("has no vertex"), "{algorithm}: {came:#?}");
        }
    }
}
