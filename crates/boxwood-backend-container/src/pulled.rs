//! Which of an engine's images came by way of this daemon, over its restarts.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use boxwood_api::ImageName;

/// One name a line. A file that cannot be read or written makes the list shorter, and images that are
/// not on it stay.
pub(crate) struct Pulled {
    file: PathBuf,
    /// Held while the file is changed.
    changing: Mutex<()>,
}

impl Pulled {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self {
            file,
            changing: Mutex::default(),
        }
    }

    pub(crate) fn has(&self, name: &ImageName) -> bool {
        self.names().contains(name.as_str())
    }

    pub(crate) fn add(&self, name: &ImageName) {
        self.change(|names| {
            names.insert(name.as_str().to_owned());
        });
    }

    pub(crate) fn remove(&self, name: &ImageName) {
        self.change(|names| {
            names.remove(name.as_str());
        });
    }

    fn names(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>)) {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = self.names();
        change(&mut names);
        let text: String = names
            .iter()
            .flat_map(|name| [name.as_str(), "\n"])
            .collect();
        let fresh = self.file.with_extension("new");
        let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &self.file));
        if let Err(error) = written {
            tracing::warn!(%error, file = %self.file.display(), "pulled images were not written down");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outlive_the_daemon_and_go_with_their_image() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pulled-docker");
        let (one, other) = ("debian:12", "alpine");
        let name = |text: &str| ImageName::new(text).expect("a name");
        Pulled::new(file.clone()).add(&name(one));
        let later = Pulled::new(file);
        assert!(later.has(&name(one)) && !later.has(&name(other)));
        later.remove(&name(one));
        assert!(!later.has(&name(one)));
    }
}
