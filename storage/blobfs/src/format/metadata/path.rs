//! Path resolution.

use super::Metadata;
use crate::format::ids::InodeId;
use crate::format::inconsistency::Inconsistency;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Checks that an entry may have this name.
///
/// # Errors
/// [`Inconsistency::BadName`], [`Inconsistency::NameTooLong`].
pub(crate) fn check_name(name: &str) -> Result<(), Inconsistency> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Inconsistency::NameTooLong);
    }
    if matches!(name, "" | "." | "..") || name.bytes().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Inconsistency::BadName);
    }
    Ok(())
}

impl Metadata {
    /// Inode of a path from the root. Repeated slashes count as one, a leading slash is optional; `.` and `..` have
    /// their POSIX meaning.
    ///
    /// # Errors
    /// [`Inconsistency::NotFound`], [`Inconsistency::NotDirectory`], [`Inconsistency::BadName`],
    /// [`Inconsistency::NameTooLong`], [`Inconsistency::PathTooLong`].
    pub(crate) fn resolve(&self, path: &str) -> Result<InodeId, Inconsistency> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Inconsistency::PathTooLong);
        }
        let mut id = InodeId::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let directory = self.inode(id)?;
            let (Some(entries), Some(parent)) = (directory.entries(), directory.parent()) else {
                return Err(Inconsistency::NotDirectory);
            };
            id = match (name, entries.get(name)) {
                (".", _) => id,
                ("..", _) => parent,
                (_, Some(found)) => *found,
                (_, None) => {
                    check_name(name)?;
                    return Err(Inconsistency::NotFound);
                }
            };
        }
        if path.ends_with('/') && self.children(id).is_err() {
            return Err(Inconsistency::NotDirectory);
        }
        Ok(id)
    }

    /// Parent directory, which must exist, and last name of a path, which need not exist.
    ///
    /// # Errors
    /// As [`Metadata::resolve`]; [`Inconsistency::BadName`] if the path names the root or ends in
    /// `.` or `..`.
    pub(crate) fn locate<'p>(&self, path: &'p str) -> Result<(InodeId, &'p str), Inconsistency> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Inconsistency::PathTooLong);
        }
        let trimmed = path.trim_end_matches('/');
        let (directory, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
        let parent = self.resolve(directory)?;
        self.children(parent)?;
        check_name(name)?;
        Ok((parent, name))
    }
}
