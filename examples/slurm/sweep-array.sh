#!/bin/sh
# One sweep on several nodes of one kind: each task of a Slurm job array measures a shard, and a last job puts the
# shards together. Nodes must be alike; `sweep merge` refuses and names the difference where they are not.
#
#   sh examples/slurm/sweep-array.sh SPACE.toml SHARDS RESULTS [--destroy DEV …]
#
# RESULTS is a directory that all nodes see; each shard is RESULTS/I-of-N, the whole RESULTS/whole. A task that is
# requeued goes on where it stopped. All else that flags could say stands in the space, the same for every shard.
# --exclusive, because a figure that was measured beside somebody else's load is the figure of both. Where layouts are
# built the tasks must run as root, or as a user who may: ask your site. What sbatch needs besides (account,
# partition, time) is taken from SBATCH_… variables, as always.
set -eu

if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then # on a node: measure a shard
    shard="$RESULTS/$SLURM_ARRAY_TASK_ID-of-$SHARDS"
    if [ -e "$shard/results.db" ]; then
        exec "$FLASHWRIGHT" sweep resume "$shard" "$@"
    fi
    exec "$FLASHWRIGHT" sweep "$SPACE" --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --output "$shard" "$@"
fi
if [ -n "${SLURM_JOB_ID:-}" ]; then # on a node, after all shards: put them together
    exec "$FLASHWRIGHT" sweep merge "$RESULTS"/*-of-"$SHARDS" --output "$RESULTS/whole"
fi

if [ $# -lt 3 ]; then
    echo "usage: $0 SPACE.toml SHARDS RESULTS [--destroy DEV …]" >&2
    exit 2
fi
SPACE=$(realpath "$1") SHARDS=$2
mkdir -p "$3"
RESULTS=$(realpath "$3")
FLASHWRIGHT=${FLASHWRIGHT:-flashwright}
export SPACE SHARDS RESULTS FLASHWRIGHT
script=$(realpath "$0")
shift 3
# Tells a wrong space, and a number of shards that it does not have, before anything waits in a queue.
"$FLASHWRIGHT" sweep plan "$SPACE" --shard "1/$SHARDS" > /dev/null
job=$(sbatch --parsable --export=ALL --array="1-$SHARDS" --exclusive --requeue --job-name=flashwright-sweep \
    --output="$RESULTS/%A-%a.log" "$script" "$@")
# afterany: what a failed shard did measure is merged, and what is missing is said.
sbatch --parsable --export=ALL --dependency="afterany:$job" --job-name=flashwright-merge \
    --output="$RESULTS/merge.log" "$script"
