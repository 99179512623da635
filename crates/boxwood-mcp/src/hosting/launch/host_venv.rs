//! What somebody installed by hand into a Python environment of the host.
//!
//! Comes in: the environment. Goes out: its packages with their versions. Never here: a program of it.
//! For a project that does not say what it needs, what its environment has is the best there is.

use std::fs;
use std::path::Path;

const MOST_PACKAGES: usize = 1000;
/// Every environment has them.
const TOOLS: [&str; 4] = ["pip", "setuptools", "wheel", "uv"];

/// `name==version` for everything that came from an index, sorted.
pub(super) fn packages(venv: &Path) -> Vec<String> {
    let mut found: Vec<String> = names(&venv.join("lib"))
        .into_iter()
        .filter(|name| name.starts_with("python"))
        .flat_map(|python| {
            let packages = venv.join("lib").join(python).join("site-packages");
            names(&packages)
                .into_iter()
                .filter_map(move |name| package(&packages, &name))
        })
        .take(MOST_PACKAGES)
        .collect();
    found.sort();
    found.dedup();
    found
}

fn package(directory: &Path, name: &str) -> Option<String> {
    let (package, version) = name.strip_suffix(".dist-info")?.rsplit_once('-')?;
    let is_word = |word: &str| {
        word.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._+!".contains(&byte))
    };
    // This file stands beside what came from a directory or a repository.
    let is_local = directory.join(name).join("direct_url.json").exists();
    let is_wanted = is_word(package) && is_word(version) && !TOOLS.contains(&package) && !is_local;
    is_wanted.then(|| format!("{package}=={version}"))
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(10 * MOST_PACKAGES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_tells_what_came_from_an_index() {
        let venv = tempfile::tempdir().expect("there is room");
        let packages_at = venv.path().join("lib/python3.11/site-packages");
        for name in [
            "mcp-1.30.0.dist-info",
            "pip-23.0.dist-info",
            "typing_extensions-4.16.0.dist-info",
            "mine-0.1.dist-info",
            "odd name-1.dist-info",
            "mcp",
        ] {
            fs::create_dir_all(packages_at.join(name)).expect("it is ours");
        }
        fs::write(packages_at.join("mine-0.1.dist-info/direct_url.json"), "{}")
            .expect("it is ours");
        assert_eq!(
            packages(venv.path()),
            ["mcp==1.30.0", "typing_extensions==4.16.0"]
        );
        assert_eq!(packages(Path::new("/no/such/venv")), [""; 0]);
    }
}
