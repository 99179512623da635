//! Glob patterns.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::file_tools::types::{FileToolError, FileToolErrorKind};

pub(super) enum Pattern {
    /// A pattern such as `*.py`, which is the common case.
    Ending(Vec<u8>),
    Any(GlobSet),
}

impl Pattern {
    /// `below` is relative to the root of the search.
    pub(super) fn fits(&self, below: &Path) -> bool {
        match self {
            Self::Ending(ending) => below.as_os_str().as_bytes().ends_with(ending),
            Self::Any(set) => set.is_match(below),
        }
    }
}

/// The text after the star, if it has no special characters.
fn ending(glob: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    glob.strip_prefix("**/*")
        .filter(|ending| ending.bytes().all(plain))
}

/// A pattern matches at every depth, unless it begins with `/`, `./` or the root of the search.
pub(super) fn compile(pattern: &str, root: &str) -> Result<Pattern, FileToolError> {
    let root = root.trim_end_matches('/');
    let anchored = match pattern.strip_prefix(root) {
        Some(rest) if !root.is_empty() && rest.starts_with('/') => Some(rest),
        _ => pattern
            .strip_prefix("./")
            .or_else(|| pattern.starts_with('/').then_some(pattern)),
    };
    let glob = match anchored {
        Some(rest) => rest.trim_start_matches('/').to_owned(),
        None if pattern.starts_with("**") => pattern.to_owned(),
        None => format!("**/{pattern}"),
    };
    let invalid = |error: globset::Error| {
        let text = format!("Invalid pattern: {pattern}: {}", error.kind());
        FileToolError::new(FileToolErrorKind::InvalidArgument, text)
    };
    if pattern.is_empty() {
        let text = "Invalid pattern: it must not be empty";
        return Err(FileToolError::new(FileToolErrorKind::InvalidArgument, text));
    }
    if let Some(ending) = ending(&glob) {
        return Ok(Pattern::Ending(ending.as_bytes().to_vec()));
    }
    set(&glob).map(Pattern::Any).map_err(invalid)
}

fn set(glob: &str) -> Result<GlobSet, globset::Error> {
    let glob = GlobBuilder::new(glob).literal_separator(true).build()?;
    GlobSetBuilder::new().add(glob).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_at_every_depth_unless_it_is_anchored() {
        let check = |pattern: &str, path: &str| {
            compile(pattern, "/workspace/")
                .expect("a pattern")
                .fits(Path::new(path))
        };
        for (pattern, fits, fails) in [
            ("*.py", "a/b/c.py", "a/b.py/c"),
            ("*.py", "c.py", "c.pyc"),
            ("src/*.rs", "x/src/lib.rs", "src/a/lib.rs"),
            ("src/**/*.rs", "src/a/b/lib.rs", "lib.rs"),
            ("**/*.md", "README.md", "README"),
            ("/src/*.rs", "src/lib.rs", "x/src/lib.rs"),
            ("./*.rs", "lib.rs", "x/lib.rs"),
            ("/workspace/*.rs", "lib.rs", "x/lib.rs"),
            ("*.{js,ts}", "a/b.ts", "a/b.tsx"),
            ("[ab]?.txt", "b1.txt", "c1.txt"),
            (".*rc", "home/.bashrc", "home/bashrc"),
        ] {
            assert!(check(pattern, fits), "{pattern} {fits}");
            assert!(!check(pattern, fails), "{pattern} {fails}");
        }
    }

    #[test]
    fn an_ending_fits_what_the_whole_pattern_fits() {
        for pattern in ["*.py", "*", "*_test.py", "**/*.py", "*-", "*.tar.gz"] {
            let Ok(Pattern::Ending(_)) = compile(pattern, "/workspace") else {
                panic!("{pattern} is more than an ending");
            };
            let glob = format!("**/{}", pattern.trim_start_matches("**/"));
            let (whole, ending) = (set(&glob).expect("a glob"), compile(pattern, "/").ok());
            for path in [
                "a.py",
                "a/.py",
                ".py",
                "a.pyc",
                "py",
                "a.py/b",
                "x/y_test.py",
                "-",
                "b/c-",
                "a.tar.gz",
                "tar.gz",
                "a/.tar.gz",
                "a\nb.py",
                "é.py",
            ] {
                let fits = ending.as_ref().map(|ending| ending.fits(Path::new(path)));
                assert_eq!(fits, Some(whole.is_match(path)), "{pattern} {path}");
            }
        }
        for pattern in [
            "a*.py",
            "*.{py,rs}",
            "*.p?",
            "src/*.py",
            "/*.py",
            "*.[ch]",
            "*\\.py",
            "***",
        ] {
            let more = matches!(compile(pattern, "/"), Ok(Pattern::Any(_)));
            assert!(more, "{pattern} is an ending");
        }
    }

    #[test]
    fn invalid_patterns_are_errors() {
        for pattern in ["", "[z-a]", "{a"] {
            let error = compile(pattern, "/").err().expect("an error");
            assert!(
                error.text.starts_with("Invalid pattern: "),
                "{}",
                error.text
            );
        }
    }
}
