"""Guests under QEMU's software emulation: which there are, what they see, and how they are booted.

A guest is a machine of the table below with a file system in memory (busybox, modules, `init` and a payload). Most
have an NVMe controller whose namespaces are disks; `init` gives it to VFIO, runs the payload on it and ends. A guest
without disks has no controller; its payload says what else there is.
"""

import dataclasses
import gzip
import json
import lzma
import os
import re
import selectors
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"
# Consoles are kept here.
LOGS = ROOT / "target" / "guests"
# Of these a guest loads the ones that its kernel has as modules, in this order.
VFIO = ["irqbypass", "vfio", "vfio_virqfd", "vfio_iommu_type1", "vfio_iommu_spapr_tce", "vfio-pci-core", "vfio-pci"]
CONSOLE_TAIL_LINES = 30
# The emulation of several processors on several threads now and then wedges a kernel that patches its own code
# while it boots, or loses the timer that it waits for, and now and then QEMU itself crashes. A guest that does not
# reach the payload by then is booted again, so often at most. So is one whose payload ran and had not failed when the
# emulator was ended by one of these signals. Any other may be the payload's doing: a controller that is driven wrongly
# has QEMU abort.
BOOT_LIMIT_S = 90
BOOTS_MAX = 3
CRASHES_OF_EMULATION = ("SIGSEGV", "SIGBUS", "SIGKILL")
# How long QEMU may take to end once it has closed its output.
EXIT_LIMIT_S = 10
# How often it is asked whether a guest shall be stopped.
STOP_LATENCY_S = 0.1
# The last line of `init` before the payload runs, and a guest's last line.
BEGIN = re.compile(rb"^guest: \S+ on .* begins\r?\n", re.M)
END = re.compile(rb"^guest: exit \d+\r?\n", re.M)
# A payload's word for its failure.
FAILED = re.compile(r"^\S+: FAILED\b", re.M)
# The kernel's words for a transfer that the IOMMU refused, and for its own faults, while the payload ran. A driver
# that switches the controller off before it takes memory from it causes none. An SMMU's event is told in numbers, on
# lines of their own.
COMPLAINT = re.compile(
    r"^kernel: .*(DMAR: \[.*fault|EEH: Frozen|BUG: |WARNING: |Oops).*$"
    # It says which fault in the next line, or soon where others write too, unless there are too many.
    r"|^kernel: .*DMAR: DRHD: handling fault.*$(?!(?:\n^kernel: .*$){0,2}\n^kernel: .*DMAR: \[)"
    r"|^kernel: .*arm-smmu-v3 .*event.*$(\n^kernel: .*arm-smmu-v3 \S+\s+0x[0-9a-f]{16}$)*",
    re.MULTILINE | re.IGNORECASE,
)
# Where `--stray-read` has the controller read: nothing is mapped there, and whoever watches its transfers says so, of
# one address of that page or several.
STRAY = 0x3ABCD000
IS_STRAY = re.compile(rf"\b(0x)?0*{STRAY >> 12:x}[0-9a-f]{{3}}\b", re.IGNORECASE)
# What QEMU says of a guest's errors: a line each, but a host bridge of POWER says what was wrong, and QEMU of what
# address then.
ERROR = re.compile(r"^phb\d.*\n.*|^.+", re.MULTILINE)
# What QEMU says of a guest that does nothing wrong (`-d guest_errors`), by what a line begins with.
ALLOWED_ERRORS = (
    # A doorbell rung by who has not heard yet that the controller was reset, or rung for the event that this causes.
    "pci_nvme_ub_db_wr_invalid_cq ",
    "pci_nvme_ub_db_wr_invalid_sq ",
)


