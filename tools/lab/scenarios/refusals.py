"""A drive that is mounted, held by LVM or md, swapped to, or open is never written, whatever is said.

Each is tried with a benchmark that writes and with a layout, both told that the drive's contents may be
lost. Both end with exit code 3 and name the reason, and the drive's bytes are what they were.
"""

from lab import drive

# What a drive is used for, how it comes to that, words of the reason, and how it is freed again.
USES = [
    ("is mounted", "mkfs.xfs -q -f {0} && mount -t xfs {0} /mnt", "is mounted on /mnt (xfs)", "umount /mnt"),
    ("is held by LVM", "pvcreate -q {0} && vgcreate -q lab {0} && lvcreate -q -y -n held -l 100%FREE lab", "is held by", "vgremove -q -y lab; pvremove -q -y {0}"),
    ("is a member of an md array", "mdadm --create /dev/md5 --run --level=0 --force --raid-devices=1 {0}", "is held by", "mdadm --stop /dev/md5; mdadm --zero-superblock {0}"),
    ("is swapped to", "mkswap {0} && swapon {0}", "is swapped to", "swapoff {0}"),
    ("is open in another process", "setsid sleep 3600 1<>{0} 2>/dev/null & echo $! > /run/opener", "is open in process", "kill $(cat /run/opener)"),
    ("is part of a mounted btrfs", "mkfs.btrfs -q -f -d raid0 -m raid0 {0} {1} && mount -t btrfs {1} /mnt", "is mounted on /mnt (btrfs)", "umount /mnt; wipefs -qa {1}"),
]


def run(lab):
    lab.guest.limit(iops=0)
    for index, (use, prepare, reason, free) in enumerate(USES):
        device, other = drive(index), drive(15)
        lab.sh(prepare.format(device, other))
        refused(lab, f"a drive that {use}", device, reason)
        lab.sh(free.format(device, other))
        lab.sh(f"wipefs -qa {device}")
    marked(lab)
    neighbour(lab)


def refused(lab, what, device, reason, destroy=True):
    """Whether all who write leave the device alone."""
    permit = ["--destroy", device] if destroy else []
    before = bytes_of(lab, device)
    attempts = [
        ("benchmark", ["bench", "--rw=randwrite", "--bs=4k", "--runtime=200ms", "--target", device]),
        ("layout", ["layout", "up", f"single(filesystem=xfs):{device}"]),
        ("benchmark over a stripe", ["bench", "--rw=randwrite", "--bs=4k", "--runtime=200ms", "--target", f"stripe(chunk=64k):{drive(14)},{device}"]),
    ]
    for name, words in attempts:
        answer = lab.flashwright(*words, *permit)
        lab.check(f"{what} is refused to a {name}, with the reason", answer.code == 3 and reason in answer.err, str(answer))
    lab.check(f"{what} keeps its bytes", bytes_of(lab, device) == before)


def bytes_of(lab, device):
    # Where labels and the first structures of all of them lie.
    return lab.sh(f"(head -c 2097152 {device}; tail -c 2097152 {device}) | sha256sum")


def marked(lab):
    """A label that nobody uses just now is refused too, until the drive is named."""
    device = drive(7)
    lab.sh(f"pvcreate -q {device}")
    refused(lab, "a drive with an LVM label that nobody holds", device, "bears the signature", destroy=False)
    answer = lab.flashwright("layout", "up", f"single(filesystem=xfs):{device}", "--destroy", drive(8))
    lab.check("naming another drive in --destroy does not help", answer.code == 3, str(answer))
    answer = lab.flashwright("bench", "--rw=randwrite", "--bs=4k", "--runtime=200ms", "--target", device, "--destroy", device)
    lab.check("naming it in --destroy gives it up", answer.code == 0, str(answer))
    lab.sh(f"wipefs -qa {device}")


def neighbour(lab):
    """One drive in use refuses the whole layout, and its neighbours stay untouched."""
    before = lab.footprint()
    lab.sh(f"mkswap {drive(3)} && swapon {drive(3)}")
    answer = lab.flashwright("layout", "up", f"md-raid0(chunk=64k,scheduler=bfq):{lab.drives(4)}")
    lab.check("an array with one member in use is refused, and the member named", answer.code == 3 and drive(3) in answer.err, str(answer))
    lab.sh(f"swapoff {drive(3)} && wipefs -qa {drive(3)}")
    lab.unchanged("nothing was changed on the way to a refusal", before)
