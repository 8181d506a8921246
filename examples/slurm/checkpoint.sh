#!/bin/sh
# A job whose checkpoints go to the node's flash and are drained to a parallel file system while it computes on.
#
#   sbatch --nodes=1 --signal=B:USR1@300 examples/slurm/checkpoint.sh FAST SLOW COMMAND …
#
# COMMAND finds the directory for its checkpoints in $CHECKPOINTS (a directory of this job below FAST), and what was restored
# to begin with in $RESTART, if there is anything. It writes a checkpoint to $CHECKPOINTS/ckpt-N, fsyncs it, and renames a file
# ckpt-N.done into place beside it. SLOW/ckpt-N appears when the checkpoint is there as a whole, durable and read back;
# SLOW/latest points to the newest. Two checkpoints stay on the flash, five on SLOW.
#
# Everything here may be done again: a job that is requeued, killed, or run twice by the scheduler goes on with what it
# finds. At the end, and when the time limit is five minutes away (--signal), what is not drained yet is drained
# without limits; what a lost node has not drained is lost with it, and the checkpoint before it is whole.
#
# BWLIMIT (2GB/s) is what the drain may take while COMMAND runs.
set -eu

if [ $# -lt 3 ] || [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "usage: $0 FAST SLOW COMMAND …, as a Slurm job (sbatch)" >&2
    exit 2
fi
FLASHWRIGHT=${FLASHWRIGHT:-flashwright}
mkdir -p "$1" "$2"
fast=$(realpath "$1")/$SLURM_JOB_ID slow=$(realpath "$2")
shift 2
mkdir -p "$fast/checkpoints"
CHECKPOINTS=$fast/checkpoints
export CHECKPOINTS

# The journal belongs to the node, as the flash does. To be called in a subshell, which becomes the drainer.
drain() {
    exec "$FLASHWRIGHT" stage watch "$CHECKPOINTS" --to "$slow" --trigger 'ckpt-*.done' --foreground \
        --state "$fast/journal" --latest --keep-fast 2 --keep-slow 5 "$@"
}

if [ -L "$slow/latest" ]; then
    latest=$(realpath "$slow/latest")
    RESTART=$fast/restart/$(basename "$latest")
    # --idempotent: a job that was requeued on the same node has it already.
    "$FLASHWRIGHT" stage get --foreground --idempotent --parents --state "$fast/journal" -T "$latest" "$RESTART"
    export RESTART
fi

drain --background --bwlimit "${BWLIMIT:-2GB/s}" &
drainer=$!
"$@" &
command=$!
# Slurm signals this shell; the command is told, and ends when it has written its last checkpoint.
trap 'kill -USR1 "$command" 2> /dev/null || true' USR1
status=0
wait "$command" || status=$?
while kill -0 "$command" 2> /dev/null; do
    status=0
    wait "$command" || status=$?
done

# The drainer stops between two steps; the next one goes on from there, and ends when nothing is left.
kill "$drainer" 2> /dev/null || true
wait "$drainer" || true
(drain --once)
exit "$status"
