//! Records which boxes belong to hosting, across crashes.
//!
//! The session id is not enough, because clients may also create sessions named `mcp-…`. A box is recorded before
//! it is created and forgotten once it is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use boxwood_api::SessionId;

/// One empty file per box. Calls block on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Journal(PathBuf);

impl Journal {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Self(directory.to_owned()))
    }

    pub(crate) fn note(&self, session: &SessionId) -> io::Result<()> {
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path(session)?)?;
        file.sync_all()?;
        fs::File::open(&self.0)?.sync_all()
    }

    pub(crate) fn forget(&self, session: &SessionId) -> io::Result<()> {
        match fs::remove_file(self.path(session)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn holds(&self, session: &SessionId) -> bool {
        self.path(session).is_ok_and(|path| path.exists())
    }

    pub(crate) fn all(&self) -> io::Result<Vec<SessionId>> {
        let mut sessions = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            sessions.extend(name.to_str().and_then(|name| SessionId::new(name).ok()));
        }
        Ok(sessions)
    }

    /// Refuses session ids that cannot be a file name. Hosting never creates such sessions.
    fn path(&self, session: &SessionId) -> io::Result<PathBuf> {
        let name = session.as_str();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.starts_with('.') || !name.bytes().all(fits) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a session of a hosted server",
            ));
        }
        Ok(self.0.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_persist_until_they_are_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let session = SessionId::new("mcp-test-1").expect("an id");
        let journal = Journal::open(dir.path()).expect("a journal");
        journal.note(&session).expect("noted");
        journal.note(&session).expect("noted again");
        let again = Journal::open(dir.path()).expect("a journal");
        assert!(again.holds(&session));
        assert_eq!(again.all().expect("listed"), std::slice::from_ref(&session));
        again.forget(&session).expect("forgotten");
        again.forget(&session).expect("nothing to do");
        assert!(!journal.holds(&session));
    }

    #[test]
    fn names_cannot_escape_the_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(&dir.path().join("in")).expect("a journal");
        for name in ["../x", "a/b", "..", "é"] {
            let session = SessionId::new(name).expect("an id");
            assert!(journal.note(&session).is_err(), "{name}");
            assert!(!journal.holds(&session), "{name}");
        }
    }
}
