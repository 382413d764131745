"""Unmodified programs over user-level sockets beside the kernel's, on one machine, in one run.

    bench/sockets --help

Sides:
    ring      two processes and a ring in memory they share, driven by hand: the least that it can take
    tcp       the kernel's TCP on the loopback interface
    unix      the kernel's AF_UNIX stream sockets
    direct    `millrace sockets run`, both processes drive the connection's memory themselves
    proxy     the same with a forwarder in between (--mode forwarded)

Parts:
    trips     64 bytes there and back, one at a time
    floods    small messages and 8 KiB one way
    sums      a payload that is made and added up, one way; in place by the library's own calls, too
    growth    64 bytes there and back over one of many connections in turn
    beside    64 bytes there and back beside large flows
    crowd     many pairs of blocking threads on two processors
    visits    connections that carry nothing, one after the other
    nginx     ab with kept connections, and with a connection for each request
    redis     redis-benchmark, GET

All runs in a network namespace of its own. Rounds alternate between the sides; a ratio is the median of the rounds'
ratios with the lowest and the highest beside it. After each run of ours the broker's counters must have moved by the
bytes of the run, and the kernel's counters of TCP connections in the namespace must not. The section of RESULTS.md
goes to standard output, the plots to a folder.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from sockets_runs import FREE, OURS, ROOT, TOGETHER, Failed, Runs, nginx, redis
from sockets_tables import Column, Ratio, Table, Target, target_lines

TRIPS = [("tcp", "blocking"), ("tcp", "polling"), ("unix", "blocking"), ("unix", "polling")]
TRIPS += [("direct", mode) for mode in ("blocking", "polling", "epoll")]
# Two programs that poll on one processor would wait for the scheduler.
TRIPS += [("proxy", mode) for mode in ("blocking", "epoll")]
SOCKETS = ("tcp", "unix", *OURS)
TALKING = ("tcp", *OURS)
FLOODS = {16: 2_000_000, 64: 2_000_000, 8192: 200_000}
SUMS = {8192: 100_000, 65536: 12_000}
GROWTH = (1, 10, 100, 1000)
LARGE_FLOWS = (0, 1, 4, 16)
CROWDS = (4, 16, 64)
COUNTED = ["cargo", "test", "--locked", "--quiet", "--package", "millrace-stream", "--test", "it",
           "a_small_flow_is_not_behind_large_ones"]
OF_TCP = (Ratio.to_side("tcp"),)
P50_NS, P99_NS, P999_NS = (Column(f"{name} us", f"{field}_ns", 1e3) for name, field in
                           (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")))


class Bench:
    """The parts: each fills a table of its own."""

    def __init__(self, options):
        self.options = options
        self.runs = Runs()
        self.sides = options.sides.split(",")
        self.parts = options.parts.split(",")
        self.tables = {}

    def count(self, base):
        """A count of messages or requests, scaled."""
        return max(100, int(base * self.options.scale))

    def fill(self, name, table, cases):
        """Each case of the sides that are wanted, every round in turn: (row, function that measures it)."""
        self.tables[name] = table
        for number in range(self.options.rounds):
            for row, measure in cases:
                if row.split()[0] in self.sides:
                    began = time.monotonic()
                    table.add(row, measure())
                    print(f"round {number + 1}: {name}: {row}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        self.write_plots()

    def trips(self):
        """Round trips by every way to wait."""
        def measure(side, mode):
            count = self.count({"direct": 200_000, "proxy": 50_000}.get(side, 20_000))
            return self.runs.talk(side, "trips", [mode, 64], ["trips", count, 1])

        p50 = Column("p50 us", "p50_ns", 1e3, 2, [Ratio.to(base) for base in ("ring", "tcp polling", "tcp blocking")])
        table = Table("64 B there and back", [p50, P99_NS, P999_NS],
                      ("64 B there and back, one at a time", "us", p50, P99_NS))
        cases = [("ring", lambda: self.runs.ring(64, "trips", self.count(200_000)))]
        cases += [(f"{side} {mode}", lambda s=side, m=mode: measure(s, m)) for side, mode in TRIPS]
        self.fill("trips", table, cases)

    def floods(self):
        """Messages one way."""
        def measure(side, size, base):
            count = self.count(base if side in OURS or size > 1024 else base / 5)
            return self.runs.talk(side, "trips", ["blocking", size], ["flood", count, 1])

        for size, base in FLOODS.items():
            small = size < 1024
            field, unit, scale = ("messages", "million/s", 1e6) if small else ("bytes", "GB/s", 1e9)
            rate = Column(unit, f"{field}_a_second", scale, 2, [Ratio.to("ring"), Ratio.to("tcp")])
            table = Table(f"{size} B one way", [rate], (f"Messages of {size} B one way", unit, rate, None))
            cases = [("ring", lambda s=size, b=base: self.runs.ring(s, "flood", self.count(b)))]
            cases += [(side, lambda a=side, s=size, b=base: measure(a, s, b)) for side in SOCKETS]
            self.fill(f"flood {size}", table, cases)

    def sums(self):
        """A payload that is made and used: copied by send and recv, or in place."""
        def measure(side, how, size, base):
            count = self.count(base)
            return self.runs.talk(side, "sums", [size, how], [count])

        for size, base in SUMS.items():
            rate = Column("GB/s", "bytes_a_second", 1e9, 2,
                          [Ratio.to("tcp calls"), Ratio.to("unix calls"), Ratio.to("direct calls")])
            table = Table(f"{size // 1024} KiB one way, made and added up", [rate],
                          (f"Messages of {size // 1024} KiB one way, made and added up", "GB/s", rate, None))
            cases = [(f"{side} {how}", lambda a=side, h=how, s=size, b=base: measure(a, h, s, b))
                     for side in SOCKETS for how in ("calls", "in-place") if side in OURS or how == "calls"]
            self.fill(f"sums {size}", table, cases)

    def growth(self):
        """One of many connections active at a time."""
        def measure(side, connections):
            count = self.count(20_000)
            return self.runs.talk(side, "trips", ["epoll", 64], ["trips", count, connections])

        p50, p99 = (Column(f"{name} us", f"{name}_ns", 1e3, 1, OF_TCP) for name in ("p50", "p99"))
        table = Table("connections, one active at a time, epoll", [p50, p99, P999_NS],
                      ("64 B there and back over one of N connections in turn", "us", p50, p99))
        self.fill("growth", table, [(f"{side} {n}", lambda s=side, n=n: measure(s, n))
                                    for n in GROWTH for side in TALKING])

    def beside(self):
        """A small flow beside large ones, with the programs apart and on one processor."""
        def measure(side, large, pins):
            return self.runs.talk(side, "beside", [], [large, self.count(1000)], pins=pins)

        alone = Ratio("/ alone", lambda row: re.sub(r"\d+$", "0", row))
        p50 = Column("p50 us", "p50_ns", 1e3, 1, [alone, *OF_TCP])
        p99 = Column("p99 us", "p99_ns", 1e3, 1, OF_TCP)
        large_rate = Column("large flows, GB/s", "large_bytes_a_second", 1e9)
        table = Table("64 B there and back beside large flows", [p50, p99, P999_NS, large_rate],
                      ("64 B there and back beside N large flows of one thread", "us", p50, p99))
        # With a forwarder the programs share a processor in either case.
        cases = [(f"{side} {name} {large}", lambda s=side, n=large, p=pins: measure(s, n, p))
                 for name, pins, sides in (("apart", None, ("tcp", "direct")), ("together", TOGETHER, TALKING))
                 for large in LARGE_FLOWS for side in sides]
        self.fill("beside", table, cases)

    def crowd(self):
        """More threads than processors."""
        def measure(side, size, what, pairs):
            milliseconds = self.count(1000)
            return self.runs.talk(side, "crowd", [size, what], [pairs, milliseconds], pins=FREE)

        rate = Column("messages/s", "messages_a_second", 1, 0, OF_TCP)
        p50, p99 = (Column(f"{name} us", f"{name}_ns", 1e3, 1, OF_TCP) for name in ("p50", "p99"))
        least = Column("slowest / mean", "least_of_mean")
        for name, size, what, columns, plot in (
            ("trips", 64, "there and back", [rate, p50, p99, P999_NS],
             ("64 B there and back, N pairs of threads", "us", p50, p99)),
            ("streams", 1024, "one way", [rate, least],
             ("1 KiB one way, N pairs of threads", "million/s", Column("", "messages_a_second", 1e6), None)),
        ):
            table = Table(f"pairs of blocking threads, {size} B {what}", columns, plot)
            word = "trips" if name == "trips" else "flood"
            self.fill(f"crowd {name}", table, [(f"{side} {n}", lambda s=side, z=size, w=word, n=n: measure(s, z, w, n))
                                               for n in CROWDS for side in SOCKETS])

    def visits(self):
        """Connections that are made and closed."""
        rate = Column("connections/s", "messages_a_second", 1, 0, OF_TCP)
        p50, p99 = (Column(f"{name} us", f"{name}_ns", 1e3, 1) for name in ("p50", "p99"))
        table = Table("connect, accept, close", [rate, p50, p99, P999_NS],
                      ("Connect, accept, close, one connection at a time", "us", p50, p99))
        # Nothing is carried: that no connection was the kernel's is what tells.
        self.fill("visits", table, [(side, lambda s=side: self.runs.talk(s, "visits", [], [self.count(5000)]))
                                    for side in SOCKETS])

    def nginx(self):
        """ab against nginx."""
        for name, kept, base, what in (("nginx", True, 50_000, "connections kept"),
                                       ("nginx-closed", False, 5000, "a connection for each request")):
            mean = Column("mean us", "mean_us", 1, 1, OF_TCP)
            rate = Column("requests/s", "a_second", 1, 0, OF_TCP)
            table = Table(f"nginx, 1 KB, {what}, ab -c", [mean, rate],
                          (f"nginx, files of 1 KB, {what}, ab -c N: mean time of a request", "us", mean, None))
            self.fill(name, table, [
                (f"{side} {n}", lambda s=side, n=n, k=kept, b=base: nginx(self.runs, s, n, self.count(b), k))
                for n in (1, 16) for side in TALKING])

    def redis(self):
        """redis-benchmark."""
        p50, p99 = (Column(f"{name} us", f"{name}_us", 1, 0, OF_TCP) for name in ("p50", "p99"))
        rate = Column("requests/s", "a_second", 1, 0, OF_TCP)
        table = Table("redis, GET, redis-benchmark -c", [p50, p99, rate], ("redis GET, N connections", "us", p50, p99))
        self.fill("redis", table, [(f"{side} {n}", lambda s=side, n=n: redis(self.runs, s, n, self.count(50_000)))
                                   for n in (1, 50) for side in TALKING])

    def write_plots(self):
        """Pictures of the tables that there are."""
        if self.options.plots:
            self.options.plots.mkdir(exist_ok=True)
            for name, table in self.tables.items():
                if picture := table.picture():
                    (self.options.plots / f"sockets-{name.replace(' ', '-')}.svg").write_text(picture)

    def targets(self):
        """What was aimed at, in the order of what was measured."""
        def ratios(name, row, base, field):
            return self.tables[name].ratios(row, base, field) if name in self.tables else []

        def values(name, row, field, scale):
            return [value / scale for value in self.tables[name].rows.get(row, {}).get(field, [])] \
                if name in self.tables else []

        for mode in ("polling", "blocking"):
            yield Target(f"64 B, direct {mode}: time / the ring's", ratios("trips", f"direct {mode}", "ring", "p50_ns"),
                         at_most=5)
        for way, base, times in (("direct", "polling", 5), ("direct", "blocking", 40), ("proxy", "blocking", 4)):
            ours = "blocking" if base == "blocking" else "polling"
            yield Target(f"64 B: time of TCP {base} / {way} {ours}",
                         ratios("trips", f"tcp {base}", f"{way} {ours}", "p50_ns"), at_least=times)
        for size in (16, 64):
            yield Target(f"{size} B one way, direct: million messages/s",
                         values(f"flood {size}", "direct", "messages_a_second", 1e6), at_least=5)
        yield Target("8 KiB one way, direct: rate / the ring's",
                     ratios("flood 8192", "direct", "ring", "bytes_a_second"), at_least=0.5)
        yield Target("nginx 1 KB, ab -k -c 1: time / TCP's", ratios("nginx", "direct 1", "tcp 1", "mean_us"), at_most=0.5)
        yield Target("nginx 1 KB, ab -k -c 16: requests / TCP's",
                     ratios("nginx", "direct 16", "tcp 16", "a_second"), at_least=1.5)
        for connections, bound in ((1, 0.5), (50, 0.7)):
            yield Target(f"redis GET -c {connections}: p50 / TCP's",
                         ratios("redis", f"direct {connections}", f"tcp {connections}", "p50_us"), at_most=bound)
        for name, what in (("trips", "64 B there and back"), ("streams", "1 KiB one way")):
            for pairs in CROWDS:
                for side in OURS:
                    yield Target(f"{pairs} pairs of threads, {what}, {side}: messages / TCP's",
                                 ratios(f"crowd {name}", f"{side} {pairs}", f"tcp {pairs}", "messages_a_second"),
                                 at_least=1)
        if "beside" in self.parts:
            counted = subprocess.run(COUNTED, cwd=ROOT, capture_output=True, check=False).returncode == 0
            yield Target("slices of a large flow between two of a small one, beside 1, 4, 16 (counted by a test)",
                         [1] if counted else [2], at_most=1)


def report(bench, before, targets):
    """The section of RESULTS.md."""
    after = os.getloadavg()[0]
    command = " ".join(["bench/sockets", *(word for word in sys.argv[1:] if word != "--check")])
    print(f"""## User-level sockets

