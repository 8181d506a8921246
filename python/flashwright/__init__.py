"""Checkpoints on a fast and a slow tier, crash-safe; measuring, results as data frames, and searches of graphs.

>>> store = flashwright.Store(fast="/local/ckpt", slow="/lustre/me/ckpt", keep_fast=2, keep_slow=3)
>>> with store.checkpoint(100) as directory:
...     torch.save(model.state_dict(), directory / "model.pt")
>>> store.wait(100)

See docs/python.md.
"""

from importlib.metadata import version as _version

from . import graph
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
from ._results import Frame, Row, load
from ._run import Latency, Run, Sweep, Warning, bench, sweep
from ._store import Level, Progress, Set, Step, Store

#: The version of the package and of the formats that it knows.
__version__ = _version("flashwright")

__all__ = [
    "Corrupt",
    "DrainFailed",
    "Due",
    "Error",
    "Failed",
    "Frame",
    "Interrupted",
    "InvalidRequest",
    "Latency",
    "Level",
    "NoSpace",
    "Progress",
    "Refused",
    "Row",
    "Run",
    "Set",
    "SourceChanged",
    "Step",
    "Store",
    "Sweep",
    "Timeout",
    "Warning",
    "__version__",
    "bench",
    "graph",
    "load",
    "sweep",
]
