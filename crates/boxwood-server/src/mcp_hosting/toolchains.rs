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

struct Tool {
    name: &'static str,
    matters: &'static str,
    fix: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool {
        name: "node",
        matters: "MCP servers that start with `npx` or `node`",
        fix: "install Node.js for all users, or give such servers an image that has it; without it Boxwood installs one with each server where pip can",
    },
    Tool {
        name: "npm",
        matters: "installs MCP servers that start with `npx`",
        fix: "install npm for all users, or give such servers an image that has it",
    },
    Tool {
        name: "uv",
        matters: "installs MCP servers that start with `uvx` or `uv run`, fast",
        fix: "install uv for all users (in /usr/local/bin), or do without: Boxwood then uses python3 with venv and pip",
    },
    Tool {
        name: "python3",
        matters: "MCP servers that start with `uvx` or `python`",
        fix: "install Python 3 with venv and pip, or give such servers an image that has it",
    },
];

/// Programs in home directories do not count, because no box sees them.
pub fn toolchains() -> Vec<ToolchainFinding> {
    find_in(&DIRECTORIES.map(Path::new))
}

fn find_in(directories: &[&Path]) -> Vec<ToolchainFinding> {
    let found = |name: &str| -> Option<PathBuf> {
        let places = directories.iter().map(|directory| directory.join(name));
        places.into_iter().find(|path| is_program(path))
    };
    TOOLS
        .iter()
        .map(|tool| {
            let path = found(tool.name).map(|path| path.display().to_string());
            ToolchainFinding {
                name: tool.name.to_owned(),
                fix: path.is_none().then(|| tool.fix.to_owned()),
                path,
                matters: tool.matters.to_owned(),
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
    fn a_program_is_found_where_a_box_would_find_it() {
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
