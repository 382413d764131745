//! Bytes that are taken for a message between a process and its broker: `cargo +nightly fuzz run sockets_control`.

#![no_main]

use millrace_stream::control::Packet;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = Packet::decode(bytes) {
        assert_eq!(packet.encode(), bytes);
    }
});
