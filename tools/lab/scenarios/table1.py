"""The papers' Table 1 runs unattended, is killed, loses its power, and goes on to a full report.

Twice it is stopped without a word: once the process, by `kill -9`, and once the machine. After each the
drives still bear an array and changed queues; `sweep resume` (after the cut, `layout undo` first) has to find what
was left, restore it, and make the missing runs, no more.
"""

import os
import time

from guest import Dead

IOPS = 250
SPACE, RESULTS = "/payload/spaces/table1.toml", "/state/table1"
FULL_SPACE = "/payload/examples/dash-io.toml"
RUN_TIMEOUT_S = 40  # for one run to be added, however slow the host is
KILL_AFTER, CUT_AFTER = 20, 40


def run(lab):
    lab.guest.limit(iops=IOPS)
    lab.sh("modprobe kyber-iosched; modprobe bfq")
    before = lab.footprint(interrupts=False)
    space = SPACE
    planned = plan(lab, space)

    start(lab, f"flashwright sweep run {space} --output {RESULTS}")
    reached = wait(lab, KILL_AFTER)
    lab.sh("kill -9 $(cat /run/sweep.pid)")
    lab.check("is killed in its midst", reached < planned, f"at {reached} of {planned} runs")
    stands = lab.flashwright("layout", "show")
    lab.check("a killed sweep leaves a layout that `layout show` tells of", "layout undo" in stands.out, str(stands))

    start(lab, f"flashwright sweep resume {RESULTS}")
    reached = wait(lab, CUT_AFTER)
    lab.check("`sweep resume` goes on after kill -9", CUT_AFTER <= reached < planned, f"at {reached} of {planned} runs")

    lab.guest.cut_power()
    lab.boot()
    lab.guest.limit(iops=IOPS)
    kept = status(lab)["runs"]["done"] if lab.flashwright("sweep", "status", RESULTS).code == 0 else 0
    lab.check("a power cut costs at most the run in progress", kept >= reached, f"{reached} before, {kept} after")
    undone = lab.flashwright("layout", "undo")
    lab.check("`layout undo` restores after a power cut", undone.code == 0, str(undone))
    lab.sh("modprobe kyber-iosched; modprobe bfq")
    lab.unchanged("nothing of the layout is left", before, interrupts=False)

    start(lab, f"flashwright sweep resume {RESULTS}")
    wait(lab, planned)
    code = finished(lab)
    lab.require("the sweep runs to its end unattended", code == 0, f"exit code {code}: {lab.sh('tail -5 /run/sweep.log')}")
    lab.unchanged("a sweep leaves the drives and their queues as they were", before, interrupts=False)
    report(lab, planned)


def plan(lab, space):
    answer = lab.flashwright("sweep", "plan", space, "--json")
    lab.must(answer)
    return answer.json["runs"]


def start(lab, command):
    """Has the guest run a sweep by itself."""
    lab.sh(f"""rm -f /run/sweep.code
        (setsid sh -c '{command} > /run/sweep.log 2>&1; echo $? > /run/sweep.code') > /dev/null 2>&1 &
        sleep 0.2
        pidof flashwright > /run/sweep.pid""")


def finished(lab):
    """The exit code of the sweep, none while it runs."""
    text = lab.sh("cat /run/sweep.code 2>/dev/null; true").strip()
    return int(text) if text else None


def status(lab):
    answer = lab.flashwright("sweep", "status", RESULTS, "--json")
    lab.must(answer)
    return answer.json


def wait(lab, runs):
    """Until so many runs are stored, or the sweep has ended; how many there are. What does not move is stopped."""
    done, moved = 0, time.monotonic()
    while True:
        answer = lab.flashwright("sweep", "status", RESULTS, "--json")
        # Before the first run there is nothing to tell.
        now = answer.json["runs"]["done"] if answer.code == 0 else 0
        if now != done:
            done, moved = now, time.monotonic()
        ended = finished(lab) is not None
        if ended or done >= runs and runs != now:
            return done
        if time.monotonic() - moved > RUN_TIMEOUT_S:
            raise Dead(f"no run was added within {RUN_TIMEOUT_S} s, at {done}: {lab.sh('tail -5 /run/sweep.log')}")
        time.sleep(1)


def report(lab, planned):
    """What is in the report."""
