"""Runs go-ycsb against several servers in turn and writes the ratios to RESULTS.md. See README.md."""

import argparse
import datetime
import json
import os
import platform
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BINARY = Path(os.environ.get("MILLRACE", ROOT / "target/release/millrace"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millrace"
DEVICE_MIB = 4096
TICKS = os.sysconf("SC_CLK_TCK")
WORKLOADS = {
    "a": {"readproportion": 0.5, "updateproportion": 0.5, "requestdistribution": "zipfian"},
    "b": {"readproportion": 0.95, "updateproportion": 0.05, "requestdistribution": "zipfian"},
    "c": {"readproportion": 1, "updateproportion": 0, "requestdistribution": "zipfian"},
    "e": {"readproportion": 0, "updateproportion": 0, "scanproportion": 1,
          "requestdistribution": "zipfian", "maxscanlength": 100, "scanlengthdistribution": "uniform"},
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_port(port, process, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{process.args[0]} does not answer on port {port}")


class Side:
    """One server: how it is started, how go-ycsb reaches it, what it has made durable."""

    database = "mongodb"
    durable = ""
    # Whether it reads a range of keys in order without going through all of them.
    scans = True

    def __init__(self, name):
        self.name = name
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=ROOT / "target"))
        self.log = open(self.folder / "log", "wb")
        self.process = None

    def command(self):
        raise NotImplementedError

    def start(self):
        self.process = subprocess.Popen(
            self.command(), stdout=self.log, stderr=self.log, cwd=self.folder)
        wait_for_port(self.port, self.process)

    def properties(self):
        return {"mongodb.url": f"mongodb://127.0.0.1:{self.port}/ycsb?w=1"}

    def processes(self):
        return [self.process.pid]

    def cpu_seconds(self):
        total = 0
        for pid in self.processes():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # Its own time and that of children that have ended.
            total += sum(map(int, fields[11:15]))
        return total / TICKS

    def peak_bytes(self):
        total = 0
        for pid in self.processes():
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
            total += int(found.group(1)) * 1024 if found else 0
        return total

    def counters(self):
        """Log syncs and commits, for servers that tell."""
        return {}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Millrace(Side):
    durable = "every acknowledged write (synced log, group commit)"
    binary = BINARY
    options = ()

    def __init__(self, name):
        super().__init__(name)
        self.metrics = free_port()

    def command(self):
        return [str(self.binary), "serve", "--port", str(self.port), "--dbpath", str(self.folder / "data"),
                "--cacheSizeGB", "1", "--metricsPort", str(self.metrics), *self.options]

    def counters(self):
        url = f"http://127.0.0.1:{self.metrics}/metrics"
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        found = {}
        for name in ("wal_syncs_total", "commits_total"):
            match = re.search(rf"^\w*{name}(?:{{[^}}]*}})? (\d+)", text, re.M)
            if match:
                found[name] = int(match.group(1))
        return found


class MillraceRelaxed(Millrace):
    durable = "writes older than 100 ms"
    options = ("--journalCommitInterval", "100")


class MillraceBefore(Millrace):
    """An earlier build: the binary that MILLRACE_BEFORE names."""

    binary = Path(os.environ.get("MILLRACE_BEFORE", BINARY))


class MillraceRelaxedBefore(MillraceRelaxed):
    """The same, with relaxed durability: the disk's syncs do not hide what the processor does."""

    binary = MillraceBefore.binary


class MillraceDevice(Millrace):
    """The whole database in our own file system, on a file of the same disk that is written in full before."""

    durable = "every acknowledged write (synced log, group commit), on `--device file:IMAGE`"

    def start(self):
        self.image = self.folder / "image"
        with open(self.image, "wb") as image:
            for _ in range(DEVICE_MIB):
                image.write(bytes(1 << 20))
            image.flush()
            os.fsync(image.fileno())
        subprocess.run([str(BINARY), "blobfs", "mkfs", f"file:{self.image}"], check=True, stdout=self.log,
                       stderr=self.log)
        super().start()

    def command(self):
        command = super().command()
        place = command.index("--dbpath")
        command[place:place + 2] = ["--device", f"file:{self.image}"]
        return command


class Echo(Side):
    scans = False
    durable = "nothing"

    def command(self):
        return [str(BINARY), "echo", "--port", str(self.port)]


class Redis(Side):
    database = "redis"
    scans = False
    durable = "nothing"

    def command(self):
        return ["redis-server", "--port", str(self.port), "--save", "", "--dir", str(self.folder),
                "--bind", "127.0.0.1"]

    def properties(self):
        return {"redis.addr": f"127.0.0.1:{self.port}"}


class Postgresql(Side):
    database = "pg"
    durable = "every acknowledged write (synchronous_commit = on)"

    def start(self):
        tools = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        data = self.folder / "data"
        shutil.chown(self.folder, "postgres")
        as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        subprocess.run([*as_postgres, str(tools / "initdb"), "-D", str(data), "-A", "trust"],
                       check=True, stdout=self.log, stderr=self.log, cwd=self.folder)
        self.process = subprocess.Popen(
            [*as_postgres, str(tools / "postgres"), "-D", str(data), "-p", str(self.port),
             "-k", str(self.folder), "-h", "127.0.0.1"],
            stdout=self.log, stderr=self.log, cwd=self.folder)
        wait_for_port(self.port, self.process)
        # The port is open before the server takes connections.
        create = [*as_postgres, str(tools / "createdb"), "-h", "127.0.0.1", "-p", str(self.port), "ycsb"]
        while subprocess.run(create, stderr=self.log, cwd=self.folder).returncode != 0:
            if self.process.poll() is not None:
                raise RuntimeError("postgres ended while it was starting")
            time.sleep(0.1)

    def processes(self):
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)],
                                  capture_output=True, text=True).stdout.split()
        return [self.process.pid, *map(int, children)]

    def properties(self):
        return {"pg.host": "127.0.0.1", "pg.port": self.port, "pg.user": "postgres", "pg.db": "ycsb"}

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class MongoJavaServer(Side):
    scans = False
    durable = "nothing"

    def command(self):
        jars = subprocess.run([str(HERE / "java/build")], check=True, capture_output=True, text=True)
        return ["java", "-cp", jars.stdout.strip(), "Serve", str(self.port)]


