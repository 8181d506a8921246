"""Whether a checkpoint now is worth its cost: what is measured of a training loop, and the answer to it.

``due`` is called once in each iteration. From the times between its calls follow, without help from the program:

- **δ**, what a checkpoint costs: the iteration in which one began, less the median iteration without one;
- **ω**, what a drain costs: the median iteration while one runs, against that of others;
- the time from a checkpoint's begin until it is drained;
- the time until the question is asked again.

The failure log has a line for each run that ended, ``alive`` beside it stands for the one that runs: it says when the run began,
and its time of modification until when it ran. Whoever finds it when a run begins has found a failure.

The answer itself is computed by ``planner::checkpoint::due``.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Optional

from . import _native
from ._errors import InvalidRequest

#: Iterations and checkpoints whose median counts.
ITERATIONS, CHECKPOINTS = 32, 5
#: Seconds between two signs of life in the log, and between two looks at a drain.
ALIVE_S, LOOK_S = 10.0, 1.0

Reason = Literal["unmeasured", "signal", "end", "interval", "drain"]
REASONS: tuple[Reason, ...] = ("unmeasured", "signal", "end", "interval", "drain")


@dataclass(frozen=True)
class Due:
    """Whether a checkpoint is due. True in a condition if it is."""

    now: bool
    #: unmeasured: what one costs is not known yet; signal, end: of the allocation; interval; drain: the one before is not drained.
    reason: Reason
    #: Seconds until it is; zero or less if it is due.
    in_s: float

    def __bool__(self) -> bool:
        return self.now


class FailureLog:
    """What is known of earlier runs, and that this one runs."""

    def __init__(self, path: Path) -> None:
        self._path, self._alive = path, path.with_name(path.name + ".alive")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._begun = time.time()
        self._told = time.monotonic()
        try:
            found = self._alive.stat()
            self._append(float(self._alive.read_text()), found.st_mtime, failed=True)
        except (FileNotFoundError, ValueError):
            pass
        self._alive.write_text(repr(self._begun))
        #: Seconds between failures, oldest first, and seconds since the last without one, up to this run's begin.
        self.uptimes, self.since = self._read()

    def _append(self, begun: float, ended: float, failed: bool) -> None:
        with open(self._path, "a", encoding="ascii") as file:
            file.write(json.dumps({"begun": begun, "ended": ended, "failed": failed}) + "\n")

    def _read(self) -> tuple[list[float], float]:
        uptimes, since = [], 0.0
        lines = self._path.read_text("ascii").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                run = json.loads(line)
                length = max(float(run["ended"]) - float(run["begun"]), 0.0)
                failed = run["failed"] is True
            except (ValueError, TypeError, KeyError):
                # A line that was torn when its host died.
                continue
            if not math.isfinite(length):
                continue
            since += length
            if failed:
                uptimes.append(since)
                since = 0.0
        return uptimes, since

    def tell(self) -> None:
        """Says that the run is alive, now and then."""
        if time.monotonic() - self._told >= ALIVE_S:
            self._told = time.monotonic()
            if self._alive.exists():
                os.utime(self._alive)

    def end(self) -> None:
        """The run ends, and not by a failure."""
        if self._alive.exists():
            self._append(self._begun, time.time(), failed=False)
            self._alive.unlink()


class Loop:
    """What is measured of one training loop. ``drained`` says whether a step is on the slow tier."""

    def __init__(self, log: FailureLog, drained: Callable[[int], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self.log, self._drained, self._clock = log, drained, clock
        self._quiet: deque[float] = deque(maxlen=ITERATIONS)
        self._busy: deque[float] = deque(maxlen=ITERATIONS)
        self._blocked: deque[float] = deque(maxlen=CHECKPOINTS)
        self._drains: deque[float] = deque(maxlen=CHECKPOINTS)
        self._began = self._checkpoint = clock()
        self._asked: Optional[float] = None
        self._looked = 0.0
        # The step that is under way, and whether it began since the last question.
        self._step: Optional[int] = None
        self._is_new = False
        self._signalled: Optional[float] = None

    def begin(self, step: int) -> None:
        """A checkpoint begins, and with it the iteration that it costs."""
        self._step, self._checkpoint, self._is_new = step, self._clock(), True

    def signalled(self) -> None:
        """A signal announced the end, which is then no failure."""
        self._signalled = self._clock()
        self.log.end()

    def ask(self, to_end: Optional[float]) -> Due:
        """Measures the iteration that ends now, and answers."""
        now = self._clock()
        if self._asked is not None:
            self._measure(now - self._asked, now)
        self._asked = now
        self.log.tell()
        steps = self._quiet or self._busy
        if not steps:
            return Due(False, "unmeasured", 0.0)
        cost = None
        if self._blocked:
            drain = statistics.median(self._drains) if self._drains else 0.0
            cost = (statistics.median(self._blocked), drain, self._slowdown())
        in_s, reason = _native.due(
            self.log.uptimes,
            up_s=self.log.since + now - self._began,
            since_checkpoint_s=now - self._checkpoint,
            step_s=statistics.median(steps),
            to_end_s=to_end,
            since_signal_s=None if self._signalled is None else now - self._signalled,
            cost=cost,
        )
        due = Due(in_s <= 0.0, reason, in_s)
        if due and reason == "end":
            self.log.end()
        return due

    def _measure(self, iteration: float, now: float) -> None:
        others = self._quiet or self._busy
        if self._is_new:
            self._is_new = False
            if others:
                self._blocked.append(max(iteration - statistics.median(others), 1e-3))
        else:
            (self._quiet if self._step is None else self._busy).append(iteration)
        if self._step is not None and now - self._looked >= LOOK_S:
            self._looked = now
            if self._drained(self._step):
                self._drains.append(now - self._checkpoint)
                self._step = None

    def _slowdown(self) -> float:
        if not self._quiet or not self._busy:
            return 0.0
        return max(0.0, 1.0 - statistics.median(self._quiet) / statistics.median(self._busy))


class Signals:
    """Whether one of these signals came. A handler that was there before is called as well."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.came = False
        self._before = {number: signal.signal(number, self._handle) for number in numbers}

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        self.came = True
        before = self._before.get(number)
        if callable(before):
            before(number, frame)


