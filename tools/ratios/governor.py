"""What a drain costs an application that reads from the fast tier, with the governor and without it.

Tiers: two ext4 file systems on loop devices, throttled by blkio of control group version 1 (see stage.py):
the fast one to --fast MB/s of reads, the slow one to --slow MB/s of writes, so that a drain alone can use up the fast
one. Needs root.

The application reads 4 KiB at random places of a file on the fast tier, around the page cache, --iops times a second.
It asks at given times whether or not the last answer has come (open loop), and its latencies are counted from there:
where the tier gives it less than it asks for, they grow for as long as that lasts.
Three times in each round, in an order that differs from round to round:
  alone       nothing else is done;
  drain       a file is copied from the fast to the slow tier by `stage serve`, which has no governor;
  governed    the same, and the server's file says `[qos.governor] all_jobs = true`, all else as it is by default.
The copy begins first and is given up when the application has ended; it is long enough not to end before. What it moved
meanwhile is told as well: that is the price.

Printed are, of each round, the application's latency with a drain by its latency alone in the same round, and the
medians over rounds.
"""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import common
import stage

MODES = ("alone", "drain", "governed")
QUANTILES = ("50", "90", "99")
APPLICATION_BYTES = 64 << 20
PIECE_BYTES = 16 << 20
# The drain and its server have settled, and the governor has seen the tier at rest, before anything counts.
SETTLE_S = 8


