#!/bin/sh
# A compute loop writes checkpoints to a fast directory; a server drains them to a slow one meanwhile. The server is killed with
# -9 in the middle of it, and started again. At the end every byte is compared: by flashwright, around the page cache, and by
# sha256sum with what the loop had written. Needs no root, 500 MB in the current directory, and less than half a minute.
#
#   sh examples/checkpoint-demo.sh [DIRECTORY]
#
# FLASHWRIGHT names the binary, if it is neither `flashwright` nor, in the source tree, what `make build` or `make run` has built.
set -eu
umask 077

target=$(cd "$(dirname "$0")/.." && pwd)/target
if [ -z "${FLASHWRIGHT:-}" ]; then
    FLASHWRIGHT=flashwright
    command -v flashwright > /dev/null || for built in "$target/quick/flashwright" "$target/release/flashwright"; do
        [ ! -x "$built" ] || FLASHWRIGHT=$built
    done
fi
command -v "$FLASHWRIGHT" > /dev/null || {
    echo "there is no $FLASHWRIGHT: make install, or make build, or name it by FLASHWRIGHT=" >&2
    exit 1
}
CHECKPOINTS=5 FILES=4 MIB=16 # 64 MiB each
mkdir -p -- "${1:-.}"
place=$(mktemp -d "${1:-.}/checkpoint-demo.XXXXXX")
place=$(cd "$place" && pwd)
fast=$place/fast slow=$place/slow
mkdir "$fast" "$slow"
FLASHWRIGHT_STAGE_SOCKET=$place/stage.sock
export FLASHWRIGHT_STAGE_SOCKET
server='' watcher='' loop=''

finish() {
    for process in $loop $watcher $server; do
        kill "$process" 2> /dev/null || true
    done
    wait
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM
say() { printf '\n== %s\n' "$*"; }

serve() {
    "$FLASHWRIGHT" stage serve --state "$place/state" --socket "$FLASHWRIGHT_STAGE_SOCKET" \
        > "$place/server.log" 2>&1 &
    server=$!
    until "$FLASHWRIGHT" stage status > "$place/status" 2> /dev/null; do
        kill -0 "$server" 2> /dev/null || { cat "$place/server.log" >&2; exit 1; }
        sleep 0.1
    done
}

# What an application does: data under a name that nobody looks at, fsync, rename, then the semaphore in the same way.
compute() {
    for step in $(seq "$CHECKPOINTS"); do
        mkdir "$fast/.ckpt-$step"
        for file in $(seq "$FILES"); do
            dd if=/dev/urandom of="$fast/.ckpt-$step/rank-$file" bs=1M count="$MIB" conv=fsync status=none
        done
        (cd "$fast/.ckpt-$step" && sha256sum rank-*) | sed "s|  |  ckpt-$step/|" >> "$place/written.sha256"
        mv "$fast/.ckpt-$step" "$fast/ckpt-$step"
        : > "$fast/.ckpt-$step.done"
        sync "$fast/.ckpt-$step.done" "$fast"
        mv "$fast/.ckpt-$step.done" "$fast/ckpt-$step.done"
        echo "   compute: step $step is on the fast tier"
        sleep 0.5 # the next step
    done
}

say "a server, and semaphores in $fast are obeyed; 40 MB/s, so that there is something to see"
serve
"$FLASHWRIGHT" stage watch "$fast" --to "$slow" --trigger '*.done' --bwlimit 40MB/s --latest &
watcher=$!
compute &
loop=$!

say "kill -9 for the server, in the middle of a checkpoint"
# A job has written some of its bytes and not all.
under_way() {
    "$FLASHWRIGHT" stage status --json | awk '
        /"state":/ { running = /"running"/ }
        /"bytes_written":/ && running && !/: 0,/ { found = 1 }
        END { exit !found }'
}
until under_way; do sleep 0.1; done
"$FLASHWRIGHT" stage status
kill -9 "$server"
wait "$server" 2> /dev/null || true
echo "   killed. On the slow tier: $(find "$slow" -mindepth 1 -maxdepth 1 -name 'ckpt-*' | wc -l) checkpoints, each of them whole"

say "the server is started again, and goes on where it was"
serve
wait "$loop"
loop=''
for step in $(seq "$CHECKPOINTS"); do
    until [ ! -e "$fast/ckpt-$step.done" ]; do sleep 0.1; done
done
for step in $(seq "$CHECKPOINTS"); do
    "$FLASHWRIGHT" stage wait "$slow/ckpt-$step"
done

say "every byte, read back from the drive"
for step in $(seq "$CHECKPOINTS"); do
    "$FLASHWRIGHT" stage verify "$slow/ckpt-$step"
done
(cd "$slow" && sha256sum --check --quiet ../written.sha256)
echo "sha256sum: $(wc -l < "$place/written.sha256") files are what the loop had written"
echo "latest: $(readlink "$slow/latest")"
left=$(find "$fast" -mindepth 1 | wc -l)
echo "left on the fast tier: $left names"
[ "$left" = 0 ]
