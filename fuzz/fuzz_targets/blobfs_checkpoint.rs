//! Bytes that are taken for the records of a checkpoint: `cargo +nightly fuzz run blobfs_checkpoint`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_blobfs::exercise::checkpoint(bytes));
