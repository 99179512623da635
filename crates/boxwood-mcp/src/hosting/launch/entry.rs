//! What an install says is to be started.
//!
//! Comes in: the file that the install script wrote last. Goes out: a program, and what its environment
//! needs. Never here: trust. Packages run code of their own while they are installed, so the file is read
//! like anything a stranger wrote; what it names is started in the box and nowhere else.

use std::path::Path;

use super::LaunchError;
use super::quote::quote;
use super::reading::read_text;

pub(super) const NAME: &str = ".entry";
const LONGEST: u64 = 64 * 1024;
const MOST_LINES: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) command: Option<String>,
    /// Directories that come first in `PATH`.
    pub(super) path: Vec<String>,
    /// The `PATH` of the box.
    pub(super) box_path: String,
    needs: Vec<String>,
}

impl Entry {
    pub(super) fn read(install: &Path) -> Result<Self, LaunchError> {
        let wrong = |why: &str| LaunchError::Entry {
            why: why.to_owned(),
        };
        let text = read_text(&install.join(NAME), LONGEST)
            .map_err(|error| wrong(&error.to_string()))?
            .ok_or_else(|| wrong("it did not say which program it made"))?;
        let mut entry = Self::default();
        for (index, line) in text.lines().enumerate() {
            let (label, value) = line
                .split_once('=')
                .filter(|(_, value)| index < MOST_LINES && !value.contains('\0'))
                .ok_or_else(|| wrong("it wrote a line that cannot be read"))?;
            match label {
                "command" => entry.command = Some(value.to_owned()),
                "path" => entry.path.push(value.to_owned()),
                "box_path" => value.clone_into(&mut entry.box_path),
                "need" => entry.needs.push(value.to_owned()),
                _ => return Err(wrong("it wrote a line that nobody knows")),
            }
        }
        let is_absolute = entry
            .command
            .as_ref()
            .is_none_or(|command| command.starts_with('/'));
        if is_absolute {
            Ok(entry)
        } else {
            Err(wrong("the program it named has no absolute path"))
        }
    }

    /// A shell command that fails where the box no longer has what the install was made with.
    pub(super) fn check(&self) -> Option<String> {
        if self.needs.is_empty() {
            return None;
        }
        let tests: Vec<_> = self
            .needs
            .iter()
            .map(|need| format!("[ -x {} ]", quote(need)))
            .collect();
        Some(tests.join(" && "))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(text: &str) -> Result<Entry, LaunchError> {
        let directory = tempfile::tempdir().expect("there is room");
        fs::write(directory.path().join(NAME), text).expect("it is ours");
        Entry::read(directory.path())
    }

    #[test]
    fn an_entry_names_a_program_its_path_and_its_needs() {
        let entry = read(
            "command=/opt/mcp/venv/bin/tool=x\npath=/opt/mcp/venv/bin\nbox_path=/usr/bin:/bin\nneed=/usr/bin/python3.11\nneed=/it's/node\n",
        )
        .expect("it is well formed");
        assert_eq!(entry.command.as_deref(), Some("/opt/mcp/venv/bin/tool=x"));
        assert_eq!(entry.path, ["/opt/mcp/venv/bin"]);
        assert_eq!(entry.box_path, "/usr/bin:/bin");
        assert_eq!(
            entry.check().as_deref(),
            Some(r"[ -x '/usr/bin/python3.11' ] && [ -x '/it'\''s/node' ]")
        );
    }

    #[test]
    fn what_nobody_can_read_is_no_entry() {
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
        let empty = tempfile::tempdir().expect("there is room");
        Entry::read(empty.path()).expect_err("there is none");
        std::os::unix::fs::symlink("/etc/passwd", empty.path().join(NAME)).expect("it is new");
        Entry::read(empty.path()).expect_err("a link is not followed");
    }
}
