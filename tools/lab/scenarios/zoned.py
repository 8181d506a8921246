"""A zoned drive is written at its write pointers, within its limits, and reset where that is due; all zones end as the kernel has them.

The drive is null_blk's: host-managed, in the guest's memory, with conventional zones and capacities below the zones' size. What
its zones are is read by blkzone(8).
"""

DEVICE = "/dev/nullb0"
ZONE, CAPACITY, ZONES, CONVENTIONAL, OPEN = 4 << 20, 3 << 20, 16, 2, 4
SEQUENTIAL = ZONES - CONVENTIONAL
# Where the sequential zones begin.
OFFSET = CONVENTIONAL * ZONE

JOBS = f"""
[global]
filename={DEVICE}
direct=1
zonemode=zbd
zonesize=4m
offset={CONVENTIONAL}z
size={SEQUENTIAL}z
bs=64k
group_reporting
[fill]
rw=randwrite
ioengine=libaio
iodepth=8
io_size=16m
[write]
wait_for=fill
rw=randwrite
ioengine=io_uring
iodepth=4
io_size=32m
flow=32
[collect]
wait_for=fill
rw=randtrim
bs=4m
ioengine=psync
number_ios=8
flow=1
"""


def run(lab):
    lab.sh(f"""
        modprobe null_blk nr_devices=0
        mkdir -p /sys/kernel/config && mount -t configfs none /sys/kernel/config
        cd /sys/kernel/config/nullb && mkdir nullb0 && cd nullb0
        set -e
        while read -r name value; do echo "$value" > "$name"; done <<END
size {ZONE * ZONES >> 20}
blocksize 4096
memory_backed 1
zoned 1
zone_size {ZONE >> 20}
zone_capacity {CAPACITY >> 20}
zone_nr_conv {CONVENTIONAL}
zone_max_open {OPEN}
zone_max_active {OPEN}
power 1
END
    """)
    try:
        lab.require("the drive has its zones, all empty", [zone[2] for zone in zones(lab)] == [0] * SEQUENTIAL, str(zones(lab)))
        refusals(lab)
        written(lab)
        verified(lab)
        purged(lab)
        collected(lab)
    finally:
        if lab.guest.process is not None:
            lab.guest.run("rmdir /sys/kernel/config/nullb/nullb0; umount /sys/kernel/config; modprobe -r null_blk")


def zones(lab):
    """The sequential zones: where each begins, its condition, and bytes up to its pointer; as blkzone has them, in sectors."""
    found = []
    for line in lab.sh(f"blkzone report {DEVICE}").splitlines():
        words = line.replace(",", " ").replace("(", " ").replace(")", " ").replace(":", " ").split()
        if "CONVENTIONAL" in words:
            continue
        field = lambda name: int(words[words.index(name) + 1], 16)
        condition = words[words.index("zcond") + 1]
        start = field("start") * 512
        # The pointer is told from the zone's beginning; of a full zone it means nothing.
        found.append((start, condition, CAPACITY if condition == "14" else field("wptr") * 512))
    return found


def held(lab):
    return sum(pointer for _, _, pointer in zones(lab))


def bench(lab, **options):
    flags = {"zonemode": "zbd", "offset": OFFSET, "bs": "64k", "ioengine": "io_uring", **options}
    return lab.bench(DEVICE, **flags)


def refusals(lab):
    probe = lab.flashwright("probe", DEVICE)
    lab.check("probe says that the drive is zoned", probe.code == 0 and "zoned (host-managed)" in probe.out, str(probe))
    plain = lab.flashwright("bench", "--rw=randwrite", "--runtime=200ms", "--target", DEVICE)
    lab.check("a write without zonemode is refused, with what to add", plain.code == 2 and "--zonemode=zbd" in plain.err, str(plain))
    many = lab.flashwright("bench", "--rw=randwrite", "--zonemode=zbd", f"--max_open_zones={OPEN + 1}", "--runtime=200ms", "--target", DEVICE)
    lab.check("more open zones than the drive allows are refused", many.code == 2 and "max_open_zones" in many.err, str(many))
    empty = lab.flashwright("bench", "--rw=read", "--zonemode=zbd", f"--offset={OFFSET}", "--runtime=200ms", "--target", DEVICE)
    lab.check("a read of empty zones is refused", empty.code == 2 and "no zone of the region" in empty.err, str(empty))
    lab.sh(f"mkswap {DEVICE}")
    marked = lab.flashwright("bench", "--rw=randtrim", "--zonemode=zbd", f"--bs={ZONE}", "--runtime=200ms", "--target", DEVICE)
    lab.check("zones of a drive with a label are not reset unless it is given up", marked.code == 3, str(marked))
    lab.sh(f"wipefs -qa {DEVICE}")
    lab.check("nothing was written by any of them", held(lab) == 0)


