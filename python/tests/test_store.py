from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

import flashwright
import pytest

from .conftest import Open, write

Tiers = tuple[Path, Path]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != ".flashwright")


def test_a_checkpoint_is_hidden_until_it_is_committed_and_then_drained(open_store: Open, tiers: Tiers) -> None:
    fast, slow = tiers
    store = open_store()
    with store.checkpoint(100) as directory:
        assert isinstance(directory, Path) and directory.parent == fast and directory.name.startswith(".")
        (directory / "model.pt").write_text("weights")
        assert store.steps() == []
    assert (fast / "step-00000100" / "model.pt").read_text() == "weights"
    assert not directory.exists()
    store.wait(100, level="local")
    store.wait(100)
    assert (slow / "step-00000100" / "model.pt").read_text() == "weights"
    assert (slow / "step-00000100" / ".flashwright-manifest").exists()
    assert os.readlink(slow / "latest") == "step-00000100"
    assert store.latest() == 100
    assert store.steps() == [flashwright.Step(step=100, fast=True, slow=True)]
    (progress,) = store.progress()
    assert (progress.step, progress.state, progress.level, progress.error) == (100, "done", "durable", None)
    assert progress.bytes_total == progress.bytes_verified == len("weights")


def test_an_exception_leaves_nothing(open_store: Open, tiers: Tiers) -> None:
    store = open_store()
    with pytest.raises(ZeroDivisionError):
        with store.checkpoint(1) as directory:
            (directory / "half").write_text("half")
            1 / 0
    assert names(tiers[0]) == [] and names(tiers[1]) == []
    write(store, 1)
    store.wait()
    assert store.latest() == 1


def test_as_many_are_kept_as_were_asked_for_and_any_of_them_is_restored(open_store: Open, tiers: Tiers) -> None:
    store = open_store(keep_fast=1, keep_slow=2)
    for step in (9, 10, 11):
        write(store, step)
        store.wait(step)
    assert store.steps() == [
        flashwright.Step(10, fast=False, slow=True),
        flashwright.Step(11, fast=True, slow=True),
    ]
    assert store.latest() == 11
    restored = store.restore(10)
    assert restored == tiers[0] / "step-00000010"
    assert (restored / "model.pt").read_text() == "weights 10"
    assert (restored / "shards" / "0").read_bytes() == bytes(range(256)) * 64
    assert store.restore() == tiers[0] / "step-00000011"
    with pytest.raises(flashwright.InvalidRequest, match="no such checkpoint"):
        store.restore(9)


def test_what_was_restored_stays_while_the_store_is_open(open_store: Open, tiers: Tiers) -> None:
    store = open_store(keep_fast=1, keep_slow=None)
    write(store, 1)
    store.wait(1)
    restored = store.restore(1)
    with pytest.raises(flashwright.Refused, match="reading"):
        store.evict(1)
    write(store, 2)
    store.wait(2)
    assert (restored / "model.pt").read_text() == "weights 1"
    store.release(1)
    store.evict(1)
    assert not restored.exists()
    assert store.latest() == 2


def test_bytes_that_have_rotted_on_the_fast_tier_are_replaced_by_the_durable_ones(open_store: Open, tiers: Tiers) -> None:
    store = open_store()
    write(store, 5)
    store.wait(5)
    model = tiers[0] / "step-00000005" / "model.pt"
    times = model.stat()
    model.write_text("Weights 5")
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (store.restore(5) / "model.pt").read_text() == "weights 5"


def test_bytes_that_have_rotted_on_the_slow_tier_are_not_handed_out(open_store: Open, tiers: Tiers) -> None:
    store = open_store(keep_fast=0)
    write(store, 5)
    store.wait(5)
    assert names(tiers[0]) == []
    (tiers[1] / "step-00000005" / "model.pt").write_text("Weights 5")
    with pytest.raises(flashwright.Failed):
        store.restore(5)
    assert names(tiers[0]) == []


def test_what_was_changed_after_its_commit_is_neither_evicted_nor_restored(open_store: Open, tiers: Tiers) -> None:
    store = open_store(keep_fast=None)
    write(store, 5)
    store.wait(5)
    (tiers[0] / "step-00000005" / "model.pt").write_text("other weights")
    with pytest.raises(flashwright.Refused, match="not what was copied"):
        store.evict(5)
    with pytest.raises(flashwright.Refused, match="not what was committed"):
        store.restore(5)


