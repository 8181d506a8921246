"""The guest is what it claims to be, and the program runs in it."""

from guest import DRIVES

READS = 4096
# The most system calls for them at each depth. At depth 1 each read takes one. A deep queue is handed over and reaped in groups of a
# quarter of it, 8 at depth 32 and 32 at depth 128; twice the calls that this makes are allowed.
CALLS = {1: READS * 1.1, 32: 2 * READS / 8, 128: 2 * READS / 32}


def run(lab):
    answer = lab.flashwright("probe", "--json")
    lab.must(answer)
    names = {drive["name"] for drive in answer.json["drives"]}
    lab.require("probe finds the sixteen NVMe drives", {f"nvme{index}n1" for index in range(DRIVES)} <= names, ", ".join(sorted(names)))
    lab.guest.limit(iops=250)
    document = lab.bench("/dev/nvme0n1", rw="randread", bs="4k", iodepth=8, runtime="2s", ramp_time="300ms")
    lab.check("a drive throttled to 250 requests a second gives about that", 200 <= document["iops"] <= 300, f"{document['iops']:.0f} IOPS")
    lab.check("no request took less than no time", document["latency_ns"]["min"] > 0)
    count_calls(lab)


def count_calls(lab):
    """Counts io_uring_enter(2) in the kernel, which slows nothing down as strace would."""
    lab.guest.limit()
    event = "/sys/kernel/tracing/events/syscalls/sys_enter_io_uring_enter"
    lab.sh(f"mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; echo hist:keys=common_pid > {event}/trigger")
    hits = lambda: int(lab.sh(f"sed -n 's/^ *Hits: //p' {event}/hist"))
    for depth, most in CALLS.items():
        before = hits()
        document = lab.bench("/dev/nvme0n1", rw="randread", bs="4k", iodepth=depth, number_ios=READS, time_based=0, ioengine="io_uring")
        calls = hits() - before
        done = document["record"]["total"]["ios"]
        lab.check(f"{READS} reads at depth {depth} take at most {most:.0f} system calls", done == READS and done / (2 * depth) <= calls <= most, f"{calls}")
    lab.sh(f"echo '!hist:keys=common_pid' > {event}/trigger")
