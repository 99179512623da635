//! Texts and paths by Python's rules.

use super::errors::Wrong;

/// Python's `strip` knows four separators that Rust's `trim` does not.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(|character: char| {
        character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
    })
}

pub(super) fn stripped(text: String) -> String {
    let inner = strip(&text);
    if inner.len() == text.len() {
        return text;
    }
    inner.to_owned()
}

/// Absolute inside the box, which is always POSIX.
pub(super) fn in_box(field: &str, path: String) -> Result<String, Wrong> {
    let path = stripped(path);
    if path.starts_with('/') {
        return Ok(path);
    }
    Err(Wrong::value(&format!(
        "{field} must be an absolute path inside the sandbox"
    )))
}

/// Absolute on this host. The clients' models let Windows paths through as well; nothing here could
/// open one, so they are told so at once.
pub(super) fn on_host(field: &str, path: String) -> Result<String, Wrong> {
    let path = stripped(path);
    if path.starts_with('/') {
        return Ok(path);
    }
    if is_windows_absolute(&path) {
        return Err(Wrong::value(&format!(
            "{field} must be a path of this host, not a Windows path"
        )));
    }
    Err(Wrong::value(&format!(
        "{field} must be an absolute host path"
    )))
}

/// By Python's `ntpath`: a root of its own, with or without a drive.
fn is_windows_absolute(path: &str) -> bool {
    let mut characters = path.chars();
    let separator = |character| matches!(character, Some('\\' | '/'));
    let first = characters.next();
    separator(first) || (characters.next() == Some(':') && separator(characters.next()))
}

/// Whether Python's `posixpath.normpath` would leave an absolute path as it is.
pub(super) fn is_normal(path: &str) -> bool {
    // Exactly two slashes at the beginning may mean something to POSIX, and stay.
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
    fn normal_paths_are_told_from_others() {
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
    fn white_space_is_pythons() {
        assert_eq!(strip("\u{1c} \u{a0}\u{3000}x\u{1f}\n"), "x");
        assert_eq!(strip("\u{200b}x"), "\u{200b}x");
    }
}
