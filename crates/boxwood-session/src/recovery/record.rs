//! The description of a session that its box keeps for the next daemon.
//!
//! Contains nothing that changes with single commands; programs have notes of their own.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use boxwood_policy::{AdmittedSpec, FileIdentity, MountRecord, OpenedPath, PathRecord, SpecRecord};
use jiff::Timestamp;
use rustix::fs::{
    AtFlags, CWD, MemfdFlags, Mode, OFlags, ResolveFlags, StatxFlags, memfd_create, openat2, statx,
};
use serde::{Deserialize, Serialize};

use crate::session::mounts::Mounts;

#[derive(Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) incarnation: u64,
    pub(crate) created_at: Timestamp,
    /// The spec the session was created with.
    pub(crate) spec: SpecRecord,
    /// The current mounts.
    pub(crate) mounts: Vec<MountRecord>,
    pub(crate) joined: usize,
}

/// The parts of a session that are restored from a record.
pub(crate) struct Restored {
    pub(crate) incarnation: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) spec: Arc<AdmittedSpec>,
    pub(crate) spec_record: SpecRecord,
    pub(crate) mounts: Mounts,
}

impl Restored {
    /// Opens paths, which may take a while.
    pub(crate) fn from_bytes(record: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let record: SessionRecord = serde_json::from_slice(record)?;
        Ok(Self {
            incarnation: record.incarnation,
            created_at: record.created_at,
            spec_record: record.spec.clone(),
            spec: Arc::new(AdmittedSpec::restored(record.spec, &reopen)?),
            mounts: Mounts::restored(record.mounts, record.joined, &reopen)?,
        })
    }
}

/// Does not query a remote file system, because the file has just been opened.
pub(crate) fn identify(path: &OpenedPath) -> Option<FileIdentity> {
    identity_of(path.fd())
}

fn identity_of(file: impl AsFd) -> Option<FileIdentity> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, "", flags, StatxFlags::INO).ok()?;
    Some(FileIdentity {
        device_major: stat.stx_dev_major,
        device_minor: stat.stx_dev_minor,
        inode: stat.stx_ino,
    })
}

/// Opens the file that was admitted. If the path leads elsewhere by now, opens an empty file that
/// equals no other.
fn reopen(record: &PathRecord) -> io::Result<Arc<OwnedFd>> {
    if let Some(file) = same_file(record) {
        return Ok(Arc::new(file));
    }
    tracing::info!(path = %record.real_path.display(), "a mounted path of an adopted box leads to another file by now");
    Ok(Arc::new(memfd_create("gone", MemfdFlags::CLOEXEC)?))
}

/// A process with write access to the parent directory could replace the path, but the file was
/// admitted, not the path.
fn same_file(record: &PathRecord) -> Option<OwnedFd> {
    let admitted = record.identity?;
    let file = openat2(
        CWD,
        &record.real_path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
    .ok()?;
    (identity_of(&file) == Some(admitted)).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_of(path: &std::path::Path) -> PathRecord {
        let file = std::fs::File::open(path).expect("the test made it");
        PathRecord {
            given: "dir".to_owned(),
            real_path: path.canonicalize().expect("it is there"),
            is_dir: true,
            identity: identity_of(&file),
        }
    }

    #[test]
    fn an_unchanged_path_is_reopened_as_the_same_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let record = record_of(directory.path());
        let reopened = reopen(&record).expect("descriptors");
        assert_eq!(identity_of(&reopened), record.identity);
    }

    #[test]
    fn a_changed_path_is_reopened_as_a_file_that_equals_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let (dir, other) = (directory.path().join("dir"), directory.path().join("other"));
        for path in [&dir, &other] {
            std::fs::create_dir(path).expect("a directory");
        }
        let record = record_of(&dir);
        let check = |case: &str| {
            let reopened = reopen(&record).expect("descriptors");
            let identity = identity_of(&reopened);
            assert_ne!(identity, record.identity, "{case}");
            let other_file = std::fs::File::open(&other).expect("it is there");
            assert_ne!(identity, identity_of(&other_file), "{case}");
        };
        // Kept, so that its inode number is not reused.
        std::fs::rename(&dir, directory.path().join("kept")).expect("moved");
        check("nothing is there");
        std::os::unix::fs::symlink("other", &dir).expect("a link");
        check("a link is there");
        std::fs::remove_file(&dir).expect("removed");
        std::fs::create_dir(&dir).expect("a directory");
        check("another directory is there");
    }
}