def written(lab):
    """Fewer writes than a zone holds, so that none is reset; then what is below the pointers is read; then more than the drive holds."""
    document = bench(lab, rw="randwrite", iodepth=8, number_ios=40, loops=100, time_based=0)
    total = document["record"]["total"]
    lab.check("random writes are made", total["write_bytes"] == 40 * 65536, f"{total['write_bytes']}")
    lab.check("the zones hold them", held(lab) == 40 * 65536, str(zones(lab)))
    limited(lab)
    before = zones(lab)
    document = bench(lab, rw="read", iodepth=8, time_based=0)
    read = document["record"]["total"]["read_bytes"]
    lab.check("a sequential read moves what lies below the pointers, and ends", read == held(lab), f"{read} of {held(lab)}")
    lab.check("it moves no pointer", zones(lab) == before)
    document = bench(lab, rw="randwrite", iodepth=8, numjobs=2, offset_increment=0, number_ios=1000, loops=100, time_based=0)
    total = document["record"]["total"]
    lab.check("two jobs at once write more than the drive holds", total["write_bytes"] == 2000 * 65536 > SEQUENTIAL * CAPACITY, f"{total['write_bytes']}")
    limited(lab)


def limited(lab):
    partly = [zone for zone in zones(lab) if 0 < zone[2] < CAPACITY]
    lab.check(f"at most {OPEN} zones are partly written", len(partly) <= OPEN, str(partly))


def verified(lab):
    document = bench(lab, rw="randwrite", iodepth=4, verify="crc32c", loops=100, time_based=0)
    record = document["record"]
    lab.check("a verifying job fills each zone once, and ends", record["total"]["write_bytes"] == SEQUENTIAL * CAPACITY, f"{record['total']}")
    lab.check("all of it is read back", record["verified_blocks"] == SEQUENTIAL * CAPACITY // 65536, f"{record['verified_blocks']}")
    lab.check("all zones are full", all(condition == "14" for _, condition, _ in zones(lab)), str(zones(lab)))
    document = bench(lab, rw="randread", iodepth=8, verify="crc32c", number_ios=200, loops=100, time_based=0)
    lab.check("a later job reads it and finds it whole", document["record"]["verified_blocks"] == 200)


def purged(lab):
    """All zones are full; those that lie inside the region are reset, and those beside it are not."""
    flags = ["--rw=write", "--zonemode=zbd", "--bs=64k", "--number_ios=4", "--loops=100", "--time_based=0"]
    # It begins in the midst of the first sequential zone.
    region = [f"--offset={OFFSET + 65536}", f"--size={4 * ZONE}"]
    answer = lab.flashwright("bench", "--purge", *flags, *region, "--target", DEVICE)
    lab.must(answer)
    pointers = [pointer for _, _, pointer in zones(lab)]
    expected = [CAPACITY, 4 * 65536, 0, 0] + [CAPACITY] * (SEQUENTIAL - 4)
    lab.check("a purge resets the zones inside the region, and a write begins in them", pointers == expected, str(pointers))


def collected(lab):
    """A job file as fio's users have it: writes and, in proportion to them, resets of zones."""
    lab.sh(f"blkzone reset {DEVICE} -o {OFFSET // 512}; cat > /tmp/zones.fio <<'END'\n{JOBS}END")
    answer = lab.flashwright("bench", "/tmp/zones.fio", "--json")
    lab.must(answer)
    totals = [job["record"]["total"] for job in answer.json["jobs"]]
    lab.check("its jobs move what they say", [total["write_bytes"] for total in totals[:2]] == [16 << 20, 32 << 20], str(totals))
    trims = totals[2]["ios"]
    lab.check("zones are reset beside them", 1 <= trims <= 8, str(totals[2]))
    limited(lab)
