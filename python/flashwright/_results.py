"""The runs of a sweep as a table."""

from __future__ import annotations

import json
import os
import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Optional, Union

from ._errors import Failed, InvalidRequest

#: ``flsh`` in the header of a results file, and the newest format that is known here (docs/sweep.md).
APPLICATION_ID = 0x666C7368
FORMAT = 3

_RUNS = """
    SELECT p.label, p.test_type, p.target, r.*, v.word AS "limit", p.settings AS "settings.json", p.layout AS "layout.json"
    FROM runs r JOIN points p ON p.id = r.point LEFT JOIN verdicts v ON v.record = r.record
    ORDER BY r.position
"""


def load(path: Union[str, os.PathLike[str]], engine: Optional[Literal["pandas", "polars"]] = None) -> Any:
    """The runs in a sweep's ``results.db``, or in the directory that has it, one row each in the order of time.

    A pandas or a Polars DataFrame, whichever is asked for or installed (pandas first); without either, a list of dicts.
    Columns: the point's ``label``, ``test_type`` and ``target``, the figures as docs/sweep.md has them,
    ``limit``, and each dimension of the space as ``settings.NAME`` and ``layout.NAME``. Every stored run is there, void
    ones and those of blocks that were cut short included.
    """
    if engine not in (None, "pandas", "polars"):
        raise InvalidRequest(f"engine {engine!r}: there is no such engine", "pandas, polars, or None")
    rows = _rows(_database(Path(path)))
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


def _rows(database: Path) -> list[dict[str, Any]]:
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return _read(connection, database)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise Failed(f"{database}: cannot read the runs: {error}", "a sweep that was killed is put right by: sweep status") from error


def _read(connection: sqlite3.Connection, database: Path) -> list[dict[str, Any]]:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    form = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise InvalidRequest(f"{database}: no results of a sweep", "name the results.db that a sweep wrote")
    if form > FORMAT:
        raise InvalidRequest(f"{database}: format {form}, and {FORMAT} is known here", "use a later flashwright")
    # Files of format 1 know no layouts, and those that began before verdicts have none.
    query = _RUNS if form > 1 else _RUNS.replace("p.layout", "'{}'")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "verdicts" not in tables:
        query = query.replace("v.word", "NULL").replace("LEFT JOIN verdicts v ON v.record = r.record", "")
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    rows = [_row(dict(zip(names, values))) for values in cursor]
    # Not every point has every dimension; a table has every column in every row.
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    for group in ("settings", "layout"):
        for name, value in json.loads(row.pop(f"{group}.json")).items():
            row[f"{group}.{name}"] = value if isinstance(value, (str, int, float, bool, type(None))) else json.dumps(value)
    return row


def _frame(engine: Literal["pandas", "polars"], rows: list[dict[str, Any]]) -> Any:
    try:
        library = import_module(engine)
    except ImportError as error:
        raise InvalidRequest(f"engine {engine!r}: {error}", f"pip install {engine}") from error
    if engine == "polars":
        return library.DataFrame(rows, infer_schema_length=None)
    return library.DataFrame(rows)
