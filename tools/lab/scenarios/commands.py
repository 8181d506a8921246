"""NVMe commands to a namespace's character device read and write what its block device has, and are refused where that is.

`ioengine=io_uring_cmd`, polled and not, with and without a thread that submits, by flags and by a job file. What was written by
one node of a namespace is verified by the other. A namespace that is in use, or whose block device cannot be found, is
not written.
"""

from lab import drive
from scenarios.refusals import USES, bytes_of

BOOTS = True
SIZE = 8 << 20
# By the node that takes commands, of which the block device's own openers know nothing.
OPEN = ("is written by commands of another process", "setsid sleep 3600 1<>/dev/ng11n1 2>/dev/null & echo $! > /run/opener", "/dev/ng11n1 is open in process", "kill $(cat /run/opener)")
WAYS = [("", {}), (" and polled", {"hipri": 1}), (" and submitted by a thread", {"sqthread_poll": 1})]
JOB = """
[global]
filename=/dev/ng4n1
ioengine=io_uring_cmd
cmd_type=nvme
size=1m
bs=4k
iodepth=8
thread=1
stonewall=1
[write]
rw=randwrite
sqthread_poll=1
sqthread_poll_cpu=0
registerfiles=1
fixedbufs=1
nonvectored=1
write_mode=write
[forced]
rw=write
writefua=1
fsync=32
[read]
rw=randread
readfua=1
hipri=1
"""

# The last job leaves zeros behind the first megabyte, which the second has made.
OTHERS = """
[global]
filename=/dev/ng4n1
ioengine=io_uring_cmd
size=4m
iodepth=8
stonewall=1
[ranges]
rw=randtrim
bs=4k
num_range=8
[zeroes]
rw=write
bs=64k
write_mode=zeroes
[mixed]
rw=write
size=1m
bs=4k
write_mode=write/40:zeroes/40:verify/20
"""


def character(index):
    """The node that takes commands."""
    return f"/dev/ng{index}n1"


def run(lab):
    lab.boot(fresh=True, arguments="nvme.poll_queues=1")
    lab.guest.limit(iops=0)
    for index, (how, options) in enumerate(WAYS):
        verified(lab, index, how, options)
    striped(lab)
    job_file(lab)
    other_commands(lab)
    not_possible(lab)
    for index, use in enumerate([*USES, OPEN]):
        in_use(lab, 5 + index, *use)
    killed(lab, 12)
    not_stale(lab, 13)
    checked(lab)
    full(lab, 14)
    signed(lab)
    without_block_device(lab)


def moved(document):
    return document["record"]["total"]["write_bytes"]


def verified(lab, index, how, options):
    common = {"bs": "4k", "iodepth": 16, "size": SIZE, "time_based": 0, "verify": "crc32c"}
    command = {**common, **options, "ioengine": "io_uring_cmd"}
    document = lab.bench(character(index), rw="randwrite", **command)
    engine = document["record"]["engine"]
    lab.check(f"what commands have written{how} is read back and verified", moved(document) == SIZE and engine["used"] == "io_uring_cmd", str(engine["features"]))
    words = {"NVMe commands", "fixed buffers", "registered file"} | ({"iopoll"} if "hipri" in options else set()) | ({"sqpoll"} if "sqthread_poll" in options else set())
    lab.check(f"its features are told{how}", words <= set(engine["features"]), str(engine["features"]))
    unwatched = [warning["code"] for warning in document["record"]["warnings"]]
    lab.check("that nothing is counted by the block layer is told, and not taken for a cache", "W-UNWATCHED" in unwatched and "W-CACHED" not in unwatched, ", ".join(unwatched))
    answer = lab.flashwright("bench", "--rw=read", f"--size={SIZE}", "--bs=4k", "--iodepth=8", "--time_based=0", "--verify=crc32c", "--target", drive(index))
    lab.check(f"the block device has what commands have written{how}", answer.code == 0, str(answer))
    lab.bench(drive(index), rw="write", **common)
    answer = lab.flashwright("bench", "--rw=randread", *(f"--{name}={value}" for name, value in command.items()), "--target", character(index))
    lab.check(f"commands read what the block device has written{how}", answer.code == 0, str(answer))


def striped(lab):
    target = f"stripe(chunk=64k):{character(0)},{character(1)}"
    document = lab.bench(target, rw="write", bs="256k", iodepth=4, size=SIZE, time_based=0, verify="crc32c", fsync=4)
    lab.check("a stripe of namespaces is written by commands and verified", moved(document) == SIZE and document["record"]["engine"]["used"] == "io_uring_cmd")


def job_file(lab):
    lab.sh(f"cat > /tmp/commands.fio <<'END'\n{JOB}\nEND")
    answer = lab.flashwright("bench", "/tmp/commands.fio", "--json")
    lab.must(answer)
    done = [job["record"]["total"] for job in answer.json["jobs"]]
    lab.check("fio's job file for commands runs", [job["read_bytes"] + job["write_bytes"] for job in done] == 3 * [1 << 20], str(done))
    features = [job["record"]["engine"]["features"] for job in answer.json["jobs"]]
    lab.check("forced unit access is a flag of commands where it is asked for", ["writefua" in of for of in features] == [False, True, False] and "readfua" in features[2], str(features))


