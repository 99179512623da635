//! Paths, checked with Python's rules.

use super::errors::Invalid;
use crate::params::is_python_space;

pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(is_python_space)
}

pub(super) fn stripped(text: String) -> String {
    let inner = strip(&text);
    if inner.len() == text.len() {
        return text;
    }
    inner.to_owned()
}

/// An absolute path in the box.
pub(super) fn in_box(field: &str, path: String) -> Result<String, Invalid> {
    let path = stripped(path);
    if path.starts_with('/') {
        return Ok(path);
    }
    Err(Invalid::value(&format!(
        "{field} must be an absolute path inside the sandbox"
    )))
}

/// An absolute path on this host. LangBot's models accept Windows paths too, which no host of Boxwood
/// can open; those get an error of their own.
pub(super) fn on_host(field: &str, path: String) -> Result<String, Invalid> {
    let path = stripped(path);
    if path.starts_with('/') {
        return Ok(path);
    }
    if is_windows_absolute(&path) {
        return Err(Invalid::value(&format!(
            "{field} must be a path of this host, not a Windows path"
        )));
    }
    Err(Invalid::value(&format!(
        "{field} must be an absolute host path"
    )))
}

/// The rules of Python's `ntpath`: rooted, with or without a drive.
fn is_windows_absolute(path: &str) -> bool {
    let mut characters = path.chars();
    let separator = |character| matches!(character, Some('\\' | '/'));
    let first = characters.next();
    separator(first) || (characters.next() == Some(':') && separator(characters.next()))
}

/// Returns true if Python's `posixpath.normpath` leaves an absolute path unchanged.
pub(super) fn is_normal(path: &str) -> bool {
    // `normpath` keeps exactly two leading slashes, which POSIX allows to be special.
    let rest = if path.starts_with("//") && !path.starts_with("///") {
        &path[2..]
    } else {
        path.strip_prefix('/').unwrap_or(path)
    };
    rest.is_empty() || rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_paths_are_recognized() {
        for path in ["/", "//", "/a", "//a", "/a/b", "/...", "/a/..b"] {
            assert!(is_normal(path), "{path}");
        }
        for path in [
            "///", "///a", "/a/", "/a//b", "/./a", "/a/..", "/..", "//a/",
        ] {
            assert!(!is_normal(path), "{path}");
        }
    }

    #[test]
    fn white_space_is_stripped_as_in_python() {
        assert_eq!(strip("\u{1c} \u{a0}\u{3000}x\u{1f}\n"), "x");
        assert_eq!(strip("\u{200b}x"), "\u{200b}x");
    }
}
