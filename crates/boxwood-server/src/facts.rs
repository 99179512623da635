//! What the file system says about the paths of a request and the store about its skills, gathered
//! before judgement.
//!
//! Comes in: a request. Goes out: [`Facts`]. Never here: whether a path is allowed. What cannot be
//! opened is simply absent from the facts, and policy says what that means.

use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use boxwood_api::{MountMode, SpecRequest};
use boxwood_policy::{Facts, OpenedPath};
use boxwood_skills::SkillStore;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, readlink};

/// Opens every host path and every skill that the request names. Requests without any, which are
/// most, cost nothing; the others leave the event loop, because a path may lie on a slow or dead
/// mount.
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
    let opened = tokio::task::spawn_blocking(move || Facts {
        host_path: host_path.as_deref().and_then(open_path),
        // Up to the first that cannot be opened: policy reads these in order and refuses there.
        extra_mounts: extra.iter().map_while(|path| open_path(path)).collect(),
        skills: names
            .iter()
            .map_while(|name| open_skill(&store, name))
            .collect(),
    });
    opened.await.unwrap_or_else(|error| {
        tracing::error!(%error, "opening host paths failed");
        Facts::default()
    })
}

/// Follows symlinks: policy judges where the descriptor really is, and the box gets that very
/// descriptor.
fn open_path(given: &str) -> Option<OpenedPath> {
    let path = given.trim();
    if !path.starts_with('/') {
        return None;
    }
    let look = || -> rustix::io::Result<OpenedPath> {
        let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let is_dir = FileType::from_raw_mode(fstat(&handle)?.st_mode) == FileType::Directory;
        let real = readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new())?;
        Ok(OpenedPath {
            handle: Arc::new(handle),
            given: given.to_owned(),
            real_path: PathBuf::from(std::ffi::OsString::from_vec(real.into_bytes())),
            is_dir,
        })
    };
    look()
        .inspect_err(|error| tracing::debug!(path, %error, "a host path cannot be opened"))
        .ok()
}

/// The package of a skill, under the skill's name. Its directory is opened without following a last
/// link, so that what is mounted is what the store found.
fn open_skill(store: &SkillStore, name: &str) -> Option<OpenedPath> {
    let directory = store
        .package_dir(name)
        .inspect_err(|error| {
            let error: &dyn std::error::Error = error;
            tracing::warn!(skill = name, error, "a skill's package cannot be found");
        })
        .ok()??;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let look = || -> rustix::io::Result<OpenedPath> {
        let handle = open(&directory, flags, Mode::empty())?;
        let real = readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new())?;
        Ok(OpenedPath {
            handle: Arc::new(handle),
            given: name.to_owned(),
            real_path: PathBuf::from(std::ffi::OsString::from_vec(real.into_bytes())),
            is_dir: true,
        })
    };
    look()
        .inspect_err(|error| tracing::warn!(skill = name, %error, "a skill cannot be opened"))
        .ok()
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
    async fn a_skill_is_opened_under_its_name_up_to_the_first_that_is_unknown() {
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

    #[tokio::test]
    async fn paths_are_seen_as_the_kernel_sees_them() {
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
    async fn what_cannot_be_opened_is_absent() {
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
