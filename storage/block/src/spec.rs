//! Textual names of devices.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use millrace_nvme::{Host, SystemHost};
use millrace_pci::{Address, Function, vfio, vfio_user};

use crate::{
    Device, Error, ErrorKind, FileDevice, FileOptions, MemoryDevice, NvmeDevice, NvmeOptions,
    Result, Size,
};

/// Examples for error messages, one of each kind.
const EXAMPLES: &str = "file:/var/lib/disk.img, file:/dev/sdb, nvme:0000:01:00.0, nvme:0000:01:00.0/2, \
                        vfio-user:/run/ctrl.sock, vfio-user:/run/ctrl.sock/2, mem:1G";
/// Prefixes before the colon.
const KINDS: [&str; 4] = ["file", "mem", "nvme", "vfio-user"];
/// Block size of memory devices, in bytes.
const MEMORY_BLOCK_BYTES: u32 = 4096;
/// Valid namespace ids (NVM Express Base Specification 1.4, section 6.1.2).
const NAMESPACES: std::ops::Range<u32> = 1..u32::MAX;

/// Name of a device: kind and location.
///
/// | text | device |
/// |---|---|
/// | `file:/path/disk.img`, `/path/disk.img`, `disk.img` | a file or a block special of the kernel; without the prefix a path has a `/`, or no `:` |
/// | `nvme:0000:01:00.0`, `nvme:01:00.0/2` | an NVMe controller bound to `vfio-pci`; its first namespace, or the one named |
/// | `vfio-user:/run/ctrl.sock`, `vfio-user:/run/ctrl.sock/2` | an NVMe controller that a process serves on this socket
/// |
/// | `mem:1G` | memory, freed when the device is closed |
///
/// A number after the last `/` of a socket's path is a namespace. A file named like a kind (`mem`) needs the prefix or
/// a `/`: `./mem`.
///
/// ```
/// use millrace_block::Spec;
///
/// let spec: Spec = "nvme:01:00.0/2".parse()?;
/// assert_eq!(spec.to_string(), "nvme:0000:01:00.0/2");
/// # Ok::<(), millrace_block::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spec {
    /// Path of a file or block special.
    File(PathBuf),
    /// An NVMe namespace behind the kernel's VFIO.
    Nvme {
        /// Address of the PCI function.
        address: Address,
        /// Namespace id; the first active namespace if none.
        namespace: Option<u32>,
    },
    /// An NVMe namespace that a process serves by vfio-user.
    VfioUser {
        /// Path of the server's socket.
        socket: PathBuf,
        /// Namespace id; the first active namespace if none.
        namespace: Option<u32>,
    },
    /// A memory device of this size.
    Memory(Size),
}

/// Options for opening a device of any kind.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Options for files and block specials.
    pub file: FileOptions,
    /// Options for NVMe namespaces, local or by vfio-user.
    pub nvme: NvmeOptions,
    /// Source of the time for the NVMe driver.
    pub host: Arc<dyn Host>,
}

impl OpenOptions {
    /// Default options, with the machine's clock, whose current time is `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            file: FileOptions::default(),
            nvme: NvmeOptions::default(),
            host: Arc::new(SystemHost::new(now)),
        }
    }
}

impl Spec {
    /// Opens the device exclusively.
    ///
    /// # Errors
    /// Those of [`FileDevice::open`], [`NvmeDevice::new`] and [`MemoryDevice::new`]; for a controller also
    /// [`ErrorKind::NotFound`], [`ErrorKind::Permission`], [`ErrorKind::InUse`] if the kernel or another process
    /// holds it or its IOMMU group, [`ErrorKind::Unsupported`] if it has no IOMMU.
    pub fn open(&self, options: &OpenOptions) -> Result<Arc<dyn Device>> {
        match self {
            Self::File(path) => Ok(Arc::new(FileDevice::open(path, options.file)?)),
            Self::Memory(size) => Ok(Arc::new(MemoryDevice::new(size.0, MEMORY_BLOCK_BYTES)?)),
            Self::Nvme { address, namespace } => {
                let function = vfio::open(*address, vfio::Options::default());
                self.open_nvme(function, *namespace, options)
            }
            Self::VfioUser { socket, namespace } => {
                self.open_nvme(vfio_user::connect(socket), *namespace, options)
            }
        }
    }

