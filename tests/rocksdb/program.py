"""One of RocksDB's programs on a file system of ours: its environment, its counters, and what it must not do."""

import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# What the file system counts, in the words of the line that it leaves.
COUNTED = ["files_created", "appends", "bytes_written", "syncs", "reads"]
# Many tests switch syncs off, and some never read.
MAY_BE_NONE = ["syncs", "reads"]


class Missing(Exception):
    """Something that a run needs is not there."""


@dataclass(frozen=True)
class Bench:
    """Where the programs are, and what they run on."""

    # The folder of the linked programs.
    programs: Path
    # The file system on memory that lives as long as a process, and the one on a file, named by {file}.
    memory_uri: str
    file_uri: str
    # Patterns of tests that do not apply, each with its reason, by program.
    skipped: dict
    # The folder that keeps what the programs wrote.
    logs: Path
    # The sources of RocksDB.
    sources: Path

    def program(self, name):
        """The path of a program."""
        path = self.programs / name
        if not path.is_file():
            raise Missing(f"{path} is missing")
        return path


class Ground:
    """The folder on the host that processes run in, and the folder on the file system that is all they may touch."""

    def __init__(self, folder):
        self.folder = folder
        # On the file system, which makes it; on the host it must never appear.
        self.inside = folder / "inside"
        self.processes = 0
        folder.mkdir()

    def environment(self, **more):
        """The environment of the next process."""
        self.processes += 1
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TEST_", "GTEST_"))}
        counters = self.folder / f"counters-{self.processes}"
        return inherited | {"TEST_TMPDIR": str(self.inside), "MILLRACE_FS_COUNT": str(counters)} | more

    def counted(self):
        """The sums of the counters of all processes that ended by themselves."""
        sums = Counter()
        for path in self.folder.glob("counters-*"):
            for name, value in re.findall(r"(\w+)=(\d+)", path.read_text()):
                sums[name] += int(value)
        return sums


@dataclass
class Result:
    """What became of a suite."""

    name: str
    passed: int = 0
    skipped: int = 0
    # The failed tests, each with what happened.
    failed: list = field(default_factory=list)
    # How many tests of the suite do not apply.
    left_out: int = 0
    counted: Counter = field(default_factory=Counter)
    # Whether something went past the file system.
    is_past: bool = False
    seconds: float = 0.0

    def add_ground(self, ground):
        """Takes over what a ground's processes counted."""
        self.counted += ground.counted()
        self.is_past = self.is_past or ground.inside.exists()

    def complaints(self):
        """Everything that is wrong, a line each."""
        found = list(self.failed)
        if self.is_past:
            found.append("something went past the file system: the tests' folder is on the host")
        if not self.passed:
            found.append("no test passed")
        silent = [name for name in COUNTED if not self.counted[name] and name not in MAY_BE_NONE]
        if silent and not self.failed:
            found.append(f"the file system was not used: it counted no {', '.join(silent)}")
        return found

    def line(self):
        """The suite's line."""
        word = "FAILED" if self.complaints() else "passed"
        counts = f"{self.passed} passed, {self.skipped} skipped, {len(self.failed)} failed"
        if self.left_out:
            counts += f", {self.left_out} left out"
        counters = " ".join(f"{name}={self.counted[name]}" for name in COUNTED)
        return f"{self.name:<28} {word}  {counts}; {counters}  ({self.seconds:.0f} s)"


def stop(process):
    """Kills a process and waits for its end."""
    process.kill()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        raise Missing(f"process {process.pid} does not end after SIGKILL") from None
