"""Checkpoints of one program on two tiers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Optional, TypeVar, Union

from . import _native
from ._errors import InvalidRequest, Timeout, from_native

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")

#: How far a checkpoint has come: accepted, synced on the fast tier, durable and verified on the slow tier.
Level = Literal["staged", "local", "durable"]

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
    ) -> None:
        for name, number, least in [
            ("keep_fast", keep_fast, 0),
            ("keep_slow", keep_slow, 0),
            ("jobs", jobs, 1),
            ("threads", threads, 1),
            ("iops_limit", iops_limit, 1),
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
        )

    @contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """A new, hidden directory on the fast tier to write checkpoint ``step`` to.

        When the block is left, everything in it is made durable, gets its name, and begins to be drained. When an
        exception leaves the block, it is gone.
        """
        directory = _call(self._native.begin, step)
        try:
            yield Path(directory)
        except BaseException:
            self._abandon(step)
            raise
        _call(self._native.commit, step)

    def _abandon(self, step: int) -> None:
        try:
            self._native.abandon(step)
        except _native.NativeError:
            # The exception on its way says more; what stays is removed when the store is opened next.
            pass

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
            if _call(self._native.wait, step, level, slice):
                if callback is not None:
                    callback(self.progress())
                return
            if until is not None and time.monotonic() >= until:
                what = "the checkpoints are" if step is None else f"step {step} is"
                raise Timeout(f"{what} not {level} after {timeout} seconds", "it goes on; wait again")

    def latest(self, level: Level = "durable") -> Optional[int]:
        """The newest checkpoint that is durable on the slow tier; with ``"local"``, on either tier. None: there is none."""
        return _call(self._native.latest, level)

    def restore(self, step: Optional[int] = None, *, verify: bool = True) -> Path:
        """A directory on the fast tier with checkpoint ``step``, or with the newest on either tier.

        What is no longer there is staged in from the slow tier. It is read and compared with its manifest, where it has
        one already, before this returns; ``verify=False`` leaves that out for what is there. It stays on the fast tier
        until the store is closed, or ``release`` is called.
        """
        if step is None:
            step = self.latest("local")
            if step is None:
                raise InvalidRequest("there is no checkpoint to restore", "latest('local') tells beforehand")
        return Path(_call(self._native.restore, step, verify))

    def release(self, step: int) -> None:
        """Lets a restored checkpoint be evicted again."""
        _call(self._native.release, step)

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
