"""Starts a millrace server for a test and stops it again."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("MILLRACE", ROOT / "target/release/millrace"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server on a free port with its data in a folder of its own, unless the options name a device.

    `options` are further command-line options. Used as a context manager it is stopped at the end, and
    its exit status is checked.
    """

    def __init__(self, *options, dbpath=None):
        self.port = free_port()
        self.folder = None if dbpath else tempfile.TemporaryDirectory(prefix="millrace-")
        self.dbpath = dbpath or self.folder.name
        self.options = options
        self.process = None

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    def start(self):
        """Starts the server and returns once it says that it waits for connections."""
        place = [] if "--device" in self.options else ["--dbpath", str(self.dbpath)]
        command = [str(BINARY), "serve", "--port", str(self.port), *place]
        self.process = subprocess.Popen(
            [*command, *self.options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        seen = []
        for line in self.process.stdout:
            seen.append(line.decode(errors="replace"))
            try:
                message = json.loads(line).get("msg", "")
            except ValueError:
                continue
            if message == "Waiting for connections":
                self._drain()
                return self
        status = self.process.wait()
        raise RuntimeError(f"the server ended with status {status}:\n{''.join(seen)}")

    def _drain(self):
        # The log goes on; nobody reads it, but the pipe must not fill up.
        subprocess.Popen(["cat"], stdin=self.process.stdout, stdout=subprocess.DEVNULL)
        self.process.stdout.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        if status != 0:
            raise RuntimeError(f"the server ended with status {status}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            if self.folder:
                self.folder.cleanup()
