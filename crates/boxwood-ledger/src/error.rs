//! Errors of the ledger.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use rustix::io::Errno;

/// Cloneable, because it is reported to every caller that waits.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("no space left in `{}`", .directory.display())]
    Full { directory: PathBuf },
    #[error("the ledger `{}` failed: {step}", .path.display())]
    Other {
        path: PathBuf,
        step: &'static str,
        source: Arc<rusqlite::Error>,
    },
    /// Its thread has ended.
    #[error("the ledger is closed")]
    Closed,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the ledger `{}` is in use by another process; stop that daemon, or use another state directory",
        .path.display()
    )]
    InUse { path: PathBuf },
    #[error(
        "failed to open the ledger `{}`; check that its directory exists and is writable",
        .path.display()
    )]
    Sqlite {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error(
        "failed to rename the damaged ledger `{}`; check that its directory is writable, or move the file yourself",
        .path.display()
    )]
    MoveAside {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("failed to start the thread of the ledger")]
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

/// `SQLite` reports a full disk as such, but an exceeded quota or file size limit as an I/O error. A small write finds
/// out which it was.
pub(crate) fn is_full(path: &Path, error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        Some(ErrorCode::SystemIoFailure) => is_directory_full(path),
        _ => false,
    }
}

fn is_directory_full(path: &Path) -> bool {
    use rustix::fs::{Mode, OFlags};
    const PROBE: [u8; 16 * 1024] = [0; 16 * 1024];
    let is_out_of_space = |errno| matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory_of(path), flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(errno) => return is_out_of_space(errno),
    };
    match rustix::io::write(&file, &PROBE) {
        Ok(written) => written < PROBE.len(),
        Err(errno) => is_out_of_space(errno),
    }
}

/// The file is not a valid database.
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
