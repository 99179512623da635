//! Builds archives for tests, valid and malicious.

use std::io::Write as _;

use tar::{EntryType, Header};

/// An archive, entry by entry. Paths are not checked.
#[derive(Default)]
pub(super) struct Archive(Vec<u8>);

pub(super) fn header(kind: EntryType, path: &[u8], size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_700_000_000);
    header
}

impl Archive {
    pub(super) fn raw(mut self, mut header: Header, content: &[u8]) -> Self {
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(super) fn file(self, path: &str, content: &[u8]) -> Self {
        let header = header(EntryType::Regular, path.as_bytes(), content.len() as u64);
        self.raw(header, content)
    }

    pub(super) fn directory(self, path: &str) -> Self {
        self.raw(header(EntryType::Directory, path.as_bytes(), 0), b"")
    }

    fn link(self, kind: EntryType, path: &str, target: &str) -> Self {
        let mut header = header(kind, path.as_bytes(), 0);
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        self.raw(header, b"")
    }

    pub(super) fn symlink(self, path: &str, target: &str) -> Self {
        self.link(EntryType::Symlink, path, target)
    }

    pub(super) fn hard_link(self, path: &str, target: &str) -> Self {
        self.link(EntryType::Link, path, target)
    }

    pub(super) fn special(self, kind: EntryType, path: &str) -> Self {
        let mut header = header(kind, path.as_bytes(), 0);
        let _ = header.set_device_major(1);
        let _ = header.set_device_minor(3);
        self.raw(header, b"")
    }

    /// Without the end-of-archive blocks, as if truncated.
    pub(super) fn cut(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }

    pub(super) fn gzip(self) -> Vec<u8> {
        let level = flate2::Compression::fast();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        encoder.write_all(&self.end()).expect("write to memory");
        encoder.finish().expect("write to memory")
    }
}
