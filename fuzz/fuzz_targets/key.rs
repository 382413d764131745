//! Bytes that are taken for a key of an index: `cargo +nightly fuzz run key`.

#![no_main]

#[path = "../../database/value/tests/it/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::check_input(bytes));
