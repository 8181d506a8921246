"""Storage of checkpoints for ``torch.distributed.checkpoint``: its own writer and reader of files, over a store.

PyTorch plans, splits and serialises; files have its format, so that its own reader and converters take them. What differs:

1. The coordinator begins the step and hands its hidden directory to the other ranks in the global plan.
2. Each rank writes one file a thread, direct and durable, before it reports what it wrote (``_direct``).
3. The coordinator writes the metadata and commits: only then has the step a name, and its drain begins. A rank that fails or
   dies before that leaves a directory that the writer, or the next process to open the store, removes.

PyTorch is imported here, when a writer or reader is first asked for, and by nothing else in the package.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from ._direct import DirectFile
from ._errors import Error, InvalidRequest

if TYPE_CHECKING:
    from ._store import Store

#: The versions whose storage interface is known here: from the first, and before the second.
KNOWN_VERSIONS = ((2, 8), (3, 0))


def load_torch() -> Any:
    """PyTorch, if it is installed and of a known version."""
    try:
        torch = import_module("torch")
        import_module("torch.distributed.checkpoint")
    except ImportError as error:
        raise InvalidRequest(f"torch: {error}", "pip install torch") from error
    version = tuple(int(number) for number in str(torch.__version__).split("+")[0].split(".")[:2])
    least, beyond = KNOWN_VERSIONS
    if not least <= version < beyond:
        known = f"versions from {least[0]}.{least[1]} on, before {beyond[0]}.{beyond[1]}, are"
        raise InvalidRequest(f"torch {torch.__version__}: its storage interface is not known here", f"{known}")
    return torch


class Staging:
    """Copies of state dicts in memory, used again: their pages are there, so that a copy takes half the time.

    A copy that is being written is not handed out, so that several checkpoints may be under way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: Optional[dict[str, Any]] = None

    def copy(self, torch: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The state dict with its tensors copied to memory."""
        utils = import_module("torch.distributed._state_dict_utils")
        with self._lock:
            staged, self._idle = self._idle, None
        if staged is None or not utils._check_state_dict_similarity(state_dict, staged):
            staged = utils._create_cpu_state_dict(state_dict, pin_memory=torch.cuda.is_available())
        copied: dict[str, Any] = utils._copy_state_dict(state_dict, staged, type_check=False)
        return copied

    def give_back(self, copied: dict[str, Any]) -> None:
        """Allows that a copy is written over."""
        with self._lock:
            self._idle = copied


def writer(store: Store, step: int, threads: int) -> Any:
    """A ``StorageWriter`` that makes checkpoint ``step``."""
    _refuse_parts(store)
    load_torch()
    return _classes()[0](store, step, threads)


def reader(store: Store, step: Optional[int], verify: bool, process_group: Any) -> Any:
    """A ``StorageReader`` of checkpoint ``step``, or of the newest; all ranks of the group ask together."""
    _refuse_parts(store)
    torch = load_torch()
    released: Callable[[], None] = lambda: None

    def restore() -> Path:
        nonlocal released
        chosen = store.latest("local") if step is None else step
        if chosen is None:
            return store.restore(None)
        user = object()
        directory = store._restore(chosen, user, None, None, verify)
        released = lambda: store._release_by(chosen, user)
        return directory

    directory = _of_first_rank(torch.distributed, process_group, restore)
    lacks = _first_without(torch.distributed, process_group, directory / ".metadata")
    if lacks is not None:
        raise InvalidRequest(
            f"{directory}: no checkpoint of torch.distributed.checkpoint for rank {lacks} to read",
            "what torch.save wrote is read by torch.load from store.restore(); ranks on other hosts have another fast tier",
        )
    made = _classes()[1](directory)
    # The directory may be evicted again when nothing reads it.
    weakref.finalize(made, released)
    return made


def _is_alone(distributed: Any) -> bool:
    return not distributed.is_available() or not distributed.is_initialized()


def _of_first_rank(distributed: Any, group: Any, restore: Callable[[], Path]) -> Path:
    """What the first rank of the group restores, or its error, on every rank."""
    if _is_alone(distributed):
        return restore()
    answer: list[Any] = [None]
    failed: Optional[Exception] = None
    if distributed.get_rank(group) == 0:
        try:
            answer[0] = str(restore())
        except Exception as error:
            # The others are told whatever it is: they wait for an answer. Of a foreign class it may not be sent.
            failed = error
            answer[0] = error if isinstance(error, Error) else Error(f"the first rank restored nothing: {error!r}")
    source = 0 if group is None else distributed.get_global_rank(group, 0)
    distributed.broadcast_object_list(answer, src=source, group=group)
    if failed is not None:
        raise failed
    if isinstance(answer[0], Error):
        raise answer[0]
    return Path(answer[0])


def _first_without(distributed: Any, group: Any, path: Path) -> Optional[int]:
    """The first rank of the group that has no such file, told to all: one that raises alone leaves the others waiting."""
    found = [path.is_file()]
    if not _is_alone(distributed):
        found = [False] * distributed.get_world_size(group)
        distributed.all_gather_object(found, path.is_file(), group=group)
    return next((rank for rank, is_there in enumerate(found) if not is_there), None)


def _refuse_parts(store: Store) -> None:
    if store.run is not None:
        raise InvalidRequest(
            "this store's checkpoints are parts of sets, of which one rank would make one alone",
            "open it without rank, ranks and run; or write each rank's part with torch.save into store.checkpoint(step)",
        )


def _refuse_checkpoint_id(checkpoint_id: Any) -> None:
    if checkpoint_id is not None:
        raise InvalidRequest(f"checkpoint_id {checkpoint_id!r}: the step names a store's checkpoint", "leave checkpoint_id out")


@lru_cache(maxsize=None)
def _classes() -> tuple[Any, Any]:
    """The writer and the reader, whose bases are PyTorch's."""
    torch = import_module("torch")
    files = import_module("torch.distributed.checkpoint.filesystem")

    class DirectFileSystem(files.FileSystem):  # type: ignore[misc, name-defined]
        """Files that are durable when their stream is closed, and are read ahead whole when it is opened."""

        @contextmanager
        def create_stream(self, path: os.PathLike[str], mode: str) -> Iterator[Any]:
            with DirectFile(path) if mode == "wb" else open(path, mode) as stream:
                if mode == "rb":
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
                yield stream

    class StoreWriter(files.FileSystemWriter):  # type: ignore[misc, name-defined]
        """Makes one checkpoint of a store."""

        def __init__(self, store: Store, step: int, threads: int) -> None:
            # Streams make their files durable themselves.
            super().__init__("", sync_files=False, thread_count=threads)
            self.fs = DirectFileSystem()
            self._store = store
            self._step = step
            self._copied: Optional[dict[str, Any]] = None
            self._abandon: Callable[[], object] = lambda: None

        def __getstate__(self) -> dict[str, Any]:
            raise InvalidRequest(
                "async_checkpointer_type: a store's writer does not leave its process", "AsyncCheckpointerType.THREAD, the default"
            )

        def reset(self, checkpoint_id: Any = None) -> None:
            _refuse_checkpoint_id(checkpoint_id)

        def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
            self.per_thread_copy_ahead = 0
            self._copied = self._store._staging.copy(torch, state_dict)
            return self._copied

        def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
            super().set_up_storage_writer(is_coordinator, *args, **kwargs)
            if not self.use_collectives:
                raise InvalidRequest(
                    "use_collectives=False: a checkpoint is committed when every rank has reported", "leave use_collectives out"
                )
            if is_coordinator:
                # What an attempt with this writer left that failed.
                self._abandon()
                self.path = self._store._begin(self._step)
                self._abandon = weakref.finalize(self, self._store._abandon, self._step)

        def prepare_local_plan(self, plan: Any) -> Any:
            return plan

        def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
            # A rank would take the plan that it has from an earlier checkpoint, which names the directory of that one.
            if not all(plan.usable for plan in plans):
                raise InvalidRequest("enable_plan_caching: a plan holds for one checkpoint of a store", "leave enable_plan_caching out")
            plans = super().prepare_global_plan(plans)
            return [dataclasses.replace(plan, storage_data=(self.path, plan.storage_data)) for plan in plans]

        def write_data(self, plan: Any, planner: Any) -> Any:
            self.path, prefix = plan.storage_data
            if not self.path.is_dir():
                raise InvalidRequest(
                    f"{self.path}: rank {self.rank} has no such directory", "all ranks of a store are on one host, with one fast tier"
                )
            try:
                return super().write_data(dataclasses.replace(plan, storage_data=prefix), planner)
            finally:
                copied, self._copied = self._copied, None
                if copied is not None:
                    self._store._staging.give_back(copied)

        def finish(self, metadata: Any, results: list[list[Any]]) -> None:
            super().finish(metadata, results)
            self._store._commit(self._step)
            self._abandon.detach()  # type: ignore[attr-defined]

    class StoreReader(files.FileSystemReader):  # type: ignore[misc, name-defined]
        """Reads one checkpoint of a store."""

        def __init__(self, directory: Path) -> None:
            super().__init__(directory)
            self.fs = DirectFileSystem()

        def reset(self, checkpoint_id: Any = None) -> None:
            _refuse_checkpoint_id(checkpoint_id)
            super().reset()

    return StoreWriter, StoreReader
