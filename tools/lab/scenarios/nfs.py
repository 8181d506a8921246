"""Moves to a real NFS server survive kills, the server's restarts and power cuts, ESTALE, and a race for a name.

The kernel's server (knfsd) exports an XFS on a drive that forgets what was not flushed (`tools/lab/forgetful.py`), and
the same guest mounts it over TCP with NFSv4.2, later with version 3. A network namespace with a name of its own is
the second host. The server's power is cut while its clients run on: its threads are stopped, the drive loses what was not
flushed and fails every request until the file system is unmounted. Its clients have the data that no COMMIT covered, and
send it again. What is at the destination is read on the server, around the clients' caches.
"""

import time

from scenarios import stage as tiers
from scenarios.stage import digests, ends, same, serve, stage, told, until

BOOTS = True  # a machine of its own

FAST, SERVER, JOURNAL = range(3)
SLOW_BYTES_PER_S = 4 << 20  # so that a move has a midst
STATE = tiers.STATE
ROUNDS = 2

NODES = tiers.NODES
# A lease of ten seconds is the shortest, and a server that has restarted gives its clients as long to come back.
SERVE = f"""{NODES}
    serve_nfs() {{
        mount -t xfs "$(node {SERVER})" /export || return
        echo 10 > /proc/fs/nfsd/nfsv4leasetime; echo 10 > /proc/fs/nfsd/nfsv4gracetime
        exportfs -o rw,sync,no_root_squash,no_subtree_check,fsid=1 '*:/export' && rpc.nfsd 4
    }}
    stop_nfs() {{ rpc.nfsd 0; exportfs -ua; exportfs -f; umount /export; }}
"""
LATE_RENAMES = "strace -f --seccomp-bpf -qq -o /dev/null -e trace=renameat -e inject=renameat:delay_enter=3000000"
MOUNT = "/bin/busybox timeout 60 mount.nfs"


def run(lab):
    try:
        begin(lab)
        killed(lab)
        server_restarts(lab)
        server_loses_power(lab)
        stale(lab)
        race(lab)
        version_3(lab)
        all_lose_power(lab)
    finally:
        # The next scenario wants the sixteen drives.
        lab.cut_power()


def begin(lab):
    lab.boot(fresh=True, forgetful_drives=3)
    lab.sh(f"""{NODES}
        mkfs.xfs -q "$(node {SERVER})"
        for index in {FAST} {JOURNAL}; do mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$(node $index)"; done""")
    up(lab)
    lab.sh("mkdir -p /fast/run /export/run")
    lab.sets = {f"ckpt-{n}": make(lab, f"ckpt-{n}") for n in range(1, 8)}
    lab.sh("sync -f /fast/run; sync")
    mounted = lab.sh("grep ' /slow ' /proc/mounts")
    lab.require("the slow tier is NFSv4.2 over TCP", "nfs4" in mounted and "vers=4.2" in mounted and "proto=tcp" in mounted, mounted.strip())


def up(lab):
    """The drives of both sides, the server, and the first host's mount, as after each boot."""
    lab.sh(f"""{SERVE}
        modprobe xfs; modprobe nfsd; modprobe nfsv4; modprobe nfsv3; modprobe veth
        mkdir -p /fast /slow /slow3 /second /journal /export /state/recovery /var/lib/nfs /run/rpcbind
        mount -t ext4 "$(node {FAST})" /fast && mount -t ext4 "$(node {JOURNAL})" /journal && mkdir -p {STATE} || exit
        /usr/sbin/ip link set lo up
        : > /etc/exports; : > /var/lib/nfs/etab
        mount -t nfsd nfsd /proc/fs/nfsd
        # What the server has to know of its clients after a restart outlives it.
        echo /state/recovery > /proc/fs/nfsd/nfsv4recoverydir
        rpcbind && rpc.mountd && serve_nfs || exit
        # Nobody was a client before this boot.
        echo Y > /proc/fs/nfsd/v4_end_grace
        {MOUNT} 127.0.0.1:/export /slow -o vers=4.2,proto=tcp,timeo=20""", timeout=240)


