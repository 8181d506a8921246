"""Exceptions: one class for each class of failure, with what to do about it."""

from __future__ import annotations

import errno as _errno
from typing import Optional

from ._native import NativeError


class Error(Exception):
    """What flashwright could not do.

    ``hint`` says what to do about it and ``errno`` is the kernel's number; either may be None.
    """

    def __init__(self, message: str, hint: Optional[str] = None, errno: Optional[int] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.errno = errno

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[type[Error], tuple[str, Optional[str], Optional[int]]]:
        return type(self), (self.message, self.hint, self.errno)


class InvalidRequest(Error, ValueError):
    """The request makes no sense: a directory that is not there, a step that nobody committed."""


class Refused(Error):
    """Refused, because it might cost somebody data, or is somebody else's."""


class Failed(Error):
    """The system would not."""


class NoSpace(Failed):
    """A tier, or somebody's share of it, is full."""


class SourceChanged(Failed):
    """Files changed while they were copied."""


class Corrupt(Failed):
    """What is stored is not what was written."""


class DrainFailed(Failed):
    """A checkpoint that was committed did not reach the slow tier. It is still on the fast one."""


class DrainFailedForSpace(DrainFailed, NoSpace):
    """A checkpoint did not reach the slow tier, because that is full."""


class Interrupted(Error):
    """Somebody asked to stop."""


class Timeout(Error, TimeoutError):
    """The time was up before a checkpoint had come as far as was asked."""


_KINDS: dict[str, type[Error]] = {
    "invalid": InvalidRequest,
    "refused": Refused,
    "failed": Failed,
    "source-changed": SourceChanged,
    "corrupt": Corrupt,
    "drain-failed": DrainFailed,
    "interrupted": Interrupted,
}


def from_native(error: NativeError) -> Error:
    """The exception of an error's class."""
    kind, message, hint, errno = error.args
    made = _KINDS[kind]
    if errno in (_errno.ENOSPC, _errno.EDQUOT):
        made = DrainFailedForSpace if made is DrainFailed else NoSpace
    return made(message, hint, errno)

