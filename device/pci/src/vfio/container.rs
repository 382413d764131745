//! A container that has one group.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::io::{self, Errno};
use vfio_bindings::bindings::vfio;

use super::Iommu;
use super::kernel::{Call, Kernel, argument_size};
use crate::{Error, ErrorKind, Result, refused};

/// The version of VFIO's interface; there has been no other.
const API_VERSION: u32 = 0;
/// How often setting the IOMMU is tried: on POWER8 the kernel now and then asks for one more attempt.
const SET_IOMMU_ATTEMPTS: u32 = 64;

/// An address space of the kernel's, and the group that is in it.
#[derive(Debug)]
pub(super) struct Container {
    kernel: Arc<dyn Kernel>,
    file: OwnedFd,
    /// Keeps the group in the container.
    group: OwnedFd,
    iommu: Iommu,
}

impl Container {
    /// Opens the group at `path` and gives it a container. `users` makes the error for a group that is not
    /// free.
    pub(super) fn open(
        kernel: &Arc<dyn Kernel>,
        dev: &Path,
        path: &Path,
        wanted: Option<Iommu>,
        users: &dyn Fn() -> Error,
    ) -> Result<Self> {
        let group = open_group(&**kernel, path)?;
        let mut status = vfio::vfio_group_status {
            argsz: argument_size::<vfio::vfio_group_status>(),
            ..Default::default()
        };
        kernel
            .call(group.as_fd(), Call::GroupStatus(&mut status))
            .map_err(|errno| refused(errno, "asking whether the IOMMU group is free"))?;
        if status.flags & vfio::VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(users());
        }
        let file = open_container(&**kernel, &dev.join("vfio/vfio"))?;
        let (iommu, kind) = choose(&**kernel, &file, wanted)?;
        kernel
            .call(group.as_fd(), Call::SetContainer(file.as_raw_fd()))
            .map_err(|errno| refused(errno, "putting the IOMMU group into a container"))?;
        set_iommu(&**kernel, &file, kind)?;
        Ok(Self {
            kernel: Arc::clone(kernel),
            file,
            group,
            iommu,
        })
    }

    /// Makes a call on the container.
    pub(super) fn call(&self, call: Call<'_>) -> io::Result<u32> {
        self.kernel.call(self.file.as_fd(), call)
    }

    /// How many more bytes this process may lock; none if there is no limit.
    pub(super) fn lock_room(&self) -> Option<u64> {
        self.kernel.lock_room()
    }

    /// Opens the device file of a function.
    pub(super) fn device(&self, name: &str) -> Result<OwnedFd> {
        let text = CString::new(name).map_err(|error| {
            Error::new(ErrorKind::NotFound, format!("{name:?}")).caused_by(error)
        })?;
        self.kernel
            .device(self.group.as_fd(), &text)
            .map_err(|errno| refused(errno, &format!("opening {name} in its group")))
    }

    /// Kind of the container's IOMMU.
    pub(super) const fn iommu(&self) -> Iommu {
        self.iommu
    }
}

fn open_group(kernel: &dyn Kernel, path: &Path) -> Result<OwnedFd> {
    let path_text = path.display();
    kernel.open(path).map_err(|errno| {
        let error = match errno {
            Errno::ACCESS | Errno::PERM => Error::new(
                ErrorKind::Permission,
                format!("opening {path_text}; `chown USER {path_text}` gives it to a user"),
            ),
            Errno::BUSY => Error::new(
                ErrorKind::InUse,
                format!(
                    "{path_text} is open already: by another process, or by this one for another \
                     function of the group"
                ),
            ),
            Errno::NOENT => Error::new(
                ErrorKind::Unsupported,
                format!("{path_text} is missing; `modprobe vfio-pci` makes the kernel offer it"),
            ),
            errno => return refused(errno, &format!("opening {path_text}")),
        };
        error.caused_by(errno)
    })
}

fn open_container(kernel: &dyn Kernel, path: &Path) -> Result<OwnedFd> {
    let path_text = path.display();
    let file = kernel.open(path).map_err(|errno| match errno {
        Errno::ACCESS | Errno::PERM => Error::new(
            ErrorKind::Permission,
            format!(
                "opening {path_text}; `chmod 666 {path_text}` is safe, it gives access to no device"
            ),
        )
        .caused_by(errno),
        errno => refused(errno, &format!("opening {path_text}")),
    })?;
    let version = kernel
        .call(file.as_fd(), Call::ApiVersion)
        .map_err(|errno| refused(errno, "asking for VFIO's version"))?;
    if version != API_VERSION {
        let context = format!("VFIO of version {version}, only {API_VERSION} is known");
        return Err(Error::new(ErrorKind::Unsupported, context));
    }
    Ok(file)
}

/// What there is to choose from, the best first.
const CHOICES: [(Iommu, u32); 4] = [
    (Iommu::SpaprV2, vfio::VFIO_SPAPR_TCE_v2_IOMMU),
    (Iommu::SpaprV1, vfio::VFIO_SPAPR_TCE_IOMMU),
    (Iommu::Type1, vfio::VFIO_TYPE1v2_IOMMU),
    (Iommu::Type1, vfio::VFIO_TYPE1_IOMMU),
];

/// The best interface that the kernel has and the caller wants, with the kernel's number for it.
fn choose(kernel: &dyn Kernel, file: &OwnedFd, wanted: Option<Iommu>) -> Result<(Iommu, u32)> {
    for (iommu, kind) in CHOICES {
        if wanted.is_some_and(|wanted| wanted != iommu) {
            continue;
        }
        let there = kernel
            .call(file.as_fd(), Call::CheckExtension(kind))
            .map_err(|errno| refused(errno, "asking which IOMMU interfaces there are"))?;
        if there != 0 {
            return Ok((iommu, kind));
        }
    }
    let (kind, context) = match wanted {
        Some(wanted) => (
            ErrorKind::Unsupported,
            format!("the kernel does not offer {wanted:?}"),
        ),
        None => (
            ErrorKind::NoIommu,
            "the kernel offers no IOMMU interface; `modprobe vfio_iommu_type1`, on POWER \
             `modprobe vfio_iommu_spapr_tce`"
                .to_owned(),
        ),
    };
    Err(Error::new(kind, context))
}

fn set_iommu(kernel: &dyn Kernel, file: &OwnedFd, kind: u32) -> Result<()> {
    for _ in 0..SET_IOMMU_ATTEMPTS {
        match kernel.call(file.as_fd(), Call::SetIommu(kind)) {
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(Errno::PERM) => {
                let context = "the device could forge interrupts; switch interrupt remapping on \
                               (firmware, and no intremap=off), or load vfio_iommu_type1 with \
                               allow_unsafe_interrupts=1 if the device is trusted";
                let error = Error::new(ErrorKind::NoInterruptRemapping, context);
                return Err(error.caused_by(Errno::PERM));
            }
            Err(errno) => return Err(refused(errno, "giving the container its IOMMU")),
        }
    }
    let context = format!("giving the container its IOMMU, {SET_IOMMU_ATTEMPTS} times");
    Err(Error::new(ErrorKind::Refused, context).caused_by(Errno::AGAIN))
}
