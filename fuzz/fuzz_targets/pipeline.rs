//! A pipeline and the documents it runs over: `cargo +nightly fuzz run pipeline`.

#![no_main]

#[path = "../../database/pipeline/tests/it/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::run(bytes);
});
