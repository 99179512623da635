//! Names of skills and of the directories they are installed in.

use crate::package_path::MAX_COMPONENT_BYTES;
use crate::python::strip;
use crate::{Oversize, SkillError};

pub(crate) fn checked_name(name: &str) -> Result<&str, SkillError> {
    let name = strip(name);
    if name.is_empty() {
        return Err(SkillError::NameRequired);
    }
    if !is_word(name) || name.chars().all(is_joiner) {
        return Err(SkillError::NameCharacters);
    }
    // 64 characters of four bytes exceed the name limit of file systems by one byte.
    if name.chars().count() > 64 || name.len() > MAX_COMPONENT_BYTES {
        return Err(SkillError::NameTooLong);
    }
    Ok(name)
}

fn is_joiner(character: char) -> bool {
    matches!(character, '-' | '_')
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || is_joiner(c))
}

/// The part of a file name that the directory of the package is named after.
pub(crate) fn target_stem(filename: &str) -> String {
    let base = strip(filename);
    let base = base.rsplit('/').next().unwrap_or(base);
    let unhidden = base.trim_start_matches('.');
    let stem = match unhidden.rfind('.') {
        Some(dot) => &base[..base.len() - unhidden.len() + dot],
        None => base,
    };
    let safe = stem.replace(|c: char| !c.is_alphanumeric() && !is_joiner(c), "-");
    match safe.trim_matches(is_joiner) {
        "" => "uploaded-skill".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// `<stem>[-<leaf>][-<suffix>]`. The suffix comes from the request and the leaf from the
/// archive; neither may add a path component.
pub(crate) fn target_name(
    stem: &str,
    source_path: &str,
    suffix: &str,
) -> Result<String, SkillError> {
    if !is_word(suffix) {
        return Err(SkillError::TargetSuffix);
    }
    let mut name = stem.to_owned();
    let leaf = source_path.rsplit('/').next().unwrap_or("");
    if !leaf.is_empty() && leaf != stem {
        name = format!("{name}-{leaf}");
    }
    if !suffix.is_empty() {
        name = format!("{name}-{suffix}");
    }
    Oversize::NameBytes.check(name.len(), MAX_COMPONENT_BYTES)?;
    Ok(name)
}

/// Normalizes a path in an archive from a request: slashes as separators, none at the ends.
pub(crate) fn source_path(path: &str) -> String {
    strip(path).replace('\\', "/").trim_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_made_of_letters() {
        for (filename, stem) in [
            ("skill.zip", "skill"),
            ("my skill (1).zip", "my-skill--1"),
            ("a.tar.gz", "a-tar"),
            (".zip", "zip"),
            ("..zip", "zip"),
            ("/x/y/z.zip", "z"),
            ("../../etc/passwd", "passwd"),
            ("___.zip", "uploaded-skill"),
            ("", "uploaded-skill"),
            ("技能.zip", "技能"),
        ] {
            assert_eq!(target_stem(filename), stem, "{filename}");
        }
    }

    #[test]
    fn names_consist_of_letters_digits_and_joiners() {
        for good in ["pdf", "a-b_1", "字"] {
            assert!(checked_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-", "a b", "../x", "a/b", "x\0", &"x".repeat(65)] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_suffix_cannot_add_a_path_component() {
        assert!(matches!(
            target_name("a", "", "../../x"),
            Err(SkillError::TargetSuffix)
        ));
        assert_eq!(target_name("a", "x/b", "upload").unwrap(), "a-b-upload");
        assert_eq!(target_name("a", "x/a", "").unwrap(), "a");
    }
}
