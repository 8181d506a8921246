"""Moves between tiers survive power cuts on drives that forget, and a clock that jumps.

The fast tier, the slow tier and the journal lie on drives with a volatile write cache of their own
(`tools/lab/forgetful.py`): what one of them was told to flush says nothing about the others. Three times the power
goes: in the midst of a move; the moment a move is said to be durable, its source gone; and the moment a copy is said
to be, while another move is under way. The first two times the drives lose everything that they need not keep, the
third time what chance has them lose. That they do forget is seen beside it, on a drive that nobody flushes.
"""

import os
import random
import re
import time

from guest import Dead

BOOTS = True  # a machine of its own

FAST, SLOW, JOURNAL, CONTROL, RAW = range(5)
SLOW_BYTES_PER_S = 3 << 20  # so that a move has a midst
SET_BYTES = 15 << 20  # at the least
STATE = "/journal/stage"
STALLED_S = 180
DAY_S = 86400
RATE = 600_000  # bytes a second that a move is held to while the clock jumps
BURST = 8 << 20  # that a limit may let pass at once, docs/qos.md

NODES = """
    node() { for disk in /sys/block/vd*; do [ "$(cat $disk/serial)" = forgetful$1 ] && echo /dev/${disk##*/}; done; }
"""
ENVIRONMENT = f"export FLASHWRIGHT_STAGE_SOCKET={STATE}/stage.sock\n"


def run(lab):
    try:
        in_the_midst(lab)
        said_to_be_durable(lab)
        beside_another(lab)
        clock(lab)
    finally:
        # The next scenario wants the sixteen drives.
        lab.cut_power()


def in_the_midst(lab):
    """A move by the server loses its power between its first byte and its last."""
    lab.boot(fresh=True, forgetful_drives=5)
    lab.sh(f"""{NODES}
        mkfs.xfs -q "$(node {FAST})"
        for index in {SLOW} {JOURNAL}; do mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$(node $index)"; done""")
    mount(lab)
    lab.sets = {name: make(lab, name) for name in ("ckpt-1", "ckpt-2", "ckpt-3")}
    lab.sh("sync")
    serve(lab)
    lab.guest.limit([SLOW], bytes_per_s=SLOW_BYTES_PER_S)
    control(lab)
    # Written and read back, the set takes twice its bytes of the throttle's time, whatever the host does.
    longest = time.monotonic() + 2 * SET_BYTES / SLOW_BYTES_PER_S - 1
    stage(lab, "mv", "--latest", "/fast/run/ckpt-1", "/slow/run/")
    job = until(lab, 1, lambda job: job["bytes_written"] > 0 or job["level"] == "durable")
    time.sleep(max(0, min(random.uniform(0, 4), longest - time.monotonic())))
    at_stake = lab.cut_power()
    lab.require("the power goes in the midst of a move", job["level"] != "durable" and job["bytes_written"] > 0, told(job, at_stake))

    lab.boot()
    forgotten(lab)
    recovered(lab, "in the midst of a move")
    hidden(lab, "ckpt-1")
    same(lab, "its source is whole", "/fast/run", "ckpt-1")


def said_to_be_durable(lab):
    """The move goes on by itself; right when it is said to be durable, and its source gone, the power goes."""
    serve(lab)
    answer = lab.guest.run(f"{ENVIRONMENT}flashwright stage wait 1 --level durable --timeout 5m", timeout=400)
    at_stake = lab.cut_power()
    lab.require("the next server goes on, and the move is durable", answer.code == 0, f"{answer}; cut with {at_stake[SLOW]} bytes not flushed")

    lab.boot()
    recovered(lab, "as soon as a move was said to be durable")
    copied(lab, "ckpt-1")
    lab.check("its source is gone", lab.guest.run("[ ! -e /fast/run/ckpt-1 ]").code == 0)
    lab.check("`latest` points to it", lab.sh("readlink /slow/run/latest").strip() == "ckpt-1")


