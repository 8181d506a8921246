"""Tests of what several processes do together, by a real mpirun (docs/mpi.md).

    tools/mpi --binary PATH [--mpirun NAME] [--only TEST]...   runs the tests; a line for each

The binary has the feature `mpi`, built with the library that mpirun belongs to: Open MPI or MPICH. Every process that a test
starts is ended by it, also when it fails.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
RANKS = 4
# An end that takes longer than this is no bounded time.
END_S = 60


class Bench:
    """The binary under mpirun, in a directory of its own."""

    def __init__(self, binary: pathlib.Path, folder: pathlib.Path, launcher: list[str]):
        self.binary, self.folder, self.launcher = binary, folder, launcher

    def start(self, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen:
        return subprocess.Popen([*self.launcher, *before, str(self.binary), *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments: str, before: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Of a run: its exit code and what it prints. `before` is a command that starts each rank."""
        with self.start(*arguments, before=before) as child:
            try:
                out, err = child.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                end(child)
                raise
        return child.returncode, out, err

    def document(self, *arguments: str) -> dict:
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, f"exit code {code}: {err}"
        return json.loads(out)


def end(child: subprocess.Popen):
    """mpirun ends its processes when it is asked to."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
        child.kill()


def launcher_of(mpirun: str) -> list[str]:
    """The command before that of each rank. Open MPI asks for leave to run as root, and to run more ranks than there are CPUs."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    is_open_mpi = "Open MPI" in version
    as_root = ["--allow-run-as-root"] if is_open_mpi and os.geteuid() == 0 else []
    return [mpirun, *as_root, *(["--oversubscribe"] if is_open_mpi else []), "-n", str(RANKS)]


def parent_of(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def ranks_of(launcher: int) -> dict[int, int]:
    """The processes that a launcher has started, by rank. MPICH's starts them by a proxy."""
    found = {}
    for process in pathlib.Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            parent = parent_of(int(process.name))
            if launcher not in (parent, parent_of(parent)):
                continue
            environment = dict(entry.split("=", 1) for entry in (process / "environ").read_text().split("\0") if "=" in entry)
            rank = environment.get("OMPI_COMM_WORLD_RANK", environment.get("PMI_RANK"))
            if rank is not None:
                found[int(rank)] = int(process.name)
    return found


def is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


WRITE = ("bench", "--rw=write", "--bs=256k", "--size=8m", "--target", "f")


def a_file_each(bench: Bench):
    document = bench.document(*WRITE)
    assert (document["tasks"], document["nodes"], document["tasks_per_node"]) == (RANKS, 1, [RANKS, RANKS])
    assert document["aggregate_bytes"] == RANKS * 8 * MIB
    assert [(bench.folder / f"f.{rank:08}").stat().st_size for rank in range(RANKS)] == [8 * MIB] * RANKS
    assert [task["target"] for task in document["by_task"]] == [f"f.{rank:08}" for rank in range(RANKS)]
    # One host has one clock.
    assert all(abs(task["clock_offset_ns"]) <= task["clock_round_trip_ns"] for task in document["by_task"])


def shared_file_is_read_back_by_others(bench: Bench):
    bench.document(*WRITE, "--shared", "--verify=crc32c")
    assert (bench.folder / "f").stat().st_size == RANKS * 8 * MIB
    document = bench.document("bench", "--rw=randread", "--bs=64k", "--size=8m", "--target", "f", "--shared", "--reorder")
    offsets = [task["record"]["workload"]["offset"] for task in document["by_task"]]
    assert offsets == [(rank + 1) % RANKS * 8 * MIB for rank in range(RANKS)], offsets


def mistakes_are_told_once(bench: Bench):
    # Also where rank 0, which tells, begins after the others have found the mistake.
    late = ("sh", "-c", '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 0 ] || sleep 1; exec "$0" "$@"')
    for before in ((), late):
        code, _, err = bench.run(*WRITE, "--reorder", before=before)
        assert code == 2, code
        assert err.count("error:") == 1 and "--reorder: rw=write writes" in err, err
    code, _, err = bench.run(*WRITE, "--tasks", "2")
    assert code != 0 and err.count("error:") == 1 and "mpirun has started 4 processes" in err, err


def wait_until_at_work(child: subprocess.Popen) -> str:
    """What is said until the first line that has a rate."""
    said = ""
    while "MB/s" not in said and "GB/s" not in said:
        line = child.stderr.readline()
        assert line, f"ended early: {said}"
        said += line
    return said


def struck(bench: Bench, name: str, *more: str) -> tuple[int, str, str]:
    """Writes until rank 2 gets a signal, once all are at work."""
    with bench.start(*WRITE, "--runtime=60s", "--time_based", "--live", *more) as child:
        try:
            said = wait_until_at_work(child)
            ranks = ranks_of(child.pid)
            assert sorted(ranks) == list(range(RANKS)), ranks
            os.kill(ranks[2], getattr(signal, name))
            out, err = child.communicate(timeout=END_S)
        finally:
            end(child)
    until = time.monotonic() + END_S
    while left := [pid for pid in ranks.values() if is_running(pid)]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.02)
    return child.returncode, out, said + err


