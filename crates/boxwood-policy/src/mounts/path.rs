//! Lexical path normalisation. Symlinks are resolved by opening the path; the real path is checked
//! as well.

use std::path::{Component, Path, PathBuf};

/// Normalises an absolute path lexically; `..` at the root stays at the root. `None` if the path is
/// not absolute.
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

/// [`normalize`] for paths inside the box.
pub fn normalize_text(path: &str) -> Option<String> {
    let normal = normalize(Path::new(path.trim()))?;
    // Components of a `&str` path are valid UTF-8, so this cannot fail.
    normal.into_os_string().into_string().ok()
}

/// Whether `path` is `root` or below it. Both must be normalised.
pub(crate) fn is_within(path: &Path, root: &Path) -> bool {
    path.starts_with(root)
}
