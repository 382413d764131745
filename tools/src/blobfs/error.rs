//! What goes wrong with a command, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

use millrace_block::Spec;

/// How a command ends that was interrupted: as a shell tells of one that SIGINT has ended.
const INTERRUPTED: u8 = 128 + 2;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments contradict each other, the device or the volume.
    Usage,
    /// It would destroy data, and was not forced.
    NotForced,
    /// The device could not be opened, or failed.
    Device,
    /// The volume is not there or not usable, or does not do what is asked for.
    Volume,
    /// A file of the host could not be read or written.
    Host,
    /// Somebody pressed Ctrl-C.
    Interrupted,
    /// The report could not be written, or the system lacks something.
    System,
}

/// A failure, with what was attempted, why it failed, and what may help.
#[derive(Debug)]
pub struct ToolError {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    advice: Vec<String>,
    exit_code: u8,
}

impl ToolError {
    pub(super) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
            advice: Vec::new(),
            exit_code: match kind {
                ErrorKind::Interrupted => INTERRUPTED,
                _ => 1,
            },
        }
    }

    pub(super) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same with something else to do about it.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// The same, for a command whose failures are told by another number.
    pub(super) fn ending_with(mut self, exit_code: u8) -> Self {
        if self.kind != ErrorKind::Interrupted {
            self.exit_code = exit_code;
        }
        self
    }

    /// The device could not be opened.
    pub(super) fn of_opening(spec: &Spec, source: millrace_block::Error) -> Self {
        let advice = advice_for_device(spec, &source);
        let error = Self::new(ErrorKind::Device, format!("{spec} could not be opened"));
        with_all(error, advice).caused_by(source)
    }

    /// The device failed to do something.
    pub(super) fn of_device(spec: &Spec, attempted: &str, source: millrace_block::Error) -> Self {
        let context = format!("{spec}: {attempted} failed");
        Self::new(ErrorKind::Device, context).caused_by(source)
    }

    /// The volume refused or failed to do something.
    pub(super) fn of_volume(spec: &Spec, attempted: &str, source: millrace_blobfs::Error) -> Self {
        let advice = advice_for_volume(spec, &source);
        let context = format!("{spec}: {attempted} failed");
        with_all(Self::new(ErrorKind::Volume, context), advice).caused_by(source)
    }

    /// The volume refused something for a path, which the cause names.
    pub(super) fn of_path(spec: &Spec, source: millrace_blobfs::Error) -> Self {
        let advice = advice_for_volume(spec, &source);
        with_all(Self::new(ErrorKind::Volume, spec.to_string()), advice).caused_by(source)
    }

    /// A file of the host could not be read or written.
    pub(super) fn of_host(path: &Path, attempted: &str, source: io::Error) -> Self {
        let context = format!("{attempted} {} failed", path.display());
        Self::new(ErrorKind::Host, context).caused_by(source)
    }

    pub(super) fn output(source: io::Error) -> Self {
        Self::new(ErrorKind::System, "the output could not be written").caused_by(source)
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

    /// What the process is to end with.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        self.exit_code
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

fn with_all(error: ToolError, advice: Vec<String>) -> ToolError {
    advice.into_iter().fold(error, ToolError::advise)
}

/// The innermost cause of a type.
fn innermost<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    let inner = error.source().and_then(innermost);
    inner.or_else(|| error.downcast_ref())
}

