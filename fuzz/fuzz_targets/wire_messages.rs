//! Bytes as they may arrive on a connection: `cargo +nightly fuzz run wire_messages`.

#![no_main]

#[path = "../../database/wire/tests/it/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::receive(bytes));
