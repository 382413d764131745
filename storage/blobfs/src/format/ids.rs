//! Small values that stand for something.

use std::fmt;

/// The number of a file or directory. A number is never used twice on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory.
    pub const ROOT: Self = Self(1);
    /// The directory of what was found without a name, if recovery had to make one.
    pub const LOST_FOUND: Self = Self(2);
    /// The first that a file or directory made by a user may have.
    pub const FIRST: Self = Self(3);
}

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A time in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes.
    File,
    /// Names.
    Directory,
}
