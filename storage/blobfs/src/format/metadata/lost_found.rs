//! `/lost+found` for inodes without a name, and the separation of files that share units.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Metadata;
use super::apply::{cut_extents, units_in};
use crate::format::damage::Damage;
use crate::format::extent::Extent;
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::inode::{InodeRecord, Node};

/// Length limit of paths in reports, in bytes.
const REPORTED_PATH_BYTES_MAX: usize = 4096;

impl Metadata {
    /// Path of a directory for reports; of a very long path only the end.
    pub(crate) fn directory_path(&self, mut id: InodeId) -> String {
        let mut names = Vec::new();
        let mut len = 0;
        while id != InodeId::ROOT && len < REPORTED_PATH_BYTES_MAX {
            let parent = self.inodes.get(&id).and_then(InodeRecord::parent);
            let name = parent.and_then(|parent| {
                let entries = self.inodes.get(&parent)?.entries()?;
                let named = entries.iter().find(|(_, child)| **child == id)?;
                Some((parent, named.0))
            });
            let Some((parent, name)) = name else {
                break;
            };
            len += name.len() + 1;
            names.push(&**name);
            id = parent;
        }
        names.push(if id == InodeId::ROOT { "" } else { "..." });
        names.reverse();
        if names.len() == 1 && id == InodeId::ROOT {
            return "/".to_owned();
        }
        names.join("/")
    }

    /// Path of an entry of a directory, for reports.
    pub(crate) fn entry_path(&self, parent: InodeId, name: &str) -> String {
        let mut path = self.directory_path(parent);
        if !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(name);
        path
    }

    /// Path of an inode for reports; its number if it has no name.
    pub(crate) fn path_of(&self, id: InodeId) -> String {
        if self
            .inode(id)
            .is_ok_and(|record| record.entries().is_some())
        {
            return self.directory_path(id);
        }
        let named = self.inodes.iter().find_map(|(parent, record)| {
            let mut entries = record.entries()?.iter();
            let (name, _) = entries.find(|(_, child)| **child == id)?;
            Some(self.entry_path(*parent, name))
        });
        named.unwrap_or_else(|| id.to_string())
    }

    /// Creates an inode in `/lost+found`, because its own directory or name is not available. Its number must be new.
    pub(in crate::format) fn insert_lost(
        &mut self,
        id: InodeId,
        kind: Kind,
        modified: Timestamp,
    ) -> Damage {
        let directory = self.lost_found();
        let name = self.free_name(directory, &id.to_string());
        self.next_id = self.next_id.max(InodeId(id.0.saturating_add(1)));
        self.insert(id, kind, (directory, &name), modified);
        Damage::Unnamed {
            id,
            path: self.entry_path(directory, &name),
        }
    }

    /// Names an inode without a name in `/lost+found`.
    pub(super) fn name_lost(&mut self, id: InodeId) -> Damage {
        let directory = self.lost_found();
        let name = self.free_name(directory, &id.to_string());
        self.set_name(directory, &name, id);
        Damage::Unnamed {
            id,
            path: self.entry_path(directory, &name),
        }
    }

    /// Inode of `/lost+found`, created if it does not exist.
    fn lost_found(&mut self) -> InodeId {
        let id = InodeId::LOST_FOUND;
        if !self.inodes.contains_key(&id) {
            let name = self.free_name(InodeId::ROOT, "lost+found");
            self.insert(
                id,
                Kind::Directory,
                (InodeId::ROOT, &name),
                Timestamp::default(),
            );
        }
        id
    }

    /// Names the `/lost+found` directory in the root. It must have no name.
    pub(super) fn name_lost_found(&mut self) -> Damage {
        let name = self.free_name(InodeId::ROOT, "lost+found");
        self.set_name(InodeId::ROOT, &name, InodeId::LOST_FOUND);
        Damage::Unnamed {
            id: InodeId::LOST_FOUND,
            path: self.entry_path(InodeId::ROOT, &name),
        }
    }

    /// `wanted`, or the first of `wanted.1`, `wanted.2`, ... that is not taken in a directory.
    fn free_name(&self, directory: InodeId, wanted: &str) -> String {
        let entries = self.inodes.get(&directory).and_then(InodeRecord::entries);
        let is_free = |name: &str| entries.is_none_or(|entries| !entries.contains_key(name));
        if is_free(wanted) {
            return wanted.to_owned();
        }
        (1_u64..)
            .map(|number| format!("{wanted}.{number}"))
            .find(|name| is_free(name))
            .expect("a directory has fewer than 2^64 entries")
    }

    /// Enters a name, the first of an inode.
    fn set_name(&mut self, directory: InodeId, name: &str, id: InodeId) {
        if let Some(record) = self.inodes.get_mut(&id) {
            record.links = 1;
            if let Node::Directory { parent, .. } = &mut record.node {
                *parent = directory;
            }
        }
        if let Some(entries) = self
            .inodes
            .get_mut(&directory)
            .and_then(InodeRecord::entries_mut)
        {
            entries.insert(name.into(), id);
        }
    }

    /// Cuts files so that none holds a unit of another file or of `reserved`. Of two files the one with the higher rank
    /// keeps the unit; of equal ranks the one with the lower number.
    pub(crate) fn separate_files(
        &mut self,
        reserved: &[Extent],
        rank: impl Fn(InodeId) -> u64,
    ) -> Vec<Damage> {
        if self.overlaps(reserved).is_empty() {
            return Vec::new();
        }
        let mut claimed: BTreeMap<u64, u64> = reserved
            .iter()
            .map(|extent| (extent.start, extent.end()))
            .collect();
        let mut order: Vec<InodeId> = self.inodes.keys().copied().collect();
        order.sort_by_key(|id| (Reverse(rank(*id)), *id));
        let mut damages = Vec::new();
        for id in order {
            let Some(record) = self.inodes.get_mut(&id) else {
                continue;
            };
            let mut kept = 0;
            for extent in record.extents() {
                let free = free_units(&claimed, *extent);
                kept += free;
                if free > 0 {
                    claimed.insert(extent.start, extent.start + free);
                }
                if free < u64::from(extent.units) {
                    break;
                }
            }
            damages.extend(self.keep_units(id, kept));
        }
        damages
    }

    /// Cuts a file to its first `kept` units, if it has more.
    fn keep_units(&mut self, id: InodeId, kept: u64) -> Option<Damage> {
        let data = self.layout.file_data();
        let Node::File { size, extents } = &mut self.inodes.get_mut(&id)?.node else {
            return None;
        };
        let units = units_in(extents.iter().copied());
        if units <= kept {
            return None;
        }
        let from = *size;
        *size = from.min(data.bytes(kept));
        cut_extents(extents, units - kept);
        let to = *size;
        self.units -= units - kept;
        Some(Damage::Parted { id, from, to })
    }
}

/// Number of units at the front of `extent` that no other file holds.
fn free_units(claimed: &BTreeMap<u64, u64>, extent: Extent) -> u64 {
    let before = claimed.range(..=extent.start).next_back();
    if before.is_some_and(|(_, end)| *end > extent.start) {
        return 0;
    }
    let after = claimed.range(extent.start..extent.end()).next();
    after.map_or(u64::from(extent.units), |(start, _)| start - extent.start)
}
