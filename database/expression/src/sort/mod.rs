//! Sorting: patterns, sort keys, an external sort.
//!
//! A sort key is a string of bytes whose order is the order of the pattern (see [`millrace_value::key`]), so
//! that sorting, merging and keeping the first *n* compare bytes and never look at documents again.

mod external;
mod node;
mod pattern;

pub use external::{ExternalSort, SortItem, Sorted, Sorter};
pub use pattern::{SortField, SortPattern, SortSource};
