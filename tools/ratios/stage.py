"""What a copy from tier to tier costs beside cp, rsync, rclone and dcp.

file        One file of 2 GiB.
directory   Eight of 256 MiB each.
small       20,000 files of 4 to 64 KB in twenty directories; 100,000 in a hundred as well with --full.
growth      Only where named: 10^3 to 10^5 files of 1 to 4 KB (10^6 with --full), with the most memory that each contender held.

Tiers: two ext4 file systems on loop devices whose images lie in --directory, so both on one disk (or in memory, with
--directory /dev/shm). `plain` takes them as they are. `throttled` limits them to --fast and --slow bytes a second, reads
and writes each, by blkio of control group version 1: in its root group, because what is written back late is written by
the kernel, which no other group counts. Without root or loop devices: two directories of the one disk, plain alone, and
the page cache is not dropped; that is said.

Contenders, each begun with nothing in the page cache and ended when its copy is durable:
  flashwright     stage cp --foreground: hashed on the way, fsynced, read back around the cache and compared, published
                  with a manifest by rename, journalled. The others do none of this but for the fsync.
  cp              cp -a, then syncfs(2) of the destination (sync -f).
  rsync           rsync -a, then syncfs.
  rsync --fsync   rsync -a --fsync; directories are left out by it.
  rclone          rclone copy --ignore-checksum, then syncfs.
  dcp             mpiFileUtils' dcp, a rank for each CPU, then syncfs. From PATH, or named in the variable DCP.
What is missing is said and left out. The first copy of each contender is compared with the source (diff -r); one that
differs ends all with that finding.

The slower tier's own bandwidth is fio's in the same round: writes of 4 MiB, O_DIRECT, eight at once, to a new file of as
many bytes, and an fsync. CPU time is that of the processes; what the kernel's own threads spend on writing back and on the
loop devices is in nobody's.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import common

THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle."
DCP = os.environ.get("DCP") or shutil.which("dcp")
MIB = 1 << 20
# Ours puts one into each directory that it publishes.
MANIFEST = ".flashwright-manifest"


class Pass:
    """What one contender did in one round."""

    def __init__(self, seconds, cpu_seconds, memory_bytes):
        self.seconds, self.cpu, self.memory = seconds, cpu_seconds, memory_bytes


class Tiers:
    """A fast and a slow place. `state` is for journals, and lies elsewhere (TMPDIR)."""

    dropped = False

    def __init__(self, directory):
        self.directory = tempfile.mkdtemp(prefix="ratios-stage-", dir=directory)
        self.state = tempfile.mkdtemp(prefix="ratios-stage-state-")
        self.fast, self.slow = (os.path.join(self.directory, name) for name in ("fast", "slow"))
        for path in (self.fast, self.slow):
            os.mkdir(path)

    def what(self):
        return "two directories of one file system; the page cache is not dropped, which takes root"

    def forget(self):
        """Makes everything durable, and has nothing cached where that may be done."""
        os.sync()

    def close(self):
        for path in (self.directory, self.state):
            shutil.rmtree(path, ignore_errors=True)


class Loops(Tiers):
    """Two ext4 file systems on loop devices, which can be throttled."""

    dropped = True

    def __init__(self, directory, image_bytes, limits):
        super().__init__(directory)
        self.where, self.limits, self.devices, self.mounted, self.throttled = directory, limits, [], [], []
        try:
            for name, place in (("fast", self.fast), ("slow", self.slow)):
                image = os.path.join(self.directory, f"{name}.image")
                # Written through, so that no extent is converted and no block is found while others are measured.
                common.lay(image, image_bytes)
                device = sh(["losetup", "--find", "--show", "--direct-io=on", image]).strip()
                self.devices.append(device)
                sh(["mkfs.ext4", "-q", "-F", "-i", "8192", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", device])
                sh(["mount", device, place])
                self.mounted.append(place)
            for device, limit in zip(self.devices, limits or ()):
                self.throttle(device, limit)
        except BaseException:
            self.close()
            raise

    def what(self):
        text = f"ext4 on two loop devices whose images lie in one file system ({self.where})"
        if self.limits:
            text += ", throttled to {:.0f} and {:.0f} MB/s".format(*(limit / 1e6 for limit in self.limits))
        return text

    def throttle(self, device, limit):
        number = os.stat(device).st_rdev
        for direction in ("read", "write"):
            with open(f"{THROTTLE}{direction}_bps_device", "w") as file:
                file.write(f"{os.major(number)}:{os.minor(number)} {limit}\n")
        if device not in self.throttled:
            self.throttled.append(device)

    def forget(self):
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")

    def close(self):
        for device in self.throttled:
            self.throttle(device, 0)
        for place in self.mounted:
            # Whoever was ended a moment ago may still have a file open.
            for _ in range(40):
                if subprocess.run(["umount", place], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                    break
                time.sleep(0.25)
            else:
                print(f"{place} could not be unmounted", file=sys.stderr)
        for device in self.devices:
            subprocess.run(["losetup", "-d", device], check=False)
        super().close()


def sh(command):
    """Runs a command that only prepares or compares; ends the whole with what it said where it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nexited with {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def measured(commands, environment=None):
    """Runs commands one after another; returns what they took together, and the most memory that one process held."""
    begun, cpu, memory = time.monotonic(), 0.0, 0
    for command in commands:
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                     env={**os.environ, **(environment or {})})
            try:
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:
                # Whoever ends this ends the contender too: what it has open could not be unmounted.
                child.kill()
                child.wait()
                raise
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                said.seek(0)
                raise SystemExit(f"{' '.join(command)}\nexited with {child.returncode}: {said.read().decode(errors='replace').strip()}")
        cpu += usage.ru_utime + usage.ru_stime
        memory = max(memory, usage.ru_maxrss * 1024)
    return Pass(time.monotonic() - begun, cpu, memory)


