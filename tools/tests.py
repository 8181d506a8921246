#!/usr/bin/env python3
"""Runs tests, and says at the end how they went: all parts in one table, what failed, what was left out, what took long.

    tools/tests.py run DIRECTORY/NAME COMMAND...     runs a part of the tests; its result is noted in DIRECTORY/NAME
    tools/tests.py crates DIRECTORY/NAME COMMAND...  the same for the programs of a `cargo test` command, several at once (tools/programs.py)
    tools/tests.py summary DIRECTORY PART... [-- PART...]
                                                     prints the table of these parts; exit code 1 if one failed or never ran. Those after
                                                     `--` were not asked for: they are named, with the command that runs them
    tools/tests.py explore DIRECTORY TIME SEED COMMAND...
                                                     `crates` again and again for that time (30m), each round with another seed, the first
                                                     with SEED, if it is not empty; prints how to repeat the rounds that failed
    tools/tests.py minutes DIRECTORY FILE            writes the minutes of the parts that were noted into the table in FILE
    tools/tests.py space DIRECTORY                   says so if the disk of DIRECTORY, where cargo builds, has no room for all parts

A test that cannot run here prints a line `SKIP ...`, `SKIPPED: ...` or `skipped: ...` and passes. cargo shows what a passing test prints
only where it is asked to (`-- --show-output`): this takes it out of what the person sees, and notes those lines. Tests
that are ignored, and those that pytest skips (`-rs`), are noted as well. Counted are the tests of cargo and pytest, and
the lines `ok ...` and `FAIL ...` of our own tools; of a scenario of the lab that was repeated, those of its second attempt.

With TESTS_REPEAT=1 what failed is run once more, with nothing beside it: of the crates the tests that failed, of another part all
of it. What passes then is no failure, and stands in the table of its own, because it depends on time, load or luck.
"""

import dataclasses
import json
import os
import pathlib
import platform
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

# The tree stays as it is.
sys.dont_write_bytecode = True

import programs  # noqa: E402

TEST = re.compile(r"---- (.+) stdout ----")
IGNORED = re.compile(r"test (.+) \.\.\. ignored(?:, (.+))?")
LEFT_OUT = re.compile(r"\s*(?:SKIP(?:PED)?:? |skipped: (?:SKIP )?)(.+)")
DOCUMENTATION = re.compile(r"\s+Doc-tests (.+)")
CARGO = re.compile(r"test result: \S+ (\d+) passed; (\d+) failed; .* finished in ([0-9.]+)s")
FAILED = re.compile(r"test (.+?)(?: - should panic)? \.\.\. FAILED|(?:FAILED|ERROR) (\S+\.py\b.*)|FAIL +(.+)")
REPEATED = re.compile(r" +(\w+): once more, on a new machine")
ENDED = re.compile(r" +(\w+): \d+ s \(\d+ s of CPU time\)")
LAB = re.compile(r"lab: (\d+) ok, (\d+) failed, .*")
PYTEST = re.compile(r"(?:\d+ \w+, )*\d+ (?:passed|failed|skipped|error).* in [0-9.]+s")
# What random tests take their cases from (.cargo/config.toml).
SEEDS = ("PROPTEST_RNG_SEED", "FLASHWRIGHT_CRASH_SEED", "FLASHWRIGHT_TEST_SEED")
REPEATS = os.environ.get("TESTS_REPEAT", "0") not in ("", "0")
# What all parts leave in cargo's directory (docs/testing.md), and what tests take beside it while they run, in GiB.
BUILT, BESIDE = 11, 6
# Of test programs, those that are named at the end.
SLOWEST = 20
# Of the output of a program that failed, so many lines are printed again at the end.
DETAIL_LINES = 150


