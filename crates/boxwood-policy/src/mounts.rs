//! Which host directories may enter a box.
//!
//! Comes in: the caller's spelling of a path and, where it was opened, the kernel's name for what
//! was opened. Goes out: permission or a [`Denial`]. Never here: opening anything.
//!
//! The blocked list is held against both spellings. The given one catches what the daemon could
//! not open; the kernel's catches symlinks, and cannot be changed after the judgement because the
//! box is given the very descriptor that was judged.

use std::path::{Path, PathBuf};

use crate::path::{is_within, normalize};
use crate::{Denial, OpenedPath, Origin, PolicyRules};

/// Never mounted, nor anything below them, nor any directory that contains one of them. `/` is
/// not listed because it contains them all.
pub const BLOCKED: [&str; 16] = [
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/root",
    "/boot",
    "/run",
    "/var/run",
    // The container engines' own data: writing there is writing to every container.
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/lib/lxc",
    "/var/lib/incus",
    "/var/snap/docker",
];

/// Judges a path that may or may not be mounted in the end.
pub(crate) fn not_blocked(
    field: &str,
    given: &str,
    opened: Option<&OpenedPath>,
    origin: Origin,
    rules: &PolicyRules,
) -> Result<(), Denial> {
    let lexical = normalize(Path::new(given.trim()));
    let real = match opened {
        // What the kernel cannot name with an absolute path (a deleted or anonymous object) is
        // not something anybody may mount.
        Some(opened) => match normalize(&opened.real_path) {
            Some(real) => Some(real),
            None => return Err(blocked(field, given)),
        },
        None => None,
    };
    for path in [lexical, real].into_iter().flatten() {
        if is_blocked(&path, origin, rules) {
            return Err(blocked(field, given));
        }
    }
    Ok(())
}

fn blocked(field: &str, given: &str) -> Denial {
    Denial::Blocked {
        field: field.to_owned(),
        given: given.trim().to_owned(),
    }
}

fn is_blocked(path: &Path, origin: Origin, rules: &PolicyRules) -> bool {
    let stores = skill_stores(path, origin, rules);
    // Only what blocks the whole store is lifted for a skill, and nothing that lies in one.
    let lifted = |entry: &Path| stores.iter().any(|store| is_within(store, entry));
    let touches =
        |entry: &Path| (is_within(path, entry) && !lifted(entry)) || is_within(entry, path);
    path == Path::new("/")
        || BLOCKED.iter().any(|entry| touches(Path::new(entry)))
        || rules
            .blocked
            .iter()
            .filter_map(|entry| normalize(entry))
            .any(|entry| touches(&entry))
}

/// The spellings of the skill store that `path` lies strictly below, for the origin that may mount
/// skills by their paths.
fn skill_stores(path: &Path, origin: Origin, rules: &PolicyRules) -> Vec<PathBuf> {
    if origin != Origin::LangBotPlatform {
        return Vec::new();
    }
    [&rules.skills_dir, &rules.skills_dir_real]
        .into_iter()
        .flatten()
        .filter_map(|store| normalize(store))
        .filter(|store| path != store && is_within(path, store))
        .collect()
}

/// Judges a path against the roots that hold for this origin. A path that could not be opened is
/// judged by its spelling, so that a caller learns nothing about what exists outside the roots.
pub(crate) fn within_roots(
    field: &str,
    given: &str,
    opened: Option<&OpenedPath>,
    origin: Origin,
    rules: &PolicyRules,
) -> Result<(), Denial> {
    let roots: &[PathBuf] = match origin {
        Origin::Operator => return Ok(()),
        Origin::Client | Origin::Hosting => &rules.allowed_roots,
        Origin::LangBotPlatform => match &rules.platform_roots {
            Some(roots) => roots,
            None => return Ok(()),
        },
    };
    let path = match opened {
        Some(opened) => normalize(&opened.real_path),
        None => normalize(Path::new(given.trim())),
    };
    let allowed = path.is_some_and(|path| {
        roots
            .iter()
            .filter_map(|root| normalize(root))
            .any(|root| is_within(&path, &root))
            || !skill_stores(&path, origin, rules).is_empty()
    });
    if allowed {
        return Ok(());
    }
    if roots.is_empty() {
        return Err(Denial::MountsDisabled {
            field: field.to_owned(),
        });
    }
    Err(Denial::OutsideRoots {
        field: field.to_owned(),
        roots: roots
            .iter()
            .map(|root| root.display().to_string())
            .collect(),
    })
}

/// Judges a directory in which the daemon itself is to work on a caller's behalf: a workspace that
/// has to be made, the place of a platform's skills. `real` is the path with every symlink resolved.
pub fn check_place(
    field: &str,
    given: &str,
    real: &Path,
    origin: Origin,
    rules: &PolicyRules,
) -> Result<(), Denial> {
    let Some(real) = normalize(real) else {
        return Err(blocked(field, given));
    };
    let lexical = normalize(Path::new(given.trim()));
    let both = || lexical.iter().chain([&real]);
    if both().any(|path| is_blocked(path, origin, rules)) {
        return Err(blocked(field, given));
    }
    within_roots(field, &real.to_string_lossy(), None, origin, rules)
}
