//! Installs skills from an archive.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::archive::{Archive, Member};
use crate::beneath::staging::Staging;
use crate::beneath::{self, Links, atomic};
use crate::front_matter::Document;
use crate::loading::discovery::{ENTRY_FILES, SCAN_DEPTH};
use crate::package_path::normalised;
use crate::store::{Root, SkillStore};
use crate::{Oversize, PlannedSkill, Skill, SkillError, ZipRequest, ZipSelection, loading, naming};

impl SkillStore {
    /// Lists the skills of an archive and their target directories. Writes nothing.
    pub fn preview_zip(
        &self,
        bytes: &[u8],
        request: &ZipRequest,
    ) -> Result<Vec<PlannedSkill>, SkillError> {
        let archive = Archive::open(bytes, self.limits())?;
        let plans = self.plan(&archive, request)?;
        Ok(plans.into_iter().map(|plan| plan.planned).collect())
    }

    /// Installs the selected skills, all or none.
    pub fn install_zip(
        &self,
        bytes: &[u8],
        request: &ZipRequest,
        selection: &ZipSelection,
    ) -> Result<Vec<Skill>, SkillError> {
        let mut archive = Archive::open(bytes, self.limits())?;
        let plans = self.plan(&archive, request)?;
        let chosen = choose(plans, selection)?;
        self.install(&mut archive, &chosen, None)
    }

    /// Installs the selected skills, all or none. Refuses names that are in use, and names each directory after the
    /// skill's directory in the archive, or after `name`, which renames a single skill.
    pub fn install_unique(
        &self,
        bytes: &[u8],
        request: &ZipRequest,
        source_paths: Vec<String>,
        name: Option<&str>,
    ) -> Result<Vec<Skill>, SkillError> {
        let mut archive = Archive::open(bytes, self.limits())?;
        let plans = self.plan(&archive, request)?;
        let selection = ZipSelection {
            source_paths,
            ..ZipSelection::default()
        };
        let mut chosen = choose(plans, &selection)?;
        if name.is_some() && chosen.len() != 1 {
            let paths = chosen.iter().map(|plan| plan.planned.source_path.as_str());
            let candidates = paths.collect::<Vec<_>>().join(", ");
            return Err(SkillError::ChooseSourcePaths { candidates });
        }
        let name = name.map(naming::checked_name).transpose()?;
        let mut names = BTreeSet::new();
        for plan in &mut chosen {
            let planned = &plan.planned;
            let installed = name.unwrap_or(&planned.skill.name);
            if !names.insert(installed.to_owned()) || self.get(installed)?.is_some() {
                let name = installed.to_owned();
                return Err(SkillError::NameTaken { name });
            }
            let leaf = planned.source_path.rsplit('/').next().unwrap_or_default();
            let directory = name.unwrap_or(leaf);
            if !directory.is_empty() {
                let stem = naming::target_stem(&format!("{directory}.zip"));
                plan.target = naming::target_name(&stem, "", &request.target_suffix)?;
            }
        }
        self.install(&mut archive, &chosen, name)
    }

    /// `name` replaces the names of the skills.
    fn install(
        &self,
        archive: &mut Archive<'_>,
        chosen: &[Plan],
        name: Option<&str>,
    ) -> Result<Vec<Skill>, SkillError> {
        let root = self.make_root()?;
        check_targets(&root, chosen)?;
        let failed = |error| SkillError::io("unpack into", &root.path, error);
        let staging = Staging::begin(root.dir.as_fd()).map_err(failed)?;
        for plan in chosen {
            let dir = staging.make(Path::new(&plan.target)).map_err(failed)?;
            unpack(archive, &plan.inside, dir.as_fd())?;
            if let Some(name) = name {
                // Before the package is in the store, which must not keep it if it cannot be renamed.
                self.set_name(dir.as_fd(), &root.path.join(&plan.target), name)?;
            }
        }
        // One flush for all files, so that they are not empty after a power failure.
        rustix::fs::syncfs(staging.dir()).map_err(|error| failed(error.into()))?;

        let _change = self.change();
        check_targets(&root, chosen)?;
        let mut published = 0;
        let installed = self.publish(&root, &staging, chosen, &mut published);
        if installed.is_err() {
            for plan in &chosen[..published] {
                let _ = staging.discard(root.dir.as_fd(), Path::new(&plan.target));
            }
        }
        installed
    }