def beside_another(lab):
    """A copy in the foreground ends while the server moves another set; the power goes, and chance decides what is kept."""
    seed = int.from_bytes(os.urandom(4), "big")
    serve(lab)
    job = status(lab, 1)
    lab.check("the server knows that the move is done", job["state"] == "done", told(job))
    # The other is held to half a megabyte a second, so that it is under way for longer than the copy takes.
    stage(lab, "mv", "--bwlimit", "500kB/s", "/fast/run/ckpt-3", "/slow/run/")
    answer = lab.guest.run("flashwright stage cp --foreground --state /journal/own /fast/run/ckpt-2 /slow/run/", timeout=300)
    at_stake = lab.cut_power(random.Random(seed))
    lab.require("a copy in the foreground ends well beside it", answer.code == 0, f"{answer}; cut with {at_stake} bytes not flushed, seed {seed}")

    lab.boot()
    recovered(lab, "as soon as a copy was said to be durable, beside another", f"seed {seed}")
    copied(lab, "ckpt-2")
    same(lab, "its source is whole", "/fast/run", "ckpt-2")
    if lab.guest.run("[ -e /slow/run/ckpt-3 ]").code == 0:
        copied(lab, "ckpt-3")  # the host let the copy take longer than it
    else:
        hidden(lab, "ckpt-3")
        same(lab, "the other's source is whole", "/fast/run", "ckpt-3")
    serve(lab)
    job = ends(lab, 2)
    lab.check("the other goes on to its end", job["state"] == "done", told(job))
    copied(lab, "ckpt-3")


def clock(lab):
    """While a limited move runs, somebody waits for it and room is reserved, the clock goes a day forward, then two back."""
    lab.sh("""mkdir -p /fast/pool
        printf '[pool.scratch]\\npath = "/fast/pool"\\nquota = "64m"\\n' > /journal/pools.toml
        mkdir /journal/pools""")
    reservation = lab.flashwright("stage", "pools", "reserve", "scratch", "ckpt-9", "--size", "8m", "--json", *POOLS)
    lab.must(reservation)
    begun = uptime(lab)
    limited = stage(lab, "cp", "--latest", "--bwlimit", str(RATE), "/fast/run/ckpt-2", "/slow/clock/")
    # At its own limit it would be there in time, had the clock not been set past its deadline.
    late = stage(lab, "cp", "--deadline", "2h", "--bwlimit", "200kB/s", "/slow/run/ckpt-3", "/slow/late/")
    lab.sh(f"""{ENVIRONMENT}
        setsid sh -c 'flashwright stage wait {limited} --timeout 10m; echo $? > /run/waited' > /dev/null 2>&1 &""")
    until(lab, limited, lambda job: job["bytes_written"] > 0)

    for jump, said in ((DAY_S, "a day forward"), (-2 * DAY_S, "two days back")):
        lab.sh(f"date -s @$(( $(date +%s) + {jump} )) > /dev/null")
        sane(lab, said)
        held = [row["id"] for row in pool(lab)["reservations"]]
        lab.check(f"set {said}: the reservation stays", held == [reservation.json["reservation"]["id"]], str(held))
        if jump > 0:
            job = ends(lab, late)
            lab.check("set forward past its deadline: a job is held by nothing any more, and says why",
                      job["state"] == "done" and any("clock was set" in note for note in job["notes"]), told(job))

    # What is newest goes by number, and not by when it was made.
    lab.sh("cp -a /fast/run/ckpt-2 /fast/run/ckpt-4")
    job = ends(lab, stage(lab, "cp", "--latest", "--keep-slow", "1", "/fast/run/ckpt-4", "/slow/clock/"))
    lab.check("after the clock was set back `latest` moves on", job["state"] == "done" and latest(lab) == "ckpt-4", f"{latest(lab)}; {told(job)}")
    answer = lab.guest.run(f"{ENVIRONMENT}flashwright stage doctor")
    lab.check("doctor sees that the clock was set back", "the clock was set back" in answer.out, answer.out.strip())

    job = ends(lab, limited)
    took = uptime(lab) - begun
    least = (job["bytes_total"] - BURST) / RATE
    lab.check("a limit holds whatever the clock says", job["state"] == "done" and took >= least, f"{took:.1f} s, not below {least:.1f} s")
    waited = lab.sh("for n in $(seq 300); do [ -s /run/waited ] && break; sleep 0.1; done; cat /run/waited").strip()
    lab.check("who waits is told", waited == "0", waited)
    copied(lab, "ckpt-2", "/slow/clock")
    lab.check("and `latest` does not go back to what is older by number", latest(lab) == "ckpt-4", latest(lab))
    answer = lab.flashwright("stage", "pools", "release", reservation.json["reservation"]["id"], *POOLS)
    lab.check("the reservation is given back", answer.code == 0 and pool(lab)["reserved"] == 0, str(answer))


