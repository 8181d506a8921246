#!/usr/bin/env python3
"""Runs tests, and says at the end how they went: all parts in one table, what failed, what was left out, what took long.

    tools/tests.py run DIRECTORY/NAME COMMAND...   runs a part of the tests; how it went is noted in DIRECTORY/NAME
    tools/tests.py tell DIRECTORY PART...          prints the table of these parts; exit code 1 if one failed or never ran

A test that cannot run here prints a line `SKIP ...` or `skipped: ...` and passes. cargo shows what a passing test prints
only where it is asked to (`-- --show-output`): this takes it out of what the person sees, and notes those lines. Tests
that are ignored, and those that pytest skips (`-rs`), are noted as well. Counted are the tests of cargo and pytest, and
the lines `ok ...` and `FAIL ...` of our own tools; of a scenario of the lab that was repeated, those of its second attempt.
"""

import json
import pathlib
import re
import subprocess
import sys
import time

TEST = re.compile(r"---- (.+) stdout ----")
IGNORED = re.compile(r"test (.+) \.\.\. ignored(?:, (.+))?")
LEFT_OUT = re.compile(r"\s*(?:SKIP:? |skipped: (?:SKIP )?|SKIPPED )(.+)")
BINARY = re.compile(r"\s+(?:Running (.+) \(.*/([^/]+)-[0-9a-f]+\)|Doc-tests (.+))")
CARGO = re.compile(r"test result: \S+ (\d+) passed; (\d+) failed; .* finished in ([0-9.]+)s")
FAILED = re.compile(r"test (.+) \.\.\. FAILED|FAILED (.+)|FAIL +(.+)")
REPEATED = re.compile(r" +(\w+): once more, on a new machine")
LAB = re.compile(r"lab: (\d+) ok, (\d+) failed, .*")
PYTEST = re.compile(r"(?:\d+ \w+, )*\d+ (?:passed|failed|skipped|error).* in [0-9.]+s")
# Of test programs, those that are named at the end.
SLOWEST = 10


class Part:
    """What a part's output says of it, line by line."""

    def __init__(self):
        self.passed, self.failed, self.failures, self.left_out, self.slow, self.repeated = 0, 0, [], [], [], []
        self.test = self.binary = ""
        self.is_shown = True

    def hear(self, line: str) -> bool:
        """Counts a line; whether the person is to see it."""
        text = line.rstrip()
        if found := TEST.fullmatch(text):
            self.test = found[1]
        if found := BINARY.fullmatch(text):
            self.binary = f"{found[2]} ({found[1]})" if found[1] else f"{found[3]} (documentation)"
        if found := IGNORED.fullmatch(text):
            self.left_out.append(f"{found[1]}: ignored: {found[2] or 'no reason is given'}")
        elif found := LEFT_OUT.fullmatch(text):
            self.left_out.append(f"{self.test}: {found[1]}" if self.test else found[1])
        # What tests that passed have printed comes first, then what failed, then the result.
        if text == "successes:":
            self.is_shown = False
        elif text == "failures:" or text.startswith("test result:"):
            self.is_shown, self.test = True, ""
        if self.is_shown:
            self.count(text)
        return self.is_shown

    def count(self, text: str):
        if found := CARGO.match(text):
            self.passed += int(found[1])
            self.failed += int(found[2])
            self.slow.append((float(found[3]), self.binary))
        elif PYTEST.search(text):
            for number, what in re.findall(r"(\d+) (passed|failed|error)", text):
                if what == "passed":
                    self.passed += int(number)
                else:
                    self.failed += int(number)
        elif found := FAILED.fullmatch(text):
            self.failures.append(next(name for name in found.groups() if name))
            self.failed += found[3] is not None
        elif text.startswith("ok  "):
            self.passed += 1
        elif found := REPEATED.fullmatch(text):
            self.failures = [failure for failure in self.failures if not failure.startswith(f"{found[1]}: ")]
            self.repeated.append(found[1])
        elif found := LAB.fullmatch(text):
            self.passed, self.failed = int(found[1]), int(found[2])


def run(note: pathlib.Path, command: list) -> int:
    note.parent.mkdir(parents=True, exist_ok=True)
    part, began = Part(), time.monotonic()
    # In one stream, so that a result stands behind the name of its program.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as child:
        for line in child.stdout:
            if part.hear(line):
                print(line, end="", flush=True)
    note.write_text(json.dumps({
        "exit": child.returncode, "seconds": time.monotonic() - began, "passed": part.passed, "failed": part.failed,
        "failures": part.failures, "left_out": list(dict.fromkeys(part.left_out)), "slow": part.slow, "repeated": part.repeated}))
    return child.returncode


def tell(directory: pathlib.Path, names: list) -> int:
    parts = {name: json.loads((directory / name).read_text()) if (directory / name).exists() else None for name in names}
    ran = {name: part for name, part in parts.items() if part}
    for name, part in ran.items():
        for title, lines in (("left out", part["left_out"]), ("passed only at the second attempt", part["repeated"]), ("failed", part["failures"])):
            if lines:
                print(f"\n{name}: {title}: {len(lines)}", *lines, sep="\n  ")
    slow = sorted((seconds, program) for part in ran.values() for seconds, program in part["slow"])[-SLOWEST:]
    if slow:
        print("\nwhat took longest, in seconds")
        for seconds, program in reversed(slow):
            print(f"  {seconds:6.0f}  {program}")
    print(f"\n{'part':12}{'passed':>8}{'failed':>8}{'left out':>10}{'minutes':>9}")
    for name, part in parts.items():
        if part:
            told = "" if part["exit"] == 0 else f"  FAILED, exit code {part['exit']}"
            print(f"{name:12}{part['passed']:8}{part['failed']:8}{len(part['left_out']):10}{part['seconds'] / 60:9.1f}{told}")
        else:
            print(f"{name:12}{'did not run':>26}  FAILED")
    return int(any(not part or part["exit"] for part in parts.values()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", note, *command] if command:
            sys.exit(run(pathlib.Path(note), command))
        case ["tell", directory, *names] if names:
            sys.exit(tell(pathlib.Path(directory), names))
        case _:
            sys.exit(__doc__)