class Server:
    """`stage serve` with a state of its own."""

    def __init__(self, tiers, governed):
        self.state = tempfile.mkdtemp(dir=tiers.state)
        self.socket = os.path.join(self.state, "s")
        config = os.path.join(self.state, "serve.toml")
        with open(config, "w") as file:
            file.write("[qos.governor]\nall_jobs = true\n" if governed else "")
        with open(os.path.join(self.state, "log"), "w") as log:
            self.child = subprocess.Popen([common.OURS, "stage", "serve", "--state", self.state, "--socket", self.socket,
                                           "--config", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not os.path.exists(self.socket):
            if self.child.poll() is not None:
                with open(os.path.join(self.state, "log")) as log:
                    raise SystemExit(f"the server ended: {log.read().strip()}")
            time.sleep(0.05)

    def ask(self, *words):
        text = stage.sh([common.OURS, "stage", *words, "--json", "--socket", self.socket])
        return json.loads(text)["jobs"][0]

    def close(self):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait()
        shutil.rmtree(self.state, ignore_errors=True)


def application(path, options):
    """Latencies in ns by quantile."""
    text, _, _ = common.execute([
        common.OURS, "bench", "--rw=randread", "--bs=4k", "--iodepth=64", "--norandommap=1", f"--rate_iops={options.iops}",
        f"--ramp_time={SETTLE_S}s", f"--runtime={options.seconds}s", f"--size={APPLICATION_BYTES}", "--target", path, "--json"])
    latency = json.loads(text)["latency_ns"]
    return {quantile: latency["p" + quantile] for quantile in QUANTILES}


def one(mode, tiers, options):
    """The application's latencies, and bytes a second that the drain moved."""
    tiers.forget()
    path = os.path.join(tiers.fast, "application")
    if mode == "alone":
        return application(path, options), 0.0
    copy = os.path.join(tiers.slow, "copy")
    server = Server(tiers, mode == "governed")
    try:
        job = server.ask("cp", os.path.join(tiers.fast, "source"), copy)["id"]
        begun = time.monotonic()
        latencies = application(path, options)
        status = server.ask("status", str(job))
        rate = status["bytes_written"] / (time.monotonic() - begun)
        if status["state"] != "running":
            raise SystemExit(f"the drain is {status['state']}: it was too short, or failed: {status.get('error')}")
        server.ask("cancel", str(job))
        # Given up between two steps: what it has copied goes then.
        while server.ask("status", str(job))["state"] == "running":
            time.sleep(0.1)
        return latencies, rate
    finally:
        server.close()


def source_bytes(options):
    """What a drain could not have moved by the end, at all that the fast tier gives: reads that were due and not answered
    are made after the time is up, and may take several times as long."""
    return int(options.fast * 1e6 * (5 * options.seconds + SETTLE_S)) // PIECE_BYTES * PIECE_BYTES


def compare(tiers, options):
    with open(os.path.join(tiers.fast, "application"), "wb") as file:
        file.write(os.urandom(APPLICATION_BYTES))
    with open(os.path.join(tiers.fast, "source"), "wb") as file:
        for _ in range(source_bytes(options) // PIECE_BYTES):
            file.write(os.urandom(PIECE_BYTES))
        file.flush()
        os.fsync(file.fileno())
    # Only now: to lay the files at the throttled rate would take as long as the whole.
    tiers.throttle(tiers.devices[0], int(options.fast * 1e6))
    tiers.throttle(tiers.devices[1], int(options.slow * 1e6))
    print(f"{'round':>5}  {'':9}" + "".join(f"{'p' + q:>12}" for q in QUANTILES) + f"{'by alone, p50':>16}{'p90':>9}{'p99':>9}{'drain MB/s':>12}")
    ratios_by = {mode: {q: [] for q in QUANTILES} for mode in MODES[1:]}
    rates = {mode: [] for mode in MODES[1:]}
    for number in range(options.rounds):
        order = list(MODES)
        random.Random(number).shuffle(order)
        seen = {mode: one(mode, tiers, options) for mode in order}
        alone = seen["alone"][0]
        for mode in MODES:
            latencies, rate = seen[mode]
            line = f"{number + 1:>5}  {mode:9}" + "".join(f"{latencies[q] / 1e6:>9.2f} ms" for q in QUANTILES)
            if mode != "alone":
                by = {q: latencies[q] / alone[q] for q in QUANTILES}
                line += f"{by['50']:>16.1f}{by['90']:>9.1f}{by['99']:>9.1f}{rate / 1e6:>12.1f}"
                rates[mode].append(rate)
                for q in QUANTILES:
                    ratios_by[mode][q].append(by[q])
            print(line, flush=True)
    for mode in MODES[1:]:
        medians = [statistics.median(ratios_by[mode][q]) for q in QUANTILES]
        print(f"median {mode:9}" + " " * 12 * len(QUANTILES) + f"{medians[0]:>16.1f}{medians[1]:>9.1f}{medians[2]:>9.1f}"
              + f"{statistics.median(rates[mode]) / 1e6:>12.1f}")
    spared = statistics.median(drain / governed for drain, governed in zip(ratios_by["drain"]["99"], ratios_by["governed"]["99"]))
    print(f"The application's p99 beside a drain without a governor is {spared:.1f} times that beside a governed one.")


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=15, help="of each measurement")
    parser.add_argument("--fast", type=float, default=40, help="MB/s of the fast tier")
    parser.add_argument("--slow", type=float, default=200, help="MB/s of the slow tier")
    parser.add_argument("--iops", type=int, default=200, help="reads a second of the application")
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="where the images lie")


def run(options):
    if os.geteuid() != 0 or not os.path.exists(stage.THROTTLE + "read_bps_device"):
        return print("SKIP the governor on throttled tiers: it takes root, loop devices and blkio of control group version 1")
    needed = source_bytes(options) + APPLICATION_BYTES
    # In whole MiB, with room for the file system itself.
    image_bytes = (int(needed * 1.1) + (256 << 20)) >> 20 << 20
    tiers = stage.Loops(options.directory, image_bytes, None)
    try:
        print(tiers.what() + f", then throttled to {options.fast:.0f} and {options.slow:.0f} MB/s; "
              f"the application reads {options.iops} times a second, for {options.seconds} s")
        compare(tiers, options)
    finally:
        tiers.close()
