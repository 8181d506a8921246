"""Ranks for the tests beside this file: each a process of its own, with gloo.

    ranks.py FUNCTION RANK SIZE FOLDER ARGUMENTS     runs a function of this file on one rank; ARGUMENTS are JSON
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

#: Seconds that no run of a test takes; ranks whose peer has died end before.
LIMIT_S = 120
ROWS, COLUMNS = 12, 5


def start(function: str, size: int, folder: Path, **arguments: Any) -> list[subprocess.Popen[str]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANKS_MEET_AT": str(folder / f"meet-{uuid.uuid4()}")}
    return [
        subprocess.Popen(
            [sys.executable, __file__, function, str(rank), str(size), str(folder), json.dumps(arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


def outcome(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Exit code and output of each; all are ended."""
    try:
        return [(rank.wait(), output) for rank in ranks for output, _ in [rank.communicate(timeout=LIMIT_S)]]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def run(function: str, size: int, folder: Path, **arguments: Any) -> None:
    for rank, (code, output) in enumerate(outcome(start(function, size, folder, **arguments))):
        assert code == 0, f"rank {rank} of {function}: exit code {code}\n{output}"


def open_store(folder: Path, rank: int) -> Any:
    """The first rank writes to the store; the others open it when it is there."""
    import flashwright
    import torch.distributed as dist

    store = flashwright.Store(folder / "fast", folder / "slow", keep_fast=None, keep_slow=None) if rank == 0 else None
    dist.barrier()
    return store or flashwright.Store(folder / "fast", folder / "slow", read_only=True)


def state(filled: bool) -> dict[str, Any]:
    """One tensor in parts, one on every rank, a number and an object; or zeros in their place."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    whole = torch.arange(ROWS * COLUMNS, dtype=torch.float64).reshape(ROWS, COLUMNS)
    shared = torch.linspace(0, 1, 7, dtype=torch.bfloat16)
    if not filled:
        whole, shared = torch.zeros_like(whole), torch.zeros_like(shared)
    return {
        "parted": distribute_tensor(whole, mesh, [Shard(0)]),
        "columns": distribute_tensor(whole, mesh, [Shard(1)]),
        "shared": shared,
        "numbers": {"epoch": 3 if filled else 0},
        "object": ("seed", 7) if filled else None,
    }


def save(store: Any, rank: int, folder: Path) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.save(state(True), storage_writer=store.dcp_writer(1, threads=2))
    dcp.async_save(state(True), storage_writer=store.dcp_writer(2)).result()


def load(store: Any, rank: int, folder: Path) -> None:
    import torch.distributed.checkpoint as dcp

    newest = store.dcp_reader()
    for reader in [store.dcp_reader(1), newest, dcp.FileSystemReader(newest.path)]:
        check(reader)


def check(reader: Any) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    into, expected = state(False), state(True)
    dcp.load(into, storage_reader=reader)
    for name in ["parted", "columns"]:
        assert torch.equal(into[name].to_local(), expected[name].to_local()), name
    assert torch.equal(into["shared"], expected["shared"])
    assert into["numbers"] == expected["numbers"] and tuple(into["object"]) == expected["object"]


def one_rank_fails(store: Any, rank: int, folder: Path) -> None:
    """Nothing is there to load; then a full disk on one rank fails the save on both, and the same writer makes the step afterwards."""
    import errno

    import flashwright
    import torch.distributed.checkpoint as dcp
    from flashwright import _direct

    try:
        store.dcp_reader()
    except flashwright.InvalidRequest as error:
        assert "there is no checkpoint" in str(error), error
    else:
        raise AssertionError("a checkpoint was found")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "the disk is full")

    writer, pwrite = store.dcp_writer(1), os.pwrite
    if rank == 1:
        _direct.os.pwrite = full
    try:
        dcp.save(state(True), storage_writer=writer)
    except dcp.CheckpointException as error:
        assert list(error.failures) == [1] and "the disk is full" in str(error), error
    else:
        raise AssertionError("saved")
    _direct.os.pwrite = pwrite
    assert store.steps() == []
    dcp.save(state(True), storage_writer=writer)
    assert [step.step for step in store.steps()] == [1]


def on_another_host(store: Any, rank: int, folder: Path) -> None:
    """A rank without the directory is named, and no file of the others becomes a checkpoint."""
    import torch.distributed.checkpoint as dcp

    writer = store.dcp_writer(1)
    if rank == 1:
        write_data = writer.write_data

        def elsewhere(plan: Any, planner: Any) -> Any:
            import dataclasses

            directory, prefix = plan.storage_data
            return write_data(dataclasses.replace(plan, storage_data=(Path("/nowhere") / directory.name, prefix)), planner)

        writer.write_data = elsewhere
    try:
        dcp.save(state(True), storage_writer=writer)
    except dcp.CheckpointException as error:
        assert "rank 1 has no such directory" in str(error), error
    else:
        raise AssertionError("saved")
    assert store.steps() == []


def due_together(store: Any, rank: int, folder: Path) -> None:
    """All ranks get one answer, and a signal to one of them makes a checkpoint due on each, once."""
    import signal

    import torch.distributed as dist

    def asked() -> str:
        due = store.due(signals=[signal.SIGUSR1])
        answers: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(answers, due)
        assert answers == [due] * len(answers), answers
        return str(due.reason) if due else ""

    assert asked() == ""
    assert asked() == "unmeasured"
    if rank == 1:
        os.kill(os.getpid(), signal.SIGUSR1)
    assert asked() == "signal"
    save(store, rank, folder)
    assert asked() != "signal"


def one_rank_cannot_read(store: Any, rank: int, folder: Path) -> None:
    """An error of the first rank that is not the package's, and a rank without the directory, are told to all ranks."""
    import flashwright
    import torch.distributed.checkpoint as dcp
    from flashwright import _torch

    dcp.save(state(True), storage_writer=store.dcp_writer(1))
    try:
        store.dcp_reader("1")
    except (TypeError, flashwright.Error) as error:
        assert isinstance(error, TypeError) or "the first rank restored nothing" in str(error), error
    else:
        raise AssertionError("a step that is a word was found")
    if rank == 1:
        _torch.Path = lambda path: Path("/nowhere")
    try:
        store.dcp_reader(1)
    except flashwright.InvalidRequest as error:
        assert "for rank 1 to read" in str(error), error
    else:
        raise AssertionError("it is read")


