//! `cargo xtask tidy`: the project's rules that rustfmt, clippy and cargo-deny do not check.

mod rules;

use std::fs;

use anyhow::{Result, bail};

use crate::run::{known_files, workspace_root};
use rules::{Finding, Severity};

pub(crate) fn run() -> Result<()> {
    let mut findings = Vec::new();
    let mut checked = 0_usize;
    for path in known_files()? {
        // Deleted but not committed yet, or not text.
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
        bail!("{errors} errors");
    }
    Ok(())
}