def make(lab, name):
    """A set of chunks and small files on the fast tier; digests of all of them, which the tool has no part in."""
    lab.sh(f"""
        mkdir -p /fast/run/{name}/ranks
        dd if=/dev/urandom of=/fast/run/{name}/field bs=1000003 count=9 2> /dev/null
        for n in $(seq 12); do head -c $((n * 3970)) /dev/urandom > /fast/run/{name}/ranks/rank-$n; done
        : > /fast/run/{name}/empty""")
    return digests(lab, f"/fast/run/{name}")


def begun(lab, name, *words):
    """A move that has written, and has not ended, by a server that has the drive's whole speed to itself."""
    lab.guest.limit([SERVER], bytes_per_s=SLOW_BYTES_PER_S)
    number = stage(lab, "mv", *words, f"/fast/run/{name}", "/slow/run/")
    job = until(lab, number, lambda job: job["bytes_written"] > 0 or job["level"] == "durable")
    lab.require(f"{name} is under way", job["level"] != "durable", told(job))
    return number


def moved(lab, number, name, how):
    """The job ends well, and everything is where it should be: read on the server."""
    lab.guest.limit(iops=0)
    job = ends(lab, number)
    lab.require(f"{how}: the move comes to its end", job["state"] == "done" and not job.get("error"), told(job))
    same(lab, f"{how}: {name} is there, bit for bit", "/export/run", name)
    answer = lab.flashwright("stage", "verify", f"/slow/run/{name}")
    lab.check(f"{how}: `stage verify` finds {name} right", answer.code == 0, str(answer))
    lab.check(f"{how}: its source is gone", lab.guest.run(f"[ ! -e /fast/run/{name} ]").code == 0)
    beside(lab, how)


def beside(lab, how):
    """No part, no claim, and none of the names that NFS gives to files that are removed while they are open."""
    names = lab.sh("ls -A /export/run").split()
    strange = [name for name in names if name.startswith(".") or not (name.startswith("ckpt-") or name == "latest")]
    empty = lab.sh("find /export/run -maxdepth 1 -type d -empty").split()
    lab.check(f"{how}: nothing is left beside it", not strange and not empty, " ".join(strange + empty) or " ".join(names))


def kill(lab):
    """Kills the server. It ends, and its socket with it, only when the NFS requests that it waits for are answered."""
    lab.sh("""for process in $(pidof flashwright); do
            kill -9 $process
            while [ -e /proc/$process ]; do
                grep -qs '^State:.Z' /proc/$process/status && [ $(ls /proc/$process/task | wc -l) = 1 ] && break
                sleep 0.1
            done
        done""", timeout=600)


def killed(lab):
    serve(lab)
    number = begun(lab, "ckpt-1", "--latest")
    for moment in (0, 1.2, 2.4):
        time.sleep(moment)
        kill(lab)
        names = lab.sh("ls -A /export/run; ls -A /export/run/ckpt-1 2> /dev/null || true").split()
        # An empty directory of that name is a claim.
        lab.check("killed: nothing half is visible", "field" not in names or whole(lab, "ckpt-1"), " ".join(names))
        serve(lab)
    moved(lab, number, "ckpt-1", "killed three times")
    lab.check("killed three times: `latest` points to it", lab.sh("readlink /export/run/latest").strip() == "ckpt-1")
    # That the guest takes the path that this is about.
    operations = lab.sh("grep -E '^[[:space:]]*(LINK|CREATE|RENAME|COMMIT):' /proc/self/mountstats").split("\n")
    made = {words[0]: int(words[1]) for words in (line.split() for line in operations) if words}
    lab.check("the server was asked for directories, a rename and commits", made.get("CREATE:", 0) > 1 and made.get("RENAME:", 0) > 0 and made.get("COMMIT:", 0) > 0, str(made))
    lab.sh("head -c 70000 /dev/urandom > /fast/run/single")
    answer = foreground(lab, "mv", "/fast/run/single", "/slow/run/ckpt-single")
    linked = int(lab.sh("grep -E '^[[:space:]]*LINK:' /proc/self/mountstats").split()[1])
    lab.check("a file gets its name by link(2)", answer.code == 0 and linked > made.get("LINK:", 0), f"{answer}, {linked} calls")


