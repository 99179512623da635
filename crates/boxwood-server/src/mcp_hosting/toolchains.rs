//! Finds `node`, `npm`, `uv` and `python3` on the host, for `boxwood doctor`. Runs none of them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use boxwood_api::ToolchainFinding;

/// Directories of the host that are in the `PATH` of a box.
const DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Name, what needs it, and how to install it.
const TOOLS: [(&str, &str, &str); 4] = [
    (
        "node",
        "MCP servers that start with `npx` or `node`",
        "install Node.js for all users, or give such servers an image that has it; without it Boxwood installs a private Node.js for each server if pip is available",
    ),
    (
        "npm",
        "installs MCP servers that start with `npx`",
        "install npm for all users, or give such servers an image that has it",
    ),
    (
        "uv",
        "installs MCP servers that start with `uvx` or `uv run`, fast",
        "install uv for all users (in /usr/local/bin), or do without: Boxwood then uses python3 with venv and pip",
    ),
    (
        "python3",
        "MCP servers that start with `uvx` or `python`",
        "install Python 3 with venv and pip, or give such servers an image that has it",
    ),
];

/// Programs in home directories do not count, because no box sees them.
pub fn toolchains() -> Vec<ToolchainFinding> {
    find_in(&DIRECTORIES.map(Path::new))
}

fn find_in(directories: &[&Path]) -> Vec<ToolchainFinding> {
    let found = |name: &str| -> Option<PathBuf> {
        let candidates = directories.iter().map(|directory| directory.join(name));
        candidates.into_iter().find(|path| is_program(path))
    };
    TOOLS
        .iter()
        .map(|&(name, matters, fix)| {
            let path = found(name).map(|path| path.display().to_string());
            ToolchainFinding {
                name: name.to_owned(),
                fix: path.is_none().then(|| fix.to_owned()),
                path,
                matters: matters.to_owned(),
            }
        })
        .collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_in_the_path_of_a_box() {
        let dir = tempfile::tempdir().expect("a directory");
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for directory in [&first, &second] {
            std::fs::create_dir(directory).expect("made");
        }
        std::fs::write(first.join("node"), "no program").expect("written");
        for (directory, name) in [(&second, "node"), (&first, "uv"), (&second, "uv")] {
            let path = directory.join(name);
            std::fs::write(&path, "#!/bin/sh\n").expect("written");
            let all = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, all).expect("changed");
        }
        std::os::unix::fs::symlink("nowhere", first.join("npm")).expect("link");
        let findings = find_in(&[&first, &second]);
        let seen = |name: &str| {
            let finding = findings.iter().find(|finding| finding.name == name);
            let finding = finding.expect("looked for");
            assert_eq!(finding.path.is_none(), finding.fix.is_some(), "{name}");
            finding.path.clone()
        };
        assert_eq!(
            seen("node"),
            Some(second.join("node").display().to_string())
        );
        assert_eq!(seen("uv"), Some(first.join("uv").display().to_string()));
        assert_eq!(seen("npm"), None);
        assert_eq!(seen("python3"), None);
    }
}
