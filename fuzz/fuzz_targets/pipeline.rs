//! A pipeline and the documents it runs over: `cargo +nightly fuzz run pipeline`.

#![no_main]

#[path = "../../database/document/tests/exercise_pipeline/mod.rs"]
mod exercise_pipeline;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise_pipeline::run(bytes);
});
