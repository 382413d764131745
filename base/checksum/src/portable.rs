//! Machines with none of the instructions that are known here: tables.

pub(crate) use crate::table::extend;

/// Name of the implementation; see [`crate::implementation`].
pub(crate) fn implementation() -> &'static str {
    "tables, eight bytes a step"
}
