"""What a volume costs beside its members: the sum of their speeds, and the CPU time of one of them.

sum           Loop devices, each throttled to the same rate (control group version 1, blkio): each is measured
              alone, then labelled volumes of 1, 2, 4, 8 and 16 of them. The figure is the volume's IOPS by the sum of
              its members' alone, the median over interleaved rounds. Through libaio, all of them: what io_uring submits
              at once this throttle lets through at once, and then nothing for a tenth of a second, so that eight members
              give fio with io_uring (file_service_type=random) a third less than their sum as well.
instructions  Instructions in user space for each 4 KiB read, counted by callgrind, through the engine: one memory
              device driven by its descriptor, and stripes of 1, 4 and 16 of them. The same in every run and on any load;
              the kernel's, which are many times as many, are not in it.
cpu           CPU time of the process, the kernel's included, for each 4 KiB random read, direct, on loop devices over
              memory without a throttle: one device, and a volume of 4, each with the same depth in all. Interleaved
              rounds; a ratio within a round survives a noisy machine, a figure does not.

checksums     Sequential 128 KiB and random 4 KiB reads and writes on a volume of 2 with checksums beside the same without, in
              turns, by the library's queue with 16 requests on each member; direct, on loop devices over memory. The
              volume without is driven by io_uring, and by psync, which is the one engine that checksums allow.

Needs root and loop devices for sum, cpu and checksums, valgrind for instructions; what is missing is said and left out.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import common

BLKIO = "/sys/fs/cgroup/blkio"
EXAMPLES = os.path.join(common.RELEASE, "examples")
STRIPE = os.path.join(EXAMPLES, "stripe")
CHECKSUMS = os.path.join(EXAMPLES, "checksums")
RATE = 2000
# Of each member: the throttle lets requests through in bursts, in which a short queue runs dry.
DEPTH = 64


class Loops:
    """Loop devices over fully written files in memory, without a scheduler of their own."""

    def __init__(self, count, mebibytes):
        self.directory = tempfile.mkdtemp(prefix="volume-ratios-", dir="/dev/shm")
        self.devices = []
        try:
            for number in range(count):
                path = os.path.join(self.directory, f"m{number}")
                with open(path, "wb") as file:
                    for _ in range(mebibytes):
                        file.write(os.urandom(1 << 20))
                made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", path], check=True,
                                      stdout=subprocess.PIPE, text=True)
                self.devices.append(made.stdout.strip())
        except (OSError, subprocess.CalledProcessError):
            self.close()
            raise

    def close(self):
        for device in self.devices:
            subprocess.run(["losetup", "-d", device], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


class Group:
    """A control group of version 1 whose processes read each device at most so often a second."""

    def __init__(self, devices, rate):
        self.path = os.path.join(BLKIO, f"volume-ratios-{os.getpid()}")
        os.mkdir(self.path)
        for device in devices:
            number = os.stat(device).st_rdev
            with open(os.path.join(self.path, "blkio.throttle.read_iops_device"), "w") as file:
                file.write(f"{os.major(number)}:{os.minor(number)} {rate}\n")

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def close(self):
        with open(os.path.join(BLKIO, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))
        os.rmdir(self.path)


def label(devices, *flags):
    """Makes a volume of the devices, whose spec it returns."""
    given_up = [word for device in devices for word in ("--destroy", device)]
    common.execute([common.OURS, "volume", "create", *flags, *given_up, ",".join(devices)])
    return "volume:" + ",".join(devices)


def unlabel(devices):
    given_up = [word for device in devices for word in ("--destroy", device)]
    common.execute([common.OURS, "volume", "destroy", ",".join(devices), *given_up])


def read(spec, depth, options):
    return common.ours_reading(spec, depth, options.seconds, "--ioengine=libaio")


def compare_sum(options):
    if os.geteuid() != 0 or not os.path.exists(os.path.join(BLKIO, "blkio.throttle.read_iops_device")):
        print("sum is left out: it needs root and the blkio controller of version 1", file=sys.stderr)
        return
    loops = Loops(16, 40)
    group = None
    try:
        group = Group(loops.devices, RATE)
        group.enter()
        print(f"\n### 4 KiB random reads, depth {DEPTH} for each member, members throttled to {RATE} IOPS\n")
        print("| members | sum of the members alone, IOPS | volume, IOPS | volume / sum (lowest–highest of rounds) |")
        print("|---:|---:|---:|---:|")
        for width in (1, 2, 4, 8, 16):
            members = loops.devices[:width]
            sums, volumes = [], []
            for _ in range(options.rounds):
                sums.append(sum(read(member, DEPTH, options).iops for member in members))
                spec = label(members)
                volumes.append(read(spec, DEPTH * width, options).iops)
                unlabel(members)
                print(".", end="", file=sys.stderr, flush=True)
            each = [volume / alone for volume, alone in zip(volumes, sums)]
            print(f"| {width} | {statistics.median(sums):,.0f} | {statistics.median(volumes):,.0f} "
                  f"| {statistics.median(each):.3f} ({min(each):.3f}–{max(each):.3f}) |", flush=True)
    finally:
        if group:
            group.close()
        loops.close()


def counted(spec, reads):
    """Instructions that the example executes for `reads` reads, all of them in user space."""
    with tempfile.TemporaryDirectory() as directory:
        output = os.path.join(directory, "out")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", STRIPE, spec, str(reads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def compare_instructions(options):
    if not shutil.which("valgrind") or not os.path.exists(STRIPE):
        print("instructions are left out: they need valgrind and the example stripe "
              "(cargo build --release -p flashwright-volume --examples)", file=sys.stderr)
        return
    few, many = 20_000, 120_000
    member = "mem:64m"

    def each(spec):
        return (counted(spec, many) - counted(spec, few)) / (many - few)

    print("\n### Instructions in user space for each 4 KiB read, one engine, depth 32 for each member\n")
    print("| target | instructions | more than one member alone |")
    print("|---|---:|---:|")
    one = each(member)
    print(f"| one member | {one:.0f} | |", flush=True)
    for width in (1, 4, 16):
        figure = each("stripe(chunk=64k):" + ",".join([member] * width))
        print(f"| stripe of {width} | {figure:.0f} | {figure - one:.0f} |", flush=True)


def cpu_of(spec, depth, reads):
    """One run of the example, which drives the engine as `bench` does and measures nothing."""
    _, user, system = common.execute([STRIPE, spec, str(reads), str(depth)])
    return common.Run(0, 0, user * 1e9 / reads, system * 1e9 / reads)


def compare_cpu(options):
    if os.geteuid() != 0 or not os.path.exists(STRIPE):
        print("cpu is left out: it needs root and the example stripe", file=sys.stderr)
        return
    loops = Loops(5, 256)
    try:
        spec = label(loops.devices[1:])
        results = common.rounds({"one device": lambda: cpu_of(loops.devices[0], 128, options.reads),
                                 "volume of 4": lambda: cpu_of(spec, 32, options.reads)}, options.rounds)
        runs = zip(results["volume of 4"], results["one device"])
        each = [(v.user_ns + v.system_ns) / (o.user_ns + o.system_ns) for v, o in runs]
        print(f"\n### CPU time for each 4 KiB random read, depth 128, direct, loop devices over memory, {options.reads:,} reads\n")
        print("| target | user ns | kernel ns |")
        print("|---|---:|---:|")
        for name, runs in results.items():
            print(f"| {name} | {common.median(runs, lambda r: r.user_ns):.0f} | {common.median(runs, lambda r: r.system_ns):.0f} |")
        print(f"\nvolume of 4 / one device: {statistics.median(each):.3f} ({min(each):.3f}–{max(each):.3f})", flush=True)
    finally:
        loops.close()


def compare_checksums(options):
    if os.geteuid() != 0 or not os.path.exists(CHECKSUMS):
        print("checksums are left out: they need root and the example checksums", file=sys.stderr)
        return
    loops = Loops(4, 256)
    try:
        plain = label(loops.devices[:2], "--chunk=128k")
        checked = label(loops.devices[2:], "--chunk=128k", "--checksums")
        print("\n### A volume of 2 with checksums beside one without, loop devices over memory, direct\n", flush=True)
        subprocess.run([CHECKSUMS, plain, checked, str(options.rounds)], check=True)
    finally:
        loops.close()


PARTS = {"sum": compare_sum, "instructions": compare_instructions, "cpu": compare_cpu,
         "checksums": compare_checksums}


def arguments(parser):
    parser.add_argument("what", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--reads", type=int, default=400_000, help="of each run of cpu")


def run(options):
    for name in options.what or PARTS:
        PARTS[name](options)
