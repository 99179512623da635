//! Reads the manifests of a project: for the cache key, and to detect references to files outside of it.

use std::fs;
use std::path::Path;

use crate::hosting::launch::LaunchError;
use crate::hosting::launch::read_text::read_text;
use crate::hosting::launch::recipe::key::Key;

/// Files that determine the dependencies.
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
const MAX_MANIFEST_BYTES: u64 = 32 * 1024 * 1024;
/// References to siblings: the parent directory, or a uv workspace.
const OUTSIDE_REFERENCES: [&str; 5] =
    ["../", r#"".."#, "'..", "workspace = true", "workspace=true"];

/// Adds the manifests and all requirements files.
pub(crate) fn add_manifests(key: &mut Key, directory: &Path) -> Result<(), LaunchError> {
    for (name, text) in manifests(directory)? {
        key.add(&name, &text);
    }
    Ok(())
}

/// Returns true if a directory or requirements file may refer to files next to it.
pub(crate) fn refers_outside(source: &Path) -> Result<bool, LaunchError> {
    let refers_outside = |text: &str| OUTSIDE_REFERENCES.iter().any(|word| text.contains(word));
    let directory = if source.is_dir() {
        source
    } else if is_list(source)
        && let Some(parent) = source.parent()
    {
        if read(source)?.is_some_and(|text| refers_outside(&text)) {
            return Ok(true);
        }
        parent
    } else {
        return Ok(false);
    };
    let manifests = manifests(directory)?;
    Ok(manifests.iter().any(|(_, text)| refers_outside(text)))
}

/// The manifests in a directory: names and contents.
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
    read_text(path, MAX_MANIFEST_BYTES).map_err(|source| LaunchError::Manifest {
        path: path.to_owned(),
        source,
    })
}

fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "txt")
}

fn requirement_lists(directory: &Path, prefix: &str) -> Vec<String> {
    const MAX_LISTS: usize = 100;
    let mut names: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let has_known_name = !prefix.is_empty()
                || name.starts_with("requirements")
                || name.starts_with("constraints");
            has_known_name && is_list(Path::new(name))
        })
        .take(MAX_LISTS)
        .map(|name| format!("{prefix}{name}"))
        .collect();
    names.sort();
    names
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
    fn manifests_change_the_key_and_sources_do_not() {
        let project = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            fs::write(project.path().join(name), text).expect("writable");
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
}
