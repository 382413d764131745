"""RocksDB's own db_bench on our file system beside the operating system's, on one disk and in one memory limit.

    bench/files --help

Sides:
    blobfs    millrace://file:IMAGE, a file of the same ext4, opened with O_DIRECT and written once in full before
    buffered  files on ext4 through the page cache, the log recycled
    direct    files on ext4 with direct reads, flushes and compactions, the log recycled

All run in one memory control group whose limit is a quarter of the data, the page cache counted. Rounds alternate
between the sides. A time is that of the whole process from start to end, with the sync of the file system after it
where the page cache keeps something back; so what a load leaves unwritten counts. Processor time is that of the
process, and that of the whole machine, since the kernel writes back in threads of its own.

Beside that: what the databases take on the medium after all that, for what they hold, and what one read of 4 KiB
costs through RocksDB's interface of file systems, ours on memory and on the software NVMe controller that another
process serves on a processor of its own, the operating system's on tmpfs.
"""

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

GROUP = Path("/sys/fs/cgroup/memory/millrace-bench")
ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "target/bench-files/programs/plain"
MILLRACE = ROOT / "target/release/millrace"
NVME_MODEL = ROOT / "target/release/millrace-nvme-model"
READS = 200_000
VALUE_BYTES = 1000
KEY_BYTES = 16


@dataclass(frozen=True)
class Workload:
    """One benchmark of db_bench and how it is run."""

    name: str
    benchmarks: str
    options: tuple = ()
    # Whether it needs the data of the load.
    existing: bool = False
    # Part of the records that it does operations for.
    share: float = 1.0


SYNCED = ("--sync=1",)
WORKLOADS = [
    Workload("fill-sequential", "fillseq,flush"),
    Workload("fill-random-sync-1", "fillrandom", (*SYNCED, "--threads=1"), share=0.05),
    Workload("fill-random-sync-16", "fillrandom", (*SYNCED, "--threads=16"), share=0.2),
    Workload("fill-random", "fillrandom,flush,waitforcompaction"),
    Workload("overwrite", "overwrite,flush,waitforcompaction", existing=True, share=0.5),
    Workload("read-random-1", "readrandom", ("--threads=1",), existing=True, share=0.1),
    Workload("read-random-16", "readrandom", ("--threads=16",), existing=True, share=0.4),
    Workload("read-while-writing", "readwhilewriting", ("--threads=2", "--benchmark_write_rate_limit=2000000"), existing=True, share=0.15),
]
LOADED = "fill-random"


@dataclass
class Measured:
    """What one run cost."""

    seconds: float
    operations_a_second: float
    process_cpu: float
    machine_cpu: float
    operations: int
    peak_rss_mib: float


