//! What a directory holds, as far as an install depends on it.
//!
//! Comes in: a project's directory. Goes out: a digest of its manifests, and whether it is compiled. Never
//! here: a link that is followed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::LaunchError;
use super::contents::PASSED_OVER;
use super::key::Key;
use super::reading::read_text;
use super::stage::MOST_FILES;

/// What decides over a project's dependencies.
const MANIFESTS: [&str; 8] = [
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "uv.lock",
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    ".npmrc",
];
const LONGEST_MANIFEST: u64 = 32 * 1024 * 1024;
/// A build makes machine code of these, which an editable install would leave beside its sources.
const COMPILED: [&str; 9] = ["c", "cc", "cpp", "cxx", "pyx", "rs", "f90", "f", "go"];

/// How a manifest names what lies beside its project: by the directory above, or by the workspace of uv
/// that both belong to.
const OUT: [&str; 5] = ["../", r#"".."#, "'..", "workspace = true", "workspace=true"];

/// Adds the manifests and every list of requirements.
pub(super) fn add_manifests(key: &mut Key, directory: &Path) -> Result<(), LaunchError> {
    for (name, text) in manifests(directory)? {
        key.add(&name, &text);
    }
    Ok(())
}

/// Whether what is installed from a directory, or by a list of requirements, may need what lies beside it.
pub(super) fn leads_out(source: &Path) -> Result<bool, LaunchError> {
    let leads_out = |text: &str| OUT.iter().any(|word| text.contains(word));
    let directory = if source.is_dir() {
        source
    } else if is_list(source)
        && let Some(parent) = source.parent()
    {
        if read(source)?.is_some_and(|text| leads_out(&text)) {
            return Ok(true);
        }
        parent
    } else {
        return Ok(false);
    };
    let manifests = manifests(directory)?;
    Ok(manifests.iter().any(|(_, text)| leads_out(text)))
}

/// With their names.
fn manifests(directory: &Path) -> Result<Vec<(String, String)>, LaunchError> {
    let mut names: Vec<String> = MANIFESTS.iter().map(|&name| name.to_owned()).collect();
    names.extend(requirement_lists(directory, ""));
    names.extend(requirement_lists(
        &directory.join("requirements"),
        "requirements/",
    ));
    let mut found = Vec::new();
    for name in names {
        if let Some(text) = read(&directory.join(&name))? {
            found.push((name, text));
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Option<String>, LaunchError> {
    read_text(path, LONGEST_MANIFEST).map_err(|source| LaunchError::Manifest {
        path: path.to_owned(),
        source,
    })
}

fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "txt")
}

fn requirement_lists(directory: &Path, prefix: &str) -> Vec<String> {
    const MOST: usize = 100;
    let mut names: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let is_named_so = !prefix.is_empty()
                || name.starts_with("requirements")
                || name.starts_with("constraints");
            is_named_so && is_list(Path::new(name))
        })
        .take(MOST)
        .map(|name| format!("{prefix}{name}"))
        .collect();
    names.sort();
    names
}

/// Whether the project has sources that are compiled.
pub(super) fn has_compiled_sources(directory: &Path) -> Result<bool, LaunchError> {
    let mut found = false;
    walk(directory, &mut |path| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        found |= ending.is_some_and(|ending| COMPILED.contains(&ending));
    })?;
    Ok(found)
}

fn walk(directory: &Path, see: &mut dyn FnMut(&Path)) -> Result<(), LaunchError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| LaunchError::Copy {
            operation: "look into",
            path,
            source,
        }
    };
    let mut left = MOST_FILES;
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        let mut entries: Vec<PathBuf> = fs::read_dir(&next)
            .and_then(|entries| {
                entries
                    .take(left.saturating_add(1))
                    .map(|entry| entry.map(|entry| entry.path()))
                    .collect()
            })
            .map_err(failed(&next))?;
        entries.sort();
        for path in entries {
            left = left.checked_sub(1).ok_or_else(|| LaunchError::TooMuch {
                path: directory.to_owned(),
                limit: "200,000 files",
            })?;
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| PASSED_OVER.contains(&name)) {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).map_err(failed(&path))?;
            if metadata.is_dir() {
                directories.push(path);
            } else {
                see(&path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifests(directory: &Path) -> String {
        let mut key = Key::new("test");
        add_manifests(&mut key, directory).expect("it can be read");
        key.finish()
    }

    #[test]
    fn manifests_decide_and_sources_do_not() {
        let project = tempfile::tempdir().expect("there is room");
        let write = |name: &str, text: &str| {
            fs::write(project.path().join(name), text).expect("it is ours");
        };
        write("pyproject.toml", "a");
        let first = manifests(project.path());
        write("server.py", "b");
        assert_eq!(manifests(project.path()), first);
        write("pyproject.toml", "c");
        let second = manifests(project.path());
        assert_ne!(second, first);
        write("requirements-dev.txt", "d");
        assert_ne!(manifests(project.path()), second);
    }

    #[test]
    fn compiled_sources_are_known_by_their_names() {
        let project = tempfile::tempdir().expect("there is room");
        fs::create_dir_all(project.path().join("src")).expect("it is ours");
        fs::create_dir_all(project.path().join(".git")).expect("it is ours");
        fs::write(project.path().join(".git/a.c"), "x").expect("it is ours");
        fs::write(project.path().join("src/a.py"), "x").expect("it is ours");
        assert!(!has_compiled_sources(project.path()).expect("it can be read"));
        fs::write(project.path().join("src/a.pyx"), "x").expect("it is ours");
        assert!(has_compiled_sources(project.path()).expect("it can be read"));
    }
}