def foreground(lab, verb, source, destination):
    return lab.guest.run(f"flashwright stage {verb} --foreground --state /journal/own {source} {destination}", timeout=180)


def whole(lab, name):
    return digests(lab, f"/export/run/{name}") == lab.sets[name]


def server_restarts(lab):
    number = begun(lab, "ckpt-2")
    answer = lab.guest.run(f"{SERVE} stop_nfs && sleep 2 && serve_nfs", timeout=120)
    lab.require("the server restarts in the midst of a move", answer.code == 0, str(answer))
    moved(lab, number, "ckpt-2", "the server restarted")


def server_loses_power(lab):
    number = begun(lab, "ckpt-3")
    lab.sh("head -c 3000000 /dev/urandom > /export/unsynced; md5sum < /export/unsynced > /run/unsynced; rpc.nfsd 0")
    at_stake = lab.guest.forgetful[SERVER].go_off()
    answer = lab.guest.run(f"{SERVE} stop_nfs; ! grep -q ' /export ' /proc/mounts", timeout=120)
    lab.require("a server without power goes down", answer.code == 0, str(answer))
    lab.guest.forgetful[SERVER].come_back()
    answer = lab.guest.run(f"{SERVE} serve_nfs", timeout=120)
    lab.require("the server comes back", answer.code == 0, str(answer))
    lab.check("control: what nobody synced on it is not whole", lab.guest.run("[ \"$(md5sum < /export/unsynced)\" != \"$(cat /run/unsynced)\" ]").code == 0,
              f"{at_stake} bytes were not flushed")
    moved(lab, number, "ckpt-3", "the server lost its power")


def stale(lab):
    """The directory that is written to is taken away on the server; all that its clients hold of it is stale."""
    number = begun(lab, "ckpt-4")
    lab.sh("""mv /export/run /export/aside && mkdir /export/run && mv /export/aside/* /export/run/ || exit
        # Its clients go on writing into it for a moment.
        for n in $(seq 20); do rm -rf /export/aside 2> /dev/null && exit; done; exit 1""")
    job = ends(lab, number)
    lab.check("ESTALE: the job is done in the new directory, or fails and says why", job["state"] == "done" or bool(job["error"]["message"]), told(job))
    if job["state"] != "done":
        same(lab, "ESTALE: the source of what failed is whole", "/fast/run", "ckpt-4")
        answer = lab.guest.run(f"{tiers.ENVIRONMENT}flashwright stage retry {number}")
        lab.must(answer)
    moved(lab, number, "ckpt-4", "ESTALE")


