"""Breadth-first search beside GAP's in RAM, and beside a mapped file under the same limit of memory.

Contenders search one graph, Kronecker or road-like (`--kind grid`), from the same vertices, each from an empty page cache:

- *semi*: `bfs run --algorithm semi` with a budget of `--share` of the graph, in a control group that allows no more;
- *mapped*: a direction-optimizing search of the same lists in a mapped file (tools/gap, compiled with g++), in the same control group: what the
  page cache makes of a graph larger than memory;
- *GAP in RAM*: GAP's `bfs` (https://github.com/sbeamer/gapbs, named in GAPBS_BFS), which loads the graph and has no limit. Its time is that of the
  search alone; its bytes are the file;
- *ACGraph* (https://github.com/CUHK-DBGroup/ACGraph, whose build directory ACGRAPH names): lists on the drive by io_uring, in a pool of as much memory as
  `semi` has for everything; its vertices and tables lie beside the pool. Its time is that of the search alone;
- *Blaze* (https://github.com/NVSL/blaze, whose build directory BLAZE names): lists on the drive by the kernel's AIO. Its buffers, bins among them, have as much
  memory as `semi` has for everything, but 16 MiB of each at least; its vertices and tables lie beside them, as ACGraph's do. Its time is that of the search alone.
  *Blaze* is its `bfs`, which collects what it finds in bins as its paper says, *Blaze, sync* its `bfs_sync`, which has none. Each of their threads polls, four with
  bins and three without, so that on few CPUs the second is the faster.

All must reach as many vertices, Blaze at as many levels. Bytes are those that the kernel counts for the process (read_bytes of /proc/PID/io), so loading is among
them. Needs root, and version 1's or version 2's memory controller.

Blaze is built in a clone of its repository, with Debian's libboost-dev and libgoogle-perftools-dev; the second line is for machines with fewer than four CPUs:

    sed -i 's/parents.node. = UINT_MAX;$/& return true;/' apps/bfs.cpp apps/bfs_sync.cpp
    head -n 24 libgalois/cpuinfo.txt > cpus && sed -i "s|/proc/cpuinfo|$PWD/cpus|" libgalois/src/HWTopoLinux.cpp
    cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_DISABLE_FIND_PACKAGE_NUMA=ON && make -C build bfs bfs_sync convert
"""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import common

GAPBS = os.environ.get("GAPBS_BFS")
ACGRAPH = os.environ.get("ACGRAPH")
BLAZE = os.environ.get("BLAZE")
SOURCE = os.path.join(common.ROOT, "tools", "gap", "mapped_bfs.cpp")


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=None, help="interleaved rounds, each from another vertex (default 5)")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--directory", default=".", help="where graphs go (default: the current directory)")
    parser.add_argument("--scale", type=int, default=20, help="2^N vertices (default 20)")
    parser.add_argument("--kind", default="kronecker", choices=("kronecker", "uniform", "grid"), help="kind of graph (default kronecker)")
    parser.add_argument("--share", type=float, default=0.1, help="memory, as a share of the graph (default 0.1)")
    parser.add_argument("--heads", type=int, default=1, help="neighbours of each vertex stored apart (default 1)")


class Group:
    """A control group with a limit of memory; None of its makers where there is no controller."""

    def __init__(self, limit):
        for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            self.path = os.path.join(root, f"flashwright-searches-{os.getpid()}")
            try:
                os.mkdir(self.path)
                with open(os.path.join(self.path, name), "w") as file:
                    file.write(str(limit))
                return
            except OSError:
                shutil.rmtree(self.path, ignore_errors=True)
        self.path = None

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def close(self):
        if self.path:
            os.rmdir(self.path)


def searched(command, cold, group=None, errors=None):
    """Standard output of a command, and the bytes it read from drives; the pages of `cold`, a file or a directory of files, are dropped before."""
    files = [cold] if os.path.isfile(cold) else [os.path.join(cold, name) for name in os.listdir(cold)]
    for name in files:
        with open(name, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=errors, preexec_fn=group.enter if group else None)
        # It has ended and is still there to be asked.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with open(f"/proc/{process.pid}/io") as counted:
            read = int(re.search(r"^read_bytes: (\d+)", counted.read(), re.MULTILINE)[1])
        if process.wait():
            sys.exit(f"{' '.join(command)}\nexited with {process.returncode}")
        output.seek(0)
        return output.read(), read


def semi(options, graph, memory, group, source):
    text, read = searched([common.OURS, "bfs", "run", graph, "--source", str(source), "--algorithm", "semi", "--memory", str(memory),
                           "--json"], graph, group)
    found = json.loads(text)
    return {"seconds": found["elapsed_s"], "reached": found["reached"], "levels": found["levels"], "bytes": read,
            "edges": found["entries"] / 2}