class Part:
    """The results in a part's output, read line by line."""

    def __init__(self):
        self.passed, self.failed, self.failures, self.left_out, self.slow, self.repeated, self.details = 0, 0, [], [], [], [], []
        self.test = self.program = ""
        self.once = {}  # failures of scenarios that are made a second time, until that ends
        self.is_shown, self.is_output = True, False  # whether a line is of a result, and whether a test that passed printed it
        self.began = time.monotonic()
        # What cargo had left in its directory before.
        self.had_built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or "target", "debug").exists()

    def read(self, line: str):
        """Counts a line, and prints it unless it is output of a test that passed."""
        if self.is_counted_and_shown(line):
            print(line, end="", flush=True)

    def is_counted_and_shown(self, line: str) -> bool:
        text = line.rstrip()
        if found := TEST.fullmatch(text):
            self.test = found[1]
        if found := DOCUMENTATION.fullmatch(text):
            self.program = f"{found[1]}, documentation"
        if found := IGNORED.fullmatch(text):
            self.left_out.append(f"{found[1]}: ignored: {found[2] or 'no reason is given'}")
        elif found := LEFT_OUT.fullmatch(text):
            self.left_out.append(f"{self.test}: {found[1]}" if self.test else found[1])
        # What tests that passed have printed comes first, then their names below the same word, then what failed, then the result.
        if text == "successes:":
            self.is_shown, self.is_output = False, self.is_shown
        elif not self.is_output and (text == "failures:" or text.startswith("test result:")):
            self.is_shown, self.test = True, ""
        if self.is_shown:
            self.count(text)
        return self.is_shown

    def count(self, text: str):
        if found := CARGO.match(text):
            self.passed += int(found[1])
            self.failed += int(found[2])
            self.slow.append((float(found[3]), self.program))
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
            of = f"{found[1]}: "
            self.once[found[1]] = [failure for failure in self.failures if failure.startswith(of)]
            self.failures = [failure for failure in self.failures if not failure.startswith(of)]
        elif (found := ENDED.fullmatch(text)) and self.once.pop(found[1], None):
            if not any(failure.startswith(f"{found[1]}: ") for failure in self.failures):
                self.repeated.append(found[1])
        elif found := LAB.fullmatch(text):
            self.passed, self.failed = int(found[1]), int(found[2])

    def read_program(self, outcome: programs.Outcome):
        """Counts and prints the whole output of a test program. One that ends without a result has failed."""
        name, failed, results = outcome.program.name, self.failed, len(self.slow)
        self.is_shown, self.is_output, self.test, self.program = True, False, "", name
        for line in ["\n", outcome.program.title, *outcome.lines]:
            self.read(line)
        self.is_shown, self.is_output = True, False
        if outcome.code < 0:
            unfinished = programs.tests_without_result(outcome)
            tests = f"; without a result: {', '.join(unfinished[:8])}{' …' if unfinished[8:] else ''}" if unfinished else ""
            end = f"killed, because it still ran after {programs.LIMIT_S} s" if outcome.is_over_limit else f"ended by {signal.Signals(-outcome.code).name}"
            self.read(f"FAIL {name}: {end}{tests}\n")
        elif outcome.code != 0 and self.failed == failed:
            self.read(f"FAIL {name}: exit code {outcome.code}, but no test failed\n")
        elif outcome.code == 0 and len(self.slow) == results:
            self.read(f"FAIL {name}: ended without a result\n")
        if self.failed > failed:
            begins = next((number for number, line in enumerate(outcome.lines) if line == "failures:\n"), 0)
            self.details.append(f"{name}\n" + "".join(outcome.lines[begins:][-DETAIL_LINES:]))

    def note(self, path: pathlib.Path, code: int) -> int:
        # What was begun a second time and did not come to its end.
        self.failures = [failure for failures in self.once.values() for failure in failures] + self.failures
        if code != 0 and not self.failures:
            self.read(f"FAIL {path.name}: exit code {code}, and nothing that failed has a name\n")
        path.write_text(json.dumps({
            "exit": code, "seconds": time.monotonic() - self.began, "cpu": children_cpu(), "passed": self.passed, "failed": self.failed,
            "failures": self.failures, "left_out": list(dict.fromkeys(self.left_out)), "slow": self.slow, "repeated": self.repeated,
            "details": self.details, "had_built": self.had_built}))
        return code


