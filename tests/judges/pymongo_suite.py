"""Runs PyMongo's own test suite against the server and holds its counts to those in pymongo.json.

    pymongo_suite.py                 the whole suite; fails when a count falls below its ratchet
    pymongo_suite.py --update        also writes the counts where they have risen
    pymongo_suite.py [PYTEST ARGS]   anything else is handed to pytest, and no ratchet is applied
"""

import collections
import json
import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
from server import Server  # noqa: E402

VERSION = "4.20.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millrace"
SOURCE = CACHE / f"pymongo-{VERSION}"
PYTHON = CACHE / "python/pymongo-suite"
RATCHETS = HERE / "pymongo.json"
# The suites of things this server does not have at all, or that need a network.
LEFT_OUT = ["test_csot", "test_encryption", "test_on_demand_csfle", "test_srv_polling", "test_dns",
            "test_auth_oidc", "test_kms", "test_ssl", "test_load_balancer", "test_data_lake"]


def prepare():
    """Fetches the suite's source and an environment to run it in, once."""
    if not (SOURCE / "test").is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "download", "--no-deps", "--no-binary", "pymongo",
                        f"pymongo=={VERSION}", "-d", str(CACHE)], check=True)
        with tarfile.open(CACHE / f"pymongo-{VERSION}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    if not (PYTHON / "bin/pytest").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PYTHON)], check=True)
        subprocess.run([str(PYTHON / "bin/pip"), "-q", "--disable-pip-version-check", "install",
                        f"pymongo=={VERSION}", "pytest", "pytest-asyncio", "pytest-timeout",
                        "python-snappy", "backports.zstd"], check=True)
    # The suite imports the package from its own folder, which has no compiled extension.
    shadow = SOURCE / "pymongo"
    if shadow.is_dir():
        for name in ("pymongo", "bson", "gridfs"):
            (SOURCE / name).rename(SOURCE / f"{name}.source")


def run(server, report, arguments):
    environment = dict(os.environ, DB_IP="127.0.0.1", DB_PORT=str(server.port))
    command = [str(PYTHON / "bin/pytest"), "-q", "-p", "no:cacheprovider", "--timeout", "120",
               "--tb=native", f"--junitxml={report}", *arguments]
    subprocess.run(command, cwd=SOURCE, env=environment, check=False)


def count(report):
    """The outcomes of a report by kind, and the reasons of skips and failures by how often they occur."""
    outcomes, reasons, failed = collections.Counter(), collections.Counter(), []
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag: child for child in case}
        if "failure" in kinds or "error" in kinds:
            outcomes["failed"] += 1
            problem = kinds.get("failure", kinds.get("error"))
            failed.append(f"{case.get('classname')}::{case.get('name')}: {(problem.get('message') or '')[:200]}")
        elif "skipped" in kinds:
            outcomes["skipped"] += 1
            reasons[kinds["skipped"].get("message", "")[:100]] += 1
        else:
            outcomes["passed"] += 1
    return outcomes, reasons, failed


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--update"]
    prepare()
    selection = arguments or ["test", "-m", "default or default_async",
                              *(f"--ignore=test/{folder}{name}.py" for name in LEFT_OUT
                                for folder in ("", "asynchronous/"))]
    report = CACHE / "pymongo-report.xml"
    with Server("--setParameter", "enableTestCommands=1", "--journalCommitInterval", "100") as server:
        run(server, report, selection)
    outcomes, reasons, failed = count(report)
    ran = outcomes["passed"] + outcomes["failed"]
    (CACHE / "pymongo-failed.txt").write_text("\n".join(failed))
    for reason, times in reasons.most_common(25):
        print(f"skipped {times:5}: {reason}")
    print(f"PyMongo {VERSION}: {ran} run, {outcomes['passed']} passed, {outcomes['failed']} failed, "
          f"{outcomes['skipped']} skipped; failures in {CACHE / 'pymongo-failed.txt'}")
    if arguments:
        return
    ratchets = json.loads(RATCHETS.read_text())
    fallen = [name for name, value in (("run", ran), ("passed", outcomes["passed"]))
              if value < ratchets[name]]
    if "--update" in sys.argv:
        ratchets.update(run=max(ran, ratchets["run"]), passed=max(outcomes["passed"], ratchets["passed"]))
        RATCHETS.write_text(json.dumps(ratchets, indent=2) + "\n")
    if fallen:
        sys.exit(f"fewer than before: {', '.join(fallen)} (see {RATCHETS})")


if __name__ == "__main__":
    main()