def latest(lab):
    return lab.sh("readlink /slow/clock/latest").strip()


POOLS = ("--config", "/journal/pools.toml", "--ledger", "/journal/pools")


def pool(lab):
    answer = lab.flashwright("stage", "pools", "list", "--json", *POOLS)
    lab.must(answer)
    return answer.json["pools"][0]


def uptime(lab):
    """Seconds since boot, which no setting of the clock changes."""
    return float(lab.sh("cat /proc/uptime").split()[0])


def sane(lab, said):
    """Nothing that is shown is negative, and what has passed has not passed in the future."""
    answer = lab.guest.run(f"{ENVIRONMENT}flashwright stage status --all")
    lab.check(f"set {said}: status shows no negative time", answer.code == 0 and not re.search(r"-\d+(\.\d+)? (ns|µs|ms|s|min|h|d)\b", answer.out),
              answer.out.splitlines()[0])


def mount(lab):
    """The tiers and the journal's place, as after each boot."""
    lab.sh(f"""{NODES}
        modprobe xfs
        mkdir -p /fast /slow /journal
        mount -t xfs "$(node {FAST})" /fast && mount -t ext4 "$(node {SLOW})" /slow && mount -t ext4 "$(node {JOURNAL})" /journal
        mkdir -p /fast/run /slow/run /slow/clock /slow/late {STATE} /journal/own""")


def recovered(lab, when, beside=""):
    """The file systems come up by themselves, with what the drives have kept."""
    lab.guest.limit(iops=0)
    answer = lab.guest.run(f"""{NODES}
        modprobe xfs
        mkdir -p /fast /slow /journal
        mount -t xfs "$(node {FAST})" /fast && mount -t ext4 "$(node {SLOW})" /slow && mount -t ext4 "$(node {JOURNAL})" /journal""")
    lab.require(f"cut {when}: all file systems mount", answer.code == 0, f"{answer} {beside}".strip())


def make(lab, name):
    """A set of large and small files on the fast tier; digests of all of them, which the tool has no part in."""
    lab.sh(f"""
        mkdir -p /fast/run/{name}/ranks
        dd if=/dev/urandom of=/fast/run/{name}/field bs=1M count=9 2> /dev/null
        dd if=/dev/urandom of=/fast/run/{name}/mesh bs=1000003 count=6 2> /dev/null
        for n in $(seq 60); do head -c $((n * 397)) /dev/urandom > /fast/run/{name}/ranks/rank-$n; done
        : > /fast/run/{name}/empty""")
    return digests(lab, f"/fast/run/{name}")


def digests(lab, directory):
    return lab.sh(f"cd {directory} && find . -type f ! -name .flashwright-manifest | sort | xargs md5sum").splitlines()


def same(lab, sentence, parent, name):
    found = digests(lab, f"{parent}/{name}") if lab.guest.run(f"[ -d {parent}/{name} ]").code == 0 else ["it is not there"]
    differing = sorted(set(found) ^ set(lab.sets[name]))
    return lab.check(sentence, not differing, "; ".join(differing[:6]) or f"{len(found)} files")


def copied(lab, name, parent="/slow/run"):
    """Whole at the destination: by our own digests, and by its manifest."""
    same(lab, f"{name} is there, bit for bit", parent, name)
    answer = lab.flashwright("stage", "verify", f"{parent}/{name}")
    lab.check(f"`stage verify` finds {name} right", answer.code == 0, str(answer))


