//! What a launcher finds: the server's wishes, and the directory of the host it works on.
//!
//! Comes in: a server's description, and which directory was found for it. Goes out: names of things in
//! the box. Never here: a script.

use std::path::{Path, PathBuf};

use boxwood_api::{McpServerSpec, MountMode};

use super::package::{MOST_EXTRA, plain, requirement};
use super::paths::Rewrite;
use super::recipe::Recipe;
use super::{LaunchError, tree};

pub(super) struct Scene<'a> {
    pub(super) spec: &'a McpServerSpec,
    pub(super) rewrite: Option<&'a Rewrite>,
}

/// What comes of a launcher.
pub(super) struct Drawn {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) recipe: Option<Recipe>,
    /// Where it is started, when the launcher was told.
    pub(super) cwd: Option<String>,
    /// For the copy: where, and what it says.
    pub(super) links: Vec<(PathBuf, String)>,
}

impl Drawn {
    pub(super) fn new(command: String, args: Vec<String>, recipe: Option<Recipe>) -> Self {
        Self {
            command,
            args,
            recipe,
            cwd: None,
            links: Vec::new(),
        }
    }
}

impl Scene<'_> {
    pub(super) fn host(&self) -> Option<&Path> {
        self.rewrite.and_then(Rewrite::host)
    }

    pub(super) fn is_direct(&self) -> bool {
        self.spec.settings.host_path_mode == MountMode::Rw
    }

    /// The name in the box, of what lies in the directory.
    pub(super) fn in_box(&self, path: &Path) -> Option<String> {
        self.rewrite.and_then(|rewrite| rewrite.path(path))
    }

    pub(super) fn word(&self, word: &str) -> String {
        self.rewrite
            .map_or_else(|| word.to_owned(), |rewrite| rewrite.word(word))
    }

    pub(super) fn words(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.word(word)).collect()
    }

    /// Where the server starts, on the host. `None` when nothing of the host is there.
    pub(super) fn cwd_on_host(&self) -> Option<PathBuf> {
        let cwd = self.spec.cwd.as_deref().map(Path::new);
        cwd.filter(|cwd| self.in_box(cwd).is_some())
            .or_else(|| self.host())
            .map(Path::to_owned)
    }

    /// A path as the server would have read it, on the host.
    pub(super) fn on_host(&self, path: &str) -> PathBuf {
        match self.cwd_on_host() {
            Some(cwd) => cwd.join(path),
            None => PathBuf::from(path),
        }
    }

    pub(super) fn with_words(&self) -> Result<&[String], LaunchError> {
        let with = &self.spec.with;
        if with.len() > MOST_EXTRA {
            return Err(LaunchError::TooManyPackages {
                count: with.len(),
                limit: MOST_EXTRA,
            });
        }
        Ok(with)
    }

    /// Further requirements, for pip and uv.
    pub(super) fn with(&self) -> Result<Vec<String>, LaunchError> {
        self.with_words()?
            .iter()
            .map(|word| requirement(word))
            .collect()
    }

    /// The installer sees this directory of the workspace, or the one that the file lies in. It sees what
    /// is beside it only where it cannot do without.
    pub(super) fn show(&self, path: &Path, recipe: &mut Recipe) -> Result<(), LaunchError> {
        let Some(place) = self.rewrite.and_then(|rewrite| rewrite.place_of(path)) else {
            return Ok(());
        };
        let directory = if path.is_dir() {
            Some(path)
        } else {
            path.parent()
        };
        let part = if tree::leads_out(path)? {
            None
        } else {
            directory.and_then(|directory| place.part(directory))
        };
        recipe.show(part.unwrap_or_else(|| place.whole()));
        Ok(())
    }

    /// A package that may be a directory or a file of the host. Then everything in it counts.
    pub(super) fn requirement(
        &self,
        word: &str,
        recipe: &mut Recipe,
    ) -> Result<String, LaunchError> {
        let Some(place) = self.in_box(Path::new(word)) else {
            return plain(word);
        };
        let source = Path::new(without_extras(word));
        self.show(source, recipe)?;
        recipe.counts(without_extras(&place));
        // A list of requirements may name others beside it.
        if !source.is_dir()
            && let Some(parent) = source.parent()
        {
            tree::add_manifests(&mut recipe.key, parent)?;
        }
        Ok(place)
    }
}

/// `path` of `path[extra]`.
fn without_extras(word: &str) -> &str {
    word.strip_suffix(']')
        .and_then(|word| word.rsplit_once('['))
        .map_or(word, |(path, _)| path)
}