def killed_rank_is_named_and_figures_are_kept(bench: Bench):
    # mpirun passes on nothing more of processes that it ends, and names the dead one itself: the report is in a file.
    code, _, err = struck(bench, "SIGKILL", "--json", "--output", "report.json")
    if "--oversubscribe" not in bench.launcher:
        assert code != 0, err
        print("SKIP the figures of the time before a rank was killed: MPICH's mpirun kills the others at once")
        return
    assert code != 0 and "rank 2" in err, f"exit code {code}: {err}"
    document = json.loads((bench.folder / "report.json").read_text())
    assert "rank 2" in document["lost"], document["lost"]
    moved = [task["bytes"] for task in document["by_task"]]
    assert all(moved), moved


def stopped_rank_is_named_after_the_limit(bench: Bench):
    code, out, err = struck(bench, "SIGSTOP", "--request_timeout=2s")
    assert code != 0
    assert "error: rank 2 on " in err and "did not answer within" in err, err
    assert "tasks/node" in out, out


def full_disk_is_named(bench: Bench):
    if os.geteuid() != 0:
        print("SKIP full_disk_is_named: a file system of its own is had by root only")
        return
    small = bench.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=True)
    try:
        (bench.folder / "f.00000003").symlink_to(small / "f")
        (small / "f").touch()
        os.truncate(small / "f", 8 * MIB)
        code, out, err = bench.run(*WRITE, "--direct=0")
    finally:
        subprocess.run(["umount", small], check=True)
    assert code == 1, code
    assert "error: rank 3 on " in err and "No space left" in err, err
    assert "tasks/node" in out, out


def interrupted_figures_are_of_the_time_before(bench: Bench):
    with bench.start(*WRITE, "--runtime=60s", "--time_based", "--live", "--json", "--output", "report.json") as child:
        try:
            wait_until_at_work(child)
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=END_S)
        finally:
            end(child)
    # mpirun passes on what fits before it ends itself; a file is whole.
    document = json.loads((bench.folder / "report.json").read_text())
    assert document["interrupted"] and document["aggregate_bytes"] > 0, document["lost"]


def tree_is_copied_and_verifies(bench: Bench):
    for directory in range(8):
        below = bench.folder / "source" / f"d{directory}" / "below"
        below.mkdir(parents=True)
        for file in range(100):
            (below / f"f{file}").write_bytes(os.urandom(file * 100))
        (below / "large").write_bytes(os.urandom(5 * MIB))
    code, _, err = bench.run("stage", "cp", "--state", "state", "source", "copy")
    assert code == 0, err
    subprocess.run(["diff", "-r", "--exclude=.flashwright-manifest", "source", "copy"], cwd=bench.folder, check=True)
    verified = subprocess.run([bench.binary, "stage", "verify", "--state", "state", "copy"], cwd=bench.folder, capture_output=True, text=True)
    assert "all as they were written" in verified.stdout, verified


