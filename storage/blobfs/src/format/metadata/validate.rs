//! Validation of the metadata's invariants.

use std::collections::BTreeMap;

use super::apply::units_in;
use super::{Metadata, check_name};
use crate::format::extent::Extent;
use crate::format::ids::{InodeId, Kind};

/// A violated invariant of the metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// An entry without its inode.
    #[error("the entry {name:?} of {parent} leads to {id}, which does not exist")]
    Dangling {
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Box<str>,
        /// What it leads to.
        id: InodeId,
    },
    /// A name that no entry may have.
    #[error("{parent} has an entry {name:?}, which is no name")]
    BadName {
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Box<str>,
    },
    /// A count of links that is not the number of names.
    #[error("{id} has {names} names but counts {links}")]
    Links {
        /// The inode.
        id: InodeId,
        /// Entries that lead to it.
        names: u32,
        /// What it counts.
        links: u32,
    },
    /// A directory that is not the child of the one it names as its parent.
    #[error("the directory {id} is not where it says")]
    Parent {
        /// The directory.
        id: InodeId,
    },
    /// A directory that no path leads to.
    #[error("no path leads to the directory {id}")]
    Unreachable {
        /// The directory.
        id: InodeId,
    },
    /// A number of an inode that is given out again.
    #[error("{id} is not below the next number")]
    NextId {
        /// The inode.
        id: InodeId,
    },
    /// An extent that is empty or not in one group.
    #[error("{id} has {extent}, which are not in one group")]
    BadExtent {
        /// The file.
        id: InodeId,
        /// The extent.
        extent: Extent,
    },
    /// A file with more or fewer units than its size needs.
    #[error("{id} has {size} bytes in {units} units")]
    Coverage {
        /// The file.
        id: InodeId,
        /// Its bytes.
        size: u64,
        /// Its units.
        units: u64,
    },
    /// Units that two own.
    #[error("{} and {} both hold {extent}", owner(.first), owner(.second))]
    Overlap {
        /// One file; nothing if it is a checkpoint.
        first: Option<InodeId>,
        /// The other.
        second: Option<InodeId>,
        /// What they share.
        extent: Extent,
    },
    /// A count of all units that is wrong.
    #[error("the files have {units} units, {counted} were counted")]
    Units {
        /// What they have.
        units: u64,
        /// What was counted.
        counted: u64,
    },
}

fn owner(id: &Option<InodeId>) -> String {
    id.map_or_else(|| "the checkpoint".to_owned(), |id| id.to_string())
}

impl Metadata {
    /// All violated invariants. `reserved` are the extents of the checkpoint's copies, which must not overlap with each
    /// other or with files.
    pub(crate) fn validate(&self, reserved: &[Extent]) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.validate_names(&mut problems);
        self.validate_files(&mut problems);
        problems.extend(self.overlaps(reserved));
        problems
    }

    fn validate_names(&self, problems: &mut Vec<Problem>) {
        let mut names = BTreeMap::<InodeId, u32>::new();
        for (&parent, record) in &self.inodes {
            for (name, &id) in record.entries().into_iter().flatten() {
                if check_name(name).is_err() {
                    problems.push(Problem::BadName {
                        parent,
                        name: name.clone(),
                    });
                }
                let Some(child) = self.inodes.get(&id) else {
                    problems.push(Problem::Dangling {
                        parent,
                        name: name.clone(),
                        id,
                    });
                    continue;
                };
                *names.entry(id).or_default() += 1;
                if child.parent().is_some_and(|it| it != parent) {
                    problems.push(Problem::Parent { id });
                }
            }
        }
        // The root has no name, and counts one link.
        *names.entry(InodeId::ROOT).or_default() += 1;
        for (&id, record) in &self.inodes {
            let found = names.get(&id).copied().unwrap_or(0);
            let allowed = record.kind() == Kind::File || record.links == 1;
            if found != record.links || !allowed || found == 0 {
                problems.push(Problem::Links {
                    id,
                    names: found,
                    links: record.links,
                });
            }
            if id >= self.next_id {
                problems.push(Problem::NextId { id });
            }
        }
        let reached = self.reachable();
        let unreachable = self
            .inodes
            .iter()
            .filter(|(id, record)| record.kind() == Kind::Directory && !reached.contains(id))
            .map(|(&id, _)| Problem::Unreachable { id });
        problems.extend(unreachable);
    }

    fn validate_files(&self, problems: &mut Vec<Problem>) {
        let mut units_all = 0_u64;
        for (&id, record) in &self.inodes {
            let bad = record
                .extents()
                .iter()
                .filter(|extent| !self.layout.holds(**extent));
            problems.extend(bad.map(|&extent| Problem::BadExtent { id, extent }));
            let units = units_in(record.extents().iter().copied());
            units_all = units_all.saturating_add(units);
            if units != self.layout.file_data().units(record.size()) {
                problems.push(Problem::Coverage {
                    id,
                    size: record.size(),
                    units,
                });
            }
        }
        if units_all != self.units {
            problems.push(Problem::Units {
                units: units_all,
                counted: self.units,
            });
        }
    }

    /// Where two files, or a file and one of `reserved`, hold the same units.
    pub(in crate::format) fn overlaps(&self, reserved: &[Extent]) -> Vec<Problem> {
        let mut all: Vec<(Extent, Option<InodeId>)> = self
            .inodes
            .iter()
            .flat_map(|(id, record)| record.extents().iter().map(|extent| (*extent, Some(*id))))
            .chain(reserved.iter().map(|extent| (*extent, None)))
            .collect();
        all.sort_unstable();
        let mut problems = Vec::new();
        let mut furthest: Option<(Extent, Option<InodeId>)> = None;
        for (extent, id) in all {
            if let Some((before, owner)) = furthest {
                if extent.start < before.end() {
                    let end = extent.end().min(before.end());
                    problems.push(Problem::Overlap {
                        first: owner,
                        second: id,
                        extent: Extent {
                            start: extent.start,
                            units: u32::try_from(end - extent.start).unwrap_or(u32::MAX),
                        },
                    });
                }
                if extent.end() <= before.end() {
                    continue;
                }
            }
            furthest = Some((extent, id));
        }
        problems
    }
}
