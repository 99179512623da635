//! Reads the file in which an install script names the program to start.
//!
//! Packages run their own code during the install, so the file is untrusted. The program only ever runs in the box.

use std::path::Path;

use crate::hosting::launch::LaunchError;
use crate::hosting::launch::read_text::read_text;

pub(crate) const NAME: &str = ".entry";
const MAX_BYTES: u64 = 64 * 1024;
const MAX_LINES: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) command: Option<String>,
    /// Directories to prepend to `PATH`.
    pub(crate) path: Vec<String>,
    pub(crate) box_path: String,
}

impl Entry {
    pub(crate) fn read(install: &Path) -> Result<Self, LaunchError> {
        let invalid = |why: &str| LaunchError::Entry {
            why: why.to_owned(),
        };
        let text = read_text(&install.join(NAME), MAX_BYTES)
            .map_err(|error| invalid(&format!("the entry file cannot be read: {error}")))?
            .ok_or_else(|| invalid("the entry file is missing"))?;
        let mut entry = Self::default();
        for (index, line) in text.lines().enumerate() {
            let (label, value) = line
                .split_once('=')
                .filter(|(_, value)| index < MAX_LINES && !value.contains('\0'))
                .ok_or_else(|| invalid("the entry file has an invalid line"))?;
            match label {
                "command" => entry.command = Some(value.to_owned()),
                "path" => entry.path.push(value.to_owned()),
                "box_path" => value.clone_into(&mut entry.box_path),
                // Written by earlier versions.
                "need" => {}
                _ => return Err(invalid("the entry file has an unknown key")),
            }
        }
        let is_absolute = entry
            .command
            .as_ref()
            .is_none_or(|command| command.starts_with('/'));
        if is_absolute {
            Ok(entry)
        } else {
            Err(invalid("the program path is not absolute"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(text: &str) -> Result<Entry, LaunchError> {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join(NAME), text).expect("writable");
        Entry::read(directory.path())
    }

    #[test]
    fn an_entry_has_a_program_and_a_path() {
        let entry = read(
            "command=/opt/mcp/venv/bin/tool=x\npath=/opt/mcp/venv/bin\nbox_path=/usr/bin:/bin\nneed=/usr/bin/python3.11\n",
        )
        .expect("it is well formed");
        assert_eq!(entry.command.as_deref(), Some("/opt/mcp/venv/bin/tool=x"));
        assert_eq!(entry.path, ["/opt/mcp/venv/bin"]);
        assert_eq!(entry.box_path, "/usr/bin:/bin");
    }

    #[test]
    fn an_invalid_entry_is_an_error() {
        for text in [
            "command",
            "command=relative\n",
            "strange=1\n",
            "path=a\0b\n",
            &"path=/x\n".repeat(100),
            &format!("path={}\n", "x".repeat(100_000)),
        ] {
            let error = read(text).expect_err("it is wrong");
            assert!(matches!(error, LaunchError::Entry { .. }));
        }
        let empty = tempfile::tempdir().expect("a directory");
        Entry::read(empty.path()).expect_err("there is none");
        std::os::unix::fs::symlink("/etc/passwd", empty.path().join(NAME)).expect("a new link");
        Entry::read(empty.path()).expect_err("a link is not followed");
    }
}
