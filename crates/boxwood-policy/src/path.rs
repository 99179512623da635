//! Paths as text: what a spelling means before anybody asks the file system.
//!
//! Comes in: a path. Goes out: the same path without `.`, `..`, double and trailing slashes, and
//! answers about which path lies under which. Never here: symlinks. Those are resolved by opening
//! the path, and the kernel's name for the result is judged as well.

use std::path::{Component, Path, PathBuf};

/// Normalises an absolute path lexically; `..` at the root stays at the root. `None` when the path
/// is not absolute.
pub fn normalize(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(normal)
}

/// [`normalize`] for paths inside the box, which are text on the wire.
pub fn normalize_text(path: &str) -> Option<String> {
    let normal = normalize(Path::new(path.trim()))?;
    // Components of a `&str` path are slices of it, so this conversion never fails.
    normal.into_os_string().into_string().ok()
}

/// Whether `path` is `root` or lies below it. Both must be normal.
pub(crate) fn is_within(path: &Path, root: &Path) -> bool {
    path.starts_with(root)
}
