"""Unmodified programs over user-level sockets beside the kernel's, on one machine, in one run.

    bench/sockets --help

Sides:
    ring      two processes and a ring in memory they share, driven by hand: the least that it can take
    tcp       the kernel's TCP on the loopback interface
    unix      the kernel's AF_UNIX stream sockets
    direct    `millrace sockets run`, both processes drive the connection's memory themselves
    proxy     the same with a proxy in between (--mode proxy)

The two programs run on a processor each, the same ones for every side; with a proxy they share one, and it has the
other. Rounds alternate
between the sides; a ratio is the median of the rounds' ratios with the lowest and the highest beside it. After each
run of ours the monitor's counters must have moved by the bytes of the run, and no connection of the kernel's TCP may
exist on the port.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bars import bars

ROOT = Path(__file__).resolve().parent.parent
MILLRACE = ROOT / "target/release/millrace"
TALK = ROOT / "target/bench-sockets/talk"
SERVER_CPU, CLIENT_CPU = "1", "0"
PORT = 4711
OURS = ("direct", "proxy")

TRIPS = [("ring", None), ("tcp", "blocking"), ("tcp", "polling"), ("unix", "blocking"), ("unix", "polling")]
TRIPS += [("direct", mode) for mode in ("blocking", "polling", "epoll")]
# Two programs that poll on one processor would wait for the scheduler.
TRIPS += [("proxy", mode) for mode in ("blocking", "epoll")]
FLOODS = [("ring", None), ("tcp", "blocking"), ("unix", "blocking"), ("direct", "blocking"), ("proxy", "blocking")]


class Failed(Exception):
    pass


class Bench:
    def __init__(self, options):
        self.options = options
        self.sides = options.sides.split(",")
        self.folder = Path(tempfile.mkdtemp(prefix="bench-sockets-"))
        self.monitor = None
        self.socket = self.folder / "monitor"

    def close(self):
        if self.monitor:
            end(self.monitor)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_monitor(self, mode):
        """A monitor of its own for each mode."""
        if self.monitor:
            end(self.monitor)
        line = [str(MILLRACE), "sockets", "monitor", "--socket", str(self.socket)]
        if mode == "proxy":
            line += ["--mode", "proxy", "--planes", "1"]
        line = ["taskset", "-c", SERVER_CPU, *line]
        self.monitor = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=(self.folder / "monitor.log").open("a"))
        self.mode = mode
        wait_for(lambda: self.socket.exists(), "the monitor")

    def under(self, side):
        """What stands before a program's own command."""
        if side not in OURS:
            return []
        if not self.monitor or self.mode != side:
            self.start_monitor(side)
        return [str(MILLRACE), "sockets", "run", "--socket", str(self.socket), "--"]

    def moved(self):
        status = subprocess.run(
            [str(MILLRACE), "sockets", "status", "--socket", str(self.socket), "--json"], capture_output=True, check=True
        )
        return json.loads(status.stdout)["totals"]["bytes_sent"]

    def beside(self, side, server, client, ready=None, expected=1):
        """Runs the client against the server and returns what the client printed."""
        before_words = self.under(side)
        moved = self.moved() if side in OURS else 0
        log = (self.folder / "server.log").open("w")
        started = subprocess.Popen(
            ["taskset", "-c", CLIENT_CPU if side == "proxy" else SERVER_CPU, *before_words, *server], stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            if ready is None:
                started.stdout.readline()
            else:
                wait_for(ready, server[0])
            run = subprocess.run(
                ["taskset", "-c", CLIENT_CPU, *before_words, *client], capture_output=True, timeout=300, text=True, check=False
            )
            if run.returncode:
                raise Failed(f"{side}: {' '.join(client)}: {run.stderr.strip()[-500:]}")
            if side in OURS:
                through_kernel = connections_of(PORT)
                if through_kernel:
                    raise Failed(f"{side}: through the kernel: {through_kernel[0]}")
                if self.moved() - moved < expected:
                    raise Failed(f"{side}: the counters did not move")
            return run.stdout
        finally:
            end(started)

    def talk(self, side, mode, size, count, connections, what):
        if side == "ring":
            line = [TALK, "ring", size, count, what, CLIENT_CPU, SERVER_CPU]
            return json.loads(subprocess.run([str(w) for w in line], capture_output=True, check=True, timeout=300).stdout)
        kind = f"unix:{self.folder}/talk" if side == "unix" else f"tcp:{self.port(side)}"
        server = [str(TALK), "serve", kind, mode, str(size)]
        client = [str(TALK), "ask", kind, mode, str(size), str(count), str(connections), what]
        return json.loads(self.beside(side, server, client))

    @staticmethod
    def port(side):
        """The kernel's connections linger in TIME_WAIT: they have a port of their own."""
        return PORT if side in OURS else PORT + 1


def connections_of(port):
    """The kernel's TCP connections on a port, listeners aside."""
    found = []
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(name).read_text().splitlines()[1:]:
            words = line.split()
            ports = {int(words[1].rsplit(":", 1)[1], 16), int(words[2].rsplit(":", 1)[1], 16)}
            if port in ports and words[3] != "0A":
                found.append(line)
    return found


def wait_for(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what} does not start")
        time.sleep(0.02)


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(port):
    def look():
        for name in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                    return True
        return False

    return look


def nginx(bench, side, connections, requests):
    """Requests for a file of 1 KB: what ab reports."""
    port = bench.port(side)
    root = bench.folder / "www"
    root.mkdir(exist_ok=True)
    (root / "1k").write_bytes(b"x" * 1024)
    conf = bench.folder / "nginx.conf"
    conf.write_text(
        f"daemon off; worker_processes 1; pid {bench.folder}/nginx.pid; error_log {bench.folder}/nginx.log;\n"
        "user root; events { worker_connections 1024; }\n"
        f"http {{ access_log off; keepalive_requests 1000000; server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    server = ["nginx", "-c", str(conf), "-e", f"{bench.folder}/nginx.log"]
    client = ["ab", "-q", "-k", "-c", str(connections), "-n", str(requests), f"http://127.0.0.1:{port}/1k"]
    out = bench.beside(side, server, client, listens(port), requests * 1024)
    rate = float(re.search(r"Requests per second:\s+([\d.]+)", out)[1])
    if not re.search(r"Failed requests:\s+0\b", out):
        raise Failed(f"{side}: ab has failed requests")
    return {"requests_a_second": rate, "mean_us": 1e6 * connections / rate}


def redis(bench, side, connections, requests):
    """GET of three bytes: what redis-benchmark reports."""
    port = bench.port(side)
    server = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    client = ["redis-benchmark", "-p", str(port), "-t", "get", "-c", str(connections), "-n", str(requests), "--csv"]
    out = bench.beside(side, server, client, listens(port), requests)
    header, values = (line.replace('"', "").split(",") for line in out.strip().splitlines()[-2:])
    row = dict(zip(header, values))
    return {"requests_a_second": float(row["rps"]), "p50_us": 1e3 * float(row["p50_latency_ms"]), "p99_us": 1e3 * float(row["p99_latency_ms"])}


class Table:
    """What was measured: name of the row -> field -> a value a round."""

    def __init__(self):
        self.rows = {}

    def add(self, row, values):
        fields = self.rows.setdefault(row, {})
        for field, value in values.items():
            fields.setdefault(field, []).append(value)

    def median(self, row, field):
        return statistics.median(self.rows[row][field])

    def ratio(self, row, other, field):
        if row not in self.rows or other not in self.rows:
            return "-"
        ratios = [a / b for a, b in zip(self.rows[row][field], self.rows[other][field])]
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def rounds(bench, table, cases):
    """Each case, every round in turn: (row, function that measures it)."""
    for number in range(bench.options.rounds):
        for row, measure in cases:
            print(f"round {number + 1}: {row}", file=sys.stderr)
            table.add(row, measure())


def print_trips(table):
    print("\n| 64 B there and back | p50 us | p99 us | p99.9 us | p50 / ring | p50 / tcp polling | p50 / tcp blocking |")
    print("|---|---|---|---|---|---|---|")
    for row in table.rows:
        times = [f"{table.median(row, field) / 1e3:.2f}" for field in ("p50_ns", "p99_ns", "p999_ns")]
        ratios = [table.ratio(row, other, "p50_ns") for other in ("ring", "tcp polling", "tcp blocking")]
        print(f"| {row} | {' | '.join(times + ratios)} |")


def print_floods(table, size):
    field = "messages_a_second" if size < 1024 else "bytes_a_second"
    unit = "million messages/s" if size < 1024 else "GB/s"
    scale = 1e6 if size < 1024 else 1e9
    print(f"\n| {size} B one way | {unit} | / ring | / tcp blocking |")
    print("|---|---|---|---|")
    for row in table.rows:
        ratios = [table.ratio(row, other, field) for other in ("ring", "tcp blocking")]
        print(f"| {row} | {table.median(row, field) / scale:.2f} | {' | '.join(ratios)} |")


def print_pairs(title, table, fields, of):
    print(f"\n| {title} | " + " | ".join(f"{field} | / {of}" for field in fields) + " |")
    print("|---" * (1 + 2 * len(fields)) + "|")
    for row in table.rows:
        base = re.sub(r"^\w+", of, row)
        cells = []
        for field in fields:
            cells += [f"{table.median(row, field):.1f}", table.ratio(row, base, field)]
        print(f"| {row} | {' | '.join(cells)} |")


def plot(tables, folder):
    """Pictures of the tables: bars are medians, thin lines the 99th percentiles."""
    folder.mkdir(exist_ok=True)

    def write(name, table, title, unit, value, mark, scale):
        def of(row, field):
            return table.median(row, field) / scale if field else None

        rows = [(row, of(row, value), of(row, mark)) for row in table.rows]
        if rows:
            (folder / f"sockets-{name.replace(' ', '-')}.svg").write_text(bars(title, unit, rows))

    for name, table in tables.items():
        if name == "trips":
            write(name, table, "64 B there and back: median, and 99th percentile", "us", "p50_ns", "p99_ns", 1e3)
        elif name == "growth":
            write(name, table, "One of N connections active at a time: median, and 99th percentile", "us", "p50_ns", "p99_ns", 1e3)
        elif name.startswith("flood"):
            size = int(name.split()[1])
            if size < 1024:
                write(name, table, f"{size} B one way", "million/s", "messages_a_second", None, 1e6)
            else:
                write(name, table, f"{size} B one way", "GB/s", "bytes_a_second", None, 1e9)
        elif name == "nginx":
            write(name, table, "nginx, files of 1 KB, ab -k: mean time of a request", "us", "mean_us", None, 1)
        elif name == "redis":
            write(name, table, "redis GET: median, and 99th percentile", "us", "p50_us", "p99_us", 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default="ring,tcp,unix,direct,proxy")
    parser.add_argument("--parts", default="trips,floods,growth,nginx,redis")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all counts of messages and requests")
    parser.add_argument("--plots", type=Path, help="a folder for pictures")
    parser.add_argument("--json", type=Path, help="every value of every round")
    options = parser.parse_args()
    bench = Bench(options)
    parts, sides = options.parts.split(","), options.sides.split(",")
    tables = {}

    def count(base):
        return max(100, int(base * options.scale))

    def of(cases):
        return [case for case in cases if case[0] in sides]

    print(f"load before: {os.getloadavg()[0]:.2f}; {options.rounds} rounds", flush=True)
    try:
        if "trips" in parts:
            table = tables["trips"] = Table()
            slow = {"tcp": 20_000, "unix": 20_000}
            cases = [
                (f"{side} {mode or ''}".strip(), lambda s=side, m=mode: bench.talk(s, m, 64, count(slow.get(s, 200_000)), 1, "trips"))
                for side, mode in of(TRIPS)
            ]
            rounds(bench, table, cases)
            print_trips(table)
        if "floods" in parts:
            for size, number in ((16, 2_000_000), (64, 2_000_000), (8192, 200_000)):
                table = tables[f"flood {size}"] = Table()
                cases = [
                    (f"{side} {mode or ''}".strip(), lambda s=side, m=mode: bench.talk(s, m, size, count(number), 1, "flood"))
                    for side, mode in of(FLOODS)
                ]
                rounds(bench, table, cases)
                print_floods(table, size)
        if "growth" in parts:
            table = tables["growth"] = Table()
            cases = [
                (f"{side} {n}", lambda s=side, n=n: bench.talk(s, "epoll", 64, count(20_000), n, "trips"))
                for n in (2, 10, 100, 1000)
                for side in ("tcp", *OURS)
                if side in sides
            ]
            rounds(bench, table, cases)
            print_pairs("connections, one active at a time, epoll", table, ("p50_ns", "p99_ns"), "tcp")
        for name, measure, amount, fields in (
            ("nginx", nginx, 50_000, ("mean_us", "requests_a_second")),
            ("redis", redis, 100_000, ("p50_us", "p99_us", "requests_a_second")),
        ):
            if name in parts:
                table = tables[name] = Table()
                cases = [
                    (f"{side} {n}", lambda s=side, n=n: measure(bench, s, n, count(amount)))
                    for n in ((1, 16) if name == "nginx" else (1, 50))
                    for side in ("tcp", *OURS)
                    if side in sides
                ]
                rounds(bench, table, cases)
                print_pairs(f"{name}, connections", table, fields, "tcp")
    except Failed as failure:
        print(f"bench/sockets: {failure}", file=sys.stderr)
        for log in ("monitor.log", "server.log"):
            path = bench.folder / log
            if path.exists():
                print(path.read_text()[-1000:], file=sys.stderr)
        sys.exit(1)
    finally:
        if options.plots:
            plot(dict(tables), options.plots)
        if options.json:
            options.json.write_text(json.dumps({name: table.rows for name, table in tables.items()}, indent=1))
        bench.close()


if __name__ == "__main__":
    main()
