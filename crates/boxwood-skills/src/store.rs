//! The public interface of the store.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_api::SkillWarning;

use crate::beneath::{self, Links};
use crate::index::{Contents, Index, Located};
use crate::loading::discovery::{self, SCAN_DEPTH};
use crate::{Limits, Problem, Skill, SkillError, copying, loading};

/// A directory of skill packages. Cloning shares it.
#[derive(Clone, Debug)]
pub struct SkillStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: Mutex<PathBuf>,
    limits: Limits,
    index: Mutex<Index>,
    /// Held during changes, so that a check and the following change are atomic. Archives are unpacked
    /// before it is taken.
    changing: Mutex<()>,
}

/// The open root directory of the store.
pub(crate) struct Root {
    pub(crate) dir: OwnedFd,
    pub(crate) path: PathBuf,
}

/// The open directory of a skill.
pub(crate) struct Package {
    pub(crate) dir: OwnedFd,
    pub(crate) skill: Arc<Skill>,
}

impl SkillStore {
    /// The root need not exist yet.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the store keeps the resolved path"
    )]
    pub fn new(root: PathBuf, limits: Limits) -> Self {
        Self {
            inner: Arc::new(Inner {
                root: Mutex::new(real_path(&root)),
                limits,
                index: Mutex::default(),
                changing: Mutex::default(),
            }),
        }
    }

    /// Absolute, with links resolved as far as the path exists.
    pub fn root(&self) -> PathBuf {
        lock(&self.inner.root).clone()
    }

    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// LangBot sets the skill directory at each start.
    pub fn set_root(&self, root: impl AsRef<Path>) {
        let root = real_path(root.as_ref());
        let mut current = lock(&self.inner.root);
        if *current != root {
            *current = root;
            self.index().clear();
        }
    }

    /// Newest first.
    pub fn list(&self) -> Result<Vec<Skill>, SkillError> {
        let contents = self.contents()?;
        let skills = contents.skills.into_iter();
        Ok(skills
            .map(|item| Arc::unwrap_or_clone(item.skill))
            .collect())
    }

    /// What is missing from [`SkillStore::list`], with the reasons.
    pub fn problems(&self) -> Result<Vec<Problem>, SkillError> {
        Ok(self.contents()?.problems)
    }

    pub fn get(&self, name: &str) -> Result<Option<Skill>, SkillError> {
        Ok(self.find(name)?.map(Arc::unwrap_or_clone))
    }

    /// The directory of a skill, for mounting.
    pub fn package_dir(&self, name: &str) -> Result<Option<PathBuf>, SkillError> {
        Ok(self.find(name)?.map(|skill| skill.package_root.clone()))
    }

    fn find(&self, name: &str) -> Result<Option<Arc<Skill>>, SkillError> {
        let contents = self.contents()?;
        Ok(contents.find(name).map(|item| Arc::clone(&item.skill)))
    }

    /// Reads the single skill in a directory of the host or at most two levels below.
    pub fn scan(&self, path: &Path) -> Result<Skill, SkillError> {
        let top = self.open_outside(path)?;
        let limits = self.limits();
        let failed = |error| SkillError::io("search", path, error);
        let found = discovery::search(top.dir.as_fd(), SCAN_DEPTH, limits.max_searched_directories)
            .map_err(failed)?;
        match found.as_slice() {
            [] => Err(SkillError::NoSkillBelow(path.display().to_string())),
            [one] => {
                let dir =
                    beneath::open_dir(top.dir.as_fd(), &one.path, Links::Never).map_err(failed)?;
                let package_root = below(&top.path, &one.path);
                Ok(loading::load(dir.as_fd(), one.entry, &package_root, limits)?.skill)
            }
            several => Err(SkillError::SeveralSkillsBelow {
                path: path.to_owned(),
                candidates: several
                    .iter()
                    .map(|found| below(&top.path, &found.path))
                    .collect(),
            }),
        }
    }

    /// Reads a package anywhere on disk and checks it against the Agent Skills rules.
    pub fn validate(&self, dir: &Path) -> Result<Vec<SkillWarning>, SkillError> {
        let top = open_existing(dir)?;
        copying::validate(top.dir.as_fd(), &top.path, self.limits())
    }

    pub(crate) fn contents(&self) -> Result<Contents, SkillError> {
        match self.open_root()? {
            Some(root) => self.contents_of(&root),
            None => Ok(Contents::default()),
        }
    }

    pub(crate) fn contents_of(&self, root: &Root) -> Result<Contents, SkillError> {
        self.index()
            .contents(root.dir.as_fd(), &root.path, self.limits())
            .map_err(|error| SkillError::io("list", &root.path, error))
    }

    /// Opens the directory of a skill. Fails if there is no such skill.
    pub(crate) fn package(&self, name: &str) -> Result<Package, SkillError> {
        let (root, _, located) = self.locate(name)?;
        open_package(&root, &located)
    }

    /// The open store, its contents and the skill with this name. Fails if there is no such skill.
    pub(crate) fn locate(&self, name: &str) -> Result<(Root, Contents, Located), SkillError> {
        let missing = || SkillError::NotFound {
            name: name.to_owned(),
        };
        let root = self.open_root()?.ok_or_else(missing)?;
        let contents = self.contents_of(&root)?;
        let located = contents.find(name).cloned().ok_or_else(missing)?;
        Ok((root, contents, located))
    }

    /// `None` if the root does not exist.
    pub(crate) fn open_root(&self) -> Result<Option<Root>, SkillError> {
        let path = self.root();
        match beneath::open_top(&path) {
            Ok(dir) => Ok(Some(Root { dir, path })),
            Err(error) if beneath::is_missing(&error) => Ok(None),
            Err(error) => Err(SkillError::io("open", path, error)),
        }
    }

    pub(crate) fn make_root(&self) -> Result<Root, SkillError> {
        let path = self.root();
        let failed = |error| SkillError::io("create", &path, error);
        std::fs::create_dir_all(&path).map_err(failed)?;
        let dir = beneath::open_top(&path).map_err(failed)?;
        Ok(Root { dir, path })
    }

    /// Opens a directory of the host to import from.
    pub(crate) fn open_outside(&self, path: &Path) -> Result<Root, SkillError> {
        let top = open_existing(path)?;
        let within = |root: &PathBuf| top.path.starts_with(real_path(root));
        let roots = self.limits().import_roots.as_ref();
        let allowed = roots.is_none_or(|roots| roots.iter().any(within));
        if allowed || top.path.starts_with(self.root()) {
            Ok(top)
        } else {
            Err(SkillError::ImportNotAllowed {
                path: path.to_owned(),
            })
        }
    }

    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        lock(&self.inner.changing)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.inner.index)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn open_package(root: &Root, located: &Located) -> Result<Package, SkillError> {
    let dir = beneath::open_dir(root.dir.as_fd(), &located.path, Links::Never)
        .map_err(|error| SkillError::io("open", &located.skill.package_root, error))?;
    Ok(Package {
        dir,
        skill: Arc::clone(&located.skill),
    })
}

fn open_existing(path: &Path) -> Result<Root, SkillError> {
    let missing = || SkillError::DirectoryMissing {
        path: path.to_owned(),
    };
    let real = std::fs::canonicalize(path).map_err(|_| missing())?;
    match beneath::open_top(&real) {
        Ok(dir) => Ok(Root { dir, path: real }),
        Err(error) if beneath::is_missing(&error) => Err(missing()),
        Err(error) => Err(SkillError::io("open", path, error)),
    }
}

/// Like `join`, without a trailing slash for an empty path.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        root.to_owned()
    } else {
        root.join(path)
    }
}

/// Equivalent of `realpath` in Python: resolves the symlinks of the existing part of a path, and `..` in the rest.
pub fn real_path(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut existing = path.as_path();
    loop {
        if let Ok(real) = std::fs::canonicalize(existing) {
            let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
            let mut resolved = real;
            for part in rest.components() {
                match part {
                    Component::ParentDir => {
                        resolved.pop();
                    }
                    Component::Normal(name) => resolved.push(name),
                    _ => {}
                }
            }
            return resolved;
        }
        match existing.parent() {
            Some(parent) => existing = parent,
            None => return path,
        }
    }
}
