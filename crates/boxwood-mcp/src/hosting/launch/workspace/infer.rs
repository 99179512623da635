//! Infers the host directory of a server from the absolute paths in its command.
//!
//! System paths that the box has itself are ignored. Policy decides later whether the directory may be mounted.

use std::path::{Path, PathBuf};

use super::paths::{option_and_path, real, unwrap_venv};
use crate::hosting::launch::LaunchError;

/// Paths that refer to the box, even if the host has them too.
const SYSTEM_PATHS: [&str; 16] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/dev",
    "/proc",
    "/sys",
    "/run",
    "/var/run",
    "/boot",
    "/nix",
    "/workspace",
    "/opt/mcp",
];
/// Never a workspace themselves, but their subdirectories may be.
const SHARED_DIRECTORIES: [&str; 3] = ["/", "/tmp", "/var/tmp"];
/// Directories that are too broad to be inferred.
const BROAD_DIRECTORIES: [&str; 10] = [
    "/home",
    "/var/home",
    "/root",
    "/Users",
    "/tmp",
    "/var",
    "/var/tmp",
    "/opt",
    "/mnt",
    "/media",
];
const HOME_PARENTS: [&str; 3] = ["/home", "/var/home", "/Users"];
const MAX_DIRECTORIES: usize = 16;
/// How many directories are searched for a manifest, upwards from a script.
const MAX_ANCESTORS: usize = 6;

pub(crate) const PYTHON_MANIFESTS: [&str; 4] = [
    "pyproject.toml",
    "requirements.txt",
    "setup.py",
    "setup.cfg",
];
pub(crate) const NODE_MANIFESTS: [&str; 1] = ["package.json"];

/// The common parent of the paths in `words`, or the single directories if it would be too broad. No directory
/// contains another.
pub(crate) fn infer<'a>(
    words: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<PathBuf>, LaunchError> {
    let paths = words.into_iter().map(|word| option_and_path(word).1);
    let mut named: Vec<_> = paths.filter_map(workspace_of).collect();
    let Some(common) = named
        .iter()
        .cloned()
        .reduce(|common, directory| common_parent(&common, &directory))
    else {
        return Ok(Vec::new());
    };
    if common != Path::new("/") && !is_broad(&common) {
        return Ok(vec![common]);
    }
    named.sort();
    // Sorting puts a directory before its contents.
    named.dedup_by(|inner, outer| inner.starts_with(outer));
    if let Some(path) = named.iter().find(|path| is_broad(path)) {
        return Err(LaunchError::TooBroad { path: path.clone() });
    }
    if named.len() > MAX_DIRECTORIES {
        return Err(LaunchError::TooBroad { path: common });
    }
    Ok(named)
}

fn workspace_of(word: &str) -> Option<PathBuf> {
    let path = Path::new(word);
    if !path.is_absolute() || !path.exists() || is_box_path(path) {
        return None;
    }
    let unwrapped = unwrap_venv(path);
    let directory = if unwrapped.is_dir() {
        unwrapped
    } else {
        let parent = unwrapped.parent()?;
        project_of(path).unwrap_or_else(|| parent.to_owned())
    };
    let directory = real(&directory);
    (!is_box_path(&directory)).then_some(directory)
}

fn is_box_path(path: &Path) -> bool {
    let clean: PathBuf = path.components().collect();
    SHARED_DIRECTORIES
        .iter()
        .any(|directory| clean == Path::new(directory))
        || SYSTEM_PATHS
            .iter()
            .any(|directory| clean.starts_with(directory))
}

/// The nearest parent of a script with a manifest. Without it, `node build/index.js` would lack its modules.
fn project_of(script: &Path) -> Option<PathBuf> {
    let manifests = manifests_for(script)?;
    let directory = real(script.parent()?);
    nearest(&directory, manifests)
}

/// The nearest directory with one of `manifests`, from `directory` upwards.
pub(crate) fn nearest(directory: &Path, manifests: &[&str]) -> Option<PathBuf> {
    directory
        .ancestors()
        .take(MAX_ANCESTORS)
        .take_while(|ancestor| !is_broad(ancestor) && *ancestor != Path::new("/"))
        .find(|ancestor| {
            manifests
                .iter()
                .any(|manifest| ancestor.join(manifest).is_file())
        })
        .map(Path::to_owned)
}

fn manifests_for(script: &Path) -> Option<&'static [&'static str]> {
    match script.extension()?.to_str()? {
        "py" => Some(&PYTHON_MANIFESTS),
        "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx" => Some(&NODE_MANIFESTS),
        _ => None,
    }
}

fn is_broad(path: &Path) -> bool {
    let is_any = |path: &Path, directories: &[&str]| {
        directories
            .iter()
            .any(|directory| is_at(path, Path::new(directory)))
    };
    is_any(path, &BROAD_DIRECTORIES)
        || path
            .parent()
            .is_some_and(|parent| is_any(parent, &HOME_PARENTS))
}

/// Compares with the directory and its canonical path, because `/home` is a link on some hosts.
fn is_at(path: &Path, directory: &Path) -> bool {
    path == directory || path == real(directory)
}

