//! How deep filters may nest.

use millrace_value::{Error, ErrorCode, Result};

/// How deep a filter may nest.
pub const DEPTH_MAX: usize = 200;

/// Refuses what nests deeper than [`DEPTH_MAX`]; the parser and the matcher recurse that deep.
pub(crate) fn check_depth(depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Error::new(
            ErrorCode::BadValue,
            format!("exceeded maximum query tree depth: {DEPTH_MAX}"),
        ));
    }
    Ok(())
}
