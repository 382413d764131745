//! The kernel itself. All `ioctl`s of the crate are made here.

use std::ffi::{CStr, c_void};
use std::fs;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::io;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use rustix::process::{Resource, getrlimit};
use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};

use super::kernel::{Call, Kernel};

/// The kernel that runs this process.
#[derive(Debug)]
pub(super) struct Linux;

/// `_IO(VFIO_TYPE, VFIO_BASE + number)`, whose value is another on POWER than elsewhere.
const fn vfio_opcode(number: u8) -> Opcode {
    // The base is 100: no number of the interface leaves a byte.
    opcode::none(VFIO_TYPE, VFIO_BASE.to_le_bytes()[0] + number)
}

/// `_IO(IOMMUFD_TYPE, IOMMUFD_CMD_BASE + number)`.
const fn iommufd_opcode(number: u8) -> Opcode {
    opcode::none(b';', 0x80 + number)
}

/// The capability that lifts the limit of locked memory, in a set of them (include/uapi/linux/capability.h).
const CAP_IPC_LOCK: u64 = 1 << 14;

const GROUP_GET_DEVICE_FD: Opcode = vfio_opcode(6);

/// A call as the kernel takes it.
struct Raw {
    opcode: Opcode,
    argument: *mut c_void,
}

// SAFETY: `Raw` is made in this module only, with an opcode and the argument that the kernel's interface
// has for it, exclusively borrowed until the call has returned; the kernel may change it.
unsafe impl Ioctl for Raw {
    type Output = u32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(answer: IoctlOutput, _: *mut c_void) -> io::Result<u32> {
        u32::try_from(answer).map_err(|_| io::Errno::INVAL)
    }
}

/// An argument that is the address of a structure.
fn place<T>(value: &mut T) -> *mut c_void {
    ptr::from_mut(value).cast()
}

/// An argument that is a number.
fn number(value: u32) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(value).unwrap_or(usize::MAX))
}

impl Kernel for Linux {
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    fn call(&self, file: BorrowedFd<'_>, call: Call<'_>) -> io::Result<u32> {
        let mut container;
        let (opcode, argument) = match call {
            Call::ApiVersion => (vfio_opcode(0), ptr::null_mut()),
            Call::CheckExtension(kind) => (vfio_opcode(1), number(kind)),
            Call::SetIommu(kind) => (vfio_opcode(2), number(kind)),
            Call::GroupStatus(status) => (vfio_opcode(3), place(status)),
            Call::SetContainer(descriptor) => {
                container = descriptor;
                (vfio_opcode(4), place(&mut container))
            }
            Call::DeviceInfo(info) => (vfio_opcode(7), place(info)),
            Call::RegionInfo(info) => (vfio_opcode(8), info.as_mut_ptr().cast()),
            Call::IrqInfo(info) => (vfio_opcode(9), place(info)),
            Call::SetIrqs(set) => (vfio_opcode(10), set.as_mut_ptr().cast()),
            Call::DeviceReset => (vfio_opcode(11), ptr::null_mut()),
            Call::Type1Info(info) => (vfio_opcode(12), info.as_mut_ptr().cast()),
            Call::MapDma(map) => (vfio_opcode(13), place(map)),
            Call::UnmapDma(unmap) => (vfio_opcode(14), place(unmap)),
            Call::IommuEnable => (vfio_opcode(15), ptr::null_mut()),
            Call::SpaprInfo(info) => (vfio_opcode(12), place(info)),
            Call::RegisterMemory(memory) => (vfio_opcode(17), place(memory)),
            Call::UnregisterMemory(memory) => (vfio_opcode(18), place(memory)),
            Call::CreateWindow(window) => (vfio_opcode(19), place(window)),
            Call::RemoveWindow(window) => (vfio_opcode(20), place(window)),
            Call::BindIommufd(bind) => (vfio_opcode(18), place(bind)),
            Call::AttachAddressSpace(attach) => (vfio_opcode(19), place(attach)),
            Call::AllocateAddressSpace(space) => (iommufd_opcode(1), place(space)),
            Call::AddressRanges(question, ranges) => {
                question.num_iovas = u32::try_from(ranges.len()).unwrap_or(u32::MAX);
                question.allowed_iovas = ranges.as_mut_ptr().expose_provenance() as u64;
                (iommufd_opcode(4), place(question))
            }
            Call::MapAddressSpace(map) => (iommufd_opcode(5), place(map)),
            Call::UnmapAddressSpace(unmap) => (iommufd_opcode(6), place(unmap)),
        };
        // SAFETY: each opcode above is paired with the structure that the kernel's headers name for it. Its first word
        // is its size: `Argument` maintains that, and for structures of a fixed size their constructors, by
        // `argument_size`. All are borrowed by `call`, or are `container`.
        io::retry_on_intr(|| unsafe { ioctl(file, Raw { opcode, argument }) })
    }

    fn device(&self, group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
        let raw = Raw {
            opcode: GROUP_GET_DEVICE_FD,
            argument: name.as_ptr().cast_mut().cast(),
        };
        // SAFETY: the kernel reads the name up to its zero and changes nothing.
        let descriptor = unsafe { ioctl(group, raw) }?;
        let descriptor = i32::try_from(descriptor).map_err(|_| io::Errno::INVAL)?;
        // SAFETY: the kernel has just created this descriptor for this call, so no other owner exists.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
        io::retry_on_intr(|| io::pwrite(file, bytes, offset))
    }

    fn lock_room(&self) -> Option<u64> {
        let limit = getrlimit(Resource::Memlock).current?;
        // Without it nothing is known to be locked, nor that the limit does not hold.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        room(limit, &status)
    }
}

/// What is left of a limit of locked bytes, by the process's status (proc(5)); none if it does not hold.
fn room(limit: u64, status: &str) -> Option<u64> {
    let field = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    let capabilities = field("CapEff:").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    if capabilities.unwrap_or(0) & CAP_IPC_LOCK != 0 {
        return None;
    }
    let locked =
        field("VmLck:").and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(locked.unwrap_or(0).saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_lifts_the_limit_of_locked_memory() {
        let status = |capabilities| format!("VmLck:\t     136 kB\nCapEff:\t{capabilities}\n");
        let limited = status("000001ffffffbfff");
        assert_eq!(room(8 << 20, &limited), Some((8 << 20) - (136 << 10)));
        assert_eq!(room(64 << 10, &limited), Some(0));
        assert_eq!(room(64 << 10, &status("0000000000004000")), None);
        assert_eq!(room(64 << 10, ""), Some(64 << 10));
    }

    #[test]
    fn opcodes_are_those_of_the_headers() {
        // `_IOC_NONE` is 1 on POWER, in three bits at 29, and 0 elsewhere.
        let none = if cfg!(target_arch = "powerpc64") {
            0x2000_0000
        } else {
            0
        };
        assert_eq!(vfio_opcode(0), none | 0x3b64);
        assert_eq!(GROUP_GET_DEVICE_FD, none | 0x3b6a);
        assert_eq!(iommufd_opcode(1), none | 0x3b81);
    }
}
