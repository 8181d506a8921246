#!/bin/bash
# A job on a burst buffer of flashwright (docs/slurm.md): its input is there when it starts, its checkpoints are drained while it computes,
# and its results are staged out when it has left its nodes.
#
#   job=$(sbatch --parsable examples/slurm/burst-buffer.sh)
#   sbatch --dependency=afterburstbuffer:$job analyse.sh
#
# Adapt the paths. `./solver` writes checkpoints as "checkpoints/ckpt-N", fsyncs them, and renames a file "checkpoints/ckpt-N.done" into place.
# Slurm sends its tasks SIGTERM five minutes before the limit (this shell is not signalled); then it writes its last one and ends.
#
#SBATCH --nodes=2
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@300
#BB_LUA pool=scratch capacity=500G
#BB_LUA stage_in source=/lustre/me/mesh destination=mesh
#BB_LUA drain source=checkpoints destination=/lustre/me/run trigger=*.done keep=2 bwlimit=2GB/s
#BB_LUA stage_out source=results destination=/lustre/me/results
set -eu

cd "$BB_JOB_DIR"
srun "$SLURM_SUBMIT_DIR/solver" --mesh mesh --checkpoints checkpoints --results results
