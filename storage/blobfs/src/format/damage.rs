//! Damage: metadata that was lost or changed by recovery.

use std::ops::Range;

use super::ids::InodeId;
use super::inconsistency::Inconsistency;

/// Metadata that was lost, or had to be changed so that the rest is usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    /// Pages of the checkpoint that are lost in both copies.
    #[error("pages {} to {} of the checkpoint are lost", .0.start, .0.end - 1)]
    Pages(Range<u32>),
    /// A page whose checksum matches and whose records are invalid.
    #[error("page {0} of the checkpoint holds an invalid record")]
    Records(u32),
    /// All pages are present, but they are not of the checkpoint that the superblock names.
    #[error("the pages are not all of the checkpoint that the superblock names")]
    Mixed,
    /// The number of inodes differs from the recorded number.
    #[error("the checkpoint has {found} files and directories where there were {expected}")]
    Count {
        /// Number of inodes recorded.
        expected: u64,
        /// Number of inodes found.
        found: u64,
    },
    /// A record that contradicts another one, or is impossible.
    #[error("a record of {0} is inconsistent")]
    Contradiction(InodeId),
    /// A directory of which only the entries are left.
    #[error("the record of the directory {0} is lost, with its time")]
    Directory(InodeId),
    /// A name whose inode is lost.
    #[error("{path:?} is lost (it was {id})")]
    Lost {
        /// Path of the name.
        path: String,
        /// Inode that it named.
        id: InodeId,
    },
    /// An invalid name, which was removed.
    #[error("the invalid entry {name:?} of {parent} was dropped")]
    DroppedName {
        /// Directory of the name.
        parent: InodeId,
        /// The invalid name.
        name: Box<str>,
    },
    /// An inode whose name is lost.
    #[error("{id} has lost its name and is now {path:?}")]
    Unnamed {
        /// Inode of the file or directory.
        id: InodeId,
        /// New path in `/lost+found`.
        path: String,
    },
    /// A file whose number of names differs from its link count.
    #[error("{id} has {names} names where there were {links}")]
    Links {
        /// Inode of the file.
        id: InodeId,
        /// Number of names found.
        names: u32,
        /// Link count recorded.
        links: u32,
    },
    /// A file that has lost its last extents.
    #[error("{id} has lost its end: of {from} bytes {to} are left")]
    Cut {
        /// Inode of the file.
        id: InodeId,
        /// Size in bytes before.
        from: u64,
        /// Size in bytes after.
        to: u64,
    },
    /// A file that shared units with another file or the checkpoint, and lost them.
    #[error(
        "{id} shares units with another, which keeps them: it is cut from {from} bytes to {to}"
    )]
    Parted {
        /// Inode of the file.
        id: InodeId,
        /// Size in bytes before.
        from: u64,
        /// Size in bytes after.
        to: u64,
    },
    /// An operation of the journal that does not apply to the remaining metadata.
    #[error("{what} was not replayed: {why}")]
    Skipped {
        /// Text of the operation.
        what: String,
        /// Reason for which it does not apply.
        why: Inconsistency,
    },
}