def copy_of_a_killed_rank_publishes_nothing_and_is_gone_on_with(bench: Bench):
    with (bench.folder / "source").open("wb") as source:
        source.truncate(768 * MIB)
        source.seek(768 * MIB - 3)
        source.write(b"end")
    copy = ("stage", "cp", "--state", "state", "--preserve", "mode", "-T", "source", "copy")
    with bench.start(*copy) as child:
        try:
            while not list(bench.folder.glob(".copy.*")):
                assert child.poll() is None, child.stderr.read()
                time.sleep(0.005)
            os.kill(ranks_of(child.pid)[2], signal.SIGKILL)
            child.communicate(timeout=END_S)
        finally:
            end(child)
    assert child.returncode != 0
    assert not (bench.folder / "copy").exists()
    code, _, err = bench.run(*copy)
    assert code == 0, err
    subprocess.run(["cmp", "source", "copy"], cwd=bench.folder, check=True)
    assert not list(bench.folder.glob(".copy.*"))


FLASHIO = ("flashio", "--fast", "fast", "--slow", "slow", "--matrix", "64", "--multiplications", "40", "--checkpoint-size", "4m",
           "--checkpoints", "4", "--blocks", "4000", "--output", "out", "--timeout", "5s")


def can_have_a_file_system(test: str) -> bool:
    can = os.geteuid() == 0 and shutil.which("mkfs.ext4") and os.path.exists("/dev/loop-control")
    if not can:
        print(f"SKIP {test}: a file system of its own needs root, mkfs.ext4 and loop devices")
    return bool(can)


@contextlib.contextmanager
def small_file_system(folder: pathlib.Path, name: str, mib: int):
    """A directory on a file system of its own, of so many MiB."""
    image, directory = folder / f"{name}.image", folder / name
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(mib * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, directory], check=True)
    try:
        (directory / "lost+found").rmdir()
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def filled_once_there(bench: Bench, command: tuple[str, ...], directory: pathlib.Path, sign: str) -> tuple[int, str]:
    """Fills a file system as another program might, once the command has made what matches `sign`: its exit code and what is said."""
    with bench.start(*command) as child:
        try:
            while not list(directory.glob(sign)):
                assert child.poll() is None, child.stderr.read()
                time.sleep(0.005)
            with contextlib.suppress(OSError), (directory / "full").open("wb") as full:
                while True:
                    full.write(bytes(MIB))
            _, err = child.communicate(timeout=END_S)
        finally:
            end(child)
    return child.returncode, err


def copy_on_a_full_disk_is_told_once_and_gone_on_with(bench: Bench):
    if not can_have_a_file_system("copy_on_a_full_disk_is_told_once_and_gone_on_with"):
        return
    source = bench.folder / "source"
    source.mkdir()
    for file in range(6):
        (source / f"f{file}").write_bytes(os.urandom(20 * MIB))
    copy = ("stage", "cp", "--state", "state", "source", "small/copy")
    with small_file_system(bench.folder, "small", 160) as small:
        code, err = filled_once_there(bench, copy, small, ".copy.*")
        assert code == 1 and err.count("error:") == 1 and "No space left" in err, f"exit code {code}: {err}"
        assert not (small / "copy").exists()
        (small / "full").unlink()
        code, _, err = bench.run(*copy)
        assert code == 0, err
        subprocess.run(["diff", "-r", "--exclude=.flashwright-manifest", "source", small / "copy"], cwd=bench.folder, check=True)


def copy_waits_for_a_slow_rank(bench: Bench):
    with (bench.folder / "source").open("wb") as source:
        for _ in range(3):
            source.write(os.urandom(256 * MIB))
    with bench.start("stage", "cp", "--state", "state", "--preserve", "mode", "-T", "source", "copy") as child:
        try:
            while not list(bench.folder.glob(".copy.*")):
                assert child.poll() is None, child.stderr.read()
                time.sleep(0.005)
            slow = ranks_of(child.pid)[2]
            os.kill(slow, signal.SIGSTOP)
            time.sleep(3)
            assert child.poll() is None, "it ended without a rank that was still at work"
            os.kill(slow, signal.SIGCONT)
            _, err = child.communicate(timeout=END_S)
        finally:
            end(child)
    assert child.returncode == 0, err
    subprocess.run(["cmp", "source", "copy"], cwd=bench.folder, check=True)


