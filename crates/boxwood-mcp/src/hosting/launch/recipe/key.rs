//! Computes cache keys of installs.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Incremented when existing installs become unusable.
const LAYOUT: &str = "2";
/// Where a box with the host's root file system finds its tools.
const TOOL_DIRECTORIES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
const TOOLS: [&str; 3] = ["python3", "node", "uv"];

pub(crate) struct Key(Sha256);

impl Key {
    pub(crate) fn new(kind: &str) -> Self {
        let mut key = Self(Sha256::new());
        key.add("layout", LAYOUT);
        key.add("arch", std::env::consts::ARCH);
        key.add("kind", kind);
        key
    }

    pub(crate) fn add(&mut self, label: &str, value: &str) {
        self.add_bytes(label, value.as_bytes());
    }

    /// Includes the lengths, so that different lists never collide.
    pub(crate) fn add_bytes(&mut self, label: &str, value: &[u8]) {
        for part in [label.as_bytes(), value] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    pub(crate) fn add_all<'a>(
        &mut self,
        label: &str,
        values: impl IntoIterator<Item = &'a String>,
    ) {
        for value in values {
            self.add(label, value);
        }
    }

    pub(crate) fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Changes when a tool on the host is replaced.
pub(crate) fn tools_of_this_host() -> String {
    let mut found = String::new();
    for tool in TOOLS {
        let at = TOOL_DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(tool))
            .find_map(|path| fs::canonicalize(path).ok());
        let Some(path) = at else { continue };
        if let Ok(metadata) = fs::metadata(&path) {
            let _ = writeln!(
                found,
                "{} {} {}",
                path.display(),
                metadata.size(),
                metadata.mtime()
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_lists_have_different_keys() {
        let key = |values: &[(&str, &str)]| {
            let mut key = Key::new("kind");
            for (label, value) in values {
                key.add(label, value);
            }
            key.finish()
        };
        assert_eq!(key(&[("a", "b")]), key(&[("a", "b")]));
        assert_ne!(key(&[("a", "b")]), key(&[("ab", "")]));
        assert_ne!(key(&[("a", "bc")]), key(&[("a", "b"), ("", "c")]));
        assert_ne!(key(&[]), key(&[("", "")]));
        assert_eq!(key(&[]).len(), 64);
    }
}
