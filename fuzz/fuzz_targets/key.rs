//! Bytes that are taken for a key of an index: `cargo +nightly fuzz run key`.

#![no_main]

#[path = "../../database/document/tests/exercise_key/mod.rs"]
mod exercise_key;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise_key::check_input(bytes));
