#!/usr/bin/env python3
"""Kill or fail a move at its system calls with strace, and look at what it comes to.

The tests in crates/stage-service/tests/crash strike calls through the library's own fault layer, which can only strike what goes
through it. This is the second opinion: strace(1) counts the calls that the kernel really gets, and tampers with them.

  python3 tools/crash/inject.py                           the example `move`, a sample of the calls
  python3 tools/crash/inject.py --full                    every call
  python3 tools/crash/inject.py -- flashwright stage {verb} --foreground {source} {destination}
                                                          another mover; its journal is under XDG_STATE_HOME

After each kill or failure: the destination is absent or complete, nothing has gone from the source unless the destination
is complete. Then the same command is run again with nothing in the way, and the end must be the same as if nothing had
happened. Exit code 0 if all that holds, 1 if not, 0 with SKIP where there is no strace.
"""

import argparse
import collections
import hashlib
import os
import pathlib
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile

# What changes a file system or vouches for it. A call that a kernel or an architecture does not have is left out.
CALLS = ("openat2 openat mkdirat unlinkat renameat2 linkat symlinkat fallocate ftruncate pwrite64 pread64 fsync fdatasync syncfs "
         "fchmod fchown utimensat fsetxattr io_uring_enter").split()
ERRORS = {
    "fsync": ["EIO"], "fdatasync": ["EIO"], "syncfs": ["EIO"], "renameat2": ["EIO", "ESTALE"], "unlinkat": ["EIO", "EACCES"],
    "mkdirat": ["ENOSPC", "EDQUOT"], "pwrite64": ["ENOSPC", "EIO"], "pread64": ["EIO"], "openat2": ["EACCES", "ESTALE"],
    "linkat": ["EIO"], "symlinkat": ["ENOSPC"], "fallocate": ["ENOSPC", "EDQUOT"], "ftruncate": ["EIO"], "fchmod": ["EIO"],
    "utimensat": ["EIO"],
}
MANIFEST = ".flashwright-manifest"


def build(root, kind):
    """A file of three chunks, or a directory with a bit of everything."""
    random.seed(7)
    if kind == "file":
        root.write_bytes(random.randbytes(17 << 20))
        os.utime(root, ns=(1, 1_600_000_000_123_456_789))
        return
    (root / "sub").mkdir(parents=True)
    (root / "empty directory").mkdir()
    for name, size in (("a", 100_000), ("empty", 0), ("sub/page", 4096), ("new\nline", 7), ("large", (4 << 20) + 321)):
        (root / name).write_bytes(random.randbytes(size))
        os.utime(root / name, ns=(1, 1_600_000_000_000_000_000 + size))
    os.link(root / "a", root / "sub" / "another a")
    os.symlink("no/such", root / "dangling")
    with open(root / "holes", "wb") as sparse:
        sparse.truncate(1 << 20)
        sparse.seek(500_000)
        sparse.write(b"x")
    for name in ("sub", "empty directory", "."):
        os.utime(root / name, ns=(1, 1_500_000_000_000_000_000))


def snapshot(path):
    """Names to what they stand for; None where there is nothing."""
    if not os.path.lexists(path):
        return None
    tree, first = {}, {}

    def take(path, name):
        found = os.lstat(path)
        entry = [stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode), found.st_mtime_ns]
        if stat.S_ISREG(found.st_mode):
            entry += [hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest(), first.setdefault(found.st_ino, name)]
        elif stat.S_ISLNK(found.st_mode):
            entry += [os.readlink(path)]
        tree[name] = entry
        if stat.S_ISDIR(found.st_mode):
            for child in sorted(os.listdir(path)):
                take(os.path.join(path, child), f"{name}/{child}")

    take(str(path), "")
    return tree