def mapped(program, exported, group, source):
    text, read = searched([program, exported, str(source)], exported, group)
    found = json.loads(text)
    return {"seconds": found["seconds"], "reached": found["reached"], "bytes": read}


def in_ram(exported, source):
    text, read = searched([GAPBS, "-f", exported, "-r", str(source), "-n", "1", "-a"], exported)
    seconds = float(re.search(r"Trial Time:\s+([\d.]+)", text)[1])
    return {"seconds": seconds, "reached": int(re.search(r"BFS Tree has (\d+) nodes", text)[1]), "bytes": read}


def for_acgraph(exported, folder):
    """ACGraph's form of the graph, by its own formatter. The formatter reads offsets of 8 bytes, neighbours of 4, and counts behind 3 bytes."""
    lists, formatted = os.path.join(folder, "csr"), os.path.join(folder, "acgraph")
    os.mkdir(lists)
    with open(exported, "rb") as source:
        _, entries, vertices = struct.unpack("<?qq", source.read(17))
        with open(os.path.join(lists, "meta"), "wb") as meta:
            meta.write(struct.pack("<3xIQ", vertices, entries))
        for name, length in (("offset", 8 * (vertices + 1)), ("data", 4 * entries)):
            with open(os.path.join(lists, name), "wb") as part:
                for at in range(0, length, 1 << 20):
                    part.write(source.read(min(1 << 20, length - at)))
    subprocess.run([os.path.join(ACGRAPH, "formatter"), lists, formatted], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(lists)
    return formatted


def acgraph(formatted, memory, source):
    # It searches from its own number of a vertex.
    with open(os.path.join(formatted, "v2id"), "rb") as numbers:
        numbers.seek(4 * source)
        source, = struct.unpack("<I", numbers.read(4))
    text, read = searched([os.path.join(ACGRAPH, "bfs"), formatted, "-tn", str(os.cpu_count()), "-cmb", str(max(memory >> 20, 1)),
                           "-src", str(source)], formatted, errors=subprocess.DEVNULL)
    milliseconds = float(re.search(r"calc: ([\d.]+)ms", text)[1])
    return {"seconds": milliseconds / 1e3, "reached": int(re.search(r"ans: \((\d+),", text)[1]), "bytes": read}


def for_blaze(exported, folder):
    """Blaze's form of the graph, by its own converter from Galois's: behind a head of 4 numbers the end of each list, then all lists."""
    formatted = os.path.join(folder, "blaze")
    lists = os.path.join(formatted, "k.gr")
    os.mkdir(formatted)
    with open(exported, "rb") as source, open(lists, "wb") as file:
        _, entries, vertices, _ = struct.unpack("<?qqQ", source.read(25))
        file.write(struct.pack("<4Q", 1, 0, vertices, entries))
        shutil.copyfileobj(source, file, 1 << 20)
    # It asks for the names of a graph, too, and does not use them.
    subprocess.run([os.path.join(BLAZE, "bin", "convert"), lists, lists, lists], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    os.remove(lists)
    return formatted


def blaze(formatted, memory, source, bins):
    cpus = os.cpu_count()
    # One thread reads and one waits for the others. With bins, one puts what it finds into them and another one takes it out.
    words = [os.path.join(BLAZE, "bin", "bfs" if bins else "bfs_sync"), f"-computeWorkers={max(cpus - 2, 2 if bins else 1)}"]
    # Its reader does not collect requests while it waits for room, and would wait for ever with less than they may take.
    room = max((memory // 2 if bins else memory) >> 20, 16)
    words.append(f"-ioBufferSize={room}")
    if bins:
        # The settings of its paper's scripts but for the space, 256 there.
        words += [f"-binSpace={room}", "-binCount=1024", "-binningRatio=0.5"]
    # Else threads are bound to CPUs, some of which are not there.
    unbound = ["env", "GALOIS_DO_NOT_BIND_THREADS=1"] if cpus < 4 else []
    files = [os.path.join(formatted, f"k.gr.{ending}") for ending in ("index", "adj.1.0")]
    text, read = searched([*unbound, *words, f"-startNode={source}", *files], formatted, errors=subprocess.DEVNULL)
    # A line for each level.
    fronts = [int(nodes) for nodes in re.findall(r"^# EDGEMAP +\d+ : +(\d+) nodes", text, re.MULTILINE)]
    milliseconds = int(re.search(r"BFS_MAIN, Time, TMAX, (\d+)", text)[1])
    return {"seconds": milliseconds / 1e3, "reached": sum(fronts), "levels": len(fronts), "bytes": read}


def made(options, folder):
    """The graph and its export."""
    path = lambda ending: os.path.join(folder, f"k.{ending}")
    bfs = lambda *words: subprocess.run([common.OURS, "bfs", *words], check=True, stdout=subprocess.DEVNULL)
    bfs("generate", "--kind", options.kind, "--scale", str(options.scale), "--output", path("el"))
    bfs("build", path("el"), "--output", path("fwg"), "--memory", "1g", "--heads", str(options.heads))
    os.remove(path("el"))
    bfs("export", path("fwg"), "--output", path("sg"), "--memory", "1g")
    return path("fwg"), path("sg")


def sources(options, graph):
    """A vertex of the great component for each round."""
    drawn, found = random.Random(options.scale), []
    while len(found) < options.rounds:
        source = drawn.randrange(1 << options.scale)
        done = subprocess.run([common.OURS, "bfs", "run", graph, "--source", str(source), "--memory", "1g", "--json"],
                              check=True, stdout=subprocess.PIPE, text=True)
        if json.loads(done.stdout)["reached"] > 1000:
            found.append(source)
    return found


def run(options):
    if os.geteuid():
        return print("searches: not compared, a limit of memory needs root")
    folder = tempfile.mkdtemp(prefix="ratios-searches-", dir=options.directory)
    group = None
    try:
        graph, exported = made(options, folder)
        memory = int(os.path.getsize(graph) * options.share)
        group = Group(memory)
        if not group.path:
            return print("searches: not compared, there is no memory controller")
        chosen = sources(options, graph)
        turns = {}

        def turn(name):
            """The vertex of this round: each contender has been called once before in each earlier round."""
            turns[name] = turns.get(name, -1) + 1
            return chosen[turns[name]]

        contenders = {"semi": lambda: semi(options, graph, memory, group, turn("semi"))}
        program = os.path.join(folder, "mapped_bfs")
        command = ["g++", "-O3", "-march=native", "-std=c++17", "-fopenmp", SOURCE, "-o", program]
        if shutil.which("g++") and not subprocess.run(command).returncode:
            contenders["mapped"] = lambda: mapped(program, exported, group, turn("mapped"))
        else:
            print("mapped: not compared, g++ is needed")
        if GAPBS:
            contenders["GAP in RAM"] = lambda: in_ram(exported, turn("GAP in RAM"))
        else:
            print("GAP in RAM: not compared, GAPBS_BFS does not name its bfs")
        if ACGRAPH:
            formatted = for_acgraph(exported, folder)
            contenders["ACGraph"] = lambda: acgraph(formatted, memory, turn("ACGraph"))
        else:
            print("ACGraph: not compared, ACGRAPH does not name its build directory")
        if BLAZE:
            converted = for_blaze(exported, folder)
            contenders["Blaze"] = lambda: blaze(converted, memory, turn("Blaze"), True)
            contenders["Blaze, sync"] = lambda: blaze(converted, memory, turn("Blaze, sync"), False)
        else:
            print("Blaze: not compared, BLAZE does not name its build directory")
        results = common.rounds(contenders, options.rounds)
        show(options, graph, memory, results)
    finally:
        if group:
            group.close()
        shutil.rmtree(folder, ignore_errors=True)


def show(options, graph, memory, results):
    for name, runs in results.items():
        for ours, theirs in zip(results["semi"], runs):
            if ours["reached"] != theirs["reached"]:
                sys.exit(f"{name} reached {theirs['reached']} vertices, semi {ours['reached']}")
            if ours["levels"] != theirs.get("levels", ours["levels"]):
                sys.exit(f"{name} found {theirs['levels']} levels, semi {ours['levels']}")
            theirs["edges"] = ours["edges"]
    size = os.path.getsize(graph) / 2**20
    print(f"\n{options.kind} graph of scale {options.scale}, {size:.0f} MiB, within {memory / 2**20:.0f} MiB")
    print(f"{'':14}{'seconds':>24}{'M edges/s':>12}{'MB read':>10}")
    for name, runs in results.items():
        rate = common.median(runs, lambda run: run["edges"] / run["seconds"] / 1e6)
        read = common.median(runs, lambda run: run["bytes"] / 1e6)
        print(f"{name:14}{common.spread([run['seconds'] for run in runs]):>24}{rate:>12.1f}{read:>10.0f}")
    for name in list(results)[1:]:
        faster, low, high = common.ratio(results, name, "semi", lambda run: run["seconds"])
        fewer, least, most = common.ratio(results, name, "semi", lambda run: run["bytes"])
        print(f"beside {name}, semi is {faster:.2f} times as fast ({low:.2f}-{high:.2f}) and reads 1/{fewer:.1f} of the bytes "
              f"({least:.1f}-{most:.1f})")
