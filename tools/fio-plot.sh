#!/bin/sh
# Draws charts with fio-plot, a program not written here, from our fio-json: the proof that it reads it.
#
# usage: tools/fio-plot.sh [DIRECTORY-FOR-THE-CHARTS]
#
# fio-plot comes from PyPI into a virtual environment under target/, once. Where that cannot be done
# (no Python, no network) the script says so and ends with 0, since nothing has been shown either way.
set -eu
cd "$(dirname "$0")/.."
venv=${CARGO_TARGET_DIR:-target}/fio-plot

if [ -z "${FIO_PLOT:-}" ] && ! FIO_PLOT=$(command -v fio-plot); then
    if [ ! -x "$venv/bin/fio-plot" ]; then
        python3 -m venv "$venv" && "$venv/bin/pip" install --quiet fio-plot || {
            echo "skipped: fio-plot cannot be installed (see above)" >&2
            exit 0
        }
    fi
    FIO_PLOT=$(cd "$venv/bin" && pwd)/fio-plot
fi
export FIO_PLOT
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    FIO_PLOT_KEEP=$(cd "$1" && pwd)
    export FIO_PLOT_KEEP
fi
exec cargo test -p flashwright-fio --test json fio_plot -- --nocapture
