#!/usr/bin/env python3
"""Cones on Parquet, read by DuckDB and by Arrow, beside the same cones on the SQLite database of `flashwright db load ptf`.

    pip install duckdb pyarrow cdshealpix
    python3 tools/parquet_cones.py --binary PATH [--rows N] [--cones N] [--seconds N,…]

The candidates go into one Parquet file in the order of their HEALPix cells (order 29), with groups of 16,384 rows whose least and largest cell the
file knows; a reader skips the groups that a cone does not touch. Of a stream of 350 alerts a second, each second is a further small file,
as long as nothing merges them: what is durable and can be found at once. Every engine gets the same ranges of cells and the exact angle, all is
warm, each cone is asked once before it is timed, and all answers must be equal.
"""

import argparse
import json
import math
import os
import pathlib
import random
import sqlite3
import statistics
import subprocess
import tempfile
import time

import astropy.units as u
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from astropy.coordinates import Latitude, Longitude
from cdshealpix.nested import cone_search

ORDER, GROUP_ROWS, ALERTS = 29, 16_384, 350
RADII = {"cone of 5″": 5 / 3600, "cone of 1′": 1 / 60}
COLUMNS = ("id", "sub_id", "ra", "dec", "mag", "mag_err", "flux", "flux_err", "a_image", "b_image", "fwhm", "x_image", "y_image", "flag", "pos_sub", "cell")


def ranges(ra: float, dec: float, radius: float) -> list[tuple[int, int]]:
    """Ranges of cells of order 29 that cover a cone."""
    depth = math.floor(math.log2(58.6 / radius)) + 1
    cells, _, _ = cone_search(Longitude(ra, u.deg), Latitude(dec, u.deg), radius * u.deg, depth, flat=True)
    shift, found = 2 * (ORDER - depth), []
    for cell in sorted(map(int, cells)):
        first, last = cell << shift, ((cell + 1) << shift) - 1
        if found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def haversine(ra1, dec1, ra2, dec2):
    ra, dec = math.sin(math.radians(ra1 - ra2) / 2), math.sin(math.radians(dec1 - dec2) / 2)
    return dec * dec + math.cos(math.radians(dec1)) * math.cos(math.radians(dec2)) * ra * ra


class Sqlite:
    def __init__(self, path: pathlib.Path):
        self.connection = sqlite3.connect(path)
        self.connection.create_function("haversine", 4, haversine, deterministic=True)

    def cone(self, ra, dec, radius, cells):
        values = ", ".join(f"({low}, {high})" for low, high in cells)
        return self.connection.execute(
            f"SELECT c.id, c.sub_id, c.ra, c.dec, c.mag FROM (VALUES {values}) r CROSS JOIN candidate c "
            "WHERE c.cell BETWEEN r.column1 AND r.column2 AND haversine(c.ra, c.dec, ?, ?) <= ? ORDER BY c.id",
            (ra, dec, math.sin(math.radians(radius) / 2) ** 2)).fetchall()

    def scan(self):
        return self.connection.execute("SELECT count(*), min(mag), max(flux), sum(flag) FROM candidate WHERE mag_err < 0.1").fetchall()


class Duck:
    def __init__(self, files: list[pathlib.Path]):
        self.connection = duckdb.connect()
        self.connection.execute("SET enable_object_cache = true" if tuple(map(int, duckdb.__version__.split(".")[:2])) < (1, 2) else "SET parquet_metadata_cache = true")
        self.source = f"read_parquet([{', '.join(repr(str(file)) for file in files)}])"

    def cone(self, ra, dec, radius, cells):
        of_ranges = " OR ".join(f"cell BETWEEN {low} AND {high}" for low, high in cells)
        angle = (f"pow(sin(radians(dec - {dec!r}) / 2), 2) + cos(radians(dec)) * cos(radians({dec!r})) * pow(sin(radians(ra - {ra!r}) / 2), 2)")
        return self.connection.execute(
            f"SELECT id, sub_id, ra, dec, mag FROM {self.source} WHERE cell BETWEEN {cells[0][0]} AND {cells[-1][1]} AND ({of_ranges}) "
            f"AND {angle} <= {math.sin(math.radians(radius) / 2) ** 2!r} ORDER BY id").fetchall()

    def scan(self):
        return self.connection.execute(f"SELECT count(*), min(mag), max(flux), CAST(sum(flag) AS BIGINT) FROM {self.source} WHERE mag_err < 0.1").fetchall()


