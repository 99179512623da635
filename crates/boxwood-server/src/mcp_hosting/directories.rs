//! Opens hosting's own directories for a box, as descriptors for policy.

use std::io;
use std::path::{Component, Path};

use boxwood_api::MountMode;
use boxwood_mcp::HostingMount;
use boxwood_policy::{OpenedPath, OwnDirectory};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

use crate::facts::opened_path;
use crate::http::{ApiError, ApiResult};

/// Subdirectory of hosting that a box may see. Definitions and secrets are in others.
const VISIBLE_DIRECTORY: &str = "cache";

/// Runs off the async threads, because the state directory may be on a slow disk.
pub(super) async fn open_all(
    home: &Path,
    mounts: Vec<HostingMount>,
) -> ApiResult<Vec<OwnDirectory>> {
    if mounts.is_empty() {
        return Ok(Vec::new());
    }
    let home = home.to_owned();
    let opening = tokio::task::spawn_blocking(move || {
        mounts
            .into_iter()
            .map(|mount| open_one(&home, mount))
            .collect()
    });
    opening.await.map_err(|error| {
        ApiError::internal("failed to open a directory of an MCP server", &error)
    })?
}

fn open_one(home: &Path, mount: HostingMount) -> ApiResult<OwnDirectory> {
    let source = open_visible(home, &mount.host_path).map_err(|error| {
        ApiError::internal("failed to open a directory of an MCP server", &error)
    })?;
    Ok(OwnDirectory {
        source,
        mount_path: mount.mount_path,
        mode: if mount.is_writable {
            MountMode::Rw
        } else {
            MountMode::Ro
        },
    })
}

/// Follows no links: a box with write access may have created links to another server's files.
fn open_visible(home: &Path, path: &Path) -> io::Result<OpenedPath> {
    let inner = path.strip_prefix(home).ok();
    let inner = inner
        .filter(|inner| is_visible(inner))
        .ok_or_else(|| io::Error::other("boxes must not see this directory"))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let home = open(home, flags, Mode::empty())?;
    let directory = openat2(&home, inner, flags, Mode::empty(), resolve)?;
    Ok(opened_path(directory, &path.to_string_lossy())?)
}

/// Whether a box may see a directory, given relative to hosting's.
fn is_visible(inner: &Path) -> bool {
    let mut names = inner.components();
    names.next() == Some(Component::Normal(VISIBLE_DIRECTORY.as_ref()))
        && names.clone().next().is_some()
        && names.all(|name| matches!(name, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn mount(path: PathBuf) -> HostingMount {
        HostingMount {
            host_path: path,
            mount_path: "/opt/mcp".to_owned(),
            is_writable: false,
        }
    }

    #[test]
    fn a_box_sees_only_the_installation_cache() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("real");
        for made in ["cache/ab12", "secrets/time", "servers"] {
            std::fs::create_dir_all(home.join(made)).expect("made");
        }
        let opened = open_one(&home, mount(home.join("cache/ab12"))).expect("opened");
        assert_eq!(opened.source.real_path, home.join("cache/ab12"));
        assert_eq!(opened.mode, MountMode::Ro);
        for refused in [
            "",
            "cache",
            "servers",
            "secrets/time",
            "cache/../secrets/time",
            "cache/missing",
        ] {
            assert!(
                open_one(&home, mount(home.join(refused))).is_err(),
                "{refused}"
            );
        }
        assert!(open_one(&home, mount(PathBuf::from("/etc"))).is_err());
    }

    #[test]
    fn links_created_by_a_box_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("real");
        std::fs::create_dir_all(home.join("secrets/x")).expect("made");
        std::fs::create_dir_all(home.join("cache/a/own")).expect("made");
        std::os::unix::fs::symlink(home.join("secrets"), home.join("cache/a/link")).expect("link");
        std::os::unix::fs::symlink(home.join("secrets"), home.join("cache/b")).expect("link");
        assert!(open_one(&home, mount(home.join("cache/a/own"))).is_ok());
        for refused in ["cache/a/link", "cache/a/link/x", "cache/b", "cache/b/x"] {
            assert!(
                open_one(&home, mount(home.join(refused))).is_err(),
                "{refused}"
            );
        }
    }
}
