from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import flashwright
import pytest

BENCH = {
    "schema": "flashwright.bench/1",
    "iops": 1000.0,
    "bandwidth_bytes_per_s": 4.096e6,
    "latency_ns": {name: 1 for name in ("min", "mean", "stddev", "p50", "p90", "p95", "p99", "p99_9", "p99_99", "max")},
    "warnings": [{"code": "W-VIRTUAL", "severity": "note", "message": "m", "remedy": "r"}],
}


def program(folder: Path, script: str) -> Path:
    """A program that writes down how it was called."""
    path = folder / "flashwright"
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> '{folder}/words'\n{script}\n")
    path.chmod(0o755)
    return path


def words(folder: Path) -> list[str]:
    return (folder / "words").read_text().split("\n")[:-1]


def test_options_are_flags_and_a_document_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "out").write_text(json.dumps(BENCH))
    binary = program(tmp_path, f"cat '{tmp_path}/out'")
    run = flashwright.bench(
        rw="randread", iodepth=32, direct=False, live=True, shared=False, destroy=["/dev/a", "/dev/b"], target="x", binary=binary
    )
    assert (run.iops, run.latency_ns.p99_9, run.warnings[0].code, run.interrupted) == (1000.0, 1, "W-VIRTUAL", False)
    assert words(tmp_path) == [
        "bench", "--rw=randread", "--iodepth=32", "--direct=0", "--live", "--destroy=/dev/a", "--destroy=/dev/b", "--target=x",
        "--json",
    ]


def test_a_switch_that_is_off_takes_the_place_of_a_file_s(tmp_path: Path) -> None:
    (tmp_path / "out").write_text(json.dumps(BENCH))
    binary = program(tmp_path, f"cat '{tmp_path}/out'")
    flashwright.bench("w.toml", dedupe_global=False, read_beyond_wp=True, ignore_zone_limits=False, binary=binary)
    assert words(tmp_path) == [
        "bench", "w.toml", "--dedupe_global=0", "--read_beyond_wp=1", "--ignore_zone_limits=0", "--json",
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, flashwright.Failed),
        (2, flashwright.InvalidRequest),
        (3, flashwright.Refused),
        (130, flashwright.Interrupted),
        (139, flashwright.Failed),
    ],
)
def test_exit_codes_are_exceptions(tmp_path: Path, code: int, kind: type[flashwright.Error]) -> None:
    told = json.dumps({"schema": "flashwright.error/1", "error": {"message": "it is so", "hint": "do that"}})
    with pytest.raises(kind, match="it is so") as seen:
        flashwright.bench(target="x", binary=program(tmp_path, f"echo '{told}'; exit {code}"))
    assert seen.value.hint == "do that"
    with pytest.raises(kind, match="only on the terminal"):
        flashwright.bench(target="x", binary=program(tmp_path, f"echo 'error: only on the terminal' >&2; exit {code}"))


def test_a_sweep_tells_how_far_it_is(tmp_path: Path) -> None:
    status = json.dumps({"name": "depth", "done": 3, "planned": 8})
    report = json.dumps({"schema": "flashwright.report/2", "headline": "use depth 4"})
    script = f"[ $2 = status ] && {{ echo '{status}'; exit; }}; sleep 1.5; echo '{report}'"
    seen: list[Any] = []
    swept = flashwright.sweep("space.toml", output=tmp_path / "r", budget="5s", progress=seen.append, binary=program(tmp_path, script))
    assert (swept.headline, swept.directory) == ("use depth 4", tmp_path / "r")
    assert seen and seen[0]["done"] == 3
    assert words(tmp_path)[:6] == ["sweep", "space.toml", "--budget=5s", "--output", str(tmp_path / "r"), "--json"]


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(flashwright.InvalidRequest, match="no such program"):
        flashwright.bench(target="x", binary="/nowhere/flashwright")


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "python.md"
    # A wheel is tested beside the tree that it was built from.
    built = Path(__file__).parents[2] / "target" / "debug" / "flashwright"
    found = built if built.is_file() else shutil.which("flashwright")
    if found is None or not page.is_file():
        pytest.skip("SKIP the example of docs/python.md: there is no binary")
    monkeypatch.setenv("PATH", f"{Path(found).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    example = next(block for block in blocks if "flashwright.bench(" in block)
    exec(compile(example, str(page), "exec"), {})
    assert (tmp_path / "results" / "report.html").is_file()


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", flashwright.__version__)
