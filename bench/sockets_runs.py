"""Runs one measurement over user-level sockets or the kernel's: which broker, which processors, what must be seen."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MILLRACE = Path(os.environ.get("MILLRACE", ROOT / "target/release/millrace"))
TALK = ROOT / "target/bench-sockets/talk"
PORT = 4711
# The sides of ours, and the broker's mode for each.
MODES = {"direct": "direct", "proxy": "forwarded"}
OURS = tuple(MODES)
# The processors of the client, the server and the broker with its forwarder, by the side; a star is all of them.
APART = {"tcp": "011", "unix": "011", "direct": "011", "proxy": "001"}
TOGETHER = dict.fromkeys(APART, "001")
FREE = dict.fromkeys(APART, "***")
LISTEN = "0A"
START_LIMIT_S, RUN_LIMIT_S = 20, 300


class Failed(Exception):
    """A run did not go as it must; there are no figures of it."""


class Runs:
    """Starts brokers and programs, and looks at what went through the window and what through the kernel."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bench-sockets-"))
        self.socket = self.folder / "broker"
        self.broker = None
        self.brokered = None

    def close(self):
        """Ends what runs and forgets the folder."""
        end(self.broker)
        shutil.rmtree(self.folder, ignore_errors=True)

    def under(self, side, cpus):
        """What stands before a program's own command; a broker for the side runs then."""
        if side not in OURS:
            return []
        if self.brokered != (side, cpus):
            end(self.broker)
            line = [MILLRACE, "sockets", "broker", "--socket", self.socket, "--mode", MODES[side]]
            line += ["--forwarders", 1] if side == "proxy" else []
            with (self.folder / "broker.log").open("a") as log:
                self.broker = subprocess.Popen(words(pinned(cpus, line)), stdout=subprocess.DEVNULL, stderr=log)
            self.brokered = (side, cpus)
            wait_for(self.socket.exists, "the broker")
        return [MILLRACE, "sockets", "run", "--socket", self.socket, "--"]

    def totals(self):
        """The broker's counters."""
        line = [MILLRACE, "sockets", "status", "--socket", self.socket, "--json"]
        return json.loads(subprocess.run(words(line), capture_output=True, check=True).stdout)["totals"]

    def beside(self, side, server, client, expected, *, pins=None, port=None):
        """Runs the client against the server and returns what the client printed.

        The server is ready when it listens on the port, or without one when it says so. Of ours the window's counters
        must have moved by the bytes that are expected of what was printed, and the kernel must have opened and
        accepted no connection.
        """
        of_client, of_server, of_forwarder = (pins or APART)[side]
        before_words = self.under(side, of_forwarder)
        moved = self.totals() if side in OURS else None
        kernel = kernel_connections()
        with (self.folder / "server.log").open("w") as log:
            started = subprocess.Popen(words(pinned(of_server, [*before_words, *server])), stdout=subprocess.PIPE,
                                       stderr=log, start_new_session=True)
        try:
            if port is None:
                started.stdout.readline()
            else:
                wait_for(lambda: listens(port), server[0])
            run = subprocess.run(words(pinned(of_client, [*before_words, *client])), capture_output=True,
                                 timeout=RUN_LIMIT_S, text=True, check=False)
            if run.returncode:
                raise Failed(f"{side}: {' '.join(words(client))}: {run.stderr.strip()[-500:]}")
            if side in OURS:
                if kernel_connections() != kernel:
                    raise Failed(f"{side}: {' '.join(words(client))}: connections through the kernel")
                after, due = self.totals(), expected(run.stdout)
                for counter in ("bytes_sent", "bytes_received"):
                    if after[counter] - moved[counter] < due:
                        raise Failed(f"{side}: {' '.join(words(client))}: {counter} moved by "
                                     f"{after[counter] - moved[counter]}, and {due} were due")
            return run.stdout
        finally:
            end(started)

    def talk(self, side, part, of_both, of_client, *, pins=None):
        """Two programs of talk; the figures that the asking one prints."""
        kind = f"unix:{self.folder}/talk" if side == "unix" else f"tcp:{port_of(side)}"
        server, client = [TALK, part, kind, "serve", *of_both], [TALK, part, kind, "ask", *of_both, *of_client]
        return json.loads(self.beside(side, server, client, lambda out: json.loads(out)["bytes"], pins=pins))

    def ring(self, size, what, count):
        """Two processes that drive a ring by hand, a processor each."""
        line = [TALK, "ring", size, what, count, 0, 1]
        return json.loads(subprocess.run(words(line), capture_output=True, check=True, timeout=RUN_LIMIT_S).stdout)

    def show_logs(self):
        """What the broker and the last server said."""
        for log in ("broker.log", "server.log"):
            path = self.folder / log
            if path.exists():
                print(path.read_text()[-1000:], file=sys.stderr)


def words(line):
    """A command line's words as strings."""
    return [str(word) for word in line]


def pinned(cpu, line):
    """The command line on a processor; a star is all of them."""
    return line if cpu == "*" else ["taskset", "-c", cpu, *line]


def port_of(side):
    """The kernel's connections linger in TIME_WAIT: they have a port of their own."""
    return PORT if side in OURS else PORT + 1


def kernel_connections():
    """How many TCP connections the kernel has opened and accepted in this network namespace."""
    lines = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")]
    counters = dict(zip(lines[0], lines[1]))
    return counters["ActiveOpens"], counters["PassiveOpens"]


def listens(port):
    """Whether a program listens on the port."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(name).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == LISTEN and int(columns[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def wait_for(condition, what):
    """Looks until it holds."""
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what} does not start")
        time.sleep(0.01)


def end(process):
    """Ends a program and waits for it."""
    if process is not None and process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def nginx(runs, side, connections, requests, kept):
    """Requests for a file of 1 KB: what ab reports."""
    port = port_of(side)
    root = runs.folder / "www"
    root.mkdir(exist_ok=True)
    (root / "1k").write_bytes(b"x" * 1024)
    conf = runs.folder / "nginx.conf"
    conf.write_text(
        f"daemon off; worker_processes 1; pid {runs.folder}/nginx.pid; error_log {runs.folder}/nginx.log;\n"
        "user root; events { worker_connections 1024; }\n"
        f"http {{ access_log off; keepalive_requests 1000000; server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    server = ["nginx", "-c", conf, "-e", f"{runs.folder}/nginx.log"]
    keep = ["-k"] if kept else []
    client = ["ab", "-q", *keep, "-c", connections, "-n", requests, f"http://127.0.0.1:{port}/1k"]
    out = runs.beside(side, server, client, lambda _: requests * 1024, port=port)
    if not re.search(r"Failed requests:\s+0\b", out):
        raise Failed(f"{side}: ab has failed requests")
    rate = float(re.search(r"Requests per second:\s+([\d.]+)", out)[1])
    return {"a_second": rate, "mean_us": 1e6 * connections / rate}


def redis(runs, side, connections, requests):
    """GET of three bytes: what redis-benchmark reports."""
    port = port_of(side)
    server = ["redis-server", "--port", port, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    client = ["redis-benchmark", "-p", port, "-t", "get", "-c", connections, "-n", requests, "--csv"]
    out = runs.beside(side, server, client, lambda _: requests, port=port)
    header, values = (line.replace('"', "").split(",") for line in out.strip().splitlines()[-2:])
    row = dict(zip(header, values))
    return {"a_second": float(row["rps"]), "p50_us": 1e3 * float(row["p50_latency_ms"]),
            "p99_us": 1e3 * float(row["p99_latency_ms"])}
