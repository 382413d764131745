//! Millrace's file system in the process, as plain C.
//!
//! # Purpose
//! Programs in C and C++ use a [volume](millrace_blobfs::Volume) through `include/millrace_blobfs.h`, whose text is
//! the reference: ownership, threads and errors are explained there. The functions here carry the same names.
//! `cargo rustc -p millrace-blobfs-c --crate-type staticlib` makes a library for a linker; inside a program in
//! Rust, [`VolumeHandle::into_raw`] hands an open volume to code in C.
//!
//! # The edge of a process
//! blobfs reads no clock and no random source. [`millrace_blobfs_open`] is called by programs without
//! a clock and random source of their own, so it takes the system's clock, and a random name for a volume that it formats.
//!
//! # Failures
//! A function returns a [`Code`] and explains it in a structure of the caller's. Nothing unwinds into C: a panic
//! ends in the function, comes back as [`Code::Panic`], and the volume rejects all later calls, because
//! its state after the panic is unknown.
//!
//! # Cost
//! A call costs a catch of panics (nothing, if there is none), a check of the volume's health (one load) and a
//! check of each pointer. Data is copied by blobfs, once, and not again here.
//!
//! # Example
//! ```
//! use std::ptr;
//! use millrace_blobfs_c::{
//!     OpenOptions, millrace_blobfs_append, millrace_blobfs_close, millrace_blobfs_file_close,
//!     millrace_blobfs_file_open, millrace_blobfs_file_sync, millrace_blobfs_open,
//! };
//!
//! let spec = "mem:16M";
//! let options = OpenOptions { format: 1, ..OpenOptions::default() };
//! let (mut volume, mut file) = (ptr::null_mut(), ptr::null_mut());
//! # // SAFETY: all pointers are those of variables that stay, the handles are given back once.
//! unsafe {
//!     let code = millrace_blobfs_open(
//!         spec.as_ptr().cast(), spec.len(), &options, &mut volume, ptr::null_mut(),
//!     );
//!     assert_eq!(code, 0);
//!     let path = "/greeting";
//!     let (create, none) = (1, ptr::null_mut());
//!     let code = millrace_blobfs_file_open(
//!         volume, path.as_ptr().cast(), path.len(), create, &mut file, none,
//!     );
//!     assert_eq!(code, 0);
//!     assert_eq!(millrace_blobfs_append(file, "hello".as_ptr().cast(), 5, none), 0);
//!     assert_eq!(millrace_blobfs_file_sync(file, none), 0);
//!     millrace_blobfs_file_close(file);
//!     millrace_blobfs_close(volume);
//! }
//! ```

mod blank;
mod boundary;
mod code;
mod file;
mod names;
mod open;
mod read;
mod volume;

pub use blank::is_blank;
pub use code::{CError, Code};
pub use file::{
    CPart, FileHandle, millrace_blobfs_append, millrace_blobfs_file_close,
    millrace_blobfs_file_open, millrace_blobfs_file_size, millrace_blobfs_file_status,
    millrace_blobfs_file_sync, millrace_blobfs_read_ahead, millrace_blobfs_read_at,
    millrace_blobfs_read_many, millrace_blobfs_reserve, millrace_blobfs_truncate,
    millrace_blobfs_write_at, millrace_blobfs_write_behind,
};
pub use names::{
    CEntry, CStatus, ListingHandle, LockHandle, millrace_blobfs_create_dir,
    millrace_blobfs_get_status, millrace_blobfs_link, millrace_blobfs_listing_free,
    millrace_blobfs_listing_get, millrace_blobfs_listing_length, millrace_blobfs_lock_file,
    millrace_blobfs_read_dir, millrace_blobfs_remove, millrace_blobfs_remove_dir,
    millrace_blobfs_rename, millrace_blobfs_set_modified, millrace_blobfs_unlock,
};
pub use read::{
    ReadHandle, millrace_blobfs_read_free, millrace_blobfs_read_poll, millrace_blobfs_read_start,
    millrace_blobfs_read_wait,
};
pub use volume::{
    CCounters, CSpace, OpenOptions, VolumeHandle, millrace_blobfs_block_bytes,
    millrace_blobfs_close, millrace_blobfs_get_counters, millrace_blobfs_get_space,
    millrace_blobfs_open, millrace_blobfs_sync, millrace_blobfs_unmount,
};