`{command}`, load {before:.2f} before and {after:.2f} after.
Rounds: {bench.options.rounds}, in turns; ratios are medians (low-high) of the rounds' ratios. The first word of a row is the side.
Unmodified programs through POSIX calls, on two processors. Pinning: client on 0 and server on 1 for *tcp*, *unix* and *direct*;
both on 0 and the forwarder on 1 for *proxy*. *ring* is two processes, one on each, and a ring in memory that is driven by hand.
*polling* programs call without waiting, in a loop. After each run of ours the broker's counters had moved by the bytes of it,
and the kernel had counted no TCP connection in the network namespace of the run. Nothing is durable on any side.
""")
    notes = {
        "beside": "*apart*: client on 0, server on 1; *together*: both on 0, the forwarder if any on 1. A thread of the client sends\n"
                  "64 KiB at a time on whichever of N large flows has room; another one has the small flow, and waits in the call.\n"
                  "The service of the small flow is counted and not timed: the line of slices among the targets.\n",
        "crowd trips": "Each pair has a connection; programs and forwarder may use both processors.\n",
        "sums 8192": "The sender computes each word of the payload, the receiver adds them up and the sums are compared. *calls*:\n"
                     "send and recv; *in-place*: the library's reserve, commit, borrow, consume.\n",
    }
    for name, table in bench.tables.items():
        if name in notes:
            print(notes[name])
        print("\n".join(table.lines()), end="\n\n")
    if measured := [target for target in targets if target.values]:
        print("\n".join(target_lines(measured)), end="\n\n")
    if bench.options.plots:
        for name, table in bench.tables.items():
            if table.plot:
                print(f"![{table.plot[0]}](plots/sockets-{name.replace(' ', '-')}.svg)")


def main():
    parts = ("trips", "floods", "sums", "growth", "beside", "crowd", "visits", "nginx", "redis")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default="ring,tcp,unix,direct,proxy")
    parser.add_argument("--parts", default=",".join(parts))
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all counts and times")
    parser.add_argument("--plots", type=Path, default=ROOT / "bench/plots", help="a folder for pictures")
    parser.add_argument("--json", type=Path, help="every value of every round")
    parser.add_argument("--check", action="store_true", help="exit with 3 if a target was missed")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    bench = Bench(options)
    if unknown := set(bench.parts) - set(parts):
        parser.error(f"no part is called {', '.join(unknown)}")
    status = 0
    try:
        for part in bench.parts:
            getattr(bench, part)()
    except Failed as failure:
        print(f"bench/sockets: {failure}", file=sys.stderr)
        bench.runs.show_logs()
        status = 1
    finally:
        bench.runs.close()
    targets = list(bench.targets())
    report(bench, before, targets)
    if options.json:
        options.json.write_text(json.dumps({name: table.rows for name, table in bench.tables.items()}, indent=1))
    if options.check and any(target.is_missed() for target in targets):
        status = status or 3
    sys.exit(status)


if __name__ == "__main__":
    main()
