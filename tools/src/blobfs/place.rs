//! How files are named on the command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A path on the volume: its parts, from the root down.
///
/// ```
/// use millrace_tools::blobfs::VolumePath;
///
/// let path: VolumePath = ":db//./CURRENT".parse()?;
/// assert_eq!(path.to_string(), "/db/CURRENT");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumePath(String);

impl VolumePath {
    /// The text that the volume takes: `/`, or a path without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part, which the root does not have.
    pub(super) fn name(&self) -> Option<&str> {
        let name = self.0.rsplit('/').next();
        name.filter(|name| !name.is_empty())
    }

    /// The path of something in this directory.
    pub(super) fn join(&self, name: &str) -> Self {
        Self(format!("{}/{name}", self.0.trim_end_matches('/')))
    }

    /// The directory that it is in; the root is in itself.
    pub(super) fn parent(&self) -> Self {
        match self.0.rsplit_once('/') {
            None | Some(("", _)) => Self("/".to_owned()),
            Some((parent, _)) => Self(parent.to_owned()),
        }
    }

    /// Whether this is `other`, or in it, or further below.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let rest = self.0.strip_prefix(other.0.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl FromStr for VolumePath {
    type Err = String;

    /// Reads a path from the root, with or without ':' and '/' before it. ".." goes up, in the root nowhere.
    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix(':').unwrap_or(text);
        if path.is_empty() {
            return Err("an empty path; the root directory is /".to_owned());
        }
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        Ok(Self(format!("/{}", parts.join("/"))))
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The host's.
    Host(PathBuf),
    /// The volume's.
    Volume(VolumePath),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) => path.display().fmt(f),
            Self::Volume(path) => write!(f, ":{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> VolumePath {
        text.parse().expect(text)
    }

    #[test]
    fn paths_are_made_plain() {
        let rows = [
            ("/", "/", None),
            (":/", "/", None),
            ("..", "/", None),
            ("a", "/a", Some("a")),
            (":a/b/", "/a/b", Some("b")),
            ("//a/./b/../c", "/a/c", Some("c")),
            ("/:a", "/:a", Some(":a")),
        ];
        for (text, expected, name) in rows {
            assert_eq!((path(text).as_str(), path(text).name()), (expected, name));
        }
        for text in ["", ":"] {
            assert!(text.parse::<VolumePath>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn paths_go_down_and_up() {
        assert_eq!(path("/").join("a"), path("/a"));
        assert_eq!(path("/a").join("b"), path("/a/b"));
        let rows = [("/a/b", "/a"), ("/a", "/"), ("/", "/")];
        for (below, above) in rows {
            assert_eq!(path(below).parent(), path(above));
            assert!(path(below).is_within(&path(above)), "{below} in {above}");
        }
        assert!(!path("/ab").is_within(&path("/a")));
        assert!(!path("/").is_within(&path("/a")));
    }
}
