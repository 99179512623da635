//! Paths of the host, and what they are called in the box.
//!
//! Comes in: words of a command. Goes out: the same words, with the mounted directory's name in the box
//! where they lie in it. Never here: a decision about what may be mounted. A relative word is left alone:
//! it is relative to the server's working directory, not to ours.

use std::path::{Component, Path, PathBuf};

/// What a directory with a Python environment is mostly called.
const VENV_NAMES: [&str; 4] = [".venv", "venv", "env", ".env"];
const VENV_PROGRAMS: [&str; 2] = ["bin", "Scripts"];

/// Where a path leads, as far as it exists.
pub(super) fn real(path: &Path) -> PathBuf {
    path.ancestors()
        .find_map(|ancestor| {
            let rest = path.strip_prefix(ancestor).ok()?;
            let real = ancestor.canonicalize().ok()?;
            // Joining nothing would leave a slash at the end.
            Some(if rest.as_os_str().is_empty() {
                real
            } else {
                real.join(rest)
            })
        })
        .unwrap_or_else(|| path.to_owned())
}

/// A Python environment that a path leads into.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Venv {
    pub(super) root: PathBuf,
    /// The directory it belongs to.
    pub(super) owner: PathBuf,
    /// The name of the program, when the path is one.
    pub(super) program: Option<String>,
}

impl Venv {
    /// By names, and by the file that every environment has. Links are not followed: an interpreter is
    /// mostly a link that leads out of its environment.
    pub(super) fn of(path: &Path) -> Option<Self> {
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

    pub(super) fn is_python(&self) -> bool {
        self.program
            .as_deref()
            .is_some_and(|program| program.starts_with("python"))
    }
}

/// `path`, or the directory above the environment that it lies in.
pub(super) fn unwrap_venv(path: &Path) -> PathBuf {
    Venv::of(path).map_or_else(|| path.to_owned(), |venv| venv.owner)
}

/// Directories of the host that the box sees under other names.
#[derive(Clone, Debug)]
pub(super) struct Rewrite {
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
pub(super) struct Place {
    /// As it was asked for; links and all.
    given: PathBuf,
    pub(super) real: PathBuf,
    /// Below the mount; empty for the mount itself.
    pub(super) name: String,
    mount: String,
}

impl Place {
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

    /// Where in it a path lies.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let climbs = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        let as_written = || {
            let inside = path
                .strip_prefix(&self.given)
                .or_else(|_| path.strip_prefix(&self.real))
                .ok()?;
            // Whether `a/..` is what it seems depends on links.
            (!climbs(inside)).then(|| inside.to_owned())
        };
        let as_it_leads = || {
            let led = real(path);
            let inside = led.strip_prefix(&self.real).ok()?;
            (!climbs(inside)).then(|| inside.to_owned())
        };
        // A link in the directory keeps its name: the copy has it too.
        as_written().or_else(as_it_leads)
    }

    pub(super) fn holds(&self, path: &Path) -> bool {
        path.is_absolute() && self.inside(path).is_some()
    }

    fn path(&self, path: &Path) -> Option<String> {
        let inside = self.inside(path)?;
        joined(&self.mount, &inside)
    }

    /// One directory of it, by its name below the mount. None where a link leads there: a box is shown
    /// nothing that lies behind one.
    pub(super) fn part(&self, directory: &Path) -> Option<Part> {
        let inside = self.inside(directory)?;
        let real = real(directory);
        (real == self.real.join(&inside)).then_some(())?;
        let name = joined(&self.name, &inside)?;
        Some(Part { name, real })
    }

    pub(super) fn whole(&self) -> Part {
        Part {
            name: self.name.clone(),
            real: self.real.clone(),
        }
    }
}

/// What an installer is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Below the mount; empty for all of it.
    pub(super) name: String,
    pub(super) real: PathBuf,
}

fn joined(to: &str, inside: &Path) -> Option<String> {
    let inside = inside.to_str()?;
    Some(match (to, inside) {
        (to, "") => to.to_owned(),
        ("", inside) => inside.to_owned(),
        (to, inside) => format!("{to}/{inside}"),
    })
}

impl Rewrite {
    /// One directory, which is the mount.
    pub(super) fn new(host: &Path, mount: &str) -> Self {
        Self {
            places: vec![Place::new(host, mount, String::new())],
        }
    }

    /// Each below the mount, under its own name.
    pub(super) fn several(hosts: &[PathBuf], mount: &str) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for host in hosts {
            let own = host.file_name().and_then(|name| name.to_str());
            let own = own.unwrap_or("directory");
            let is_taken = |name: &str| places.iter().any(|place| place.name == name);
            let mut name = own.to_owned();
            let mut number = 2;
            while is_taken(&name) {
                name = format!("{own}-{number}");
                number += 1;
            }
            places.push(Place::new(host, mount, name));
        }
        Self { places }
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The one directory that is the mount.
    pub(super) fn host(&self) -> Option<&Path> {
        match self.places.as_slice() {
            [only] if only.name.is_empty() => Some(&only.real),
            _ => None,
        }
    }

    /// The directory that a path lies in.
    pub(super) fn place_of(&self, path: &Path) -> Option<&Place> {
        self.places.iter().find(|place| place.path(path).is_some())
    }

    /// The name in the box of a path that lies in one of the directories.
    pub(super) fn path(&self, path: &Path) -> Option<String> {
        if !path.is_absolute() {
            return None;
        }
        self.places.iter().find_map(|place| place.path(path))
    }

    /// A word of a command: a path, or an option with one after its `=`.
    pub(super) fn word(&self, word: &str) -> String {
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

    /// The command itself: an interpreter of an environment in the directory is whichever the box has.
    pub(super) fn command(&self, command: &str) -> String {
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
