//! Creates install scripts for Python and Node servers, and maps host paths into the box.

pub(super) mod entry;
pub(super) mod key;
pub(super) mod node;
pub(super) mod python;
pub(super) mod script;
pub(super) mod shell_quote;

use std::path::{Path, PathBuf};

use boxwood_api::McpServerSpec;

use super::LaunchError;
use super::parse::package::{MOST_EXTRA, plain, requirement};
use super::workspace::manifests;
use super::workspace::paths::PathMap;
use script::Recipe;

pub(crate) struct LaunchContext<'a> {
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) path_map: Option<&'a PathMap>,
}

/// What to start, after the launcher is resolved.
pub(crate) struct Resolved {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) recipe: Option<Recipe>,
    /// Working directory, if the launcher sets one.
    pub(crate) cwd: Option<String>,
}

impl Resolved {
    pub(crate) fn new(command: String, args: Vec<String>, recipe: Option<Recipe>) -> Self {
        Self {
            command,
            args,
            recipe,
            cwd: None,
        }
    }
}

impl LaunchContext<'_> {
    pub(crate) fn host(&self) -> Option<&Path> {
        self.path_map.and_then(PathMap::host)
    }

    /// The path in the box of a path in the host directory.
    pub(crate) fn in_box(&self, path: &Path) -> Option<String> {
        self.path_map.and_then(|path_map| path_map.path(path))
    }

    pub(crate) fn word(&self, word: &str) -> String {
        self.path_map
            .map_or_else(|| word.to_owned(), |path_map| path_map.word(word))
    }

    pub(crate) fn words(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.word(word)).collect()
    }

    /// The working directory on the host. `None` if it is not in a host directory.
    pub(crate) fn cwd_on_host(&self) -> Option<PathBuf> {
        let cwd = self.spec.cwd.as_deref().map(Path::new);
        cwd.filter(|cwd| self.in_box(cwd).is_some())
            .or_else(|| self.host())
            .map(Path::to_owned)
    }

    /// Resolves a path against the server's working directory.
    pub(crate) fn on_host(&self, path: &str) -> PathBuf {
        match self.cwd_on_host() {
            Some(cwd) => cwd.join(path),
            None => PathBuf::from(path),
        }
    }

    pub(crate) fn with_words(&self) -> Result<&[String], LaunchError> {
        let with = &self.spec.with;
        if with.len() > MOST_EXTRA {
            return Err(LaunchError::TooManyPackages {
                count: with.len(),
                limit: MOST_EXTRA,
            });
        }
        Ok(with)
    }

    /// Additional requirements for pip and uv.
    pub(crate) fn with(&self) -> Result<Vec<String>, LaunchError> {
        self.with_words()?
            .iter()
            .map(|word| requirement(word))
            .collect()
    }

    /// Shows the installer this directory, or the parent of this file. It sees the whole host directory only if a
    /// manifest refers outside.
    pub(crate) fn show(&self, path: &Path, recipe: &mut Recipe) -> Result<(), LaunchError> {
        let Some(place) = self.path_map.and_then(|path_map| path_map.place_of(path)) else {
            return Ok(());
        };
        let directory = if path.is_dir() {
            Some(path)
        } else {
            path.parent()
        };
        let part = if manifests::leads_out(path)? {
            None
        } else {
            directory.and_then(|directory| place.part(directory))
        };
        recipe.show(part.unwrap_or_else(|| place.whole()));
        Ok(())
    }

    /// A package that may be a path on the host. Its contents then become part of the key.
    pub(crate) fn requirement(
        &self,
        word: &str,
        recipe: &mut Recipe,
    ) -> Result<String, LaunchError> {
        let Some(place) = self.in_box(Path::new(word)) else {
            return plain(word);
        };
        let source = Path::new(without_extras(word));
        self.show(source, recipe)?;
        recipe.counts(source);
        // A requirements file may include others next to it.
        if !source.is_dir()
            && let Some(parent) = source.parent()
        {
            manifests::add_manifests(&mut recipe.key, parent)?;
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
