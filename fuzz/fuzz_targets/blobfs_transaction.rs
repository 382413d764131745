//! Bytes that are taken for a transaction of the journal: `cargo +nightly fuzz run blobfs_transaction`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_blobfs::exercise::transaction(bytes));
