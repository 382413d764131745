//! Application of operations to metadata.

use super::{Metadata, check_name};
use crate::format::extent::{Extent, Extents};
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::inconsistency::Inconsistency;
use crate::format::inode::{InodeRecord, Node};
use crate::format::layout::Layout;
use crate::format::operation::Operation;

/// Units and inodes that an operation released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// Units that no file holds any more.
    pub(crate) freed: Vec<Extent>,
    /// The inode that the operation removed.
    pub(crate) removed: Option<InodeId>,
}

impl Metadata {
    /// Applies an operation.
    ///
    /// # Errors
    /// The metadata is as before.
    pub(crate) fn apply(&mut self, operation: &Operation<'_>) -> Result<Effects, Inconsistency> {
        match *operation {
            Operation::Create {
                id,
                kind,
                parent,
                name,
                modified,
            } => self.create(id, kind, (parent, name), modified),
            Operation::Link { id, parent, name } => self.link(id, parent, name),
            Operation::Unlink { parent, name } => self.unlink(parent, name),
            Operation::Rename { from, to } => self.rename(from, to),
            Operation::Extend {
                id,
                size,
                extents,
                modified,
            } => {
                let old = self.file_size(id)?;
                if size < old {
                    return Err(Inconsistency::Shrinks { old, new: size });
                }
                self.grow(id, size, extents, modified)
            }
            Operation::Data {
                id,
                offset,
                bytes,
                extents,
                modified,
            } => {
                let old = self.file_size(id)?;
                if offset > old {
                    return Err(Inconsistency::Hole { offset, size: old });
                }
                let len = u64::try_from(bytes.len()).map_err(|_| Inconsistency::TooLarge)?;
                let end = offset.checked_add(len).ok_or(Inconsistency::TooLarge)?;
                self.grow(id, old.max(end), extents, modified)
            }
            Operation::Truncate { id, size, modified } => self.truncate(id, size, modified),
            Operation::SetModified { id, modified } => {
                self.inode_mut(id)?.modified = modified;
                Ok(Effects::default())
            }
        }
    }

    fn inode_mut(&mut self, id: InodeId) -> Result<&mut InodeRecord, Inconsistency> {
        self.inodes.get_mut(&id).ok_or(Inconsistency::NoInode(id))
    }

    fn file_size(&self, id: InodeId) -> Result<u64, Inconsistency> {
        let record = self.inode(id)?;
        match record.kind() {
            Kind::File => Ok(record.size()),
            Kind::Directory => Err(Inconsistency::IsDirectory),
        }
    }

    fn set_entry(&mut self, parent: InodeId, name: &str, id: InodeId) {
        self.inodes
            .get_mut(&parent)
            .and_then(InodeRecord::entries_mut)
            .expect("the parent was seen to be a directory")
            .insert(name.into(), id);
    }

    fn remove_entry(&mut self, parent: InodeId, name: &str) {
        self.inodes
            .get_mut(&parent)
            .and_then(InodeRecord::entries_mut)
            .expect("the parent was seen to be a directory")
            .remove(name);
    }

    fn check_new_name(&self, parent: InodeId, name: &str) -> Result<(), Inconsistency> {
        check_name(name)?;
        if self.children(parent)?.contains_key(name) {
            return Err(Inconsistency::Exists);
        }
        Ok(())
    }

    fn create(
        &mut self,
        id: InodeId,
        kind: Kind,
        (parent, name): (InodeId, &str),
        modified: Timestamp,
    ) -> Result<Effects, Inconsistency> {
        if id < self.next_id || id.0 == u64::MAX {
            return Err(Inconsistency::BadId(id));
        }
        self.check_new_name(parent, name)?;
        self.next_id = InodeId(id.0 + 1);
        self.insert(id, kind, (parent, name), modified);
        Ok(Effects::default())
    }

    /// Puts a new inode where nothing is in the way.
    pub(in crate::format) fn insert(
        &mut self,
        id: InodeId,
        kind: Kind,
        (parent, name): (InodeId, &str),
        modified: Timestamp,
    ) {
        let record = match kind {
            Kind::File => InodeRecord::file(modified),
            Kind::Directory => InodeRecord::directory(parent, modified),
        };
        self.inodes.insert(id, record);
        self.set_entry(parent, name, id);
    }

    fn link(&mut self, id: InodeId, parent: InodeId, name: &str) -> Result<Effects, Inconsistency> {
        self.file_size(id)?;
        self.check_new_name(parent, name)?;
        let record = self.inode_mut(id)?;
        record.links = record
            .links
            .checked_add(1)
            .ok_or(Inconsistency::TooManyLinks)?;
        self.set_entry(parent, name, id);
        Ok(Effects::default())
    }

    fn unlink(&mut self, parent: InodeId, name: &str) -> Result<Effects, Inconsistency> {
        let id = self.lookup(parent, name)?;
        if self.inode(id)?.entries().is_some_and(|it| !it.is_empty()) {
            return Err(Inconsistency::NotEmpty);
        }
        self.remove_entry(parent, name);
        Ok(self.drop_name(id))
    }