@dataclass(frozen=True)
class Machine:
    """A kind of guest: what QEMU and the kernel are told."""

    arch: str
    what: str
    qemu: str
    console: str
    append: str = ""
    # Devices that must come before the controller.
    devices: list[str] = field(default_factory=list)
    # The bus that the controller sits on; None leaves it to QEMU.
    bus: str | None = None
    # What the driver must find there beside what it finds on all (`CONTROLLER`), by the conformance binary's names.
    expected: dict[str, str] = field(default_factory=dict)
    # Who tells of a transfer that the IOMMU refused: the guest's kernel, or QEMU.
    watchers: tuple[str, ...] = ("kernel", "QEMU")


NAMESPACE_BYTES = 256 << 20
BLOCK_SIZES = (512, 4096)
# QEMU's controller as `command` makes it.
CONTROLLER = {
    "device-page": "4096",
    "features": "compare,deallocate,reads-zero,sgl,shadow-doorbells,volatile-cache,write-zeroes",
    "function-reset": "yes",
    "namespaces": ",".join(f"{id}:{NAMESPACE_BYTES // size}x{size}" for id, size in enumerate(BLOCK_SIZES, start=1)),
    "queue-pairs": "8",
    "transfer": str(512 << 10),
    "vectors": "9",
}
MIB = 1 << 20
MACHINES = {
    "q35": Machine(
        arch="x86_64",
        what="x86-64, VT-d, Type1",
        qemu="qemu-system-x86_64 -M q35 -cpu max -nodefaults",
        console="ttyS0",
        # The test of the timer fails when the emulation is slow, and the kernel panics.
        append="intel_iommu=on no_timer_check",
        # Without interrupt remapping VFIO_SET_IOMMU answers EPERM.
        devices=["intel-iommu,intremap=on"],
        expected={"interfaces": "type1", "page": "4096", "arena-page": str(2 * MIB)},
    ),
    "powernv9": Machine(
        arch="powerpc64le",
        what="POWER9, bare metal, sPAPR TCE",
        # Here the host bridges count among the defaults, so these stay.
        qemu="qemu-system-ppc64 -M powernv9",
        console="hvc0",
        bus="pcie.0",
        expected={"interfaces": "spapr2,spapr1", "page": "65536", "arena-page": "65536"},
        watchers=("QEMU",),
    ),
    "powernv8": Machine(
        arch="powerpc64le",
        what="POWER8, bare metal, sPAPR TCE",
        qemu="qemu-system-ppc64 -M powernv8",
        console="hvc0",
        bus="pcie.0",
        expected={"interfaces": "spapr2,spapr1", "page": "65536", "arena-page": str(16 * MIB)},
        watchers=("QEMU",),
    ),
    "pseries": Machine(
        arch="powerpc64le",
        what="POWER9, logical partition, sPAPR TCE",
        # What is off or broken is what software emulation cannot give.
        qemu="qemu-system-ppc64 -cpu power9 -nodefaults"
        " -M pseries,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off",
        console="hvc0",
        expected={"interfaces": "spapr2,spapr1", "page": "65536", "arena-page": str(2 * MIB)},
        watchers=("QEMU",),
    ),
    "arm64": Machine(
        arch="aarch64",
        what="Arm, SMMUv3, Type1",
        # Pointer authentication as the architecture words it takes half of the emulation's time.
        qemu="qemu-system-aarch64 -M virt,iommu=smmuv3,gic-version=3 -cpu max,pauth-impdef=on -nodefaults",
        console="ttyAMA0",
        expected={"interfaces": "type1", "page": "16384", "arena-page": str(32 * MIB)},
    ),
}

# For what needs no IOMMU.
PLAIN = dataclasses.replace(MACHINES["q35"], what="x86-64", append="no_timer_check", devices=[])


class Missing(Exception):
    """Something that a run needs is not there."""


# The class of an NVMe controller.
NVME = "0x010802"


