//! Compiles the C++ of our own: the file systems that RocksDB can be given.

use std::env;
use std::path::Path;

/// The file system for tests of the engine and the server.
const SOURCES: &[&str] = &["cc/unsynced_loss_fs.cc"];

/// What the feature `blobfs` adds. The registration by URI (`blobfs_registration.cc`) is for programs of RocksDB's
/// own, which are linked elsewhere.
const BLOBFS_SOURCES: &[&str] = &[
    "cc/blobfs_env.cc",
    "cc/blobfs_files.cc",
    "cc/blobfs_fs.cc",
    "cc/blobfs_status.cc",
];

fn main() {
    println!("cargo:rerun-if-changed=cc");
    println!("cargo:rerun-if-changed=../blobfs-c/include");
    let sources = env::var("DEP_ROCKSDB_CARGO_MANIFEST_DIR")
        .expect("librocksdb-sys tells its dependents where its sources are");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .include(Path::new(&sources).join("rocksdb/include"))
        .include("../blobfs-c/include")
        // The layout of RocksDB's classes must be that of the library: no assertions, and no type
        // information that the library may have been compiled without.
        .define("NDEBUG", None)
        .flag("-fno-rtti")
        .flag("-Wno-unused-parameter")
        .files(SOURCES);
    if env::var_os("CARGO_FEATURE_BLOBFS").is_some() {
        build.files(BLOBFS_SOURCES);
    }
    build.compile("millrace_file_systems");
    // A prebuilt RocksDB brings no request for the C++ library along; `cc` requests it for our own files,
    // which is what both need.
}