def other_commands(lab):
    """Discards as ranges of a command, and writes without data."""
    lab.sh(f"cat > /tmp/others.fio <<'END'\n{OTHERS}\nEND")
    lab.bench(drive(4), rw="write", bs="64k", size=SIZE, time_based=0, verify="crc32c")
    beyond = f"dd if={drive(4)} bs=1M skip=4 count=4 iflag=direct 2>/dev/null | sha256sum"
    before = lab.sh(beyond)
    answer = lab.flashwright("bench", "/tmp/others.fio", "--json")
    lab.must(answer)
    records = [job["record"] for job in answer.json["jobs"]]
    moved = [record["total"]["trim_bytes"] + record["total"]["write_bytes"] for record in records]
    lab.check("discards of several ranges, zeroes and mixed commands are done", moved == [4 << 20, 4 << 20, 1 << 20], str(moved))
    features = [record["engine"]["features"] for record in records]
    lab.check("the record says which commands wrote", "8 ranges a command" in features[0] and "write zeroes 100 %" in features[1] and "verify 20 %" in features[2], str(features))
    lab.check("what is discarded and zeroed ends where it should", lab.sh(beyond) == before)
    zeroes = lab.sh(f"dd if={drive(4)} bs=1M skip=1 count=3 iflag=direct 2>/dev/null | tr -d '\\0' | wc -c").strip()
    lab.check("write zeroes leaves zeros", zeroes == "0", f"{zeroes} bytes that are none")
    lab.sh("sed -i -e 's/^write_mode=zeroes/write_mode=uncor/' /tmp/others.fio")
    answer = lab.flashwright("bench", "/tmp/others.fio")
    lab.check("a command that the drive does not know fails with the drive's answer", answer.code == 1 and "Invalid Command Opcode" in answer.err, str(answer))


def not_possible(lab):
    for what, words, reason in [
        ("a command that is longer than the drive takes", ["--bs=4m", "--ioengine=io_uring_cmd", "--target", character(0)], "one command"),
        ("a block device by commands", ["--ioengine=io_uring_cmd", "--target", drive(0)], "character device"),
        ("a namespace without commands", ["--ioengine=psync", "--target", character(0)], "NVMe commands only"),
        ("the page cache, which commands pass by,", ["--direct=0", "--target", character(0)], "direct=0"),
        ("blocks that are no whole ones", ["--bs=100", "--ioengine=io_uring_cmd", "--target", character(0)], "bs=100"),
    ]:
        answer = lab.flashwright("bench", "--rw=randread", "--runtime=200ms", "--allow-unwritten", *words)
        lab.check(f"{what}: is refused with its reason", answer.code == 2 and reason in answer.err, str(answer))
    lab.check("auto sends commands to a character device", lab.bench(character(0), rw="randread", runtime="300ms")["record"]["engine"]["used"] == "io_uring_cmd")


def write(lab, index, *permit):
    return lab.flashwright("bench", "--rw=randwrite", "--bs=4k", "--size=16m", "--runtime=200ms", "--ioengine=io_uring_cmd", "--target", character(index), *permit)


def in_use(lab, index, use, prepare, reason, free):
    device, other = drive(index), drive(15)
    lab.sh(prepare.format(device, other))
    before = bytes_of(lab, device)
    answer = write(lab, index, "--destroy", character(index), "--destroy", device)
    lab.check(f"commands do not write to a namespace whose block device {use}", answer.code == 3 and reason in answer.err and character(index) in answer.err, str(answer))
    lab.check(f"a namespace whose block device {use} keeps its bytes", bytes_of(lab, device) == before)
    lab.check("it can be read by commands", lab.flashwright("bench", "--rw=randread", "--runtime=200ms", "--allow-unwritten", "--target", character(index)).code == 0)
    lab.sh(free.format(device, other))
    lab.sh(f"wipefs -qa {device}")


def killed(lab, index):
    """The claim goes with the last command, and not with the process that sent it."""
    words = f"--rw=randwrite --bs=4k --iodepth=64 --size=64m --runtime=10m --ioengine=io_uring_cmd --target {character(index)}"
    lab.sh(f"setsid flashwright bench {words} >/run/writer.log 2>&1 & echo $! > /run/writer; sleep 5; kill -0 $(cat /run/writer)")
    lab.guest.limit([index], iops=1)
    gone = "for each in $(seq 100); do grep -q '^State:.[^Z]' /proc/$(cat /run/writer)/status 2>/dev/null || break; sleep 0.1; done"
    lab.sh(f"sleep 1; kill -KILL $(cat /run/writer); {gone}; ! grep -q '^State:.[^Z]' /proc/$(cat /run/writer)/status")
    # It takes a claim of its own.
    claim = f"wipefs -a {drive(index)}"
    answer = lab.guest.run(claim)
    lab.check("a drive that works on commands of a killed process is claimed still", answer.code != 0 and "busy" in answer.err, str(answer))
    lab.guest.limit([index], iops=0)
    answer = lab.guest.run(f"for each in $(seq 300); do {claim} && exit 0; sleep 0.1; done; exit 1")
    lab.check("and free when it has done them", answer.code == 0, str(answer))
    answer = lab.guest.run(f"flashwright bench --rw=write --bs=4k --size=1m --time_based=0 --ioengine=io_uring_cmd --target {character(index)} >/dev/null 2>&1 && {claim}")
    lab.check("a drive is free at once when a run has ended", answer.code == 0, str(answer))