    fn open_nvme(
        &self,
        function: millrace_pci::Result<Arc<dyn Function>>,
        namespace: Option<u32>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Device>> {
        use millrace_pci::ErrorKind as Kind;
        let function = function.map_err(|error| {
            let kind = match error.kind() {
                Kind::NotFound => ErrorKind::NotFound,
                Kind::InUse | Kind::GroupNotViable => ErrorKind::InUse,
                Kind::Permission => ErrorKind::Permission,
                Kind::LockLimit => ErrorKind::Memory,
                Kind::NoIommu | Kind::NoInterruptRemapping | Kind::Unsupported => {
                    ErrorKind::Unsupported
                }
                _ => ErrorKind::Device,
            };
            Error::new(kind, format!("opening {self}")).caused_by(error)
        })?;
        let (host, nvme) = (Arc::clone(&options.host), options.nvme.clone());
        let device = NvmeDevice::new(self.to_string(), function, namespace, host, nvme)?;
        Ok(Arc::new(device))
    }
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let missing = |what: &str| Err(no_device(text, &format!("{what} is missing")));
        let kind = text.split_once(':').filter(|(kind, _)| {
            let letters = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
            kind.starts_with(|first: char| first.is_ascii_lowercase()) && kind.bytes().all(letters)
        });
        match kind {
            Some(("file", "")) => missing("the path"),
            Some(("file", path)) => Ok(Self::File(PathBuf::from(path))),
            Some(("mem", size)) => {
                let size = size.parse();
                size.map(Self::Memory)
                    .map_err(|error| no_device(text, &error.to_string()))
            }
            Some(("nvme", "")) => missing("the PCI address"),
            Some(("nvme", index)) => {
                let (address, namespace) = match index.split_once('/') {
                    None => (index, None),
                    Some((address, id)) => (address, Some(namespace(text, id)?)),
                };
                let address = address.parse().map_err(|error: millrace_pci::Error| {
                    no_device(text, "that is not a PCI address").caused_by(error)
                })?;
                Ok(Self::Nvme { address, namespace })
            }
            Some(("vfio-user", "")) => missing("the path of the socket"),
            Some(("vfio-user", index)) => socket(text, index),
            Some((kind, _)) => Err(no_device(
                text,
                &format!("there are no devices of kind {kind:?}"),
            )),
            None if is_address(text) => {
                Err(no_device(text, &format!("for NVMe write nvme:{text}")))
            }
            None if text.is_empty() => missing("the name"),
            None if KINDS.contains(&text) => Err(no_device(
                text,
                &format!("write {text}: and which one, or ./{text} for a file"),
            )),
            None if text.contains('/') || !text.contains(':') => {
                Ok(Self::File(PathBuf::from(text)))
            }
            None => Err(no_device(
                text,
                "a path with a ':' begins with file: or has a '/' before it",
            )),
        }
    }
}

/// Whether the text is a controller or namespace address without the `nvme:` prefix.
fn is_address(text: &str) -> bool {
    let address = text.split_once('/').map_or(text, |(address, _)| address);
    address.parse::<Address>().is_ok()
}

fn socket(text: &str, index: &str) -> Result<Spec> {
    let numbered = index.rsplit_once('/').filter(|(socket, id)| {
        let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        is_number && !socket.is_empty()
    });
    let (path, namespace) = match numbered {
        Some((path, id)) => (path, Some(namespace(text, id)?)),
        None => (index, None),
    };
    Ok(Spec::VfioUser {
        socket: PathBuf::from(path),
        namespace,
    })
}

fn namespace(text: &str, id: &str) -> Result<u32> {
    let plain = id.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = id
        .parse()
        .ok()
        .filter(|id| plain && NAMESPACES.contains(id));
    parsed.ok_or_else(|| {
        let reason = format!("{id:?} is not a namespace id; they are 1 to 4294967294");
        no_device(text, &reason)
    })
}