class World:
    def __init__(self, kind, verb, fast_root, slow_root):
        self.verb = verb
        self.fast = pathlib.Path(tempfile.mkdtemp(prefix="flashwright-inject", dir=fast_root))
        self.slow = pathlib.Path(tempfile.mkdtemp(prefix="flashwright-inject", dir=slow_root))
        self.source, self.destination, self.state = self.fast / "ckpt-7", self.slow / "ckpt-7", self.fast / "state"
        build(self.source, kind)
        self.before = snapshot(self.source)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.fast, ignore_errors=True)
        shutil.rmtree(self.slow, ignore_errors=True)

    def command(self, template):
        words = {"state": self.state, "verb": self.verb, "source": self.source, "destination": self.destination}
        return [word.format(**words) for word in template]

    def environment(self):
        return {**os.environ, "XDG_STATE_HOME": str(self.state), "XDG_RUNTIME_DIR": str(self.fast), "NO_COLOR": "1"}

    def complete(self):
        found = snapshot(self.destination)
        if found is not None:
            found.pop(f"/{MANIFEST}", None)
        return found is not None and found == self.before

    def faults_between(self):
        """What does not hold at any moment, whatever happened."""
        wrong = []
        there, complete = os.path.lexists(self.destination), self.complete()
        if there and not complete:
            wrong.append("the destination is visible and not complete")
        source = snapshot(self.source)
        if (self.verb == "cp" or not complete) and source != self.before:
            wrong.append("the source is not whole")
        if source is not None and complete:
            for name, entry in source.items():
                if stat.S_ISREG(entry[0]) and self.before.get(name, [None] * 5)[3] != entry[3]:
                    wrong.append(f"the source has {name!r} with other bytes")
        return wrong

    def faults_at_end(self):
        wrong = self.faults_between()
        if not self.complete():
            wrong.append("the destination is not complete at the end")
        if self.verb == "mv" and os.path.lexists(self.source):
            wrong.append("the source is still there at the end of a move")
        left = sorted(os.listdir(self.slow))
        if left != ["ckpt-7"]:
            wrong.append(f"left over beside the destination: {left}")
        return wrong


def count(world, template):
    """How often each thread makes each call: the most of any thread, by call."""
    log = world.fast / "strace"
    traced = subprocess.run(
        ["strace", "-f", "-qq", "-o", log, "-e", "trace=?" + ",?".join(CALLS), *world.command(template)],
        env=world.environment(), capture_output=True, text=True, check=False)
    if traced.returncode != 0:
        sys.exit(f"inject.py: the move fails with nothing in the way:\n{traced.stdout}{traced.stderr}")
    by_thread = collections.Counter()
    for line in log.read_text(errors="replace").splitlines():
        if found := re.match(r"(\d+) +(\w+)\(", line):
            by_thread[found.groups()] += 1
    most = collections.Counter()
    for (_, call), times in by_thread.items():
        most[call] = max(most[call], times)
    return most


def strike(arguments, template, kind, verb, call, n, effect):
    """Tampers with one call; returns what is wrong."""
    with World(kind, verb, arguments.fast, arguments.slow) as world:
        tampering = f"inject={call}:{effect}:when={n}"
        struck = subprocess.run(
            ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", tampering, *world.command(template)],
            env=world.environment(), capture_output=True, text=True, check=False, timeout=300)
        wrong = world.faults_between()
        if not wrong and not (world.complete() and struck.returncode == 0):
            again = subprocess.run(world.command(template), env=world.environment(), capture_output=True, text=True,
                                   check=False, timeout=300)
            # Killed behind its last step, there is nothing to go on with, and a mover may say so.
            if again.returncode != 0 and world.faults_at_end():
                wrong.append(f"run again, it ends with {again.returncode}: {again.stdout}{again.stderr}")
        return wrong or world.faults_at_end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="every call, instead of a few of each")
    parser.add_argument("--each", type=int, default=2, help="of a sample, how many of each call (2)")
    parser.add_argument("--seed", type=int, default=2009, help="which sample (2009)")
    parser.add_argument("--fast", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None, help="where sources are made")
    parser.add_argument("--slow", default=None, help="where destinations are made")
    parser.add_argument("mover", nargs="*", help="the command, with {state}, {verb}, {source} and {destination}")
    arguments = parser.parse_args()
    if not shutil.which("strace"):
        print("SKIP inject.py: strace is not installed")
        return 0
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    template = arguments.mover or [f"{target}/debug/examples/move", "{state}", "{verb}", "{source}", "{destination}"]
    draw, tried, failed = random.Random(arguments.seed), 0, 0
    for kind, verb in (("file", "mv"), ("tree", "mv"), ("tree", "cp")):
        with World(kind, verb, arguments.fast, arguments.slow) as world:
            counts = count(world, template)
            if wrong := world.faults_at_end():
                sys.exit(f"inject.py: with nothing in the way: {wrong}")
        for call, times in sorted(counts.items()):
            for effect in ["signal=KILL"] + [f"error={error}" for error in ERRORS.get(call, [])]:
                places = list(range(1, times + 1))
                for n in places if arguments.full else draw.sample(places, min(len(places), arguments.each)):
                    tried += 1
                    for line in strike(arguments, template, kind, verb, call, n, effect):
                        failed += 1
                        print(f"{verb} of a {kind}, {call} {n} of {times}, {effect}: {line}", flush=True)
        print(f"{verb} of a {kind}: {sum(counts.values())} calls of {len(counts)} kinds in a thread; {tried} struck so far", flush=True)
    print(f"{tried} struck, {failed} faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
