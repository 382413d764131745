//! Reconstruction of metadata from records of which some are missing or wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::apply::{cut_extents, push_extent, units_in};
use super::{Metadata, check_name};
use crate::format::damage::Damage;
use crate::format::extent::{Extent, Extents};
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::inode::{InodeRecord, Node};
use crate::format::layout::Layout;

/// Collector of records in any order.
#[derive(Debug)]
pub(crate) struct Salvage {
    /// Inodes without names; `links` are the recorded counts.
    metadata: Metadata,
    /// Parent, name, inode.
    entries: Vec<(InodeId, Box<str>, InodeId)>,
    /// File, units before, extents.
    more_extents: Vec<(InodeId, u64, Vec<Extent>)>,
    damages: Vec<Damage>,
}

impl Salvage {
    /// Nothing so far.
    pub(crate) const fn new(layout: Layout) -> Self {
        Self {
            metadata: Metadata {
                layout,
                inodes: BTreeMap::new(),
                next_id: InodeId::FIRST,
                units: 0,
            },
            entries: Vec::new(),
            more_extents: Vec::new(),
            damages: Vec::new(),
        }
    }

    /// Adds a finding to the result of [`Salvage::finish`].
    pub(crate) fn report(&mut self, damage: Damage) {
        self.damages.push(damage);
    }

    /// Number of inodes collected.
    pub(crate) fn inodes(&self) -> u64 {
        u64::try_from(self.metadata.inodes.len()).expect("a usize has at most 64 bits")
    }

    /// A file, with its first extents.
    pub(crate) fn file(
        &mut self,
        id: InodeId,
        links: u32,
        size: u64,
        modified: Timestamp,
        extents: Extents<'_>,
    ) {
        let mut good = Vec::with_capacity(extents.len());
        push_good(&self.metadata.layout, &mut good, extents.iter());
        self.insert(
            id,
            InodeId::FIRST,
            InodeRecord {
                modified,
                links,
                node: Node::File {
                    size,
                    extents: good,
                },
            },
        );
    }

    /// Further extents of a file, behind `before` units.
    pub(crate) fn more_extents(&mut self, id: InodeId, before: u64, extents: Extents<'_>) {
        self.more_extents
            .push((id, before, extents.iter().collect()));
    }

    /// A directory.
    pub(crate) fn directory(&mut self, id: InodeId, parent: InodeId, modified: Timestamp) {
        let record = InodeRecord::directory(parent, modified);
        self.insert(id, InodeId::ROOT, record);
    }

    /// A name.
    pub(crate) fn entry(&mut self, parent: InodeId, id: InodeId, name: &str) {
        self.entries.push((parent, name.into(), id));
    }

    fn insert(&mut self, id: InodeId, least: InodeId, record: InodeRecord) {
        if id < least || id.0 == u64::MAX || self.metadata.inodes.contains_key(&id) {
            self.report(Damage::Contradiction(id));
        } else {
            self.metadata.inodes.insert(id, record);
        }
    }

    /// The metadata, and what had to be dropped or changed. `next_id` is the recorded next inode number.
    pub(crate) fn finish(mut self, next_id: InodeId) -> (Metadata, Vec<Damage>) {
        self.join_extents();
        self.fit_sizes();
        let guessed = self.add_directories();
        let lost = self.enter_names(&guessed);
        self.name_all();
        for (parent, name, id) in lost {
            let path = self.metadata.entry_path(parent, &name);
            self.report(Damage::Lost { path, id });
        }
        let last = self.metadata.inodes.keys().next_back();
        let after_last = last.map_or(InodeId::FIRST, |id| InodeId(id.0 + 1));
        self.metadata.next_id = next_id.max(after_last).max(InodeId::FIRST);
        (self.metadata, self.damages)
    }

    /// Appends further extents to their files, as long as none before is missing.
    fn join_extents(&mut self) {
        let mut more = std::mem::take(&mut self.more_extents);
        more.sort_unstable();
        for (id, before, extents) in more {
            let node = self.metadata.inodes.get_mut(&id).map(|it| &mut it.node);
            let joined = match node {
                Some(Node::File { extents: file, .. })
                    if units_in(file.iter().copied()) == before =>
                {
                    push_good(&self.metadata.layout, file, extents.into_iter())
                }
                _ => false,
            };
            // A file without its first extents is cut, which is reported; a lost file has lost its record.
            if !joined && !self.metadata.inodes.contains_key(&id) {
                self.report(Damage::Contradiction(id));
            }
        }
    }

    /// Makes each file's size match its units.
    fn fit_sizes(&mut self) {
        let layout = self.metadata.layout;
        for (&id, record) in &mut self.metadata.inodes {
            let Node::File { size, extents } = &mut record.node else {
                continue;
            };
            let units = units_in(extents.iter().copied());
            let needed = layout.file_data().units(*size);
            if units > needed {
                cut_extents(extents, units - needed);
                self.damages.push(Damage::Contradiction(id));
            } else if units < needed {
                let from = *size;
                *size = layout.file_data().bytes(units);
                let to = *size;
                self.damages.push(Damage::Cut { id, from, to });
            }
            self.metadata.units += units.min(needed);
        }
    }

