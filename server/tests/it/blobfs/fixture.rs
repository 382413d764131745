//! A folder to run the binary in.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Instant;

use millrace_block::{Device, OpenOptions, Spec};
use serde_json::Value;
use tempfile::TempDir;

/// The device of most tests.
pub(crate) const IMAGE: &str = "./disk.img";

/// A folder that goes with the test.
pub(crate) struct Fixture {
    folder: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::with_prefix("millrace-").expect("a temporary folder"),
        }
    }

    /// The same with an empty volume of 32 MiB.
    pub(crate) fn with_volume() -> Self {
        let fixture = Self::new();
        fixture.ok("mkfs ./disk.img --size 32M");
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a file of the host, and the folders above it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        let folder = path.parent().expect("it is in the folder");
        fs::create_dir_all(folder).expect("the folder is ours");
        fs::write(path, bytes).expect("the folder is ours");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect(name)
    }

    /// Runs a command whose arguments have no spaces in them.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.run_all(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_all(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg("blobfs")
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .expect("the binary starts")
    }

    /// What a command prints that ends well and says nothing on the standard error.
    pub(crate) fn ok(&self, line: &str) -> String {
        self.ends_with(line, 0)
    }

    /// What a command prints that ends with this number and says nothing on the standard error.
    pub(crate) fn ends_with(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {text}{error}");
        assert_eq!(error, "", "{line}");
        text
    }

    /// The JSON that a command prints.
    pub(crate) fn json(&self, line: &str) -> Value {
        parse(&self.ok(&format!("{line} --json")))
    }

    /// What a command says on the standard error that fails with this number and prints nothing.
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}: {text}{error}");
        assert_eq!(text, "", "{line}: {error}");
        error
    }

    /// Opens the image in this process.
    pub(crate) fn open(&self) -> Arc<dyn Device> {
        let spec: Spec = format!("file:{}", self.path(IMAGE).display())
            .parse()
            .expect("a path");
        let opened = spec.open(&OpenOptions::new(Instant::now()));
        opened.expect("nobody has it")
    }
}

/// So many bytes that do not repeat soon.
pub(crate) fn bytes(count: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| (at / 251 + at + seed) % 251;
    (0..count)
        .map(|at| u8::try_from(byte(at)).expect("less than 251"))
        .collect()
}

pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}
