//! Creates, updates and deletes skills.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};

use boxwood_api::SkillWarning;

use crate::beneath::staging::{Staging, is_staging_name};
use crate::beneath::{self, Links, atomic};
use crate::front_matter::{self, Document, Fields};
use crate::loading::discovery::{self, ENTRY_FILES};
use crate::loading::{self, Loaded};
use crate::python::strip;
use crate::store::{SkillStore, open_package, real_path};
use crate::{Limits, NewSkill, Oversize, Skill, SkillError, SkillPatch, copying, naming};

impl SkillStore {
    pub fn create(&self, new: &NewSkill) -> Result<Skill, SkillError> {
        let name = naming::checked_name(&new.name)?;
        let _change = self.change();
        if self.contents()?.find(name).is_some() {
            return Err(SkillError::NameTaken {
                name: name.to_owned(),
            });
        }
        let package_root = new.package_root.as_deref();
        let package_root = package_root.filter(|path| !strip(&path.to_string_lossy()).is_empty());
        let (path, warnings) = match package_root {
            None => (self.create_empty(name, new)?, Vec::new()),
            Some(package_root) => {
                let source = real_path(package_root);
                match source.strip_prefix(self.root()) {
                    Ok(inside) if !inside.as_os_str().is_empty() => {
                        let inside = inside.to_owned();
                        self.register_in_place(name, new, &source, &inside)?;
                        (inside, Vec::new())
                    }
                    _ => self.import(name, new, &source)?,
                }
            }
        };
        let contents = self.contents()?;
        let created = contents.at(&path).filter(|item| item.skill.name == name);
        let mut skill = created
            .map(|item| Skill::clone(&item.skill))
            .ok_or_else(|| SkillError::CreateFailed(name.to_owned()))?;
        skill.warnings.extend(warnings);
        Ok(skill)
    }

    fn create_empty(&self, name: &str, new: &NewSkill) -> Result<PathBuf, SkillError> {
        let root = self.make_root()?;
        let text = new_text(name, new, None)?;
        let target = Path::new(name);
        let failed = |error| SkillError::io("create", root.path.join(name), error);
        let staging = Staging::begin(root.dir.as_fd()).map_err(failed)?;
        let dir = staging.make(target).map_err(failed)?;
        self.write_entry(dir.as_fd(), &root.path.join(name), &text)?;
        if staging.publish(target).map_err(failed)? {
            return Ok(target.to_owned());
        }
        // A directory without an entry file is filled. Anything else is not overwritten.
        let taken = || SkillError::DirectoryExists {
            path: root.path.join(name),
        };
        let old = beneath::open_dir(root.dir.as_fd(), target, Links::Never).map_err(|_| taken())?;
        let (entry, unusable) = discovery::find_entry(old.as_fd()).map_err(failed)?;
        if entry.is_some() || unusable.is_some() {
            return Err(taken());
        }
        self.write_entry(old.as_fd(), &root.path.join(name), &text)?;
        Ok(target.to_owned())
    }

    /// Registers a directory that is already in the store.
    fn register_in_place(
        &self,
        name: &str,
        new: &NewSkill,
        source: &Path,
        inside: &Path,
    ) -> Result<(), SkillError> {
        let missing = || SkillError::DirectoryMissing {
            path: source.to_owned(),
        };
        if is_staging_name(inside.as_os_str().as_encoded_bytes()) {
            return Err(missing());
        }
        let root = self.open_root()?.ok_or_else(missing)?;
        let dir =
            beneath::open_dir(root.dir.as_fd(), inside, Links::Never).map_err(|_| missing())?;
        self.rename_entry(dir.as_fd(), source, name, new)
    }

    /// Imports a directory of the host by copying it.
    fn import(
        &self,
        name: &str,
        new: &NewSkill,
        source: &Path,
    ) -> Result<(PathBuf, Vec<SkillWarning>), SkillError> {
        let from = self.open_outside(source)?;
        let target = Path::new(name);
        let root = self.make_root()?;
        let managed = root.path.join(name);
        // A directory that contains the store would be copied into itself.
        if root.path.starts_with(&from.path) {
            return Err(SkillError::ImportNotAllowed { path: from.path });
        }
        if beneath::stat_entry(root.dir.as_fd(), target).is_ok() {
            return Err(SkillError::DirectoryExists { path: managed });
        }
        entry_of(from.dir.as_fd(), &from.path)?;
        let failed = |error| SkillError::io("import", &from.path, error);
        let staging = Staging::begin(root.dir.as_fd()).map_err(failed)?;
        let copy = staging.make(target).map_err(failed)?;
        let warnings = copying::copy_tree(from.dir.as_fd(), copy.as_fd(), self.limits())?;
        self.rename_entry(copy.as_fd(), &managed, name, new)?;
        rustix::fs::syncfs(&copy).map_err(|error| failed(error.into()))?;
        if !staging.publish(target).map_err(failed)? {
            return Err(SkillError::DirectoryExists { path: managed });
        }
        Ok((target.to_owned(), warnings))
    }

    /// Rewrites the entry file of an imported package for its new name.
    fn rename_entry(
        &self,
        dir: BorrowedFd<'_>,
        path: &Path,
        name: &str,
        new: &NewSkill,
    ) -> Result<(), SkillError> {
        let entry = entry_of(dir, path)?;
        let imported = loading::load(dir, entry, path, self.limits())?;
        let text = new_text(name, new, Some(&imported))?;
        self.write_entry(dir, path, &text)
    }