def flashio_struck(bench: Bench, name: str) -> tuple[int, str, dict]:
    """Computes and checkpoints until a task gets a signal, once a leg has come to its end: exit code, what is said, the document."""
    for tier in ("fast", "slow"):
        (bench.folder / tier).mkdir()
    with bench.start(*FLASHIO) as child:
        try:
            while not list(bench.folder.glob("slow/flashio-*/leg-00003")):
                assert child.poll() is None, child.stderr.read()
                time.sleep(0.005)
            os.kill(ranks_of(child.pid)[2], getattr(signal, name))
            _, err = child.communicate(timeout=END_S)
        finally:
            end(child)
    return child.returncode, err, json.loads((bench.folder / "out/flashio.json").read_text())


def flashio_keeps_its_figures_when_a_task_is_killed(bench: Bench):
    if "--oversubscribe" not in bench.launcher:
        print("SKIP the figures of the time before a task was killed: MPICH's mpirun kills the others at once")
        return
    code, err, document = flashio_struck(bench, "SIGKILL")
    assert code != 0 and "rank 2" in err, f"exit code {code}: {err}"
    assert document["ended"] and len(document["legs"]) >= 2, document["ended"]
    assert all(leg["checkpoints"] for leg in document["legs"])


def flashio_names_a_stopped_task_after_the_limit(bench: Bench):
    code, err, document = flashio_struck(bench, "SIGSTOP")
    assert code != 0 and "error: task 2 on " in err and "did not answer within 5" in err, f"exit code {code}: {err}"
    assert "task 2" in document["ended"] and len(document["legs"]) >= 2, document["ended"]
    # Nothing of what it wrote is left.
    assert not [*bench.folder.glob("fast/*"), *bench.folder.glob("slow/*")]


def flashio_names_a_full_tier(bench: Bench):
    if not can_have_a_file_system("flashio_names_a_full_tier"):
        return
    (bench.folder / "fast").mkdir()
    with small_file_system(bench.folder, "slow", 96) as slow:
        code, err = filled_once_there(bench, FLASHIO, slow, "flashio-*/leg-00003")
        assert code == 1 and "No space left" in err, f"exit code {code}: {err}"
        document = json.loads((bench.folder / "out/flashio.json").read_text())
        assert "No space left" in document["ended"] and len(document["legs"]) >= 2, document["ended"]
        assert [path.name for path in slow.iterdir()] == ["full"]


TESTS = [a_file_each, shared_file_is_read_back_by_others, mistakes_are_told_once, killed_rank_is_named_and_figures_are_kept,
         stopped_rank_is_named_after_the_limit, full_disk_is_named, interrupted_figures_are_of_the_time_before,
         tree_is_copied_and_verifies, copy_of_a_killed_rank_publishes_nothing_and_is_gone_on_with,
         copy_on_a_full_disk_is_told_once_and_gone_on_with, copy_waits_for_a_slow_rank,
         flashio_keeps_its_figures_when_a_task_is_killed, flashio_names_a_stopped_task_after_the_limit, flashio_names_a_full_tier]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/mpi", description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path, help="the program, built with the feature mpi")
    parser.add_argument("--mpirun", default="mpirun", help="the program that starts the ranks (mpirun)")
    parser.add_argument("--only", action="append", help="one test by its name")
    arguments = parser.parse_args()
    if not shutil.which(arguments.mpirun):
        print(f"SKIP mpi: there is no {arguments.mpirun} (Debian: openmpi-bin)")
        return 0
    launcher = launcher_of(arguments.mpirun)
    failed = 0
    for test in TESTS:
        if arguments.only and test.__name__ not in arguments.only:
            continue
        began = time.monotonic()
        # Beside the build, because /tmp may be memory.
        with tempfile.TemporaryDirectory(dir=arguments.binary.resolve().parent) as folder:
            try:
                test(Bench(arguments.binary.resolve(), pathlib.Path(folder), launcher))
                print(f"ok   {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the test's result
                failed += 1
                print(f"FAIL {test.__name__}: {error!r}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
