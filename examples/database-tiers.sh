#!/bin/sh
# Three tiers on one machine, as root: memory (tmpfs), flash (a loop device as fast as what lies below), and a disk (a loop device
# throttled in requests and bytes a second by blkio of control groups, version 1). Emulation: the disk has a disk's number of random
# reads a second, and no arm that moves further for blocks that are further apart.
#
#   sh examples/database-tiers.sh up DIR        make them: DIR/ram, DIR/flash and DIR/disk
#   sh examples/database-tiers.sh run DIR …     flashwright db compare ptf on them, or bfs bench; … are more flags
#   sh examples/database-tiers.sh down DIR      unmake them, whatever is left of them
#
# DISK_IOPS and DISK_MB are requests and megabytes a second of the disk (100 and 120), MIB the size of each tier (1024). WORKLOAD is ptf
# or bionet, ROWS its rows (500000), or it is bfs, on a graph of 2^SCALE vertices (18). FLASHWRIGHT names the binary.
set -eu
[ $# -ge 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
verb=$1
mkdir -p -- "$2"
place=$(cd "$2" && pwd)
shift 2
blkio=/sys/fs/cgroup/blkio
PATH=$PATH:/usr/sbin:/sbin

# A limit of 0 is none. Reads and direct writes are the group's of the program, what is written back late is the kernel's, which the
# root group counts. A server that flashwright starts is in its group.
limit() {
    own=$blkio$(sed -n 's/^[0-9]*:blkio://p' /proc/self/cgroup)
    number=$(lsblk -dno MAJ:MIN "$1" | tr -d ' ')
    for group in "$blkio" "$own"; do
        for direction in read write; do
            echo "$number $2" > "$group/blkio.throttle.${direction}_iops_device"
            echo "$number $3" > "$group/blkio.throttle.${direction}_bps_device"
        done
    done
}

make_loop() {
    image=$place/$1.image
    # Written, not reserved: blocks that were never written answer from nowhere.
    dd if=/dev/zero of="$image" bs=1M count="${MIB:-1024}" conv=fsync status=none
    device=$(losetup --find --show --direct-io=on "$image")
    echo "$device" > "$place/$1.device"
    disk=/sys/block/${device#/dev/}/queue
    echo "$2" > "$disk/rotational"
    echo 128 > "$disk/read_ahead_kb"
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$device"
    mkdir -p "$place/$1"
    mount "$device" "$place/$1"
}

make_memory() {
    mkdir -p "$place/ram"
    mount -t tmpfs -o "size=${MIB:-1024}m,mode=755" tmpfs "$place/ram"
}

unmake() {
    ! mountpoint -q "$place/$1" || umount "$place/$1"
    rmdir "$place/$1" 2> /dev/null || true
    [ -e "$place/$1.device" ] || return 0
    device=$(cat "$place/$1.device")
    # Only while the device is still over our image: its name may be another's by now.
    if losetup --noheadings --output BACK-FILE "$device" 2> /dev/null | grep -qxF "$place/$1.image"; then
        limit "$device" 0 0
        losetup --detach "$device"
    fi
    rm -f "$place/$1.device" "$place/$1.image"
}

unmake_all() {
    for tier in ram flash disk; do unmake "$tier"; done
}

case $verb in
up)
    [ -w "$blkio/blkio.throttle.read_iops_device" ] || {
        echo "there is no throttle at $blkio: it takes root and control groups of version 1" >&2
        exit 1
    }
    [ ! -e "$place/disk.device" ] || { echo "$place: has tiers already" >&2; exit 1; }
    # What was made goes again if the rest cannot be.
    trap unmake_all EXIT
    make_memory
    make_loop flash 0
    make_loop disk 1
    limit "$(cat "$place/disk.device")" "${DISK_IOPS:-100}" "$((${DISK_MB:-120} * 1000000))"
    trap - EXIT
    echo "$place/ram, $place/flash, $place/disk: ${DISK_IOPS:-100} requests/s, ${DISK_MB:-120} MB/s"
    ;;
run)
    if [ "${WORKLOAD:-ptf}" = bfs ]; then
        flashwright=${FLASHWRIGHT:-flashwright}
        [ -e "$place/graph.fwg" ] || {
            "$flashwright" bfs generate --scale "${SCALE:-18}" --output "$place/graph.el"
            "$flashwright" bfs build "$place/graph.el" --output "$place/graph.fwg"
        }
        exec "$flashwright" bfs bench "$place/graph.fwg" --edges "$place/graph.el" --memory 32m --keys 4 \
            --tiers "memory=$place/ram,flash=$place/flash,disk=$place/disk" "$@"
    fi
    exec "${FLASHWRIGHT:-flashwright}" db compare "${WORKLOAD:-ptf}" --rows "${ROWS:-500000}" \
        --tiers "ram=$place/ram,flash=$place/flash,disk=$place/disk" "$@"
    ;;
down)
    unmake_all
    rm -f "$place/graph.el" "$place/graph.fwg"
    ;;
*)
    echo "$verb: is neither up, run nor down" >&2
    exit 2
    ;;
esac