class Bench:
    def __init__(self, options):
        self.options = options
        self.records = options.limit_mib * 4 * (1 << 20) // (VALUE_BYTES + KEY_BYTES)
        self.folder = Path(options.folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.image = self.folder / "blobfs.img"
        self.sides = options.sides.split(",")

    def prepare(self):
        """The image is written in full once, as a disk is: later writes allocate nothing."""
        size = self.options.limit_mib * 4 * 3 << 20
        if "blobfs" in self.sides and (not self.image.exists() or self.image.stat().st_size != size):
            block = bytes(1 << 20)
            with open(self.image, "wb") as image:
                for _ in range(size >> 20):
                    image.write(block)
                image.flush()
                os.fsync(image.fileno())
        for options in self.folder.glob("*.options"):
            options.unlink()
        GROUP.mkdir(exist_ok=True)
        (GROUP / "memory.limit_in_bytes").write_text(str(self.options.limit_mib << 20))

    def command(self, side, workload, operations):
        mib = self.options.limit_mib
        line = [str(self.options.db_bench), f"--benchmarks={workload.benchmarks}", f"--num={self.records}"]
        line += [f"--value_size={VALUE_BYTES}", f"--key_size={KEY_BYTES}", "--compression_type=none", "--seed=1"]
        line += [f"--write_buffer_size={16 << 20}", "--max_background_jobs=2", "--max_write_buffer_number=3"]
        line += ["--target_file_size_base=16777216", "--max_bytes_for_level_base=67108864", "--bloom_bits=10"]
        line += ["--cache_index_and_filter_blocks=1", "--open_files=500", "--statistics=0", "--stats_interval_seconds=0"]
        line += [f"--use_existing_db={int(workload.existing)}", *workload.options]
        threads = next((int(o.split("=")[1]) for o in workload.options if o.startswith("--threads=")), 1)
        each = max(1, operations // threads)
        if "read" in workload.benchmarks:
            line += [f"--reads={each}"]
        elif operations != self.records:
            line += [f"--writes={each}"]
        # The page cache is a cache too: the buffered side gets less of the other.
        cache = mib * (1 if side == "buffered" else 2) // 4
        line += [f"--cache_size={cache << 20}"]
        if side == "blobfs":
            line += [f"--fs_uri=millrace://file:{self.image}", "--db=/bench"]
        else:
            line += [f"--db={self.folder / side}"]
        if side == "direct":
            line += ["--use_direct_reads=1", "--use_direct_io_for_flush_and_compaction=1"]
        if side != "blobfs":
            line += [f"--options_file={self.recycling(side, line)}"]
        return line, each * threads

    def recycling(self, side, line):
        """The options that these flags mean, but with recycled logs, for which db_bench has no flag."""
        options = self.folder / f"{side}.options"
        if not options.exists():
            database = self.folder / f"{side}.empty"
            shutil.rmtree(database, ignore_errors=True)
            empty = [word for word in line if not word.startswith(("--db=", "--benchmarks=", "--use_existing_db="))]
            empty += [f"--db={database}", "--benchmarks=fillseq", "--writes=1"]
            subprocess.run(empty, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            text = sorted(database.glob("OPTIONS-*"))[-1].read_text()
            options.write_text(text.replace("recycle_log_file_num=0", "recycle_log_file_num=4"))
            shutil.rmtree(database)
        return options

    def run(self, side, workload):
        operations = int(self.records * workload.share)
        line, operations = self.command(side, workload, operations)
        if not workload.existing and side != "blobfs":
            shutil.rmtree(self.folder / side, ignore_errors=True)
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        busy = machine_busy()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.monotonic()
        join = lambda: (GROUP / "cgroup.procs").write_text(str(os.getpid()))
        done = subprocess.run(line, preexec_fn=join, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if side != "blobfs":
            descriptor = os.open(self.folder, os.O_RDONLY)
            os.fsync(descriptor)
            subprocess.run(["sync", "-f", self.folder], check=True)
            os.close(descriptor)
        seconds = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
        name = workload.benchmarks.split(",")[0]
        found = re.search(rf"^{name}\s*:\s*[\d.]+ micros/op (\d+) ops/sec", done.stdout, re.M)
        if done.returncode or not found:
            sys.exit(f"{' '.join(map(str, line))}\nexit {done.returncode}\n{done.stdout[-3000:]}")
        return Measured(seconds, float(found[1]), cpu, machine_busy() - busy, operations, after.ru_maxrss / 1024)

    def space(self, side):
        """Bytes that a side's database takes on the medium."""
        if side == "blobfs":
            command = [MILLRACE, "blobfs", "df", "--json", f"file:{self.image}"]
            told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            return told["used_bytes"]
        command = ["du", "--block-size=1", "--summarize", self.folder / side]
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[0])

    def spaces(self):
        live = self.records * (KEY_BYTES + VALUE_BYTES)
        return {side: self.space(side) / live for side in self.sides}

    def measure(self):
        chosen = self.options.workloads.split(",") if self.options.workloads else [w.name for w in WORKLOADS]
        results = {}
        for number in range(self.options.rounds):
            order = self.sides if number % 2 == 0 else self.sides[::-1]
            for workload in WORKLOADS:
                if workload.name not in chosen and workload.name != LOADED:
                    continue
                for side in order:
                    measured = self.run(side, workload)
                    results.setdefault(workload.name, {}).setdefault(side, []).append(measured)
                    print(
                        f"round {number + 1} {workload.name:<20} {side:<9} {measured.operations_a_second:>9.0f}/s"
                        f" {measured.seconds:7.2f} s  process {measured.process_cpu:6.2f} s"
                        f"  machine {measured.machine_cpu:6.2f} s",
                        file=sys.stderr,
                        flush=True,
                    )
        return results


def machine_busy():
    """Processor seconds that the machine has spent on anything."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def is_load(name):
    return name.startswith("fill") or name == "overwrite"


def rate(name, measured):
    """Loads count until all is on the medium; the others as long as they ran."""
    if is_load(name) and "sync" not in name:
        return measured.operations / measured.seconds
    return measured.operations_a_second


def table(results, sides):
    yield "| workload | blobfs, operations/s | " + " | ".join(
        f"/ {side} | CPU / {side} | machine / {side}" for side in sides if side != "blobfs"
    ) + " |"
    yield "|---|---|" + "---|" * 3 * (len(sides) - 1)
    for name, by_side in results.items():
        ours = by_side["blobfs"]
        cells = [name, f"{statistics.median(rate(name, m) for m in ours):.0f}"]
        for side in sides:
            if side == "blobfs":
                continue
            pairs = list(zip(ours, by_side[side]))
            cells.append(spread([rate(name, a) / rate(name, b) for a, b in pairs]))
            cells.append(spread([a.process_cpu / b.process_cpu for a, b in pairs]))
            cells.append(spread([a.machine_cpu / max(b.machine_cpu, 0.01) for a, b in pairs]))
        yield "| " + " | ".join(cells) + " |"


def reads(rounds):
    """Nanoseconds for a read of 4 KiB, and of the processor, by side and round."""
    folder = tempfile.mkdtemp(prefix="millrace-reads-", dir="/dev/shm")
    socket = Path(folder) / "nvme.sock"
    results = {}
    model = subprocess.Popen([NVME_MODEL, "--socket", socket, "--size", "1G", "--spin"], stdout=subprocess.PIPE)
    try:
        model.stdout.readline()
        sides = {
            "POSIX on tmpfs": ["posix", f"{folder}/file"],
            "blobfs on memory": ["millrace://mem:512M", "/file"],
            "blobfs on the NVMe model": [f"millrace://vfio-user:{socket}", "/file"],
        }
        for _ in range(rounds):
            for name, (uri, path) in sides.items():
                command = [PROGRAMS / "reads", uri, path, str(READS)]
                told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                wall, cpu = re.fullmatch(r"(\d+) ns a read, (\d+) ns of the processor\n", told).groups()
                results.setdefault(name, []).append((int(wall), int(cpu)))
    finally:
        model.terminate()
        model.wait()
        shutil.rmtree(folder)
    return results


def table_of_reads(results):
    yield "| a read of 4 KiB | ns | of the processor | / POSIX on tmpfs | processor / POSIX on tmpfs |"
    yield "|---|---|---|---|---|"
    peer = results["POSIX on tmpfs"]
    for name, ours in results.items():
        cells = [name, *(f"{statistics.median(values):.0f}" for values in zip(*ours))]
        cells += [spread([a[index] / b[index] for a, b in zip(ours, peer)]) for index in (0, 1)]
        yield "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db-bench", default=PROGRAMS / "db_bench", help="RocksDB's db_bench, linked with our file system")
    parser.add_argument("--folder", default="target/bench-files", help="where images and files go (ext4)")
    parser.add_argument("--limit-mib", type=int, default=128, help="memory of the control group; the data is 4 times")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default="blobfs,buffered,direct")
    parser.add_argument("--workloads", help="comma-separated; default: all")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    options = parser.parse_args()
    bench = Bench(options)
    bench.prepare()
    load = os.getloadavg()[0]
    results = bench.measure()
    print(f"load before: {load:.2f}; {bench.records} records of {VALUE_BYTES} bytes; {options.rounds} rounds\n")
    print(*table(results, bench.sides), sep="\n")
    spaces = bench.spaces()
    print("\nBytes on the medium for a byte that was loaded, of which random keys overwrite a third: ", end="")
    print(", ".join(f"{side} {ratio:.2f}" for side, ratio in spaces.items()) + "\n")
    print(*table_of_reads(reads(options.rounds)), sep="\n")
    if options.json:
        plain = {name: {side: [vars(m) for m in runs] for side, runs in sides.items()} for name, sides in results.items()}
        options.json.write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    main()
