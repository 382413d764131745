//! How much intermediate values hold, and how deep they are nested.

use std::borrow::Cow;
use std::cell::Cell;

use bson::Bson;
use millrace_value::{Error, ErrorCode, Result};

use super::{DEPTH_MAX, VALUE_BYTES_MAX, Value};

pub(crate) use millrace_value::size::value_bytes;

/// What one field takes beside its name and its value: the name's header, its hash, its place in the
/// index.
const FIELD_BYTES: usize = size_of::<String>() + 2 * size_of::<usize>();

/// Counts the bytes of values while they are held, and gives them back when it is dropped.
///
/// Several meters are alive at once when expressions nest, one within the other. They share one counter,
/// so that the limit holds for the sum of all values that are held at a moment; a meter remembers what
/// the counter was when it began.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    live_bytes: &'a Cell<usize>,
    bytes_before: usize,
    bytes_max: usize,
}

impl<'a> Meter<'a> {
    pub(super) fn new(live_bytes: &'a Cell<usize>, bytes_max: usize) -> Self {
        Self {
            live_bytes,
            bytes_before: live_bytes.get(),
            bytes_max,
        }
    }

    /// Counts `bytes` more.
    pub(super) fn add(&self, bytes: usize) -> Result<()> {
        count(self.live_bytes, bytes, self.bytes_max)
    }

    /// Counts a value that is to be held; one that is borrowed takes nothing.
    pub(super) fn hold<'v>(&self, value: Value<'v>) -> Result<Value<'v>> {
        if let Some(Cow::Owned(value)) = &value {
            self.add(value_bytes(value))?;
        }
        Ok(value)
    }

    /// Counts `bytes` in place of everything counted so far.
    pub(super) fn replace(&self, bytes: usize) -> Result<()> {
        self.live_bytes.set(self.bytes_before);
        self.add(bytes)
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.live_bytes.set(self.bytes_before);
    }
}

/// Adds to the counter of live bytes.
pub(super) fn count(live_bytes: &Cell<usize>, bytes: usize, bytes_max: usize) -> Result<()> {
    let live = live_bytes.get().saturating_add(bytes);
    if live <= bytes_max {
        live_bytes.set(live);
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::ExceededMemoryLimit,
        format!(
            "expression used too much memory and cannot spill to disk. Memory limit: \
             {VALUE_BYTES_MAX} bytes"
        ),
    ))
}

/// About how many bytes a field of an object takes in memory.
pub(super) fn field_bytes(name: &str, value: &Bson) -> usize {
    FIELD_BYTES + name.len() + value_bytes(value)
}

/// Refuses a value that is nested more deeply than a document may be.
pub(super) fn check_depth(value: &Bson) -> Result<()> {
    if within_depth(value, DEPTH_MAX) {
        return Ok(());
    }
    Err(too_deep())
}

pub(super) fn too_deep() -> Error {
    Error::new(
        ErrorCode::Overflow,
        format!(
            "cannot convert document to BSON because it exceeds the limit of {DEPTH_MAX} levels of nesting"
        ),
    )
}

fn within_depth(value: &Bson, levels: usize) -> bool {
    match value {
        Bson::Array(_) | Bson::Document(_) if levels == 0 => false,
        Bson::Array(items) => items.iter().all(|item| within_depth(item, levels - 1)),
        Bson::Document(document) => document.values().all(|item| within_depth(item, levels - 1)),
        _ => true,
    }
}
