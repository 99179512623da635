//! Paths inside a package, as clients write them.
//!
//! A [`PackagePath`] cannot point outside by its text. Symbolic links are handled by `beneath`.

use std::path::{Path, PathBuf};

use crate::python::strip;
use crate::{Limits, Oversize, SkillError};

/// Maximum length of a file name on Linux.
pub(crate) const MAX_COMPONENT_BYTES: usize = 255;

/// A normalised relative path: no `..`, no empty parts. The package's root is `.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackagePath {
    text: String,
    /// As the client wrote it, for messages.
    requested: String,
}

impl PackagePath {
    pub(crate) fn parse(requested: &str, limits: &Limits) -> Result<Self, SkillError> {
        let requested = match strip(requested) {
            "" => ".",
            stripped => stripped,
        };
        if requested.starts_with('/') {
            return Err(SkillError::PathNotRelative);
        }
        if requested.contains('\0') {
            let shown = requested.replace('\0', "\u{fffd}");
            return Err(SkillError::PathNotUsable(format!("{shown} contains NUL")));
        }
        let text = normalised(requested);
        // LangBot Box refuses every name that begins with two dots, including `..data`.
        if text.starts_with("..") {
            return Err(SkillError::PathEscapes);
        }
        check_size(&text, limits)?;
        Ok(Self {
            text,
            requested: requested.to_owned(),
        })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.text == "."
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn requested(&self) -> &str {
        &self.requested
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(&self.text)
    }

    /// The directory and the name; `None` for the root.
    pub(crate) fn split(&self) -> Option<(PathBuf, &Path)> {
        if self.is_root() {
            return None;
        }
        Some(match self.text.rsplit_once('/') {
            Some((parent, name)) => (PathBuf::from(parent), Path::new(name)),
            None => (PathBuf::from("."), Path::new(&self.text)),
        })
    }
}

pub(crate) fn check_size(text: &str, limits: &Limits) -> Result<(), SkillError> {
    Oversize::PathBytes.check(text.len(), limits.max_path_bytes)?;
    for part in text.split('/') {
        Oversize::NameBytes.check(part.len(), MAX_COMPONENT_BYTES)?;
    }
    Oversize::PathDepth.check(text.split('/').count() - 1, limits.max_path_depth)
}

/// Equivalent of `os.path.normpath` in Python for a relative path.
pub(crate) fn normalised(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    if parts.is_empty() {
        ".".to_owned()
    } else {
        parts.join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_as_python_does() {
        for (path, expected) in [
            ("a/./b//c", "a/b/c"),
            ("a/../b", "b"),
            ("a/../../b", "../b"),
            ("./", "."),
            ("../..", "../.."),
        ] {
            assert_eq!(normalised(path), expected);
        }
    }

    #[test]
    fn a_path_cannot_leave() {
        let parse = |path: &str| PackagePath::parse(path, &Limits::default());
        assert!(matches!(parse("/etc"), Err(SkillError::PathNotRelative)));
        for path in ["..", "a/../..", "../x", "..x"] {
            assert!(
                matches!(parse(path), Err(SkillError::PathEscapes)),
                "{path}"
            );
        }
        assert!(matches!(
            parse("a\0b"),
            Err(SkillError::PathNotUsable { .. })
        ));
        assert!(matches!(
            parse(&"a/".repeat(40)),
            Err(SkillError::TooLarge { .. })
        ));
        assert!(matches!(
            parse(&"a".repeat(256)),
            Err(SkillError::TooLarge { .. })
        ));
        assert_eq!(parse("  ").unwrap().as_str(), ".");
    }
}
