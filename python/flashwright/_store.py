"""Checkpoints of one program on two tiers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union

from . import _due, _native, _torch
from ._errors import InvalidRequest, Timeout, from_native

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")

#: How far a checkpoint has come: accepted, synced on the fast tier, durable and verified on the slow tier. Of parts of sets
#: also: kept on the partner's flash, and the set of all ranks' parts is complete.
Level = Literal["staged", "local", "partner", "durable", "set"]

#: Seconds between two calls of a callback.
CALLBACK_SECONDS = 0.2


@dataclass(frozen=True)
class Step:
    """A checkpoint, and where it is."""

    step: int
    #: It is on the fast tier.
    fast: bool
    #: It is on the slow tier, verified when it was drained, and durable unless that tier is in memory.
    slow: bool


@dataclass(frozen=True)
class Set:
    """A checkpoint that many ranks write, as it is on the slow tier."""

    step: int
    #: The launch that wrote it.
    run: str
    #: Its parts; 0 if none is there.
    ranks: int
    #: Every part is durable.
    complete: bool
    #: What it lacks, a line for each rank.
    faults: list[str]


@dataclass(frozen=True)
class Progress:
    """How far the drain of a checkpoint is. Totals are None until all is found."""

    step: int
    #: queued, running, committed, done, failed or cancelled.
    state: str
    #: staged, local or durable; in-memory instead of durable if the slow tier is in memory.
    level: str
    bytes_total: Optional[int]
    bytes_written: int
    #: Read back from the slow tier and found right.
    bytes_verified: int
    files_total: Optional[int]
    files_done: int
    bytes_per_s: Optional[float]
    #: What holds the drain back now, in words.
    held_back_by: Optional[str]
    #: Why it failed, in words.
    error: Optional[str]


def _call(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    try:
        return function(*arguments, **named)
    except _native.NativeError as error:
        raise from_native(error) from None


class Store:
    """Checkpoints on a fast tier, drained to a slow one behind the program's back.

    ``fast`` and ``slow`` are directories, made if their parents are there; ``slow`` may be an object store,
    ``"s3://bucket/prefix"``. ``keep_fast`` and ``keep_slow`` say how many
    checkpoints stay on each tier once they are durable; None keeps all. The last durable one is never removed, and a
    fast copy only when its slow copy is durable and verified. ``bwlimit`` holds the drain back, for example
    ``"2GB/s"`` or ``"1GiB/s"``, or a number of bytes a second.

    One process at a time writes to a store; with ``read_only=True`` others look, and restore what is on the fast tier.
    All methods may be called from several threads; none holds the GIL while it waits or does I/O. What the process
    leaves undrained, however it ends, the next that opens the store goes on with.

    With ``rank`` and ``ranks`` each checkpoint is this rank's part of a set that many nodes write (docs/sets.md); ``fast`` is
    then the node's own directory, in which each rank has one, and ``slow`` the same place for all. ``run`` is the identity of
    this launch, the same on all ranks and another at each launch; None takes ``FLASHWRIGHT_RUN``, or what Slurm calls it.
    ``partner`` is the fast directory of another node, where each part is kept as well until it is durable.
    ``latest`` and ``restore`` know complete sets alone, of any run; ``wait(step, "set")`` waits until the set is complete.

    A drain that fails raises DrainFailed at the next call, once, and from each ``wait`` for it; ``retry`` tries again, and
    so does opening the store anew.
    """

    def __init__(
        self,
        fast: Union[str, PathLike[str]],
        slow: Union[str, PathLike[str]],
        *,
        keep_fast: Optional[int] = 2,
        keep_slow: Optional[int] = 3,
        bwlimit: Union[str, int, None] = None,
        iops_limit: Optional[int] = None,
        priority: int = 0,
        digest: Literal["xxh3", "blake3"] = "xxh3",
        preserve: Optional[str] = None,
        state: Union[str, PathLike[str], None] = None,
        parents: bool = False,
        read_only: bool = False,
        jobs: int = 1,
        threads: int = 2,
        rank: Optional[int] = None,
        ranks: Optional[int] = None,
        run: Optional[str] = None,
        partner: Union[str, PathLike[str], None] = None,
    ) -> None:
        for name, number, least in [
            ("keep_fast", keep_fast, 0),
            ("keep_slow", keep_slow, 0),
            ("jobs", jobs, 1),
            ("threads", threads, 1),
            ("iops_limit", iops_limit, 1),
            ("rank", rank, 0),
            ("ranks", ranks, 1),
        ]:
            if number is not None and number < least:
                raise InvalidRequest(f"{name} {number}: {least} is the least", "name a larger one")
        self._native = _call(
            _native.Store,
            fast,
            slow,
            state=state,
            keep_fast=keep_fast,
            keep_slow=keep_slow,
            bwlimit=None if bwlimit is None else str(bwlimit),
            iops_limit=iops_limit,
            priority=priority,
            digest=digest,
            preserve=preserve,
            parents=parents,
            read_only=read_only,
            jobs=jobs,
            threads=threads,
            rank=rank,
            ranks=ranks,
            run=run,
            node=socket.gethostname(),
            partner=partner,
        )
        self._staging = _torch.Staging()
        #: Who has restored a step and needs it still.
        self._users: dict[int, set[object]] = {}
        self._read_only = read_only
        own = Path(fast) if rank is None else Path(fast) / f"rank-{rank:06}-of-{ranks:06}"
        self._state = Path(state) if state is not None else own / ".flashwright"
        self._question: Optional[_due.Question] = None

    @contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """A new, hidden directory on the fast tier to write checkpoint ``step`` to.

        When the block is left, everything in it is made durable, gets its name, and begins to be drained. When an
        exception leaves the block, it is gone.
        """
        self._tell_loop(step)
        directory = self._begin(step)
        try:
            yield directory
        except BaseException:
            self._abandon(step)
            raise
        self._commit(step)

    def _begin(self, step: int) -> Path:
        return Path(_call(self._native.begin, step))

    def _commit(self, step: int) -> None:
        _call(self._native.commit, step)

    def _abandon(self, step: int) -> None:
        try:
            self._native.abandon(step)
        except _native.NativeError:
            # The exception on its way says more; what stays is removed when the store is opened next.
            pass

    def dcp_writer(self, step: int, *, threads: int = 1) -> Any:
        """What ``torch.distributed.checkpoint.save`` and ``async_save`` take as ``storage_writer`` to make checkpoint ``step``.

        The coordinator's store is open for writing, those of the other ranks ``read_only``; all on one host. Each rank
        writes as many files at once as ``threads`` says. The step is committed when every rank's files are durable.
        """
        made = _torch.writer(self, step, threads)
        self._tell_loop(step)
        return made

    def due(
        self,
        *,
        end: Optional[float] = None,
        signals: Sequence[int] = (),
        log: Union[str, PathLike[str], None] = None,
        process_group: Any = None,
    ) -> _due.Due:
        """Whether a checkpoint now is worth its cost; to be asked once in each iteration, by all ranks together.

        The answer follows from what checkpoints and drains have cost this loop, from the failures in ``log`` (a file; beside the
        store's journal where none is named), from the allocation's ``end`` (seconds since 1970; ``SLURM_JOB_END_TIME`` where none
        is given), and from ``signals``, which are caught from the first call on. Once after a signal it is due; the program ends
        itself when that checkpoint is done. ``close`` notes an end that was no failure.
        """
        if self._question is None:
            distributed = _due.initialized()
            loop = None
            if not self._read_only and (distributed is None or distributed.get_rank(process_group) == 0):
                loop = _due.Loop(_due.FailureLog(Path(log) if log is not None else self._state / "runs.jsonl"), self._is_drained)
            self._question = _due.Question(loop, signals)
        if end is None and "SLURM_JOB_END_TIME" in os.environ:
            end = float(os.environ["SLURM_JOB_END_TIME"])
        return self._question.ask(None if end is None else end - time.time(), process_group)

    def _tell_loop(self, step: int) -> None:
        if self._question is not None and self._question.loop is not None:
            self._question.loop.begin(step)

    def _is_drained(self, step: int) -> bool:
        return any(progress.step == step and progress.state in ("done", "failed", "cancelled") for progress in self.progress())

    def dcp_reader(self, step: Union[int, Literal["latest"]] = "latest", *, verify: bool = True, process_group: Any = None) -> Any:
        """What ``torch.distributed.checkpoint.load`` takes as ``storage_reader``: checkpoint ``step``, or the newest on either tier.

        Every rank of the group calls it: the first one restores as ``restore`` does, the others read what it restored.
        """
        return _torch.reader(self, None if step == "latest" else step, verify, process_group)

    def wait(
        self,
        step: Optional[int] = None,
        level: Level = "durable",
        timeout: Optional[float] = None,
        callback: Optional[Callable[[list[Progress]], object]] = None,
    ) -> None:
        """Waits until checkpoint ``step``, or all there are, have come this far.

        Raises Timeout after ``timeout`` seconds, DrainFailed when a drain fails, and Refused for ``"durable"`` if the
        slow tier is in memory. ``callback`` is called with ``progress()`` a few times a second meanwhile; an exception
        that it raises ends the wait.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            slice = left
            if callback is not None:
                callback(self.progress())
                slice = CALLBACK_SECONDS if left is None else min(left, CALLBACK_SECONDS)
            if self._wait(step, level, slice):
                if callback is not None:
                    callback(self.progress())
                return
            if until is not None and time.monotonic() >= until:
                what = "the checkpoints are" if step is None else f"step {step} is"
                raise Timeout(f"{what} not {level} after {timeout} seconds", "it goes on; wait again")

    def _wait(self, step: Optional[int], level: Level, seconds: Optional[float]) -> bool:
        if level not in ("set", "partner"):
            return _call(self._native.wait, step, level, seconds)
        if step is None:
            raise InvalidRequest(f"level {level!r} is waited for by step", f"wait(step, {level!r})")
        return _call(self._native.wait_set if level == "set" else self._native.wait_partner, step, seconds)

    def latest(self, level: Level = "durable") -> Optional[int]:
        """The newest checkpoint that is durable on the slow tier; with ``"local"``, on either tier. None: there is none.

        Of sets, the newest complete one at every level.
        """
        return _call(self._native.latest, "durable" if level in ("set", "partner") else level)

    @property
    def run(self) -> Optional[str]:
        """The identity of this launch, of a store whose checkpoints are parts of sets."""
        return self._native.run()

    def latest_set(self) -> Optional[Set]:
        """The newest set that is complete, of any run. Let one rank ask and tell the others: one may be completed in between."""
        found = _call(self._native.latest_set)
        return None if found is None else Set(*found)

    def sets(self) -> list[Set]:
        """All sets on the slow tier, oldest first, with what they lack."""
        return [Set(*found) for found in _call(self._native.sets)]

    def restore(
        self,
        step: Optional[int] = None,
        *,
        run: Optional[str] = None,
        rank: Optional[int] = None,
        verify: bool = True,
    ) -> Path:
        """A directory on the fast tier with checkpoint ``step``, or with the newest on either tier.

        What is no longer there is staged in from the slow tier. It is read and compared with its manifest, where it has
        one already, before this returns; ``verify=False`` leaves that out for what is there. It stays on the fast tier
        until the store is closed, or ``release`` is called.

        Of sets, this rank's part of the newest complete set of the step, or of ``run``'s; ``rank`` names another part, for
        programs with another number of ranks.
        """
        if step is None:
            step = self.latest("local")
            if step is None:
                raise InvalidRequest("there is no checkpoint to restore", "latest('local') tells beforehand")
        return self._restore(step, None, run, rank, verify)

    def _restore(self, step: int, user: object, run: Optional[str], rank: Optional[int], verify: bool) -> Path:
        """Restores for a reader, or for the program itself, which is None."""
        if run is None and rank is None:
            directory = _call(self._native.restore, step, verify)
        else:
            directory = _call(self._native.restore_part, step, run, rank, verify)
        self._users.setdefault(step, set()).add(user)
        return Path(directory)

    def release(self, step: int) -> None:
        """Lets a restored checkpoint be evicted again."""
        self._users.pop(step, None)
        _call(self._native.release, step)

    def _release_by(self, step: int, user: object) -> None:
        """One that restored it does not need it any more; others may."""
        users = self._users.get(step, set())
        users.discard(user)
        if not users:
            self.release(step)

    def steps(self) -> list[Step]:
        """All checkpoints, oldest first."""
        return [Step(*step) for step in _call(self._native.steps)]

    def progress(self) -> list[Progress]:
        """How far each drain is that the store's journal knows, oldest first."""
        return [Progress(**fields) for fields in _call(self._native.progress)]

    def evict(self, step: int) -> None:
        """Removes a fast copy now, if its slow copy is durable and verified."""
        _call(self._native.evict, step)

    def retry(self) -> int:
        """Tries all drains again that failed; how many."""
        return _call(self._native.retry)

    def close(self) -> None:
        """Stops draining and lets others have the store. ``wait()`` before it, to have everything durable."""
        if self._question is not None and self._question.loop is not None:
            self._question.loop.log.end()
        _call(self._native.close)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self._native.close()
        except _native.NativeError:
            # The exception on its way comes first; the journal keeps the failure.
            pass
