//! Operations: changes of a volume's metadata, as the journal records them.
//!
//! # Format
//! A transaction's payload is a sequence of operations. Each begins with a type byte:
//!
//! ```text
//! 1 create         id u64, kind u8 (1 file, 2 directory), parent u64, modified u64, name
//! 2 link           id u64, parent u64, name
//! 3 unlink         parent u64, name
//! 4 rename         parent u64, name, parent u64, name
//! 5 extend         id u64, size u64, modified u64, extents
//! 6 data           id u64, offset u64, modified u64, extents, length u32, bytes
//! 7 truncate       id u64, size u64, modified u64
//! 8 set modified   id u64, modified u64
//!
//! name             length u8, UTF-8
//! extents          count u32, then for each: start u32, units u32
//! ```

use std::fmt;

use super::extent::Extents;
use super::ids::{InodeId, Kind, Timestamp};
use super::reader::{Reader, kind_byte, push_extents, push_name};
use crate::error::{Error, ErrorKind, Result};

/// One change of metadata; `Data` also carries bytes of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation<'a> {
    /// Makes an empty file or directory.
    Create {
        /// Inode number, never used before.
        id: InodeId,
        /// Kind of the inode.
        kind: Kind,
        /// Directory of the name.
        parent: InodeId,
        /// Name in the directory.
        name: &'a str,
        /// Time of the change.
        modified: Timestamp,
    },
    /// Gives a file another name.
    Link {
        /// The file.
        id: InodeId,
        /// The directory of the new name.
        parent: InodeId,
        /// The new name.
        name: &'a str,
    },
    /// Removes a name of a file, and the file with its last name; or an empty directory.
    Unlink {
        /// The directory of the name.
        parent: InodeId,
        /// The name.
        name: &'a str,
    },
    /// Moves a name. A file may take the place of a file, a directory that of an empty directory. If both
    /// names are the same file's nothing happens.
    Rename {
        /// Directory and name before.
        from: (InodeId, &'a str),
        /// Directory and name after.
        to: (InodeId, &'a str),
    },
    /// All bytes of a file up to `size` are in their final location and on the medium; bytes journaled for it earlier
    /// are void. Never shrinks a file.
    Extend {
        /// The file.
        id: InodeId,
        /// Its size in bytes, from now on.
        size: u64,
        /// Units added at the end of the file.
        extents: Extents<'a>,
        /// Time of the change.
        modified: Timestamp,
    },
    /// Journaled bytes of a file, not written back yet. The file's size becomes at least the end of the bytes.
    Data {
        /// The file.
        id: InodeId,
        /// Offset of the bytes: at most the file's size.
        offset: u64,
        /// The journaled bytes.
        bytes: &'a [u8],
        /// Units added at the end of the file.
        extents: Extents<'a>,
        /// Time of the change.
        modified: Timestamp,
    },
    /// Cuts a file.
    Truncate {
        /// The file.
        id: InodeId,
        /// Its size in bytes, from now on: at most what it was.
        size: u64,
        /// Time of the change.
        modified: Timestamp,
    },
    /// Sets the time of modification.
    SetModified {
        /// A file or directory.
        id: InodeId,
        /// New time of modification.
        modified: Timestamp,
    },
}

impl<'a> Operation<'a> {
    /// Appends the operation to a payload.
    ///
    /// # Panics
    /// If a name has more than 255 bytes, or there are 2^32 bytes or extents in one operation.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match *self {
            Self::Create {
                id,
                kind,
                parent,
                name,
                modified,
            } => {
                push_numbers(bytes, 1, &[id.0]);
                bytes.push(kind_byte(kind));
                bytes.extend_from_slice(&parent.0.to_le_bytes());
                bytes.extend_from_slice(&modified.0.to_le_bytes());
                push_name(bytes, name);
            }
            Self::Link { id, parent, name } => {
                push_numbers(bytes, 2, &[id.0, parent.0]);
                push_name(bytes, name);
            }
            Self::Unlink { parent, name } => {
                push_numbers(bytes, 3, &[parent.0]);
                push_name(bytes, name);
            }
            Self::Rename { from, to } => {
                push_numbers(bytes, 4, &[from.0.0]);
                push_name(bytes, from.1);
                bytes.extend_from_slice(&to.0.0.to_le_bytes());
                push_name(bytes, to.1);
            }
            Self::Extend {
                id,
                size,
                extents,
                modified,
            } => {
                push_numbers(bytes, 5, &[id.0, size, modified.0]);
                push_counted_extents(bytes, extents);
            }
            Self::Data {
                id,
                offset,
                bytes: data,
                extents,
                modified,
            } => {
                push_numbers(bytes, 6, &[id.0, offset, modified.0]);
                push_counted_extents(bytes, extents);
                push_length(bytes, data.len());
                bytes.extend_from_slice(data);
            }
            Self::Truncate { id, size, modified } => {
                push_numbers(bytes, 7, &[id.0, size, modified.0]);
            }
            Self::SetModified { id, modified } => push_numbers(bytes, 8, &[id.0, modified.0]),
        }
    }

    /// Decodes the operation at the front; none if the bytes are invalid.
    fn decode(reader: &mut Reader<'a>) -> Option<Self> {
        let operation = match reader.u8()? {
            1 => Self::Create {
                id: reader.inode_id()?,
                kind: reader.kind()?,
                parent: reader.inode_id()?,
                modified: reader.timestamp()?,
                name: reader.name()?,
            },
            2 => Self::Link {
                id: reader.inode_id()?,
                parent: reader.inode_id()?,
                name: reader.name()?,
            },
            3 => Self::Unlink {
                parent: reader.inode_id()?,
                name: reader.name()?,
            },
            4 => Self::Rename {
                from: (reader.inode_id()?, reader.name()?),
                to: (reader.inode_id()?, reader.name()?),
            },
            5 => Self::Extend {
                id: reader.inode_id()?,
                size: reader.u64()?,
                modified: reader.timestamp()?,
                extents: reader.extents()?,
            },
            6 => Self::Data {
                id: reader.inode_id()?,
                offset: reader.u64()?,
                modified: reader.timestamp()?,
                extents: reader.extents()?,
                bytes: reader.long_bytes()?,
            },
            7 => Self::Truncate {
                id: reader.inode_id()?,
                size: reader.u64()?,
                modified: reader.timestamp()?,
            },
            8 => Self::SetModified {
                id: reader.inode_id()?,
                modified: reader.timestamp()?,
            },
            _ => return None,
        };
        Some(operation)
    }
}

