"""One side of a comparison: programs on kernel TCP, or through the window, in namespaces that hold nothing else.

The runner enters fresh network and process namespaces before it makes a `Side`, so that every TCP socket there is
one of the judge's, the namespace's own counters count them exactly, and all processes end with it.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MILLRACE = Path(os.environ.get("MILLRACE", ROOT / "target/release/millrace"))
KERNEL, WINDOW = "kernel", "window"
LISTEN = "0A"
STATES = {"01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2",
          "06": "TIME_WAIT", "07": "CLOSE", "08": "CLOSE_WAIT", "09": "LAST_ACK", "0B": "CLOSING"}
# All limits tell a hang from what goes on, and nothing about speed; this many times as long on a machine that has
# other work.
PATIENCE = float(os.environ.get("JUDGE_PATIENCE", "3"))
START_LIMIT_S = 20
END_LIMIT_S = 20
SAMPLE_S = 0.005


class Failed(Exception):
    """A program did not do what it must."""


def tcp_sockets():
    """(local port, remote port, state) of each TCP socket of the namespace."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table, encoding="ascii") as lines:
            next(lines)
            for line in lines:
                _, local, remote, state = line.split()[:4]
                yield int(local.rsplit(":", 1)[1], 16), int(remote.rsplit(":", 1)[1], 16), state


def tcp_counters():
    """The TCP counters of the namespace: connections opened, accepted, attempts that failed."""
    lines = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")]
    return dict(zip(lines[0][1:], map(int, lines[1][1:])))


class Side:
    """Runs programs, keeps their output, and gathers what is compared and what is evidence."""

    def __init__(self, kind, folder, limit_s, broker_words=()):
        self.kind = kind
        self.folder = Path(folder)
        self.broker_words = broker_words
        self.deadline = time.monotonic() + limit_s * PATIENCE
        # What both sides must agree on, and what is only told.
        self.results = {}
        self.notes = {}
        self.processes = []
        self.samples = {}
        self.sampling = threading.Event()
        # The evidence, once it must not change any more.
        self.kept = None
        self.environment = dict(os.environ, LC_ALL="C.UTF-8", TMPDIR=str(self.folder / "tmp"))
        self.environment.pop("LD_PRELOAD", None)
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        if self.kind == WINDOW:
            # The path of a Unix socket is short, whatever the folder's.
            self.environment["MILLRACE_SOCKETS"] = str(self.folder / "s" / "sockets")
            (self.folder / "s").mkdir(mode=0o700, exist_ok=True)
            self.broker = self.start("broker", [str(MILLRACE), "sockets", "broker", *self.broker_words], plain=True)
            self.until("the broker answers", lambda: self.status() is not None)
            self.before = self.status()["totals"]
            self.sampler = threading.Thread(target=self._sample, daemon=True)
            self.sampler.start()
        return self

    def __exit__(self, *_):
        self.sampling.set()
        for process in reversed(self.processes):
            process.kill()

    def _sample(self):
        while not self.sampling.wait(SAMPLE_S):
            for local, remote, state in tcp_sockets():
                if state != LISTEN:
                    key = f"{STATES.get(state, state)} {local}-{remote}"
                    self.samples[key] = self.samples.get(key, 0) + 1

    def seconds_left(self, most):
        """How long something may take."""
        return max(1, min(most * PATIENCE, self.deadline - time.monotonic()))

    def command(self, command):
        """The command line that runs a program on this side."""
        words = [str(word) for word in command]
        return words if self.kind == KERNEL else [str(MILLRACE), "sockets", "run", "--", *words]

    def start(self, name, command, *, plain=False, environment=None, **options):
        """Starts a program that goes on by itself; what it says goes to NAME.log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command] if plain else self.command(command),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=dict(self.environment, **(environment or {})), **options,
            )
        self.processes.append(process)
        return process

    def run(self, name, command, *, limit_s=60, status=0, plain=False, environment=None, **options):
        """Runs a program to its end and returns what it printed; any other exit status than `status` fails."""
        words = [str(word) for word in command] if plain else self.command(command)
        with open(self.folder / f"{name}.log", "ab") as log:
            log.write(f"$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            try:
                done = subprocess.run(
                    words, stdout=subprocess.PIPE, stderr=log, timeout=self.seconds_left(limit_s),
                    env=dict(self.environment, **(environment or {})),
                    **({"stdin": subprocess.DEVNULL} | options if "input" not in options else options),
                )
            except subprocess.TimeoutExpired as late:
                log.write(late.stdout or b"")
                raise Failed(f"{name} does not end: {' '.join(map(str, command))}") from late
            log.write(done.stdout)
        if status is not None and done.returncode != status:
            raise Failed(f"{name} ended with {done.returncode}: {' '.join(map(str, command))}")
        return done.stdout

    def stop(self, process, how=signal.SIGTERM, status=0):
        """Ends a program that was started and looks at its exit status."""
        process.send_signal(how)
        try:
            ended = process.wait(self.seconds_left(END_LIMIT_S))
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{process.args[-3:]} does not end after {how.name}") from late
        if status is not None and ended != status:
            raise Failed(f"{process.args[-3:]} ended with {ended} after {how.name}")

    def until(self, what, holds, limit_s=START_LIMIT_S):
        """Looks again and again until something holds."""
        limit = time.monotonic() + self.seconds_left(limit_s)
        while not holds():
            if time.monotonic() > limit:
                raise Failed(f"never seen: {what}")
            time.sleep(0.01)

    def until_listening(self, *ports):
        """Waits until programs listen on ports; no connection is made."""
        def all_listen():
            kernel = {local for local, _, state in tcp_sockets() if state == LISTEN}
            return kernel.issuperset(ports) and (self.kind == KERNEL or self.announced().issuperset(ports))
        self.until(f"listening on {ports}", all_listen)

    def status(self):
        """What the broker tells, or None while it does not answer."""
        done = subprocess.run([str(MILLRACE), "sockets", "status", "--json"], env=self.environment, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=START_LIMIT_S * PATIENCE)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def keep_evidence(self):
        """Takes the evidence now: what follows does without the window."""
        self.kept = self.evidence()

    def announced(self):
        """The ports on which programs listen through the window."""
        listeners = (self.status() or {}).get("listeners", [])
        return {int(listener["address"].rsplit(":", 1)[1]) for listener in listeners}

    def listening(self, port):
        """The processes that listen at a port through the window."""
        listeners = (self.status() or {}).get("listeners", [])
        return {listener["process"] for listener in listeners if listener["address"].endswith(f":{port}")}

    def evidence(self):
        """What shows where the bytes went: the window's counters, and the kernel's TCP counters of the namespace."""
        if self.kept:
            return self.kept
        counters = tcp_counters()
        found = {
            "kernel_accepted": counters["PassiveOpens"],
            "kernel_connected": counters["ActiveOpens"] - counters["AttemptFails"],
            "kernel_states": dict(sorted(self.samples.items())),
            "kernel_left": sorted(f"{STATES.get(state, state)} {local}-{remote}"
                                  for local, remote, state in tcp_sockets() if state != LISTEN),
        }
        if self.kind == WINDOW:
            status = self.status()
            after = status["totals"]
            found |= {name: after[name] - self.before[name] for name in after}
            found["requests"] = status["requests"]
        return found
