//! A document and an update of it: `cargo +nightly fuzz run update`.

#![no_main]

#[path = "../../database/document/tests/exercise_update/mod.rs"]
mod exercise_update;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise_update::apply(bytes);
});