def children_cpu() -> float:
    """Seconds of CPU time of all processes that were waited for, and of those that they waited for. Much less than the seconds that
    passed, on a machine that does nothing else: tests wait. Much more on one day than on another: the machine is slow."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(note: pathlib.Path, command: list) -> int:
    # Of an earlier run: it is not to stand for this one, if this one is killed.
    note.unlink(missing_ok=True)
    first = Part()
    code = run_once(first, command)
    if code == 0 and not first.passed and not first.left_out and note.name != "build":
        first.read(f"FAIL {note.name}: no test ran\n")
        return first.note(note, 1)
    if code == 0 or not REPEATS or note.name == "build":
        return first.note(note, code)
    first.failures = first.failures or [f"exit code {code}"]
    print(f"\nonce more: {' '.join(first.failures)}", flush=True)
    second = Part()
    second.began = first.began
    again = run_once(second, command)
    if again == 0 and (second.passed < max(first.passed, 1) or count(second.left_out) > count(first.left_out)):
        # What failed was left out, and has not passed.
        second.read(f"FAIL {note.name}: fewer tests ran than at the first attempt\n")
        again = 1
    if again == 0:
        second.repeated += first.failures
        second.details = first.details
        return second.note(note, 0)
    # Whatever failed twice, or only the second time.
    second.failures = list(dict.fromkeys([*first.failures, *second.failures]))
    return second.note(note, again)


def run_once(part: Part, command: list) -> int:
    # In one stream, so that a result stands behind the name of its program; in a session, all of which ends if this does.
    signal.signal(signal.SIGTERM, interrupted)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True) as child:
        try:
            for line in child.stdout:
                part.read(line)
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            raise
    # What says that it failed has failed, whatever its last command said.
    return child.returncode or int(part.failed > 0)


def run_crates(note: pathlib.Path, cargo_test: list) -> int:
    note.unlink(missing_ok=True)
    part = Part()
    listed, code = programs.list_programs(cargo_test, part.read)
    if code != 0 or not listed:
        part.read(f"FAIL {' '.join(cargo_test)}: exit code {code}, {len(listed)} programs\n")
        return part.note(note, code or 1)
    for name in programs.unknown_names(listed):
        part.read(f"FAIL {name}: tools/programs.py names it, and there is no such program\n")
    signal.signal(signal.SIGTERM, interrupted)
    failed = []
    for outcome in programs.Pool().run_all([*listed, programs.documentation(cargo_test)]):
        count, names = part.failed, len(part.failures)
        part.read_program(outcome)
        if part.failed > count:
            failed.append((outcome, part.failed - count, part.failures[names:]))
    if REPEATS:
        for outcome, count, failures in failed:
            repeat(part, outcome, count, failures)
    return part.note(note, int(part.failed > 0))


def repeat(part: Part, outcome: programs.Outcome, count: int, failures: list):
    """Runs the tests of a program that failed once more, alone: all of it, if it came to no result. One whose output hid a name of
    what failed is not: another test may pass in its place."""
    program, is_whole = outcome.program, outcome.code < 0 or outcome.program.name == "documentation"
    if not is_whole:
        program = dataclasses.replace(program, arguments=(*program.arguments, "--exact", *failures))
    if len(failures) < count:
        part.read(f"FAIL {program.name}: {count - len(failures)} of {count} failed tests have no name in its output\n")
        return
    print(f"\n{program.name}: once more, alone: {'; '.join(failures)}", flush=True)
    again = Part()
    for second in programs.Pool().run_all([program]):
        again.read_program(second)
    if again.failed or again.passed < count:
        return
    part.failed -= count
    part.passed += again.passed if outcome.code < 0 else count
    for failure in failures:
        part.failures.remove(failure)
        part.repeated.append(f"{program.name}: {failure}")


def seconds(time_of: str) -> float:
    """`90s`, `30m` and `2h`."""
    if not (found := re.fullmatch(r"(\d+)([smh])", time_of)):
        sys.exit(f"error: TIME={time_of!r} is no time\nhint: a number and a unit: 90s, 30m, 2h")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def selection(program: str) -> str:
    """The words by which cargo selects a test program, such as layout/tests/real.rs or serve/src/lib.rs."""
    if program == "documentation":
        return "--doc"
    name = pathlib.Path(program)
    return f"--test {name.parent.name if name.name == 'main.rs' else name.stem}" if "tests" in name.parts else "--lib --bins"


def explore(directory: pathlib.Path, time_of: str, seed: str, cargo_test: list) -> int:
    until, failed, rounds = time.monotonic() + seconds(time_of), {}, 0
    directory.mkdir(parents=True, exist_ok=True)
    while rounds == 0 or time.monotonic() < until:
        seed = seed or str(random.SystemRandom().randrange(2**32))
        print(f"\nround {rounds + 1}: SEED={seed}", flush=True)
        # The programs that cargo lists inherit them.
        os.environ.update(dict.fromkeys(SEEDS, seed))
        note = directory / f"explore-{seed}"
        if run_crates(note, cargo_test):
            part = json.loads(note.read_text())
            failed[seed] = part["failures"], sorted({detail.split("\n")[0] for detail in part["details"]})
            if not part["slow"]:
                # No program came to a result: what is wrong is not the seed.
                return 1
        rounds, seed = rounds + 1, ""
    print(f"\n{rounds} rounds, {len(failed)} failed")
    for seed, (failures, in_programs) in failed.items():
        print(f"\nmake test-explore SEED={seed}", *failures, sep="\n  ")
        for program in in_programs:
            print(f"  {' '.join(f'{name}={seed}' for name in SEEDS)} {' '.join(cargo_test)} {selection(program)}")
    if failed:
        print("\nWhat fails again with its seed is to become a case of its own; what does not depends on time or load.")
    return int(bool(failed))


def minutes(directory: pathlib.Path, file: pathlib.Path) -> int:
    """In rows whose first cell names a part, as `test-NAME` or `make NAME`, the last cell; and the line that says where they are from."""
    parts = {note.name: noted(note) for note in directory.glob("*") if not note.name.startswith("explore-")}
    taken = {name: max(1, round(part["seconds"] / 60)) for name, part in parts.items() if part and part["exit"] == 0}
    if not taken:
        sys.exit(f"error: no part has passed in {directory}\nhint: make test, then make minutes")
    if "build" in taken and parts["build"]["had_built"]:
        # One that found something compiled says nothing of one from nothing.
        del taken["build"]
    lines, written = [], set()
    for line in file.read_text().splitlines(keepends=True):
        if (found := re.match(r"\| (?:– )?`(?:make )?(?:test-)?(\w+)` \|", line)) and found[1] in taken:
            line = re.sub(r"\| [^|]+ \|\n$", f"| {taken[found[1]]} |\n", line)
            written.add(found[1])
        elif line.startswith("Minutes are "):
            total, cpu = (round(sum(parts[name][key] for name in taken) / 60) for key in ("seconds", "cpu"))
            line = (f"Minutes are those of a run on {os.cpu_count()} CPUs ({cpu_model()}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d')}): "
                    f"{total}, and {cpu} of CPU time, for {', '.join(sorted(taken))}.\n")
        lines.append(line)
    file.write_text("".join(lines))
    print(*(f"{name:12}{taken[name]:5}{'' if name in written else '  no row'}" for name in sorted(taken)), sep="\n")
    for name in sorted(parts.keys() - taken.keys()):
        print(f"{name:12}  failed: not taken")
    return 0


def cpu_model() -> str:
    """What /proc/cpuinfo calls the processor."""
    models = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return models[0] if models else platform.machine()


def noted(file: pathlib.Path):
    """What a part noted; None if it never ran, or the disk had no room for its note."""
    try:
        return json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def summary(directory: pathlib.Path, names: list, left: list) -> int:
    parts = {name: noted(directory / name) for name in names}
    ran = {name: part for name, part in parts.items() if part}
    for name, part in ran.items():
        listed(name, "left out", part["left_out"])
    slow = sorted((seconds, program) for part in ran.values() for seconds, program in part["slow"])[-SLOWEST:]
    if slow:
        print("\nwhat took longest, in seconds")
        for seconds, program in reversed(slow):
            print(f"  {seconds:6.0f}  {program}")
    print(f"\ndisk: {built(directory.parent):.1f} GiB in {directory.parent}, {shutil.disk_usage(directory).free / 2**30:.1f} GiB free")
    # What is wrong comes last, because of a long log often only the last lines are kept.
    for name, part in ran.items():
        for detail in part["details"]:
            print(f"\n{name}: output of {detail}", end="")
    for title, key in (("passed only at the second attempt", "repeated"), ("failed", "failures")):
        for name, part in ran.items():
            listed(name, title, part[key])
    print(f"\n{'part':12}{'passed':>8}{'failed':>8}{'again':>7}{'left out':>10}{'minutes':>9}{'CPU':>7}")
    for name, part in parts.items():
        if part:
            verdict = "" if part["exit"] == 0 else f"  FAILED, exit code {part['exit']}"
            print(f"{name:12}{part['passed']:8}{part['failed']:8}{len(part['repeated']):7}{count(part['left_out']):10}"
                  f"{part['seconds'] / 60:9.1f}{part['cpu'] / 60:7.1f}{verdict}")
        else:
            print(f"{name:12}{'did not run':>33}  FAILED")
    for name in left:
        print(f"not run: {name}: make test-{name}")
    return int(any(not part or part["exit"] for part in parts.values()))


def count(left_out: list) -> int:
    """How many tests were left out: pytest puts those of one place and reason into one line, `[3] file:7: reason`."""
    return sum(int(found[1]) if (found := re.match(r"\[(\d+)\] ", line)) else 1 for line in left_out)


def listed(name: str, title: str, lines: list):
    if lines:
        print(f"\n{name}: {title}: {len(lines)}", *lines, sep="\n  ")


def built(directory: pathlib.Path) -> float:
    """GiB of the disk that cargo's directory takes."""
    return sum(file.lstat().st_blocks for file in directory.rglob("*")) * 512 / 2**30


