//! The path of the library to preload.

use std::env;
use std::path::{Path, PathBuf};

use crate::{ErrorKind, ToolError};

/// The file name of the library.
const NAME: &str = "libmillrace_preload.so";

/// The library that the options name, else the one beside this program.
pub(super) fn find(asked: Option<&Path>) -> Result<PathBuf, ToolError> {
    let candidates = match asked {
        Some(asked) => vec![asked.to_owned()],
        None => {
            let program = env::current_exe().map_err(|error| {
                let context = "reading the path of this program";
                ToolError::new(ErrorKind::System, context)
                    .caused_by(error)
                    .advise("name the library by --library FILE")
            })?;
            beside(&program)
        }
    };
    let found = candidates.iter().find(|candidate| candidate.is_file());
    let Some(found) = found else {
        return Err(missing(&candidates, asked.is_some()));
    };
    let path = found.canonicalize().map_err(|error| {
        let context = format!("resolving {}", found.display());
        ToolError::new(ErrorKind::Library, context).caused_by(error)
    })?;
    // The dynamic linker separates names at both characters, and has no escapes.
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.iter().any(|byte| matches!(byte, b':' | b' ')) {
        let context = format!(
            "{} cannot be preloaded: there is a space or colon in the path",
            path.display()
        );
        return Err(ToolError::new(ErrorKind::Library, context));
    }
    Ok(path)
}

/// The places of the library by default.
fn beside(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let installed = folder.parent().unwrap_or(Path::new("/"));
    vec![folder.join(NAME), installed.join("lib/millrace").join(NAME)]
}

fn missing(candidates: &[PathBuf], asked: bool) -> ToolError {
    let names: Vec<String> = candidates
        .iter()
        .map(|candidate| candidate.display().to_string())
        .collect();
    let error = ToolError::new(
        ErrorKind::Library,
        format!(
            "the library to preload is not at {}",
            names.join(", nor at ")
        ),
    );
    if asked {
        return error;
    }
    error
        .advise("name it by --library FILE")
        .advise("build it by `cargo build --release --package millrace-preload`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_beside_the_program_or_where_libraries_are() {
        let paths = beside(Path::new("/usr/bin/millrace"));
        let expected = [
            "/usr/bin/libmillrace_preload.so",
            "/usr/lib/millrace/libmillrace_preload.so",
        ];
        assert_eq!(paths, expected.map(PathBuf::from));
    }

    #[test]
    fn an_error_says_where_it_was_looked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = folder.path().join("none.so");
        let error = find(Some(&asked)).expect_err("it is not there");
        assert_eq!(error.kind(), ErrorKind::Library);
        assert!(error.to_string().contains("none.so"), "{error}");
        let spaced = folder.path().join("a b.so");
        std::fs::write(&spaced, "").expect("it can be written");
        assert!(find(Some(&spaced)).is_err());
        let plain = folder.path().join("plain.so");
        std::fs::write(&plain, "").expect("it can be written");
        assert!(find(Some(&plain)).expect("it is there").is_absolute());
    }
}
