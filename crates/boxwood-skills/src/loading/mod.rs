//! Loads a [`Skill`] from a package.

pub(crate) mod discovery;
pub(crate) mod rules;

use std::os::fd::BorrowedFd;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::Stat;

use crate::beneath::{self, Links};
use crate::front_matter::Document;
use crate::{Limits, Oversize, Skill, SkillError};
use discovery::ENTRY_FILES;

/// A skill and the text of its entry file.
pub(crate) struct Loaded {
    pub(crate) skill: Skill,
    pub(crate) document: Document,
    /// Metadata of the file itself; links are followed.
    pub(crate) stat: Stat,
}

pub(crate) fn load(
    dir: BorrowedFd<'_>,
    entry: &'static str,
    package_root: &Path,
    limits: &Limits,
) -> Result<Loaded, SkillError> {
    let failed = |error: std::io::Error| {
        if beneath::leads_out(&error) {
            SkillError::PathEscapes
        } else {
            SkillError::io("read", package_root.join(entry), error)
        }
    };
    let file = beneath::open_file(dir, Path::new(entry), Links::Inside).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
    if !beneath::is_regular(&stat) {
        return Err(SkillError::FileNotRegular(entry.to_owned()));
    }
    let content = beneath::read_bounded(&file, limits.max_skill_md_bytes)
        .map_err(failed)?
        .ok_or_else(|| SkillError::too_large(Oversize::SkillMdBytes, limits.max_skill_md_bytes))?;
    let content = text(entry, &content)?;
    let document = Document::parse(content)?;
    let directory = directory_name(package_root);
    let mut skill = describe(&document, entry, &directory, package_root)?;
    skill.created_at = from_stat(stat.st_ctime, stat.st_ctime_nsec);
    skill.updated_at = from_stat(stat.st_mtime, stat.st_mtime_nsec);
    if entry == ENTRY_FILES[0] && beneath::stat_entry(dir, Path::new(ENTRY_FILES[1])).is_ok() {
        let message = "both `SKILL.md` and `skill.md` exist; `SKILL.md` is read";
        skill
            .warnings
            .push(rules::warning("two_entry_files", message));
    }
    Ok(Loaded {
        skill,
        document,
        stat,
    })
}

/// Parses a `SKILL.md`. The current time is used for its timestamps.
pub(crate) fn describe(
    document: &Document,
    entry: &'static str,
    directory: &str,
    package_root: &Path,
) -> Result<Skill, SkillError> {
    let name = document
        .text("name")?
        .unwrap_or_else(|| directory.to_owned());
    let now = Timestamp::now();
    Ok(Skill {
        display_name: document
            .text("display_name")?
            .unwrap_or_else(|| name.clone()),
        name,
        description: document.text("description")?.unwrap_or_default(),
        instructions: document.body.clone(),
        package_root: package_root.to_owned(),
        entry_file: entry.to_owned(),
        created_at: now,
        updated_at: now,
        warnings: rules::check(document, directory),
    })
}

pub(crate) fn text<'a>(path: &str, content: &'a [u8]) -> Result<&'a str, SkillError> {
    std::str::from_utf8(content).map_err(|_| SkillError::FileNotText(path.to_owned()))
}

pub(crate) fn directory_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Clamps a time that is outside of the calendar range.
fn from_stat(seconds: i64, nanoseconds: u64) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
    Timestamp::new(seconds, nanoseconds).unwrap_or(if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}
