#!/usr/bin/env python3
"""Compares flashwright with its peers on this machine, as ratios.

Every comparison is interleaved: one round runs each contender once, in a rotating order, and the figure
is the median over rounds of ours divided by theirs *in the same round*. Machines are shared and noisy;
a ratio within a round survives that, an absolute figure does not. Nothing here passes or fails.

    tools/ratios.py [cpu] [flash] [report] [nbd]      (all of them by default; nbd is tools/ratios_nbd.py)

Contenders: fio from PATH; fio's own t/io_uring where the variable T_IO_URING names the program.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS = os.environ.get("FLASHWRIGHT", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "flashwright"))
FIO = shutil.which("fio")
T_IO_URING = os.environ.get("T_IO_URING")


class Run:
    """What one contender did in one round."""

    def __init__(self, ios_per_s, bytes_per_s, user_ns, system_ns):
        self.iops, self.bandwidth, self.user_ns, self.system_ns = ios_per_s, bytes_per_s, user_ns, system_ns


def execute(command, cpu=None):
    """Runs a command to its end; returns its standard output and the CPU seconds it used."""
    if cpu is not None:
        command = ["taskset", "-c", str(cpu)] + command
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def ours(path, rw, bs, depth, seconds, direct, size, cpu=None, extra=()):
    command = [OURS, "bench", f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}", f"--direct={direct}",
               f"--runtime={seconds}s", f"--size={size}", "--target", path, "--destroy", path, "--json", *extra]
    text, _, _ = execute(command, cpu)
    document = json.loads(text)
    record = document["record"] if "record" in document else document["jobs"][0]["record"]
    ios = sum(record[d]["ios"] for d in ("read", "write", "trim"))
    per_io = lambda key: sum(job[key] for job in record["jobs"]) / max(ios, 1)
    return Run(document["iops"], document["bandwidth_bytes_per_s"], per_io("user_ns"), per_io("system_ns"))


def ours_reading(spec, depth, seconds, *extra):
    """4 KiB random reads of any device spec, directly."""
    text, _, _ = execute([OURS, "bench", "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--norandommap=1",
                          f"--runtime={seconds}s", "--ramp_time=1s", "--target", spec, "--json", *extra])
    document = json.loads(text)
    cpu = document["cpu_ns_per_io"]
    return Run(document["iops"], document["bandwidth_bytes_per_s"], cpu["user"], cpu["system"])


def fio(path, rw, bs, depth, seconds, direct, size, cpu=None, extra=()):
    command = [FIO, "--name=peer", f"--filename={path}", f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}",
               "--ioengine=io_uring", f"--direct={direct}", "--invalidate=0", f"--runtime={seconds}", "--time_based",
               f"--size={size}", "--output-format=json", *extra]
    text, user, system = execute(command, cpu)
    # fio may print notes before the document.
    job = json.loads(text[text.index("{"):])["jobs"][0]
    ios = job["read"]["total_ios"] + job["write"]["total_ios"]
    iops = job["read"]["iops"] + job["write"]["iops"]
    bandwidth = job["read"]["bw_bytes"] + job["write"]["bw_bytes"]
    return Run(iops, bandwidth, user * 1e9 / max(ios, 1), system * 1e9 / max(ios, 1))


FIO_TUNED = ("--fixedbufs", "--registerfiles", "--iodepth_batch_submit=32", "--iodepth_batch_complete_min=1",
             "--iodepth_batch_complete_max=32", "--norandommap", "--gtod_reduce=1")


def t_io_uring(path, bs, depth, seconds, direct, cpu=None):
    command = [T_IO_URING, f"-d{depth}", "-s32", "-c32", "-p0", "-B1", "-F1", f"-O{direct}", f"-b{bs}",
               f"-r{seconds}", path]
    text, user, system = execute(command, cpu)
    rates = []
    for number, unit in re.findall(r"IOPS=([\d.]+)([KM]?),", text):
        rates.append(float(number) * {"": 1, "K": 1e3, "M": 1e6}[unit])
    iops = statistics.mean(rates)
    ios = iops * seconds
    return Run(iops, iops * bs, user * 1e9 / ios, system * 1e9 / ios)


def rounds(contenders, count):
    """Runs every contender once a round, the order rotated and every other time reversed; returns name → list of runs."""
    results = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(count):
        rotated = names[number % len(names):] + names[: number % len(names)]
        for name in reversed(rotated) if number % 2 else rotated:
            results[name].append(contenders[name]())
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def ratio(results, ours_name, peer, figure):
    ratios = [figure(a) / figure(b) for a, b in zip(results[ours_name], results[peer])]
    return statistics.median(ratios), min(ratios), max(ratios)


def median(runs, figure):
    return statistics.median(figure(run) for run in runs)


def lay(path, size):
    execute([OURS, "bench", "--rw=write", "--bs=1m", "--iodepth=8", "--direct=0", f"--size={size}", "--end_fsync=1",
             "--time_based=0", "--target", f"file:{path}?size={size}", "--json"])


def compare_cpu(options):
    """IOPS per core where the CPU is the limit: one thread, one core, 4 KiB random reads at depth 128."""
    cpu = max(os.sched_getaffinity(0))
    targets = []
    size = "1g"
    cached = os.path.join(options.directory, "ratios-cached")
    lay(cached, size)
    targets.append(("page-cached file", cached, 0))
    loop = make_loop(size)
    if loop:
        targets.append(("loop device on tmpfs, direct", loop.device, 1))
    try:
        for title, path, direct in targets:
            warm(path, direct)
            def us(*extra):
                return lambda: ours(path, "randread", "4k", 128, options.seconds, direct, size, cpu, extra)

            # Ours as it comes visits every block once and reaps as soon as one request is done, as fio does;
            # the other two are set as fio tuned and t/io_uring are.
            contenders = {"flashwright": us(),
                          "flashwright, norandommap": us("--norandommap=1"),
                          "flashwright, norandommap, reaping 32": us("--norandommap=1", "--iodepth_batch_complete_min=32")}
            if FIO:
                contenders["fio as it comes"] = lambda: fio(path, "randread", "4k", 128, options.seconds, direct, size, cpu)
                contenders["fio tuned"] = lambda: fio(path, "randread", "4k", 128, options.seconds, direct, size, cpu, FIO_TUNED)
            if T_IO_URING:
                contenders["t/io_uring"] = lambda: t_io_uring(path, 4096, 128, int(options.seconds) + 1, direct, cpu)
            results = rounds(contenders, options.rounds)
            print(f"\n### 4 KiB random reads, depth 128, one core: {title}\n")
            print("| contender | IOPS | user ns/IO | kernel ns/IO | compared as | IOPS, ours / theirs (lowest–highest of rounds) | CPU time per I/O, theirs / ours |")
            print("|---|---:|---:|---:|---|---:|---:|")
            like = {"fio as it comes": "flashwright", "fio tuned": "flashwright, norandommap",
                    "t/io_uring": "flashwright, norandommap, reaping 32"}
            for name, runs in results.items():
                figures = f"| {name} | {median(runs, lambda r: r.iops):,.0f} | {median(runs, lambda r: r.user_ns):.0f} | {median(runs, lambda r: r.system_ns):.0f} "
                if name not in like:
                    print(figures + "| | | |")
                    continue
                iops = "%.2f (%.2f–%.2f)" % ratio(results, like[name], name, lambda r: r.iops)
                cpu_time = "%.2f (%.2f–%.2f)" % ratio(results, like[name], name, lambda r: 1 / (r.user_ns + r.system_ns))
                print(figures + f"| {like[name]} | {iops} | {cpu_time} |")
    finally:
        os.unlink(cached)
        if loop:
            loop.close()


def warm(path, direct):
    if not direct:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


class Loop:
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


def compare_nbd(options):
    """NBD over loopback: servers and clients, ours and others', in all pairs."""
    import ratios_nbd

    options.connections, options.large = [1, 4], True
    ratios_nbd.run(options)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal")) / 2**20
    version = lambda command: subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    print(f"{model}, {os.cpu_count()} CPUs, {memory:.0f} GiB, Linux {platform.release()}")
    print(f"{version([OURS, '--version'])}; {version([FIO, '--version']) if FIO else 'no fio'}; "
          f"t/io_uring: {'given' if T_IO_URING else 'not given (T_IO_URING)'}")


def begin(options):
    """Says what is measured where and how often, or why nothing can be."""
    if not os.path.exists(OURS):
        sys.exit(f"{OURS} is missing: cargo build --release first, or name it in FLASHWRIGHT")
    machine()
    # Not every comparison is by the clock: some run until their work is done.
    length = f" of {options.seconds} s" if hasattr(options, "seconds") else ""
    print(f"{options.rounds} interleaved rounds{length}; medians", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["cpu", "flash", "report", "nbd", []], default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--directory", default=".", help="where test files are laid")
    options = parser.parse_args()
    options.seconds = int(options.seconds) if options.seconds == int(options.seconds) else options.seconds
    begin(options)
    wanted = options.what or ["cpu", "flash", "report", "nbd"]
    for name, compare in (("cpu", compare_cpu), ("flash", compare_flash), ("report", compare_report), ("nbd", compare_nbd)):
        if name in wanted:
            compare(options)


if __name__ == "__main__":
    main()