fn no_device(text: &str, reason: &str) -> Error {
    let context = format!("{text:?} does not name a device: {reason}; examples: {EXAMPLES}");
    Error::new(ErrorKind::Invalid, context)
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_namespace = |f: &mut fmt::Formatter<'_>, id: &Option<u32>| match id {
            Some(id) => write!(f, "/{id}"),
            None => Ok(()),
        };
        let shown = Path::display;
        match self {
            Self::File(path) => write!(f, "file:{}", shown(path)),
            Self::Nvme { address, namespace } => {
                write!(f, "nvme:{address}")?;
                with_namespace(f, namespace)
            }
            Self::VfioUser { socket, namespace } => {
                write!(f, "vfio-user:{}", shown(socket))?;
                with_namespace(f, namespace)
            }
            Self::Memory(size) => write!(f, "mem:{size}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn devices_are_named_in_these_ways() {
        let address: Address = "0000:01:00.0".parse().expect("an address");
        let nvme = |namespace| Spec::Nvme { address, namespace };
        let socket = |path: &str, namespace| Spec::VfioUser {
            socket: PathBuf::from(path),
            namespace,
        };
        let file = |path: &str| Spec::File(PathBuf::from(path));
        for (text, spec, shown) in [
            ("file:/a/b.img", file("/a/b.img"), "file:/a/b.img"),
            ("file:b:c", file("b:c"), "file:b:c"),
            ("/dev/nvme0n1", file("/dev/nvme0n1"), "file:/dev/nvme0n1"),
            ("./b", file("./b"), "file:./b"),
            ("disk.img", file("disk.img"), "file:disk.img"),
            ("1G", file("1G"), "file:1G"),
            ("memory", file("memory"), "file:memory"),
            ("./mem", file("./mem"), "file:./mem"),
            ("./x:y", file("./x:y"), "file:./x:y"),
            ("nvme:0000:01:00.0", nvme(None), "nvme:0000:01:00.0"),
            ("nvme:01:00.0/7", nvme(Some(7)), "nvme:0000:01:00.0/7"),
            (
                "vfio-user:/run/c.sock",
                socket("/run/c.sock", None),
                "vfio-user:/run/c.sock",
            ),
            (
                "vfio-user:c.sock",
                socket("c.sock", None),
                "vfio-user:c.sock",
            ),
            (
                "vfio-user:/run/c/2",
                socket("/run/c", Some(2)),
                "vfio-user:/run/c/2",
            ),
            ("vfio-user:/7", socket("/7", None), "vfio-user:/7"),
            ("mem:1G", Spec::Memory(Size(1 << 30)), "mem:1G"),
            ("mem:4096", Spec::Memory(Size(4096)), "mem:4K"),
        ] {
            let parsed: Spec = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((&parsed, parsed.to_string().as_str()), (&spec, shown));
        }
    }

    #[test]
    fn what_names_no_device_is_said() {
        for (text, reason) in [
            ("", "the name is missing"),
            ("mem", "write mem: and which one, or ./mem"),
            ("vfio-user", "or ./vfio-user for a file"),
            ("Disk:1", "begins with file:"),
            ("disk.img:1", "begins with file:"),
            ("0000:01:00.0", "write nvme:0000:01:00.0"),
            ("01:00.0/1", "write nvme:01:00.0/1"),
            ("disk:/a", "kind \"disk\""),
            ("file:", "the path is missing"),
            ("nvme:", "the PCI address is missing"),
            ("nvme:/dev/nvme0n1", "not a namespace id"),
            ("nvme:nvme0", "not a PCI address"),
            ("nvme:01:00.0/0", "\"0\" is not a namespace id"),
            ("nvme:01:00.0/4294967295", "is not a namespace id"),
            ("nvme:01:00.0/+1", "is not a namespace id"),
            ("vfio-user:", "the path of the socket is missing"),
            ("vfio-user:/run/c/0", "is not a namespace id"),
            ("mem:", "not a number of bytes"),
            ("mem:lots", "not a number of bytes"),
        ] {
            let error = text.parse::<Spec>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let message = error.to_string();
            assert!(message.contains(reason), "{message}");
            assert!(message.contains("mem:1G"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_device_or_an_error(text in "(nvme:|file:|mem:|vfio-user:)?[0-9a-fGs:./ -]{0,20}") {
            if let Ok(spec) = text.parse::<Spec>() {
                let again: Spec = spec.to_string().parse().expect("what is shown");
                prop_assert_eq!(again, spec);
            }
        }
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let options = OpenOptions::new(Instant::now());
        for (text, kind) in [
            ("file:/nonexistent/disk", ErrorKind::NotFound),
            ("nvme:ffff:ff:1f.7", ErrorKind::NotFound),
            ("vfio-user:/nonexistent/socket", ErrorKind::NotFound),
            ("mem:1000", ErrorKind::Invalid),
        ] {
            let spec: Spec = text.parse().expect("a device");
            let error = spec.open(&options).expect_err("it is not there");
            assert_eq!(error.kind(), kind, "{text}: {error}");
        }
        let memory: Spec = "mem:16M".parse().expect("a device");
        let device = memory.open(&options).expect("there is memory");
        assert_eq!(device.geometry().bytes(), 16 << 20);
    }
}
