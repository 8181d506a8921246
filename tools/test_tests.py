"""What tools/tests.py says of outputs that are known: every way in which a part can fail, and none that looks like one."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).with_name("tests.py")
PASSED = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s"
FAILED = "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s"


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Parts(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.notes = pathlib.Path(directory.name, "tests")
        self.notes.mkdir()

    def run_part(self, script: str, repeats: str = "0", name: str = "part"):
        """Exit code of a part whose command is a script, and what it noted."""
        environment = {**os.environ, "TESTS_REPEAT": repeats, "HERE": str(self.notes)}
        command = [sys.executable, TESTS, "run", self.notes / name, "sh", "-c", script]
        code = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode
        return code, json.loads((self.notes / name).read_text())

    def print_part(self, *lines: str, end: int = 0):
        text = "\n".join(lines)
        return self.run_part(f"cat <<'END'\n{text}\nEND\nexit {end}")

    def summary(self, *names: str):
        command = [sys.executable, TESTS, "summary", self.notes, *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_a_part_whose_tests_pass(self):
        code, note = self.print_part("test a ... ok", PASSED, "SKIP b: no drive", "SKIPPED: no ring", "SKIPPED [3] x.py:7: no root")
        self.assertEqual((code, note["passed"], note["failed"], note["left_out"]), (0, 1, 0, ["b: no drive", "no ring", "[3] x.py:7: no root"]))
        code, text = self.summary("part")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"part +1 +0 +0 +5 ")

    def test_a_test_that_fails_has_a_name(self):
        code, note = self.print_part("test a - should panic ... FAILED", FAILED, end=101)
        self.assertEqual((code, note["failed"], note["failures"]), (101, 1, ["a"]))
        code, note = self.print_part("FAILED x.py::test_a - AssertionError", "ERROR x.py::test_b - OSError", "1 failed, 4 passed, 1 error in 0.1s", end=1)
        self.assertEqual((code, note["passed"], note["failed"], len(note["failures"])), (1, 4, 2, 2))
        self.assertEqual(self.summary("part")[0], 1)

    def test_what_says_that_it_failed_has_failed_whatever_its_exit_code(self):
        code, note = self.print_part("ok   a", "FAIL b")
        self.assertEqual((code, note["failed"], note["failures"]), (1, 1, ["b"]))

    def test_an_end_without_words_is_a_failure(self):
        for script in ("exit 3", "kill -9 $$", "echo FINE"):
            code, note = self.run_part(script)
            self.assertNotEqual(code, 0, script)
            self.assertEqual(len(note["failures"]), 1, script)

    def test_what_a_passing_test_prints_is_not_counted(self):
        output = ("successes:", "", "---- a stdout ----", "failures:", "test b ... FAILED", FAILED, "FAIL c", "SKIP d: here", "")
        code, note = self.print_part("test a ... ok", "", *output, "successes:", "    a", "", PASSED)
        self.assertEqual((code, note["passed"], note["failed"], note["left_out"]), (0, 1, 0, ["a: d: here"]))

    def test_a_failure_after_the_output_of_passing_tests_is_seen(self):
        output = ("successes:", "", "---- a stdout ----", "fine", "", "successes:", "    a", "")
        code, note = self.print_part("test b ... FAILED", *output, "failures:", "    b", "", FAILED, end=101)
        self.assertEqual((code, note["failed"], note["failures"]), (101, 1, ["b"]))

    def test_what_passes_at_the_second_attempt_is_told(self):
        script = "if [ -e $HERE/again ]; then echo 'ok   a'; else touch $HERE/again; echo 'FAIL a'; fi"
        code, note = self.run_part(script, repeats="1")
        self.assertEqual((code, note["passed"], note["failed"], note["repeated"]), (0, 1, 0, ["a"]))
        self.assertIn("passed only at the second attempt: 1\n  a\n", self.summary("part")[1])

    def test_what_is_left_out_at_the_second_attempt_has_not_passed(self):
        for second in ("echo 'SKIP a: busy'", "echo 'ok   b'; echo 'SKIP a: busy'", "true"):
            script = f"if [ -e $HERE/again ]; then {second}; else touch $HERE/again; echo 'ok   b'; echo 'FAIL a'; fi"
            code, note = self.run_part(script, repeats="1")
            self.assertEqual((code, note["repeated"]), (1, []), second)
            self.assertIn("a", note["failures"])
            (self.notes / "again").unlink()

    def test_what_fails_twice_is_named_once(self):
        code, note = self.run_part("echo 'FAIL a'; exit 1", repeats="1")
        self.assertEqual((code, note["failures"]), (1, ["a"]))

    def test_a_part_that_is_ended_leaves_no_process_and_no_note_of_an_earlier_run(self):
        self.print_part("ok   a")
        script = "echo $$ >$HERE/pid; sleep 600; echo 'ok   a'"
        environment = {**os.environ, "HERE": str(self.notes)}
        part = subprocess.Popen([sys.executable, TESTS, "run", self.notes / "part", "sh", "-c", script], env=environment)
        pid = self.notes / "pid"
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.01)
        part.send_signal(signal.SIGTERM)
        self.assertNotEqual(part.wait(), 0)
        # Whoever inherits the last of them takes a moment to wait for it.
        while is_there(int(pid.read_text())):
            time.sleep(0.01)
        code, text = self.summary("part")
        self.assertEqual(code, 1)
        self.assertIn("did not run  FAILED", text)

    def test_parts_that_never_ran_and_no_parts_at_all(self):
        self.print_part("ok   a")
        code, text = self.summary("part", "other", "--", "third")
        self.assertEqual(code, 1)
        self.assertIn("not run: third: make test-third", text)
        code, text = self.summary("--", "third")
        self.assertEqual(code, 1)
        self.assertIn("PARTS names no part", text)

    def test_a_program_whose_failures_have_no_name_is_not_repeated(self):
        script = """if True:
            import tests
            program = tests.programs.Program("p", "", ("false",), ".", ())
            part = tests.Part()
            part.failed = 1
            tests.repeat(part, tests.programs.Outcome(program, 101, False, []), 1, [])
            assert part.failures == ["p: 1 of 1 failed tests have no name in its output"], part.failures
            assert part.failed == 2 and not part.repeated
        """
        subprocess.run([sys.executable, "-c", script], cwd=TESTS.parent, stdout=subprocess.DEVNULL, check=True)

    def test_a_scenario_of_the_lab_that_is_repeated_counts_once(self):
        again = ("FAIL moves: a", " moves: once more, on a new machine", "ok   moves: a", " moves: 9 s (3 s of CPU time)", "lab: 1 ok, 0 failed, 0 left out")
        code, note = self.print_part(*again)
        self.assertEqual((code, note["passed"], note["failed"], note["repeated"]), (0, 1, 0, ["moves"]))


if __name__ == "__main__":
    unittest.main()