SIDES = {
    "millrace": Millrace, "millrace-device": MillraceDevice, "millrace-relaxed": MillraceRelaxed, "echo": Echo, "redis": Redis,
    "mongo-java-server": MongoJavaServer, "postgresql": Postgresql,
}
DEFAULT_SIDES = ",".join(SIDES)
# These run only when they are named.
BEFORE = {"millrace-before": MillraceBefore, "millrace-relaxed-before": MillraceRelaxedBefore}
SIDES |= BEFORE


class Measurement:
    """One go-ycsb run."""

    def __init__(self, operations, seconds, cpu_seconds, client_seconds, counters):
        self.rate = operations / seconds
        self.cpu_us = cpu_seconds / operations * 1e6
        self.client_us = client_seconds / operations * 1e6
        self.counters = counters


def client_seconds():
    """Processor time of all children that have been waited for; the servers run on."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_ycsb(ycsb, side, phase, properties):
    arguments = [ycsb, phase, side.database]
    for name, value in {**side.properties(), **properties}.items():
        arguments += ["-p", f"{name}={value}"]
    before_cpu, before, before_client = side.cpu_seconds(), side.counters(), client_seconds()
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    cpu, after = side.cpu_seconds() - before_cpu, side.counters()
    client = client_seconds() - before_client
    output = done.stdout + done.stderr
    unit = re.search(r"Run finished, takes (?:(\d+)m)?([\d.]+)(ms|s)", output)
    seconds = float(unit.group(2)) / (1000 if unit.group(3) == "ms" else 1) + 60 * int(unit.group(1) or 0)
    counts = re.findall(r"^(?!TOTAL)(\w+)\s+- Takes\(s\): [\d.]+, Count: (\d+),", output, re.M)
    final = {}
    for name, count in counts:
        final[name] = int(count)
    operations = sum(count for name, count in final.items() if not name.endswith("_ERROR"))
    failed = {name: count for name, count in final.items() if name.endswith("_ERROR") and count}
    # go-ycsb now and then asks for the key after the last one, which is not there.
    if sum(failed.values()) * 1000 > operations and side.name != "echo":
        raise RuntimeError(f"{side.name}: operations failed: {failed}")
    counters = {name: after[name] - before[name] for name in after}
    return Measurement(operations or properties["operationcount"], seconds, cpu, client, counters)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def machine():
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} cores ({model.group(1) if model else platform.machine()}), " \
           f"Linux {platform.release()}, load average {os.getloadavg()[0]:.2f} at the start"


def commit():
    """What was measured: the checkout, unless MILLRACE names a binary, which may be of any commit."""
    if "MILLRACE" in os.environ:
        return f"unknown (the binary {BINARY.name} was given)"
    return subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
                          capture_output=True, text=True).stdout.strip()


def measure(options):
    """Returns {(workload, threads, side): [Measurement a round]} and {side: peak bytes}."""
    results, peaks = {}, {}
    started = []
    try:
        for name in options.sides:
            side = SIDES[name](name)
            side.start()
            started.append(side)
        base = {"recordcount": options.records, "fieldcount": 10, "fieldlength": 100,
                "readallfields": "true", "workload": "core"}
        run_rounds(options, started, base, results)
        for side in started:
            peaks[side.name] = side.peak_bytes()
    finally:
        for side in started:
            side.stop()
    return results, peaks


def run_rounds(options, sides, base, results):
    total = options.rounds * len(sides) * len(options.threads) * len(options.workloads)
    done = 0

    def note(side, workload, threads, measurement):
        nonlocal done
        done += 1
        results.setdefault((workload, threads, side.name), []).append(measurement)
        print(f"[{done}/{total}] {workload} x{threads} {side.name}: {measurement.rate:,.0f}/s, "
              f"{measurement.cpu_us:.1f} us of processor time each", file=sys.stderr)

    loaded = set()
    for threads in options.threads:
        for round_number in range(options.rounds):
            for side in sides:
                if "load" in options.workloads or side.name not in loaded:
                    # Every load goes into keys of its own: insertstart moves on.
                    first = side.name not in loaded
                    start = 0 if first else options.records * (done + 2)
                    count = options.records if first else options.records // 4
                    properties = {**base, "threadcount": threads, "dropdata": "true" if first else "false",
                                  "insertstart": start, "insertcount": count,
                                  "recordcount": start + count}
                    measurement = run_ycsb(options.ycsb, side, "load", properties)
                    loaded.add(side.name)
                    if "load" in options.workloads:
                        note(side, "load", threads, measurement)
            for workload in options.workloads:
                if workload == "load":
                    continue
                for side in sides:
                    if workload == "e" and not side.scans:
                        continue
                    operations = options.operations // (20 if workload == "e" else 1)
                    operations = operations // (4 if threads == 1 else 1)
                    properties = {**base, **WORKLOADS[workload], "threadcount": threads,
                                  "operationcount": operations,
                                  "insertstart": 0}
                    note(side, workload, threads,
                         run_ycsb(options.ycsb, side, "run", properties))


def tables(options, results, peaks):
    lines = []
    for threads in options.threads:
        lines += [f"### {threads} client thread{'s' if threads > 1 else ''}", "",
                  "| workload | side | operations/s, median (low-high) | share of the echo | "
                  "processor time each, us: server | client | acknowledgements a sync |",
                  "|---|---|---|---|---|---|---|"]
        for workload in options.workloads:
            for name in options.sides:
                rounds = results.get((workload, threads, name))
                if not rounds:
                    continue
                rates = [m.rate for m in rounds]
                limit = results.get((workload, threads, "echo"))
                share = "" if not limit or name == "echo" else \
                    spread([m.rate / l.rate for m, l in zip(rounds, limit)])
                synced = [m.counters["commits_total"] / m.counters["wal_syncs_total"] for m in rounds
                          if m.counters.get("wal_syncs_total")]
                lines.append(
                    f"| {workload} | {name} | {statistics.median(rates):,.0f} "
                    f"({min(rates):,.0f}-{max(rates):,.0f}) | {share} | "
                    f"{statistics.median(m.cpu_us for m in rounds):.1f} | "
                    f"{statistics.median(m.client_us for m in rounds):.1f} | "
                    f"{f'{statistics.median(synced):.1f}' if synced else ''} |")
        lines.append("")
    lines += ["### Ratios", "", "| what | workload | threads | ratio, median (low-high) |", "|---|---|---|---|"]
    for above, below in [("millrace", "millrace-before"), ("millrace-relaxed", "millrace-relaxed-before"), ("millrace-device", "millrace"), ("millrace", "millrace-relaxed"), ("millrace-relaxed", "mongo-java-server"),
                         ("millrace", "mongo-java-server"), ("millrace", "postgresql"),
                         ("millrace-relaxed", "redis")]:
        for (workload, threads, name), rounds in results.items():
            other = results.get((workload, threads, below))
            if name == above and other:
                ratio = spread([m.rate / o.rate for m, o in zip(rounds, other)])
                lines.append(f"| {above} / {below}, throughput | {workload} | {threads} | {ratio} |")
                if below in ("redis", "postgresql", "millrace", *BEFORE):
                    ratio = spread([m.cpu_us / o.cpu_us for m, o in zip(rounds, other)])
                    lines.append(f"| {above} / {below}, server's processor time an operation | "
                                 f"{workload} | {threads} | {ratio} |")
    lines += ["", "### Memory", "", "| side | peak resident, MiB |", "|---|---|"]
    lines += [f"| {name} | {bytes_ / 2**20:,.0f} |" for name, bytes_ in peaks.items()]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ycsb", required=True, help="path of the go-ycsb binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--threads", default="1,8,16", type=lambda text: [int(t) for t in text.split(",")])
    parser.add_argument("--workloads", default="load,a,b,c,e", type=lambda text: text.split(","))
    parser.add_argument("--sides", default=DEFAULT_SIDES, type=lambda text: text.split(","))
    parser.add_argument("--output", type=Path, help="write the tables here instead of RESULTS.md")
    parser.add_argument("--json", type=Path, help="also write every measurement here")
    options = parser.parse_args()
    if BEFORE.keys() & set(options.sides) and "MILLRACE_BEFORE" not in os.environ:
        parser.error("MILLRACE_BEFORE must name the earlier binary, for the sides " + ", ".join(BEFORE))
    (ROOT / "target").mkdir(exist_ok=True)
    head = [f"Machine: {machine()}.", f"Commit: {commit()}. Date: {datetime.date.today()}.",
            f"Command: `bench/run {' '.join(sys.argv[3:])}`.", ""]
    head += ["| side | durable when it answers |", "|---|---|"]
    head += [f"| {name} | {SIDES[name].durable} |" for name in options.sides] + [""]
    results, peaks = measure(options)
    text = "\n".join(head + tables(options, results, peaks)) + "\n"
    if options.json:
        options.json.write_text(json.dumps(
            {"/".join(map(str, key)): [vars(m) for m in rounds] for key, rounds in results.items()}))
    target = options.output or HERE / "RESULTS.md"
    before = target.read_text().split("<!-- measured -->")[0] if target.exists() else "# Results\n\n"
    target.write_text(before.rstrip("\n") + "\n\n<!-- measured -->\n" + text)
    print(text)


if __name__ == "__main__":
    main()
