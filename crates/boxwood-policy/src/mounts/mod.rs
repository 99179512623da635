//! Decides which host directories may be mounted.
//!
//! The blocked list is checked against the path in the request and against the real path of the
//! opened descriptor. The former covers paths that could not be opened, the latter symlinks. The
//! box gets the same descriptor, so it cannot be swapped afterwards.

pub(crate) mod own;
pub(crate) mod path;
pub(crate) mod skills;
pub(crate) mod targets;

use std::path::{Path, PathBuf};

use crate::mounts::path::{is_within, normalize};
use crate::{Denial, OpenedPath, Origin, PolicyRules};

/// Denied, together with everything below and every directory that contains one of them. `/`
/// contains them all.
pub const BLOCKED: [&str; 16] = [
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/root",
    "/boot",
    "/run",
    "/var/run",
    // Data of the container engines: write access would allow control over all containers.
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/lib/lxc",
    "/var/lib/incus",
    "/var/snap/docker",
];

/// Checks a path, whether or not it will be mounted.
pub(crate) fn not_blocked(
    field: &str,
    given: &str,
    opened: Option<&OpenedPath>,
    origin: Origin,
    rules: &PolicyRules,
) -> Result<(), Denial> {
    // Objects without an absolute path (deleted or anonymous) cannot be mounted.
    let is_nameless = opened.is_some_and(|opened| !opened.real_path.is_absolute());
    let real = opened.and_then(|opened| normalize(&opened.real_path));
    let paths = [normalize(Path::new(given.trim())), real];
    let mut paths = paths.iter().flatten();
    if is_nameless || paths.any(|path| is_blocked(path, origin, rules)) {
        return Err(blocked(field, given));
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
    // For a skill, only entries that block the whole store are ignored.
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

/// The paths of the skill store that contain `path`, for origins that may mount skills by path.
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

/// Checks a path against the allowed roots of this origin. A path that could not be opened is
/// checked lexically, so that callers learn nothing about files outside the roots.
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

/// Checks a directory that the daemon uses on behalf of a caller, such as a workspace to create or
/// a platform's skill directory. `real` is the path with symlinks resolved.
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
    let paths = || lexical.iter().chain([&real]);
    if paths().any(|path| is_blocked(path, origin, rules)) {
        return Err(blocked(field, given));
    }
    within_roots(field, &real.to_string_lossy(), None, origin, rules)
}
