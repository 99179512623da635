//! From what the kernel says to what an agent is told.

use std::io;

use rustix::io::Errno;

use super::words::{ToolFailure, ToolFault};

impl ToolFailure {
    pub(super) fn new(fault: ToolFault, text: impl Into<String>) -> Self {
        Self {
            fault,
            text: text.into(),
        }
    }

    pub(super) fn is_a_directory(path: &str) -> Self {
        Self::new(
            ToolFault::IsADirectory,
            format!("Path is a directory: {path}"),
        )
    }

    pub(super) fn not_a_file(path: &str) -> Self {
        Self::new(ToolFault::NotAFile, format!("Not a regular file: {path}"))
    }

    /// `missing` is what this tool says of a path that leads nowhere.
    pub(super) fn of(path: &str, missing: &str) -> impl Fn(io::Error) -> Self {
        move |error| {
            let errno = error.raw_os_error().map(Errno::from_raw_os_error);
            let (fault, text) = match errno {
                Some(Errno::NOENT | Errno::NOTDIR) => (ToolFault::NotFound, missing),
                Some(Errno::ACCESS | Errno::PERM) => (ToolFault::Denied, "Permission denied"),
                Some(Errno::ISDIR) => return Self::is_a_directory(path),
                Some(Errno::NXIO | Errno::NODEV) => return Self::not_a_file(path),
                Some(Errno::NOSPC | Errno::DQUOT) => {
                    (ToolFault::NoSpace, "No space left on device")
                }
                Some(Errno::ROFS) => (ToolFault::ReadOnly, "Read-only file system"),
                Some(Errno::LOOP) => (ToolFault::TooManyLinks, "Too many symbolic links"),
                Some(Errno::NAMETOOLONG | Errno::INVAL) => (ToolFault::BadPath, "Not a valid path"),
                _ => return Self::new(ToolFault::Other, format!("{path}: {error}")),
            };
            Self::new(fault, format!("{text}: {path}"))
        }
    }
}
