"""What `make run` builds (the profile `quick`) against what is installed (`release`): the CPU time of the same work by both binaries.

The release is optimised across crates; `quick` is not, and most of it not at all, so that it compiles sooner. The
same commands run with both binaries, in alternating order: a fixed number of requests to memory, to a cached file and to a server of
each, writes that are verified, a copy of many small files, a simulated sweep and its report. The figure is user CPU time of the
process and its children, or of the server; time in the kernel is the same work for both, and only noise.
"""

import os
import shutil
import sys
import tempfile

import common
import nbd

QUICK = os.environ.get("QUICK_BINARY", os.path.join(os.path.dirname(common.RELEASE), "quick", "flashwright"))
FILES, FILE_BYTES, DATA = 5000, 4096, 256 << 20


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=None, help="interleaved rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--directory", default=".", help="where files go (default: the current directory)")


def works(folder):
    """Name of a work, with the arguments that do it, and what is removed before each."""
    data = os.path.join(folder, "data")
    read = ["bench", "--rw=randread", "--bs=4k", "--iodepth=32", "--time_based=0"]
    cached = [*read, "--direct=0", "--loops=32", "--target", data]
    verified = ["bench", "--rw=write", "--bs=64k", "--time_based=0", "--direct=0", "--destroy", data, "--target", data]
    tree, copy = os.path.join(folder, "tree"), os.path.join(folder, "copy")
    sweep, output = os.path.join(folder, "space.toml"), os.path.join(folder, "results")
    return {
        "reads of memory": ([*read, "--loops=64", "--target=mem:64m"], None),
        "reads of a cached file": (cached, None),
        "reads of a cached file, pread": ([*cached, "--ioengine=psync"], None),
        "writes verified by CRC-32C": ([*verified, "--verify=crc32c"], None),
        "writes verified by SHA-256": ([*verified, "--verify=sha256"], None),
        f"a copy of {FILES} files of {FILE_BYTES >> 10} KiB": (["stage", "cp", tree, copy, "--foreground", "--state", os.path.join(folder, "state")], copy),
        "a simulated sweep": (["sweep", sweep, "--machine", "dash-io-node", "--seed=1", "--output", output], output),
        "its report": (["report", output, "--format=html", "--output", os.path.join(folder, "report.html")], None),
    }


def cpu_seconds(binary, command, removed):
    if removed:
        shutil.rmtree(removed, ignore_errors=True)
    return common.execute([binary, *command])[1]


def served(options):
    """User CPU time of a server of each binary, while the release reads the same from both."""
    servers = {}
    try:
        for binary in (QUICK, common.OURS):
            port = nbd.free_port()
            command = [binary, "memory", "serve", "--size=64m", "--listen", f"127.0.0.1:{port}", "--insecure"]
            servers[binary] = nbd.Server(binary, command, port)
            fill = ["bench", "--rw=write", "--bs=1m", "--time_based=0", "--target", servers[binary].uri, "--destroy", servers[binary].uri]
            common.execute([common.OURS, *fill])

        def read(server):
            before = server.user_seconds()
            common.execute([common.OURS, "bench", "--rw=randread", "--bs=4k", "--iodepth=32", "--time_based=0", "--loops=16",
                            "--target", server.uri])
            return server.user_seconds() - before

        return common.rounds({binary: lambda server=server: read(server) for binary, server in servers.items()}, options.rounds)
    finally:
        for server in servers.values():
            server.stop()


def show(name, results):
    ratio, low, high = common.ratio(results, QUICK, common.OURS, lambda seconds: max(seconds, 1e-3))
    print(f"{name:40}{common.spread(results[QUICK]):>24}{common.spread(results[common.OURS]):>24}"
          f"{f'{ratio:.2f} ({low:.2f}–{high:.2f})':>24}", flush=True)


def run(options):
    if not os.path.exists(QUICK) or os.path.samefile(QUICK, common.OURS):
        print(f"profiles: not compared, {QUICK} is missing, or the same: make quick first, or name it in QUICK_BINARY", file=sys.stderr)
        return
    folder = tempfile.mkdtemp(prefix="ratios-profiles-", dir=os.path.abspath(options.directory))
    try:
        with open(os.path.join(folder, "data"), "wb") as file:
            for _ in range(DATA >> 20):
                file.write(os.urandom(1 << 20))
        os.mkdir(os.path.join(folder, "tree"))
        for number in range(FILES):
            with open(os.path.join(folder, "tree", f"{number:05}"), "wb") as file:
                file.write(os.urandom(FILE_BYTES))
        with open(os.path.join(folder, "space.toml"), "w") as file:
            file.write("[sweep]\nname = 'profiles'\nprotocol = 'dash'\npasses = 2\n[space]\nrw = ['randread', 'read', 'write']\n"
                       "bs = ['4k', '64k', '1m']\niodepth = [1, 4, 16]\n")
        print(f"\n{'user CPU time, s':40}{'quick':>24}{'release':>24}{'quick / release':>24}")
        for name, (command, removed) in works(folder).items():
            results = common.rounds({binary: lambda binary=binary: cpu_seconds(binary, command, removed)
                                     for binary in (QUICK, common.OURS)}, options.rounds)
            show(name, results)
        show("a server of memory, 4 KiB reads", served(options))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
