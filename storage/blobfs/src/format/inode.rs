//! In-memory record of a file or directory.

use std::collections::BTreeMap;

use super::extent::Extent;
use super::ids::{InodeId, Kind, Timestamp};

/// The entries of a directory.
pub(crate) type Entries = BTreeMap<Box<str>, InodeId>;

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InodeRecord {
    pub(super) modified: Timestamp,
    /// Names; 1 for a directory.
    pub(super) links: u32,
    pub(super) node: Node,
}

/// Fields that differ between files and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File {
        size: u64,
        extents: Vec<Extent>,
    },
    Directory {
        /// The root is its own.
        parent: InodeId,
        entries: Entries,
    },
}

impl InodeRecord {
    /// An empty file with one name.
    pub(super) const fn file(modified: Timestamp) -> Self {
        Self {
            modified,
            links: 1,
            node: Node::File {
                size: 0,
                extents: Vec::new(),
            },
        }
    }

    /// An empty directory in `parent`.
    pub(super) const fn directory(parent: InodeId, modified: Timestamp) -> Self {
        Self {
            modified,
            links: 1,
            node: Node::Directory {
                parent,
                entries: Entries::new(),
            },
        }
    }

    /// Kind of the inode: file or directory.
    pub(crate) const fn kind(&self) -> Kind {
        match self.node {
            Node::File { .. } => Kind::File,
            Node::Directory { .. } => Kind::Directory,
        }
    }

    /// Time of the last modification.
    pub(crate) const fn modified(&self) -> Timestamp {
        self.modified
    }

    /// Number of links; 1 for a directory.
    pub(crate) const fn links(&self) -> u32 {
        self.links
    }

    /// Bytes of a file; 0 for a directory.
    pub(crate) const fn size(&self) -> u64 {
        match self.node {
            Node::File { size, .. } => size,
            Node::Directory { .. } => 0,
        }
    }

    /// A file's units in order, exactly as many as its size needs; none for a directory.
    pub(crate) fn extents(&self) -> &[Extent] {
        match &self.node {
            Node::File { extents, .. } => extents,
            Node::Directory { .. } => &[],
        }
    }

    /// A directory's entries; nothing for a file.
    pub(crate) const fn entries(&self) -> Option<&Entries> {
        match &self.node {
            Node::File { .. } => None,
            Node::Directory { entries, .. } => Some(entries),
        }
    }

    /// The directory that a directory is in, the root for the root; nothing for a file.
    pub(crate) const fn parent(&self) -> Option<InodeId> {
        match self.node {
            Node::File { .. } => None,
            Node::Directory { parent, .. } => Some(parent),
        }
    }

    pub(super) const fn entries_mut(&mut self) -> Option<&mut Entries> {
        match &mut self.node {
            Node::File { .. } => None,
            Node::Directory { entries, .. } => Some(entries),
        }
    }
}
