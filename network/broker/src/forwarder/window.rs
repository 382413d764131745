//! The mapping of windows by path.

use std::os::fd::AsFd;
use std::path::Path;

use millrace_window::{Direction, Window};
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, open};

use crate::error::system;
use crate::{Error, ErrorKind, Result};

/// The file system of device attributes (`statfs(2)`).
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// Maps the window of a path: a DAX device, a BAR's file in sysfs, or sealed memory (as `/proc/PID/fd/N`).
pub(crate) fn open_window(path: &Path) -> Result<Window> {
    let attempted = || format!("the window {}", path.display());
    let refused = |error: millrace_window::Error| {
        Error::new(ErrorKind::System, format!("{}: {error}", attempted())).caused_by(error)
    };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = open(path, flags, Mode::empty()).map_err(system(attempted()))?;
    let status = fstat(&file).map_err(system(attempted()))?;
    let system_of = fstatfs(&file).map_err(system(attempted()))?;
    if FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice {
        Window::open_dax(path, true).map_err(refused)
    } else if u64::try_from(system_of.f_type).ok() == Some(SYSFS_MAGIC) {
        Window::open_resource(path, Direction::Both).map_err(refused)
    } else {
        Window::attach(file.as_fd()).map_err(refused)
    }
}
