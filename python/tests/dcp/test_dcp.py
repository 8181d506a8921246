"""Checkpoints of torch.distributed.checkpoint in a store: `make test-torch`."""

from __future__ import annotations

import gc
import io
import os
import threading
from pathlib import Path
from typing import Any

import flashwright
import pytest
import torch
import torch.distributed.checkpoint as dcp
from flashwright import _direct
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from ..conftest import Open
from . import ranks

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def weights(value: float = 1.0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(int(value))
    return {
        "linear": torch.randn(300, 70, generator=generator),
        "transposed": torch.randn(40, 30, generator=generator).t(),
        "part of a storage": torch.randn(100, 100, generator=generator)[10:20, 5:50],
        "none": torch.zeros(0, 5),
        "one": torch.tensor(value),
        "half": torch.randn(11, generator=generator).to(torch.bfloat16),
        "flags": torch.randn(13, generator=generator) > 0,
        "nested": {"list": [torch.full((3,), value), {"step": value}]},
        "bytes": io.BytesIO(b"opaque"),
        "object": ("a", 1, None),
    }


def empty(like: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else value for name, value in like.items()} | {
        "nested": {"list": [torch.zeros(3), {"step": 0}]},
        "bytes": io.BytesIO(),
        "object": None,
    }


def check(reader: Any, expected: dict[str, Any]) -> None:
    loaded = empty(expected)
    dcp.load(loaded, storage_reader=reader)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(loaded[name], value), name
    assert torch.equal(loaded["nested"]["list"][0], expected["nested"]["list"][0])
    assert loaded["nested"]["list"][1] == expected["nested"]["list"][1]
    assert loaded["bytes"].getvalue() == b"opaque" and tuple(loaded["object"]) == expected["object"]


def hidden(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith(".step")]


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_saved_is_loaded_from_either_tier(open_store: Open, tiers: tuple[Path, Path], threads: int) -> None:
    store = open_store(keep_fast=1, keep_slow=None)
    for step in [1, 2]:
        dcp.save(weights(step), storage_writer=store.dcp_writer(step, threads=threads))
        store.wait(step)
    assert not (tiers[0] / "step-00000001").exists(), "it is staged in"
    check(store.dcp_reader(1), weights(1))
    check(store.dcp_reader(), weights(2))
    check(store.dcp_reader("latest", verify=False), weights(2))


def test_a_checkpoint_is_read_by_torchs_own_reader_and_converter(open_store: Open, tiers: tuple[Path, Path], tmp_path: Path) -> None:
    store = open_store()
    dcp.save(weights(1), storage_writer=store.dcp_writer(1))
    store.wait(1)
    check(dcp.FileSystemReader(tiers[1] / "step-00000001"), weights(1))
    dcp_to_torch_save(store.restore(1), tmp_path / "model.pt")
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)["linear"], weights(1)["linear"])


def test_torchs_own_checkpoint_in_a_step_is_read(open_store: Open) -> None:
    store = open_store()
    with store.checkpoint(1) as directory:
        dcp.save(weights(1), checkpoint_id=directory)
    with store.checkpoint(2) as directory:
        torch.save(weights(1)["linear"], directory / "model.pt")
    check(store.dcp_reader(1), weights(1))
    assert torch.equal(torch.load(store.restore(2) / "model.pt"), weights(1)["linear"])
    with pytest.raises(flashwright.InvalidRequest, match="no checkpoint of torch.distributed.checkpoint"):
        store.dcp_reader(2)


