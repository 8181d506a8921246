from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import flashwright
import pytest
from flashwright._due import FailureLog, Loop, Signals

from .conftest import Open


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Training:
    """A loop in which an iteration takes 10 s, one with a checkpoint 4 s more, and one beside a drain of 30 s 2 s more."""

    def __init__(self, log: FailureLog) -> None:
        self.clock = Clock()
        self.step, self.drained_at = 0, 0.0
        self.loop = Loop(log, lambda step: self.clock.now >= self.drained_at, self.clock)

    def iterate(self, checkpoint: bool = False) -> None:
        beside_drain = self.clock.now < self.drained_at
        if checkpoint:
            self.step += 1
            self.loop.begin(self.step)
            self.drained_at = self.clock.now + 30
            self.clock.now += 4
        self.clock.now += 12 if beside_drain else 10


def ended(path: Path, *lengths: float, failed: bool = True) -> None:
    with open(path, "a") as file:
        for length in lengths:
            file.write(json.dumps({"begun": 5.0, "ended": 5.0 + length, "failed": failed}) + "\n")


def test_a_checkpoint_is_due_as_soon_as_an_iteration_was_timed(tmp_path: Path) -> None:
    training = Training(FailureLog(tmp_path / "log"))
    first = training.loop.ask(None)
    assert not first and first.reason == "unmeasured"
    training.iterate()
    second = training.loop.ask(None)
    assert second and second.now and second.reason == "unmeasured"


def test_the_interval_follows_from_what_was_measured_and_from_the_log(tmp_path: Path) -> None:
    ended(tmp_path / "log", *[40_000.0] * 200)
    training = Training(FailureLog(tmp_path / "log"))
    checkpoints: list[int] = []
    asked = 0
    while len(checkpoints) < 8:
        due = training.loop.ask(None)
        if due:
            checkpoints.append(asked)
        training.iterate(checkpoint=bool(due))
        asked += 1
    # δ = 4 s, the drain takes a sixth for 34 s until it is seen: 2 * (4 + 5.7) * 40,000 s are the square of 880 s; Daly's is 4 s less.
    iterations = [after - before for before, after in zip(checkpoints[3:], checkpoints[4:])]
    assert all(85 <= number <= 92 for number in iterations), iterations


def test_one_checkpoint_is_due_at_the_end_and_one_after_a_signal(tmp_path: Path) -> None:
    ended(tmp_path / "log", *[1e9] * 3)
    training = Training(FailureLog(tmp_path / "log"))
    for checkpoint in [False, True, False, False, False, False, False]:
        training.loop.ask(None)
        training.iterate(checkpoint)
    assert not training.loop.ask(1000.0)
    due = training.loop.ask(40.0)
    assert due and due.reason == "end"
    training.iterate(checkpoint=True)
    assert not training.loop.ask(26.0)
    training.iterate()
    training.loop.signalled()
    due = training.loop.ask(None)
    assert due and due.reason == "signal"
    training.iterate(checkpoint=True)
    assert not training.loop.ask(None)


def test_a_run_that_did_not_say_its_end_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "log"
    FailureLog(path)
    begun = float(Path(f"{path}.alive").read_text())
    os.utime(f"{path}.alive", (begun + 100, begun + 100))
    second = FailureLog(path)
    assert second.uptimes == [pytest.approx(100)] and second.since == 0
    second.end()
    second.end()
    third = FailureLog(path)
    assert third.uptimes == [pytest.approx(100)] and 0 <= third.since < 60
    ended(path, 50.0, failed=False)
    ended(path, 7.0)
    with open(path, "a") as file:
        file.write('{"begun": 1.0, "ended": "NaN", "failed": true}\n[]\n{"begun": 1.0, "end')
    last = FailureLog(path)
    assert last.uptimes[0] == pytest.approx(100) and 57 <= last.uptimes[1] < 120


def test_a_loop_asks_its_store(open_store: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    store = open_store(keep_fast=None, keep_slow=None)
    assert not store.due()
    assert store.due().reason == "unmeasured"
    for step in range(3):
        with store.checkpoint(step) as directory:
            (directory / "x").write_text("x")
        due = store.due()
    assert due.reason in ("interval", "drain") and due.in_s > -60
    ends: list[float] = []
    assert store._question is not None
    monkeypatch.setattr(store._question, "ask", lambda to_end, group: ends.append(to_end))
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() + 1e6))
    store.due()
    store.due(end=time.time() + 2e6)
    assert ends == [pytest.approx(1e6, rel=0.01), pytest.approx(2e6, rel=0.01)]
    store.close()
    (run,) = [json.loads(line) for line in (tmp_path / "fast" / ".flashwright" / "runs.jsonl").read_text().splitlines()]
    assert run["failed"] is False
    with pytest.raises(flashwright.InvalidRequest, match="open to be read only"):
        open_store(read_only=True).due()


def test_a_signal_makes_a_checkpoint_due_once_and_its_handler_is_called_as_well(open_store: Open) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    try:
        store = open_store()
        assert not store.due(signals=[signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        assert store.due().reason == "signal" and came == [signal.SIGUSR1]
        with store.checkpoint(1) as directory:
            (directory / "x").write_text("x")
        assert store.due().reason != "signal"
        assert Signals([]).came is False
    finally:
        signal.signal(signal.SIGUSR1, before)
