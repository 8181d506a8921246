#!/usr/bin/env python3
"""Runs PyTorch's own tests of distributed checkpoints on a store in place of its files.

    tools/torch_suite.py FILE [TEST]...          a test file of a source tree of PyTorch (test/distributed/checkpoint), by a Python
                                                 that has torch, expecttest and flashwright
    tools/torch_suite.py --files FILE [TEST]...  the same on PyTorch's own files, to compare with

The names FileSystemWriter and FileSystemReader, by which these tests write to a path and read from it, stand for a store with that
path's name: each writer makes the next checkpoint of it, each reader reads the newest one. On several ranks the first one has the
store, as it has in a job (docs/pytorch.md). What they ask for and a store does not offer is a test left out, with its reason.
"""

import collections
import os
import pathlib
import runpy
import sys
import unittest

import flashwright
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from flashwright import _torch
from torch.distributed.checkpoint import filesystem

# Of these the tests may ask for whatever a store does.
TAKEN = {"single_file_per_rank", "sync_files", "per_thread_copy_ahead", "thread_count", "cache_staged_state_dict", "overwrite"}

stores, steps = {}, collections.Counter()


def is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def store_of(path) -> flashwright.Store:
    """The store beside a path; ranks ask together."""
    path = os.fspath(path)
    if path not in stores:
        tiers = [pathlib.Path(f"{path}.{tier}") for tier in ("fast", "slow")]
        if is_first():
            for tier in tiers:
                tier.mkdir(exist_ok=True)
            stores[path] = flashwright.Store(*tiers, keep_fast=None, keep_slow=None)
        if dist.is_initialized():
            dist.barrier()
        if path not in stores:
            stores[path] = flashwright.Store(*tiers, read_only=True)
    return stores[path]


class Writer:
    def __new__(cls, path, **asked):
        if beyond := asked.keys() - TAKEN:
            raise unittest.SkipTest(f"a store's writer takes no {', '.join(sorted(beyond))}")
        steps[os.fspath(path)] += 1
        return store_of(path).dcp_writer(steps[os.fspath(path)], threads=asked.get("thread_count", 1))


class Reader:
    def __new__(cls, path, **asked):
        if asked:
            raise unittest.SkipTest(f"a store's reader takes no {', '.join(sorted(asked))}")
        return store_of(path).dcp_reader(steps[os.fspath(path)] or "latest")


def main() -> int:
    match sys.argv[1:]:
        case ["--files", file, *tests]:
            pass
        case [file, *tests]:
            # Made while the names still have their own meaning.
            _torch._classes()
            for module in (checkpoint, filesystem):
                module.FileSystemWriter, module.FileSystemReader = Writer, Reader
        case _:
            sys.exit(__doc__)
    file = pathlib.Path(file).resolve()
    sys.argv = [str(file), *tests]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
