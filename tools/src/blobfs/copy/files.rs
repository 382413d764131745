//! The files of host and volume under one set of calls.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use millrace_blobfs::{Kind, Timestamp};

use crate::blobfs::device::{Mounted, timestamp};
use crate::blobfs::{ToolError, ErrorKind, Place};

/// What is at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    File {
        bytes: u64,
        modified: Timestamp,
    },
    Directory,
    /// What a volume cannot have.
    Special(&'static str),
}

/// Whether a symbolic link of the host stands for what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    Follow,
    Show,
}

/// The host's files and those of a volume.
#[derive(Debug)]
pub(super) struct Files<'m> {
    pub(super) mounted: &'m Mounted,
    /// Folders of the host in which names were changed.
    changed: RefCell<BTreeSet<PathBuf>>,
}

impl<'m> Files<'m> {
    pub(super) fn new(mounted: &'m Mounted) -> Self {
        Self {
            mounted,
            changed: RefCell::default(),
        }
    }

    /// What is there, if anything.
    pub(super) fn look(&self, place: &Place, links: Links) -> Result<Option<Found>, ToolError> {
        match place {
            Place::Host(path) => look_host(path, links),
            Place::Volume(path) => {
                let status = match self.mounted.volume.status(path.as_str()) {
                    Ok(status) => status,
                    Err(error) if error.kind() == millrace_blobfs::ErrorKind::NotFound => {
                        return Ok(None);
                    }
                    Err(error) => {
                        return Err(self.mounted.refused(error));
                    }
                };
                Ok(Some(match status.kind {
                    Kind::Directory => Found::Directory,
                    Kind::File => Found::File {
                        bytes: status.size,
                        modified: status.modified,
                    },
                }))
            }
        }
    }

    /// What is in a directory, by name.
    pub(super) fn entries(&self, place: &Place) -> Result<Vec<Place>, ToolError> {
        match place {
            Place::Host(path) => {
                let names = |path: &Path| {
                    let entries = fs::read_dir(path)?;
                    let paths = entries.map(|entry| Ok(entry?.path()));
                    paths.collect::<io::Result<Vec<_>>>()
                };
                let mut paths =
                    names(path).map_err(|error| ToolError::of_host(path, "listing", error))?;
                paths.sort_unstable();
                Ok(paths.into_iter().map(Place::Host).collect())
            }
            Place::Volume(path) => {
                let entries = self.mounted.volume.read_dir(path.as_str());
                let entries = entries.map_err(|error| self.mounted.refused(error))?;
                let places = entries.iter().map(|entry| path.join(&entry.name));
                Ok(places.map(Place::Volume).collect())
            }
        }
    }

    /// The place of what has the name of `named` in a directory; the directory itself if `named` has none,
    /// as roots and "." have not.
    pub(super) fn within(&self, directory: &Place, named: &Place) -> Result<Place, ToolError> {
        let Some(name) = name_of(named) else {
            return Ok(directory.clone());
        };
        match (directory, name.to_str()) {
            (Place::Host(directory), _) => Ok(Place::Host(directory.join(name))),
            (Place::Volume(directory), Some(name)) => Ok(Place::Volume(directory.join(name))),
            (Place::Volume(_), None) => {
                let context = format!("{named} has a name that is no UTF-8");
                Err(ToolError::new(ErrorKind::Host, context)
                    .advise("rename it: the names on a volume are UTF-8"))
            }
        }
    }

    /// The directory that a place is in.
    pub(super) fn above(place: &Place) -> Place {
        match place {
            Place::Host(path) => Place::Host(folder_of(path).to_owned()),
            Place::Volume(path) => Place::Volume(path.parent()),
        }
    }

    /// Makes a directory; one of the host for its owner alone.
    pub(super) fn make_directory(&self, place: &Place) -> Result<(), ToolError> {
        match place {
            Place::Host(path) => {
                let made = DirBuilder::new().mode(0o700).create(path);
                made.map_err(|error| ToolError::of_host(path, "making", error))?;
                self.has_changed(path);
                Ok(())
            }
            Place::Volume(path) => {
                let made = self.mounted.volume.create_dir(path.as_str());
                made.map_err(|error| self.mounted.refused(error))
            }
        }
    }

    /// Remembers that the folder of `path` has another name in it.
    pub(super) fn has_changed(&self, path: &Path) {
        let mut changed = self.changed.borrow_mut();
        changed.insert(folder_of(path).to_owned());
    }

    /// Puts on the medium which names there are in the folders of the host.
    pub(super) fn sync_host(&self) -> Result<(), ToolError> {
        for folder in self.changed.take() {
            let synced = fs::File::open(&folder).and_then(|open| match open.sync_all() {
                // Some file systems have nothing to do here, and say it so.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            });
            synced.map_err(|error| ToolError::of_host(&folder, "syncing", error))?;
        }
        Ok(())
    }
}

/// The last part of a path, unless it stands for what is in a directory.
fn name_of(place: &Place) -> Option<&OsStr> {
    match place {
        Place::Host(path) if path.as_os_str().as_bytes().ends_with(b"/.") => None,
        Place::Host(path) => path.file_name(),
        Place::Volume(path) => path.name().map(OsStr::new),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        // A name alone.
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    }
}

fn look_host(path: &Path, links: Links) -> Result<Option<Found>, ToolError> {
    let failed = |error| ToolError::of_host(path, "looking at", error);
    let shown = match fs::symlink_metadata(path) {
        Ok(shown) => shown,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = if shown.is_symlink() {
        match (links, fs::metadata(path)) {
            (Links::Follow, Ok(metadata)) => metadata,
            (Links::Follow, Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => return Ok(Some(Found::Special("a symbolic link"))),
        }
    } else {
        shown
    };
    Ok(Some(if metadata.is_dir() {
        Found::Directory
    } else if metadata.is_file() {
        Found::File {
            bytes: metadata.len(),
            modified: metadata.modified().map(timestamp).map_err(failed)?,
        }
    } else {
        Found::Special("neither a file nor a directory")
    }))
}
