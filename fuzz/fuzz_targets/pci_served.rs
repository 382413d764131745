//! A server of vfio-user that answers anything: `cargo +nightly fuzz run pci_served`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_pci::exercise::served(bytes));