def hidden(lab, name):
    """Under its final name nothing is to be seen, and beside it nothing but what is hidden."""
    names = lab.sh("ls -A /slow/run").split()
    strange = [other for other in names if other == name or not (other in lab.sets or other == "latest" or re.fullmatch(r"\.ckpt-\d\..*\.part", other))]
    lab.check(f"nothing half is visible of {name}", not strange, " ".join(names))


def control(lab):
    """What must not survive: a copy that nobody syncs, and writes around the page cache that nobody flushes. The kernel
    is told not to write back by itself, which it would do some time, and would have to be waited for."""
    lab.sh(f"""{NODES}
        echo 0 > /proc/sys/vm/dirty_writeback_centisecs
        mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$(node {CONTROL})"
        mkdir -p /control && mount -o commit=3600 "$(node {CONTROL})" /control && sync /control
        cp -r /fast/run/ckpt-3 /control/
        dd if=/fast/run/ckpt-3/field of="$(node {RAW})" bs=1M count=4 oflag=direct 2> /dev/null""")


def forgotten(lab):
    answer = lab.guest.run(f"""{NODES}
        mkdir -p /control && mount "$(node {CONTROL})" /control && cd /control/ckpt-3 && find . -type f | sort | xargs md5sum""")
    lab.check("control: a copy that nobody synced is not whole", answer.out.splitlines() != lab.sets["ckpt-3"], f"{len(answer.out.splitlines())} files of {len(lab.sets['ckpt-3'])}")
    left = lab.sh(f"""{NODES} dd if="$(node {RAW})" bs=1M count=4 iflag=direct 2> /dev/null | tr -d '\\0' | wc -c""").strip()
    lab.check("control: what was written to a drive and not flushed is forgotten", left == "0", f"{left} bytes of 4 MiB left")


def serve(lab):
    """A server, by itself; it answers before this returns, or what every process of ours waits for is shown."""
    lab.sh(f"""{ENVIRONMENT}
        setsid flashwright stage serve --state {STATE} > /run/serve.log 2>&1 &
        due=$(($(date +%s) + {STALLED_S}))
        while [ $(date +%s) -lt $due ]; do
            timeout 30 flashwright stage status > /dev/null 2>&1 && exit 0
            sleep 0.1
        done
        cat /run/serve.log >&2
        for process in /proc/[0-9]*; do
            grep -q flashwright $process/cmdline 2> /dev/null || continue
            echo "$(tr '\\0' ' ' < $process/cmdline): $(grep State $process/status) in $(cat $process/wchan)" >&2
            cat $process/stack >&2 2> /dev/null
        done
        exit 1""", timeout=STALLED_S + 120)


def stage(lab, verb, *words):
    """Hands a job in; its number."""
    answer = lab.guest.run(f"{ENVIRONMENT}flashwright stage {verb} {' '.join(words)}")
    lab.must(answer)
    return int(re.match(r"job (\d+):", answer.out)[1])


def status(lab, job):
    answer = lab.guest.run(f"{ENVIRONMENT}flashwright stage status {job} --json")
    lab.must(answer)
    return answer.json["jobs"][0]


def until(lab, job, reached, every_s=0):
    """A job's status, once it has come so far. Each question takes a second of the emulated machine's CPU time."""
    due = time.monotonic() + STALLED_S
    while time.monotonic() < due:
        found = status(lab, job)
        if reached(found) or found["state"] == "failed":
            return found
        time.sleep(every_s)
    raise Dead(f"job {job} stood still for {STALLED_S} s: {told(found)}")


def ends(lab, job):
    return until(lab, job, lambda found: found["state"] in ("done", "failed", "cancelled"), every_s=2)


def told(job, at_stake=None):
    words = f"{job['state']}, {job['level']}, {job['bytes_written']} of {job['bytes_total']} bytes written, {job['bytes_verified']} read back"
    words += f", {job['error']['message']}" if job.get("error") else ""
    words += "".join(f"; {note}" for note in job.get("notes", []))
    return words + (f"; not flushed: {at_stake}" if at_stake is not None else "")
