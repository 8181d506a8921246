from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import flashwright
import pytest

Tiers = tuple[Path, Path]


def open_rank(tiers: Tiers, rank: int, ranks: int = 2, run: str = "a", **options: object) -> flashwright.Store:
    """Opens a rank's store; each rank stands for a node with a fast tier of its own."""
    fast = tiers[0].with_name(f"node-{rank}")
    return flashwright.Store(fast, tiers[1], rank=rank, ranks=ranks, run=run, **options)  # type: ignore[arg-type]


def write(store: flashwright.Store, step: int, text: str) -> None:
    with store.checkpoint(step) as directory:
        (directory / "model.pt").write_text(text)


def test_a_set_is_complete_when_every_rank_has_drained_its_part(tiers: Tiers) -> None:
    with open_rank(tiers, 0) as first, open_rank(tiers, 1) as second:
        assert first.run == "a"
        write(first, 100, "rank 0")
        first.wait(100)
        with pytest.raises(flashwright.Timeout):
            first.wait(100, "set", timeout=0.1)
        assert first.latest() is None
        (found,) = first.sets()
        assert (found.complete, found.faults) == (False, ["rank 1: its part is not there"])
        write(second, 100, "rank 1")
        first.wait(100, "set")
        assert first.latest() == second.latest() == 100
        assert first.latest_set() == flashwright.Set(100, "a", 2, True, [])
        assert (first.restore() / "model.pt").read_text() == "rank 0"
        assert (second.restore(100, run="a") / "model.pt").read_text() == "rank 1"
        assert (second.restore(100, rank=0) / "model.pt").read_text() == "rank 0"


def test_what_makes_no_part_of_a_set_is_refused(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLASHWRIGHT_RUN", "SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    wrong: list[tuple[dict[str, object], str]] = [
        ({"rank": 0}, "belong together"),
        ({"run": "a"}, "belong together"),
        ({"rank": 2, "ranks": 2, "run": "a"}, "rank 2 of 2"),
        ({"rank": 0, "ranks": 2, "run": "a/b"}, 'run "a/b"'),
        ({"rank": 0, "ranks": 2}, "nothing tells this launch from others"),
    ]
    for options, words in wrong:
        with pytest.raises(flashwright.InvalidRequest, match=words):
            flashwright.Store(*tiers, **options)  # type: ignore[arg-type]
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    with flashwright.Store(*tiers, rank=0, ranks=2) as store:
        assert store.run == "slurm-4711.0.2"
        with pytest.raises(flashwright.InvalidRequest):
            store.wait(None, "set")


def test_a_rank_of_a_set_has_no_writer_of_distributed_checkpoints(tiers: Tiers) -> None:
    with open_rank(tiers, 0) as store:
        for ask in (lambda: store.dcp_writer(1), lambda: store.dcp_reader(1)):
            with pytest.raises(flashwright.InvalidRequest, match="parts of sets"):
                ask()


def test_a_part_is_kept_at_the_partner_until_it_is_durable(tiers: Tiers) -> None:
    partner = tiers[0].with_name("node-0")
    partner.mkdir()
    with open_rank(tiers, 1, partner=partner) as store:
        write(store, 1, "rank 1")
        store.wait(1, "partner")
        store.wait(1)
        write(store, 2, "rank 1")
        store.wait(2)
    with open_rank(tiers, 1, partner=partner):
        assert [path.name for path in (partner / "rank-000001-of-000002").iterdir()] == []
    with pytest.raises(flashwright.InvalidRequest, match="partner"):
        flashwright.Store(*tiers, partner=partner)


RANK = """
import sys, flashwright
fast, slow, rank, kill = sys.argv[1:]
store = flashwright.Store(fast, slow, rank=int(rank), ranks=2, run="b")
for step in (1, 2):
    with store.checkpoint(step) as directory:
        (directory / "model.pt").write_text(f"{step} of rank {rank}")
        if kill == "yes" and step == 2:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
    store.wait(step)
"""


def test_a_rank_that_is_killed_leaves_the_set_before_and_the_next_launch_goes_on_from_it(tiers: Tiers) -> None:
    for rank, kill in ((0, "no"), (1, "yes")):
        fast = tiers[0].with_name(f"node-{rank}")
        arguments = [sys.executable, "-c", RANK, os.fspath(fast), os.fspath(tiers[1]), str(rank), kill]
        assert subprocess.run(arguments, check=False).returncode == (-signal.SIGKILL if kill == "yes" else 0)
    with open_rank(tiers, 0, run="c") as first, open_rank(tiers, 1, run="c") as second:
        assert first.latest_set() == flashwright.Set(1, "b", 2, True, [])
        assert [found.faults for found in first.sets() if not found.complete] == [
            [f"rank 1 ({os.uname().nodename}): its part is not there"]
        ]
        assert (second.restore() / "model.pt").read_text() == "1 of rank 1"
        for rank, store in enumerate((first, second)):
            write(store, 2, f"again, rank {rank}")
        first.wait(2, "set")
        assert (first.restore(2) / "model.pt").read_text() == "again, rank 0"
