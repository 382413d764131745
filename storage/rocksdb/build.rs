//! Compiles the forgetful file system, the one piece of C++ of our own.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=cc");
    let sources = env::var("DEP_ROCKSDB_CARGO_MANIFEST_DIR")
        .expect("librocksdb-sys tells its dependents where its sources are");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .include(Path::new(&sources).join("rocksdb/include"))
        // The layout of RocksDB's classes must be that of the library: no assertions, and no type
        // information that the library may have been compiled without.
        .define("NDEBUG", None)
        .flag("-fno-rtti")
        .flag("-Wno-unused-parameter")
        .file("cc/forgetful_fs.cc")
        .compile("millrace_forgetful_fs");
    // A prebuilt RocksDB brings no request for the C++ library along; `cc` requests it for our own file,
    // which is what both need.
}