def test_a_failed_drain_is_told_at_the_next_call_and_tried_again_when_asked(open_store: Open, tiers: Tiers) -> None:
    store = open_store()
    # A file in the way of the checkpoint's name.
    (tiers[1] / "step-00000007").write_text("in the way")
    write(store, 7)
    with pytest.raises(flashwright.DrainFailed) as told:
        store.wait(7)
    assert "step 7" in str(told.value)
    write(store, 8)
    store.wait(8)
    (tiers[1] / "step-00000007").unlink()
    assert store.retry() == 1
    store.wait(7)
    assert (tiers[1] / "step-00000007" / "model.pt").read_text() == "weights 7"
    assert os.readlink(tiers[1] / "latest") == "step-00000008", "latest never goes back"


def test_a_failed_drain_is_told_once_to_who_does_not_wait_for_it(open_store: Open, tiers: Tiers) -> None:
    store = open_store()
    (tiers[1] / "step-00000007").write_text("in the way")
    write(store, 7)
    while store.progress()[0].state != "failed":
        time.sleep(0.01)
    with pytest.raises(flashwright.DrainFailed):
        store.checkpoint(8).__enter__()
    write(store, 8)
    assert store.latest("local") == 8


def test_one_program_at_a_time_writes_and_others_may_look(open_store: Open) -> None:
    store = open_store()
    write(store, 1)
    store.wait()
    with pytest.raises(flashwright.Refused, match=f"process {os.getpid()}") as refused:
        open_store()
    assert refused.value.hint
    looking = open_store(read_only=True)
    assert looking.latest() == 1
    assert (looking.restore(1) / "model.pt").read_text() == "weights 1"
    with pytest.raises(flashwright.Refused, match="read only"):
        write(looking, 2)
    store.close()
    with pytest.raises(flashwright.Refused, match="closed"):
        write(store, 2)
    write(open_store(), 2)


def test_on_a_slow_tier_in_memory_nothing_is_durable() -> None:
    memory = Path("/dev/shm")
    if not any(line.split()[1:3] == [str(memory), "tmpfs"] for line in Path("/proc/mounts").read_text().splitlines()):
        pytest.skip("/dev/shm is not in memory")
    with tempfile.TemporaryDirectory(dir=memory) as tiers:
        with flashwright.Store(Path(tiers, "fast"), Path(tiers, "slow")) as store:
            write(store, 1)
            store.wait(level="local")
            with pytest.raises(flashwright.Refused, match="in memory .*step 1 is not durable there"):
                store.wait()
            assert (store.latest(), store.latest("local")) == (None, 1)


def test_requests_that_make_no_sense_are_named(open_store: Open, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"keep_slow": 0}, "keep_slow 0"),
        ({"keep_fast": -1}, "keep_fast -1"),
        ({"bwlimit": "fast"}, "bwlimit"),
        ({"bwlimit": 0}, "bwlimit"),
        ({"digest": "md5"}, "md5"),
        ({"preserve": "colour"}, "colour"),
        ({"jobs": 0}, "jobs 0"),
    ]
    for options, word in wrong:
        with pytest.raises(ValueError, match=word):
            open_store(**options)
    with pytest.raises(flashwright.InvalidRequest, match="no such directory"):
        flashwright.Store(tmp_path / "not" / "there", tmp_path / "slow")
    with pytest.raises(flashwright.InvalidRequest, match="one directory"):
        flashwright.Store(tmp_path / "same", tmp_path / "same")
    store = open_store()
    with pytest.raises(flashwright.InvalidRequest, match="level 'gone'|level \"gone\""):
        store.wait(1, level="gone")  # type: ignore[arg-type]
    with pytest.raises(flashwright.InvalidRequest, match="step 1"):
        store.wait(1)
    assert store.latest() is None
    with pytest.raises(flashwright.InvalidRequest, match="no checkpoint"):
        store.restore()
    with store.checkpoint(1) as directory:
        (directory / "x").write_text("x")
        with pytest.raises(flashwright.Refused, match="begun already"):
            store.checkpoint(1).__enter__()
    with pytest.raises(flashwright.Refused, match="not written over"):
        store.checkpoint(1).__enter__()


def test_what_cannot_be_stored_is_refused_and_the_checkpoint_gone(open_store: Open, tiers: Tiers) -> None:
    store = open_store()
    with pytest.raises(flashwright.InvalidRequest, match="pipe"):
        with store.checkpoint(1) as directory:
            os.mkfifo(directory / "pipe")
    assert names(tiers[0]) == []


