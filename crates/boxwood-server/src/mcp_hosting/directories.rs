//! Opens hosting's own directories for a box, as descriptors for policy.

use std::ffi::OsString;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use boxwood_api::MountMode;
use boxwood_mcp::HostingMount;
use boxwood_policy::{OpenedPath, OwnDirectory};
use rustix::fs::{Mode, OFlags, open, openat, readlink};

use crate::http::{ApiError, ApiResult};

/// Subdirectory of hosting that a box may see. Definitions and secrets are in others.
const SHOWN: &str = "cache";

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
    let failed = |error: &(dyn std::error::Error + 'static)| {
        ApiError::internal("failed to open a directory of an MCP server", error)
    };
    let inner = below(home, &mount.host_path)
        .ok_or_else(|| failed(&std::io::Error::other("boxes must not see this directory")))?;
    let source = descend(home, &inner).map_err(|error| failed(&error))?;
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

/// The path components from `home` to `path`, if a box may see that directory.
fn below(home: &Path, path: &Path) -> Option<Vec<OsString>> {
    let inner = path.strip_prefix(home).ok()?;
    let names: Option<Vec<OsString>> = inner
        .components()
        .map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        })
        .collect();
    names.filter(|names| names.len() > 1 && names[0] == SHOWN)
}

/// Opens each component without following links. A box with write access may have created links to another server's
/// files.
fn descend(home: &Path, names: &[OsString]) -> rustix::io::Result<OpenedPath> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut handle = open(home, flags, Mode::empty())?;
    for name in names {
        handle = openat(&handle, name, flags, Mode::empty())?;
    }
    let real = readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new())?;
    let given: PathBuf = std::iter::once(home.as_os_str())
        .chain(names.iter().map(OsString::as_os_str))
        .collect();
    Ok(OpenedPath {
        handle: Arc::new(handle),
        given: given.to_string_lossy().into_owned(),
        real_path: PathBuf::from(OsString::from_vec(real.into_bytes())),
        is_dir: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: PathBuf) -> HostingMount {
        HostingMount {
            host_path: path,
            mount_path: "/opt/mcp".to_owned(),
            is_writable: false,
        }
    }

    #[test]
    fn a_box_sees_only_installs() {
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