def test_an_async_save_keeps_what_was_there_when_it_began(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store, go, pwrite = open_store(keep_fast=None, keep_slow=None), threading.Event(), os.pwrite
    state, futures = weights(1), []
    # The copy of this one is there to be used again.
    dcp.async_save(state, storage_writer=store.dcp_writer(0)).result()
    monkeypatch.setattr(_direct.os, "pwrite", lambda *arguments: (go.wait(60), pwrite(*arguments))[1])
    for step in [1, 2, 3]:
        futures.append(dcp.async_save(state, storage_writer=store.dcp_writer(step)))
        state["linear"].mul_(2)
    go.set()
    for future in futures:
        future.result()
    for step in [1, 2, 3]:
        check(store.dcp_reader(step), weights(1) | {"linear": weights(1)["linear"].mul(2 ** (step - 1))})


def test_a_state_that_changes_its_shape_is_staged_anew(open_store: Open) -> None:
    store = open_store(keep_fast=None, keep_slow=None)
    for step, state in enumerate([weights(1), weights(1) | {"one": torch.randn(4, 4)}, weights(1) | {"more": torch.ones(2)}]):
        dcp.async_save(state, storage_writer=store.dcp_writer(step)).result()
        check(store.dcp_reader(step), state)


def test_a_save_that_fails_leaves_nothing_and_is_tried_again(
    open_store: Open, tiers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()

    def full(*_: Any) -> int:
        raise OSError(28, "the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(_direct.os, "pwrite", full)
        writer = store.dcp_writer(1)
        with pytest.raises(dcp.CheckpointException, match="the disk is full"):
            dcp.save(weights(1), storage_writer=writer)
    assert len(hidden(tiers[0])) == 1
    del writer
    gc.collect()
    assert hidden(tiers[0]) == [] and store.steps() == []
    dcp.save(weights(1), storage_writer=store.dcp_writer(1))
    check(store.dcp_reader(1), weights(1))


def test_a_step_that_is_there_is_not_written_over(open_store: Open) -> None:
    store = open_store()
    dcp.save(weights(1), storage_writer=store.dcp_writer(1))
    with pytest.raises(dcp.CheckpointException, match="there is a checkpoint of this step"):
        dcp.save(weights(2), storage_writer=store.dcp_writer(1))
    check(store.dcp_reader(1), weights(1))


def test_what_would_break_a_promise_is_refused(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(flashwright.InvalidRequest, match="checkpoint_id"):
        dcp.save(weights(1), checkpoint_id="elsewhere", storage_writer=store.dcp_writer(1))
    with pytest.raises(flashwright.InvalidRequest, match="use_collectives"):
        dcp.save(weights(1), storage_writer=store.dcp_writer(1), use_collectives=False)
    with pytest.raises(flashwright.InvalidRequest, match="does not leave its process"):
        store.dcp_writer(1).__getstate__()
    dcp.save(weights(1), storage_writer=store.dcp_writer(1))
    with pytest.raises(flashwright.InvalidRequest, match="checkpoint_id"):
        dcp.load(weights(1), checkpoint_id="elsewhere", storage_reader=store.dcp_reader(1))
    with pytest.raises(dcp.CheckpointException, match="open to be read only"):
        dcp.save(weights(1), storage_writer=open_store(read_only=True).dcp_writer(2))


def test_a_plan_of_an_earlier_checkpoint_is_not_used(open_store: Open, tiers: tuple[Path, Path]) -> None:
    store = open_store()
    caching = DefaultSavePlanner(enable_plan_caching=True)
    dcp.save(weights(1), storage_writer=store.dcp_writer(1), planner=caching)
    check(store.dcp_reader(1), weights(1))
    with pytest.raises(dcp.CheckpointException, match="enable_plan_caching"):
        dcp.save(weights(2), storage_writer=store.dcp_writer(2), planner=caching)
    assert [step.step for step in store.steps()] == [1]


def test_a_rotten_checkpoint_is_not_loaded(open_store: Open, tiers: tuple[Path, Path]) -> None:
    store = open_store()
    dcp.save(weights(1), storage_writer=store.dcp_writer(1))
    store.wait(1)
    for tier in tiers:
        (file,) = (tier / "step-00000001").glob("*.distcp")
        times = file.stat()
        with open(file, "r+b") as stream:
            stream.seek(5000)
            stream.write(b"rotten")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(flashwright.Failed, match="is not what its manifest says"):
        store.dcp_reader(1)


def test_what_a_reader_reads_is_kept_until_the_reader_is_gone(open_store: Open, tiers: tuple[Path, Path]) -> None:
    store = open_store(keep_fast=None)
    dcp.save(weights(1), storage_writer=store.dcp_writer(1))
    store.wait(1)
    reader = store.dcp_reader(1)
    with pytest.raises(flashwright.Refused):
        store.evict(1)
    restored, other = store.restore(1), store.dcp_reader(1)
    del reader
    gc.collect()
    with pytest.raises(flashwright.Refused):
        store.evict(1)
    del other
    gc.collect()
    with pytest.raises(flashwright.Refused):
        store.evict(1)
    assert restored.is_dir()
    store.release(1)
    store.evict(1)


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(2, 2), (2, 1), (1, 2)])
def test_a_checkpoint_is_loaded_by_another_number_of_ranks(tmp_path: Path, saved_by: int, loaded_by: int) -> None:
    ranks.run("save", saved_by, tmp_path)
    assert {file.name for file in (tmp_path / "slow" / "step-00000002").glob("__*")} == {f"__{rank}_0.distcp" for rank in range(saved_by)}
    ranks.run("load", loaded_by, tmp_path)


@pytest.mark.parametrize("case", ["one_rank_fails", "on_another_host", "due_together", "one_rank_cannot_read"])
def test_what_happens_on_one_rank_is_known_to_all(tmp_path: Path, case: str) -> None:
    ranks.run(case, 2, tmp_path)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    ranks.run("train", 2, folder, steps=6)
    return folder


@pytest.mark.parametrize(
    ("dies", "resumes_from"),
    [("second rank, file unfinished", 2), ("first rank, before the commit", 2), ("first rank, after the commit", 3)],
)
def test_training_goes_on_from_the_last_checkpoint_with_equal_weights(
    uninterrupted: Path, tmp_path: Path, dies: str, resumes_from: int
) -> None:
    ended = ranks.outcome(ranks.start("train", 2, tmp_path, steps=6, dies=dies, at=3))
    killed, other = ended[::-1] if dies.startswith("second") else ended
    assert killed[0] == -9 and other[0] > 0, ended
    ranks.run("train", 2, tmp_path, steps=6, resumes_from=resumes_from)
    for rank in range(2):
        whole, resumed = (torch.load(folder / f"weights-{rank}.pt") for folder in [uninterrupted, tmp_path])
        assert all(map(torch.equal, whole, resumed))
    assert hidden(tmp_path / "fast") == []
