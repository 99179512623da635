//! Checks and splits the path of an archive entry.

use boxwood_backend::ImageError;

use super::tar_fault::bad_entry;

/// `PATH_MAX` without the terminating NUL.
const MAX_PATH_BYTES: usize = 4095;

/// The parent directory of an entry and its name in it. The root has neither.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryPath {
    Root,
    Below { parent: Vec<u8>, name: Vec<u8> },
}

impl EntryPath {
    pub(super) fn new(path: &[u8]) -> Result<Self, ImageError> {
        if path.len() > MAX_PATH_BYTES {
            return Err(bad_entry(path, "is too long"));
        }
        if path.contains(&0) {
            return Err(bad_entry(path, "contains a NUL byte"));
        }
        if path.starts_with(b"/") {
            return Err(bad_entry(path, "is absolute"));
        }
        let mut parts = Vec::new();
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(bad_entry(path, "points outside of the image")),
                part => parts.push(part),
            }
        }
        match parts.split_last() {
            None => Ok(Self::Root),
            Some((name, parents)) => Ok(Self::Below {
                parent: parents.join(&b'/'),
                name: name.to_vec(),
            }),
        }
    }
}
