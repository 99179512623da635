//! Which tiers and crates a change can affect.
//!
//! Compares the working tree with a revision. A file that is not known here affects everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::run::{cargo, output, workspace_root};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Affected {
    Everything,
    Only {
        tiers: BTreeSet<&'static str>,
        crates: BTreeSet<String>,
    },
}

/// These take seconds.
const ALWAYS: [&str; 3] = ["needs", "fmt", "tidy"];
/// Tiers that test the whole program.
const PROGRAM: [&str; 6] = ["e2e", "storm", "langbot", "mcp", "docs", "readme"];
/// Tiers that run as soon as one of these crates is affected.
const BACKENDS: [(&str, &[&str]); 3] = [
    ("boxwood-backend-native", &["boxes", "boxes-rootless"]),
    (
        "boxwood-backend-container",
        &["engines", "docker", "podman", "podman-rootless", "gvisor"],
    ),
    ("boxwood-backend-nsjail", &["engines", "nsjail"]),
];

pub(super) fn since(revision: &str) -> Result<Affected> {
    let git = |arguments: &[&str]| {
        output(
            Command::new("git")
                .args(arguments)
                .current_dir(workspace_root()),
        )
    };
    let base = git(&["merge-base", revision, "HEAD"])
        .with_context(|| format!("the working tree cannot be compared with `{revision}`"))?;
    let changed = git(&["diff", "--name-only", base.trim()])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let files: Vec<&str> = changed.lines().chain(new.lines()).collect();
    Ok(affected(&files, &members()?))
}

/// A crate of the workspace, and what it is built from.
#[derive(Deserialize)]
struct Member {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
}

fn members() -> Result<Vec<Member>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Member>,
    }
    let printed = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata = serde_json::from_str(&printed).context("`cargo metadata`")?;
    Ok(metadata.packages)
}

fn affected(files: &[&str], members: &[Member]) -> Affected {
    let mut tiers = BTreeSet::from(ALWAYS);
    let mut crates = BTreeSet::new();
    for file in files {
        if let Some((name, _)) = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once('/'))
        {
            crates.insert(name.to_owned());
        } else if file.starts_with("tests/langbot/") {
            // Parts of the harness serve the other suite too.
            tiers.extend(["langbot", "mcp"]);
        } else if file.starts_with("tests/mcp/") {
            tiers.insert("mcp");
        } else if file.starts_with("docs/") {
            // Tests check examples and tables in some of the pages.
            tiers.extend(["backends", "docs", "e2e", "mcp"]);
        } else if *file == "README.md" {
            tiers.extend(["docs", "readme"]);
        } else if !is_text(file) {
            return Affected::Everything;
        }
    }
    add_dependents(&mut crates, members);
    if !crates.is_empty() {
        tiers.extend(["clippy", "unit"]);
        tiers.extend(PROGRAM);
    }
    for (name, of_backend) in BACKENDS {
        if crates.contains(name) {
            tiers.extend(of_backend);
        }
    }
    if tiers.contains("e2e") {
        crates.insert("boxwood".to_owned());
    }
    Affected::Only { tiers, crates }
}

/// Pages at the root that no test reads.
fn is_text(file: &str) -> bool {
    let is_page = Path::new(file).extension().is_some_and(|end| end == "md");
    !file.contains('/') && (is_page || file == "LICENSE")
}

/// Adds every crate that depends on one of them, directly or not.
fn add_dependents(crates: &mut BTreeSet<String>, members: &[Member]) {
    loop {
        let before = crates.len();
        for member in members {
            let uses = |dependency: &Dependency| crates.contains(&dependency.name);
            if member.dependencies.iter().any(uses) {
                crates.insert(member.name.clone());
            }
        }
        if crates.len() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Vec<Member> {
        let member = |name: &str, dependencies: &[&str]| Member {
            name: name.to_owned(),
            dependencies: dependencies
                .iter()
                .map(|&name| Dependency {
                    name: name.to_owned(),
                })
                .collect(),
        };
        vec![
            member("boxwood", &["boxwood-mcp", "boxwood-backend-native"]),
            member("boxwood-mcp", &["boxwood-api"]),
            member("boxwood-backend-native", &["boxwood-api"]),
            member("boxwood-api", &["serde"]),
        ]
    }

    /// Of the named tiers, which run, and whether the others do not.
    fn check(files: &[&str], run: &[&str], left_out: &[&str]) {
        let Affected::Only { tiers, .. } = affected(files, &workspace()) else {
            panic!("{files:?} affect everything");
        };
        assert!(run.iter().all(|tier| tiers.contains(tier)), "{tiers:?}");
        assert!(
            !left_out.iter().any(|tier| tiers.contains(tier)),
            "{tiers:?}"
        );
    }

    #[test]
    fn a_change_runs_what_it_can_affect() {
        check(
            &["crates/boxwood-mcp/src/lib.rs"],
            &["clippy", "unit", "e2e", "mcp", "readme"],
            &["boxes", "docker", "nsjail"],
        );
        check(
            &["crates/boxwood-api/src/lib.rs"],
            &["unit", "boxes", "boxes-rootless", "e2e"],
            &["docker"],
        );
        check(
            &["tests/mcp/agent_server/test_calls.py"],
            &["mcp"],
            &["unit", "langbot"],
        );
        check(&["CHANGELOG.md"], &["tidy"], &["unit", "e2e", "readme"]);
    }

    #[test]
    fn what_is_not_known_affects_everything() {
        for file in ["Cargo.lock", "xtask/src/main.rs", ".config/nextest.toml"] {
            let files = ["crates/boxwood-mcp/src/lib.rs", file];
            assert_eq!(affected(&files, &workspace()), Affected::Everything);
        }
    }
}
