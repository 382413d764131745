//! Inode numbers, kinds and timestamps.

use std::fmt;

/// Inode number of a file or directory, never reused on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(pub u64);

impl InodeId {
    /// Inode number of the root directory.
    pub const ROOT: Self = Self(1);
    /// Inode number of the `/lost+found` directory, if a recovery created it.
    pub const LOST_FOUND: Self = Self(2);
    /// First inode number for files and directories that users create.
    pub const FIRST: Self = Self(3);
}

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Time in milliseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// Kind of an inode: file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file: a sequence of bytes.
    File,
    /// A directory: a set of names.
    Directory,
}
