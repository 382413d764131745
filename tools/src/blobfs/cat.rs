//! `millrace blobfs cat`.

use std::io::Write;

use millrace_blobfs::OpenOptions;

use super::device::{Access, Mounted};
use super::{ToolError, CatOptions, ErrorKind};

/// So many bytes are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// The command.
pub(super) fn run(options: &CatOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let mounted = Mounted::open(&options.spec, Access::Read)?;
    let path = &options.path;
    let file = mounted.volume.open(path.as_str(), &OpenOptions::default());
    let file = file.map_err(|error| mounted.refused(error))?;
    let mut offset = options.offset.0;
    if offset > file.size() {
        let context = format!("{path} has {} bytes: none from {offset} on", file.size());
        return Err(ToolError::new(ErrorKind::Usage, context));
    }
    let mut left = options.length.map_or(u64::MAX, |length| length.0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let read = file
            .read_at(offset, &mut piece[..wanted])
            .map_err(mounted.failed(format!("reading {path} from byte {offset} on")))?;
        if read == 0 {
            return out.flush().map_err(ToolError::output);
        }
        out.write_all(&piece[..read]).map_err(ToolError::output)?;
        offset += read as u64;
        left -= read as u64;
    }
}
