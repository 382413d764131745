//! A document and an update of it: `cargo +nightly fuzz run update`.

#![no_main]

#[path = "../../database/update/tests/it/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::apply(bytes);
});
