//! The header says what the library does: it compiles as C and as C++, and its structures and numbers are those
//! of the crate.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use millrace_blobfs_c::{CCounters, CEntry, CError, CPart, CSpace, CStatus, Code, OpenOptions};

/// A check of the size of a structure and the places of its fields.
macro_rules! layout {
    ($out:ident, $c:literal, $rust:ty, $($field:ident),+) => {
        let _ = writeln!($out, "CHECK(sizeof({}) == {});", $c, size_of::<$rust>());
        $(let _ = writeln!(
            $out,
            "CHECK(offsetof({}, {}) == {});",
            $c,
            stringify!($field),
            offset_of!($rust, $field)
        );)+
    };
}

/// The codes by their names in the header.
const CODES: [(&str, Code); 19] = [
    ("OK", Code::Ok),
    ("NOT_FOUND", Code::NotFound),
    ("EXISTS", Code::Exists),
    ("NOT_DIRECTORY", Code::NotDirectory),
    ("IS_DIRECTORY", Code::IsDirectory),
    ("NOT_EMPTY", Code::NotEmpty),
    ("INVALID_PATH", Code::InvalidPath),
    ("INVALID", Code::Invalid),
    ("NO_SPACE", Code::NoSpace),
    ("IN_USE", Code::InUse),
    ("READ_ONLY", Code::ReadOnly),
    ("POISONED", Code::Poisoned),
    ("IO", Code::Io),
    ("CORRUPTION", Code::Corruption),
    ("NOT_A_VOLUME", Code::NotAVolume),
    ("NEWER_FORMAT", Code::NewerFormat),
    ("MEMORY", Code::Memory),
    ("UNSUPPORTED", Code::Unsupported),
    ("PANIC", Code::Panic),
];

/// A program that compiles if the header agrees with the crate.
fn source() -> String {
    let mut out = String::from(
        "#include \"millrace_blobfs.h\"\n#ifdef __cplusplus\n#define CHECK(x) static_assert(x, #x)\n#else\n\
         #define CHECK(x) _Static_assert(x, #x)\n#endif\n",
    );
    layout!(out, "millrace_blobfs_error", CError, code, message);
    layout!(
        out,
        "millrace_blobfs_open_options",
        OpenOptions,
        format,
        read_only,
        arena_bytes
    );
    layout!(
        out,
        "millrace_blobfs_space",
        CSpace,
        total_bytes,
        free_bytes,
        metadata_bytes,
        files
    );
    layout!(
        out,
        "millrace_blobfs_counters",
        CCounters,
        reads,
        read_bytes,
        writes,
        write_bytes,
        syncs,
        transactions,
        journal_bytes,
        flushes,
        checkpoints,
        checkpoint_bytes,
        discarded_units
    );
    layout!(
        out,
        "millrace_blobfs_status",
        CStatus,
        id,
        size,
        allocated_bytes,
        modified_ms,
        links,
        kind
    );
    layout!(
        out,
        "millrace_blobfs_entry",
        CEntry,
        name,
        name_length,
        id,
        kind
    );
    layout!(
        out,
        "millrace_blobfs_part",
        CPart,
        offset,
        out,
        length,
        read,
        code
    );
    for (name, code) in CODES {
        let _ = writeln!(out, "CHECK(MILLRACE_BLOBFS_{name} == {});", code as i32);
    }
    out.push_str("int main(void) { return 0; }\n");
    out
}

fn compile(compiler: &str, language: &str, standard: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("header");
    std::fs::write(&file, source()).expect("the folder is ours");
    let output = Command::new(compiler)
        .args([
            "-x",
            language,
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ])
        .arg("-fsyntax-only")
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(&file)
        .output()
        .expect("the compiler that builds RocksDB is there");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn the_header_is_c_and_agrees_with_the_crate() {
    compile("cc", "c", "-std=c11");
}

#[test]
fn the_header_is_cpp_and_agrees_with_the_crate() {
    compile("c++", "c++", "-std=c++17");
}

#[test]
fn the_header_declares_every_function_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(folder.join("include/millrace_blobfs.h"))
        .expect("the header is there");
    let mut declared: Vec<&str> = names_before_brackets(&header).collect();
    let mut defined = Vec::new();
    let sources: Vec<String> = ["file", "names", "read", "volume"]
        .iter()
        .map(|name| folder.join("src").join(name).with_extension("rs"))
        .map(|path| std::fs::read_to_string(path).expect("the source is there"))
        .collect();
    for source in &sources {
        let functions = source.split("extern \"C\" fn ").skip(1);
        defined.extend(functions.filter_map(|text| text.split('(').next()));
    }
    declared.sort_unstable();
    declared.dedup();
    defined.sort_unstable();
    assert_eq!(declared, defined);
}

/// The functions that a text declares.
fn names_before_brackets(text: &str) -> impl Iterator<Item = &str> {
    text.split('(')
        .filter_map(|before| before.rsplit([' ', '*', '\n']).next())
        .filter(|name| name.starts_with("millrace_blobfs_"))
}
