"""Runs tests of CPython's own, telling how each begins and ends.

    cpython.py list MODULE                   prints the tests' names as JSON
    cpython.py run MODULE TESTS OUTCOMES     runs those that the file TESTS names, appends lines to OUTCOMES
"""

import contextlib
import faulthandler
import gc
import importlib
import json
import resource
import socket
import sys
import unittest
from pathlib import Path

# What needs no network, no display and no gigabytes.
RESOURCES = ["cpu", "subprocess"]
# AF_VSOCK hangs on some machines by itself; the others compute for long, and use no socket.
LEFT_OUT = ("VSOCK", "Vsock", "_del_collect", "_cancel_gather_")
# Their sockets are pairs, which are AF_UNIX by themselves.
PAIRED_BY_TCP = ("test_selectors",)
# They open as many as there may be: more than select's 1,024, with room for those that the window needs besides.
DESCRIPTORS = 1600


def flattened(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flattened(test)
        else:
            yield test


def tcp_pair(family=socket.AF_INET, type=socket.SOCK_STREAM, proto=0):
    """Two sockets that are connected by TCP, where there is no socketpair: the same that CPython does then."""
    with socket.socket(family, type, proto) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        near = socket.socket(family, type, proto)
        near.connect(listener.getsockname())
        return near, listener.accept()[0]


def tests(module):
    """Every test of a module or package, in the order of its own run."""
    if module in PAIRED_BY_TCP:
        socket.socketpair = tcp_pair
        resource.getrlimit = lambda _: (DESCRIPTORS, DESCRIPTORS)
        resource.setrlimit = lambda *_: None
    importlib.import_module(f"test.{module}")
    found = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    return [test for test in flattened(found) if not any(word in test.id() for word in LEFT_OUT)]


class Outcomes(unittest.TextTestResult):
    """Appends a line when a test begins and when it ended."""

    told = None
    outcome = "passed"

    def tell(self, event, test):
        self.told.write(f"{event} {test.id()}\n")
        self.told.flush()

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "passed"
        self.tell("begin", test)

    def stopTest(self, test):
        super().stopTest(test)
        self.tell(self.outcome, test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = "skipped"

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcome = "failed"
        self.show(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self.outcome = "error"
        self.show(test, err)
        if not isinstance(test, unittest.TestCase):
            # The fixture of a class or module.
            self.tell("error", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcome = "failed"
            self.show(test, err)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.outcome = "expected"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = "unexpected"

    def show(self, test, err):
        # At once: the process may not live to the end.
        print(f"==== {test.id()}\n{self._exc_info_to_string(err, test)}", flush=True)


def main():
    from test import support

    support.use_resources = RESOURCES
    support.verbose = 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    faulthandler.enable()
    what, module = sys.argv[1:3]
    found = tests(module)
    if what == "list":
        print(json.dumps([test.id() for test in found]))
        return
    wanted = set(json.loads(Path(sys.argv[3]).read_text()))
    suite = unittest.TestSuite(test for test in found if test.id() in wanted)
    # Many tests collect garbage; what is loaded by now is none, and large.
    gc.freeze()
    with open(sys.argv[4], "a", encoding="utf-8") as Outcomes.told, contextlib.suppress(KeyboardInterrupt):
        unittest.TextTestRunner(resultclass=Outcomes, verbosity=0, stream=sys.stdout).run(suite)


if __name__ == "__main__":
    main()
