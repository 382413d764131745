"""Runs everyday.js in mongosh against a fresh server."""

import subprocess
import sys
from pathlib import Path

from server import Server

with Server() as server:
    script = Path(__file__).with_name("everyday.js")
    subprocess.run(
        [sys.argv[1], "--quiet", "--norc", server.uri, "--file", str(script)], check=True, timeout=120
    )
