//! Mapping of the kernel's errors.

use rustix::io::Errno;

use crate::{Error, ErrorKind, Lba, Operation};

/// Error of an operation that the kernel rejected or failed.
pub(super) fn failure(errno: Errno, operation: &Operation, lba: Lba) -> Error {
    let context = match operation {
        Operation::Flush => "Flush".to_owned(),
        operation => format!("{operation:?} from block {} on", lba.0),
    };
    Error::new(kind_of(errno), context).caused_by(errno)
}

/// Error kind of an errno.
pub(super) const fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOENT | Errno::NOTDIR => ErrorKind::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorKind::Permission,
        Errno::BUSY | Errno::TXTBSY | Errno::WOULDBLOCK => ErrorKind::InUse,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ErrorKind::NoSpace,
        Errno::NOMEM | Errno::NOBUFS => ErrorKind::Memory,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => ErrorKind::Unsupported,
        Errno::INVAL | Errno::EXIST | Errno::ISDIR => ErrorKind::Invalid,
        // The last three: a checksum of the file system or the disk does not match.
        Errno::IO | Errno::NODATA | Errno::BADMSG | Errno::ILSEQ => ErrorKind::Medium,
        _ => ErrorKind::Device,
    }
}
