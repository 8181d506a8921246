#!/usr/bin/env python3
"""Runs tests, and says at the end what they left out.

    tools/tests.py run DIRECTORY/NAME COMMAND...   runs a command; what it leaves out is noted in DIRECTORY/NAME
    tools/tests.py tell DIRECTORY                  prints what the runs that noted there have left out

A test that cannot run here prints a line `SKIP ...` or `skipped: ...` and passes. cargo shows what a passing test prints
only where it is asked to (`-- --show-output`): this takes it out of what the person sees, and notes those lines. Tests
that are ignored, and those that pytest skips (`-rs`), are noted as well.
"""

import pathlib
import re
import subprocess
import sys

TEST = re.compile(r"---- (.+) stdout ----")
IGNORED = re.compile(r"test (.+) \.\.\. ignored(?:, (.+))?")
LEFT_OUT = re.compile(r"\s*(?:SKIP:? |skipped: (?:SKIP )?|SKIPPED )(.+)")


def run(note: pathlib.Path, command: list) -> int:
    note.parent.mkdir(parents=True, exist_ok=True)
    left_out = []
    test, is_shown = "", True
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as child:
        for line in child.stdout:
            if found := TEST.fullmatch(line.rstrip()):
                test = found[1]
            if found := IGNORED.fullmatch(line.rstrip()):
                left_out.append(f"{found[1]}: ignored: {found[2] or 'no reason is given'}")
            elif found := LEFT_OUT.fullmatch(line.rstrip()):
                left_out.append(f"{test}: {found[1]}" if test else found[1])
            # What tests that passed have printed comes first, then what failed, then the result.
            if line == "successes:\n":
                is_shown = False
            elif line == "failures:\n" or line.startswith("test result:"):
                is_shown, test = True, ""
            if is_shown:
                print(line, end="", flush=True)
    note.write_text("".join(f"{line}\n" for line in dict.fromkeys(left_out)))
    return child.returncode


def tell(directory: pathlib.Path) -> int:
    notes = sorted(directory.iterdir()) if directory.is_dir() else []
    lines = [f"  {note.name}: {line}" for note in notes for line in note.read_text().splitlines()]
    print(f"\nleft out: {len(lines)}" if lines else "\nnothing was left out")
    for line in lines:
        print(line)
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", note, *command] if command:
            sys.exit(run(pathlib.Path(note), command))
        case ["tell", directory]:
            sys.exit(tell(pathlib.Path(directory)))
        case _:
            sys.exit(__doc__)
