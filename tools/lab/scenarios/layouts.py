"""Every layout comes up as asked, is measured, goes down, and leaves nothing behind."""

from lab import drive

FAST = {"runtime": "500ms", "ramp_time": "200ms"}

# What is asked for, and scripts that look for it without the program's help: each has to print the word beside it.
LAYOUTS = [
    ("single(scheduler=kyber,read_ahead_kb=512,nomerges=2,rq_affinity=2,nr_requests=64,wbt_lat_usec=0,write_cache=write through)", 1, [
        ("cat /sys/block/nvme0n1/queue/scheduler", "[kyber]"),
        ("cat /sys/block/nvme0n1/queue/read_ahead_kb", "512"),
        ("cat /sys/block/nvme0n1/queue/nr_requests", "64"),
        ("cat /sys/block/nvme0n1/queue/write_cache", "write through")]),
    ("separate(filesystem=xfs,scheduler=bfq)", 2, [
        ("cat /sys/block/nvme1n1/queue/scheduler", "[bfq]"),
        ("grep -c ' xfs ' /proc/mounts", "2")]),
    ("stripe(chunk=64k,filesystem=ext4)", 2, [
        ("grep -c '/dev/nvme.* ext4 ' /proc/mounts", "2")]),
    ("md-raid0(chunk=64k,filesystem=xfs,mount_options=noatime,scheduler=mq-deadline,read_ahead_kb=1024)", 4, [
        ("cat /sys/block/md*/md/chunk_size", "65536"),
        ("cat /sys/block/md*/md/raid_disks", "4"),
        ("cat /sys/block/md*/queue/read_ahead_kb", "1024"),
        ("cat /sys/block/nvme3n1/queue/scheduler", "[mq-deadline]"),
        ("grep ' xfs ' /proc/mounts", "noatime"),
        ("xfs_info $(grep ' xfs ' /proc/mounts | cut -d' ' -f2)", "sunit=16     swidth=64 blks")]),
    ("md-raid0(chunk=256k,filesystem=ext4)", 8, [
        ("cat /sys/block/md*/md/chunk_size", "262144"),
        ("dumpe2fs -h /dev/md127 2>/dev/null", "RAID stripe width:        512")]),
    ("btrfs-raid0(mount_options=noatime)", 4, [
        ("grep -c ' btrfs ' /proc/mounts", "1"),
        ("btrfs filesystem df $(grep ' btrfs ' /proc/mounts | cut -d' ' -f2)", "Data, RAID0")]),
    ("lvm-stripe(chunk=64k,filesystem=xfs)", 4, [
        ("dmsetup table", "striped 4 128"),
        ("grep -c ' xfs ' /proc/mounts", "1")]),
]


def run(lab):
    lab.guest.limit(iops=0)
    before = lab.footprint()
    for spec, width, looks in LAYOUTS:
        kind = spec.partition("(")[0]
        what = f"{kind} with {spec[len(kind) + 1:-1]} over {width}"
        with lab.layout(f"{spec}:{lab.drives(width)}", "--file-size=32m") as built:
            for script, word in looks:
                answer = lab.guest.run(script)
                lab.check(f"{what}: `{script}` says {word}", word in answer.out, answer.out.strip()[-160:].replace("\n", " "))
            measured(lab, what, built["device_spec"])
        lab.unchanged(f"{what}: nothing is left of it", before)
    absent(lab)
    switched_by_force(lab, before)


def measured(lab, what, target):
    """Writes the target through and reads it back, verified."""
    lab.bench(target, rw="write", bs="512k", iodepth=4, size="16m", time_based=0, verify="crc32c")
    document = lab.bench(target, rw="randread", bs="4k", iodepth=16, size="16m", **FAST)
    lab.check(f"{what}: is measured", document["iops"] > 0, f"{document['iops']:.0f} IOPS of {target}")


def absent(lab):
    """This kernel has no f2fs: asking for it is a request that names what is missing."""
    answer = lab.flashwright("layout", "up", f"single(filesystem=f2fs):{drive(0)}")
    lab.check("a file system that the kernel does not have is refused by name", answer.code == 2 and "f2fs" in answer.err, str(answer))
    answer = lab.flashwright("layout", "survey", drive(0))
    lab.check("the survey tells what is to be had", answer.code == 0 and "f2fs" in answer.out and "md-raid0" in answer.out, str(answer))


def switched_by_force(lab, before):
    """A layout made by hand survives its process; a power cut takes the array away but leaves marks and a journal."""
    up = lab.flashwright("layout", "up", f"md-raid0(chunk=64k,filesystem=xfs,scheduler=kyber):{lab.drives(4)}", "--file-size=32m")
    lab.must(up)
    lab.sh("sync")
    lab.guest.cut_power()
    lab.boot()
    lab.check("after a power cut the array's marks are still on the drives", "linux_raid_member" in lab.sh(f"wipefs -n {drive(0)}"))
    # Distributions assemble what they find at boot, under whatever name is free.
    lab.sh("mdadm --assemble --scan --run || mdadm --assemble --run /dev/md9 /dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1; cat /proc/mdstat")
    undone = lab.flashwright("layout", "undo")
    lab.check("after a power cut `layout undo` takes down what was assembled again", undone.code == 0, str(undone))
    lab.unchanged("after it nothing is left on any drive", before)
    again = lab.flashwright("layout", "undo")
    lab.check("undoing once more does nothing", again.code == 0 and "nothing" in again.out, str(again))
