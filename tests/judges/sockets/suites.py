"""The judges that run others' test suites and compare how each test ends."""

import json
import os
import re
import sys
import time
from pathlib import Path

from side import Failed

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millrace"
# The interpreter whose own tests Debian has as a package.
PYTHON = "/usr/bin/python3"
# No test of theirs is silent for so long on kernel TCP of an idle machine.
SILENCE_LIMIT_S = 25


class Suite:
    """A judge whose results are the outcomes of tests."""

    is_suite = True

    def __init__(self, name, run, programs, limit_s, bytes_moved):
        self.name = name
        self.run = run
        self.programs = programs
        self.limit_s = limit_s
        self.bytes_moved = bytes_moved

    def needs(self):
        """The programs that must be there."""
        return ["unshare", "ip", *self.programs]


def cpython(module):
    """How to run a module of CPython's tests.

    A process runs them in order and tells how each began and ended. When it dies or is silent for too long that is
    the outcome of the test it was at, and another process goes on behind it.
    """
    def run(side):
        tests = json.loads(side.run("list", [PYTHON, HERE / "cpython.py", "list", module]).splitlines()[-1])
        while tests:
            done = _cpython_part(side, module, tests)
            side.results.update(done)
            tests = [test for test in tests if test not in done]
        outcomes = list(side.results.values())
        for outcome in sorted(set(outcomes)):
            side.notes[outcome] = outcomes.count(outcome)
    return run


def _cpython_part(side, module, tests):
    """Runs tests until all ended, or one took the process with it."""
    wanted, told = side.folder / "tests.json", side.folder / "outcomes"
    wanted.write_text(json.dumps(tests))
    told.write_text("")
    process = side.start(module, [PYTHON, HERE / "cpython.py", "run", module, wanted, told], cwd=side.folder)
    seen, heard = 0, time.monotonic()
    end = None
    while end is None:
        end = process.poll()
        if (length := told.stat().st_size) != seen:
            seen, heard = length, time.monotonic()
        elif end is None and time.monotonic() - heard > side.seconds_left(SILENCE_LIMIT_S):
            process.kill()
            process.wait()
            end = "hung"
        if time.monotonic() > side.deadline:
            process.kill()
            raise Failed(f"{module} takes too long")
        time.sleep(0.05)
    begun, done = None, {}
    for line in told.read_text().splitlines():
        event, _, test = line.partition(" ")
        if event == "begin":
            begun = test
        else:
            done[test], begun = event, None
    if begun is not None:
        done[begun] = "hung" if end == "hung" else "died"
    elif not done:
        raise Failed(f"{module} ran nothing")
    elif any(test not in done for test in tests):
        # It ended between tests, or skipped the fixtures of a class.
        done.update({test: "not run" for test in tests if test not in done} if end == 0 else {})
    return done


def tokio(side):
    """tokio's own tests of TCP."""
    programs = json.loads((CACHE / "sockets/tokio/programs.json").read_text())
    for name, program in programs.items():
        told = side.run(name, [program, "--test-threads", 4], status=None, limit_s=40).decode()
        outcomes = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (\w+)", told, re.M)
        if not outcomes:
            side.results[name] = "no test ended"
        side.results.update({f"{name} {test}": outcome for test, outcome in outcomes})
    side.notes["ok"] = list(side.results.values()).count("ok")


JUDGES = [
    Suite("test_socket", cpython("test_socket"), [PYTHON], 150, 1 << 10),
    Suite("test_selectors", cpython("test_selectors"), [PYTHON], 60, 1 << 6),
    Suite("test_ftplib", cpython("test_ftplib"), [PYTHON], 60, 1 << 10),
    Suite("test_ssl", cpython("test_ssl"), [PYTHON], 120, 1 << 10),
    Suite("test_asyncio", cpython("test_asyncio"), [PYTHON], 400, 1 << 20),
    Suite("tokio", tokio, [str(CACHE / "sockets/tokio/programs.json")], 120, 1 << 10),
]
