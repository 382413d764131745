//! All names, sizes and extents of a volume.

mod apply;
mod lost_found;
mod path;
mod salvage;
pub(super) mod validate;

use std::collections::BTreeMap;

pub(crate) use apply::Effects;
pub(super) use apply::units_in;
pub(crate) use path::check_name;
pub(super) use salvage::Salvage;

use super::ids::{InodeId, Kind, Timestamp};
use super::inconsistency::Inconsistency;
use super::inode::{Entries, InodeRecord};
use super::layout::Layout;

/// The metadata of a volume. [`Metadata::apply`] is the only way in which it changes.
///
/// # Invariants
/// 1. Each inode but the root has as many entries as links; a directory has one, in its parent, and is
///    reached from the root.
/// 2. A file's extents cover the units of its size and no more. None is empty or crosses a group's border,
///    and none could be joined with the one before.
/// 3. All numbers of inodes are below the next one.
///
/// The allocator ensures that no two files share a unit; [`Metadata::validate`] verifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(super) layout: Layout,
    pub(super) inodes: BTreeMap<InodeId, InodeRecord>,
    pub(super) next_id: InodeId,
    /// Units of all files.
    pub(super) units: u64,
}

impl Metadata {
    /// A volume with an empty root directory.
    pub(crate) fn new(layout: Layout) -> Self {
        let root = InodeRecord::directory(InodeId::ROOT, Timestamp::default());
        Self {
            layout,
            inodes: BTreeMap::from([(InodeId::ROOT, root)]),
            next_id: InodeId::FIRST,
            units: 0,
        }
    }

    /// Sizes and places on the device.
    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The least number that a new inode may have.
    pub(crate) const fn next_id(&self) -> InodeId {
        self.next_id
    }

    /// Units that the files hold.
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }

    /// How many files and directories there are, the root among them.
    pub(crate) fn len(&self) -> usize {
        self.inodes.len()
    }

    /// All files and directories, in the order of their numbers.
    pub(crate) fn inodes(&self) -> impl ExactSizeIterator<Item = (InodeId, &InodeRecord)> {
        self.inodes.iter().map(|(id, record)| (*id, record))
    }

    /// A file or directory.
    ///
    /// # Errors
    /// [`Inconsistency::NoInode`].
    pub(crate) fn inode(&self, id: InodeId) -> Result<&InodeRecord, Inconsistency> {
        self.inodes.get(&id).ok_or(Inconsistency::NoInode(id))
    }

    /// The entries of a directory, sorted by name.
    ///
    /// # Errors
    /// [`Inconsistency::NoInode`], [`Inconsistency::NotDirectory`].
    pub(crate) fn children(&self, id: InodeId) -> Result<&Entries, Inconsistency> {
        self.inode(id)?.entries().ok_or(Inconsistency::NotDirectory)
    }

    /// The inode of a name in a directory.
    ///
    /// # Errors
    /// [`Inconsistency::NotFound`], [`Inconsistency::NoInode`], [`Inconsistency::NotDirectory`].
    pub(crate) fn lookup(&self, parent: InodeId, name: &str) -> Result<InodeId, Inconsistency> {
        self.children(parent)?
            .get(name)
            .copied()
            .ok_or(Inconsistency::NotFound)
    }

    /// Which of the two an inode is.
    ///
    /// # Errors
    /// [`Inconsistency::NoInode`].
    pub(crate) fn kind(&self, id: InodeId) -> Result<Kind, Inconsistency> {
        self.inode(id).map(InodeRecord::kind)
    }
}
