//! Advice that follows from the errors of the libraries below.

use std::error::Error as StdError;

/// Advice for the innermost cause that has some. The libraries' messages say what failed; this adds what the user of a
/// terminal can do.
pub(crate) fn for_cause(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let inner = error.source().and_then(for_cause);
    inner.or_else(|| {
        if let Some(error) = error.downcast_ref::<millrace_pci::Error>() {
            return for_function(error.kind());
        }
        if let Some(error) = error.downcast_ref::<millrace_memory::Error>() {
            return for_memory(error.kind());
        }
        let error = error.downcast_ref::<millrace_nvme::Error>()?;
        for_controller(error.kind())
    })
}

const fn for_function(kind: millrace_pci::ErrorKind) -> Option<&'static str> {
    use millrace_pci::ErrorKind;
    match kind {
        ErrorKind::NoIommu => Some(
            "switch the IOMMU on in the firmware (VT-d, AMD-Vi, SMMU), boot Linux with intel_iommu=on on an \
             Intel machine, and look whether /sys/kernel/iommu_groups has groups then",
        ),
        ErrorKind::NoInterruptRemapping => Some(
            "`dmesg | grep -i remapping` tells whether the kernel found it; in a virtual machine it is an \
             option of the virtual IOMMU (QEMU: -device intel-iommu,intremap=on)",
        ),
        ErrorKind::InUse => Some("`millrace nvme list` shows the holder of each device"),
        ErrorKind::Permission => Some("run it as root, or have root give the file to this user"),
        ErrorKind::Gone => Some(
            "the device was pulled out, or its process has ended: plug it in, or start it again",
        ),
        ErrorKind::Protocol | ErrorKind::Refused => {
            Some("the last lines of `dmesg`, or of the serving process's log, may say more")
        }
        _ => None,
    }
}

const fn for_memory(kind: millrace_memory::ErrorKind) -> Option<&'static str> {
    use millrace_memory::ErrorKind;
    match kind {
        ErrorKind::LockLimit => Some("in this shell, as root: `ulimit -l unlimited`"),
        _ => None,
    }
}

const fn for_controller(kind: millrace_nvme::ErrorKind) -> Option<&'static str> {
    use millrace_nvme::ErrorKind;
    match kind {
        ErrorKind::NotNvme => Some("`millrace nvme list` lists the NVMe devices of this machine"),
        ErrorKind::TimedOut | ErrorKind::Failed => Some(
            "try again: opening resets the controller; one that does not come back needs its power cut",
        ),
        ErrorKind::NoNamespace => {
            Some("`millrace nvme identify` without --namespace lists the namespaces")
        }
        ErrorKind::NoQueue => {
            Some("use fewer --threads, or --waiting poll, which needs no interrupts")
        }
        ErrorKind::Gone => Some("is it still in its slot, or its process still running?"),
        _ => None,
    }
}
