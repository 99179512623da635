//! Patterns of file names.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::words::{ToolFailure, ToolFault};

/// A pattern fits at every depth, unless it begins with a slash or with the path of the search itself.
pub(super) fn compile(pattern: &str, root: &str) -> Result<GlobSet, ToolFailure> {
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
    let unfit = |error: globset::Error| {
        let text = format!("Invalid pattern: {pattern}: {}", error.kind());
        ToolFailure::new(ToolFault::Unfit, text)
    };
    if pattern.is_empty() {
        let text = "Invalid pattern: it must not be empty";
        return Err(ToolFailure::new(ToolFault::Unfit, text));
    }
    let glob = GlobBuilder::new(&glob)
        .literal_separator(true)
        .build()
        .map_err(unfit)?;
    GlobSetBuilder::new().add(glob).build().map_err(unfit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_at_every_depth_unless_it_is_anchored() {
        let check = |pattern: &str, path: &str| {
            compile(pattern, "/workspace/")
                .expect("a pattern")
                .is_match(path)
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
    fn nonsense_is_told() {
        for pattern in ["", "[z-a]", "{a"] {
            let error = compile(pattern, "/").expect_err("nonsense");
            assert!(
                error.text.starts_with("Invalid pattern: "),
                "{}",
                error.text
            );
        }
    }
}
