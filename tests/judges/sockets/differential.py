"""The judges that run our own small programs over both kinds of TCP and compare what they print."""

import itertools
import shutil
import subprocess
from pathlib import Path

from side import KERNEL, Failed

HERE = Path(__file__).resolve().parent
CALLS = HERE / "calls"
# The calls with wrong arguments are meant.
COMPILER = ["cc", "-O2", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", "-Wno-nonnull", "-Wno-restrict",
            "-Wno-stringop-overflow", "-Wno-stringop-overread", "-Wno-unused-function", "-Wno-unused-result", "-pthread"]
CALLS_LIMIT_S = 40


class Differential:
    """A judge whose results are what programs print."""

    is_suite = False

    def __init__(self, run, programs, limit_s, bytes_moved):
        self.name = run.__name__
        self.run = run
        self.programs = programs
        self.limit_s = limit_s
        self.bytes_moved = bytes_moved

    def needs(self):
        """The programs that must be there."""
        return ["unshare", "ip", *self.programs]


def compiled(side, source):
    """Compiles a program into the side's folder."""
    program = side.folder / source.stem
    side.run("cc", [*COMPILER, "-o", program, source], plain=True)
    return program


def calls(side):
    """A program for each group of calls; its lines by their titles."""
    stuck = []
    for source in sorted(CALLS.glob("*.c")):
        program = compiled(side, source)
        try:
            side.run(source.stem, [program], status=None, limit_s=CALLS_LIMIT_S)
        except Failed as failure:
            stuck.append(str(failure))
        for title, lines in sections((side.folder / f"{source.stem}.log").read_text(errors="replace")):
            side.results[f"{source.stem}: {title}"] = lines
    if stuck:
        raise Failed("; ".join(stuck))


def sections(text):
    """The lines under each title."""
    title, lines = "before", []
    for line in text.splitlines():
        if line.startswith("$ "):
            continue
        if line.startswith("== "):
            yield title, lines
            title, lines = line[3:], []
        else:
            lines.append(line)
    yield title, lines


JUDGES = [
    Differential(calls, ["cc"], 240, 100 << 20),
]
