//! Compiles the barriers of POWER, which stable Rust 1.85 cannot say.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/machine.c");
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture == "powerpc64") {
        cc::Build::new()
            .file("src/machine.c")
            .warnings_into_errors(true)
            .compile("millrace_window_machine");
    }
}
