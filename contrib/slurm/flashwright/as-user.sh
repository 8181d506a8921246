# What needs more than one step of the job's user: run by `bash -c`. $1 is the verb, $2 the directory of the job's journal.
set -u
verb=$1 journal=$2
shift 2
socket=FLASHWRIGHT_STAGE_SOCKET=$journal/stage.sock

# A descriptor of slurmctld's that lives on in a process here would keep slurmctld waiting for its end.
close_inherited() {
    for descriptor in /proc/self/fd/*; do
        descriptor=${descriptor##*/}
        if [ "$descriptor" -gt 2 ] && [ -e "/proc/$$/fd/$descriptor" ]; then eval "exec $descriptor>&-"; fi
    done
}

# Is the process with this name at work? One that has got its number meanwhile has another environment.
alive() {
    pid=$(cat "$1.pid" 2>/dev/null) && grep -qszxF "$socket" "/proc/$pid/environ"
}

begin() {
    name=$1
    shift
    [ ! -e ended ] || { echo "error: the job's buffer is being removed" >&2; exit 3; }
    ! alive "$name" || return 0
    rm -f "$name.code" "$name.pid"
    setsid bash -c '
        name=$1
        shift
        trap : TERM
        echo $$ >"$name.pid.new" && mv "$name.pid.new" "$name.pid"
        "$@" </dev/null >>"$name.log" 2>&1 9>&-
        code=$?
        echo "$code" >"$name.code.new" && mv "$name.code.new" "$name.code"
    ' bash "$name" "$@" </dev/null >/dev/null 2>&1 9>&- &
    # Slurm kills the process group of the caller when it has ended: the new process has to have left it.
    until [ -e "$name.pid" ]; do kill -0 $! || return; sleep 0.01; done
}

finish() {
    ! alive "$1" || kill -TERM -- "-$pid"
    for (( tenths = 0; tenths < 100; tenths++ )); do alive "$1" || return 0; sleep 0.1; done
    kill -KILL -- "-$pid"
}

# Is this absolute name there? One below a directory that its user has closed to itself cannot be seen, and counts as there.
may_be_there() {
    local above=$1
    if [ -e "$above" ] || [ -L "$above" ]; then return 0; fi
    until [ -e "$above" ]; do above=${above%/*}; above=${above:-/}; done
    [ -d "$above" ] && [ ! -x "$above" ]
}

# Everybody can make directories where journals are.
own() {
    [ -d "$journal" ] && [ ! -L "$journal" ] && [ -O "$journal" ]
}

enter() {
    own && cd "$journal" && exec 9>processes.lock && flock -w 30 9 || { echo "error: $journal: is not there, or its lock is held" >&2; return 1; }
}

case $verb in
open)
    umask 077
    mkdir -- "$journal" 2>/dev/null
    own || { echo "error: $journal: belongs to another user" >&2; exit 3; }
    for directory; do mkdir -p -- "$directory" || exit; done ;;
serve) # $1 is flashwright, the rest flags of its server
    flashwright=$1
    shift
    close_inherited
    enter && begin server "$flashwright" stage serve --state "$journal" "$@" || exit
    exec 9>&-
    until "$flashwright" stage status >/dev/null 2>&1; do
        alive server || { tail -n 2 server.log >&2; exit 1; }
        sleep 0.1
    done ;;
begin)
    close_inherited
    enter && begin "$@" ;;
code) # how a process ended; nothing while it is at work; `lost` if it was killed
    enter && { cat "$1.code" 2>/dev/null || alive "$1" || echo lost; } ;;
said) # what a process said last
    cd "$journal" && tail -n 3 "$1.log" >&2 ;;
finish)
    enter || exit
    for name; do finish "$name"; done ;;
end)
    own || exit 0
    enter && : >ended || exit
    for file in *.pid; do [ ! -e "$file" ] || finish "${file%.pid}"; done ;;
remove)
    rm -rf --one-file-system -- "$1" 2>/dev/null || {
        # The job has left directories that it had closed to itself.
        find "$1" -xdev -type d -exec chmod u+rwx {} + 2>/dev/null
        rm -rf --one-file-system -- "$1" || exit
    }
    ! own || rm -rf --one-file-system -- "$journal" ;;
there) # those of the names that are there
    for name; do [ ! -e "$name" ] && [ ! -L "$name" ] || echo "$name"; done ;;
remains) # those of the names that may be there; of a directory with a slash at its end, unless it is seen to be empty
    for name; do
        may_be_there "${name%/}" || continue
        case $name in
        */) entries=$(ls -A -- "$name" 2>/dev/null) && [ -z "$entries" ] || echo "${name%/}" ;;
        *) echo "$name" ;;
        esac
    done ;;
esac