# Each takes a source, a destination that is not there, whether they are one file, and the tiers.


def flashwright(source, destination, single, tiers, options):
    state = tempfile.mkdtemp(dir=tiers.state)
    try:
        return measured([[common.OURS, "stage", "cp", "--foreground", *options.stage.split(), source, destination, "--state", state]])
    finally:
        shutil.rmtree(state, ignore_errors=True)


def cp(source, destination, single, tiers, options):
    return measured([["cp", "-a", source, destination], ["sync", "-f", destination]])


def rsync(source, destination, single, tiers, options):
    return measured([["rsync", "-a", source if single else source + "/", destination], ["sync", "-f", destination]])


def rsync_fsync(source, destination, single, tiers, options):
    return measured([["rsync", "-a", "--fsync", source if single else source + "/", destination]])


def rclone(source, destination, single, tiers, options):
    # Nobody's settings, and no look for another backend behind a colon.
    verb = "copyto" if single else "copy"
    return measured([["rclone", "--config", "", verb, "--ignore-checksum", source, destination], ["sync", "-f", destination]])


def dcp(source, destination, single, tiers, options):
    # Where there are fewer cores than ranks Open MPI has to be told, and that root means it.
    said = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return measured([["mpirun", "--oversubscribe", "-n", str(os.cpu_count()), DCP, "--quiet", "--preserve", source, destination],
                     ["sync", "-f", destination]], said)


def contenders(options):
    """Those that are here, ours first."""
    there = {"flashwright": flashwright, "cp": cp}
    there["rsync"] = there["rsync --fsync"] = None
    if shutil.which("rsync"):
        there["rsync"], there["rsync --fsync"] = rsync, rsync_fsync
        if "--fsync" not in subprocess.run(["rsync", "--help"], stdout=subprocess.PIPE, text=True).stdout:
            there["rsync --fsync"] = None
    there["rclone"] = rclone if shutil.which("rclone") else None
    there["dcp"] = dcp if DCP and os.access(DCP, os.X_OK) and shutil.which("mpirun") else None
    for name, found in there.items():
        if not found and name in options.contenders:
            print(f"{name} is left out: it is not on this machine"
                  + (" (DCP names the program; mpirun has to be on PATH)" if name == "dcp" else ""), file=sys.stderr)
    return {name: found for name, found in there.items() if found and name in options.contenders}


