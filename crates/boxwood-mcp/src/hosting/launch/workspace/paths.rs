//! Maps host paths to paths in the box.
//!
//! Relative words stay unchanged, because they are relative to the server's working directory.

use std::path::{Component, Path, PathBuf};

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
    /// Recognized by name or by `pyvenv.cfg`. Links are not followed, because the interpreter is usually a link out
    /// of the environment.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        path.ancestors().find_map(|programs| {
            let name = programs.file_name()?.to_str()?;
            let root = programs.parent()?;
            let is_named_so = root
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| VENV_NAMES.contains(&name));
            let is_venv =
                VENV_PROGRAMS.contains(&name) && (is_named_so || root.join("pyvenv.cfg").is_file());
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

/// Host directories and their paths in the box.
#[derive(Clone, Debug)]
pub(crate) struct PathMap {
    mappings: Vec<Mapping>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// As given, before canonicalization.
    given: PathBuf,
    pub(crate) real: PathBuf,
    /// Subdirectory of the mount. Empty for the mount itself.
    pub(crate) name: String,
    mount: String,
}

impl Mapping {
    fn new(host: &Path, mount: &str, name: String) -> Self {
        Self {
            given: host.components().collect(),
            real: real(host),
            mount: if name.is_empty() {
                mount.to_owned()
            } else {
                format!("{mount}/{name}")
            },
            name,
        }
    }

    /// The relative path inside this directory.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let climbs = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        let as_written = || {
            let inside = path
                .strip_prefix(&self.given)
                .or_else(|_| path.strip_prefix(&self.real))
                .ok()?;
            // Links decide what `a/..` means.
            (!climbs(inside)).then(|| inside.to_owned())
        };
        let as_it_leads = || {
            let led = real(path);
            let inside = led.strip_prefix(&self.real).ok()?;
            (!climbs(inside)).then(|| inside.to_owned())
        };
        // A link inside the directory keeps its name, because the mount has it too.
        as_written().or_else(as_it_leads)
    }

    fn path(&self, path: &Path) -> Option<String> {
        let inside = self.inside(path)?;
        joined(&self.mount, &inside)
    }

    /// One subdirectory, by its name below the mount. `None` behind a link, because boxes do not see link targets.
    pub(crate) fn part(&self, directory: &Path) -> Option<HostDirectory> {
        let inside = self.inside(directory)?;
        let real = real(directory);
        (real == self.real.join(&inside)).then_some(())?;
        let name = joined(&self.name, &inside)?;
        Some(HostDirectory { name, real })
    }

    pub(crate) fn whole(&self) -> HostDirectory {
        HostDirectory {
            name: self.name.clone(),
            real: self.real.clone(),
        }
    }
}

/// A host directory and where a box sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostDirectory {
    /// Subdirectory of the mount. Empty for the mount itself.
    pub(crate) name: String,
    pub(crate) real: PathBuf,
}

fn joined(to: &str, inside: &Path) -> Option<String> {
    let inside = inside.to_str()?;
    Some(match (to, inside) {
        (to, "") => to.to_owned(),
        ("", inside) => inside.to_owned(),
        (to, inside) => format!("{to}/{inside}"),
    })
}

impl PathMap {
    /// One directory, which is the mount itself.
    pub(crate) fn new(host: &Path, mount: &str) -> Self {
        Self {
            mappings: vec![Mapping::new(host, mount, String::new())],
        }
    }

    /// Several directories, each in a subdirectory of the mount with its own name.
    pub(crate) fn several(hosts: &[PathBuf], mount: &str) -> Self {
        let mut mappings: Vec<Mapping> = Vec::new();
        for host in hosts {
            let own = host.file_name().and_then(|name| name.to_str());
            let own = own.unwrap_or("directory");
            let is_taken = |name: &str| mappings.iter().any(|place| place.name == name);
            let mut name = own.to_owned();
            let mut number = 2;
            while is_taken(&name) {
                name = format!("{own}-{number}");
                number += 1;
            }
            mappings.push(Mapping::new(host, mount, name));
        }
        Self { mappings }
    }

    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The directory that is the mount itself.
    pub(crate) fn host(&self) -> Option<&Path> {
        match self.mappings.as_slice() {
            [only] if only.name.is_empty() => Some(&only.real),
            _ => None,
        }
    }

    pub(crate) fn place_of(&self, path: &Path) -> Option<&Mapping> {
        self.mappings
            .iter()
            .find(|place| place.path(path).is_some())
    }

    /// The path in the box.
    pub(crate) fn path(&self, path: &Path) -> Option<String> {
        if !path.is_absolute() {
            return None;
        }
        self.mappings.iter().find_map(|place| place.path(path))
    }

    /// Maps a path, or the path in `--option=/path`.
    pub(crate) fn word(&self, word: &str) -> String {
        if let Some(path) = self.path(Path::new(word)) {
            return path;
        }
        let option = word
            .split_once('=')
            .filter(|(name, _)| name.starts_with('-'));
        if let Some((name, value)) = option
            && let Some(path) = self.path(Path::new(value))
        {
            return format!("{name}={path}");
        }
        word.to_owned()
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