def not_stale(lab, index):
    device = drive(index)
    lab.sh(f"setsid sleep 3600 0<{device} 2>/dev/null & echo $! > /run/reader; head -c 65536 {device} >/dev/null")
    lab.bench(character(index), rw="write", bs="64k", size=1 << 20, time_based=0)
    cached, medium = lab.sh(f"head -c 65536 {device} | sha256sum; dd if={device} bs=64k count=1 iflag=direct 2>/dev/null | sha256sum").splitlines()
    lab.check("a reader of the block device finds what commands have written, and not what it had in memory", cached == medium, f"{cached} {medium}")
    lab.sh("kill $(cat /run/reader)")


def checked(lab):
    """A volume with checksums makes its own requests, which are commands where its members take nothing else."""
    members, given_up = f"{character(0)},{character(1)}", [word for index in (0, 1) for word in ("--destroy", character(index))]
    lab.must(lab.flashwright("volume", "create", "--chunk=64k", "--checksums", *given_up, members))
    for words, what in ((["--sync=dsync"], "each write forced"), (["--ioengine=psync", "--fdatasync=8"], "psync named")):
        answer = lab.flashwright("bench", "--rw=write", "--bs=64k", "--size=4m", "--time_based=0", "--verify=crc32c", *words, *given_up, "--target", f"volume:{members}", "--json")
        lab.check(f"a volume with checksums over namespaces is written and verified, {what}", answer.code == 0 and answer.json["record"]["engine"]["used"] == "psync", str(answer)[:300])
    answer = lab.flashwright("bench", "--rw=read", "--bs=64k", "--size=4m", "--time_based=0", "--ioengine=io_uring_cmd", "--target", f"volume:{members}")
    lab.check("no engine goes past its checksums", answer.code != 0 and "checksums" in answer.err, str(answer))
    lab.must(lab.flashwright("volume", "destroy", *given_up, members))


def full(lab, index):
    """A store into a hole for which there is no room is a failed request, and no signal."""
    lab.sh(f"mkfs.xfs -q -f {drive(index)} && mount -t xfs {drive(index)} /mnt && truncate -s 64M /mnt/file; dd if=/dev/zero of=/mnt/rest bs=1M 2>/dev/null; dd if=/dev/zero of=/mnt/last bs=4k 2>/dev/null; true")
    answer = lab.flashwright("bench", "--rw=write", "--direct=0", "--ioengine=mmap", "--bs=64k", "--size=64m", "--time_based=0", "--destroy", "/mnt/file", "--target", "/mnt/file")
    lab.check("a mapped file on a full file system fails with its reason", answer.code == 1 and "no room for the page" in answer.err, str(answer))
    lab.sh("umount /mnt; wipefs -qa " + drive(index))


def signed(lab):
    for name in (character(3), drive(3)):
        lab.sh(f"pvcreate -q {drive(3)}")
        answer = write(lab, 3)
        lab.check("a label that its block device bears is refused", answer.code == 3 and "bears the signature" in answer.err, str(answer))
        answer = write(lab, 3, "--destroy", drive(4), "--destroy", character(4))
        lab.check("naming another one does not help", answer.code == 3, str(answer))
        answer = write(lab, 3, "--destroy", name)
        lab.check(f"naming {name} gives it up", answer.code == 0, str(answer))
        lab.sh(f"wipefs -qa {drive(3)}")


def without_block_device(lab):
    lab.sh(f"mv {drive(4)} /dev/elsewhere && cp -a {drive(5)} {drive(4)}")
    answer = write(lab, 4, "--destroy", character(4))
    lab.check("a namespace is not written where another device has the name of its block device", answer.code == 3 and "cannot be told" in answer.err, str(answer))
    lab.sh(f"rm {drive(4)}")
    answer = write(lab, 4, "--destroy", character(4))
    lab.check("a namespace whose block device has no node is not written", answer.code == 3 and "cannot be told" in answer.err, str(answer))
    answer = lab.flashwright("bench", "--rw=randread", "--runtime=200ms", "--allow-unwritten", "--target", character(4))
    lab.check("a namespace whose block device has no node can be read", answer.code == 0, str(answer))
    lab.sh(f"mv /dev/elsewhere {drive(4)}")
