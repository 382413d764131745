//! `millrace blobfs dump`: all metadata, also of a damaged volume.

use std::io::Write;

use super::{BlobfsError, DumpOptions, device};

/// The command.
pub(super) fn run(options: &DumpOptions, out: &mut dyn Write) -> Result<(), BlobfsError> {
    let device = device::open(&options.spec)?;
    let mut text = Vec::new();
    millrace_blobfs::dump(&device, &mut text)
        .map_err(|source| BlobfsError::of_volume(&options.spec, "reading the metadata", source))?;
    out.write_all(&text)
        .and_then(|()| out.flush())
        .map_err(BlobfsError::output)
}