fn common_parent(one: &Path, other: &Path) -> PathBuf {
    one.components()
        .zip(other.components())
        .take_while(|(one, other)| one == other)
        .map(|(part, _)| part)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// In `/tmp`, which is shared, regardless of `TMPDIR`.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        for file in files {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
            fs::write(path, "").expect("writable");
        }
        directory
    }

    fn inferred(words: &[&Path]) -> Option<PathBuf> {
        let words: Vec<_> = words
            .iter()
            .map(|word| word.to_str().expect("text"))
            .collect();
        let mut found = infer(words).expect("nothing is too broad");
        assert!(found.len() <= 1, "{found:?}");
        found.pop()
    }

    #[test]
    fn relative_and_missing_paths_are_ignored() {
        assert_eq!(inferred(&[Path::new("server.py"), Path::new("./x")]), None);
        assert_eq!(inferred(&[Path::new("/no/such/server.py")]), None);
        assert_eq!(inferred(&[]), None);
    }

    #[test]
    fn a_file_gives_its_parent_and_a_directory_itself() {
        let tree = tree(&["a/server.py", "a/b/data.db"]);
        let root = real(tree.path());
        assert_eq!(
            inferred(&[&tree.path().join("a/server.py")]),
            Some(root.join("a"))
        );
        assert_eq!(
            inferred(&[&tree.path().join("a/b")]),
            Some(root.join("a/b"))
        );
        assert_eq!(
            inferred(&[
                &tree.path().join("a/server.py"),
                &tree.path().join("a/b/data.db")
            ]),
            Some(root.join("a"))
        );
    }

    #[test]
    fn paths_in_options_are_used() {
        let tree = tree(&["a/data.db"]);
        let word = format!("--db={}", tree.path().join("a/data.db").display());
        assert_eq!(
            infer([word.as_str()]).expect("it is small"),
            [real(tree.path()).join("a")]
        );
    }

    #[test]
    fn a_linked_interpreter_gives_the_project_of_its_environment() {
        let tree = tree(&["p/sub/.venv/pyvenv.cfg", "p/server.py"]);
        let programs = tree.path().join("p/sub/.venv/bin");
        fs::create_dir(&programs).expect("writable");
        let python = programs.join("python");
        symlink("/bin/sh", &python).expect("a new link");
        let root = real(tree.path());
        assert_eq!(inferred(&[&python]), Some(root.join("p/sub")));
        assert_eq!(
            inferred(&[&python, &tree.path().join("p/server.py")]),
            Some(root.join("p"))
        );
    }

    #[test]
    fn a_script_gives_its_project() {
        let tree = tree(&[
            "node/package.json",
            "node/build/src/index.js",
            "python/pyproject.toml",
            "python/src/server.py",
            "python/src/index.js",
        ]);
        let root = real(tree.path());
        let script = |name: &str| inferred(&[&tree.path().join(name)]);
        assert_eq!(script("node/build/src/index.js"), Some(root.join("node")));
        assert_eq!(script("python/src/server.py"), Some(root.join("python")));
        assert_eq!(script("python/src/index.js"), Some(root.join("python/src")));
    }

    #[test]
    fn system_paths_are_ignored() {
        let tree = tree(&["a/server.py"]);
        let server = tree.path().join("a/server.py");
        let words = [
            "/usr/bin",
            "/bin/sh",
            "/tmp",
            "/dev/null",
            "/etc/passwd",
            "/",
        ];
        let mut with_server = vec![server.as_path()];
        with_server.extend(words.iter().map(Path::new));
        assert_eq!(inferred(&with_server), Some(real(tree.path()).join("a")));
        assert_eq!(
            infer(words).expect("nothing is left"),
            [""; 0].map(PathBuf::from)
        );
    }

    #[test]
    fn unrelated_directories_stay_separate() {
        let tree = tree(&["a/x", "a/in/y", "b/z"]);
        // Both are in `/tmp`, which is too broad.
        let other = tempfile::tempdir_in("/tmp").expect("a directory");
        let a = tree.path().join("a");
        let words = [
            other.path().to_path_buf(),
            a.join("in"),
            a.clone(),
            a.join("in/y"),
        ];
        let found = infer(words.iter().map(|word| word.to_str().expect("text")));
        let mut expected = vec![real(&a), real(other.path())];
        expected.sort();
        assert_eq!(found.expect("each is small"), expected);
    }

    #[test]
    fn a_linked_home_is_recognized() {
        let tree = tree(&["var/home/me/project/x"]);
        let root = real(tree.path());
        let link = tree.path().join("home");
        symlink(root.join("var/home"), &link).expect("a new link");
        assert!(is_at(&root.join("var/home"), &link));
        assert!(!is_at(&root.join("var"), &link));
    }

    #[test]
    fn a_home_is_never_inferred() {
        for path in ["/home", "/home/user", "/root", "/Users/user"] {
            assert!(is_broad(Path::new(path)), "{path}");
        }
        for path in ["/var/home", "/var/home/user"] {
            assert!(is_broad(Path::new(path)), "{path}");
        }
        assert!(!is_broad(Path::new("/home/user/project")));
        for home in ["/root", "/home", "/var", "/opt"] {
            if !Path::new(home).is_dir() {
                continue;
            }
            let error = infer([home]).expect_err(home);
            let hint = error.hint().expect("there is a way out");
            assert!(hint.contains("box.host_path"), "{hint}");
        }
    }
}
