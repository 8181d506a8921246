# Looks after the pools and after what jobs have left, beside slurmctld: run by `bash -c` in the directory of records. Nobody waits for it,
# so that it may ask slurmctld. $1 is the command line that lists the pools.
set -u
exec 9>refresh.lock && flock -n 9 || exit

# A reservation lasts a day, and is renewed once an hour.
bash -c "$1" >pools.json.refresh && mv pools.json.refresh pools.json
# What a killed writer has left of a file that was not whole.
find . -name '*.new.*' -mmin +60 -delete
find . -name '*.renew' -mmin +60 -exec touch {} \; -exec sh {} \;

# Has Slurm done with a job, but for its teardown? While results are staged out, its state is STAGE_OUT.
is_over() {
    local facts state buffer
    facts=$(timeout 60 scontrol --oneliner show job "$1" 2>&1) || [[ $facts == *"Invalid job id"* ]] || return
    # Of an array there are lines of all its tasks.
    facts=$(grep "^JobId=$1 " <<<"$facts") || return 0
    [[ $facts =~ \ JobState=([A-Z_]+) ]] && state=${BASH_REMATCH[1]} || return
    [[ $facts =~ \ BurstBufferState=([a-z-]+) ]] && buffer=${BASH_REMATCH[1]} || buffer=
    case $state in
    CANCELLED | COMPLETED | FAILED | TIMEOUT | NODE_FAIL | OUT_OF_MEMORY | DEADLINE | BOOT_FAIL) ;;
    *) return 1 ;;
    esac
    [[ $buffer == "" || $buffer == teardown* || $buffer == complete ]]
}

# slurmctld 22.05 may kill a teardown that it has just begun, together with the other calls of a cancelled job, and does not begin it again.
# JOB.over is a link to the record of a job that is over: a record that is written later, for a job that runs again, is another file.
for record in [0-9]*.json; do
    [ -e "$record" ] || continue
    id=${record%.json}
    ln -f "$record" "$id.asked" 2>/dev/null || continue
    if is_over "$id"; then ln -f "$id.asked" "$id.over"; fi
    rm -f "$id.asked"
done
# What is over goes with the answer of get_status.
for over in [0-9]*.over; do
    if [ -e "$over" ]; then exec timeout 600 scontrol show bbstat; fi
done
