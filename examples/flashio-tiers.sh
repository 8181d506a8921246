#!/bin/sh
# Two tiers on one machine, as root: XFS on loop devices, throttled to a flash and a disk of a tenth of its bandwidth (blkio of control
# groups, version 1). Emulation: bandwidths are those of the tiers, latencies are those of what lies below.
#
#   sh examples/flashio-tiers.sh up DIR        make them: DIR/fast and DIR/slow
#   sh examples/flashio-tiers.sh run DIR …     flashwright flashio on them, with the paper's share of I/O; … are more flags
#   sh examples/flashio-tiers.sh down DIR      unmake them, whatever is left of them
#
# FAST_MB and SLOW_MB are megabytes a second (400 and 40), MIB the size of each image (1024). COMPUTE is the time between two
# checkpoints (2s), CHECKPOINT the size of a task's (10752k). FLASHWRIGHT names the binary.
set -eu
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
verb=$1
mkdir -p -- "$2"
place=$(cd "$2" && pwd)
shift 2
blkio=/sys/fs/cgroup/blkio
PATH=$PATH:/usr/sbin:/sbin

# A limit of 0 is none. What is written back late is the kernel's, which the root group counts; what a program writes directly is
# its own group's.
limit() {
    own=$blkio$(sed -n 's/^[0-9]*:blkio://p' /proc/self/cgroup)
    number=$(lsblk -dno MAJ:MIN "$1" | tr -d ' ')
    for group in "$blkio" "$own"; do
        for direction in read write; do
            echo "$number $2" > "$group/blkio.throttle.${direction}_bps_device"
        done
    done
}

make_tier() {
    image=$place/$1.image
    # Written, not reserved: blocks that were never written answer from nowhere.
    dd if=/dev/zero of="$image" bs=1M count="${MIB:-1024}" conv=fsync status=none
    device=$(losetup --find --show --direct-io=on "$image")
    echo "$device" > "$place/$1.device"
    disk=/sys/block/${device#/dev/}/queue
    echo "$3" > "$disk/rotational"
    echo 128 > "$disk/read_ahead_kb"
    mkfs.xfs -q -f -K "$device"
    mkdir -p "$place/$1"
    mount "$device" "$place/$1"
    limit "$device" "$(($2 * 1000000))"
}

unmake_tier() {
    [ -e "$place/$1.device" ] || return 0
    device=$(cat "$place/$1.device")
    ! mountpoint -q "$place/$1" || umount "$place/$1"
    # Only while the device is still over our image: its name may be another's by now.
    if losetup --noheadings --output BACK-FILE "$device" 2> /dev/null | grep -qxF "$place/$1.image"; then
        limit "$device" 0
        losetup --detach "$device"
    fi
    rm -f "$place/$1.device" "$place/$1.image"
    rmdir "$place/$1" 2> /dev/null || true
}

case $verb in
up)
    [ -w "$blkio/blkio.throttle.write_bps_device" ] || {
        echo "there is no throttle at $blkio: it takes root and control groups of version 1" >&2
        exit 1
    }
    [ ! -e "$place/fast.device" ] || { echo "$place: has tiers already" >&2; exit 1; }
    # What was made goes again if the rest cannot be.
    trap 'unmake_tier fast; unmake_tier slow' EXIT
    make_tier fast "${FAST_MB:-400}" 0
    make_tier slow "${SLOW_MB:-40}" 1
    trap - EXIT
    echo "$place/fast: ${FAST_MB:-400} MB/s; $place/slow: ${SLOW_MB:-40} MB/s"
    ;;
run)
    # 44 MB in 1.1 s to the slow tier after each 2 s of computing: I/O is 0.55 of computing, as in the paper at 288 tasks.
    exec "${FLASHWRIGHT:-flashwright}" flashio --fast "$place/fast" --slow "$place/slow" --tasks 4 \
        --compute "${COMPUTE:-2s}" --checkpoint-size "${CHECKPOINT:-10752k}" "$@"
    ;;
down)
    unmake_tier fast
    unmake_tier slow
    ;;
*)
    echo "$verb: is neither up, run nor down" >&2
    exit 2
    ;;
esac