    /// Removes one name of an inode, and the inode with its last name.
    fn drop_name(&mut self, id: InodeId) -> Effects {
        let record = self.inodes.get_mut(&id).expect("an entry's inode is there");
        if record.links > 1 {
            record.links -= 1;
            return Effects::default();
        }
        let freed = match self.inodes.remove(&id).map(|record| record.node) {
            Some(Node::File { extents, .. }) => extents,
            Some(Node::Directory { .. }) | None => Vec::new(),
        };
        self.units -= units_in(freed.iter().copied());
        Effects {
            freed,
            removed: Some(id),
        }
    }

    fn rename(
        &mut self,
        from: (InodeId, &str),
        to: (InodeId, &str),
    ) -> Result<Effects, Inconsistency> {
        let id = self.lookup(from.0, from.1)?;
        check_name(to.1)?;
        let replaced = self.children(to.0)?.get(to.1).copied();
        if replaced == Some(id) {
            return Ok(Effects::default());
        }
        let kind = self.kind(id)?;
        if kind == Kind::Directory && self.is_within(to.0, id) {
            return Err(Inconsistency::IntoItself);
        }
        if let Some(replaced) = replaced {
            let record = self.inode(replaced)?;
            match (kind, record.entries()) {
                (Kind::Directory, None) => return Err(Inconsistency::NotDirectory),
                (Kind::File, Some(_)) => return Err(Inconsistency::IsDirectory),
                (Kind::Directory, Some(entries)) if !entries.is_empty() => {
                    return Err(Inconsistency::NotEmpty);
                }
                (Kind::File, None) | (Kind::Directory, Some(_)) => {}
            }
        }
        self.remove_entry(from.0, from.1);
        self.set_entry(to.0, to.1, id);
        if let Node::Directory { parent, .. } = &mut self.inode_mut(id)?.node {
            *parent = to.0;
        }
        Ok(replaced.map_or_else(Effects::default, |replaced| self.drop_name(replaced)))
    }

    /// Whether a directory is `outer` or lies in it.
    fn is_within(&self, mut directory: InodeId, outer: InodeId) -> bool {
        loop {
            if directory == outer {
                return true;
            }
            match self.inodes.get(&directory).and_then(InodeRecord::parent) {
                Some(parent) if parent != directory => directory = parent,
                _ => return false,
            }
        }
    }

    /// Grows a file to at least its current size, with the units for it.
    fn grow(
        &mut self,
        id: InodeId,
        size: u64,
        added: Extents<'_>,
        modified: Timestamp,
    ) -> Result<Effects, Inconsistency> {
        let layout = self.layout;
        let data = layout.file_data();
        if data.units(size) > layout.units() {
            return Err(Inconsistency::TooLarge);
        }
        if let Some(bad) = added.iter().find(|extent| !layout.holds(*extent)) {
            return Err(Inconsistency::BadExtent(bad));
        }
        let given = units_in(added.iter());
        let record = self.inode_mut(id)?;
        let needed = data.units(size) - data.units(record.size());
        if given != needed {
            return Err(Inconsistency::Coverage { needed, given });
        }
        record.modified = modified;
        if let Node::File {
            size: file_size,
            extents,
        } = &mut record.node
        {
            *file_size = size;
            for extent in added.iter() {
                push_extent(&layout, extents, extent);
            }
        }
        self.units += given;
        Ok(Effects::default())
    }

    fn truncate(
        &mut self,
        id: InodeId,
        new: u64,
        modified: Timestamp,
    ) -> Result<Effects, Inconsistency> {
        let old = self.file_size(id)?;
        if new > old {
            return Err(Inconsistency::Grows { old, new });
        }
        let data = self.layout.file_data();
        let record = self.inode_mut(id)?;
        record.modified = modified;
        let mut freed = Vec::new();
        if let Node::File { size, extents } = &mut record.node {
            *size = new;
            freed = cut_extents(extents, data.units(old) - data.units(new));
        }
        self.units -= units_in(freed.iter().copied());
        Ok(Effects {
            freed,
            removed: None,
        })
    }
}

/// How many units extents have together.
pub(in crate::format) fn units_in(extents: impl Iterator<Item = Extent>) -> u64 {
    extents.map(|extent| u64::from(extent.units)).sum()
}

/// Appends an extent to a file's, joined with the last one where it continues it in the same group.
pub(in crate::format) fn push_extent(layout: &Layout, extents: &mut Vec<Extent>, extent: Extent) {
    if let Some(last) = extents.last_mut() {
        let joined = Extent {
            start: last.start,
            units: last.units.saturating_add(extent.units),
        };
        if last.end() == extent.start && layout.holds(joined) {
            *last = joined;
            return;
        }
    }
    // Most files have one extent: no room is kept for more until there are.
    if extents.len() == extents.capacity() {
        extents.reserve_exact(extents.len().max(1));
    }
    extents.push(extent);
}

/// Takes `units` units off the end.
pub(in crate::format) fn cut_extents(extents: &mut Vec<Extent>, mut units: u64) -> Vec<Extent> {
    let mut freed = Vec::new();
    while units > 0 {
        let Some(last) = extents.last_mut() else {
            break;
        };
        let cut = u32::try_from(units).unwrap_or(u32::MAX).min(last.units);
        last.units -= cut;
        freed.push(Extent {
            start: last.end(),
            units: cut,
        });
        if last.units == 0 {
            extents.pop();
        }
        units -= u64::from(cut);
    }
    freed
}