def space(directory: pathlib.Path) -> int:
    """A disk that is full ends a build after minutes, with words about whatever was written at the time."""
    found = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    free = shutil.disk_usage(found).free / 2**30
    needed = BESIDE + max(BUILT - built(directory), 0)
    if free < needed:
        print(f"make test: {found} has {free:.1f} GiB free, and all parts take {needed:.0f} GiB more: what follows may end for want of room")
    return 0


def interrupted(number, _frame):
    # An exception, so that the programs that run are ended on the way.
    raise SystemExit(128 + number)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run" | "crates" as verb, note, *command] if command:
            path = pathlib.Path(note)
            path.parent.mkdir(parents=True, exist_ok=True)
            sys.exit({"run": run, "crates": run_crates}[verb](path, command))
        case ["summary", directory, *names] if names:
            cut = names.index("--") if "--" in names else len(names)
            if not names[:names.index("--") if "--" in names else len(names)]:
                sys.exit("error: PARTS names no part\nhint: PARTS=all, or some of them: PARTS='cargo python'")
            sys.exit(summary(pathlib.Path(directory), names[:cut], names[cut + 1:]))
        case ["space", directory]:
            sys.exit(space(pathlib.Path(directory)))
        case ["explore", directory, time_of, seed, *command] if command:
            sys.exit(explore(pathlib.Path(directory), time_of, seed, command))
        case ["minutes", directory, file]:
            sys.exit(minutes(pathlib.Path(directory), pathlib.Path(file)))
        case _:
            sys.exit(__doc__)
