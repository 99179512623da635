//! What the file system says about the paths of a request, gathered before judgement.
//!
//! Comes in: a request. Goes out: [`Facts`]. Never here: whether a path is allowed. A path that
//! cannot be opened is simply absent from the facts, and policy says what that means.

use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use boxwood_api::{MountMode, SpecRequest};
use boxwood_policy::{Facts, OpenedPath};
use rustix::fs::{FileType, Mode, OFlags, fstat, open, readlink};

/// Opens every host path that the request names. Requests without any, which are most, cost
/// nothing; the others leave the event loop, because a path may lie on a slow or dead mount.
pub async fn gather(request: &SpecRequest) -> Facts {
    if request.host_path.is_none() && request.extra_mounts.is_empty() {
        return Facts::default();
    }
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
        skills: Vec::new(),
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

#[cfg(test)]
mod tests {
    use boxwood_api::MountSpec;

    use super::*;

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
        let opened = gather(&request).await.host_path.expect("opened");
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
        let facts = gather(&request).await;
        assert!(facts.host_path.is_none());
        assert_eq!(facts.extra_mounts.len(), 1);
        for hostile in ["/a\0b", "", " "] {
            assert!(open_path(hostile).is_none());
        }
    }
}
