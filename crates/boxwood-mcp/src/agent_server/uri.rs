//! URIs of workspace files: `boxwood://workspace/PATH`, percent-encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const TEMPLATE: &str = "boxwood://workspace/{+path}";
const PREFIX: &str = "boxwood://workspace/";
/// Mount point of skills. The `read` tool checks access to them.
const SKILLS: &str = ".skills";

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// `None` if the path is not a workspace file.
pub(crate) fn of(path: &str) -> Option<String> {
    let tail = path.strip_prefix(WORKSPACE)?.strip_prefix('/')?;
    is_plain(tail).then(|| format!("{PREFIX}{}", utf8_percent_encode(tail, ESCAPED)))
}

/// The path in the box.
pub(crate) fn path(uri: &str) -> Result<String, &'static str> {
    let tail = uri
        .strip_prefix(PREFIX)
        .ok_or("resource URIs must start with boxwood://workspace/")?;
    let tail = percent_decode_str(tail)
        .decode_utf8()
        .map_err(|_| "the path in the URI is not UTF-8")?;
    if is_plain(&tail) {
        Ok(format!("{WORKSPACE}/{tail}"))
    } else {
        Err("the path in the URI must not be empty, contain `.`, `..` or NUL, or be in a skill")
    }
}

fn is_plain(tail: &str) -> bool {
    let mut parts = tail.split('/').peekable();
    parts.peek() != Some(&SKILLS)
        && !tail.contains('\0')
        && parts.all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uris_and_paths_convert_both_ways() {
        for (path_in_box, uri) in [
            ("/workspace/a.txt", "boxwood://workspace/a.txt"),
            ("/workspace/a b/ä", "boxwood://workspace/a%20b/%C3%A4"),
            ("/workspace/50%", "boxwood://workspace/50%25"),
        ] {
            assert_eq!(of(path_in_box).as_deref(), Some(uri));
            assert_eq!(path(uri).as_deref(), Ok(path_in_box));
        }
    }

    #[test]
    fn only_workspace_files_have_a_uri() {
        for uri in [
            "file:///etc/passwd",
            "boxwood://workspace",
            "boxwood://workspace/",
            "boxwood://workspace/../etc/passwd",
            "boxwood://workspace/%2e%2e/etc/passwd",
            "boxwood://workspace/a//b",
            "boxwood://workspace/a%00b",
            "boxwood://workspace/%ff",
            "boxwood://workspace/.skills/x/SKILL.md",
            "boxwood://other/a",
        ] {
            assert!(path(uri).is_err(), "{uri}");
        }
        for path_in_box in ["/etc/passwd", "/workspace", "/workspaces/a"] {
            assert_eq!(of(path_in_box), None, "{path_in_box}");
        }
    }

    proptest! {
        #[test]
        fn every_uri_converts_back_to_its_path(tail in "[^\0]{1,40}") {
            let path_in_box = format!("{WORKSPACE}/{tail}");
            if let Some(uri) = of(&path_in_box) {
                prop_assert_eq!(path(&uri), Ok(path_in_box));
            }
        }

        #[test]
        fn no_uri_escapes_the_workspace(uri in "boxwood://workspace/[a./%2ef]{0,20}") {
            if let Ok(path_in_box) = path(&uri) {
                prop_assert!(path_in_box.starts_with("/workspace/"));
                prop_assert!(!path_in_box.split('/').any(|part| part == ".."));
            }
        }
    }
}
