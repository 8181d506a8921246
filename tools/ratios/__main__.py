"""Compares flashwright with its peers on this machine, as ratios, and prints them as tables.

    python3 tools/ratios [TABLES [options]]      (all tables with their own settings by default; TABLES --help has them)

Every comparison is interleaved: one round runs each contender once, in an order that differs from round to round, and the
figure is the median over rounds of ours divided by theirs *in the same round*. Machines are shared and noisy; a ratio
within a round survives that, an absolute figure does not. Nothing here passes or fails. What is missing on this machine
is left out, with a message; files, devices and processes that were made are removed, also after an interrupt.
"""

import argparse
import importlib
import signal
import sys

import common

TABLES = ("drives", "nbd", "volumes", "hosts", "stage", "governor", "flashio", "tasks", "external", "searches", "profiles")


def main():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="tools/ratios", description=__doc__, formatter_class=formatter)
    of_tables = parser.add_subparsers(dest="tables", metavar="TABLES")
    modules = {name: importlib.import_module(name) for name in TABLES}
    for name, module in modules.items():
        about = module.__doc__.strip()
        module.arguments(of_tables.add_parser(name, help=about.splitlines()[0], description=about, formatter_class=formatter))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = parser.parse_args()
    for name in [asked.tables] if asked.tables else TABLES:
        options = asked if asked.tables else parser.parse_args([name])
        if getattr(options, "rounds", 1) is None:
            options.rounds = 1 if options.quick else 5
        common.begin(options)
        modules[name].run(options)


if __name__ == "__main__":
    main()
