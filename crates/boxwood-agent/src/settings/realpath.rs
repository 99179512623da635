//! Paths of the host without symbolic links, whether or not they exist.
//!
//! Components that do not exist stay as written. The result is not a permission: opening the path resolves it again.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The limit of the kernel; more links are a loop.
const MAX_LINKS: usize = 40;

/// The machine whose files a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// This machine: links are followed.
    Here,
    /// Another machine: links cannot be resolved.
    Elsewhere,
}

impl Files {
    /// An absolute path for `path`, relative ones taken from `base`.
    pub(crate) fn path(self, base: &Path, path: &Path) -> PathBuf {
        match self {
            Self::Here => realpath(base, path),
            Self::Elsewhere => plain(base, path),
        }
    }
}

/// Without following links.
fn plain(base: &Path, path: &Path) -> PathBuf {
    let mut resolved = PathBuf::from("/");
    for name in names(&base.join(path)) {
        if name == ".." {
            resolved.pop();
        } else {
            resolved.push(name);
        }
    }
    resolved
}

/// An absolute path for `path`, relative ones taken from `base`.
pub(crate) fn realpath(base: &Path, path: &Path) -> PathBuf {
    let joined = base.join(path);
    let mut links = 0;
    let mut resolved = PathBuf::from("/");
    // The remaining names, the next one last.
    let mut remaining = names(&joined);
    remaining.reverse();
    while let Some(name) = remaining.pop() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&name);
        match std::fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                if target.is_absolute() {
                    resolved = PathBuf::from("/");
                }
                remaining.extend(names(&target).into_iter().rev());
            }
            // Not a link, missing, or too many links.
            _ => resolved = next,
        }
    }
    resolved
}

fn names(path: &Path) -> Vec<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}
