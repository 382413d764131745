//! Bytes that are taken for a process's slab: `cargo +nightly fuzz run sockets_slab`.

#![no_main]

use millrace_stream::slab::{SIZE, Totals, ends, used};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert!(used(bytes).is_none_or(|used| used <= SIZE));
    let live = ends(bytes).count() as u64;
    assert!(Totals::read(bytes).is_none_or(|totals| totals.live == live));
});
