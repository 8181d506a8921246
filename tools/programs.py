"""Runs the test programs of the crates, several at once, each as `cargo test` would.

`cargo test` runs one program after another, and many of them wait: for a server, a mount, a time-out. So cargo is only asked what it
would run. It starts each program through its `runner` setting, and the runner given here prints the program's arguments, working
directory and environment instead of running it. Programs are then run from these, and documentation tests by cargo.

What a program prints is kept, and printed at its end as a whole.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

RECORD = "\x1eprogram "
RUNNER = f"""
import json, os, sys
print({RECORD!r} + json.dumps({{"arguments": sys.argv[1:], "directory": os.getcwd(), "environment": list(os.environ.items())}}), flush=True)
"""
# `     Running tests/real.rs (target/debug/deps/real-e6848756ef9d3e55)`
RUNNING = re.compile(r"\s+Running (?:unittests )?(\S+) \((.+)\)")
ENDED = re.compile(r"test (\S+)(?: - should panic)? \.\.\. (?:ok|FAILED|ignored)")
# A program that runs longer hangs: the longest takes three minutes on two cores that do nothing else.
LIMIT_S = 30 * 60
# One more than there are CPUs, because many wait.
AT_ONCE = (os.cpu_count() or 1) + 1

# The longest come first, so that none of them runs alone at the end: seconds on two cores. All others take less than 15.
SECONDS = {
    "stage-service/tests/crash/main.rs": 211, "layout/tests/real.rs": 132, "stage-service/tests/crash-nfs/main.rs": 41, "layout/tests/crash.rs": 39,
    "serve/src/lib.rs": 32, "volume/tests/model/main.rs": 27, "volume/tests/simulation/main.rs": 23, "storage/tests/engines.rs": 20,
    "cli/tests/ladder.rs": 20, "stage-service/tests/moves/main.rs": 20, "volume/tests/conformance.rs": 17, "stage-object/tests/objects.rs": 16,
    "layout/tests/replaced.rs": 16,
}
# Programs that detach a loop device and attach the same number again. Meanwhile no other program may ask for a free one.
KEEPS_LOOP_NUMBERS = {"stage-service/tests/crash/main.rs", "stage-service/tests/crash-nfs/main.rs"}
# How a test asks for a free one.
TAKES_LOOP_NUMBER = re.compile(r"\bLoopDevice::attach\(|\bLoop::(?:new|with|over|several)\(|flashio-tiers\.sh")
# Programs that compare measured rates, from which programs beside them would take.
ALONE = {"cli/tests/limits.rs", "volume/tests/scaling.rs"}


@dataclasses.dataclass(frozen=True)
class Program:
    name: str  # crate and source, such as layout/tests/real.rs
    title: str  # cargo's line
    arguments: tuple
    directory: str
    environment: tuple
    takes_loop_number: bool = False

    def excludes(self, other: "Program") -> bool:
        """Whether the two must not run at the same time."""
        keep = {self.name, other.name} & KEEPS_LOOP_NUMBERS
        return bool({self.name, other.name} & ALONE) or bool(keep and (self.takes_loop_number or other.takes_loop_number))


@dataclasses.dataclass(frozen=True)
class Outcome:
    program: Program
    code: int  # negative: the number of the signal that ended it
    is_over_limit: bool
    lines: list


def list_programs(cargo_test: list, show) -> tuple[list, int]:
    """The programs that this `cargo test` command would run, and cargo's exit code; `show` is given cargo's other lines."""
    runner = json.dumps([sys.executable, "-ISc", RUNNER])
    command = [*cargo_test, "--tests", "--no-fail-fast", "--config", f"target.'cfg(all())'.runner={runner}", "--", "--show-output"]
    programs, title = [], ""
    # In one stream, so that a record follows the line that names its program.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as cargo:
        for line in cargo.stdout:
            if line.startswith(RECORD):
                said = json.loads(line.removeprefix(RECORD))
                source = pathlib.Path(said["directory"], RUNNING.match(title)[1])
                name = f"{pathlib.Path(said['directory']).name}/{RUNNING.match(title)[1]}"
                programs.append(Program(name, title, tuple(said["arguments"]), said["directory"], tuple(map(tuple, said["environment"])),
                                        takes_loop_number(source)))
            elif RUNNING.match(line):
                title = line
            else:
                show(line)
    return programs, cargo.returncode


def takes_loop_number(source: pathlib.Path) -> bool:
    """Whether a test program asks for a free loop device: in its file or, if it has a directory, in any file there."""
    files = source.parent.rglob("*.rs") if source.name == "main.rs" else [source]
    return any(TAKES_LOOP_NUMBER.search(file.read_text()) for file in files)


def unknown_names(programs: list) -> list:
    """Names in the lists above that no program has, of a program that was renamed."""
    return sorted({*SECONDS, *KEEPS_LOOP_NUMBERS, *ALONE} - {program.name for program in programs})


def tests_without_result(outcome: Outcome) -> list:
    """Of a program that was ended: its tests that had not come to their end, in the order in which they are started."""
    program = outcome.program
    command = [*program.arguments[:1], "--list", "--format=terse"]
    try:
        listed = subprocess.run(command, cwd=program.directory, env=dict(program.environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    ended = {found[1] for line in outcome.lines if (found := ENDED.match(line))}
    names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
    return [name for name in names if name not in ended]


def documentation(cargo_test: list) -> Program:
    return Program("documentation", "", (*cargo_test, "--doc", "--no-fail-fast", "--", "--show-output"), os.getcwd(), tuple(os.environ.items()))


class Pool:
    """Runs programs, and ends what runs when the tests are interrupted."""

    def __init__(self):
        self.running, self.lock, self.is_interrupted = {}, threading.Lock(), False

    def run(self, program: Program) -> Outcome:
        with tempfile.TemporaryFile() as output:
            with self.lock:
                if self.is_interrupted:
                    return Outcome(program, -signal.SIGINT, False, [])
                # In a process group of its own, which is ended as a whole.
                child = subprocess.Popen(program.arguments, cwd=program.directory, env=dict(program.environment), stdin=subprocess.DEVNULL,
                                         stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
                self.running[child.pid] = program
            is_over_limit = False
            try:
                child.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                is_over_limit = True
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            with self.lock:
                del self.running[child.pid]
            output.seek(0)
            return Outcome(program, child.returncode, is_over_limit, output.read().decode(errors="replace").splitlines(keepends=True))

    def interrupt(self):
        with self.lock:
            self.is_interrupted = True
            for pid in self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    def run_all(self, programs: list):
        """The outcomes, as programs end."""
        waiting = sorted(programs, key=lambda program: -SECONDS.get(program.name, 0))
        running = {}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as executor:
            try:
                while waiting or running:
                    for program in list(waiting):
                        if len(running) < AT_ONCE and not any(program.excludes(other) for other in running.values()):
                            waiting.remove(program)
                            running[executor.submit(self.run, program)] = program
                    ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in ended:
                        del running[future]
                        yield future.result()
            finally:
                self.interrupt()
