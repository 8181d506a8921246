"""Jobs and their buffers: submitted, waited for, looked at. What the scenarios say it with."""

import os
import pathlib

from cluster import Cluster, until

MEBIBYTE = 1 << 20
# Characters that a shell would act on.
HOSTILE = "it's a \"set\"; $(touch HACKED) `touch HACKED` && touch HACKED"


def quoted(path) -> str:
    """A path as a directive takes it."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def directives(*lines) -> str:
    return "".join(f"#BB_LUA {line}\n" for line in lines)


def script(lines, commands: str) -> str:
    return "#!/bin/bash\n" + directives(*lines) + commands + "\n"


def make(cluster: Cluster, path: pathlib.Path, files: dict) -> pathlib.Path:
    """A directory of the user's with these files."""
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
        os.chown(path / name, cluster.uid, cluster.gid)
    os.chown(path, cluster.uid, cluster.gid)
    return path


def contents(path: pathlib.Path) -> dict:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".flashwright-manifest"}


def submitted(cluster: Cluster, text: str, *flags) -> str:
    number = cluster.submit(text, *flags)
    assert number.isdigit(), number
    return number


def state_is(cluster: Cluster, number: str, *states) -> dict:
    def found():
        job = cluster.job(number)
        return job if job.get("JobState") in states else None
    try:
        return until(found, f"job {number} in {' or '.join(states)}")
    except AssertionError as error:
        raise AssertionError(f"{error}; {cluster.job(number)}") from None


def directory(cluster: Cluster, number: str, pool: str = "fast") -> pathlib.Path:
    return cluster.folder / pool / str(cluster.uid) / f"job-{number}"


def record(cluster: Cluster, number: str) -> pathlib.Path:
    return cluster.folder / f"state/records/{number}.json"


def is_gone(cluster: Cluster, number: str, pool: str = "fast") -> bool:
    left = [directory(cluster, number, pool), record(cluster, number), record(cluster, number).with_suffix(".renew"), record(cluster, number).with_suffix(".over"),
            cluster.folder / f"state/journals/{number}"]
    return not any(path.exists() for path in left)


def gone(cluster: Cluster, number: str, pool: str = "fast"):
    """Nothing is left of a job's buffer, processes included."""
    until(lambda: is_gone(cluster, number, pool), f"the end of what job {number} had")
    socket = f"FLASHWRIGHT_STAGE_SOCKET={cluster.folder}/state/journals/{number}/".encode()

    def processes():
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if socket in path.read_bytes():
                    yield path.parent.name
            except OSError:
                pass

    # A stage that was under way notices within a moment that there is no record any more.
    until(lambda: not list(processes()), f"the end of all processes of job {number}")
    pools = cluster.command(cluster.binary, "stage", "pools", "list", "--json", "--config", f"{cluster.folder}/conf/pools.toml")
    assert f'"job-{number}"' not in pools, f"the reservation of job {number} is left: {pools}"


def status(cluster: Cluster, number: str) -> str:
    lines = cluster.command("scontrol", "show", "bbstat", user=True).splitlines()
    return next((line for line in lines if line.startswith(f"job {number} ")), "")