@dataclass(frozen=True)
class Payload:
    """What a guest runs: `/payload --device ADDRESS ARGUMENTS`, or without the device if VFIO takes none."""

    # What the console calls it; one word.
    name: str
    program: Path
    arguments: list[str] = field(default_factory=list)
    # Further files, by their absolute paths in the guest. Programs among them are executable here too.
    files: dict[str, Path] = field(default_factory=dict)
    # What the kernel needs, in this order; what it has built in is left out.
    modules: list[str] = field(default_factory=lambda: VFIO)
    # The class of the function that VFIO takes, the first of its kind, if any.
    vfio_class: str | None = NVME
    # What else QEMU is told.
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Disk:
    """A namespace of the controller. The guest sees a volatile cache; nothing outlives the machine that runs this."""

    path: Path
    block_bytes: int = 512
    # Where QEMU records every write, discard and flush, if anywhere: dm-log-writes' format.
    log: Path | None = None

    def nodes(self, name):
        """QEMU's options for the node `name` that is this disk."""
        unsafe = {"no-flush": True}
        disk = {"driver": "file", "filename": str(self.path), "cache": unsafe, "discard": "unmap"}
        if not self.log:
            return _blockdev(name, disk)
        log = {"driver": "file", "filename": str(self.log), "cache": unsafe}
        recorder = {"driver": "blklogwrites", "file": f"{name}-file", "log": f"{name}-log", "discard": "unmap"}
        return [*_blockdev(f"{name}-file", disk), *_blockdev(f"{name}-log", log), *_blockdev(name, recorder)]


def _blockdev(name, options):
    return ["-blockdev", json.dumps({"node-name": name, **options})]


class Archive:
    """An initial file system in cpio's `newc` format."""

    def __init__(self):
        self.members = []
        self.folders = set()

    def add(self, name, content, mode):
        """Adds a file, and the folders above it if need be."""
        for parent in reversed(Path(name).parents):
            if parent.name and str(parent) not in self.folders:
                self.folders.add(str(parent))
                self._member(str(parent), b"", stat.S_IFDIR | 0o755)
        self._member(name, content, stat.S_IFREG | mode)

    def add_folder(self, name):
        """Adds an empty folder."""
        self.folders.add(name)
        self._member(name, b"", stat.S_IFDIR | 0o755)

    def add_console(self):
        """Adds /dev/console, without which the first process has no output."""
        self.add_folder("dev")
        self._member("dev/console", b"", stat.S_IFCHR | 0o600, device=(5, 1))

    def _member(self, name, content, mode, device=(0, 0)):
        number = len(self.members) + 1
        path = name.encode() + b"\0"
        # number, mode, user, group, links, time, size, device, device of the node, length of the name, checksum
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0]
        head = b"070701" + b"".join(b"%08X" % value for value in fields) + path
        self.members.append(_padded(head) + _padded(content))

    def compressed(self):
        """The finished archive."""
        self._member("TRAILER!!!", b"", 0)
        return gzip.compress(b"".join(self.members), compresslevel=1)


def _padded(data):
    return data + b"\0" * (-len(data) % 4)


