"""The judges that run our own small programs over both kinds of TCP and compare what they print."""

import os
from pathlib import Path

from side import Failed

HERE = Path(__file__).resolve().parent
CALLS = HERE / "calls"
LIMITS = CALLS / "limits.c"
# The calls with wrong arguments are meant.
COMPILER = ["cc", "-O2", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", "-Wno-nonnull", "-Wno-restrict",
            "-Wno-stringop-overflow", "-Wno-stringop-overread", "-Wno-unused-function", "-Wno-unused-result", "-pthread"]
CALLS_LIMIT_S = 40
# Sequences of so many steps, as draws.c has it.
SEEDS, STEPS = 1000, 60
HANGS_MAX = 3
DRAWS_LIMIT_S = 400


class Differential:
    """A judge whose results are what programs print."""

    is_suite = False

    def __init__(self, run, programs, limit_s, bytes_moved, broker_words=(), kernel_connections=0):
        self.name = run.__name__
        self.run = run
        self.programs = programs
        self.limit_s = limit_s
        self.bytes_moved = bytes_moved
        self.broker_words = broker_words
        # So many may be the kernel's.
        self.kernel_connections = kernel_connections

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
    run_all(side, [source for source in sorted(CALLS.glob("*.c")) if source != LIMITS])


def limits(side):
    """The same where descriptors run out: there a connection may be the kernel's, which takes none beside its own."""
    run_all(side, [LIMITS])


def run_all(side, sources):
    """Runs programs; their results are the lines under each title."""
    stuck = []
    for source in sources:
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


def draws(side):
    """Random sequences of calls on two connected sockets, by seeds."""
    program = compiled(side, HERE / "draws.c")
    seed, hung = 0, 0
    while seed < SEEDS and hung < HANGS_MAX:
        told = side.run("draws", [program, seed, SEEDS - seed], status=None, limit_s=DRAWS_LIMIT_S).decode()
        side.results.update(line.split() for line in told.splitlines())
        seed += len(told.splitlines())
        if seed < SEEDS:
            # The seed at which it died or was killed by its alarm.
            side.results[str(seed)] = "hung"
            hung, seed = hung + 1, seed + 1
    side.results["seeds"] = seed
    side.notes["seeds"] = seed


def draw_differs(side, seed, steps):
    """What some steps of a seed give on kernel TCP and through the window, if that differs."""
    words = [side.folder / "draws", seed, "-", ",".join(["", *map(str, steps), ""])]
    told = [side.run(f"draw-{seed}", words, status=None, limit_s=25, plain=plain).decode().splitlines()
            for plain in (True, False)]
    return told if told[0] != told[1] else None


def shrunk(side):
    """The fewest steps, by halving, of each of some seeds that still differ, and what they give."""
    compiled(side, HERE / "draws.c")
    for seed in os.environ["JUDGE_SEEDS"].split():
        steps = list(range(STEPS))
        told = draw_differs(side, seed, steps)
        part = len(steps) // 2
        while told and part >= 1:
            for start in range(0, len(steps), part):
                fewer = steps[:start] + steps[start + part:]
                if found := draw_differs(side, seed, fewer):
                    steps, told = fewer, found
                    break
            else:
                part //= 2
        side.results[seed] = told


JUDGES = [
    Differential(calls, ["cc"], 240, 100 << 20),
    Differential(limits, ["cc"], 60, 0, kernel_connections=1),
    Differential(draws, ["cc"], 420, 1 << 20),
]
# Runs after draws, in one namespace, for the seeds that differ.
SHRUNK = Differential(shrunk, ["cc"], 120, 0)
