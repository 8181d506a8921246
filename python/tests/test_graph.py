from __future__ import annotations

import random
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from pathlib import Path

import flashwright
import pytest


@pytest.fixture(scope="module")
def program() -> str:
    built = Path(__file__).parents[2] / "target" / "debug" / "flashwright"
    found = built if built.is_file() else shutil.which("flashwright")
    if found is None:
        pytest.skip("no flashwright program is built, which makes the graphs")
    return str(found)


def build(program: str, folder: Path, edges: list[tuple[int, int]], *options: str) -> str:
    (folder / "a.txt").write_text("".join(f"{a} {b}\n" for a, b in edges))
    for words in (["import", "a.txt", "--output", "a.el", *options], ["build", "a.el", "--output", "a.fwg", "--memory", "32m"]):
        subprocess.run([program, "bfs", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return str(folder / "a.fwg")


def plain(edges: list[tuple[int, int]], vertices: int, source: int, directed: bool) -> list[int]:
    neighbours: list[list[int]] = [[] for _ in range(vertices)]
    for a, b in edges:
        neighbours[a].append(b)
        if not directed:
            neighbours[b].append(a)
    levels = [-1] * vertices
    levels[source] = 0
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        for neighbour in neighbours[vertex]:
            if levels[neighbour] < 0:
                levels[neighbour] = levels[vertex] + 1
                queue.append(neighbour)
    return levels


@pytest.mark.parametrize("directed", [False, True])
def test_levels_are_those_of_a_plain_search_and_parents_are_edges(program: str, tmp_path: Path, directed: bool) -> None:
    vertices, drawn = 3000, random.Random(16)
    edges = [(int(vertices * drawn.random() ** 2), drawn.randrange(vertices)) for _ in range(5000)]
    path = build(program, tmp_path, edges, "--vertices", str(vertices), *(["--directed"] if directed else []))
    known = set(edges) if directed else {pair for a, b in edges for pair in ((a, b), (b, a))}
    deepest = 0
    for source in (0, 17, 2999):
        found = flashwright.graph.bfs(path, source, memory=64 << 20)
        levels = found.levels.tolist()
        assert levels == plain(edges, vertices, source, directed)
        for vertex, parent in enumerate(found.parents.tolist()):
            if vertex == source:
                assert parent == source
            elif levels[vertex] < 0:
                assert parent == -1
            else:
                assert (parent, vertex) in known and levels[parent] == levels[vertex] - 1
        assert min(levels) == -1, "vertices that are not reached"
        deepest = max(deepest, *levels)
    assert deepest > 2, "a search of several levels"


def test_arrays_share_the_buffers(program: str, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    found = flashwright.graph.bfs(build(program, tmp_path, [(0, 1), (1, 2), (4, 5)]), 1)
    levels, parents = numpy.asarray(found.levels), numpy.asarray(found.parents)
    assert (levels.dtype, parents.dtype) == (numpy.int32, numpy.int64)
    assert levels.tolist() == [1, 0, 1, -1, -1, -1] and parents.tolist() == [1, 1, 1, -1, -1, -1]
    assert numpy.shares_memory(levels, numpy.asarray(found.levels))


def test_what_cannot_be_searched_is_an_exception_of_its_class(program: str, tmp_path: Path) -> None:
    path = build(program, tmp_path, [(0, 1), (1, 2)])
    with pytest.raises(flashwright.InvalidRequest, match="has no vertex 3: vertices are 0 to 2"):
        flashwright.graph.bfs(path, 3)
    with pytest.raises(flashwright.InvalidRequest, match="is not a graph") as caught:
        flashwright.graph.bfs(str(tmp_path / "a.el"), 0)
    assert "bfs build makes graphs" in (caught.value.hint or "")
    with pytest.raises(flashwright.InvalidRequest, match="needs at least .* of memory"):
        flashwright.graph.bfs(path, 0, memory=1000)
    with pytest.raises(ValueError, match="none of them is below 0"):
        flashwright.graph.bfs(path, -1)
    data = bytearray(Path(path).read_bytes())
    data[4096 + 5] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(flashwright.Corrupt, match="checksum"):
        flashwright.graph.bfs(path, 0)


def test_an_interruption_ends_a_search(program: str, tmp_path: Path) -> None:
    # A path has a level for each vertex, so the search looks often whether it is to stop, and lasts long enough to be asked.
    path = build(program, tmp_path, [(vertex, vertex + 1) for vertex in range(300_000)])

    def search() -> None:
        begun = time.monotonic()
        while time.monotonic() < begun + 60:
            flashwright.graph.bfs(path, 0)

    # A shell that starts this in the background has it ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            search()
    finally:
        signal.signal(signal.SIGINT, before)