/// Advice that follows from what the libraries below say.
fn advice_from_below(error: &(dyn StdError + 'static)) -> Option<String> {
    use millrace_memory::ErrorKind as Memory;
    if let Some(error) = innermost::<millrace_memory::Error>(error) {
        return match error.kind() {
            Memory::LockLimit => Some("in this shell, as root: `ulimit -l unlimited`".to_owned()),
            _ => None,
        };
    }
    if let Some(error) = innermost::<millrace_pci::Error>(error) {
        return crate::nvme::error::for_function(error.kind()).map(str::to_owned);
    }
    let error = innermost::<millrace_nvme::Error>(error)?;
    crate::nvme::error::for_controller(error.kind()).map(str::to_owned)
}

fn advice_for_device(spec: &Spec, error: &millrace_block::Error) -> Vec<String> {
    use millrace_block::ErrorKind as Kind;
    if let Some(advice) = advice_from_below(error) {
        return vec![advice];
    }
    let advice = match (error.kind(), spec) {
        (Kind::NotFound, Spec::File(_)) => {
            format!("mend the path, or make it: `millrace blobfs mkfs {spec} --size 10G`")
        }
        (Kind::NotFound, Spec::VfioUser { .. }) => {
            "start the process that serves the device, or mend the path".to_owned()
        }
        (Kind::NotFound, Spec::Nvme { .. }) => {
            "`millrace nvme list` lists the NVMe devices of this machine".to_owned()
        }
        (Kind::InUse, Spec::File(path)) => {
            let path = path.display();
            format!("end the server or command that has it (`fuser -v {path}`), or unmount it")
        }
        (Kind::InUse, _) => "end the server or command that has it".to_owned(),
        (Kind::Permission, _) => {
            "run it as root, or have root give the file to this user".to_owned()
        }
        _ => return Vec::new(),
    };
    vec![advice]
}

fn advice_for_volume(spec: &Spec, error: &millrace_blobfs::Error) -> Vec<String> {
    use millrace_blobfs::ErrorKind as Kind;
    if let Some(advice) = advice_from_below(error) {
        return vec![advice];
    }
    let advice = match (error.kind(), spec) {
        (Kind::NotAVolume, Spec::Memory(_)) => {
            "memory is empty each time it is opened: name a file or a disk".to_owned()
        }
        (Kind::NotAVolume, _) => {
            format!("is it the right device? `millrace blobfs mkfs {spec}` says what it holds")
        }
        (Kind::NewerFormat, _) => "use the millrace that wrote it, or a later one".to_owned(),
        (Kind::Corruption | Kind::Io, _) => {
            format!(
                "`millrace blobfs check {spec}` says what is damaged, --repair keeps what can be read"
            )
        }
        (Kind::NoSpace, _) => {
            format!(
                "`millrace blobfs df {spec}` says how full it is; `millrace blobfs rm` makes room"
            )
        }
        (Kind::NotFound, _) => {
            format!(
                "`millrace blobfs ls {spec} -R` lists what there is; mkdir --parents makes directories"
            )
        }
        _ => return Vec::new(),
    };
    vec![advice]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_follows_from_the_innermost_cause() {
        let spec: Spec = "nvme:01:00.0".parse().expect("a device");
        let memory = millrace_memory::Error::lock_limit("locking", 1 << 20);
        let block = millrace_block::Error::new(millrace_block::ErrorKind::Memory, "buffers");
        let error = ToolError::of_opening(&spec, block.caused_by(memory));
        assert_eq!(
            error.advice(),
            ["in this shell, as root: `ulimit -l unlimited`"]
        );
        let iommu = millrace_pci::Error::new(millrace_pci::ErrorKind::NoIommu, "group");
        let block = millrace_block::Error::new(millrace_block::ErrorKind::Unsupported, "opening");
        let error = ToolError::of_opening(&spec, block.caused_by(iommu));
        assert!(error.advice()[0].contains("intel_iommu=on"));
    }

    #[test]
    fn advice_names_the_command_that_helps() {
        use millrace_blobfs::ErrorKind as Kind;
        let rows = [
            (
                "./disk.img",
                Kind::NotAVolume,
                "blobfs mkfs file:./disk.img",
            ),
            ("mem:1G", Kind::NotAVolume, "empty each time"),
            ("./disk.img", Kind::NoSpace, "blobfs df file:./disk.img"),
            (
                "./disk.img",
                Kind::Corruption,
                "blobfs check file:./disk.img",
            ),
            ("./disk.img", Kind::NewerFormat, "a later one"),
        ];
        for (text, kind, expected) in rows {
            let spec: Spec = text.parse().expect(text);
            let source = millrace_blobfs::Error::new(kind, "what was attempted");
            let error = ToolError::of_volume(&spec, "mounting", source);
            assert!(error.advice()[0].contains(expected), "{kind:?}");
        }
    }

    #[test]
    fn advice_on_a_device_names_the_command_that_helps() {
        use millrace_block::ErrorKind as Kind;
        let rows = [
            ("./disk.img", Kind::NotFound, "--size 10G"),
            ("./disk.img", Kind::InUse, "`fuser -v ./disk.img`"),
            ("vfio-user:/run/x", Kind::NotFound, "start the process"),
            ("nvme:01:00.0", Kind::NotFound, "`millrace nvme list`"),
            ("/dev/sdb", Kind::Permission, "as root"),
        ];
        for (text, kind, expected) in rows {
            let spec: Spec = text.parse().expect(text);
            let source = millrace_block::Error::new(kind, "what was attempted");
            let error = ToolError::of_opening(&spec, source);
            assert!(error.advice()[0].contains(expected), "{kind:?}");
        }
    }

    #[test]
    fn an_interruption_ends_as_one_whatever_the_command() {
        let of = |kind| ToolError::new(kind, "x").ending_with(8).exit_code();
        assert_eq!(
            (of(ErrorKind::Volume), of(ErrorKind::Interrupted)),
            (8, 130)
        );
    }
}
