//! Gathers [`Facts`] for policy: opens the host paths and skills of a request.
//!
//! Paths that cannot be opened are absent from the facts; policy decides what that means.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwood_api::{MountMode, SpecRequest, with_causes};
use boxwood_policy::{Admission, Denial, Facts, OpenedPath, Origin, OwnDirectory, PolicyRules};
use boxwood_skills::SkillStore;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, readlink};

/// Gathers the facts of a request and applies policy. `own` are directories of hosting.
pub(crate) async fn admit(
    request: &SpecRequest,
    origin: Origin,
    own: Vec<OwnDirectory>,
    store: &SkillStore,
    rules: &PolicyRules,
) -> Result<Admission, Denial> {
    // Before any path is opened: an invalid request must not access the file system.
    request.validate()?;
    let facts = Facts {
        own,
        ..gather(request, store).await
    };
    boxwood_policy::admit(request, origin, &facts, rules)
}

/// Opens all host paths and skills of the request, off the event loop, because a path may be on a
/// slow or hanging mount.
pub async fn gather(request: &SpecRequest, store: &SkillStore) -> Facts {
    if request.host_path.is_none() && request.extra_mounts.is_empty() && request.skills.is_empty() {
        return Facts::default();
    }
    let (names, store) = (request.skills.clone(), store.clone());
    let host_path = request.host_path.clone();
    let extra: Vec<String> = request
        .extra_mounts
        .iter()
        .filter(|mount| mount.mode != MountMode::None)
        .map(|mount| mount.host_path.clone())
        .collect();
    let opened = tokio::task::spawn_blocking(move || {
        let root = store.root();
        let open = |path: &str| open_path(path).filter(|opened| stays_in_store(opened, &root));
        Facts {
            host_path: host_path.as_deref().and_then(open),
            // Stops at the first that cannot be opened: policy denies the request there.
            extra_mounts: extra.iter().map_while(|path| open(path)).collect(),
            skills: names
                .iter()
                .map_while(|name| open_skill(&store, name))
                .collect(),
            own: Vec::new(),
        }
    });
    opened.await.unwrap_or_else(|error| {
        tracing::error!(%error, "failed to open host paths");
        Facts::default()
    })
}

/// Follows symlinks: policy checks the real path, and the box gets this descriptor.
fn open_path(given: &str) -> Option<OpenedPath> {
    let path = given.trim();
    if !path.starts_with('/') {
        return None;
    }
    open_at(Path::new(path), OFlags::PATH | OFlags::CLOEXEC, given)
        .inspect_err(|error| tracing::debug!(path, %error, "failed to open a host path"))
        .ok()
}

fn open_at(path: &Path, flags: OFlags, given: &str) -> rustix::io::Result<OpenedPath> {
    opened_path(open(path, flags, Mode::empty())?, given)
}

/// Describes an open descriptor for policy.
pub(crate) fn opened_path(handle: OwnedFd, given: &str) -> rustix::io::Result<OpenedPath> {
    let is_dir = FileType::from_raw_mode(fstat(&handle)?.st_mode) == FileType::Directory;
    let real = readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new())?;
    Ok(OpenedPath {
        handle: Arc::new(handle),
        given: given.to_owned(),
        real_path: PathBuf::from(std::ffi::OsString::from_vec(real.into_bytes())),
        is_dir,
    })
}

/// Whether a path below the skill store contains no symlink. A box with write access to a package
/// could create links that point to other files of the host.
fn stays_in_store(opened: &OpenedPath, root: &Path) -> bool {
    let path = Path::new(opened.given.trim());
    let ancestors: Vec<&Path> = path.ancestors().collect();
    for outer in ancestors.into_iter().rev() {
        let Some(real) = outer.canonicalize().ok().filter(|it| it.starts_with(root)) else {
            continue;
        };
        let rest = path.strip_prefix(outer).unwrap_or(Path::new(""));
        let has_no_symlink = real
            .components()
            .chain(rest.components())
            .collect::<PathBuf>()
            == opened.real_path;
        if !has_no_symlink {
            tracing::warn!(path = %path.display(), "refusing a path in the skill store that contains a symlink");
        }
        return has_no_symlink;
    }
    true
}

/// Opens the package of a skill without following symlinks.
fn open_skill(store: &SkillStore, name: &str) -> Option<OpenedPath> {
    let directory = store
        .package_dir(name)
        .inspect_err(|error| {
            tracing::warn!(skill = name, error = %with_causes(error), "failed to find the package of a skill");
        })
        .ok()??;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_at(&directory, flags, name)
        .inspect_err(
            |error| tracing::warn!(skill = name, %error, "failed to open the package of a skill"),
        )
        .ok()
        // A symlink may have been created since the store checked.
        .filter(|opened| opened.real_path == directory)
}

