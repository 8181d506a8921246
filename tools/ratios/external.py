"""Sorting and breadth-first search outside memory, against STXXL.

Two yardsticks in C++ (tools/stxxl) are compiled with g++ and libstxxl, which Debian has as libstxxl-dev: STXXL's sorter, and a
Munagala-Ranade search written on it. Both sides get the same records or graph, the same bytes of memory and the same
directory; both read and write past the page cache. STXXL's search yields levels only, ours also parents in the input's order.
The examples are built with `cargo build --release -p flashwright-external -p flashwright-graph --examples`.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import common

SOURCES = os.path.join(common.ROOT, "tools", "stxxl")
EXAMPLES = os.environ.get("EXAMPLES", os.path.join(common.RELEASE, "examples"))


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=None, help="interleaved rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--directory", default=".", help="where temporary files go (default: the current directory)")
    parser.add_argument("--sort-bytes", type=int, default=512 << 20, help="bytes to sort (default 512 MiB)")
    parser.add_argument("--memory", type=int, default=64 << 20, help="bytes of memory (default 64 MiB)")
    parser.add_argument("--graph", metavar="FILE.fwg", help="an undirected graph, with its GAP form beside it as FILE.sg")
    parser.add_argument("--source", type=int, default=0, help="the vertex to search from (default 0)")


def compiled(name, folder, ours):
    """The path of a yardstick; None where it cannot be compiled here, or our program `ours` is not built."""
    if not os.path.exists(ours):
        print(f"{name}: not compared, {ours} is missing: cargo build --release -p flashwright-external -p flashwright-graph --examples")
        return None
    program = os.path.join(folder, name)
    command = ["g++", "-O3", "-march=native", "-std=c++17", "-fopenmp", "-DSTXXL_PARALLEL_MODE_EXPLICIT",
               os.path.join(SOURCES, f"{name}.cpp"), "-o", program, "-lstxxl"]
    if not shutil.which("g++") or subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
        print(f"{name}: not compared, g++ and libstxxl-dev are needed")
        return None
    return program


def line_of(command, folder, **variables):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                          env={**os.environ, **variables})
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nexited with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def compare(title, contenders, rounds, agree):
    results = common.rounds(contenders, rounds)
    for ours, theirs in zip(*results.values()):
        if agree(ours) != agree(theirs):
            sys.exit(f"{title}: the results differ: {ours} and {theirs}")
    names = list(contenders)
    faster, low, high = common.ratio(results, names[1], names[0], lambda run: run["seconds"])
    print(f"\n{title}")
    print(f"{'':24}{'seconds':>24}{'MB read':>10}{'MB written':>12}")
    for name, runs in results.items():
        moved = [f"{common.median(runs, lambda run: run[key]) / 1e6:.0f}" for key in ("bytes_read", "bytes_written")]
        print(f"{name:24}{common.spread([run['seconds'] for run in runs]):>24}{moved[0]:>10}{moved[1]:>12}")
    print(f"{names[0]} is {faster:.2f} times as fast ({low:.2f}–{high:.2f})")


def run(options):
    folder = tempfile.mkdtemp(prefix="ratios-external-", dir=os.path.abspath(options.directory))
    try:
        config = os.path.join(folder, "stxxl.cfg")
        with open(config, "w") as file:
            file.write(f"disk={folder}/stxxl.disk,0,linuxaio direct unlink\n")
        count, memory = options.sort_bytes // 8, str(options.memory)
        ours = [os.path.join(EXAMPLES, "sorting"), folder, str(count), memory]
        if program := compiled("sort", folder, ours[0]):
            compare(f"sort of {options.sort_bytes >> 20} MiB of 64-bit numbers in {options.memory >> 20} MiB", {
                "flashwright": lambda: line_of(ours, folder),
                "STXXL": lambda: line_of([program, str(count), memory], folder, STXXLCFG=config, STXXLLOGFILE="/dev/null",
                                         STXXLERRLOGFILE="/dev/null"),
            }, options.rounds, lambda run: (run["is_sorted"], run["sum"]))
        if not options.graph:
            print("search: not compared, --graph is needed")
        elif program := compiled("mr_bfs", folder, os.path.join(EXAMPLES, "external_search")):
            graph = os.path.abspath(options.graph)
            gap = os.path.splitext(graph)[0] + ".sg"
            ours = [os.path.join(EXAMPLES, "external_search"), "mr", graph, str(options.source), memory, folder]
            compare(f"mr on {os.path.basename(graph)} from {options.source} in {options.memory >> 20} MiB", {
                "flashwright": lambda: line_of(ours, folder),
                "STXXL": lambda: line_of([program, gap, str(options.source), memory], folder, STXXLCFG=config,
                                         STXXLLOGFILE="/dev/null", STXXLERRLOGFILE="/dev/null"),
            }, options.rounds, lambda run: (run["levels"], run["reached"], run["sum_of_levels"]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
