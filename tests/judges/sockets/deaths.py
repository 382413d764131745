"""The judges that kill programs, brokers and forwarders while a thousand connections move checked bytes."""

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
# What a broker that carries nothing has open, and some.
IDLE_MAX = 32
SEED = int(os.environ.get("JUDGE_SEED", "1"))
# The words of a broker whose forwarder is between all programs.
BY_FORWARDERS = ["--mode", "forwarded", "--forwarders", "1"]


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

    def told(self):
        """What each live program said last: how many streams are open, bytes were moved, streams ended and broke."""
        counts = {}
        for name in self.live:
            found = re.findall(r"(\d+) open, (\d+) moved, (\d+) ended, (\d+) broken",
                               (self.side.folder / f"{name}.log").read_text())
            counts[name] = tuple(map(int, found[-1])) if found else (0, 0, 0, 0)
        return counts

    def until_all_go_on(self, what):
        """Waits until every live program with connections has moved bytes since now: nobody hangs."""
        before = self.told()

        def gone_on():
            for name, process in self.live.items():
                if process.poll() is not None:
                    raise Failed(f"{name} ended with {process.returncode}")
            # A server to whom nobody has come is left out.
            return all(moved > before[name][1] for name, (opened, moved, *_) in self.told().items()
                       if opened or name.startswith("ask"))
        self.side.until(what, gone_on)

    def pids(self, kind):
        """The processes of a kind."""
        return {process.pid for name, process in self.live.items() if name.startswith(kind)}

    def clients(self):
        """What each client said last."""
        return {name: counts for name, counts in self.told().items() if name.startswith("ask")}

    def until_all_are_open(self):
        """Waits until each client has all its connections."""
        self.side.until("all connections are open",
                        lambda: all(counts[0] == CONNECTIONS for counts in self.clients().values()), limit_s=60)

    def begin(self, servers, clients):
        """Starts them, and waits until all move bytes."""
        for _ in range(servers):
            self.start("serve")
        self.side.until_listening(PORT)
        if self.side.kind == WINDOW:
            # The broker may still list those who were killed: whoever connects meanwhile gets the kernel's TCP.
            self.side.until("these listen, and no others", lambda: self.side.listening(PORT) == self.pids("serve"))
        for _ in range(clients):
            self.start("ask")
        self.until_all_go_on("all move bytes")

    def end(self):
        """Kills them all: those who connect first, as a server that is dying may have the kernel's socket still."""
        for _, process in sorted(self.live.items()):
            process.kill()
            process.wait()
        self.live = {}


def descriptors(pid):
    """How many descriptors of memory, and of anything, a process holds."""
    kinds = {"memory": 0, "all": 0}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        kinds["all"] += 1
        try:
            kinds["memory"] += "memfd:" in os.readlink(link)
        except FileNotFoundError:
            continue
    return kinds


def kills(side):
    """Kills servers and clients at random; the others go on, and what they receive is a prefix of what was sent.

    At last the broker is killed: connections between programs go on without it.
    """
    group = _kill_programs(side)
    if side.kind == WINDOW:
        group.begin(SERVERS, CLIENTS)
        group.until_all_are_open()
        side.keep_evidence()
        before = group.clients()
        side.broker.kill()
        side.broker.wait()
        for _ in range(3):
            group.until_all_go_on("all go on without a broker")
        if any(counts[2:] != before[name][2:] for name, counts in group.clients().items()):
            raise Failed(f"connections ended with the broker: {before} before, {group.clients()} after")
        group.end()
    _tell_wrong(side)


def kills_forwarders(side):
    """The same with a forwarder between all programs; its exit breaks all connections, and ends none in order."""
    group = _kill_programs(side)
    if side.kind == WINDOW:
        group.begin(SERVERS, CLIENTS)
        group.until_all_are_open()
        side.keep_evidence()
        before = group.clients()
        side.broker.kill()
        side.broker.wait()

        def all_broke():
            return all(counts[3] - before[name][3] >= CONNECTIONS for name, counts in group.clients().items())
        side.until("all connections are broken", all_broke)
        if any(counts[2] != before[name][2] for name, counts in group.clients().items()):
            raise Failed(f"connections ended in order with their forwarder: {before} before, {group.clients()} after")
        group.until_all_go_on("all go on by the kernel")
        group.end()
    _tell_wrong(side)


def _kill_programs(side):
    draw = random.Random(SEED)
    group = Group(side, compiled(side, HERE / "kills.c"))
    group.begin(SERVERS, CLIENTS)
    for number in range(ROUNDS):
        victim = draw.choice(sorted(group.live))
        process = group.live.pop(victim)
        process.send_signal(signal.SIGKILL)
        process.wait()
        group.start(victim.split("-")[0])
        group.until_all_go_on(f"all go on after the death of {victim}, round {number}, seed {SEED}")
    group.end()
    side.results["rounds"] = ROUNDS
    if side.kind == WINDOW:
        broker = side.broker.pid
        side.until("no connection is left", lambda: side.status()["totals"]["connections"] == 0)
        side.until("the broker lets go of all memory", lambda: descriptors(broker)["memory"] == 0)
        side.until("the broker lets go of all descriptors", lambda: descriptors(broker)["all"] <= IDLE_MAX)
        side.notes["descriptors of the broker"] = descriptors(broker)["all"]
    return group


def _tell_wrong(side):
    logs = [log.read_text() for log in side.folder.glob("*-[0-9][0-9][0-9].log")]
    side.results["wrong"] = sum(text.count("WRONG") for text in logs)


JUDGES = [
    Differential(kills, ["cc"], 240, 100 << 20),
    Differential(kills_forwarders, ["cc"], 240, 100 << 20, BY_FORWARDERS),
]
