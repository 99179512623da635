//! Maps host paths to paths in the box.
//!
//! Relative words stay unchanged, because they are relative to the server's working directory.

use std::path::{Component, Path, PathBuf};

use boxwood_api::DEFAULT_MOUNT_PATH;

/// Usual names of virtual environments.
const VENV_NAMES: [&str; 4] = [".venv", "venv", "env", ".env"];
const VENV_PROGRAMS: [&str; 2] = ["bin", "Scripts"];

/// Canonicalizes the existing part of a path.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.ancestors()
        .find_map(|ancestor| {
            let rest = path.strip_prefix(ancestor).ok()?;
            let real = ancestor.canonicalize().ok()?;
            // Joining an empty path would append a slash.
            Some(if rest.as_os_str().is_empty() {
                real
            } else {
                real.join(rest)
            })
        })
        .unwrap_or_else(|| path.to_owned())
}

/// A virtual environment that contains a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Venv {
    pub(crate) root: PathBuf,
    /// The parent directory of the environment.
    pub(crate) owner: PathBuf,
    /// The file name, if the path is a program.
    pub(crate) program: Option<String>,
}

impl Venv {
    /// Recognizes an environment by its name or its `pyvenv.cfg`. Links are not followed, because the interpreter is
    /// usually a link to a file outside of the environment.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        path.ancestors().find_map(|programs| {
            let name = programs.file_name()?.to_str()?;
            let root = programs.parent()?;
            let has_known_name = root
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| VENV_NAMES.contains(&name));
            let is_venv = VENV_PROGRAMS.contains(&name)
                && (has_known_name || root.join("pyvenv.cfg").is_file());
            is_venv.then(|| Self {
                root: root.to_owned(),
                owner: root.parent().unwrap_or(Path::new("/")).to_owned(),
                program: path
                    .strip_prefix(programs)
                    .ok()
                    .and_then(Path::to_str)
                    .filter(|program| !program.is_empty() && !program.contains('/'))
                    .map(str::to_owned),
            })
        })
    }

    pub(crate) fn is_python(&self) -> bool {
        self.program
            .as_deref()
            .is_some_and(|program| program.starts_with("python"))
    }
}

/// `path`, or the parent of the virtual environment that contains it.
pub(crate) fn unwrap_venv(path: &Path) -> PathBuf {
    Venv::of(path).map_or_else(|| path.to_owned(), |venv| venv.owner)
}

/// Splits `--option=/path` behind the equals sign. Other words have an empty first part.
pub(super) fn option_and_path(word: &str) -> (&str, &str) {
    match word.find('=') {
        Some(at) if word.starts_with('-') => word.split_at(at + 1),
        _ => ("", word),
    }
}

/// A host directory and where a box sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostDirectory {
    /// Subdirectory of the mount. Empty for the mount itself.
    pub(crate) name: String,
    pub(crate) real: PathBuf,
}

/// Host directories and their paths in the box. Empty if no directory is mounted.
#[derive(Clone, Debug)]
pub(crate) struct PathMap {
    mappings: Vec<Mapping>,
}

#[derive(Clone, Debug)]
struct Mapping {
    /// As given, before canonicalization.
    given: PathBuf,
    directory: HostDirectory,
}

impl Mapping {
    /// The relative path inside this directory.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let real_path = real(path);
        let as_written = path
            .strip_prefix(&self.given)
            .or_else(|_| path.strip_prefix(&self.directory.real));
        // A link inside the directory keeps its name, because the mount has it too.
        let mut inside = as_written
            .into_iter()
            .chain(real_path.strip_prefix(&self.directory.real));
        // `a/..` is not the directory that contains `a` if `a` is a link.
        let has_parent = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        inside
            .find(|inside| !has_parent(inside))
            .map(Path::to_owned)
    }
}

fn joined(base: &str, inside: &str) -> String {
    match (base, inside) {
        (base, "") => base.to_owned(),
        ("", inside) => inside.to_owned(),
        (base, inside) => format!("{base}/{inside}"),
    }
}

impl PathMap {
    /// A single directory is the workspace itself. Several are subdirectories of it with their own names.
    pub(crate) fn new(paths: &[PathBuf]) -> Self {
        let mut mappings: Vec<Mapping> = Vec::new();
        for path in paths {
            let base = path.file_name().and_then(|name| name.to_str());
            let base = match paths {
                [_] => "",
                _ => base.unwrap_or("directory"),
            };
            let is_taken = |name: &str| mappings.iter().any(|it| it.directory.name == name);
            let mut name = base.to_owned();
            let mut number = 2;
            while is_taken(&name) {
                name = format!("{base}-{number}");
                number += 1;
            }
            mappings.push(Mapping {
                given: path.components().collect(),
                directory: HostDirectory {
                    name,
                    real: real(path),
                },
            });
        }
        Self { mappings }
    }

    pub(crate) fn directories(&self) -> impl Iterator<Item = &HostDirectory> {
        self.mappings.iter().map(|mapping| &mapping.directory)
    }

    /// The directory that is the workspace itself.
    pub(crate) fn workspace(&self) -> Option<&Path> {
        let whole = self.directories().find(|it| it.name.is_empty());
        whole.map(|it| it.real.as_path())
    }

    /// The host directory that contains `path`, and the relative path in it.
    fn find(&self, path: &Path) -> Option<(&HostDirectory, String)> {
        let found = self.mappings.iter().find_map(|mapping| {
            let inside = mapping.inside(path)?.into_os_string();
            Some((&mapping.directory, inside.into_string().ok()?))
        });
        found.filter(|_| path.is_absolute())
    }

    pub(crate) fn directory_of(&self, path: &Path) -> Option<&HostDirectory> {
        Some(self.find(path)?.0)
    }

    /// A subdirectory as a host directory of its own. `None` behind a link, because boxes do not see link targets.
    pub(crate) fn part(&self, directory: &Path) -> Option<HostDirectory> {
        let (whole, inside) = self.find(directory)?;
        let real = real(directory);
        (real == whole.real.join(&inside)).then(|| HostDirectory {
            name: joined(&whole.name, &inside),
            real,
        })
    }

    /// The path in the box.
    pub(crate) fn path(&self, path: &Path) -> Option<String> {
        let (directory, inside) = self.find(path)?;
        let mount = joined(DEFAULT_MOUNT_PATH, &directory.name);
        Some(joined(&mount, &inside))
    }

    /// Maps a path, or the path in `--option=/path`.
    pub(crate) fn word(&self, word: &str) -> String {
        let (option, path) = option_and_path(word);
        match self.path(Path::new(path)) {
            Some(path) => format!("{option}{path}"),
            None => word.to_owned(),
        }
    }

    /// The command itself. The interpreter of a mapped virtual environment becomes the box's `python`.
    pub(crate) fn command(&self, command: &str) -> String {
        let path = Path::new(command);
        let venv = Venv::of(path).filter(|venv| self.path(&venv.owner).is_some());
        match venv {
            Some(venv) if venv.is_python() => "python".to_owned(),
            _ => self.path(path).unwrap_or_else(|| command.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