    /// Adds the root, and directories known only by their entries; returns the latter.
    fn add_directories(&mut self) -> BTreeSet<InodeId> {
        let mut guessed = BTreeSet::new();
        let parents = self.entries.iter().map(|(parent, ..)| *parent);
        for id in parents.chain([InodeId::ROOT]) {
            let possible = id >= InodeId::ROOT && id.0 < u64::MAX;
            if possible && !self.metadata.inodes.contains_key(&id) {
                let record = InodeRecord::directory(InodeId::ROOT, Timestamp::default());
                self.metadata.inodes.insert(id, record);
                self.damages.push(Damage::Directory(id));
                guessed.insert(id);
            }
        }
        guessed
    }

    /// Enters all valid names; returns the names whose inode is missing.
    fn enter_names(&mut self, guessed: &BTreeSet<InodeId>) -> Vec<(InodeId, Box<str>, InodeId)> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable();
        let mut lost = Vec::new();
        let mut names = BTreeMap::<InodeId, u32>::new();
        for (parent, name, id) in entries {
            let inodes = &mut self.metadata.inodes;
            let taken = inodes
                .get(&parent)
                .and_then(InodeRecord::entries)
                .is_none_or(|entries| entries.contains_key(&name));
            if taken || check_name(&name).is_err() || id == InodeId::ROOT {
                self.damages.push(Damage::DroppedName { parent, name });
                continue;
            }
            let Some(record) = inodes.get_mut(&id) else {
                lost.push((parent, name, id));
                continue;
            };
            let count = names.entry(id).or_default();
            if let Node::Directory { parent: said, .. } = &mut record.node {
                if *count > 0 {
                    self.damages.push(Damage::DroppedName { parent, name });
                    continue;
                }
                if *said != parent && !guessed.contains(&id) {
                    self.damages.push(Damage::Contradiction(id));
                }
                *said = parent;
            }
            *count = count.saturating_add(1);
            if let Some(entries) = inodes.get_mut(&parent).and_then(InodeRecord::entries_mut) {
                entries.insert(name, id);
            }
        }
        for (&id, record) in &mut self.metadata.inodes {
            let found = names.get(&id).copied().unwrap_or(0);
            if record.kind() == Kind::File && found > 0 && found != record.links {
                self.damages.push(Damage::Links {
                    id,
                    names: found,
                    links: record.links,
                });
            }
            record.links = found;
        }
        lost
    }

    /// Names all inodes without a name, and breaks cycles of directories. `links` counts names.
    fn name_all(&mut self) {
        let metadata = &mut self.metadata;
        if let Some(root) = metadata.inodes.get_mut(&InodeId::ROOT) {
            root.links = 1;
            if let Node::Directory { parent, .. } = &mut root.node {
                *parent = InodeId::ROOT;
            }
        }
        let lost_found = metadata.inodes.get(&InodeId::LOST_FOUND).map(|it| it.links);
        let mut reached = BTreeSet::new();
        metadata.reach(InodeId::ROOT, &mut reached);
        if lost_found.is_some() && !reached.contains(&InodeId::LOST_FOUND) {
            metadata.unname(InodeId::LOST_FOUND);
            self.damages.push(metadata.name_lost_found());
        }
        let unnamed: Vec<InodeId> = metadata
            .inodes
            .iter()
            .filter(|(_, record)| record.links == 0)
            .map(|(id, _)| *id)
            .collect();
        for id in unnamed {
            self.damages.push(metadata.name_lost(id));
            metadata.reach(id, &mut reached);
        }
        metadata.reach(InodeId::LOST_FOUND, &mut reached);
        let unreached: Vec<InodeId> = metadata
            .inodes
            .iter()
            .filter(|(id, record)| record.kind() == Kind::Directory && !reached.contains(id))
            .map(|(id, _)| *id)
            .collect();
        for id in unreached {
            if !reached.contains(&id) {
                let id = metadata.in_circle(id);
                metadata.unname(id);
                self.damages.push(metadata.name_lost(id));
                metadata.reach(id, &mut reached);
            }
        }
    }
}

impl Metadata {
    /// Adds the directories that paths lead to from this one.
    fn reach(&self, from: InodeId, reached: &mut BTreeSet<InodeId>) {
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            let entries = self.inodes.get(&id).and_then(InodeRecord::entries);
            let Some(entries) = entries else {
                continue;
            };
            if reached.insert(id) {
                open.extend(entries.values());
            }
        }
    }

    /// The directories that paths lead to.
    pub(super) fn reachable(&self) -> BTreeSet<InodeId> {
        let mut reached = BTreeSet::new();
        self.reach(InodeId::ROOT, &mut reached);
        reached
    }

    /// A directory that is its own ancestor, among the ancestors of one that the root is not among.
    fn in_circle(&self, mut id: InodeId) -> InodeId {
        let mut seen = BTreeSet::new();
        while seen.insert(id) {
            id = self
                .inodes
                .get(&id)
                .and_then(InodeRecord::parent)
                .unwrap_or(id);
        }
        id
    }

    /// Removes the name of a directory, if it has one.
    fn unname(&mut self, id: InodeId) {
        let parent = self.inodes.get(&id).and_then(InodeRecord::parent);
        let parent = parent.and_then(|parent| self.inodes.get_mut(&parent));
        if let Some(entries) = parent.and_then(InodeRecord::entries_mut) {
            entries.retain(|_, child| *child != id);
        }
    }
}

/// Appends extents up to the first invalid one; whether all were valid.
fn push_good(
    layout: &Layout,
    good: &mut Vec<Extent>,
    mut extents: impl Iterator<Item = Extent>,
) -> bool {
    extents.all(|extent| {
        let holds = layout.holds(extent);
        if holds {
            push_extent(layout, good, extent);
        }
        holds
    })
}