def test_exceptions_carry_what_to_do_and_go_through_pickle() -> None:
    from flashwright._errors import from_native
    from flashwright._native import NativeError

    full = from_native(NativeError("drain-failed", "step 7: no room", "make room", errno.ENOSPC))
    assert isinstance(full, flashwright.NoSpace) and isinstance(full, flashwright.DrainFailed)
    again = pickle.loads(pickle.dumps(full))
    assert (type(again), again.message, again.hint, again.errno) == (type(full), full.message, full.hint, full.errno)
    assert str(full) == "step 7: no room\nhint: make room"


def slow_drain(store: flashwright.Store) -> None:
    """A checkpoint whose drain takes hours at the store's limit."""
    with store.checkpoint(1) as directory:
        (directory / "large").write_bytes(os.urandom(12 << 20))


def test_other_threads_run_while_one_waits(open_store: Open) -> None:
    store = open_store(bwlimit="1k")
    slow_drain(store)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            store.wait(1)
        except BaseException as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    # With the GIL held by the wait this loop would not get on before the wait ends, which it does not by itself.
    for _ in range(100_000):
        pass
    assert waiting.is_alive()
    assert store.latest("local") == 1
    store.close()
    waiting.join()
    assert isinstance(ended[0], flashwright.Refused)


def test_a_wait_ends_when_its_time_is_up_or_its_callback_raises(open_store: Open) -> None:
    store = open_store(bwlimit="1k")
    slow_drain(store)
    with pytest.raises(TimeoutError) as late:
        store.wait(1, timeout=0.05)
    assert isinstance(late.value, flashwright.Timeout)
    seen: list[flashwright.Progress] = []

    def enough(progress: list[flashwright.Progress]) -> None:
        seen.extend(progress)
        if len(seen) > 2:
            raise StopIteration

    with pytest.raises(StopIteration):
        store.wait(1, callback=enough)
    assert seen[0].step == 1 and seen[0].level != "durable"


CHILD = """
import flashwright, os, sys
store = flashwright.Store(sys.argv[1], sys.argv[2], bwlimit=sys.argv[3] or None)
with store.checkpoint(1) as directory:
    (directory / "large").write_bytes(os.urandom(12 << 20))
pending = store.checkpoint(2)
pending.__enter__().joinpath("half").write_text("half")
try:
    # The signal may come as soon as this is read.
    print("waiting", flush=True)
    store.wait(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""


def child(tiers: Tiers, bwlimit: str) -> subprocess.Popen[str]:
    arguments = [str(tiers[0]), str(tiers[1]), bwlimit]
    process = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    return process


def test_an_interrupt_ends_a_wait(tiers: Tiers) -> None:
    process = child(tiers, "1k")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert (out, process.returncode) == ("interrupted\n", 0)


@pytest.mark.parametrize("bwlimit", ["", "1k"])
def test_what_a_killed_process_leaves_is_gone_on_with_by_the_next(
    open_store: Open, tiers: Tiers, bwlimit: str
) -> None:
    process = child(tiers, bwlimit)
    process.kill()
    process.communicate()
    assert len(names(tiers[0])) == 2, "a checkpoint, and one that was begun"
    store = open_store()
    assert names(tiers[0]) == ["step-00000001"]
    assert [progress.step for progress in store.progress()] == [1]
    assert store.latest("local") == 1
    # With a limit, which is the job's own, it would take hours, and is under way.
    if not bwlimit:
        store.wait(1)
        large = [tier / "step-00000001" / "large" for tier in tiers]
        assert large[0].read_bytes() == large[1].read_bytes()


def test_a_fork_is_refused_and_does_not_disturb_its_parent(open_store: Open) -> None:
    store = open_store()
    write(store, 1)
    pid = os.fork()
    if pid == 0:
        try:
            store.latest()
        except flashwright.Refused:
            del store
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store.wait(1)
    write(store, 2)
    store.wait(2)


def test_without_a_known_torch_one_line_says_so(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(flashwright.InvalidRequest, match="^torch: .*torch.*\\nhint: pip install torch$"):
        store.dcp_writer(1)
    for version in ["1.13.1", "3.0.0"]:
        torch = types.ModuleType("torch")
        torch.__version__ = version  # type: ignore[attr-defined]
        for name in ["torch.distributed", "torch.distributed.checkpoint"]:
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "torch", torch)
        with pytest.raises(flashwright.InvalidRequest, match=f"^torch {version}: its storage interface is not known here"):
            store.dcp_writer(1)
        with pytest.raises(flashwright.InvalidRequest, match=f"^torch {version}: its storage interface is not known here"):
            store.dcp_reader()