    /// Moves unpacked skills into the store and reads them. Counts those that were moved, also if a later step fails.
    fn publish(
        &self,
        root: &Root,
        staging: &Staging,
        chosen: &[Plan],
        published: &mut usize,
    ) -> Result<Vec<Skill>, SkillError> {
        for plan in chosen {
            let target = Path::new(&plan.target);
            let is_new = staging.publish(target);
            if !is_new.map_err(|error| SkillError::io("unpack into", &root.path, error))? {
                return Err(exists(root, target));
            }
            *published += 1;
        }
        let contents = self.contents_of(root)?;
        let read = |plan: &Plan| {
            let installed = contents.at(Path::new(&plan.target));
            let skill = installed.map(|item| Skill::clone(&item.skill));
            skill.ok_or_else(|| SkillError::NoEntryFile {
                path: root.path.join(&plan.target),
            })
        };
        chosen.iter().map(read).collect()
    }

    fn plan(&self, archive: &Archive<'_>, request: &ZipRequest) -> Result<Vec<Plan>, SkillError> {
        let stem = naming::target_stem(&request.filename);
        let top = starting_directory(archive, &request.source_subdir)?;
        let root = self.root();
        let mut plans = Vec::new();
        for (inside, entry) in search(archive, &top) {
            let source_path = inside
                .strip_prefix(&top)
                .unwrap_or(&inside)
                .trim_start_matches('/')
                .to_owned();
            let target = naming::target_name(&stem, &source_path, &request.target_suffix)?;
            let text = archive.entry_text(&join(&inside, entry)).ok_or_else(|| {
                SkillError::too_large(Oversize::SkillMdBytes, self.limits().max_skill_md_bytes)
            })?;
            let document = Document::parse(loading::text(entry, text)?)?;
            // A skill is named after its directory; at the root of an archive, after its target directory.
            let directory = match inside.rsplit('/').next() {
                Some(last) if !last.is_empty() => last,
                _ => &target,
            };
            let skill = loading::describe(&document, entry, directory, &root.join(&target))?;
            plans.push(Plan {
                inside,
                target,
                planned: PlannedSkill { skill, source_path },
            });
        }
        if plans.is_empty() {
            return Err(SkillError::NoSkillBelow("the uploaded archive".to_owned()));
        }
        plans.sort_by(|one, other| one.planned.source_path.cmp(&other.planned.source_path));
        Ok(plans)
    }
}

/// One skill to install.
struct Plan {
    /// Its directory in the archive; empty for the archive's root.
    inside: String,
    /// Its target directory in the store.
    target: String,
    planned: PlannedSkill,
}

fn exists(root: &Root, target: &Path) -> SkillError {
    SkillError::DirectoryExists {
        path: root.path.join(target),
    }
}

fn check_targets(root: &Root, chosen: &[Plan]) -> Result<(), SkillError> {
    for (position, plan) in chosen.iter().enumerate() {
        let target = Path::new(&plan.target);
        if chosen[..position]
            .iter()
            .any(|other| other.target == plan.target)
        {
            return Err(SkillError::DuplicateTarget {
                path: root.path.join(target),
            });
        }
        match beneath::stat_entry(root.dir.as_fd(), target) {
            Ok(_) => return Err(exists(root, target)),
            Err(error) if beneath::is_missing(&error) => {}
            Err(error) => return Err(SkillError::io("inspect", root.path.join(target), error)),
        }
    }
    Ok(())
}

/// The root of the archive or its only directory, and from there the requested directory.
fn starting_directory(archive: &Archive<'_>, source_subdir: &str) -> Result<String, SkillError> {
    let mut at_top = archive
        .members()
        .iter()
        .filter(|(path, _)| !path.contains('/'));
    let top = match (at_top.next(), at_top.next()) {
        (Some((path, Member::Directory)), None) => path.clone(),
        _ => String::new(),
    };
    let subdir = naming::source_path(source_subdir);
    if subdir.is_empty() {
        return Ok(top);
    }
    let normal = normalised(&subdir);
    if normal.starts_with("..") {
        return Err(SkillError::SubdirEscapes);
    }
    if normal == "." {
        return Ok(top);
    }
    let inside = join(&top, &normal);
    match archive.members().get(&inside) {
        Some(Member::Directory) => Ok(inside),
        _ => Err(SkillError::SubdirMissing(subdir)),
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}/{name}")
    }
}

