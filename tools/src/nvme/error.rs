//! What goes wrong with a command, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments contradict each other or the device.
    Usage,
    /// It would destroy data, and was not forced.
    NotForced,
    /// It would do harm, forced or not.
    Refused,
    /// What the kernel says of its functions could not be read, or not be changed.
    Machine,
    /// The device could not be opened.
    Open,
    /// The device failed, or answered with an error.
    Device,
    /// The report could not be written, or a thread not be started.
    System,
}

/// A failure, with what was attempted, why it failed, and what may help.
#[derive(Debug)]
pub struct ToolError {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    advice: Vec<String>,
}

impl ToolError {
    pub(super) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
            advice: Vec::new(),
        }
    }

    /// The same with its cause, and the advice that follows from the cause.
    pub(super) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        self.advice.extend(advice_for(&*source).map(str::to_owned));
        self.source = Some(source);
        self
    }

    /// The same with something else to do about it.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    pub(super) fn output(source: io::Error) -> Self {
        Self::new(ErrorKind::System, "the report could not be written").caused_by(source)
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What can be done about it, the likeliest first.
    #[must_use]
    pub fn advice(&self) -> &[String] {
        &self.advice
    }

    /// Whether nobody reads the output any more.
    pub(super) fn is_broken_pipe(&self) -> bool {
        self.kind == ErrorKind::System
            && self
                .source
                .as_deref()
                .and_then(|source| source.downcast_ref::<io::Error>())
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl StdError for ToolError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

/// The error of a command that the device did not do.
pub(super) fn device_error(
    name: &str,
    attempted: &str,
) -> impl FnOnce(millrace_nvme::Error) -> ToolError {
    let context = format!("{name}: {attempted} failed");
    |source| ToolError::new(ErrorKind::Device, context).caused_by(source)
}

/// Advice for the innermost cause that there is any for. The crates below say in their messages what they
/// know; this adds what whoever is at a terminal can try.
fn advice_for(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let inner = error.source().and_then(advice_for);
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

pub(crate) const fn for_function(kind: millrace_pci::ErrorKind) -> Option<&'static str> {
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
        ErrorKind::InUse => Some("`millrace nvme list` tells who has which device"),
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

pub(crate) const fn for_controller(kind: millrace_nvme::ErrorKind) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_follows_from_the_innermost_cause() {
        let memory = millrace_memory::Error::lock_limit("locking", 1 << 20);
        let error = ToolError::new(ErrorKind::Open, "x").caused_by(memory);
        // Of a command that has no options for less memory.
        assert_eq!(
            error.advice(),
            ["in this shell, as root: `ulimit -l unlimited`"]
        );
        let kind = millrace_pci::ErrorKind::NoIommu;
        let inner = millrace_pci::Error::new(kind, "group").caused_by(io::Error::other("why"));
        let outer = millrace_pci::Error::new(millrace_pci::ErrorKind::Refused, "open");
        let error = ToolError::new(ErrorKind::Open, "x").caused_by(outer.caused_by(inner));
        assert!(error.advice()[0].contains("intel_iommu=on"));
        assert_eq!(error.advice().len(), 1);
    }

    #[test]
    fn only_a_reader_who_left_is_a_broken_pipe() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(ToolError::output(broken()).is_broken_pipe());
        assert!(!ToolError::output(io::ErrorKind::StorageFull.into()).is_broken_pipe());
        let served = ToolError::new(ErrorKind::Open, "x").caused_by(broken());
        assert!(!served.is_broken_pipe());
    }
}
