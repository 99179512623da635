//! What can go wrong between a daemon and its ledger.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use rustix::io::Errno;

/// Cloneable, because what could not be written down is told to everybody who waits for it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("there is no room left in `{}`", .directory.display())]
    Full { directory: PathBuf },
    #[error("the ledger `{}` could not be used: {step}", .path.display())]
    Other {
        path: PathBuf,
        step: &'static str,
        source: Arc<rusqlite::Error>,
    },
    /// The thread that owns it has ended.
    #[error("the ledger is closed")]
    Closed,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the ledger `{}` is in use by another process; end the daemon that has it, or use another state directory",
        .path.display()
    )]
    InUse { path: PathBuf },
    #[error(
        "the ledger `{}` could not be opened; see whether its directory is there and writable",
        .path.display()
    )]
    Sqlite {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error("the damaged ledger `{}` could not be moved out of the way", .path.display())]
    MoveAside {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the ledger's thread could not be started")]
    Thread { source: std::io::Error },
}

impl LedgerError {
    pub(crate) fn new(path: &Path, step: &'static str, source: rusqlite::Error) -> Self {
        if is_full(path, &source) {
            return Self::Full {
                directory: directory_of(path),
            };
        }
        Self::Other {
            path: path.to_owned(),
            step,
            source: Arc::new(source),
        }
    }
}

pub(crate) fn directory_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

/// A disk without room is told as such by the database, a quota or a limit on the size of files as any other
/// failed write; so a small write of our own says which it was.
pub(crate) fn is_full(path: &Path, error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        Some(ErrorCode::SystemIoFailure) => no_room_beside(path),
        _ => false,
    }
}

fn no_room_beside(path: &Path) -> bool {
    use rustix::fs::{Mode, OFlags};
    const PROBE: [u8; 16 * 1024] = [0; 16 * 1024];
    let out_of_room = |errno| matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory_of(path), flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(errno) => return out_of_room(errno),
    };
    match rustix::io::write(&file, &PROBE) {
        Ok(written) => written < PROBE.len(),
        Err(errno) => out_of_room(errno),
    }
}

/// What is in the file is not what this version can work with.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
    )
}

pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
