"""Several guests at once, none of which can pass without the others."""

import concurrent.futures
import sys
import threading
from dataclasses import dataclass

import guest
from guest import Console, Machine, Payload


@dataclass(frozen=True)
class Member:
    """One of the guests."""

    machine: Machine
    payload: Payload
    # The line of any member's console at which this one is killed, if it is to be.
    killed_at: str | None = None
    # The line at which it is booted; without one, at once.
    booted_at: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What is to be said of all of them."""

    passed: bool
    # The last words of each that was not to be killed, or why it failed.
    summaries: list[str]
    consoles: list[Console]
    boots: int


class Attempt:
    """One boot of all members."""

    def __init__(self, name, members, folder, limit_s, echo):
        self.name = name
        self.members = members
        self.folder = folder
        self.limit_s = limit_s
        self.echo = echo
        self.starts = [threading.Event() for _ in members]
        self.stops = [threading.Event() for _ in members]

    def run(self):
        """Returns the consoles."""
        with concurrent.futures.ThreadPoolExecutor(len(self.members)) as pool:
            try:
                return list(pool.map(self._boot, range(len(self.members))))
            finally:
                self._stop_all()

    def log_name(self, index):
        """What a member's console is called."""
        return self.name if len(self.members) == 1 else f"{self.name}{index + 1}"

    def _boot(self, index):
        member = self.members[index]
        folder = self.folder / f"guest{index + 1}"
        folder.mkdir(exist_ok=True)
        if member.booted_at is not None:
            self.starts[index].wait()
        if self.stops[index].is_set():
            return Console("", began=False, timed_out=False, stopped=True)
        has_failed = True
        try:
            line = guest.command(member.machine, member.payload, [], folder)
            with open(guest.log_of(self.log_name(index)), "ab") as kept:
                console = guest.boot(line, kept, self.limit_s, self.echo, self._hear, self.stops[index])
            has_failed = not console.stopped and not guest.verdict(console)[0]
        finally:
            # Nobody would answer the others.
            if has_failed:
                self._stop_all()
        return console

    def _hear(self, line):
        for member, start, stop in zip(self.members, self.starts, self.stops, strict=True):
            if line == member.killed_at:
                stop.set()
            if line == member.booted_at:
                start.set()

    def _stop_all(self):
        for event in (*self.stops, *self.starts):
            event.set()

    def judge(self, index, console):
        """Whether a member did as it should, and what is to be said of it."""
        if console.stopped:
            is_meant = self.members[index].killed_at is not None
            return is_meant, None if is_meant else "stopped, as another guest failed"
        passed, summary = guest.verdict(console)
        if passed and self.members[index].killed_at is not None:
            return False, f"ended before it could be killed: {summary}"
        return passed, summary


def boot(name, lay_out, folder, limit_s, echo=False):
    """Boots all members, again if the emulation of one fails. Returns the verdict.

    `lay_out` is called before each attempt: it makes what the members share anew in the folder and returns them.
    """
    guest.LOGS.mkdir(parents=True, exist_ok=True)
    for old in (guest.log_of(name), *guest.LOGS.glob(f"{name}[0-9].log")):
        old.unlink(missing_ok=True)
    for boots in range(1, guest.BOOTS_MAX + 1):
        attempt = Attempt(name, lay_out(folder), folder, limit_s, echo)
        consoles = attempt.run()
        if not any(console.is_of_emulation for console in consoles):
            break
        print(f"{name}: no boot in attempt {boots}", file=sys.stderr)
    passed, summaries = True, []
    for index, console in enumerate(consoles):
        member_passed, summary = attempt.judge(index, console)
        if not member_passed:
            passed = False
            guest.print_tail(attempt.log_name(index), console)
        if summary is not None:
            summaries.append(summary)
    return Verdict(passed, summaries, consoles, boots)


def print_line(name, what, verdict, seconds):
    """Prints what there is to say of one run."""
    word = "passed" if verdict.passed else "FAILED"
    again = f", {verdict.boots} boots" if verdict.boots > 1 else ""
    print(f"{name:<10} {word}  {what}: {'; '.join(verdict.summaries)}  ({seconds:.0f} s{again})", flush=True)
