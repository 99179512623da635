//! The `nsjail` program.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::images::{cache, lock};
use crate::run::{output, workspace_root};
use crate::venv;

/// The program, with its libraries beside it.
pub(crate) fn install() -> Result<PathBuf> {
    let _lock = lock()?;
    let python = venv::ensure(
        &cache().join("nsjail"),
        &workspace_root().join("tests/engines/requirements.txt"),
    )
    .context("`nsjail` could not be installed")?;
    // The package also has a Python module, which is not used. The program is in the directory of the module.
    let packages = output(Command::new(python).args([
        "-c",
        "import sysconfig; print(sysconfig.get_path('platlib'))",
    ]))?;
    let program = PathBuf::from(packages.trim()).join("nsjail/bin/nsjail");
    ensure!(
        program.is_file(),
        "the Python package of nsjail does not contain `{}`",
        program.display()
    );
    Ok(program)
}
