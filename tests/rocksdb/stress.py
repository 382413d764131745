"""Kills db_stress again and again and lets it find out what is missing.

The options of every life are drawn by RocksDB's own tools/db_crashtest.py. The database lies on a file system on
a file, what db_stress expects of it on the host.
"""

import importlib.util
import os
import random
import shlex
import signal
import subprocess
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass

from program import Ground, Result, stop

DEVICE_BYTES = 8 << 30
# How long a life may be before it is killed.
LIFE_S = (3, 6)
LIFE_S_LONG = (3, 30)
# Within this the last life must have verified everything.
LAST_LIFE_LIMIT_S = 1200
COMPLAINT_LENGTH_MAX = 200
# How many calls of RocksDB's own points of death a life survives, on average.
DEATH_ODDS = [2000, 20000, 200000]


@dataclass(frozen=True)
class Mode:
    """Options that are the same in every life."""

    options: dict
    # The switches of db_crashtest.py's command line that are on.
    switches: tuple = ()


# A file system may keep what is not synced in the process, and so lose it when the process is killed. Hence
# either every write is synced, and none may be missing, or db_stress is told that unsynced ones may be, and
# asks for a prefix of all.
SYNCED = {"sync": 1, "sync_fault_injection": 0, "manual_wal_flush_one_in": 0, "disable_wal": 0, "reopen": 0}
UNSYNCED = SYNCED | {"sync": 0, "manual_wal_flush_one_in": 1000, "inplace_update_support": 0}
MODES = {
    "stress_synced": Mode(SYNCED, ("simple",)),
    "stress_unsynced": Mode(UNSYNCED, ("simple",)),
    # RocksDB's test file system drops unsynced data above ours.
    "stress_dropped": Mode(UNSYNCED | {"manual_wal_flush_one_in": 0, "sync_fault_injection": 1}),
    "stress_without_log": Mode(UNSYNCED | {"manual_wal_flush_one_in": 0, "disable_wal": 1}, ("simple",)),
    "stress_families": Mode(SYNCED, ("cf_consistency",)),
    "stress_transactions": Mode(SYNCED | {"txn_write_policy": 0}, ("txn",)),
}
SWITCHES = ["simple", "cf_consistency", "txn", "optimistic_txn", "test_best_efforts_recovery", "enable_ts"]
SWITCHES += ["test_multiops_txn", "test_tiered_storage"]
# db_stress looks for what it restored from a backup on the host; backup_engine_test covers backups.
BACKUP_ONE_IN = 0
# Of what db_crashtest.py draws from, what this build has.
DRAWN = {
    "compression_type": lambda: random.choice(["none", "lz4", "lz4hc", "zstd"]),
    "bottommost_compression_type": lambda: random.choice(["disable", "none", "lz4", "zstd"]),
    "blob_compression_type": lambda: random.choice(["none", "lz4", "zstd"]),
    "compression_manager": lambda: random.choice(["none", "none", "mixed", "randommixed", "custom"]),
}
# Faults that RocksDB injects above the file system: in the long form only.
FAULTS = [f"{kind}_fault_one_in" for kind in ("read", "write", "metadata_read", "metadata_write", "open_read")]
FAULTS += [f"{kind}_fault_one_in" for kind in ("open_write", "open_metadata_read", "open_metadata_write")]
FAULTS += ["secondary_cache_fault_one_in"]


def crashtest(path, scratch):
    """db_crashtest.py as a module. Its module level draws and makes a file."""
    os.environ["TEST_TMPDIR_EXPECTED"] = str(scratch)
    spec = importlib.util.spec_from_file_location("db_crashtest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # It would ask the host's file system.
    module.is_direct_io_supported = lambda _: True
    return module


class Lives:
    """The lives of one database, each a process that is killed."""

    def __init__(self, name, bench, options, folder):
        self.options = options
        self.program = bench.program("db_stress")
        self.ground = Ground(folder / name)
        self.log = bench.logs / f"{name}.log"
        self.device = self.ground.folder / "device"
        with open(self.device, "wb") as device:
            device.truncate(DEVICE_BYTES)
        self.uri = bench.file_uri.format(file=self.device)
        self.expected = self.ground.folder / "expected"
        self.expected.mkdir()
        random.seed(f"{name} {options.seed}")
        self.crashtest = crashtest(bench.sources / "tools/db_crashtest.py", self.ground.folder)
        mode = MODES[name]
        settled = {"db": f"{self.ground.inside}/db", "expected_values_dir": str(self.expected), "threads": 16}
        settled |= {"max_key": 100_000 if options.long else 20_000, "backup_one_in": BACKUP_ONE_IN}
        if not options.long:
            settled |= dict.fromkeys(FAULTS, 0)
        switches = {switch: switch in mode.switches for switch in SWITCHES}
        arguments = Namespace(test_type="blackbox", **switches, **DRAWN, **settled, **mode.options)
        self.parameters = self.crashtest.gen_cmd_params(arguments)
        self.plan = self._plan()

    def _plan(self):
        """The command line of every life, each with the time after which it is killed."""
        plan, left_s = [], self.options.stress_seconds
        while left_s > 0:
            limit_s = random.uniform(*(LIFE_S_LONG if self.options.long else LIFE_S))
            # A life may also end at one of RocksDB's own points of death.
            odds = random.choice([0, random.choice(DEATH_ODDS)])
            plan.append((self._command(kill_random_test=odds), limit_s))
            left_s -= limit_s
        # The last one verifies in peace: it first waits for all compactions, and one whose reads fail now and then
        # begins again without end.
        calm = dict.fromkeys(FAULTS, 0)
        plan.append((self._command(verification_only=1, skip_verifydb=0, **calm), LAST_LIFE_LIMIT_S))
        return plan

    def _command(self, **more):
        """A command line, drawn anew."""
        self.crashtest.stress_cmd = str(self.program)
        return self.crashtest.gen_cmd(self.parameters | more, [f"--fs_uri={self.uri}"])

    def run(self, result):
        """Lives as planned, until something is wrong."""
        with open(self.log, "w", encoding="utf-8") as log:
            for number, (command, limit_s) in enumerate(self.plan, start=1):
                wrong = self._live(log, command, limit_s)
                if wrong:
                    result.failed.append(f"life {number} of seed {self.options.seed}: {wrong}: {self.log}")
                    break
                result.passed += 1

    def _live(self, log, command, limit_s):
        """Runs one life, which is killed after so long; returns what is wrong with its end, if anything."""
        log.write(f"== {shlex.join(command)}\n")
        log.flush()
        with tempfile.TemporaryFile("w+", dir=self.ground.folder) as errors:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": errors}
            environment = self.ground.environment()
            with subprocess.Popen(command, env=environment, cwd=self.ground.folder, **streams) as process:
                try:
                    process.wait(limit_s)
                except subprocess.TimeoutExpired:
                    stop(process)
            errors.seek(0)
            said = errors.read()
        log.write(f"{said}\n== ended with {process.returncode}\n")
        if said.strip():
            return said.strip().splitlines()[0][:COMPLAINT_LENGTH_MAX]
        # A point of death ends the process by SIGTERM, which nothing handles.
        ends = [0] if command is self.plan[-1][0] else [0, -signal.SIGKILL, -signal.SIGTERM]
        return None if process.returncode in ends else f"ended with {process.returncode}"


def run(name, lives):
    """Runs the lives of one mode and returns its result."""
    start = time.monotonic()
    result = Result(name)
    lives.run(result)
    result.add_ground(lives.ground)
    lives.device.unlink()
    result.seconds = time.monotonic() - start
    return result