def race(lab):
    """Two hosts want one name, with other bytes each. One gets it; the other is refused, and keeps its source. Every plain
    rename(2) of theirs begins three seconds late, so that both have seen that the name is free before either takes it."""
    answer = lab.guest.run(f"""
        unshare -n -u sh -c '/bin/busybox hostname second; echo $$ > /run/second; exec sleep 10000' > /dev/null 2>&1 &
        for n in $(seq 100); do [ -s /run/second ] && break; sleep 0.1; done
        second=$(cat /run/second); ip=/usr/sbin/ip
        $ip link add wire0 type veth peer name wire1 && $ip link set wire1 netns $second || exit
        $ip addr add 10.9.0.1/24 dev wire0 && $ip link set wire0 up || exit
        nsenter -t $second -n -u sh -c "$ip link set lo up; $ip addr add 10.9.0.2/24 dev wire1; $ip link set wire1 up
            {MOUNT} 10.9.0.1:/export /second -o vers=4.2,proto=tcp,timeo=20" """, timeout=120)
    lab.must(answer)
    clients = lab.sh("cat /proc/fs/nfsd/clients/*/info | grep name:")
    lab.require("the server has two clients", "lab" in clients and "second" in clients, clients.replace("\n", " "))
    for kind in ("file", "directory"):
        lab.sh("rm -rf /fast/race; mkdir -p /fast/race /export/race")
        for n in range(ROUNDS):
            answers = lab.sh(f"""
                for host in slow second; do
                    source=/fast/race/$host-{n}; what=$source
                    [ {kind} = file ] || {{ mkdir $source; what=$source/rank-0; }}
                    head -c 50000 /dev/urandom > $what
                    md5sum < $what > /run/$host.sum
                    ({LATE_RENAMES} flashwright stage mv --foreground --state /journal/$host $source /$host/race/{kind}-{n} > /run/$host.out 2>&1; echo $? > /run/$host.code) &
                done
                wait
                cat /run/slow.code /run/second.code
                found=/export/race/{kind}-{n}; [ -f $found ] || found=$found/rank-0
                sum=$(md5sum < $found)
                for host in slow second; do [ "$sum" = "$(cat /run/$host.sum)" ] && echo $host; done
                for host in slow second; do [ -e /fast/race/$host-{n} ] && echo kept-$host; done
                tail -n 1 /run/slow.out /run/second.out""", timeout=180).split("\n")
            codes = [int(word) for word in answers[:2]]
            winner = ["slow", "second"][codes.index(0)] if 0 in codes else None
            loser = {"slow": "second", "second": "slow"}.get(winner)
            lab.check(f"of two hosts that want one name for a {kind}, one gets it, and the other keeps its source",
                      codes.count(0) == 1 and answers[2:4] == [winner, f"kept-{loser}"], " | ".join(answers))
        # The part of a job that failed stays for `stage retry`.
        left = [name for name in lab.sh("ls -A /export/race").split() if not name.endswith(".part")]
        lab.check(f"nothing is left beside the {kind} that was won", sorted(left) == sorted(f"{kind}-{n}" for n in range(ROUNDS)), " ".join(left))
        lab.sh("rm -rf /export/race /fast/race")


def version_3(lab):
    lab.sh(f"{MOUNT} 127.0.0.1:/export /slow3 -o vers=3,proto=tcp,mountproto=tcp,nolock,timeo=20")
    lab.guest.limit([SERVER], bytes_per_s=SLOW_BYTES_PER_S)
    number = stage(lab, "mv", "/fast/run/ckpt-5", "/slow3/run/")
    job = until(lab, number, lambda job: job["bytes_written"] > 0 or job["level"] == "durable")
    kill(lab)
    answer = lab.guest.run(f"{SERVE} stop_nfs && serve_nfs", timeout=120)
    lab.require("version 3: a kill and a restart of the server in the midst of a move", answer.code == 0 and job["level"] != "durable", f"{answer}; {told(job)}")
    serve(lab)
    moved(lab, number, "ckpt-5", "version 3")


def all_lose_power(lab):
    """Server and client lose their power the moment a copy is said to be durable, with a move under way beside it."""
    lab.guest.limit(iops=0)
    # Another is held to so little that it is under way for longer than the copy takes.
    number = stage(lab, "mv", "--bwlimit", "400kB/s", "/fast/run/ckpt-7", "/slow/run/")
    until(lab, number, lambda job: job["bytes_written"] > 0)
    answer = foreground(lab, "cp", "/fast/run/ckpt-6", "/slow/run/")
    at_stake = lab.cut_power()
    lab.require("a copy in the foreground ends well", answer.code == 0, f"{answer}; cut with {at_stake} bytes not flushed")
    lab.boot()
    up(lab)
    for name in ("ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4", "ckpt-5", "ckpt-6"):
        same(lab, f"after a power cut of all: {name} is there, bit for bit", "/export/run", name)
    same(lab, "after a power cut of all: the source of the copy is whole", "/fast/run", "ckpt-6")
    same(lab, "after a power cut of all: the source of what was under way is whole", "/fast/run", "ckpt-7")
    serve(lab)
    moved(lab, number, "ckpt-7", "under way when all lost their power")
    left = [name for name in lab.sh("ls /fast/run").split() if name.startswith("ckpt")]
    lab.check("after a power cut of all: the sources of the moves are gone", left == ["ckpt-6"], " ".join(left))