class Arrow:
    def __init__(self, files: list[pathlib.Path]):
        self.data = ds.dataset([str(file) for file in files], format="parquet")

    def cone(self, ra, dec, radius, cells):
        cell = ds.field("cell")
        of_ranges = None
        for low, high in cells:
            one = (cell >= low) & (cell <= high)
            of_ranges = one if of_ranges is None else of_ranges | one
        rows = self.data.to_table(columns=["id", "sub_id", "ra", "dec", "mag"], filter=of_ranges).to_pylist()
        most = math.sin(math.radians(radius) / 2) ** 2
        near = [tuple(row.values()) for row in rows if haversine(row["ra"], row["dec"], ra, dec) <= most]
        return sorted(near)

    def scan(self):
        rows = self.data.to_table(columns=["mag", "flux", "flag"], filter=ds.field("mag_err") < 0.1)
        return [(rows.num_rows, pc.min(rows["mag"]).as_py(), pc.max(rows["flux"]).as_py(), pc.sum(rows["flag"]).as_py())]


def durable(table: pa.Table, file: pathlib.Path) -> float:
    """Seconds to have a table in a file that survives a loss of power."""
    began = time.monotonic()
    beside = file.with_suffix(".new")
    with beside.open("wb") as sink:
        pq.write_table(table, sink, row_group_size=GROUP_ROWS)
        sink.flush()
        os.fsync(sink.fileno())
    beside.rename(file)
    folder = os.open(file.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return time.monotonic() - began


def measured(name: str, engine, cones, expected):
    """Median and 99th percentile of each kind of cone, and the median of scans."""
    told = []
    for what, asked in cones.items():
        times = []
        for ra, dec, radius, cells in asked:
            answer = engine.cone(ra, dec, radius, cells)
            assert answer == expected.setdefault((what, ra, dec), answer), f"{name}: {what} at {ra}, {dec} differs"
            began = time.perf_counter()
            engine.cone(ra, dec, radius, cells)
            times.append(1e3 * (time.perf_counter() - began))
        told += [statistics.median(times), statistics.quantiles(times, n=100)[98]]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        answer = engine.scan()
        times.append(1e3 * (time.perf_counter() - began))
    assert answer == expected.setdefault("scan", answer), f"{name}: the scan differs: {answer}, {expected['scan']}"
    told.append(statistics.median(times))
    print(f"| {name} | " + " | ".join(f"{figure:.3g}" for figure in told) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--rows", type=int, default=1_000_000, help="candidates")
    parser.add_argument("--cones", type=int, default=200, help="cones of each size")
    parser.add_argument("--seconds", default="60,600", help="seconds of the stream whose files are not merged")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.binary.resolve().parent) as name:
        folder = pathlib.Path(name)
        load = [arguments.binary, "db", "load", "ptf", "--dir", folder, "--rows", str(arguments.rows), "--json"]
        json.loads(subprocess.run(load, check=True, capture_output=True).stdout)
        sqlite = Sqlite(folder / "flashwright-ptf.sqlite")
        rows = sqlite.connection.execute(f"SELECT {', '.join(COLUMNS)} FROM candidate ORDER BY id").fetchall()
        table = pa.table(dict(zip(COLUMNS, map(list, zip(*rows)))))
        whole = folder / "whole.parquet"
        durable(table.sort_by("cell"), whole)
        print(f"{arguments.rows} candidates; Parquet {whole.stat().st_size >> 20} MiB, DuckDB {duckdb.__version__}, Arrow {pa.__version__}; milliseconds")
        chosen = random.Random(7).sample(rows, arguments.cones)
        cones = {what: [(row[2], row[3], radius, ranges(row[2], row[3], radius)) for row in chosen] for what, radius in RADII.items()}
        print("| engine | " + " | ".join(f"{what}, {part}" for what in RADII for part in ("p50", "p99")) + " | column scan |")
        print("|---|" + "---:|" * (2 * len(RADII) + 1))
        expected = {}
        measured("SQLite", sqlite, cones, expected)
        measured("DuckDB, one file", Duck([whole]), cones, expected)
        measured("Arrow, one file", Arrow([whole]), cones, expected)
        for seconds in map(int, arguments.seconds.split(",")):
            of_stream = min(seconds * ALERTS, arguments.rows // 2)
            history = folder / "history.parquet"
            durable(table.slice(0, arguments.rows - of_stream).sort_by("cell"), history)
            files, times = [history], []
            for at in range(arguments.rows - of_stream, arguments.rows, ALERTS):
                files.append(folder / f"alerts-{at}.parquet")
                times.append(durable(table.slice(at, ALERTS).sort_by("cell"), files[-1]))
            count = len(files) - 1
            measured(f"DuckDB, and {count} seconds of alerts", Duck(files), cones, expected)
            measured(f"Arrow, and {count} seconds of alerts", Arrow(files), cones, expected)
            print(f"A second's alerts are durable after {1e3 * statistics.median(times):.3g} ms (median)")
            for file in files:
                file.unlink()


if __name__ == "__main__":
    main()
