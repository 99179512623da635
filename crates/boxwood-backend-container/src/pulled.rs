//! Remembers which of the engine's images were pulled by this daemon, across restarts.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use boxwood_api::ImageName;
use boxwood_local::lock;

/// One name per line. If the file cannot be read or written, images are missing from the list and are not
/// removed.
pub(crate) struct PulledImages {
    file: PathBuf,
    /// Held while the file is changed.
    changing: Mutex<()>,
}

impl PulledImages {
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
        let _alone = lock(&self.changing);
        let mut names = self.names();
        change(&mut names);
        let text: String = names
            .iter()
            .flat_map(|name| [name.as_str(), "\n"])
            .collect();
        let fresh = self.file.with_extension("new");
        let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &self.file));
        if let Err(error) = written {
            tracing::warn!(%error, file = %self.file.display(), "failed to record a pulled image");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pulled_images_survive_a_restart_and_are_removed_with_the_image() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pulled-docker");
        let (one, other) = ("debian:12", "alpine");
        let name = |text: &str| ImageName::new(text).expect("a name");
        PulledImages::new(file.clone()).add(&name(one));
        let later = PulledImages::new(file);
        assert!(later.has(&name(one)) && !later.has(&name(other)));
        later.remove(&name(one));
        assert!(!later.has(&name(one)));
    }
}
