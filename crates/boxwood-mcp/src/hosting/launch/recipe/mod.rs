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
use super::parse::package::{plain, requirement};
use super::workspace::infer::nearest;
use super::workspace::manifests;
use super::workspace::paths::{PathMap, real};
use script::Recipe;

pub(crate) struct LaunchContext<'a> {
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) path_map: PathMap,
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
    pub(crate) fn words(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.path_map.word(word)).collect()
    }

    /// Returns true for a path in a host directory. Policy has not checked other paths, so they are not read.
    pub(crate) fn is_mounted(&self, path: &Path) -> bool {
        self.path_map.directory_of(path).is_some()
    }

    /// The working directory on the host, if it is mounted, or else the directory that is mounted as the workspace. Empty if
    /// there is neither.
    pub(crate) fn cwd_on_host(&self) -> &Path {
        let cwd = self.spec.cwd.as_deref().map(Path::new);
        cwd.filter(|cwd| self.is_mounted(cwd))
            .or_else(|| self.path_map.workspace())
            .unwrap_or(Path::new(""))
    }

    /// The nearest mounted directory with one of `manifests`, from any of `starts` upwards.
    pub(crate) fn project<'s>(
        &self,
        starts: impl IntoIterator<Item = &'s Path>,
        manifests: &[&str],
    ) -> Option<PathBuf> {
        starts
            .into_iter()
            .filter(|start| start.is_absolute())
            .filter_map(|start| nearest(&real(start), manifests))
            .find(|directory| self.is_mounted(directory))
    }

    /// Additional requirements for pip and uv.
    pub(crate) fn with(&self) -> Result<Vec<String>, LaunchError> {
        self.spec
            .with
            .iter()
            .map(|word| requirement(word))
            .collect()
    }

    /// Makes this directory, or the parent of this file, visible to the installer. The whole host directory becomes
    /// visible only if a manifest refers to files outside of that.
    pub(crate) fn show(&self, path: &Path, recipe: &mut Recipe) -> Result<(), LaunchError> {
        let Some(whole) = self.path_map.directory_of(path) else {
            return Ok(());
        };
        let directory = if path.is_dir() {
            Some(path)
        } else {
            path.parent()
        };
        let part = if manifests::refers_outside(path)? {
            None
        } else {
            directory.and_then(|directory| self.path_map.part(directory))
        };
        recipe.show(part.unwrap_or_else(|| whole.clone()));
        Ok(())
    }

    /// Installs a project from its manifests. Returns its path in the box.
    pub(crate) fn install_from(
        &self,
        directory: &Path,
        recipe: &mut Recipe,
    ) -> Result<String, LaunchError> {
        let box_path = self.path_map.path(directory).unwrap_or_default();
        self.show(directory, recipe)?;
        recipe.key.add("project", &box_path);
        manifests::add_manifests(&mut recipe.key, directory)?;
        recipe.call(
            "say",
            [format!("installing the dependencies of {box_path}")],
        );
        Ok(box_path)
    }

    /// A package that may be a path on the host. Its contents then become part of the key.
    pub(crate) fn requirement(
        &self,
        word: &str,
        recipe: &mut Recipe,
    ) -> Result<String, LaunchError> {
        let Some(box_path) = self.path_map.path(Path::new(word)) else {
            return plain(word);
        };
        let source = Path::new(without_extras(word));
        self.show(source, recipe)?;
        recipe.add_contents(source);
        // A requirements file may include others next to it.
        if !source.is_dir()
            && let Some(parent) = source.parent()
        {
            manifests::add_manifests(&mut recipe.key, parent)?;
        }
        Ok(box_path)
    }
}

/// `path` of `path[extra]`.
fn without_extras(word: &str) -> &str {
    word.strip_suffix(']')
        .and_then(|word| word.rsplit_once('['))
        .map_or(word, |(path, _)| path)
}
