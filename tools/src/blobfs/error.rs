//! Errors of devices, volumes and the host's files, with the advice that fits each.

use std::io;
use std::path::Path;

use millrace_block::Spec;

use crate::{ErrorKind, ToolError, advice};

impl ToolError {
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
}

fn with_all(error: ToolError, advice: Vec<String>) -> ToolError {
    advice.into_iter().fold(error, ToolError::advise)
}

fn advice_for_device(spec: &Spec, error: &millrace_block::Error) -> Vec<String> {
    use millrace_block::ErrorKind as Kind;
    if advice::for_cause(error).is_some() {
        return Vec::new();
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
    if advice::for_cause(error).is_some() {
        return Vec::new();
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
}
