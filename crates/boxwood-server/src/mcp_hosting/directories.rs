//! Hosting's own directories, opened for a box.
//!
//! Comes in: paths that hosting made up. Goes out: descriptors that policy can vouch for. Never here:
//! a path that a client wrote, nor anything of hosting's that no box may see.

use std::ffi::OsString;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use boxwood_api::MountMode;
use boxwood_mcp::OwnMount;
use boxwood_policy::{OpenedPath, OwnDirectory};
use rustix::fs::{Mode, OFlags, open, openat, readlink};

use crate::http::{ApiError, ApiResult};

/// What a box may see of hosting's directory: installed packages and working copies. Definitions and
/// secrets lie beside them.
const SHOWN: [&str; 2] = ["cache", "work"];

/// Leaves the event loop: the state directory may lie on a slow disk.
pub(super) async fn open_all(home: &Path, mounts: Vec<OwnMount>) -> ApiResult<Vec<OwnDirectory>> {
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
    opening
        .await
        .map_err(|error| ApiError::internal("a server's directory could not be opened", &error))?
}

fn open_one(home: &Path, mount: OwnMount) -> ApiResult<OwnDirectory> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        ApiError::internal("a server's directory could not be opened", error)
    };
    let inner = below(home, &mount.host_path)
        .ok_or_else(|| failed(&std::io::Error::other("it is not one that a box may see")))?;
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

/// The plain names that lead from `home` to `path`, if that is a place which a box may see.
fn below(home: &Path, path: &Path) -> Option<Vec<OsString>> {
    let inner = path.strip_prefix(home).ok()?;
    let names: Option<Vec<OsString>> = inner
        .components()
        .map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        })
        .collect();
    let names = names.filter(|names| names.len() > 1)?;
    SHOWN
        .iter()
        .any(|shown| names[0] == *shown)
        .then_some(names)
}

/// Step by step, and never through a link: a box that may write to one of these directories can put
/// links there, and must not get at another server's files by them.
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

    fn mount(path: PathBuf) -> OwnMount {
        OwnMount {
            host_path: path,
            mount_path: "/opt/mcp".to_owned(),
            is_writable: false,
        }
    }

    #[test]
    fn only_packages_and_working_copies_are_shown_to_a_box() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("real");
        for made in ["cache/ab12", "work/time", "secrets/time", "servers"] {
            std::fs::create_dir_all(home.join(made)).expect("made");
        }
        let opened = open_one(&home, mount(home.join("cache/ab12"))).expect("opened");
        assert_eq!(opened.source.real_path, home.join("cache/ab12"));
        assert_eq!(opened.mode, MountMode::Ro);
        assert!(open_one(&home, mount(home.join("work/time"))).is_ok());
        for refused in [
            "",
            "cache",
            "work",
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
    fn a_link_that_a_box_left_behind_leads_nowhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("real");
        std::fs::create_dir_all(home.join("secrets/x")).expect("made");
        std::fs::create_dir_all(home.join("work/a/own")).expect("made");
        std::os::unix::fs::symlink(home.join("secrets"), home.join("work/a/link")).expect("link");
        std::os::unix::fs::symlink(home.join("secrets"), home.join("work/b")).expect("link");
        assert!(open_one(&home, mount(home.join("work/a/own"))).is_ok());
        for refused in ["work/a/link", "work/a/link/x", "work/b", "work/b/x"] {
            assert!(
                open_one(&home, mount(home.join(refused))).is_err(),
                "{refused}"
            );
        }
    }
}
