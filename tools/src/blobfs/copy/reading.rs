//! A file that is copied.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use millrace_blobfs::{File, OpenOptions};

use super::files::Files;
use crate::blobfs::device::Mounted;
use crate::blobfs::{ToolError, Place, VolumePath};

/// An open file, read from front to back.
#[derive(Debug)]
pub(super) enum Reading<'m> {
    Host {
        path: PathBuf,
        file: fs::File,
    },
    Volume {
        mounted: &'m Mounted,
        path: VolumePath,
        file: File,
        offset: u64,
    },
}

impl<'m> Reading<'m> {
    /// Opens a file.
    pub(super) fn open(files: &Files<'m>, place: &Place) -> Result<Self, ToolError> {
        match place {
            Place::Host(path) => {
                let file = fs::File::open(path);
                Ok(Self::Host {
                    file: file.map_err(|error| ToolError::of_host(path, "opening", error))?,
                    path: path.clone(),
                })
            }
            Place::Volume(path) => {
                let mounted = files.mounted;
                let file = mounted.volume.open(path.as_str(), &OpenOptions::default());
                Ok(Self::Volume {
                    mounted,
                    file: file.map_err(|error| mounted.refused(error))?,
                    path: path.clone(),
                    offset: 0,
                })
            }
        }
    }

    /// Fills `out` as far as there is something; returns how much. Nothing means the end.
    pub(super) fn next(&mut self, out: &mut [u8]) -> Result<usize, ToolError> {
        match self {
            Self::Host { path, file } => {
                fill(file, out).map_err(|error| ToolError::of_host(path, "reading", error))
            }
            Self::Volume {
                mounted,
                path,
                file,
                offset,
            } => {
                let read = file
                    .read_at(*offset, out)
                    .map_err(mounted.failed(format!("reading {path} from byte {offset} on")))?;
                *offset += read as u64;
                Ok(read)
            }
        }
    }
}

fn fill(file: &mut fs::File, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
