"""What a drain behind a fast tier gives and costs an application that checkpoints (flashwright flashio).

On the tiers of examples/flashio-tiers.sh: XFS on loop devices, throttled to --fast and --slow bytes a second. flashio
interleaves the three ways itself, in blocks, and its ratios are within blocks. The work between checkpoints and their
size give I/O to the slow tier 0.55 of the time of computing, as in the paper at 288 tasks, whose advantage is that of
run times: 2221 s / 1561 s = 1.42.
"""

import json
import os
import subprocess
import sys
import tempfile

import common

SCRIPT = os.path.join(common.ROOT, "examples", "flashio-tiers.sh")


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=8, help="the most blocks")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--compute", default="2s", help="between two checkpoints")
    parser.add_argument("--checkpoints", type=int, default=5)
    parser.add_argument("--fast", type=int, default=400, help="MB/s of the fast tier")
    parser.add_argument("--slow", type=int, default=40, help="MB/s of the slow tier")
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="where the images lie")


def run(options):
    environment = dict(os.environ, FLASHWRIGHT=common.OURS, FAST_MB=str(options.fast), SLOW_MB=str(options.slow))
    place = tempfile.mkdtemp(prefix="ratios-flashio-", dir=options.directory)
    script = lambda verb, *more: subprocess.run(
        ["sh", SCRIPT, verb, place, *more], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        made = script("up")
        if made.returncode != 0:
            return print(f"SKIP flashio on throttled tiers: {made.stderr.strip()}")
        before = os.getloadavg()[0]
        done = subprocess.run(
            [common.OURS, "flashio", "--fast", f"{place}/fast", "--slow", f"{place}/slow", f"--tasks={options.tasks}",
             f"--compute={options.compute}", f"--checkpoints={options.checkpoints}", f"--blocks={options.rounds}",
             "--checkpoint-size", str(checkpoint_bytes(options)), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"flashio exited with {done.returncode}: {done.stderr.strip()}")
        show(json.loads(done.stdout), before)
    finally:
        script("down")
        os.rmdir(place)


def checkpoint_bytes(options):
    """Bytes of a task's checkpoint with which I/O to the slow tier is 0.55 of computing; a multiple of 4096."""
    if not options.compute.endswith("s") or options.compute.endswith("ms"):
        sys.exit(f"--compute={options.compute}: seconds, such as 2s")
    seconds = 0.55 * float(options.compute[:-1])
    return int(options.slow * 1e6 * seconds / options.tasks) // 4096 * 4096


def show(document, load):
    print(f"{document['tasks']} tasks on {document['cpus']} CPUs, load {load:.1f} before; {document['blocks']} blocks")
    print("\n| way | write MB/s | run s | I/O s | compute s | longest stall s |\n|---|---:|---:|---:|---:|---:|")
    for way in document["ways"]:
        figures = [way["write_bytes_per_s"] / 1e6, way["run_s"], way["io_s"], way["compute_s"], way["stall_slowest_s"]]
        print(f"| {way['way']} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    print("\n| ratio | value (95 %) | aim |\n|---|---:|---:|")
    aims = ("≥ 1.42", "≤ 1.02", "≤ 1.02")
    for contest, aim in zip(document["contests"], aims):
        ratio = contest["ratio"]
        value = "no interval" if ratio is None else f"{ratio['ratio']:.3f} ({ratio['low']:.3f}–{ratio['high']:.3f})"
        print(f"| {contest['figure']}, {contest['of']} by {contest['by']} | {value} | {aim} |")
    restart = document["restart"]
    ratio = restart["ratio"]
    interval = "no interval" if ratio is None else f"{ratio['low']:.2f}–{ratio['high']:.2f}"
    print(f"| restoring by the fast tier's own reading | {restart['by_read']:.2f} ({interval}) | ≤ 1.1 |")
    drain = document["drain"]
    print(f"\nThe drain: {drain['bytes_per_s'] / 1e6:.1f} MB/s, most behind {drain['most_behind']}, "
          f"{drain['checked_bytes']} bytes compared; durable after {drain['durable_median_s']:.2f} s; "
          f"first new step {document['restart']['first_step_s']:.2f} s after the kill")
