"""The runs of a sweep as a table."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Optional, Protocol, Union, overload

from ._errors import Failed, InvalidRequest

#: ``flsh`` in the header of a results file, and the format that is known here (docs/sweep.md).
APPLICATION_ID = 0x666C7368
FORMAT = 3

_RUNS = """
    SELECT p.label, p.test_type, p.target, p.workload AS "workload.json", r.*, v.word AS "limit", p.settings AS "settings.json", p.layout AS "layout.json"
    FROM runs r JOIN points p ON p.id = r.point LEFT JOIN verdicts v ON v.record = r.record
    ORDER BY r.position
"""


#: A value of a row.
Value = Union[str, int, float, bool, None]
#: A run: columns by name.
Row = dict[str, Value]


class Frame(Protocol):
    """What a pandas and a Polars DataFrame have in common here."""

    @property
    def columns(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __len__(self) -> int: ...


@overload
def load(path: Union[str, os.PathLike[str]], engine: Literal["rows"]) -> list[Row]: ...
@overload
def load(path: Union[str, os.PathLike[str]], engine: Literal["pandas", "polars"]) -> Frame: ...
@overload
def load(path: Union[str, os.PathLike[str]], engine: None = None) -> Union[Frame, list[Row]]: ...
@overload
def load(
    path: Union[str, os.PathLike[str]], engine: Optional[Literal["rows", "pandas", "polars"]]
) -> Union[Frame, list[Row]]: ...
def load(
    path: Union[str, os.PathLike[str]], engine: Optional[Literal["rows", "pandas", "polars"]] = None
) -> Union[Frame, list[Row]]:
    """The runs in a sweep's ``results.db``, or in the directory that has it, one row each in the order of time.

    A pandas or a Polars DataFrame, whichever is asked for or installed (pandas first); without either, and for the engine
    ``"rows"``, a list of dicts. Columns: the point's ``label``, ``test_type`` and ``target``; ``rw``, ``bs`` in bytes,
    ``iodepth`` and ``numjobs``; the figures as docs/sweep.md has them, and ``read_…`` and ``write_…`` of ``iops`` and
    ``bandwidth_bytes_per_s``, None where nothing went that way; ``limit``; each dimension of the space as ``settings.NAME`` and
    ``layout.NAME``, numbers as numbers. Every stored run is there, void ones and those of blocks that were cut short included.
    """
    if engine not in (None, "rows", "pandas", "polars"):
        raise InvalidRequest(f"engine {engine!r}: there is no such engine", "rows, pandas, polars, or None")
    rows = _rows(_database(Path(path)))
    if engine == "rows":
        return rows
    if engine is not None:
        return _frame(engine, rows)
    installed: tuple[Literal["pandas", "polars"], ...] = ("pandas", "polars")
    for name in installed:
        try:
            return _frame(name, rows)
        except InvalidRequest:
            continue
    return rows


def _database(path: Path) -> Path:
    database = path / "results.db" if path.is_dir() else path
    if not database.is_file():
        raise InvalidRequest(
            f"{database}: there is no such file", "name the directory that a sweep wrote (its --output), or its results.db"
        )
    return database


def _rows(database: Path) -> list[Row]:
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return _read(connection, database)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise Failed(f"{database}: cannot read the runs: {error}", "a sweep that was killed is put right by: sweep status") from error


def _read(connection: sqlite3.Connection, database: Path) -> list[Row]:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    form = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise InvalidRequest(f"{database}: no results of a sweep", "name the results.db that a sweep wrote")
    if form != FORMAT:
        raise InvalidRequest(f"{database}: format {form}, and {FORMAT} is known here", "use the flashwright that wrote it")
    query = _RUNS
    # The table comes with the first session.
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "verdicts" not in tables:
        query = query.replace("v.word", "NULL").replace("LEFT JOIN verdicts v ON v.record = r.record", "")
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    rows = [_row(connection, dict(zip(names, values))) for values in cursor]
    # Not every point has every dimension; a table has every column in every row.
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def _row(connection: sqlite3.Connection, row: dict[str, Any]) -> Row:
    workload = json.loads(row.pop("workload.json"))
    row.update({name: workload.get(name) for name in ("rw", "bs", "iodepth", "numjobs")})
    row.update(_directions(connection, row))
    for group in ("settings", "layout"):
        for name, value in json.loads(row.pop(f"{group}.json")).items():
            row[f"{group}.{name}"] = _number(value) if isinstance(value, str) else _plain(value)
    return row


def _directions(connection: sqlite3.Connection, row: dict[str, Any]) -> Row:
    """Figures of reads and of writes. Only a run of both needs its record, which is read for nothing else."""
    figures: Row = {f"{way}_{name}": None for way in ("read", "write") for name in ("iops", "bandwidth_bytes_per_s")}
    way = {"read": "read", "randread": "read", "write": "write", "randwrite": "write"}.get(row["rw"] or "")
    if way is not None:
        figures.update({f"{way}_{name}": row.get(name) for name in ("iops", "bandwidth_bytes_per_s")})
    elif row["rw"] in ("rw", "randrw"):
        found = connection.execute("SELECT zlib FROM records WHERE id = ?", (row["record"],)).fetchone()
        record = json.loads(zlib.decompress(found[0]))
        seconds = record["interval_ns"] / 1e9
        for way in ("read", "write"):
            figures[f"{way}_iops"] = record[way]["ios"] / seconds
            figures[f"{way}_bandwidth_bytes_per_s"] = record[way]["bytes"] / seconds
    return figures


def _plain(value: Any) -> Value:
    return value if isinstance(value, (int, float, bool, type(None))) else json.dumps(value)


def _number(text: str) -> Value:
    """A dimension's value: a number where it is one as a whole. ``4k`` stays as it was typed; ``bs`` has the bytes."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _frame(engine: Literal["pandas", "polars"], rows: list[Row]) -> Frame:
    try:
        library = import_module(engine)
    except ImportError as error:
        raise InvalidRequest(f"engine {engine!r}: {error}", f"pip install {engine}") from error
    if engine == "polars":
        polars: Frame = library.DataFrame(rows, infer_schema_length=None)
        return polars
    pandas: Frame = library.DataFrame(rows)
    return pandas
