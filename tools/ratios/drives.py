"""IOPS per core and bandwidth beside fio, and what a report costs.

cpu      4 KiB random reads at depth 128 on one core, where the CPU is the limit: a cached file, a loop device over memory, and
         zram; with the requests that a system call handed over, where perf(1) counts them.
flash    The papers' fourteen test types with O_DIRECT on this machine's own flash.
report   Seconds, memory and bytes of `report` as a sweep grows.

Contenders: fio from PATH; fio's own t/io_uring where the variable T_IO_URING names the program.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from common import FIO, OURS, T_IO_URING, execute, fio, lay, median, ours, ratio, rounds, t_io_uring

FIO_TUNED = ("--fixedbufs", "--registerfiles", "--iodepth_batch_submit=32", "--iodepth_batch_complete_min=1",
             "--iodepth_batch_complete_max=32", "--norandommap", "--gtod_reduce=1")


def compare_cpu(options):
    """IOPS per core where the CPU is the limit: one thread, one core, 4 KiB random reads at depth 128."""
    cpu = max(os.sched_getaffinity(0))
    targets = []
    size = "1g"
    cached = os.path.join(options.directory, "ratios-cached")
    lay(cached, size)
    targets.append(("page-cached file", cached, 0))
    made = [device for device in (make_loop(size), make_zram("256m")) if device]
    for device in made:
        targets.append((device.title, device.device, 1))
    try:
        for title, path, direct in targets:
            warm(path, direct)
            span = "256m" if "zram" in path else size
            def us(*extra):
                return lambda: ours(path, "randread", "4k", 128, options.seconds, direct, span, cpu, extra)

            # Ours as it comes visits every block once and reaps as soon as one request is done, as fio does;
            # the other two are set as fio tuned and t/io_uring are. t/io_uring hands over 32 and reaps 32.
            contenders = {"flashwright": us(),
                          "flashwright, norandommap": us("--norandommap=1"),
                          "flashwright, norandommap, 32 and 32": us("--norandommap=1", "--iodepth_batch=32",
                                                                   "--iodepth_batch_complete_min=32")}
            if FIO:
                contenders["fio as it comes"] = lambda: fio(path, "randread", "4k", 128, options.seconds, direct, span, cpu)
                contenders["fio tuned"] = lambda: fio(path, "randread", "4k", 128, options.seconds, direct, span, cpu, FIO_TUNED)
            if T_IO_URING:
                contenders["t/io_uring"] = lambda: t_io_uring(path, 4096, 128, int(options.seconds) + 1, direct, cpu)
            results = rounds(contenders, options.rounds)
            print(f"\n### 4 KiB random reads, depth 128, one core: {title}\n")
            print("| contender | IOPS | user ns/IO | kernel ns/IO | IO a call | compared as | IOPS, ours / theirs (lowest–highest of rounds) | CPU time per I/O, theirs / ours |")
            print("|---|---:|---:|---:|---:|---|---:|---:|")
            like = {"fio as it comes": "flashwright", "fio tuned": "flashwright, norandommap",
                    "t/io_uring": "flashwright, norandommap, 32 and 32"}
            for name, runs in results.items():
                figures = f"| {name} | {median(runs, lambda r: r.iops):,.0f} | {median(runs, lambda r: r.user_ns):.0f} | {median(runs, lambda r: r.system_ns):.0f} "
                counted = [run.ios_per_call for run in runs if run.ios_per_call]
                figures += f"| {statistics.median(counted):.1f} " if counted else "| – "
                if name not in like:
                    print(figures + "| | | |")
                    continue
                iops = "%.2f (%.2f–%.2f)" % ratio(results, like[name], name, lambda r: r.iops)
                cpu_time = "%.2f (%.2f–%.2f)" % ratio(results, like[name], name, lambda r: 1 / (r.user_ns + r.system_ns))
                print(figures + f"| {like[name]} | {iops} | {cpu_time} |")
    finally:
        os.unlink(cached)
        for device in made:
            device.close()


def warm(path, direct):
    if not direct:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


class Loop:
    title = "loop device on tmpfs, direct"

    def __init__(self, directory, device):
        self.directory, self.device = directory, device

    def close(self):
        subprocess.run(["losetup", "-d", self.device], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


def make_loop(size):
    """A loop device over a fully written file in memory; none without root or /dev/shm."""
    if os.geteuid() != 0 or not os.path.ismount("/dev/shm") or not shutil.which("losetup"):
        print("no loop device: needs root, losetup and /dev/shm", file=sys.stderr)
        return None
    directory = tempfile.mkdtemp(prefix="ratios-", dir="/dev/shm")
    path = os.path.join(directory, "backing")
    lay(path, size)
    made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", path], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if made.returncode != 0:
        print(f"no loop device: {made.stderr.strip()}", file=sys.stderr)
        shutil.rmtree(directory, ignore_errors=True)
        return None
    return Loop(directory, made.stdout.strip())


class Zram:
    title = "zram, direct"

    def __init__(self, number):
        self.number, self.device = number, f"/dev/zram{number}"

    def close(self):
        # udev may have it open for a moment.
        for _ in range(50):
            try:
                with open("/sys/class/zram-control/hot_remove", "w") as control:
                    control.write(self.number)
                return
            except OSError:
                time.sleep(0.02)
        print(f"left behind: {self.device}", file=sys.stderr)


def make_zram(size):
    """A zram device that was written throughout; none where it cannot be had."""
    try:
        with open("/sys/class/zram-control/hot_add") as control:
            zram = Zram(control.read().strip())
    except OSError as error:
        print(f"no zram device: {error}", file=sys.stderr)
        return None
    try:
        with open(f"/sys/block/zram{zram.number}/disksize", "w") as disksize:
            disksize.write(size)
        execute([OURS, "bench", "--rw=write", "--bs=1m", "--iodepth=8", "--time_based=0", "--target", zram.device, "--destroy",
                 zram.device, "--json"])
    except (OSError, SystemExit) as error:
        print(f"no zram device: {error}", file=sys.stderr)
        zram.close()
        return None
    return zram


TEST_TYPES = [("read", "4m", 1), ("write", "4m", 1), ("randread", "4m", 1), ("randwrite", "4m", 1),
              ("randread", "4m", 4), ("randwrite", "4m", 4), ("randread", "4m", 16), ("randwrite", "4m", 16),
              ("randread", "4k", 32), ("randwrite", "4k", 32), ("randread", "4k", 128), ("randwrite", "4k", 128),
              ("randread", "4k", 512), ("randwrite", "4k", 512)]


def compare_flash(options):
    """The papers' fourteen test types with O_DIRECT on this machine's own flash, beside fio."""
    if not FIO:
        print("no fio on PATH: the flash comparison is left out", file=sys.stderr)
        return
    size = "2g"
    path = os.path.join(options.directory, "ratios-flash")
    lay(path, size)
    try:
        print("\n### The fourteen test types, O_DIRECT, this machine's flash\n")
        print("| type | request | flashwright MB/s | fio MB/s | ours / theirs (lowest–highest of rounds) |")
        print("|---:|---|---:|---:|---:|")
        for number, (rw, bs, depth) in enumerate(TEST_TYPES, 1):
            results = rounds({"flashwright": lambda: ours(path, rw, bs, depth, options.seconds, 1, size),
                              "fio": lambda: fio(path, rw, bs, depth, options.seconds, 1, size)}, options.rounds)
            figure = ratio(results, "flashwright", "fio", lambda r: r.bandwidth)
            mbs = {name: median(runs, lambda r: r.bandwidth) / 1e6 for name, runs in results.items()}
            print(f"| {number} | {rw} {bs} depth {depth} | {mbs['flashwright']:,.0f} | {mbs['fio']:,.0f} "
                  "| %.2f (%.2f–%.2f) |" % figure, flush=True)
    finally:
        os.unlink(path)


def compare_report(options):
    """What a report costs as a sweep grows; the database is made by the sweep crate's own example."""
    maker = os.path.join(os.path.dirname(OURS), "examples", "synthetic_sweep")
    if not os.path.exists(maker):
        print("no synthetic_sweep: build it with cargo build --release --examples", file=sys.stderr)
        return
    print("\n### Cost of `report` against the number of runs (html)\n")
    print("| runs | results.db MB | seconds | peak memory MiB | report MB |")
    print("|---:|---:|---:|---:|---:|")
    for runs in (3_360, 16_800, 100_800):
        # In memory where there is any: making it durably, run by run, is not what is measured here.
        place = "/dev/shm" if os.path.ismount("/dev/shm") else options.directory
        with tempfile.TemporaryDirectory(dir=place) as directory:
            execute([maker, directory, str(runs)])
            begun = time.monotonic()
            output = os.path.join(directory, "report.html")
            child = subprocess.Popen([OURS, "report", directory, "--format", "html", "--output", output],
                                     stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.monotonic() - begun
            if status != 0:
                sys.exit(f"report exited with status {status}")
            print(f"| {runs:,} | {os.path.getsize(os.path.join(directory, 'results.db')) / 1e6:.0f} | {seconds:.2f} "
                  f"| {usage.ru_maxrss / 1024:.0f} | {os.path.getsize(output) / 1e6:.1f} |", flush=True)


PARTS = {"cpu": compare_cpu, "flash": compare_flash, "report": compare_report}


def arguments(parser):
    parser.add_argument("what", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--directory", default=".", help="where test files are laid")


def run(options):
    options.seconds = int(options.seconds) if options.seconds == int(options.seconds) else options.seconds
    for name in options.what or PARTS:
        PARTS[name](options)
