"""Checkpoints on a fast and a slow tier, crash-safe; and results of flashwright as data frames.

>>> store = flashwright.Store(fast="/local/ckpt", slow="/lustre/me/ckpt", keep_fast=2, keep_slow=3)
>>> with store.checkpoint(100) as directory:
...     torch.save(model.state_dict(), directory / "model.pt")
>>> store.wait(100)

See docs/python.md.
"""

from ._due import Due
from ._errors import (
    Corrupt,
    DrainFailed,
    Error,
    Failed,
    Interrupted,
    InvalidRequest,
    NoSpace,
    Refused,
    SourceChanged,
    Timeout,
)
from ._results import load
from ._store import Level, Progress, Set, Step, Store

__all__ = [
    "Corrupt",
    "DrainFailed",
    "Due",
    "Error",
    "Failed",
    "Interrupted",
    "InvalidRequest",
    "Level",
    "NoSpace",
    "Progress",
    "Refused",
    "Set",
    "SourceChanged",
    "Step",
    "Store",
    "Timeout",
    "load",
]