/// Text of the operation, without the data.
impl fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Create {
                id, parent, name, ..
            } => write!(f, "creation of {id} as {name:?} in {parent}"),
            Self::Link { id, parent, name } => write!(f, "link of {id} as {name:?} in {parent}"),
            Self::Unlink { parent, name } => write!(f, "removal of {name:?} in {parent}"),
            Self::Rename { from, to } => write!(
                f,
                "renaming of {:?} in {} to {:?} in {}",
                from.1, from.0, to.1, to.0
            ),
            Self::Extend { id, size, .. } => write!(f, "extension of {id} to {size} bytes"),
            Self::Data {
                id, offset, bytes, ..
            } => write!(f, "{} bytes at {offset} in {id}", bytes.len()),
            Self::Truncate { id, size, .. } => write!(f, "truncation of {id} to {size} bytes"),
            Self::SetModified { id, .. } => write!(f, "time of {id}"),
        }
    }
}

fn push_numbers(bytes: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    bytes.push(tag);
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn push_length(bytes: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("an operation is shorter than 2^32 bytes");
    bytes.extend_from_slice(&length.to_le_bytes());
}

fn push_counted_extents(bytes: &mut Vec<u8>, extents: Extents<'_>) {
    push_length(bytes, extents.len());
    push_extents(bytes, extents);
}

/// Iterator over the operations of a payload. It ends after an error.
#[derive(Clone, Debug)]
pub(crate) struct Operations<'a> {
    reader: Reader<'a>,
}

impl<'a> Operations<'a> {
    /// Those of `payload`.
    pub(crate) const fn new(payload: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(payload),
        }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let operation = Operation::decode(&mut self.reader);
        if operation.is_none() {
            self.reader = Reader::new(&[]);
        }
        Some(operation.ok_or_else(|| {
            Error::new(
                ErrorKind::Corruption,
                "a transaction holds an invalid operation",
            )
        }))
    }
}
