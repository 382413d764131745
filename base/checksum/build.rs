//! Compiles the vector code for POWER. Other machines need no C compiler.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=cc");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("ARCH") == "powerpc64" && target("ENDIAN") == "little" {
        cc::Build::new()
            .std("c11")
            // The oldest machine with the instruction; it is called only where the kernel reports that.
            .flag("-mcpu=power8")
            // A checksum that is not optimised makes the tests of all that lies above it crawl.
            .opt_level(2)
            .file("cc/vpmsum.c")
            .compile("millrace_checksum");
    }
}
