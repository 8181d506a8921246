"""The papers' Table 1 runs unattended, is killed, loses its power, and goes on to a full report and to `tune`.

Twice it is stopped without a word: once the process, by `kill -9`, and once the machine. Both times the drives
still bear an array, and after the kill changed queues as well. `sweep resume` (after the cut, `layout undo`
first) has to find what was left, restore it, and make the missing runs, no more.
"""

import os
import re
import subprocess
import time

from guest import Dead

IOPS = 500
RESULTS = "/state/table1"
SPACE = "/payload/spaces/table1.toml"
# All of it, with runs so short that it takes hours and not days.
FULL = "/payload/examples/dash-io.toml --runtime=200ms --ramp_time=100ms --passes=2 --size=64m --seed=1"
STALLED_S = 180  # without a run added, on a host that may be busy
FIGURES = set(range(4, 15))  # of DASH-IO that a report shows


def run(lab):
    lab.guest.limit(iops=IOPS)
    lab.sh("modprobe kyber-iosched; modprobe bfq")
    before = lab.footprint(interrupts=False)
    space = FULL if lab.full else SPACE
    answer = lab.guest.run(f"flashwright sweep plan {space} --json")
    lab.must(answer)
    planned = answer.json["runs"]

    start(lab, f"flashwright sweep run {space} --output {RESULTS}")
    reached = wait(lab, planned // 8)
    killed = lab.guest.run("kill -9 $(cat /run/sweep.pid)")
    lab.check("is killed in its midst", killed.code == 0 and reached < planned, f"at {reached} of {planned} runs")
    stands = lab.flashwright("layout", "show")
    lab.check("what a killed sweep leaves is shown, and how it is undone", "layout undo" in stands.out, str(stands))

    start(lab, f"flashwright sweep resume {RESULTS}")
    reached = wait(lab, planned // 4)
    lab.check("goes on after kill -9", planned // 4 <= reached < planned and finished(lab) is None, f"at {reached} of {planned} runs: {log(lab)}")

    lab.guest.cut_power()
    lab.boot()
    lab.guest.limit(iops=IOPS)
    kept = stored(lab)
    lab.check("a power cut costs at most the run in progress", kept >= reached, f"{reached} before, {kept} after")
    undone = lab.flashwright("layout", "undo")
    lab.check("`layout undo` restores after a power cut", undone.code == 0, str(undone))
    lab.sh("modprobe kyber-iosched; modprobe bfq")
    lab.unchanged("after it nothing of the layout is left", before, interrupts=False)

    start(lab, f"flashwright sweep resume {RESULTS}")
    wait(lab, planned)
    lab.require("runs to its end unattended", ends(lab) == 0, log(lab))
    lab.unchanged("leaves the drives and their queues as they were", before, interrupts=False)
    report(lab, planned)
    tune(lab)


def start(lab, command):
    """Has the guest run a sweep by itself."""
    lab.sh(f"""rm -f /run/sweep.code
        setsid sh -c '{command} > /run/sweep.log 2>&1 & echo $! > /run/sweep.pid; wait $!; echo $? > /run/sweep.code' > /dev/null 2>&1 &
        until [ -s /run/sweep.pid ]; do sleep 0.1; done""")


def log(lab):
    return lab.sh("tail -n 5 /run/sweep.log").strip().replace("\n", " | ")


def finished(lab):
    """The exit code of the sweep, none while it runs."""
    text = lab.sh("cat /run/sweep.code 2>/dev/null; true").strip()
    return int(text) if text else None


def ends(lab):
    """The exit code, waited for: after the last run the report is made."""
    due = time.monotonic() + STALLED_S
    while time.monotonic() < due:
        code = finished(lab)
        if code is not None:
            return code
        time.sleep(1)
    raise Dead(f"the sweep did not end within {STALLED_S} s of its last run: {log(lab)}")


def stored(lab):
    """Runs in results.db, 0 before there is one."""
    answer = lab.flashwright("sweep", "status", RESULTS)
    found = re.search(r": ([\d,]+) of ([\d,]+) runs|all ([\d,]+) runs", answer.out)
    return int((found[1] or found[3]).replace(",", "")) if found else 0


def wait(lab, runs):
    """Until so many runs are stored, or the sweep has ended; how many there are. One that stands still is given up."""
    done, moved = 0, time.monotonic()
    while True:
        ended = finished(lab) is not None
        now = stored(lab)
        if now != done:
            done, moved = now, time.monotonic()
        if ended or done >= runs:
            return done
        if time.monotonic() - moved > STALLED_S:
            raise Dead(f"no run was added within {STALLED_S} s, at {done}: {log(lab)}")
        time.sleep(2)


def report(lab, planned):
    """Every run is there once, and the report shows the papers' figures."""
    answer = lab.flashwright("report", RESULTS, "--format", "json")
    lab.must(answer)
    counted = sum(sum(point["runs"].values()) for point in answer.json["points"])
    lab.check("every planned run is in the report, once", counted == planned, f"{counted} of {planned}")
    local = os.path.join(lab.output or lab.guest.directory, "report.html")
    lab.guest.fetch(f"{RESULTS}/report.html", local)
    lab.guest.fetch(f"{RESULTS}/results.json", os.path.join(os.path.dirname(local), "results.json"))
    with open(local, encoding="utf-8") as file:
        titles = re.findall(r"DASH-IO,? Figs?\. ([\d, –and]+)", file.read())
    shown = {int(number) for title in titles for number in re.findall(r"\d+", title)}
    lab.check("the report shows the papers' Figs. 4 to 14", FIGURES <= shown, f"lacking {sorted(FIGURES - shown)}")


def tune(lab):
    """The answer is set and set back, byte for byte, and written down for good."""
    # From settings that no sweep here recommends, so that there is something to change and to set back.
    lab.sh("for drive in /sys/block/nvme*; do echo kyber > $drive/queue/scheduler; echo 777 > $drive/queue/nr_requests; done")
    before = lab.footprint()
    answer = lab.flashwright("tune", "show", RESULTS)
    lab.require("`tune show` tells the settings", answer.code == 0, str(answer))
    answer = lab.flashwright("tune", "apply", RESULTS)
    changed = sorted(set(before) ^ set(lab.footprint()))
    lab.check("`tune apply` sets them", answer.code == 0 and any("scheduler" in line for line in changed), f"{len(changed)} lines differ; {answer}")
    answer = lab.flashwright("tune", "undo")
    lab.check("`tune undo` works", answer.code == 0, str(answer))
    lab.unchanged("`tune undo` leaves /sys as it was, byte for byte", before)
    exported(lab)


def exported(lab):
    """The files can be read by those for whom they are."""
    answer = lab.flashwright("tune", "export", RESULTS, "--output", "/state/tuned")
    names = lab.sh("ls /state/tuned").split() if answer.code == 0 else []
    lab.check("`tune export` writes udev rules, a tuned profile and a script", {"60-flashwright.rules", "tuned.conf"} < set(names), str(answer))
    for name in (name for name in names if name.endswith(".sh")):
        local = os.path.join(lab.output or lab.guest.directory, name)
        lab.guest.fetch(f"/state/tuned/{name}", local)
        parsed = subprocess.run(["bash", "-n", local], stderr=subprocess.PIPE, text=True)
        lab.check(f"bash can parse {name}", parsed.returncode == 0, parsed.stderr.strip())
