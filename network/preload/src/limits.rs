//! Limits that several tables share.

/// Number of descriptor numbers that the tables cover: 2^20. A higher number is never a user-level descriptor.
pub(crate) const NUMBERS: usize = 1 << 20;