def newest(folder, pattern):
    """The one file that matches; the packages hold one kernel each."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise Missing(f"{folder}/{pattern} is missing: run scripts/setup guests")
    return found[-1]


def initramfs(system, payload):
    """What a guest sees as its root: busybox, modules, the payload and `init`."""
    archive = Archive()
    archive.add_console()
    for name in ("proc", "sys", "tmp"):
        archive.add_folder(name)
    archive.add("bin/busybox", newest(system, "bin/busybox").read_bytes(), 0o755)
    order = []
    for module in payload.modules:
        found = sorted(system.glob(f"lib/modules/*/kernel/**/{module}.ko*"))
        if not found:
            continue
        content = found[0].read_bytes()
        archive.add(f"modules/{module}.ko", lzma.decompress(content) if found[0].suffix == ".xz" else content, 0o644)
        order.append(f"{module}.ko\n")
    archive.add("modules/order", "".join(order).encode(), 0o644)
    archive.add("arguments", (shlex.join(payload.arguments) + "\n").encode(), 0o644)
    archive.add("vfio-class", f"{payload.vfio_class or ''}\n".encode(), 0o644)
    archive.add("name", f"{payload.name}\n".encode(), 0o644)
    archive.add("payload", payload.program.read_bytes(), 0o755)
    for name, path in payload.files.items():
        archive.add(name.lstrip("/"), path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
    archive.add("init", (HERE / "init").read_bytes(), 0o755)
    return archive.compressed()


def command(machine, payload, disks, folder):
    """Lays the initial file system into `folder`; returns QEMU's command line. The disks must be there."""
    system = CACHE / "guests" / machine.arch
    controller = "nvme,id=nvme0,serial=millrace,max_ioqpairs=8,msix_qsize=9,mdts=7"
    program, *kind = machine.qemu.split()
    if not shutil.which(program):
        raise Missing(f"{program} is missing: run scripts/setup guests")
    (folder / "initramfs").write_bytes(initramfs(system, payload))
    line = [program, *kind, "-accel", "tcg", "-smp", "2", "-m", "1024"]
    line += ["-nographic", "-no-reboot", "-serial", "stdio", "-monitor", "none", "-nic", "none"]
    line += ["-kernel", str(newest(system, "boot/vmlinu*")), "-initrd", str(folder / "initramfs")]
    line += ["-append", f"console={machine.console} panic=-1 log_buf_len=4M {machine.append}".rstrip()]
    for device in machine.devices:
        line += ["-device", device]
    line += payload.options
    if disks:
        line += ["-device", controller + (f",bus={machine.bus}" if machine.bus else "")]
    for number, disk in enumerate(disks, start=1):
        blocks = f"logical_block_size={disk.block_bytes},physical_block_size={disk.block_bytes}"
        line += disk.nodes(f"disk{number}")
        line += ["-device", f"nvme-ns,bus=nvme0,drive=disk{number},nsid={number},{blocks}"]
    return line


@dataclass(frozen=True)
class Console:
    """What a guest wrote, and why no more of it was read."""

    text: str
    # Whether the payload was reached, or the guest said itself why not.
    began: bool
    timed_out: bool
    # The signal that ended QEMU before the guest was done.
    crash: str | None = None
    # Whether it was killed because the caller wanted it.
    stopped: bool = False

    @property
    def is_of_emulation(self):
        """Whether the emulation failed, which says nothing about what runs in the guest."""
        if not self.began:
            return not self.stopped
        return self.crash in CRASHES_OF_EMULATION and not FAILED.search(self.text)


def boot(line, kept, limit_s, echo=False, heard=None, stop=None):
    """Runs QEMU until the guest says that it is done, QEMU ends, or the time is up.

    `kept` gets the console; `heard` is called with every whole line of it at once, without its end. `stop` is an
    event of another thread's that has QEMU killed, if given.
    """
    text = b""
    told = 0
    start = time.monotonic()
    began = timed_out = stopped = False
    with (
        selectors.DefaultSelector() as selector,
        subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as qemu,
    ):
        selector.register(qemu.stdout, selectors.EVENT_READ)
        kept.write(f"{shlex.join(line)}\n".encode())
        kept.flush()
        try:
            while not END.search(text):
                began = began or bool(BEGIN.search(text))
                left_s = start + (limit_s if began else min(limit_s, BOOT_LIMIT_S)) - time.monotonic()
                stopped = stop is not None and stop.is_set()
                timed_out = left_s <= 0
                if stopped or timed_out:
                    break
                if not selector.select(min(left_s, STOP_LATENCY_S) if stop else left_s):
                    continue
                chunk = os.read(qemu.stdout.fileno(), 65536)
                if not chunk:
                    break
                text += chunk
                kept.write(chunk)
                kept.flush()
                while heard and (end := text.find(b"\n", told)) >= 0:
                    heard(text[told:end].decode(errors="replace").rstrip("\r"))
                    told = end + 1
                if echo:
                    sys.stderr.buffer.write(chunk)
                    sys.stderr.buffer.flush()
            crash = ended_by(qemu) if not (timed_out or stopped or END.search(text)) else None
        finally:
            # What a guest does after its last line is of no interest, and not every machine can switch off.
            qemu.kill()
    began = began or bool(END.search(text))
    return Console(text.decode(errors="replace").replace("\r", ""), began, timed_out, crash, stopped)


