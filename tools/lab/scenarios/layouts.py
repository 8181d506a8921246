"""Every layout comes up as asked, is measured, goes down, and leaves nothing behind."""

from lab import drive

FAST = {"runtime": "500ms", "ramp_time": "200ms"}

# A name, what is asked for, over how many drives, and scripts that look for it without the program's help: each
# has to print the word beside it.
LAYOUTS = [
    ("one drive with queue settings", "single(scheduler=kyber,read_ahead_kb=512,nomerges=2,rq_affinity=2,nr_requests=64,write_cache=write through)", 1, [
        ("cat /sys/block/nvme0n1/queue/scheduler", "[kyber]"),
        ("cat /sys/block/nvme0n1/queue/read_ahead_kb", "512"),
        ("cat /sys/block/nvme0n1/queue/nr_requests", "64"),
        ("cat /sys/block/nvme0n1/queue/write_cache", "write through")]),
    ("XFS on each of two drives", "separate(filesystem=xfs,scheduler=bfq)", 2, [
        ("cat /sys/block/nvme1n1/queue/scheduler", "[bfq]"),
        ("grep -c ' xfs ' /proc/mounts", "2")]),
    ("a stripe over files on ext4", "stripe(chunk=64k,filesystem=ext4)", 2, [
        ("grep -c '/dev/nvme.* ext4 ' /proc/mounts", "2")]),
    ("XFS on md RAID-0", "md-raid0(chunk=64k,filesystem=xfs,mount_options=noatime,scheduler=mq-deadline,read_ahead_kb=1024)", 4, [
        ("cat /sys/block/md*/md/chunk_size", "65536"),
        ("cat /sys/block/md*/md/raid_disks", "4"),
        ("cat /sys/block/md*/queue/read_ahead_kb", "1024"),
        ("cat /sys/block/nvme3n1/queue/scheduler", "[mq-deadline]"),
        ("grep ' xfs ' /proc/mounts", "noatime"),
        ("grep ' xfs ' /proc/mounts", "sunit=128,swidth=512")]),
    ("ext4 on md RAID-0", "md-raid0(chunk=256k,filesystem=ext4)", 8, [
        ("cat /sys/block/md*/md/chunk_size", "262144"),
        ("dumpe2fs -h /dev/md127 2>/dev/null | grep 'stripe width'", "512")]),
    ("btrfs over four drives", "btrfs-raid0(mount_options=noatime)", 4, [
        ("grep -c ' btrfs ' /proc/mounts", "1"),
        ("btrfs filesystem df $(grep ' btrfs ' /proc/mounts | cut -d' ' -f2)", "Data, RAID0")]),
    ("XFS on a striped logical volume", "lvm-stripe(chunk=64k,filesystem=xfs)", 4, [
        ("dmsetup table", "striped 4 128"),
        ("grep -c ' xfs ' /proc/mounts", "1")]),
]


def run(lab):
    lab.guest.limit(iops=0)
    survey(lab)
    # The list of schedulers that sysfs shows grows when one is loaded, and modules stay loaded.
    lab.sh("modprobe kyber-iosched; modprobe bfq")
    before = lab.footprint()
    for name, spec, width, looks in LAYOUTS:
        with lab.layout(f"{spec}:{lab.drives(width)}", "--file-size=32m") as built:
            for script, word in looks:
                answer = lab.guest.run(script)
                lab.check(f"{name}: `{script}` says {word}", word in answer.out, answer.out.strip()[-160:].replace("\n", " "))
            measured(lab, name, built["device_spec"])
        lab.unchanged(f"{name}: nothing is left of it", before)
    cut(lab)


def survey(lab):
    """What this kernel has not is named; what it could load is used though it is not loaded."""
    answer = lab.flashwright("layout", "up", f"single(filesystem=f2fs):{drive(0)}")
    lab.check("a file system that the kernel does not have is refused by name", answer.code == 2 and "f2fs" in answer.err, str(answer))
    answer = lab.flashwright("layout", "survey", drive(0), "--json")
    lab.must(answer)
    lacking = {f"{one['setting']}={one['value']}" for one in answer.json["settings"] if one["lacking"]}
    lab.check("the survey lacks f2fs, and of layouts, schedulers and file systems nothing else", lacking - {"irq_cpus=spread"} == {"filesystem=f2fs"}, ", ".join(sorted(lacking)))


def measured(lab, what, target):
    """Writes part of the target, verifies it, and reads."""
    lab.bench(target, rw="write", bs="512k", iodepth=4, size="16m", time_based=0, verify="crc32c")
    document = lab.bench(target, rw="randread", bs="4k", iodepth=16, size="16m", **FAST)
    lab.check(f"{what}: is measured", document["iops"] > 0, f"{document['iops']:.0f} IOPS of {target}")


def cut(lab):
    """A layout made by hand survives its process; a power cut takes the array away but leaves marks and a journal."""
    before = lab.footprint(interrupts=False)
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
    lab.sh("modprobe kyber-iosched; modprobe bfq")
    lab.unchanged("after it nothing is left on any drive", before, interrupts=False)
    again = lab.flashwright("layout", "undo")
    lab.check("undoing once more does nothing", again.code == 0 and "nothing" in again.out, str(again))
