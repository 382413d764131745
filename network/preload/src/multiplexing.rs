//! What waiting on many descriptors must be told.

use std::ffi::c_int;

use crate::entry::Entry;

/// The last number of an entry goes: sets have no interest in it any more.
pub(crate) const fn forget(_entry: &'static Entry) {}

/// A number that sets may watch as the kernel's has become this entry's.
pub(crate) const fn moved(_fd: c_int, _entry: &'static Entry) {}

/// What other threads of this process sleep for may be there.
pub(crate) const fn broadcast(_entry: &'static Entry) {}

/// In the child of a fork: the threads that slept are not there.
pub(crate) const fn forked() {}
