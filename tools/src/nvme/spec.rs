//! How a device is named on the command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use millrace_pci::Address;

use crate::{ErrorKind, ToolError};

/// Location of a controller: a PCI function under VFIO, or a vfio-user server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The kernel's VFIO, by the PCI address.
    Vfio(Address),
    /// A process that serves vfio-user on this socket.
    VfioUser(PathBuf),
}

/// A device, and perhaps one of its namespaces.
///
/// ```
/// use millrace_tools::nvme::Spec;
///
/// let spec: Spec = "nvme:01:00.0/2".parse()?;
/// assert_eq!(spec.to_string(), "0000:01:00.0/2");
/// # Ok::<(), millrace_tools::nvme::SpecError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Location of the controller: PCI address or socket.
    pub place: Place,
    /// The namespace, if one is named.
    pub namespace: Option<u32>,
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

impl SpecError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The namespace ids that can be named (Base 1.4, section 6.1.2).
const NAMESPACE_IDS: std::ops::Range<u32> = 1..u32::MAX;

impl Spec {
    /// The namespace named in the text or by an option; both may say the same.
    ///
    /// # Errors
    /// If they say different things.
    pub fn namespace_or(&self, option: Option<u32>) -> Result<Option<u32>, ToolError> {
        match (self.namespace, option) {
            (Some(named), Some(option)) if named != option => Err(ToolError::new(
                ErrorKind::Usage,
                format!("{self} names namespace {named} and --namespace {option}: which one?"),
            )),
            (named, option) => Ok(option.or(named)),
        }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    /// Reads `0000:01:00.0`, `0000:01:00.0/1`, both with `nvme:` before it, or `vfio-user:/path`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if let Some(path) = text.strip_prefix("vfio-user:") {
            if path.is_empty() {
                let reason = "the path of the socket is missing: vfio-user:/run/ctrl.sock";
                return Err(SpecError(reason.to_owned()));
            }
            return Ok(Self {
                place: Place::VfioUser(PathBuf::from(path)),
                namespace: None,
            });
        }
        let rest = text.strip_prefix("nvme:").unwrap_or(text);
        let is_kernel_name = rest.starts_with("/dev/")
            || rest
                .strip_prefix("nvme")
                .is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()));
        if is_kernel_name {
            return Err(SpecError(format!(
                "{rest} is the kernel's name; `millrace nvme list` shows the PCI address that belongs to it"
            )));
        }
        let (address, namespace) = match rest.split_once('/') {
            None => (rest, None),
            Some((address, namespace)) => (address, Some(parse_namespace(namespace)?)),
        };
        let address = address
            .parse()
            .map_err(|error: millrace_pci::Error| SpecError(error.to_string()))?;
        Ok(Self {
            place: Place::Vfio(address),
            namespace,
        })
    }
}

fn parse_namespace(text: &str) -> Result<u32, SpecError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|id| plain && NAMESPACE_IDS.contains(id))
        .ok_or_else(|| {
            SpecError(format!(
                "{text:?} is no namespace: they are numbered from 1 on"
            ))
        })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vfio(address) => address.fmt(f),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)?;
        match self.namespace {
            Some(namespace) => write!(f, "/{namespace}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn devices_are_named_in_these_ways() {
        let rows = [
            ("0000:01:00.0", "0000:01:00.0"),
            ("01:00.0", "0000:01:00.0"),
            ("nvme:0000:01:00.0", "0000:01:00.0"),
            ("nvme:0000:01:00.0/1", "0000:01:00.0/1"),
            ("10000:e1:1f.7/4294967294", "10000:e1:1f.7/4294967294"),
            ("vfio-user:/run/ctrl.sock", "vfio-user:/run/ctrl.sock"),
            ("vfio-user:a/1", "vfio-user:a/1"),
        ];
        for (text, expected) in rows {
            let spec: Spec = text.parse().expect(text);
            assert_eq!(spec.to_string(), expected);
        }
        let spec: Spec = "vfio-user:a/1".parse().expect("a path");
        assert_eq!(spec.namespace, None, "a slash belongs to the path");
    }

    #[test]
    fn what_names_no_device_is_said() {
        let rows = [
            ("", "is not a PCI address"),
            ("nvme:", "is not a PCI address"),
            ("0000:01:00", "the function is missing"),
            ("0000:01:00.0/", "no namespace"),
            ("0000:01:00.0/0", "numbered from 1 on"),
            ("0000:01:00.0/+1", "no namespace"),
            ("0000:01:00.0/4294967295", "no namespace"),
            ("0000:01:00.0/1/2", "no namespace"),
            ("vfio-user:", "the path of the socket is missing"),
            ("/dev/nvme0n1", "`millrace nvme list`"),
            ("nvme0", "`millrace nvme list`"),
        ];
        for (text, expected) in rows {
            let error = text.parse::<Spec>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn text_and_option_must_agree_on_the_namespace() {
        let of = |text: &str, option| {
            let spec: Spec = text.parse().expect(text);
            spec.namespace_or(option).map_err(|error| error.to_string())
        };
        assert_eq!(of("01:00.0", None), Ok(None));
        assert_eq!(of("01:00.0", Some(2)), Ok(Some(2)));
        assert_eq!(of("01:00.0/2", None), Ok(Some(2)));
        assert_eq!(of("01:00.0/2", Some(2)), Ok(Some(2)));
        let error = of("01:00.0/2", Some(3)).expect_err("they differ");
        assert!(error.contains("which one?"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_device_or_an_error(text in "(nvme:|vfio-user:)?[0-9a-f:./ ]{0,20}") {
            if let Ok(spec) = text.parse::<Spec>() {
                prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
            }
        }
    }
}
