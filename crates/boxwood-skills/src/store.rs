//! The store as its callers see it.
//!
//! Comes in: names, paths, bytes. Goes out: skills and files. Never here: async (callers use
//! `spawn_blocking`), JSON, who may ask.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::{
    BinaryFile, FileListing, Limits, NewSkill, PlannedSkill, Problem, Skill, SkillError,
    SkillPatch, TextFile, Warning, WrittenFile, ZipRequest, ZipSelection,
};

/// A directory of skill packages. Cloning shares it.
#[derive(Clone, Debug)]
pub struct SkillStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: RwLock<PathBuf>,
    limits: Limits,
}

fn pending<T>() -> Result<T, SkillError> {
    Err(SkillError::io(
        "use",
        "store",
        std::io::Error::from(std::io::ErrorKind::Unsupported),
    ))
}

impl SkillStore {
    /// The root need not exist yet.
    pub fn new(root: PathBuf, limits: Limits) -> Self {
        Self {
            inner: Arc::new(Inner {
                root: RwLock::new(root),
                limits,
            }),
        }
    }

    pub fn root(&self) -> PathBuf {
        self.inner
            .root
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    pub fn set_root(&self, root: PathBuf) {
        *self
            .inner
            .root
            .write()
            .unwrap_or_else(PoisonError::into_inner) = root;
    }

    /// Newest first.
    pub fn list(&self) -> Result<Vec<Skill>, SkillError> {
        pending()
    }

    /// What `list` had to leave out.
    pub fn problems(&self) -> Result<Vec<Problem>, SkillError> {
        pending()
    }

    pub fn get(&self, _name: &str) -> Result<Option<Skill>, SkillError> {
        pending()
    }

    /// Where a skill's files are, for mounting.
    pub fn package_dir(&self, _name: &str) -> Result<Option<PathBuf>, SkillError> {
        pending()
    }

    pub fn create(&self, _new: &NewSkill) -> Result<Skill, SkillError> {
        pending()
    }

    pub fn update(&self, _name: &str, _patch: &SkillPatch) -> Result<Skill, SkillError> {
        pending()
    }

    pub fn delete(&self, _name: &str) -> Result<(), SkillError> {
        pending()
    }

    pub fn scan(&self, _path: &Path) -> Result<Skill, SkillError> {
        pending()
    }

    pub fn list_files(
        &self,
        _name: &str,
        _path: &str,
        _include_hidden: bool,
        _max_entries: usize,
    ) -> Result<FileListing, SkillError> {
        pending()
    }

    pub fn read_text(&self, _name: &str, _path: &str) -> Result<TextFile, SkillError> {
        pending()
    }

    pub fn read_bytes(&self, _name: &str, _path: &str) -> Result<BinaryFile, SkillError> {
        pending()
    }

    pub fn write(
        &self,
        _name: &str,
        _path: &str,
        _content: &[u8],
    ) -> Result<WrittenFile, SkillError> {
        pending()
    }

    /// Removes a file, a link or a whole directory. The entry file stays.
    pub fn delete_file(&self, _name: &str, _path: &str) -> Result<(), SkillError> {
        pending()
    }

    /// Refuses to replace what is already there.
    pub fn move_file(&self, _name: &str, _from: &str, _to: &str) -> Result<(), SkillError> {
        pending()
    }

    pub fn preview_zip(
        &self,
        _bytes: &[u8],
        _request: &ZipRequest,
    ) -> Result<Vec<PlannedSkill>, SkillError> {
        pending()
    }

    pub fn install_zip(
        &self,
        _bytes: &[u8],
        _request: &ZipRequest,
        _selection: &ZipSelection,
    ) -> Result<Vec<Skill>, SkillError> {
        pending()
    }

    pub fn export_zip(&self, _name: &str) -> Result<Vec<u8>, SkillError> {
        pending()
    }

    /// Reads a package anywhere on disk and tells what the Agent Skills rules say about it.
    pub fn validate(&self, _dir: &Path) -> Result<Vec<Warning>, SkillError> {
        pending()
    }
}