class Question:
    """Asked by every rank of a job together; the first one measures, and its answer is that of all."""

    def __init__(self, loop: Optional[Loop], signals: Iterable[int]) -> None:
        self.loop = loop
        self._signals = Signals(signals)
        self._is_signalled = False

    def ask(self, to_end: Optional[float], group: Any) -> Due:
        """The answer, after a signal on any rank once that it came."""
        came, answer = self._signals.came, None
        if self.loop is not None:
            answer = self.loop.ask(to_end)
        distributed = initialized()
        if distributed is not None:
            came, answer = _shared(distributed, group, came, answer)
        if answer is None:
            raise InvalidRequest("due: this store is open to be read only", "ask with the store that checkpoints are written to")
        if came and not self._is_signalled:
            self._is_signalled = True
            if self.loop is not None:
                self.loop.signalled()
            return Due(True, "signal", 0.0)
        return answer


def initialized() -> Any:
    """``torch.distributed`` if this process is one of several ranks; PyTorch is not imported for it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed if distributed is not None and distributed.is_available() and distributed.is_initialized() else None


def _shared(distributed: Any, group: Any, came: bool, answer: Optional[Due]) -> tuple[bool, Optional[Due]]:
    """Whether a signal came to any rank, and the answer of the one that has it: one small reduction."""
    mine = [float(came), -math.inf, -math.inf, -math.inf]
    if answer is not None:
        mine[1:] = [float(answer.now), float(REASONS.index(answer.reason)), answer.in_s]
    device = distributed.distributed_c10d._get_pg_default_device(group)
    shared = sys.modules["torch"].tensor(mine, dtype=sys.modules["torch"].float64, device=device)
    distributed.all_reduce(shared, op=distributed.ReduceOp.MAX, group=group)
    any_came, now, reason, in_s = shared.tolist()
    return any_came > 0, None if now < 0 else Due(now > 0, REASONS[int(reason)], in_s)
