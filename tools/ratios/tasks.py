"""bench by several tasks beside IOR, on the same files.

Each round writes and reads back by both, the order changing. The figure is bytes by the time from the first task's begin to the last one's
end, as both define it; IOR's has open and close in it. Both go around the page cache, sync at the end of a write, and
have each task read what another one wrote. IOR is found on PATH or named in the variable IOR, and runs under mpirun.
Ours is started with --tasks, or with --mpirun by mpirun, for which the binary has the feature mpi.
"""

import json
import os
import re
import shutil
import statistics
import sys
import tempfile

import common

IOR = os.environ.get("IOR") or shutil.which("ior")
MIB = 1 << 20


def launcher(options):
    return ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "-n", str(options.tasks)]


def ours(options, folder, shared, rw):
    """Bytes a second."""
    started = [*launcher(options), common.OURS, "bench"] if options.mpirun else [common.OURS, "bench", "--tasks", str(options.tasks)]
    result = os.path.join(folder, "report.json")
    common.execute([*started, f"--rw={rw}", "--bs=1m", f"--size={options.block}m", "--target", os.path.join(folder, "f"), "--destroy", os.path.join(folder, "f"),
                    "--end_fsync=1" if rw == "write" else "--reorder", *(["--shared"] if shared else []), "--json", "--output", result])
    with open(result) as report:
        return json.load(report)["bandwidth_bytes_per_s"]


def ior(options, folder, shared, rw):
    text, _, _ = common.execute([*launcher(options), IOR, "-a", "POSIX", "--posix.odirect", "-t", "1m", "-b", f"{options.block}m", "-k", "-C",
                                 *(["-w", "-e"] if rw == "write" else ["-r"]), *([] if shared else ["-F"]), "-o", os.path.join(folder, "f")])
    return float(re.search(rf"^{rw} +([0-9.]+)", text, re.MULTILINE)[1]) * MIB


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=os.cpu_count())
    parser.add_argument("--block", type=int, default=512, help="MiB of each task")
    parser.add_argument("--directory", default=".", help="where the files lie")
    parser.add_argument("--mpirun", action="store_true", help="ours is started by mpirun as well")


def run(options):
    if not IOR or not shutil.which("mpirun"):
        print("tasks is left out: no ior or no mpirun (IOR names the program)", file=sys.stderr)
        return
    print(f"\n{options.tasks} tasks of {options.block} MiB, 1 MiB transfers\n")
    print("| | bench, MB/s | IOR, MB/s | bench by IOR |\n|---|---|---|---|")
    for shared in (False, True):
        with tempfile.TemporaryDirectory(dir=options.directory, prefix="ratios-tasks-") as folder:
            for rw in ("write", "read"):
                there = {"ours": lambda: ours(options, folder, shared, rw), "ior": lambda: ior(options, folder, shared, rw)}
                results = common.rounds(there, options.rounds)
                rates = [statistics.median(results[name]) / 1e6 for name in there]
                pairs = [one / other for one, other in zip(results["ours"], results["ior"])]
                print(f"| {'one file' if shared else 'a file each'}, {rw} | {rates[0]:.0f} | {rates[1]:.0f} | {common.spread(pairs)} |", flush=True)
