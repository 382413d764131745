//! Bytes that are taken for a superblock: `cargo +nightly fuzz run blobfs_superblock`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_blobfs::exercise::superblock(bytes));
