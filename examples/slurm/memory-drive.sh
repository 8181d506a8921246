#!/bin/sh
# The memory of an allocation's nodes as one drive, for as long as the job runs.
#
#   salloc -N 9 --exclusive
#   sh examples/slurm/memory-drive.sh SIZE [COMMAND …]
#
# Starts `flashwright memory serve --size SIZE` on every node of the allocation but the one where this script runs (on all, if
# there is but one), waits until each has announced itself in a directory that all nodes see, and runs COMMAND with
# $DRIVE, the device spec of the stripe over all of them. Without a command the drive is measured. The servers end
# with it, and the memory with them: nothing on the drive is kept.
#
# Servers and clients share a key that is made here for this job, readable by its user only, so that other users of the network
# can neither read nor write. PLAIN=1 does without TLS, for a network that only this job can reach: faster, and open
# to whoever can connect.
#
# ANNOUNCE (here: .memory-drive-JOB) is where servers meet; CHUNK (64k) what a node holds before the next does;
# ADDRESS_OF a command that prints the address to listen at, run on each node, where the host's name does not lead to
# the fast network:
#   ADDRESS_OF='ip -4 -o address show dev ib0 | sed "s|.*inet \([0-9.]*\).*|\1|"'
set -eu

if [ $# -lt 1 ] || [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "usage: $0 SIZE [COMMAND …], in an allocation (salloc -N 9 --exclusive)" >&2
    exit 2
fi
SIZE=$1
shift
FLASHWRIGHT=${FLASHWRIGHT:-flashwright}
ANNOUNCE=$(realpath -m "${ANNOUNCE:-.memory-drive-$SLURM_JOB_ID}")
ADDRESS_OF=${ADDRESS_OF:-hostname}
export SIZE FLASHWRIGHT ANNOUNCE ADDRESS_OF

umask 077
mkdir -p "$ANNOUNCE/hosts"
if [ "${PLAIN:-0}" = 1 ]; then
    GUARD=--insecure before=nbd:// query=
else
    # psktool's form, 256 bits of it.
    printf 'drive:%s\n' "$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')" > "$ANNOUNCE/key"
    GUARD="--tls-psk=$ANNOUNCE/key" before=nbds://drive@ query="?tls-psk-file=$ANNOUNCE/key"
fi
export GUARD

nodes=$SLURM_JOB_NUM_NODES
set_apart=
if [ "$nodes" -gt 1 ]; then
    nodes=$((nodes - 1)) set_apart="--exclude=$(hostname)"
fi
# The address is found on each node, and the shell there becomes the server, so that signals reach it.
# shellcheck disable=SC2016,SC2086
srun --job-name=memory-drive --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 $set_apart sh -c '
    exec "$FLASHWRIGHT" memory serve --size "$SIZE" --listen "$(eval "$ADDRESS_OF")":0 "$GUARD" --announce "$ANNOUNCE/hosts"
' &
servers=$!
finish() {
    # What ends srun has it kill the servers at once; a signal to its step lets them say good-bye to their clients.
    step=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format='%i %j' 2> /dev/null | awk '$2 == "memory-drive" { print $1 }') || true
    scancel --signal=TERM ${step:+"$step"} 2> /dev/null || kill -TERM "$servers" 2> /dev/null || true
    wait "$servers" 2> /dev/null || true
    rm -rf "$ANNOUNCE"
}
trap finish EXIT
trap 'exit 130' INT TERM

# No time-out here: memory of hundreds of GiB takes minutes to be made. Servers that cannot start end the wait.
while [ "$(find "$ANNOUNCE/hosts" -type f ! -name '.*' | wc -l)" -lt "$nodes" ]; do
    if ! kill -0 "$servers" 2> /dev/null; then
        echo "$0: not every node could serve its memory; see above" >&2
        exit 1
    fi
    sleep 1
done

members=$(cat "$ANNOUNCE"/hosts/* | sort | while read -r host; do echo "$before$host/$query"; done | paste -sd, -)
DRIVE="stripe(chunk=${CHUNK:-64k}):$members"
export DRIVE
echo "drive: $DRIVE"
if [ $# -gt 0 ]; then
    "$@"
else
    "$FLASHWRIGHT" bench --rw=write --bs=1m --iodepth=16 --time_based=0 --target "$DRIVE"
    "$FLASHWRIGHT" bench --rw=randread --bs=4k --iodepth=64 --numjobs=4 --runtime=10s --target "$DRIVE"
fi