def make_files(directory, count, smallest, largest, each=1000):
    """Files of random bytes and of lengths between the two, `each` to a directory; returns the bytes of all."""
    chance, total = random.Random(5), 0
    pool = os.urandom(max(8 * MIB, 2 * min(largest, 8 * MIB)))
    for number in range(count):
        place = os.path.join(directory, f"d{number // each:04d}") if count > each else directory
        if number % each == 0:
            os.makedirs(place, exist_ok=True)
        length = chance.randint(smallest, largest)
        total += length
        with open(os.path.join(place, f"f{number:07d}"), "wb", buffering=0) as file:
            while length > 0:
                begin = chance.randrange(len(pool) // 2)
                length -= file.write(pool[begin : begin + min(length, len(pool) // 2)])
    os.sync()
    return total


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.path.lexists(path) and os.unlink(path)


def compare(name, source, destination):
    """Byte for byte, and name for name."""
    done = subprocess.run(["diff", "-r", f"--exclude={MANIFEST}", source, destination], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{name} did not copy what is there: {done.stdout.strip()[:400]}")


def own_bandwidth(tiers, total, options):
    """The slower tier written alone; bytes a second."""
    path = os.path.join(tiers.slow, "alone")
    size = max(total // (4 * MIB), 1) * 4 * MIB
    tiers.forget()
    try:
        text, _, _ = common.execute([common.FIO, "--name=alone", f"--filename={path}", "--rw=write", "--bs=4m", "--iodepth=8",
                                     "--direct=1", "--ioengine=io_uring", f"--size={size}", "--end_fsync=1", "--fallocate=none",
                                     "--output-format=json"])
        return json.loads(text[text.index("{"):])["jobs"][0]["write"]["bw_bytes"]
    finally:
        remove(path)


class Case:
    """A tree to copy, and all who copy it."""

    def __init__(self, title, tiers, options, make, count=None):
        self.title, self.tiers, self.options, self.count = title, tiers, options, count
        self.source = os.path.join(tiers.fast, "source")
        self.destination = os.path.join(tiers.slow, "copy")
        self.total = make(self.source)
        self.single = os.path.isfile(self.source)
        self.checked = set()

    def once(self, name, copy):
        remove(self.destination)
        self.tiers.forget()
        done = copy(self.source, self.destination, self.single, self.tiers, self.options)
        if name not in self.checked:
            compare(name, self.source, self.destination)
            self.checked.add(name)
        return done

    def rounds(self, found, alone):
        """Name → list of passes, and what the slower tier alone did in each round."""
        runs = {name: (lambda name=name, copy=copy: self.once(name, copy)) for name, copy in found.items()}
        if alone:
            def bare():
                remove(self.destination)
                return own_bandwidth(self.tiers, self.total, self.options)
            runs["alone"] = bare
        results = common.rounds(runs, self.options.rounds)
        return results, results.pop("alone", None)

    def close(self):
        remove(self.source)
        remove(self.destination)


def print_case(case, results, alone):
    files = f", {case.count:,} files" if case.count else ""
    print(f"\n### {case.title}: {case.total / 1e6:,.0f} MB{files}; {case.tiers.what()}\n")
    print("| contender | s | MB/s | CPU s | CPU ns/byte | speed, ours / theirs (lowest–highest of rounds) | CPU time, ours / theirs | of the slower tier's own bandwidth |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    mine = results.get("flashwright")
    for name, passes in results.items():
        seconds, cpu = (common.median(passes, figure) for figure in (lambda p: p.seconds, lambda p: p.cpu))
        line = f"| {name} | {seconds:.2f} | {case.total / seconds / 1e6:,.0f} | {cpu:.2f} | {cpu * 1e9 / case.total:.2f} "
        if mine and passes is not mine:
            line += f"| {common.spread([b.seconds / a.seconds for a, b in zip(mine, passes)])} | {common.spread([a.cpu / b.cpu for a, b in zip(mine, passes)])} "
        else:
            line += "| | "
        print(line + (f"| {common.spread([case.total / p.seconds / own for p, own in zip(passes, alone)])} |" if alone else "| |"))
    if alone:
        print(f"\nThe slower tier alone: {statistics.median(alone) / 1e6:,.0f} ({min(alone) / 1e6:,.0f}–{max(alone) / 1e6:,.0f}) MB/s.")
    sys.stdout.flush()


def one_file(length):
    def make(path):
        # An own directory for the files, then the one of it under the source's name.
        made = path + ".d"
        total = make_files(made, 1, length, length)
        os.rename(os.path.join(made, "f0000000"), path)
        os.rmdir(made)
        return total
    return make


def files(count, smallest, largest):
    return lambda path: make_files(path, count, smallest, largest)


def compare_case(title, make, alone=False, count=None):
    def compared(tiers, options):
        case = Case(title, tiers, options, make(options), count and count(options))
        try:
            print_case(case, *case.rounds(contenders(options), alone and common.FIO))
        finally:
            case.close()
    return compared


def compare_growth(tiers, options):
    """How the cost of a file and the memory change with their number."""
    found = contenders(options)
    print(f"\n### Growth: files of 1 to 4 KB; {tiers.what()}\n")
    print("| files | contender | s | µs a file | CPU µs a file | most memory, MiB | speed, ours / theirs (lowest–highest of rounds) |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for count in (1_000, 10_000) if options.quick else (1_000, 10_000, 100_000, 1_000_000) if options.full else (1_000, 10_000, 100_000):
        case = Case("growth", tiers, options, files(count, 1024, 4096))
        try:
            results, _ = case.rounds(found, False)
        finally:
            case.close()
        mine = results.get("flashwright")
        for name, passes in results.items():
            seconds, cpu, memory = (common.median(passes, figure) for figure in (lambda p: p.seconds, lambda p: p.cpu, lambda p: p.memory))
            beside = common.spread([b.seconds / a.seconds for a, b in zip(mine, passes)]) if mine and passes is not mine else ""
            print(f"| {count:,} | {name} | {seconds:.2f} | {seconds * 1e6 / count:.0f} | {cpu * 1e6 / count:.0f} | {held(memory)} | {beside} |", flush=True)


def held(memory):
    """Peak memory in MiB. The kernel counts what a process was before it became a contender as well, which is this one."""
    launcher = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{memory / MIB:.0f}" if memory > launcher else f"≤ {launcher / MIB:.0f}"


def small(options):
    return 2_000 if options.quick else 20_000


CASES = {
    "file": [compare_case("One large file", lambda o: one_file((256 if o.quick else 2048) * MIB), alone=True)],
    "directory": [compare_case("A directory of eight large files",
                               lambda o: files(8, (32 if o.quick else 256) * MIB, (32 if o.quick else 256) * MIB), alone=True, count=lambda o: 8)],
    "small": [compare_case("Files of 4 to 64 KB", lambda o: files(small(o), 4_000, 64_000), count=small)],
    "growth": [compare_growth],
}
MORE = [compare_case("Files of 4 to 64 KB", lambda o: files(100_000, 4_000, 64_000), count=lambda o: 100_000)]


def make_tiers(options, limits):
    """The tiers that can be had here; none where they are to be throttled and cannot."""
    root = os.geteuid() == 0
    missing = [tool for tool in ("losetup", "mkfs.ext4", "mount") if not shutil.which(tool)]
    if limits and not (root and os.path.exists(f"{THROTTLE}write_bps_device")):
        print("throttled is left out: it needs root and the blkio controller of version 1", file=sys.stderr)
        return None
    if not root or missing:
        print(f"no loop devices: {'missing ' + ', '.join(missing) if root else 'they need root'}", file=sys.stderr)
        return None if limits else Tiers(options.directory)
    # A million files of 4 KB with their inodes take 5 GiB, and a hundred thousand of 4 to 64 KB less than four.
    gigabytes = 1 if options.quick else 9 if options.full and "growth" in options.what else 4
    return Loops(options.directory, gigabytes << 30, limits)


ALL = ["flashwright", "cp", "rsync", "rsync --fsync", "rclone", "dcp"]


def names(text):
    found = [name.strip() for name in text.split(",")]
    unknown = [name for name in found if name not in ALL]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(ALL)}")
    return found


def arguments(parser):
    parser.add_argument("what", nargs="*", choices=[*CASES, []], default=[])
    parser.add_argument("--tiers", choices=["plain", "throttled", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=None, help="of each case (5)")
    parser.add_argument("--fast", type=int, default=800, help="MB/s of the fast tier, throttled")
    parser.add_argument("--slow", type=int, default=200, help="MB/s of the slow one")
    parser.add_argument("--directory", type=os.path.abspath, default=".", help="where the images, or the directories, are laid")
    parser.add_argument("--stage", default="--preserve all", help="options of ours; what cp -a keeps, by default")
    parser.add_argument("--contenders", type=names, default=",".join(ALL), help="those to run, of " + ", ".join(ALL))
    parser.add_argument("--quick", action="store_true", help="small cases, once: does it work here?")
    parser.add_argument("--full", action="store_true", help="100,000 and 1,000,000 files as well")


def run(options):
    wanted = options.what or ["file", "directory", "small"]
    kinds = {"plain": [None], "throttled": [(options.fast * 10**6, options.slow * 10**6)]}
    for limits in kinds["plain"] + kinds["throttled"] if options.tiers == "both" else kinds[options.tiers]:
        tiers = make_tiers(options, limits)
        if tiers is None:
            continue
        try:
            for name in wanted:
                # How the cost grows is the software's; a throttle would only hide it.
                for case in [] if limits and name == "growth" else CASES[name] + (MORE if name == "small" and options.full else []):
                    case(tiers, options)
        finally:
            tiers.close()
