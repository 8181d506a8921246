from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import flashwright
import pytest

#: As crates/sweep/src/store/schema.rs has it, in so far as runs are read.
SCHEMA = """
    PRAGMA application_id = 0x666c7368;
    PRAGMA user_version = 3;
    CREATE TABLE points (id INTEGER PRIMARY KEY, label TEXT, test_type INTEGER, target TEXT, settings TEXT, workload TEXT,
                         layout TEXT);
    CREATE TABLE runs (id INTEGER PRIMARY KEY, point INTEGER, pass INTEGER, position INTEGER, iops REAL,
                       bandwidth_bytes_per_s REAL, warnings TEXT, record INTEGER);
    CREATE TABLE records (id INTEGER PRIMARY KEY, length INTEGER, zlib BLOB);
    CREATE TABLE verdicts (record INTEGER PRIMARY KEY, word TEXT, verdict TEXT);
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    read = {"rw": "read", "bs": 4096, "iodepth": 32, "numjobs": 1}
    mixed = {"rw": "randrw", "bs": 8192, "iodepth": 1, "numjobs": 2}
    points = [
        (1, "read", 3, "scratch", {"bs": "4096", "rw": "read", "rate": "1.5"}, read, {}),
        (2, "write", 4, "scratch", {"bs": "8k"}, mixed, {"fs": "xfs"}),
    ]
    for point in points:
        database.execute("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?)", (*point[:4], *map(json.dumps, point[4:])))
    database.execute("INSERT INTO runs VALUES (1, 2, 0, 1, 50.5, 50.5e3, '', 1), (2, 1, 0, 0, 100.0, 1e5, 'W-VIRTUAL', 2)")
    record = {"interval_ns": 2_000_000_000, "read": {"ios": 61, "bytes": 6100}, "write": {"ios": 40, "bytes": 4000}}
    text = json.dumps(record).encode()
    database.execute("INSERT INTO records VALUES (1, ?, ?)", (len(text), zlib.compress(text)))
    database.execute("INSERT INTO verdicts VALUES (1, 'drive', '{}')")
    database.commit()
    database.close()
    return path


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("flashwright._results.import_module", refuse)


@pytest.mark.usefixtures("no_library")
def test_runs_come_in_the_order_of_time_with_every_dimension(results: Path) -> None:
    for path in (results, results.parent, str(results)):
        rows = flashwright.load(path, "rows")
        assert rows == flashwright.load(path)
        assert [row["label"] for row in rows] == ["read", "write"]
        assert [row["iops"] for row in rows] == [100.0, 50.5]
        assert [row["settings.bs"] for row in rows] == [4096, "8k"]
        assert [row["settings.rate"] for row in rows] == [1.5, None]
        assert [(row["rw"], row["bs"], row["iodepth"], row["numjobs"]) for row in rows] == [
            ("read", 4096, 32, 1),
            ("randrw", 8192, 1, 2),
        ]
        assert [(row["read_iops"], row["write_iops"]) for row in rows] == [(100.0, None), (30.5, 20.0)]
        assert [row["write_bandwidth_bytes_per_s"] for row in rows] == [None, 2000.0]
        assert [row["settings.rw"] for row in rows] == ["read", None]
        assert [row["layout.fs"] for row in rows] == [None, "xfs"]
        assert [row["limit"] for row in rows] == [None, "drive"]
        assert list(rows[0]) == list(rows[1])


@pytest.mark.usefixtures("no_library")
def test_an_engine_that_is_not_installed_is_named(results: Path) -> None:
    with pytest.raises(flashwright.InvalidRequest, match="polars"):
        flashwright.load(results, engine="polars")
    with pytest.raises(flashwright.InvalidRequest, match="no such engine"):
        flashwright.load(results, engine="numpy")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["pandas", "polars"])
def test_a_frame_has_a_row_for_each_run(results: Path, engine: Any) -> None:
    pytest.importorskip(engine, reason=f"SKIP {engine}: it is not installed")
    frame = flashwright.load(results, engine=engine)
    assert type(frame).__module__.split(".")[0] == engine
    assert len(frame) == 2
    assert list(frame["iops"]) == [100.0, 50.5]


def test_what_is_no_results_file_is_refused(tmp_path: Path, results: Path) -> None:
    with pytest.raises(flashwright.InvalidRequest, match="no such file"):
        flashwright.load(tmp_path / "nothing.db")
    other = tmp_path / "other.db"
    sqlite3.connect(other).executescript("CREATE TABLE t (x)")
    with pytest.raises(flashwright.InvalidRequest, match="no results of a sweep"):
        flashwright.load(other)
    (tmp_path / "text.db").write_text("this is no database" * 100)
    with pytest.raises(flashwright.Failed, match="cannot read"):
        flashwright.load(tmp_path / "text.db")
    for form in (2, 99):
        database = sqlite3.connect(results)
        database.execute(f"PRAGMA user_version = {form}")
        database.commit()
        database.close()
        with pytest.raises(flashwright.InvalidRequest, match=f"format {form}, and 3 is known here"):
            flashwright.load(results)
