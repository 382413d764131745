//! A file that a copy becomes.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use millrace_blobfs::{File, OpenOptions, Timestamp};

use super::files::Files;
use crate::blobfs::{ToolError, Place, VolumePath};

/// What a file is called on the volume while it is not complete.
const PARTIAL_NAME: &str = ".millrace-cp.partial";

/// A file under another name than it will have. Dropped before it is complete it is removed.
#[derive(Debug)]
pub(super) struct Writing<'f> {
    files: &'f Files<'f>,
    to: Place,
    open: Option<Open>,
}

#[derive(Debug)]
enum Open {
    Host { partial: PathBuf, file: fs::File },
    Volume { partial: VolumePath, file: File },
}

impl<'f> Writing<'f> {
    /// Begins a file that will have about so many bytes.
    pub(super) fn create(
        files: &'f Files<'f>,
        to: &Place,
        bytes: u64,
    ) -> Result<Self, ToolError> {
        let open = match to {
            Place::Host(path) => {
                let name = format!(".millrace-cp.{}.partial", std::process::id());
                let partial = path.with_file_name(name);
                let file = fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&partial);
                let file = file.map_err(|error| ToolError::of_host(&partial, "making", error))?;
                Open::Host { partial, file }
            }
            Place::Volume(path) => {
                let partial = path.parent().join(PARTIAL_NAME);
                // An earlier copy may have ended without removing its own.
                let options = OpenOptions {
                    create: true,
                    truncate: true,
                    ..OpenOptions::default()
                };
                let file = files.mounted.volume.open(partial.as_str(), &options);
                let file = file.map_err(|error| files.mounted.refused(error))?;
                Open::Volume { partial, file }
            }
        };
        let writing = Self {
            files,
            to: to.clone(),
            open: Some(open),
        };
        if let Some(Open::Volume { file, .. }) = &writing.open {
            file.reserve(bytes)
                .map_err(files.mounted.failed(format!("making room for {to}")))?;
        }
        Ok(writing)
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ToolError> {
        match &mut self.open {
            Some(Open::Host { partial, file }) => file
                .write_all(bytes)
                .map_err(|error| ToolError::of_host(partial, "writing", error)),
            Some(Open::Volume { file, .. }) => file
                .append(bytes)
                .map_err(self.files.mounted.failed(format!("writing {}", self.to))),
            None => Ok(()),
        }
    }

    /// Puts it on the medium and gives it its name.
    pub(super) fn finish(mut self, modified: Timestamp) -> Result<(), ToolError> {
        match (&self.open, &self.to) {
            (Some(Open::Host { partial, file }), Place::Host(to)) => {
                let time = UNIX_EPOCH + Duration::from_millis(modified.0);
                file.set_modified(time)
                    .and_then(|()| file.sync_all())
                    .and_then(|()| fs::rename(partial, to))
                    .map_err(|error| ToolError::of_host(to, "completing", error))?;
                self.files.has_changed(to);
                self.open = None;
            }
            (Some(Open::Volume { partial, file }), Place::Volume(to)) => {
                let volume = &self.files.mounted.volume;
                let (partial, to) = (partial.as_str(), to.as_str());
                file.sync()
                    .and_then(|()| volume.set_modified(partial, modified))
                    .and_then(|()| volume.rename(partial, to))
                    .map_err(self.files.mounted.failed(format!("completing {to}")))?;
                self.open = None;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Why it is given up has been said; that it could not be removed is no news then.
        match self.open.take() {
            Some(Open::Host { partial, .. }) => {
                let _ = fs::remove_file(partial);
            }
            Some(Open::Volume { partial, file }) => {
                drop(file);
                let _ = self.files.mounted.volume.remove(partial.as_str());
            }
            None => {}
        }
    }
}
