#!/usr/bin/env python3
"""The lab: this program in a small machine with 16 throttled NVMe drives and a kernel that has md, dm, XFS,
btrfs and all schedulers.

    python3 tools/lab [--only SCENARIO]… [--list] [--shell] [--full] [--binary FILE] [--keep] [--output DIR]

One line an assertion, a summary at the end, exit code 1 if any failed. docs/lab.md tells what is asserted,
and why.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

# The tree stays as it is.
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import guest  # noqa: E402
import image  # noqa: E402
import kit  # noqa: E402
import lab as laboratory  # noqa: E402

# In this order, so that what fails for a simple reason fails early. The last ones boot machines of their own, whose drives have
# other settings.
FIRST = ["smoke", "refusals", "zoned", "layouts", "commands", "protection"]
# What mostly waits, for its drives or for limits that are set: each line in a machine of its own beside the first.
ASIDE = [["stage", "nfs"], ["walkthrough"], ["table1"]]
# What is measured depends on what a host gives to the emulator of the drives: these begin when the machines beside have ended.
ALONE = ["search", "scaling", "ordering", "limits"]
SCENARIOS = FIRST + [name for line in ASIDE for name in line] + ALONE


def main():
    arguments = parse()
    modules = {name: importlib.import_module(f"scenarios.{name}") for name in arguments.only or SCENARIOS}
    if arguments.list:
        for name, module in modules.items():
            print(f"{name:11} {module.__doc__.splitlines()[0]}")
        return 0
    started = time.monotonic()
    try:
        kit.programs()
        binary = arguments.binary or kit.binary()
        kernel, initramfs = image.build()
    except kit.Missing as missing:
        print(f"SKIP lab: {missing}")
        return 0
    lab = laboratory.Lab(kernel, initramfs, binary, arguments.output, arguments.full)
    beside = []
    try:
        if arguments.shell:
            shell(lab)
            return 0
        if arguments.only is None:
            beside = [Beside(names, arguments, binary) for names in ASIDE]
        for name in arguments.only or FIRST:
            twice(lab, name, modules[name])
        for other in beside:
            other.add_to(lab)
        if arguments.only is None:
            for name in ALONE:
                twice(lab, name, modules[name])
    finally:
        for other in beside:
            other.end()
        lab.guest.close(keep=arguments.keep)
        if arguments.keep:
            print(f"lab: drives, console and sockets stay in {lab.guest.directory}")
    if arguments.tally:
        with open(arguments.tally, "w", encoding="utf-8") as file:
            json.dump(lab.tally(), file)
        return 1 if lab.failed else 0
    again = f", {lab.again} scenarios only at the second attempt" if lab.again else ""
    print(f"lab: {lab.passed} ok, {lab.failed} failed, {lab.skipped} skipped{again}, in {time.monotonic() - started:.0f} s")
    return 1 if lab.failed else 0


class Beside:
    """Scenarios in a process and a machine of their own. Each line of theirs says which one it is of."""

    def __init__(self, names, arguments, binary):
        self.names = names
        self.directory = tempfile.TemporaryDirectory(prefix="flashwright-lab-")
        self.tally = os.path.join(self.directory.name, "tally")
        command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "--binary", binary, "--tally", self.tally]
        command += [word for name in names for word in ("--only", name)]
        command += ["--output", arguments.output] if arguments.output else []
        command += [flag for flag, given in (("--full", arguments.full), ("--keep", arguments.keep)) if given]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def add_to(self, lab):
        """Waits for its end, and counts what it found; one that died without a word is a failure."""
        code = self.process.wait()
        try:
            with open(self.tally, encoding="utf-8") as file:
                lab.add(json.load(file))
        except (OSError, ValueError):
            lab.scenario = self.names[-1]
            lab.check("the scenarios of its machine come to their end", False, f"exit code {code}")

    def end(self):
        """However this ends, no machine stays behind."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.directory.cleanup()


def parse():
    parser = argparse.ArgumentParser(prog="tools/lab", description="runs flashwright in a small machine with 16 throttled NVMe drives")
    parser.add_argument("--only", action="append", choices=SCENARIOS, metavar="SCENARIO", help="only this one; may be given again")
    parser.add_argument("--list", action="store_true", help="show the scenarios")
    parser.add_argument("--shell", action="store_true", help="boot, and run what is typed, a line at a time")
    parser.add_argument("--full", action="store_true", help="Table 1 with all its values and test types; hours")
    parser.add_argument("--binary", metavar="FILE", help="run this one, not the debug build, which is built first")
    parser.add_argument("--keep", action="store_true", help="leave the drives' files and the console's log")
    parser.add_argument("--tally", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--output", metavar="DIR", help="where reports made in the guest are kept")
    arguments = parser.parse_args()
    if arguments.binary and not (os.path.isfile(arguments.binary) and os.access(arguments.binary, os.X_OK)):
        parser.error(f"--binary {arguments.binary}: is no program (make build-debug makes one)")
    if arguments.output:
        try:
            os.makedirs(arguments.output, exist_ok=True)
        except OSError as error:
            parser.error(f"--output {arguments.output}: {error.strerror}; a directory is needed")
    return arguments


def twice(lab, name, module):
    """One scenario; where it fails, once more on a new machine. An emulated machine on a host that others use stands
    still now and then in ways that no scenario foresees; what is wrong with the program is wrong the second time, too."""
    before = lab.tally()
    perform(lab, name, module)
    if lab.failed > before[1]:
        print(f"     {name}: once more, on a new machine", flush=True)
        lab.set_tally(before)
        lab.guest.cut_power()
        perform(lab, name, module)
        lab.again += lab.failed == before[1]


def perform(lab, name, module):
    """One scenario. It finds a machine that runs and drives that are as new, or gets them."""
    lab.scenario, started, cpu = name, time.monotonic(), lab.guest.cpu_s()
    try:
        # A scenario that boots a machine of its own kind needs no other before.
        if not getattr(module, "BOOTS", False) and (lab.guest.process is None or lab.spoilt):
            lab.boot(fresh=True)
        lab.spoilt = getattr(module, "BOOTS", False)
        module.run(lab)
    except laboratory.Stop:
        pass
    except guest.Dead as dead:
        lab.check("the guest stays up and answers", False, str(dead))
        lab.guest.cut_power()
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        # A document without a field that it should have is a failure like any other; the rest still runs.
        lab.check("the scenario can be carried out", False, "".join(traceback.format_exception(error)))
    print(f"     {name}: {time.monotonic() - started:.0f} s ({lab.guest.cpu_s() - cpu:.0f} s of CPU time)", flush=True)


def shell(lab):
    """Runs lines from standard input in the guest."""
    lab.boot()
    print("a line at a time, in the guest; end with Ctrl-D")
    for line in sys.stdin:
        answer = lab.guest.run(line, timeout=3600)
        print(answer.out, end="")
        print(answer.err, end="", file=sys.stderr)
        if answer.code:
            print(f"exit code {answer.code}", file=sys.stderr)


def interrupted(number, _frame):
    # An exception, so that every `finally` on the way ends the guest and removes its drives. Once is enough:
    # a second signal must not cut that short.
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    print(f"lab: ended by {signal.Signals(number).name}", flush=True)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    sys.exit(main())