def train(store: Any, rank: int, folder: Path, steps: int, dies: str = "", at: int = 0, resumes_from: int = 0) -> None:
    """Trains, with a checkpoint after each step, from the newest there is; the last weights go to weights-RANK.pt.

    ``dies`` names a moment of the checkpoint of step ``at`` at which one rank kills itself.
    """
    import signal

    import torch
    import torch.distributed.checkpoint as dcp
    from flashwright import _direct
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def killed(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def trained() -> dict[str, Any]:
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments}

    first = store.latest("local") or 0
    assert first == resumes_from, (first, resumes_from)
    if first:
        loaded = trained()
        dcp.load(loaded, storage_reader=store.dcp_reader(first))
        set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    for step in range(first + 1, steps + 1):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        inputs = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        writer = store.dcp_writer(step)
        if step == at:
            if dies == "second rank, file unfinished" and rank == 1:
                _direct.os.ftruncate = killed
            elif dies == "first rank, before the commit" and rank == 0:
                store._commit = killed
            elif dies == "first rank, after the commit" and rank == 0:
                commit = store._commit

                def commits_and_dies(step: int) -> None:
                    commit(step)
                    killed()

                store._commit = commits_and_dies
        dcp.async_save(trained(), storage_writer=writer).result()
    torch.save([parameter.detach() for parameter in model.parameters()], folder / f"weights-{rank}.pt")


def main(function: str, rank: int, size: int, folder: Path, arguments: dict[str, Any]) -> None:
    import torch.distributed as dist

    meet = f"file://{os.environ['RANKS_MEET_AT']}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=LIMIT_S / 2))
    store = open_store(folder, rank)
    globals()[function](store, rank, folder, **arguments)
    dist.barrier()
    if rank == 0:
        store.wait()
    store.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), json.loads(sys.argv[5]))
    # What is tested has ended. Threads of PyTorch's C++ libraries may abort the process when Python takes it down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
