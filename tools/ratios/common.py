"""What all comparisons share: contenders, interleaved rounds, ratios within a round, the machine."""

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

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release")
OURS = os.environ.get("FLASHWRIGHT", os.path.join(RELEASE, "flashwright"))
FIO = shutil.which("fio")
T_IO_URING = os.environ.get("T_IO_URING")


class Run:
    """What one contender did in one round; ios_per_call only where system calls were counted."""

    def __init__(self, ios_per_s, bytes_per_s, user_ns, system_ns, ios_per_call=None):
        self.iops, self.bandwidth, self.user_ns, self.system_ns = ios_per_s, bytes_per_s, user_ns, system_ns
        self.ios_per_call = ios_per_call


class Calls:
    """Counts io_uring_enter(2) of a command by perf(1); of none where perf or its tracepoint cannot be had."""

    EVENT = "syscalls:sys_enter_io_uring_enter"

    def __init__(self):
        probe = ["perf", "stat", "-x,", "-e", self.EVENT, "true"]
        self.can_count = bool(shutil.which("perf")) and subprocess.run(
            probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def around(self, command):
        """The command as it is to be run."""
        if not self.can_count:
            return command
        self.output = tempfile.NamedTemporaryFile(prefix="ratios-perf-", mode="r")
        return ["perf", "stat", "-x,", "-e", self.EVENT, "-o", self.output.name, "--", *command]

    def per_call(self, ios):
        """Requests for each call of the command that was run last; None where they are not counted."""
        if not self.can_count:
            return None
        with self.output as output:
            count = next((line.split(",")[0] for line in output if self.EVENT in line), "0")
        return ios / int(count) if count.isdigit() and int(count) else None


CALLS = Calls()


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
    text, _, _ = execute(CALLS.around(command), cpu)
    document = json.loads(text)
    record = document["record"] if "record" in document else document["jobs"][0]["record"]
    ios = sum(record[d]["ios"] for d in ("read", "write", "trim"))
    # The process's time, as the others' is: what the kernel's threads for io_uring do is in it, and in no job's.
    per_io = lambda key: record["process"][key] / max(ios, 1)
    return Run(document["iops"], document["bandwidth_bytes_per_s"], per_io("user_ns"), per_io("system_ns"),
               CALLS.per_call(record["total"]["ios"]))


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
    text, user, system = execute(CALLS.around(command), cpu)
    # fio may print notes before the document.
    job = json.loads(text[text.index("{"):])["jobs"][0]
    ios = job["read"]["total_ios"] + job["write"]["total_ios"]
    iops = job["read"]["iops"] + job["write"]["iops"]
    bandwidth = job["read"]["bw_bytes"] + job["write"]["bw_bytes"]
    return Run(iops, bandwidth, user * 1e9 / max(ios, 1), system * 1e9 / max(ios, 1), CALLS.per_call(ios))


def t_io_uring(path, bs, depth, seconds, direct, cpu=None):
    command = [T_IO_URING, f"-d{depth}", "-s32", "-c32", "-p0", "-B1", "-F1", f"-O{direct}", f"-b{bs}",
               f"-r{seconds}", path]
    text, user, system = execute(CALLS.around(command), cpu)
    rates = []
    for number, unit in re.findall(r"IOPS=([\d.]+)([KM]?),", text):
        rates.append(float(number) * {"": 1, "K": 1e3, "M": 1e6}[unit])
    iops = statistics.mean(rates)
    ios = iops * seconds
    return Run(iops, iops * bs, user * 1e9 / ios, system * 1e9 / ios, CALLS.per_call(ios))


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


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal")) / 2**20
    version = lambda command: subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    print(f"{model}, {os.cpu_count()} CPUs, {memory:.0f} GiB, Linux {platform.release()}")
    print(f"{version([OURS, '--version'])}; {version([FIO, '--version']) if FIO else 'no fio'}; "
          f"t/io_uring: {'given' if T_IO_URING else 'not given (T_IO_URING)'}")


def spread(values):
    """The median, with the lowest and the highest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def begin(options):
    """Prints what is measured where and how often, or ends where the binary is missing."""
    if not os.path.exists(OURS):
        sys.exit(f"{OURS} is missing: cargo build --release first, or name it in FLASHWRIGHT")
    machine()
    # Some comparisons run for a time, others until their work is done.
    length = f" of {options.seconds} s" if hasattr(options, "seconds") else ""
    print(f"{options.rounds} interleaved rounds{length}; medians", flush=True)
