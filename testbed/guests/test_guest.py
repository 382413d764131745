"""What is made of a guest's console: python3 -m unittest discover -s testbed/guests"""

import unittest

from guest import STRAY, Console, verdict

BEGIN = "guest: conformance on 0000:00:01.0 begins\n"
PASSED = "conformance: passed: all\n"
FAILED = "conformance: FAILED: something\n"
EXIT = "guest: exit 0\n"
WATCHERS = ("kernel", "QEMU")


def console(text, began=True, crash=None, timed_out=False, stopped=False):
    return Console(text, began, timed_out, crash, stopped)


def said(kernel="", errors=(), watchers=()):
    """The verdict on a guest that passed, with these lines of the kernel's and of QEMU's."""
    return verdict(console(BEGIN + PASSED + kernel + EXIT), "".join(f"{error}\n" for error in errors), watchers)


class IsOfEmulation(unittest.TestCase):
    def test_a_guest_that_did_not_begin(self):
        self.assertTrue(console("", began=False).is_of_emulation)
        self.assertTrue(console("", began=False, crash="SIGABRT").is_of_emulation)
        self.assertTrue(console("", began=False, timed_out=True).is_of_emulation)
        self.assertFalse(console("", began=False, stopped=True).is_of_emulation)

    def test_a_crash_while_the_payload_ran(self):
        for crash, expected in (("SIGSEGV", True), ("SIGBUS", True), ("SIGKILL", True), ("SIGABRT", False), (None, False)):
            with self.subTest(crash):
                self.assertEqual(console(BEGIN, crash=crash).is_of_emulation, expected)

    def test_a_crash_after_the_payload_had_failed(self):
        self.assertFalse(console(BEGIN + FAILED, crash="SIGSEGV").is_of_emulation)


class Verdict(unittest.TestCase):
    def test_ends(self):
        self.assertEqual(said(), (True, "conformance: passed: all"))
        self.assertEqual(verdict(console(BEGIN + FAILED + "guest: exit 1\n"))[0], False)
        self.assertEqual(verdict(console(BEGIN, timed_out=True)), (False, "no end within the time"))
        self.assertEqual(verdict(console(BEGIN, crash="SIGABRT"))[1], "QEMU ended before the guest did, by SIGABRT")

    def test_complaints(self):
        for line in (
            "kernel: [ 1.0] DMAR: [DMA Write NO_PASID] Request device [00:01.0] fault addr 0x1000 [fault reason 0x05]\n",
            "kernel: [ 1.0] DMAR: DRHD: handling fault status reg 2\n",
            "kernel: [ 1.0] arm-smmu-v3 9050000.smmuv3: event 0x10 received:\n",
            "kernel: [ 1.0] WARNING: CPU: 0 PID: 1 at kernel/fork.c:1\n",
        ):
            with self.subTest(line):
                self.assertEqual(said(line), (False, line.rstrip()))
        self.assertTrue(said("kernel: [ 1.0] vfio-pci 0000:00:01.0: Relaying device request to user (#0)\n")[0])
        self.assertFalse(said(errors=["pci_nvme_ub_mmiord_tofu_invalid in nvme_mmio_read: ..."])[0])
        self.assertTrue(said(errors=["pci_nvme_ub_db_wr_invalid_sq in nvme_process_db: ..."])[0])

    def test_strays_must_be_told_of_and_nothing_else(self):
        kernel = f"kernel: [ 1.0] DMAR: [DMA Read NO_PASID] Request device [00:01.0] fault addr {STRAY:#x} [fault]\n"
        handling = "kernel: [ 1.0] DMAR: DRHD: handling fault status reg 2\n"
        smmu = "".join(
            f"kernel: [ 1.0] arm-smmu-v3 9050000.smmuv3: {rest}\n"
            for rest in ("event 0x10 received:", "\t0x0000000800000010", f"\t0x{STRAY:016x}")
        )
        errors = [f"Invalid read at addr 0x{STRAY + 4:X}, size 4, region '(null)', reason: rejected"]
        self.assertTrue(said(handling + kernel, errors, WATCHERS)[0])
        between = "kernel: [ 1.0] vfio-pci 0000:00:01.0: resetting\n"
        self.assertTrue(said(handling + between + kernel, errors, WATCHERS)[0])
        self.assertFalse(said(handling + between * 3 + kernel, errors, WATCHERS)[0])
        self.assertTrue(said(smmu, errors, WATCHERS)[0])
        self.assertTrue(said("", errors, ("QEMU",))[0])
        bridge = "phb4[0:0]: Access to invalid TVE"
        self.assertTrue(said("", [bridge, *errors], ("QEMU",))[0])
        self.assertFalse(said("", [*errors, bridge], ("QEMU",))[0])
        # Seen, where none was meant; not seen; another one beside it.
        self.assertFalse(said(kernel)[0])
        self.assertFalse(said("", errors, WATCHERS)[0])
        self.assertFalse(said(kernel, [], WATCHERS)[0])
        other = kernel.replace(f"{STRAY:#x}", f"{STRAY + 0x1000:#x}")
        self.assertFalse(said(kernel + other, errors, WATCHERS)[0])
        self.assertFalse(said(smmu.replace(f"{STRAY:x}", "1000"), errors, WATCHERS)[0])


if __name__ == "__main__":
    unittest.main()
