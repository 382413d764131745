"""Runs the suites that are written with googletest: in batches side by side, and on after a crash."""

import os
import re
import selectors
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

from program import Ground, Result, stop

# Longer than any test takes on a loaded machine.
SILENCE_LIMIT_S = 300
# Tests that one process runs at most: the file system keeps what they leave until the process ends.
BATCH_TESTS_MAX = 30
STARTED = re.compile(r"^\[ RUN      \] (\S+)")
ENDED = re.compile(r"^\[\s+(OK|FAILED)\s+\] (\S+?),?(?:\s|$)")
# googletest's lines may follow something that RocksDB wrote without an end of line.
INNER = re.compile(rb"(?=\[ RUN      \] |\[       OK \] |\[  FAILED  \] )")
# googletest 1.8 knows no skipping: RocksDB says so and lets the test pass.
SKIPPED = re.compile(r"^(SKIPPED|BYPASSED): ")


def listed(program, environment):
    """The names of all tests of a program."""
    command = [program, "--gtest_list_tests"]
    text = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    names, group = [], ""
    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        if not line.startswith(" "):
            group = line
        elif group.endswith("."):
            names.append(group + line.strip())
    return [name for name in names if "DISABLED_" not in name]


def matches(name, patterns):
    """Whether one of the patterns is the test's."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def lines_of(process):
    """Yields a process's lines as they come; None, and no more, when it has been silent for too long."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(SILENCE_LIMIT_S):
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                yield rest.decode(errors="replace")
                return
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                for part in INNER.split(line):
                    yield part.decode(errors="replace")
    yield None


class Batch:
    """Some tests of one program, run by as many processes as it takes when tests crash."""

    def __init__(self, program, names, ground, uri, log):
        self.program = program
        self.names = names
        self.ground = ground
        self.uri = uri
        self.log = log
        # What became of each test: "passed", "skipped" or what happened.
        self.outcomes = {}

    def run(self):
        """Runs all tests and returns itself."""
        with open(self.log, "w", buffering=1, encoding="utf-8") as log:
            while names := [name for name in self.names if name not in self.outcomes]:
                undone, reason = self._process(names, log)
                # Every process settles one test at least.
                self.outcomes.setdefault(undone or names[0], reason)
        return self

    def _process(self, names, log):
        """Runs one process until it ends; returns the test that it left undone, if any, and how it ended."""
        command = [self.program, f"--gtest_filter={':'.join(names)}", "--gtest_color=no"]
        environment = self.ground.environment(TEST_FS_URI=self.uri, MILLRACE_DEFAULT_FS=self.uri)
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running, is_skipped = None, False
        with subprocess.Popen(command, env=environment, cwd=self.ground.folder, **streams) as process:
            for line in lines_of(process):
                if line is None:
                    stop(process)
                    return running, f"silent for {SILENCE_LIMIT_S} s"
                log.write(line + "\n")
                if started := STARTED.search(line):
                    running, is_skipped = started[1], False
                elif SKIPPED.search(line):
                    is_skipped = True
                elif running and (ended := ENDED.search(line)) and ended[2] == running:
                    good = "skipped" if is_skipped else "passed"
                    self.outcomes[running] = good if ended[1] == "OK" else "failed"
                    running = None
        return running, f"ended the process with {process.returncode}"


def choice(name, slow, bench, options, environment):
    """The tests of a suite to be run, and how many more would be but do not apply."""
    reasons = bench.skipped.get(name, {})
    chosen = listed(bench.program(name), environment)
    if options.filter:
        chosen = [test for test in chosen if matches(test, options.filter)]
    elif not options.long:
        chosen = [test for test in chosen if not matches(test, slow)]
    names = [test for test in chosen if not matches(test, reasons)]
    return names, len(chosen) - len(names)


def run(name, slow, bench, options, folder):
    """Runs a suite, of which `slow` are the patterns that the short form lacks, in `folder`; returns its result."""
    start = time.monotonic()
    result = Result(name)
    environment = Ground(folder / name).environment(TEST_FS_URI=bench.memory_uri)
    names, result.left_out = choice(name, slow, bench, options, environment)

    logs = bench.logs / name
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob("*.log"):
        old.unlink()
    count = max(min(len(names), options.jobs), -(-len(names) // BATCH_TESTS_MAX))
    batches = []
    for number in range(count):
        ground = Ground(folder / f"{name}-{number}")
        log = logs / f"{number}.log"
        batches.append(Batch(bench.program(name), names[number::count], ground, bench.memory_uri, log))
    with ThreadPoolExecutor(options.jobs) as pool:
        for batch in pool.map(Batch.run, batches):
            result.add_ground(batch.ground)
            for test, outcome in batch.outcomes.items():
                result.passed += outcome == "passed"
                result.skipped += outcome == "skipped"
                if outcome not in ("passed", "skipped"):
                    result.failed.append(f"{test} {outcome}: {batch.log}")
    result.seconds = time.monotonic() - start
    return result
