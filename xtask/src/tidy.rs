//! `cargo xtask tidy`: the house rules that no other tool checks.
//!
//! Comes in: the files that git knows. Goes out: every finding with its file and line. Never here:
//! what rustfmt, clippy or cargo-deny already say.

mod rules;

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{output, workspace_root};
use rules::{Finding, Severity};

pub(crate) fn run() -> Result<()> {
    let mut findings = Vec::new();
    let mut checked = 0_usize;
    for path in known_files()? {
        // Deleted but not yet committed, or not text: nothing to say about either.
        let Ok(text) = fs::read_to_string(workspace_root().join(&path)) else {
            continue;
        };
        checked += 1;
        rules::check(&path, &text, &mut findings);
    }
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    for Finding {
        severity,
        path,
        line,
        what,
    } in &findings
    {
        let word = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        println!("{word}: {path}:{line}: {what}");
    }
    println!(
        "{checked} files, {errors} errors, {} warnings",
        findings.len() - errors
    );
    if errors > 0 {
        bail!("{errors} house rules are broken");
    }
    Ok(())
}

/// Tracked files and new ones that are not ignored, relative to the root.
fn known_files() -> Result<Vec<String>> {
    let listed = output(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard")
            .current_dir(workspace_root()),
    )?;
    let mut files: Vec<_> = listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
