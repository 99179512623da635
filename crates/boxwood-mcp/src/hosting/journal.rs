//! Which boxes are ours, also after a crash.
//!
//! A session's name alone does not say so: others may have called theirs `mcp-…` too. So the name of
//! every box is put down before the box is made, and forgotten once it is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use boxwood_api::SessionId;

/// One empty file for each box. Calls block for as long as the disk does.
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

    /// Our own sessions are named so that they can name a file; any other has no place here.
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
    fn what_was_noted_is_there_until_it_is_forgotten() {
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
    fn a_name_cannot_lead_out_of_the_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(&dir.path().join("in")).expect("a journal");
        for name in ["../x", "a/b", "..", "é"] {
            let session = SessionId::new(name).expect("an id");
            assert!(journal.note(&session).is_err(), "{name}");
            assert!(!journal.holds(&session), "{name}");
        }
    }
}
