//! A controller that fails and lies, and a driver that uses it: `cargo +nightly fuzz run nvme_controller`.

#![no_main]

#[path = "../../device/nvme/tests/it/exercise_controller/mod.rs"]
mod exercise_controller;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise_controller::drive(bytes));
