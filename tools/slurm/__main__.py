"""Runs jobs with burst buffers on a real slurmctld with two slurmds.

    tools/slurm [--binary PATH] [--only SCENARIO]... [--keep]   a line for each scenario

Everything is in one folder; every process that was begun is ended, and the user that submits the jobs is removed.
"""

import argparse
import os
import pathlib
import secrets
import shutil
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from cluster import INTERRUPTED, Cluster  # noqa: E402
from scenarios import ALONE, BESIDE  # noqa: E402

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "setpriv", "flock", "bash", "useradd", "lua")


def left_out() -> str:
    """Why nothing can be run here."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        return f"no {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "root is needed to act with the rights of a job's user"


def run(scenario, cluster, is_verbose: bool) -> bool:
    name = scenario.__name__
    try:
        scenario(cluster)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the scenario's result
        print(f"FAIL slurm: {name}: {error}", flush=True)
        if is_verbose:
            traceback.print_exc()
        return False
    print(f"ok   slurm: {name}", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/slurm", description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/debug/flashwright", help="the flashwright that is used")
    parser.add_argument("--only", action="append", choices=[one.__name__ for one in BESIDE + ALONE], help="one scenario by its name")
    parser.add_argument("--keep", action="store_true", help="leave the folder with all logs, and say where it is")
    arguments = parser.parse_args()
    if why := left_out():
        print(f"SKIP slurm: {why}")
        return 0
    def interrupted(number, _frame):
        INTERRUPTED.set()
        # An exception, so that the daemons are ended on the way.
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupted)
    # No underscore in its name, because Slurm prints blanks so. Not in memory: a stage-out to a file system in memory is never durable.
    folder = pathlib.Path(f"/var/tmp/slurm-{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    wanted = [[one for one in group if not arguments.only or one.__name__ in arguments.only] for group in (BESIDE, ALONE)]
    try:
        binary = folder / "flashwright"
        # Where every user can run it.
        shutil.copy(arguments.binary, binary)
        with Cluster(folder, str(binary)) as cluster, ThreadPoolExecutor(len(BESIDE)) as pool:
            results = list(pool.map(lambda scenario: run(scenario, cluster, arguments.keep), wanted[0]))
            for scenario in wanted[1]:
                cluster.begin_again()
                results.append(run(scenario, cluster, arguments.keep))
    finally:
        if arguments.keep:
            print(f"logs: {folder}/run")
        else:
            shutil.rmtree(folder)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
