//! What a bad block cost.

use std::ops::Range;

use super::ids::InodeId;
use super::inconsistency::Inconsistency;

/// Something that was lost, or had to be changed so that the rest can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    /// Pages of the checkpoint that neither copy has.
    #[error("pages {} to {} of the checkpoint are lost", .0.start, .0.end - 1)]
    Pages(Range<u32>),
    /// A page whose checksum is right and whose records are not.
    #[error("page {0} of the checkpoint holds what is no record")]
    Records(u32),
    /// All pages are there, but they are not those of which the superblock knows.
    #[error("the pages of the checkpoint are not all of the same checkpoint")]
    Mixed,
    /// More or fewer inodes than there were.
    #[error("the checkpoint has {found} files and directories where there were {expected}")]
    Count {
        /// How many there were.
        expected: u64,
        /// How many were found.
        found: u64,
    },
    /// A record about an inode that another one contradicts, or that cannot be.
    #[error("a record of {0} makes no sense")]
    Contradiction(InodeId),
    /// A directory of which only the entries are known.
    #[error("the record of the directory {0} is lost, with its time")]
    Directory(InodeId),
    /// A name whose file or directory is lost.
    #[error("{path:?} is lost (it was {id})")]
    Lost {
        /// The path.
        path: String,
        /// What it led to.
        id: InodeId,
    },
    /// A name that was taken away, as it cannot be.
    #[error("the entry {name:?} of {parent} cannot be and was dropped")]
    DroppedName {
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Box<str>,
    },
    /// A file or directory without its name.
    #[error("{id} has lost its name and is now {path:?}")]
    Unnamed {
        /// The file or directory.
        id: InodeId,
        /// Where it is now.
        path: String,
    },
    /// A file with another number of names than it should have.
    #[error("{id} has {names} names where there were {links}")]
    Links {
        /// The file.
        id: InodeId,
        /// How many it has.
        names: u32,
        /// How many there were.
        links: u32,
    },
    /// A file that has lost its end.
    #[error("{id} has lost its end: of {from} bytes {to} are left")]
    Cut {
        /// The file.
        id: InodeId,
        /// Bytes it had.
        from: u64,
        /// Bytes it has.
        to: u64,
    },
    /// A file that shared units with another one, or with the checkpoint, and has lost them.
    #[error(
        "{id} shares units with another, which keeps them: it is cut from {from} bytes to {to}"
    )]
    Parted {
        /// The file.
        id: InodeId,
        /// Bytes it had.
        from: u64,
        /// Bytes it has.
        to: u64,
    },
    /// An operation of the journal that cannot be applied to what is left.
    #[error("{what} was not done again: {why}")]
    Skipped {
        /// The operation.
        what: String,
        /// Why.
        why: Inconsistency,
    },
}
