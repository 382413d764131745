//! What VFIO, or a server, says of a region or of an address space: `cargo +nightly fuzz run pci_described`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_pci::exercise::described(bytes));