    /// Renames an unpacked package, unless it has this name.
    pub(crate) fn set_name(
        &self,
        dir: BorrowedFd<'_>,
        path: &Path,
        name: &str,
    ) -> Result<(), SkillError> {
        let unpacked = loading::load(dir, entry_of(dir, path)?, path, self.limits())?;
        if unpacked.skill.name == name {
            return Ok(());
        }
        self.rename_entry(dir, path, name, &NewSkill::default())
    }

    fn write_entry(&self, dir: BorrowedFd<'_>, path: &Path, text: &str) -> Result<(), SkillError> {
        check_text(text, self.limits())?;
        atomic::write(dir, Path::new(ENTRY_FILES[0]), text.as_bytes())
            .map_err(|error| SkillError::io("write", path.join(ENTRY_FILES[0]), error))
    }

    pub fn update(&self, name: &str, patch: &SkillPatch) -> Result<Skill, SkillError> {
        let _change = self.change();
        let (root, _, located) = self.locate(name)?;
        let skill = &located.skill;
        let requested_name = patch
            .name
            .as_deref()
            .filter(|requested| !requested.is_empty());
        if requested_name.is_some_and(|requested| strip(requested) != skill.name) {
            return Err(SkillError::RenameNotSupported);
        }
        if let Some(package_root) = &patch.package_root {
            let package_root = package_root.to_string_lossy();
            let package_root = strip(&package_root);
            if !package_root.is_empty() && real_path(Path::new(package_root)) != skill.package_root
            {
                return Err(SkillError::MoveNotSupported);
            }
        }
        let package = open_package(&root, &located)?;
        // Not from the index: a box may have changed the file.
        let entry = entry_of(package.dir.as_fd(), &skill.package_root)?;
        let dir = package.dir.as_fd();
        let loaded = loading::load(dir, entry, &skill.package_root, self.limits())?;
        let has_name = loaded.document.text("name")?.is_some();
        let fields = Fields {
            name: (!has_name).then_some(skill.name.as_str()),
            display_name: patch.display_name.as_deref(),
            description: patch.description.as_deref(),
        };
        let body = patch.instructions.as_deref();
        let body = body.unwrap_or(&loaded.document.body);
        let text = front_matter::rewrite(&loaded.document, &fields, body)?;
        self.write_entry(dir, &skill.package_root, &text)?;
        let contents = self.contents_of(&root)?;
        let updated = contents.at(&located.path);
        updated
            .map(|item| Skill::clone(&item.skill))
            .ok_or_else(|| SkillError::LostByUpdate(name.to_owned()))
    }

    /// Removes a skill together with its top-level directory in the store. If that directory contains other skills,
    /// only the directory of the skill is removed.
    pub fn delete(&self, name: &str) -> Result<(), SkillError> {
        let _change = self.change();
        let (root, contents, located) = self.locate(name)?;
        let Some(Component::Normal(top)) = located.path.components().next() else {
            return Err(SkillError::NotManaged);
        };
        let skills_in_top = contents
            .skills
            .iter()
            .filter(|item| item.path.starts_with(top))
            .count();
        let removed = if skills_in_top == 1 {
            Path::new(top)
        } else {
            located.path.as_path()
        };
        let failed = |error| SkillError::io("delete", root.path.join(removed), error);
        let (parent, last) = match (removed.parent(), removed.file_name()) {
            (Some(parent), Some(last)) => (parent, Path::new(last)),
            _ => return Err(SkillError::NotManaged),
        };
        let parent = beneath::open_dir(root.dir.as_fd(), parent, Links::Never).map_err(failed)?;
        let staging = Staging::begin(root.dir.as_fd()).map_err(failed)?;
        staging.discard(parent.as_fd(), last).map_err(failed)?;
        rustix::fs::fsync(&parent).map_err(|error| failed(error.into()))
    }
}

fn entry_of(dir: BorrowedFd<'_>, path: &Path) -> Result<&'static str, SkillError> {
    let (entry, _) =
        discovery::find_entry(dir).map_err(|error| SkillError::io("read", path, error))?;
    entry.ok_or_else(|| SkillError::NoEntryFile {
        path: path.to_owned(),
    })
}

/// A value in the request overrides that of the imported package unless it is blank.
fn new_text(name: &str, new: &NewSkill, imported: Option<&Loaded>) -> Result<String, SkillError> {
    let none = Document::parse("")?;
    let document = imported.map_or(&none, |imported| &imported.document);
    let given = |value: &'_ Option<String>| match value.as_deref() {
        Some(value) if imported.is_none() || !strip(value).is_empty() => Some(value.to_owned()),
        _ => None,
    };
    // A package without a display name was shown under its old name, which stays its display name.
    let display_name = given(&new.display_name).or_else(|| {
        let old_name = imported.map(|imported| imported.skill.display_name.clone())?;
        let own = document.text("display_name").ok().flatten().is_some();
        (!own && old_name != name).then_some(old_name)
    });
    let description = given(&new.description);
    let same_name = document.text("name")?.as_deref() == Some(name);
    let fields = Fields {
        name: (!same_name).then_some(name),
        display_name: display_name.as_deref(),
        description: description.as_deref(),
    };
    let body = given(&new.instructions).unwrap_or_else(|| document.body.clone());
    front_matter::rewrite(document, &fields, &body)
}

/// An unreadable `SKILL.md` would remove the skill from the listing.
pub(crate) fn check_text(text: &str, limits: &Limits) -> Result<(), SkillError> {
    Oversize::SkillMdBytes.check(text.len(), limits.max_skill_md_bytes)?;
    Document::parse(text).map(|_| ())
}
