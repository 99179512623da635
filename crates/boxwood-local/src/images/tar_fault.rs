//! Errors of image archives.

use std::io;

use boxwood_backend::ImageError;

pub(super) fn bad(why: impl Into<String>) -> ImageError {
    ImageError::BadArchive { why: why.into() }
}

/// Error for one entry, with its path escaped for terminals.
pub(super) fn bad_entry(path: &[u8], why: &str) -> ImageError {
    bad(format!("`{}` {why}", shown(path)))
}

pub(super) fn shown(path: &[u8]) -> String {
    const MAX_BYTES: usize = 200;
    let text = String::from_utf8_lossy(&path[..path.len().min(MAX_BYTES)]);
    text.escape_debug().to_string()
}

/// A read error means that the archive is truncated or damaged.
pub(super) fn reading(error: &io::Error) -> ImageError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => ImageError::TooLarge {
            why: error.to_string(),
        },
        io::ErrorKind::UnexpectedEof => bad("it ends too early"),
        _ => bad(format!("it could not be read: {error}")),
    }
}

/// A write error is a problem of this machine, not of the archive.
pub(super) fn writing(path: &[u8], error: impl Into<io::Error>) -> ImageError {
    ImageError::Io {
        step: format!("write `{}`", shown(path)),
        source: error.into(),
    }
}