def ended_by(qemu):
    """The signal that ended QEMU, which has closed its output; None if it ended by itself."""
    try:
        code = qemu.wait(EXIT_LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    return signal.Signals(-code).name if code < 0 else None


def verdict(console, errors="", watchers=()):
    """Whether the guest passed, and what is to be said of it.

    `errors` is what QEMU logged of the guest's errors, if it was asked. With `watchers` the guest had the controller
    read at `STRAY`, and each of them must have told of it.
    """
    text = console.text
    ended = re.search(r"^guest: exit (\d+)$", text, re.M)
    if not ended and console.timed_out:
        return False, "no end within the time"
    if not ended:
        return False, f"QEMU ended before the guest did{f', by {console.crash}' if console.crash else ''}"
    complaints = [found[0] for found in COMPLAINT.finditer(text)]
    complaints += [f"QEMU: {error}" for error in ERROR.findall(errors) if not error.startswith(ALLOWED_ERRORS)]
    strays = [complaint for complaint in complaints if watchers and IS_STRAY.search(complaint)]
    for complaint in complaints:
        if complaint not in strays:
            return False, complaint
    lines = [line for line in text[: ended.start()].splitlines() if line.strip() and not line.startswith("kernel: ")]
    last = lines[-1].removeprefix("guest: ") if lines else "the guest said nothing"
    if ended[1] != "0":
        return False, f"exit {ended[1]}: {last}"
    for watcher in watchers:
        if not any(stray.startswith(f"{watcher}: ") for stray in strays):
            return False, f"a read at {STRAY:#x}, where nothing is mapped, was not told of by {watcher}"
    return True, last


def boot_again(name, lay_out, limit_s, echo=False, heard=None):
    """Boots a machine, again if the emulation fails. Returns its console and how many boots it took.

    `lay_out` is called before each boot: it prepares the disks and returns QEMU's command line.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    with open(log_of(name), "wb") as kept:
        for attempt in range(1, BOOTS_MAX + 1):
            console = boot(lay_out(), kept, limit_s, echo, heard)
            if not console.is_of_emulation:
                break
            print(f"{name}: {console.crash or 'no boot'} in attempt {attempt}", file=sys.stderr)
    return console, attempt


def log_of(name):
    """Where the console of a run is kept."""
    return LOGS / f"{name}.log"


def print_tail(name, console):
    """Shows the end of a console whose guest has failed."""
    tail = console.text.splitlines()[-CONSOLE_TAIL_LINES:]
    print(*(f"    {entry}" for entry in tail), f"    the whole console: {log_of(name)}", sep="\n", file=sys.stderr)


def described(machine, console):
    """The machine and the size of its pages, as its kernel told it."""
    page = re.search(r"^guest: kernel .*page size (\d+) KiB", console.text, re.M)
    return f"{machine.what}, {page[1]} KiB pages" if page else machine.what


def libraries_of(program):
    """What a program of this machine that is not static needs, by where it belongs."""
    listed = subprocess.run(["ldd", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {path: Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}


def cross_build(arch, package, binary, scripts=("cross",), environment=""):
    """Cross-builds a static binary, with what the scripts say of the processor, and returns its path.

    `environment` is what else the shell that calls cargo is told.
    """
    environment += "\n"
    for script in scripts:
        said = subprocess.run([ROOT / "scripts" / script, arch], check=True, stdout=subprocess.PIPE, text=True)
        environment += said.stdout
    script = f"""{environment}
        cargo build --locked --release --package {package} >&2
        echo "$CARGO_TARGET_DIR/$CARGO_BUILD_TARGET/release/{binary}"
    """
    built = subprocess.run(["bash", "-euc", script], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return ROOT / built.stdout.strip()
