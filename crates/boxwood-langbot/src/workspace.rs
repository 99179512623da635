//! Creates a missing workspace directory.
//!
//! A LangBot on another machine or in another container cannot create directories on this host, and
//! container engines create missing bind mounts. Only a writable workspace is created, and only where
//! policy allows it to be mounted.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use boxwood_api::{MountMode, SpecRequest};
use boxwood_policy::{Origin, PolicyRules, check_place};
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid, chownat, fstat, mkdirat, open, openat};
use rustix::io::Errno;

use crate::ActionError;
use crate::error::blocking;

const FIELD: &str = "host_path";

pub(crate) async fn prepare(request: &SpecRequest, rules: &PolicyRules) -> Result<(), ActionError> {
    let Some(path_text) = request.host_path.as_deref().map(str::trim) else {
        return Ok(());
    };
    if request.host_path_mode.unwrap_or_default() != MountMode::Rw {
        return Ok(());
    }
    let path = PathBuf::from(path_text);
    let (path_text, rules) = (path_text.to_owned(), rules.clone());
    // The path may be on a slow or dead mount, so leave the event loop.
    blocking("failed to create the workspace", move || {
        let Some(missing) = missing_directory(&path) else {
            return Ok(());
        };
        check_place(FIELD, &path_text, &missing, Origin::LangBotPlatform, &rules)?;
        create_directory(&missing).map_err(|error| {
            ActionError::validation(format!(
                "{FIELD} {path_text} does not exist and could not be created: {error}"
            ))
        })
    })
    .await
}

/// The path with the symlinks of its existing part resolved. `None` if all of it exists or it is not a
/// valid directory path.
pub fn missing_directory(path: &Path) -> Option<PathBuf> {
    let plain = |component| matches!(component, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) || path.as_os_str().len() > 4096 {
        return None;
    }
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let existing = path
        .ancestors()
        .find(|ancestor| ancestor.symlink_metadata().is_ok())?;
    let rest = path.strip_prefix(existing).ok()?;
    Some(existing.canonicalize().ok()?.join(rest))
}

/// Creates a directory and its parents. A directory that another process creates meanwhile is used.
/// Symlinks are not followed: the path has none, so one that appears now is an attempt to have a
/// directory created elsewhere.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parent = open("/", flags, Mode::empty())?;
    for part in directory.components() {
        let Component::Normal(name) = part else {
            continue;
        };
        let enter = || openat(&parent, name, flags, Mode::empty());
        let entered = match enter() {
            Err(Errno::NOENT) => match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    let created = enter()?;
                    chown_to_parent(&parent, &created)?;
                    created
                }
                Err(Errno::EXIST) => enter()?,
                Err(error) => return Err(error.into()),
            },
            entered => entered?,
        };
        parent = entered;
    }
    Ok(())
}

/// Gives a created directory to the owner of its parent, which is LangBot's user. Uses the descriptor,
/// and only if the directory is empty and owned by the daemon, so that a directory swapped in meanwhile
/// keeps its owner.
fn chown_to_parent(parent: &OwnedFd, created: &OwnedFd) -> io::Result<()> {
    let (parent_stat, current) = (fstat(parent)?, fstat(created)?);
    let own = rustix::process::geteuid();
    if current.st_uid != own.as_raw() || parent_stat.st_uid == current.st_uid || !own.is_root() {
        return Ok(());
    }
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut entries = Dir::new(openat(created, ".", readable, Mode::empty())?)?;
    let is_itself = |name: &CStr| matches!(name.to_bytes(), b"." | b"..");
    if entries.any(|entry| entry.map_or(true, |entry| !is_itself(entry.file_name()))) {
        return Ok(());
    }
    let uid = Uid::from_raw(parent_stat.st_uid);
    let gid = Gid::from_raw(parent_stat.st_gid);
    chownat(created, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rw(path: &Path) -> SpecRequest {
        SpecRequest {
            host_path: Some(path.display().to_string()),
            host_path_mode: Some(MountMode::Rw),
            ..SpecRequest::default()
        }
    }

    #[tokio::test]
    async fn a_missing_writable_workspace_is_created() {
        let home = tempfile::tempdir().expect("a directory");
        let workspace = home.path().join("a/b");
        let rules = PolicyRules::default();
        prepare(&rw(&workspace), &rules).await.expect("made");
        assert!(workspace.is_dir());
        prepare(&rw(&workspace), &rules)
            .await
            .expect("there already");

        let read_only = home.path().join("ro");
        let request = SpecRequest {
            host_path_mode: Some(MountMode::Ro),
            ..rw(&read_only)
        };
        prepare(&request, &rules).await.expect("left alone");
        assert!(!read_only.exists());
    }

    #[tokio::test]
    async fn a_created_workspace_belongs_to_the_owner_of_its_parent() {
        use std::os::unix::fs::MetadataExt as _;
        let home = tempfile::tempdir().expect("a directory");
        // Only root can change owners; for other users both are the same.
        let owner = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(home.path(), Some(4242), Some(4243)).expect("given away");
            4242
        } else {
            rustix::process::geteuid().as_raw()
        };
        let workspace = home.path().join("a/b");
        prepare(&rw(&workspace), &PolicyRules::default())
            .await
            .expect("made");
        assert_eq!(workspace.metadata().expect("there").uid(), owner);
    }

    #[tokio::test]
    async fn nothing_is_created_where_mounts_are_blocked() {
        let home = tempfile::tempdir().expect("a directory");
        let rules = PolicyRules {
            blocked: vec![home.path().join("own")],
            ..PolicyRules::default()
        };
        let workspace = home.path().join("own/x");
        assert!(prepare(&rw(&workspace), &rules).await.is_err());
        std::os::unix::fs::symlink(home.path().join("own"), home.path().join("link"))
            .expect("link");
        std::fs::create_dir(home.path().join("own")).expect("directory");
        assert!(
            prepare(&rw(&home.path().join("link/x")), &rules)
                .await
                .is_err()
        );
        assert!(!home.path().join("own/x").exists());

        let file = home.path().join("file");
        std::fs::write(&file, "").expect("file");
        assert!(prepare(&rw(&file.join("x")), &rules).await.is_err());
    }

    /// A box with write access to the parent replaces a checked directory by a symlink.
    #[test]
    fn a_link_that_appears_is_not_followed() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().canonicalize().expect("real");
        std::fs::create_dir(home.join("elsewhere")).expect("directory");
        std::os::unix::fs::symlink(home.join("elsewhere"), home.join("sub")).expect("link");
        assert!(create_directory(&home.join("sub/a/b")).is_err());
        assert!(!home.join("elsewhere/a").exists());
        create_directory(&home.join("plain/a/b")).expect("made");
        assert!(home.join("plain/a/b").is_dir());
    }
}
