"""Searches of graphs larger than memory, with their results as arrays."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, Union

from . import _native
from ._errors import from_native

__all__ = ["Search", "bfs"]


class Search(NamedTuple):
    """What a search found of each vertex, in the numbers of the graph's input; -1 for one that was not reached.

    Both are buffers: ``numpy.asarray(search.levels)`` and ``pyarrow.py_buffer(search.levels)`` share their memory.
    """

    #: Edges between the source and each vertex: ``int32``.
    levels: memoryview
    #: The vertex that each was found from, of the source itself: ``int64``.
    parents: memoryview


def bfs(
    path: Union[str, os.PathLike[str]], source: int, *, memory: int = 256 << 20, threads: Optional[int] = None
) -> Search:
    """Searches a graph, which ``flashwright bfs build`` made, breadth-first from ``source``.

    ``path`` may be any device that holds a graph. The search takes at most ``memory`` bytes, by ``threads`` threads (one a
    CPU); the arrays, 12 bytes a vertex, come to that. The vertices have to fit into it, as with ``bfs run --algorithm semi``.
    """
    if source < 0 or memory < 0 or (threads is not None and threads < 1):
        raise ValueError(f"source {source}, memory {memory}, threads {threads}: none of them is below 0, nor threads 0")
    try:
        levels, parents = _native.bfs(os.fspath(path), source, memory=memory, threads=threads)
    except _native.NativeError as error:
        raise from_native(error) from None
    return Search(memoryview(levels).cast("i"), memoryview(parents).cast("q"))
