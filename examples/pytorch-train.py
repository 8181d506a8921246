#!/usr/bin/env python3
"""Trains a small model, with checkpoints on a fast tier that are drained to a slow one (docs/pytorch.md).

    pytorch-train.py compare FAST SLOW     the stall that each checkpoint costs the loop: PyTorch's own storage on the slow tier
                                           beside a store's, by dcp.save and by dcp.async_save
    pytorch-train.py kill FAST SLOW        trains, is killed at random moments, resumes each time from the newest checkpoint, and
                                           compares the weights with those of a run that nobody disturbed

--mib N: size of what is saved (256); --interval S: seconds of training between two checkpoints (2); --checkpoints N (5).
Both directories are emptied of what an earlier run of this left in pytorch-train below them.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import flashwright
import torch
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore", message="torch.distributed is disabled")
WIDTH, ITERATIONS = 1024, 10


class Training:
    """A model of so many MiB, its momentum included, trained on data that the number of the iteration determines."""

    def __init__(self, mib: int) -> None:
        torch.manual_seed(1)
        layers = max(1, (mib << 20) // (2 * 4 * WIDTH * WIDTH))
        self.model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.iteration = 0
        self.iterate()

    def iterate(self) -> None:
        inputs = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(self.iteration))
        self.optimizer.zero_grad()
        (self.model(inputs) - inputs).square().mean().backward()
        self.optimizer.step()
        self.iteration += 1

    def state(self) -> dict:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "iteration": self.iteration}

    def load(self, reader) -> None:
        state = self.state()
        dcp.load(state, storage_reader=reader)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.iteration = state["iteration"]


def stalls(training: Training, arguments, writer, is_async: bool) -> list:
    """Seconds that each checkpoint kept the loop from its next iteration; the last one's end is waited for, and not counted."""
    felt, saving = [], None
    for number in range(arguments.checkpoints):
        end = time.monotonic() + arguments.interval
        while time.monotonic() < end:
            training.iterate()
        begin = time.monotonic()
        if saving is not None:
            saving.result()
        if is_async:
            saving = dcp.async_save(training.state(), storage_writer=writer(number))
        else:
            dcp.save(training.state(), storage_writer=writer(number))
        felt.append(time.monotonic() - begin)
    if saving is not None:
        saving.result()
    return felt


def compare(arguments, fast: Path, slow: Path) -> None:
    training = Training(arguments.mib)
    store = flashwright.Store(fast / "store", slow / "store")

    def file_system(name: str):
        return lambda number: dcp.FileSystemWriter(slow / f"{name}-{number}")

    ways = [
        ("dcp.save, slow tier", file_system("save"), False),
        ("dcp.async_save, slow tier", file_system("async"), True),
        ("dcp.save, store", lambda number: store.dcp_writer(number), False),
        ("dcp.async_save, store", lambda number: store.dcp_writer(1000 + number), True),
    ]
    medians = {}
    print(f"{arguments.mib} MiB, {arguments.checkpoints} checkpoints, {arguments.interval} s between them; stall per checkpoint, s")
    for name, writer, is_async in ways:
        felt = stalls(training, arguments, writer, is_async)
        medians[name] = statistics.median(felt)
        print(f"{name:26} median {medians[name]:7.3f}   largest {max(felt):7.3f}   each {' '.join(f'{s:.3f}' for s in felt)}", flush=True)
        store.wait()
        for old in slow.glob("*-[0-9]"):
            shutil.rmtree(old)
    best = medians["dcp.async_save, store"]
    ratios = [best / medians[name] for name in ("dcp.save, slow tier", "dcp.async_save, slow tier")]
    print(f"store's async_save: {ratios[0]:.3f} of dcp.save, {ratios[1]:.3f} of dcp.async_save to the slow tier")
    directory = store.restore()
    own, verified, plain = [], [], []
    for _ in range(3):
        own.append(loading(training, directory, lambda: dcp.FileSystemReader(directory)))
        plain.append(loading(training, directory, lambda: store.dcp_reader(verify=False)))
        verified.append(loading(training, directory, store.dcp_reader))
    for name, seconds in [("FileSystemReader", own), ("store, verify=False", plain), ("store", verified)]:
        print(f"load, {name:20} median {statistics.median(seconds):7.3f}   each {' '.join(f'{s:.3f}' for s in seconds)}")
    store.close()


def loading(training: Training, directory: Path, reader) -> float:
    """Seconds to load a checkpoint that is not in the page cache."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    begin = time.monotonic()
    training.load(reader())
    return time.monotonic() - begin


def train(arguments, fast: Path, slow: Path) -> None:
    """What is killed: from the newest checkpoint on, one after each ten iterations."""
    training = Training(arguments.mib)
    store = flashwright.Store(fast / "store", slow / "store")
    newest = store.latest("local")
    if newest is not None:
        begin = time.monotonic()
        training.load(store.dcp_reader(newest))
        print(f"goes on from iteration {training.iteration}, read in {time.monotonic() - begin:.2f} s", flush=True)
    saving = None
    while training.iteration < ITERATIONS * arguments.checkpoints:
        training.iterate()
        print(f"iteration {training.iteration}", flush=True)
        if training.iteration % ITERATIONS == 0:
            if saving is not None:
                saving.result()
            saving = dcp.async_save(training.state(), storage_writer=store.dcp_writer(training.iteration))
    if saving is not None:
        saving.result()
    store.wait()
    store.close()
    torch.save(training.model.state_dict(), fast / "weights.pt")


def kill(arguments, fast: Path, slow: Path) -> None:
    flags = ["--mib", str(arguments.mib), "--checkpoints", str(arguments.checkpoints)]
    total, kills = ITERATIONS * arguments.checkpoints, 0

    def runs(name: str, iterations: int) -> bool:
        """Whether it ran to its end; it is killed after so many iterations."""
        folders = [str(folder / name) for folder in (fast, slow)]
        with subprocess.Popen([sys.executable, __file__, "train", *folders, *flags], stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                print(line, end="", flush=True)
                iterations -= line.startswith("iteration")
                if iterations == 0:
                    child.kill()
        return child.returncode == 0

    assert runs("whole", -1)
    while not runs("killed", random.randint(1, total // 2) if kills < 4 else -1):
        kills += 1
        print("killed", flush=True)
    weights = [torch.load(fast / name / "pytorch-train" / "weights.pt") for name in ("whole", "killed")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    print(f"killed {kills} times: weights are equal to those of a run that was not")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["compare", "kill", "train"])
    parser.add_argument("fast", type=Path)
    parser.add_argument("slow", type=Path)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--checkpoints", type=int, default=5)
    arguments = parser.parse_args()
    places = [folder / "pytorch-train" for folder in (arguments.fast, arguments.slow)]
    for place in places:
        if arguments.verb != "train":
            shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
    {"compare": compare, "kill": kill, "train": train}[arguments.verb](arguments, *places)
