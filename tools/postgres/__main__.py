"""Tests of `flashwright db` on a real PostgreSQL with Q3C, as a user runs it (docs/postgres.md).

    tools/postgres --binary PATH [--only TEST]...   runs the tests; a line for each
    tools/postgres --binary PATH --figures          prints figures beside psql's and pgbench's instead

Every server that a test starts is ended by it, also when it fails.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cluster import END_S, PROGRAMS, Cluster
from figures import figures

ROWS = 60_000
GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/postgres.md"
EXTENSIONS = pathlib.Path("/usr/share/postgresql/15/extension")


class Desk:
    """The binary, and a directory for tiers that a server's user can enter."""

    def __init__(self, binary: pathlib.Path, folder: pathlib.Path):
        self.binary, self.folder = binary, folder
        folder.chmod(0o755)

    def command(self, *arguments) -> list[str]:
        return [str(self.binary), "db", *map(str, arguments)]

    def run(self, *arguments, before=()) -> tuple[int, str, str]:
        done = subprocess.run([*before, *self.command(*arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=END_S)
        return done.returncode, done.stdout, done.stderr

    def document(self, *arguments) -> dict:
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, f"exit code {code}: {err}"
        return json.loads(out)

    def tier(self, name: str) -> pathlib.Path:
        tier = self.folder / name
        tier.mkdir()
        return tier


def servers_in(folder: pathlib.Path) -> list[int]:
    """The processes of servers with data below a directory."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if pathlib.Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append(int(process.name))
    return found


def hashes(document: dict) -> dict:
    return {(query["query"], query["temperature"]): query["asked"]["answer"] for query in document["queries"]}


def both_workloads_answer_as_sqlite_does(desk: Desk):
    for workload, rows in (("ptf", ROWS), ("bionet", 3000)):
        tier = desk.tier(workload)
        desk.document("load", workload, "--dir", tier, "--rows", rows)
        expected = hashes(desk.document("run", workload, "--dir", tier))
        for sky in ("healpix", "q3c"):
            of_sky = desk.tier(f"{workload}-{sky}")
            options = ("--dir", of_sky, "--engine", "postgres", "--sky", sky)
            desk.document("load", workload, *options, "--rows", rows)
            document = desk.document("run", workload, *options)
            assert hashes(document) == expected, sky
            assert document["engine"]["version"].startswith("PostgreSQL ")
        # Kept for what comes after this test only by its own directory.
        assert not servers_in(desk.folder)


def comparison_of_tiers_leaves_no_server_and_no_database(desk: Desk):
    tiers = [desk.tier(name) for name in ("one", "two")]
    named = ",".join(f"{tier.name}={tier}" for tier in tiers)
    document = desk.document("compare", "ptf", "--engine", "postgres", "--rows", ROWS, "--tiers", named, "--blocks", "1", "--query", "forward,object")
    assert document["blocks"] == 1, document
    assert not servers_in(desk.folder)
    assert [list(tier.iterdir()) for tier in tiers] == [[], []]


def alerts_come_in_on_a_server_that_goes_with_them(desk: Desk):
    tier = desk.tier("tier")
    for sky in ("healpix", "q3c"):
        document = desk.document("ingest", "--engine", "postgres", "--sky", sky, "--dir", tier, "--rows", 5000, "--rate", 50, "--for", "2s")
        ingested = document["ingested"]
        assert ingested["alerts"] == 100 and document["engine"]["version"].startswith("PostgreSQL "), document
        assert ingested["arcseconds"]["queries"] == ingested["arcminute"]["queries"] == 20, ingested
        assert not servers_in(desk.folder) and not list(tier.iterdir()), sky


def killed_comparison_is_cleared_by_the_next_one(desk: Desk):
    tiers = [desk.tier(name) for name in ("one", "two")]
    named = ",".join(f"{tier.name}={tier}" for tier in tiers)
    compare = ("compare", "ptf", "--engine", "postgres", "--tiers", named, "--blocks", "1", "--query", "object")
    with subprocess.Popen(desk.command(*compare, "--rows", 2_000_000), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            until = time.monotonic() + END_S
            while not list(tiers[0].glob("*/data/base/*/[0-9]*")) or not servers_in(tiers[0]):
                assert child.poll() is None and time.monotonic() < until, "no server comes"
                time.sleep(0.05)
        finally:
            child.kill()
    assert list(tiers[0].iterdir())
    assert desk.document(*compare, "--rows", ROWS)["blocks"] == 1
    assert not servers_in(desk.folder)
    assert [list(tier.iterdir()) for tier in tiers] == [[], []]


def settings_are_tried_beside_the_unchanged_server(desk: Desk):
    tier = desk.tier("tier")
    options = ("--dir", tier, "--engine", "postgres")
    desk.document("load", "ptf", *options, "--rows", ROWS)
    document = desk.document("advise", "ptf", *options, "--try", "shared_buffers=1MB", "--try", "jit=on", "--query", "column-scan", "--blocks", "2")
    assert document["schema"] == "flashwright.db-advise/1" and document["blocks"] == 2, document
    assert document["settings"] == ["shared_buffers=1MB", "jit=on", "unchanged"], document
    warm = {of["tier"]: of["blocks_read"] for of in document["figures"] if of["temperature"] == "warm"}
    assert warm[0] > 500 and warm[1] == warm[2] == 0, warm
    code, _, err = desk.run("advise", "ptf", *options, "--try", "shared_buffers=much")
    assert code == 1 and "shared_buffers" in err and "much" in err, f"exit code {code}: {err}"
    assert not servers_in(desk.folder)


def interrupted_load_leaves_no_server_and_goes_on(desk: Desk):
    tier = desk.tier("tier")
    load = ("load", "ptf", "--dir", tier, "--engine", "postgres", "--rows", 2_000_000)
    with subprocess.Popen(desk.command(*load), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            until = time.monotonic() + END_S
            while not list(tier.glob("*/data/base/*/[0-9]*")) or not servers_in(tier):
                assert child.poll() is None and time.monotonic() < until, "no server comes"
                time.sleep(0.05)
            time.sleep(1)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=END_S)
        finally:
            child.kill()
    assert child.returncode == 130, f"exit code {child.returncode}: {err}"
    assert not servers_in(tier)
    code, _, err = desk.run("load", "ptf", "--dir", tier, "--engine", "postgres", "--rows", 1000)
    assert code == 2 and "2000000" in err.replace(",", ""), f"exit code {code}: {err}"


def missing_q3c_is_named(desk: Desk):
    if os.geteuid() != 0:
        print("SKIP missing_q3c_is_named: hiding it takes root")
        return
    other, tier = desk.tier("extensions"), desk.tier("tier")
    for file in EXTENSIONS.iterdir():
        if not file.name.startswith("q3c"):
            shutil.copy(file, other)
    hidden = ("unshare", "-m", "sh", "-c", f'mount --bind "{other}" "{EXTENSIONS}" && exec "$@"', "sh")
    code, _, err = desk.run("load", "ptf", "--dir", tier, "--engine", "postgres", "--sky", "q3c", "--rows", 1000, before=hidden)
    assert code == 1 and "q3c" in err and "hint:" in err and "postgresql-15-q3c" in err, f"exit code {code}: {err}"
    assert not servers_in(tier) and not list(tier.iterdir())


def bad_requests_are_told_with_a_hint(desk: Desk):
    tier = desk.tier("tier")
    base = ("load", "ptf", "--rows", 1000)
    for more, words in (
        (("--dir", tier, "--sky", "q3c"), "--sky=q3c"),
        (("--dir", tier, "--engine", "postgres", "--set", "port=1"), "port"),
        (("--connect", "host=/nowhere"), "--connect"),
        (("--engine", "postgres", "--connect", "hst=1"), "--connect"),
    ):
        code, _, err = desk.run(*base, *more)
        assert code == 2 and words in err and "hint:" in err, f"exit code {code}: {err}"
    code, _, err = desk.run(*base, "--engine", "postgres", "--connect", f"host={tier} user=none")
    assert code == 1 and "is the server running" in err, f"exit code {code}: {err}"
    code, _, err = desk.run(*base, "--dir", tier, "--engine", "postgres", "--programs", tier)
    assert code == 1 and "postgres and initdb" in err and not list(tier.iterdir()), f"exit code {code}: {err}"


def guide_is_run_as_written(desk: Desk):
    """The commands of docs/postgres.md in their order: on directories here, with fewer rows, queries and blocks."""
    lines = GUIDE.read_text().splitlines()
    commands = [shlex.split(line)[3:] for line in lines if line.startswith("# flashwright db ")]
    assert {command[0] for command in commands} >= {"load", "run", "compare", "ingest", "advise"}, commands
    tiers = {f"/{name}": str(desk.tier(name)) for name in ("flash", "disk")}
    fewer = {"load": ["--rows=3000"], "run": [], "ingest": ["--rows=3000", "--for=2s"], "compare": ["--rows=3000", "--blocks=1", "--query=forward"],
             "advise": ["--blocks=1", "--query=forward"]}
    own = desk.tier("own")
    with Cluster(own) as cluster:
        for command in commands:
            words = []
            for word in command:
                for written, here in tiers.items():
                    word = re.sub(rf"(^|=){written}\b", rf"\g<1>{here}", word)
                # Where a server of the reader's is, and as whom.
                words.append(f"host={own} user={cluster.user} dbname=postgres" if word.startswith("host=") else word)
            if "--rows" in words:
                place = words.index("--rows")
                del words[place:place + 2]
            code, out, err = desk.run(*words, *fewer[command[0]])
            assert code == 0 and out, f"{' '.join(words)}: exit code {code}: {err}"
    left = {name: sorted(entry.name for entry in pathlib.Path(here).iterdir()) for name, here in tiers.items()}
    assert left == {"/flash": ["flashwright-ptf.postgres"], "/disk": []}, left
    assert not servers_in(desk.folder)


TESTS = [both_workloads_answer_as_sqlite_does, comparison_of_tiers_leaves_no_server_and_no_database,
         settings_are_tried_beside_the_unchanged_server, alerts_come_in_on_a_server_that_goes_with_them, killed_comparison_is_cleared_by_the_next_one,
         interrupted_load_leaves_no_server_and_goes_on, missing_q3c_is_named, bad_requests_are_told_with_a_hint, guide_is_run_as_written]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/postgres", description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--only", action="append", help="one test by its name")
    parser.add_argument("--figures", action="store_true", help="print figures beside psql's and pgbench's")
    parser.add_argument("--rows", type=int, default=1_000_000, help="candidates of --figures")
    parser.add_argument("--pairs", type=int, default=4, help="pairs of --figures: ours and theirs, and the next the other way round")
    arguments = parser.parse_args()
    if not (PROGRAMS / "initdb").exists() or not (EXTENSIONS / "q3c.control").exists():
        print("SKIP postgres: PostgreSQL 15 or Q3C is not there (Debian: postgresql-15 postgresql-15-q3c)")
        return 0
    failed = 0
    for test in [figures] if arguments.figures else TESTS:
        if arguments.only and test.__name__ not in arguments.only:
            continue
        began = time.monotonic()
        # Beside the build, because /tmp may be memory.
        with tempfile.TemporaryDirectory(dir=arguments.binary.resolve().parent) as folder:
            desk = Desk(arguments.binary.resolve(), pathlib.Path(folder))
            try:
                test(desk, *([arguments.rows, arguments.pairs] if arguments.figures else []))
                print(f"ok   {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the test's result
                failed += 1
                print(f"FAIL {test.__name__}: {error!r}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