#[cfg(test)]
mod tests {
    use boxwood_api::MountSpec;

    use super::*;

    fn store() -> SkillStore {
        SkillStore::new(
            PathBuf::from("/nonexistent"),
            boxwood_skills::Limits::default(),
        )
    }

    #[tokio::test]
    async fn skills_are_opened_by_name_up_to_the_first_unknown_one() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().canonicalize().expect("real");
        let store = SkillStore::new(root.clone(), boxwood_skills::Limits::default());
        for name in ["pdf", "csv"] {
            let new = boxwood_skills::NewSkill {
                name: name.to_owned(),
                ..boxwood_skills::NewSkill::default()
            };
            store.create(&new).expect("created");
        }
        let request = SpecRequest {
            skills: ["pdf", "../pdf", "csv"].map(str::to_owned).into(),
            ..SpecRequest::default()
        };
        let skills = gather(&request, &store).await.skills;
        let seen: Vec<_> = skills
            .iter()
            .map(|skill| (skill.given.as_str(), skill.real_path.clone(), skill.is_dir))
            .collect();
        assert_eq!(seen, [("pdf", root.join("pdf"), true)]);
    }

    /// What a box does that has a package mounted for writing: it moves the skill into a directory
    /// of the package and replaces that directory by a symlink to other files.
    #[tokio::test]
    async fn a_path_through_a_symlink_in_a_skill_package_is_not_opened() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let top = dir.path().canonicalize().expect("real");
        let (root, victim) = (top.join("skills"), top.join("victim"));
        let package = root.join("grp/d/files");
        std::fs::create_dir_all(&package).expect("package");
        std::fs::create_dir_all(victim.join("files")).expect("victim");
        std::fs::create_dir_all(root.join("other/files")).expect("another package");
        std::os::unix::fs::symlink(&root, top.join("alias")).expect("link");
        let store = SkillStore::new(root.clone(), boxwood_skills::Limits::default());
        let request = |path: &str| SpecRequest {
            host_path: Some(path.to_owned()),
            extra_mounts: vec![MountSpec {
                host_path: path.to_owned(),
                mount_path: "/x".to_owned(),
                mode: MountMode::Rw,
            }],
            ..SpecRequest::default()
        };
        let spellings = [
            package.display().to_string(),
            format!("{}/alias/grp/./d//files/", top.display()),
        ];
        for path in &spellings {
            let facts = gather(&request(path), &store).await;
            assert_eq!(
                facts.host_path.expect("opened").real_path,
                package,
                "{path}"
            );
            assert_eq!(facts.extra_mounts[0].real_path, package, "{path}");
        }
        for target in [victim.clone(), root.join("other")] {
            std::fs::remove_dir_all(root.join("grp")).expect("removed");
            std::fs::create_dir(root.join("grp")).expect("package");
            std::os::unix::fs::symlink(&target, root.join("grp/d")).expect("link");
            for path in &spellings {
                let facts = gather(&request(path), &store).await;
                assert!(facts.host_path.is_none(), "{path}");
                assert!(facts.extra_mounts.is_empty(), "{path}");
            }
        }
        let beside = victim.join("files").display().to_string();
        assert!(gather(&request(&beside), &store).await.host_path.is_some());
    }

    #[tokio::test]
    async fn the_real_path_of_an_opened_path_contains_no_symlinks() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let real = dir.path().canonicalize().expect("real").join("real");
        std::fs::create_dir(&real).expect("directory");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).expect("link");
        let request = SpecRequest {
            host_path: Some(format!("{}/../link/.", link.display())),
            ..SpecRequest::default()
        };
        let opened = gather(&request, &store()).await.host_path.expect("opened");
        assert_eq!(opened.real_path, real);
        assert!(opened.is_dir);
    }

    #[tokio::test]
    async fn paths_that_cannot_be_opened_are_absent() {
        let mount = |path: &str, mode| MountSpec {
            host_path: path.to_owned(),
            mount_path: "/x".to_owned(),
            mode,
        };
        let request = SpecRequest {
            host_path: Some("relative".to_owned()),
            extra_mounts: vec![
                mount("/nonexistent/and/ignored", MountMode::None),
                mount("/", MountMode::Ro),
                mount("/nonexistent", MountMode::Rw),
                mount("/", MountMode::Ro),
            ],
            ..SpecRequest::default()
        };
        let facts = gather(&request, &store()).await;
        assert!(facts.host_path.is_none());
        assert_eq!(facts.extra_mounts.len(), 1);
        for hostile in ["/a\0b", "", " "] {
            assert!(open_path(hostile).is_none());
        }
    }
}
