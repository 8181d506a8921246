"""Figures of `flashwright db` on PostgreSQL beside those of psql and pgbench: the same rows, the same questions, one server.

Each is measured in pairs, ours first in one and last in the next, so that what drifts is in both; a ratio is of one pair.
"""

import re
import statistics

from cluster import Cluster

# Seconds and requests a second of one run of forward: 100 keys, each once. pgbench takes at most 128 scripts.
LASTS, RATE = 2, 50
POSITION = re.compile(r"execute [^:]*: SELECT c\.id, c\.ra.*?DETAIL:\s+parameters: \$1 = '([^']+)', \$2 = '([^']+)', \$3 = '([^']+)'", re.DOTALL)


def paired(pairs: int, ours, theirs) -> list[tuple]:
    """What both gave in each pair."""
    gave = []
    for pair in range(pairs):
        if pair % 2:
            there = theirs()
            gave.append((ours(), there))
        else:
            here = ours()
            gave.append((here, theirs()))
    return gave


def told(what: str, gave: list[tuple[float, float]], names: tuple[str, str], unit: str):
    for ours, theirs in gave:
        print(f"{what}: {names[0]} {ours:.3g} {unit}, {names[1]} {theirs:.3g} {unit}: {theirs / ours:.2f}")
    ratios = [theirs / ours for ours, theirs in gave]
    print(f"{what}: {names[1]} / {names[0]}, median of {len(ratios)} pairs: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
          flush=True)


def load(desk, cluster: Cluster, connect: tuple, rows: int, pairs: int):
    """Our load of the candidates beside psql's \\copy of the same rows from a file, into a table with the same indexes."""
    desk.document("load", "ptf", "--rows", rows, *connect)
    file = cluster.folder / "candidate.bin"
    cluster.sql(f"\\copy flashwright.candidate to '{file}' (format binary)", "create table theirs (like flashwright.candidate)")
    indexes = cluster.sql("select indexdef from pg_indexes where schemaname = 'flashwright' and tablename = 'candidate' "
                          "and indexname not like '%\\_key' order by indexname").splitlines()
    indexes = [re.sub(r" INDEX \w+ ON flashwright\.candidate ", " INDEX ON theirs ", index) for index in indexes]
    assert len(indexes) == 2, indexes

    def ours():
        cluster.sql("drop schema flashwright cascade", "checkpoint")
        tables = desk.document("load", "ptf", "--rows", rows, *connect)["loaded"]["tables"]
        table = next(table for table in tables if table["table"] == "candidate")
        return table["load_s"], table["load_s"] + table["index_s"]

    def seconds(statement: str) -> float:
        said = cluster.sql("\\timing on", statement)
        return float(re.search(r"Time: ([0-9.]+) ms", said)[1]) / 1e3

    def theirs():
        cluster.sql("drop table theirs", "create table theirs (like flashwright.candidate)", "checkpoint")
        copied = seconds(f"\\copy theirs from '{file}' (format binary)")
        return copied, copied + sum(map(seconds, indexes))

    gave = paired(pairs, ours, theirs)
    for place, what in enumerate((f"{rows} candidates, made and loaded", "the same with their indexes")):
        told(what, [(here[place], there[place]) for here, there in gave], ("flashwright", "psql \\copy"), "s")


def forward(desk, cluster: Cluster, connect: tuple, pairs: int):
    """Our forward query beside pgbench's of the same positions, both warm, each statement planned anew, and no plan sent."""
    stream = ("run", "ptf", *connect, "--set", "auto_explain.log_min_duration=-1", "--query", "forward", "--rate", RATE, "--for", f"{LASTS}s")
    # The server's log says which positions our keys are; this run warms as well.
    desk.document(*stream, "--set", "log_min_duration_statement=0")
    positions = POSITION.findall((cluster.folder / "log").read_text())
    assert len(positions) == LASTS * RATE, f"{len(positions)} positions in the server's log"
    scripts = []
    for number, (ra, dec, radius) in enumerate(positions):
        script = cluster.folder / f"forward{number}.sql"
        script.write_text(
            "SELECT c.id, c.ra, c.dec, c.mag, c.mag_err, b.realbogus, s.ujd, s.filter, s.lmt_mg_new FROM flashwright.candidate c "
            "CROSS JOIN flashwright.rb_classifier b CROSS JOIN flashwright.subtraction s "
            f"WHERE q3c_radial_query(c.ra, c.dec, {ra}, {dec}, {radius}) AND b.candidate_id = c.id AND b.realbogus > 0.07 "
            "AND s.id = c.sub_id ORDER BY s.ujd, c.id;\n")
        scripts += ["-f", script]

    def ours():
        return desk.document(*stream)["stream"]["service"]["p50_ms"]

    def theirs():
        for old in cluster.folder.glob("pgbench.*"):
            old.unlink()
        cluster.program("pgbench", "-n", "-M", "extended", "-h", cluster.folder, "-T", LASTS, "-R", RATE, "-l",
                        f"--log-prefix={cluster.folder / 'pgbench'}", *scripts, "postgres")
        # client, number, time, script, second, microsecond, lag: the time counts from when a request was due.
        lines = [line.split() for old in cluster.folder.glob("pgbench.*") for line in old.read_text().splitlines()]
        return statistics.median(int(line[2]) - int(line[6]) for line in lines) / 1e3

    told(f"forward, warm, {RATE} a second, median latency", paired(pairs, ours, theirs), ("flashwright", "pgbench"), "ms")


def figures(desk, rows: int, pairs: int):
    """Both, on one server."""
    folder = desk.tier("cluster")
    with Cluster(folder) as cluster:
        connect = ("--engine", "postgres", "--sky", "q3c", "--connect", f"host={folder} user={cluster.user} dbname=postgres")
        load(desk, cluster, connect, rows, pairs)
        forward(desk, cluster, connect, pairs)