/// Directories with an entry file, breadth first. Skills are not searched for nested skills.
fn search(archive: &Archive<'_>, top: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let mut queue = VecDeque::from([(top.to_owned(), 0)]);
    while let Some((path, depth)) = queue.pop_front() {
        let entry = ENTRY_FILES.into_iter().find(|name| {
            matches!(
                archive.members().get(&join(&path, name)),
                Some(Member::File { .. })
            )
        });
        if let Some(entry) = entry {
            found.push((path, entry));
        } else if depth < SCAN_DEPTH {
            for (child, member) in children(archive, &path) {
                if *member == Member::Directory {
                    queue.push_back((child.to_owned(), depth + 1));
                }
            }
        }
    }
    found
}

fn children<'a>(
    archive: &'a Archive<'_>,
    parent: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Member)> {
    below(archive, parent).filter(move |(path, _)| {
        let rest = &path[parent.len()..];
        !rest.trim_start_matches('/').contains('/')
    })
}

/// All members below a directory, parents first.
fn below<'a>(
    archive: &'a Archive<'_>,
    parent: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Member)> {
    let prefix = if parent.is_empty() {
        String::new()
    } else {
        format!("{parent}/")
    };
    archive
        .members()
        .range(prefix.clone()..)
        .take_while(move |(path, _)| path.starts_with(&prefix))
        .map(|(path, member)| (path.as_str(), member))
}

fn choose(plans: Vec<Plan>, selection: &ZipSelection) -> Result<Vec<Plan>, SkillError> {
    let source_paths = plans.iter().map(|plan| match &*plan.planned.source_path {
        "" => ".",
        path => path,
    });
    let available = source_paths.collect::<Vec<_>>().join(", ");
    let requested = selection.source_paths.iter();
    let mut requested: Vec<String> = requested.map(|path| naming::source_path(path)).collect();
    let single = naming::source_path(&selection.source_path);
    if !single.is_empty() {
        requested.push(single);
    }
    if requested.is_empty() {
        return match plans.len() {
            1 => Ok(plans),
            _ => Err(SkillError::ChooseSourcePaths {
                candidates: available,
            }),
        };
    }
    let plans = plans.into_iter();
    let mut plans: HashMap<String, Option<Plan>> = plans
        .map(|plan| (plan.planned.source_path.clone(), Some(plan)))
        .collect();
    let mut chosen = Vec::new();
    for path in requested {
        let Some(plan) = plans.get_mut(&path) else {
            return Err(SkillError::InvalidSourcePath { path, available });
        };
        // A repeated path is ignored.
        chosen.extend(plan.take());
    }
    Ok(chosen)
}

/// Writes the members below a directory of the archive into a private directory.
fn unpack(
    archive: &mut Archive<'_>,
    inside: &str,
    target: BorrowedFd<'_>,
) -> Result<(), SkillError> {
    let members: Vec<(String, Member)> = below(archive, inside)
        .map(|(path, member)| {
            let relative = path[inside.len()..].trim_start_matches('/');
            (relative.to_owned(), member.clone())
        })
        .collect();
    for (path, member) in members {
        let path = Path::new(&path);
        let failed = |error| SkillError::io("unpack", path, error);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            continue;
        };
        let dir = beneath::open_dir(target, parent, Links::Never).map_err(failed)?;
        let name = Path::new(name);
        match member {
            Member::Directory => atomic::make_dir(dir.as_fd(), name).map_err(failed)?,
            Member::File {
                index,
                size,
                executable,
            } => {
                let mut file = beneath::create_file(dir.as_fd(), name).map_err(failed)?;
                archive.copy(index, size, &mut file)?;
                atomic::set_mode(file.as_fd(), executable).map_err(failed)?;
            }
        }
    }
    Ok(())
}
