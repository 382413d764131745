//! What an index is: its specification, its keys, its entries in the engine.
//!
//! # How a document gets into an index
//! ```text
//!  document --IndexKeys::of--> fields + type bits, one or more  --IndexEntry--> engine key and value
//!               ^                                                   ^
//!           IndexSpec (which fields, in which direction)        ident, record id
//! ```
//! Everything here is a pure function: the catalog keeps specifications, the write path keeps entries.

mod entry;
mod keys;
mod partial_filter;
mod spec;
mod spec_options;

pub use entry::IndexEntry;
pub use keys::{IndexKey, IndexKeys};
pub use spec::{Compatibility, FieldKind, IndexField, IndexSpec};
