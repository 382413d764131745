//! Identify data and log pages as a controller may return them: `cargo +nightly fuzz run nvme_identify`.

#![no_main]

#[path = "../../device/nvme/tests/it/exercise_parsing.rs"]
mod exercise_parsing;

use millrace_nvme::spec::identify::IDENTIFY_SIZE;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise_parsing::parse_all(bytes);
    // Short inputs are tried as the beginning of a whole structure too.
    if bytes.len() < IDENTIFY_SIZE {
        let mut whole = bytes.to_vec();
        whole.resize(IDENTIFY_SIZE, 0);
        exercise_parsing::parse_all(&whole);
    }
});
