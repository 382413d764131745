//! Reasons for which an operation does not apply to the metadata.

use super::extent::Extent;
use super::ids::InodeId;
use crate::error::{Error, ErrorKind};

/// Reason for which an operation does not apply, or a path does not resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Inconsistency {
    /// No entry of this name.
    #[error("no such file or directory")]
    NotFound,
    /// No inode of this number.
    #[error("there is no inode {0}")]
    NoInode(InodeId),
    /// The name is taken.
    #[error("the name exists")]
    Exists,
    /// A file where a directory is needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory where a file is needed.
    #[error("a directory")]
    IsDirectory,
    /// A directory that must be empty is not.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name that no entry can have.
    #[error("a name that is empty, `.` or `..`, or that has a slash or a zero byte in it")]
    BadName,
    /// A name of more than 255 bytes.
    #[error("a name of more than 255 bytes")]
    NameTooLong,
    /// A path of more than 4,096 bytes.
    #[error("a path of more than 4,096 bytes")]
    PathTooLong,
    /// A directory would be inside of itself.
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    /// A new inode's number is not new, or there can be none after it.
    #[error("the number {0} cannot be given to a new inode")]
    BadId(InodeId),
    /// A file has 2^32 - 1 names.
    #[error("too many names for one file")]
    TooManyLinks,
    /// A file would get smaller by growing.
    #[error("a file of {old} bytes is extended to {new}")]
    Shrinks {
        /// Bytes it has.
        old: u64,
        /// Bytes it would have.
        new: u64,
    },
    /// A file would get larger by being cut.
    #[error("a file of {old} bytes is truncated to {new}")]
    Grows {
        /// Bytes it has.
        old: u64,
        /// Bytes it would have.
        new: u64,
    },
    /// Data beyond the end of a file.
    #[error("data at {offset} in a file of {size} bytes")]
    Hole {
        /// Where the data begins.
        offset: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// An extent that is empty or does not lie within one group.
    #[error("{0} are not in one group")]
    BadExtent(Extent),
    /// The units that are added are not as many as are needed.
    #[error("{given} units are added where {needed} are needed")]
    Coverage {
        /// Units that the new size needs beyond those that are there.
        needed: u64,
        /// Units that are added.
        given: u64,
    },
    /// More bytes than the volume has.
    #[error("a file larger than the volume")]
    TooLarge,
}

impl Inconsistency {
    /// Error kind that the caller of a public function receives.
    pub(crate) const fn kind(self) -> ErrorKind {
        match self {
            Self::NotFound => ErrorKind::NotFound,
            Self::Exists => ErrorKind::Exists,
            Self::NotDirectory => ErrorKind::NotDirectory,
            Self::IsDirectory => ErrorKind::IsDirectory,
            Self::NotEmpty => ErrorKind::NotEmpty,
            Self::BadName | Self::NameTooLong | Self::PathTooLong => ErrorKind::InvalidPath,
            Self::TooLarge | Self::TooManyLinks => ErrorKind::NoSpace,
            Self::NoInode(_)
            | Self::IntoItself
            | Self::BadId(_)
            | Self::Shrinks { .. }
            | Self::Grows { .. }
            | Self::Hole { .. }
            | Self::BadExtent(_)
            | Self::Coverage { .. } => ErrorKind::Invalid,
        }
    }
}

impl From<Inconsistency> for Error {
    fn from(inconsistency: Inconsistency) -> Self {
        Self::new(inconsistency.kind(), inconsistency.to_string())
    }
}
