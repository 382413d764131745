"""The judge that kills programs while a thousand connections move checked bytes."""

import os
import random
import re
import signal
from pathlib import Path

from differential import Differential, compiled
from side import WINDOW, Failed

HERE = Path(__file__).resolve().parent
PORT = 9000
SERVERS, CLIENTS, CONNECTIONS = 3, 4, 250
ROUNDS = 12
SEED = int(os.environ.get("JUDGE_SEED", "1"))


class Group:
    """The programs of one run, by name."""

    def __init__(self, side, program):
        self.side = side
        self.program = program
        self.started = 0
        self.live = {}

    def start(self, kind):
        """Starts another server or client."""
        name = f"{kind}-{self.started:03}"
        self.started += 1
        words = ["serve", PORT] if kind == "serve" else ["ask", PORT, CONNECTIONS, self.started]
        self.live[name] = self.side.start(name, [self.program, *words])

    def moved(self):
        """How much each live program has moved, as it said last; a server to whom nobody has come is left out."""
        counts = {}
        for name in self.live:
            found = re.findall(r"(\d+) open, (\d+) moved", (self.side.folder / f"{name}.log").read_text())
            if found and int(found[-1][0]) > 0:
                counts[name] = int(found[-1][1])
            elif name.startswith("ask"):
                counts[name] = 0
        return counts

    def until_all_go_on(self, what):
        """Waits until every live program with connections has moved bytes since now: nobody hangs."""
        before = self.moved()

        def gone_on():
            for name, process in self.live.items():
                if process.poll() is not None:
                    raise Failed(f"{name} ended with {process.returncode}")
            return all(count > before.get(name, 0) for name, count in self.moved().items())
        self.side.until(what, gone_on)


def memories(pid):
    """How many descriptors of memory and of sockets a process holds."""
    kinds = {"memory": 0, "all": 0}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        kinds["all"] += 1
        try:
            kinds["memory"] += "memfd:" in os.readlink(link)
        except FileNotFoundError:
            continue
    return kinds


def kills(side):
    """Kills servers and clients at random; the others go on, and what they receive is a prefix of what was sent."""
    draw = random.Random(SEED)
    group = Group(side, compiled(side, HERE / "kills.c"))
    for _ in range(SERVERS):
        group.start("serve")
    side.until_listening(PORT)
    for _ in range(CLIENTS):
        group.start("ask")
    group.until_all_go_on("all move bytes")
    monitor = side.processes[0].pid if side.kind == WINDOW else None
    for number in range(ROUNDS):
        victim = draw.choice(sorted(group.live))
        process = group.live.pop(victim)
        process.send_signal(signal.SIGKILL)
        process.wait()
        group.start(victim.split("-")[0])
        group.until_all_go_on(f"all go on after the death of {victim}, round {number}, seed {SEED}")
    for process in group.live.values():
        process.kill()
        process.wait()
    logs = [log.read_text() for log in side.folder.glob("*-[0-9][0-9][0-9].log")]
    side.results["wrong"] = sum(text.count("WRONG") for text in logs)
    side.results["rounds"] = ROUNDS
    if monitor:
        side.until("the monitor lets go of all memory", lambda: memories(monitor)["memory"] == 0)
        side.until("no connection is left", lambda: side.status()["totals"]["connections"] == 0)
        side.notes["descriptors of the monitor"] = memories(monitor)["all"]


JUDGES = [
    Differential(kills, ["cc"], 240, 100 << 20),
]
