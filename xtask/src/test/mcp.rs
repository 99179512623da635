//! The official MCP clients and the official conformance suite on a real daemon.
//!
//! Comes in: the suite under `tests/mcp`, and the pins beside it. Goes out: success when pytest passed.
//! Never here: what is asked of the server.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, check, output, target_dir, workspace_root};
use crate::{node_modules, venv};

/// The Inspector refuses older ones.
const NODE: &str = "v22.";
const PROGRAMS: [&str; 2] = ["conformance", "mcp-inspector"];

pub(super) fn run() -> Result<()> {
    // The features of every tier, so that this one builds nothing a second time.
    check(cargo().args([
        "build",
        "--workspace",
        "--all-features",
        "--bin",
        "boxwood",
        "--quiet",
    ]))?;
    let program = target_dir().join("debug/boxwood");
    ensure!(program.is_file(), "the build left no `debug/boxwood`");

    let tests = workspace_root().join("tests/mcp");
    let tools = target_dir().join("mcp");
    let python = venv::ensure(&tools.join("venv"), &tests.join("requirements.txt"))?;
    let programs = node_modules::ensure(&tools.join("node"), &tests.join("node"))?;
    let version = output(Command::new(programs.join("node")).arg("--version"))?;
    ensure!(
        version.starts_with(NODE),
        "the suite needs Node {NODE}x and has {version}"
    );
    for name in PROGRAMS {
        let path = programs.join(name);
        ensure!(path.exists(), "`{}` is missing", path.display());
    }
    check(
        Command::new(&python)
            .args(["-m", "pytest", "--quiet", "--durations=5"])
            .current_dir(&tests)
            .env("BOXWOOD_BIN", &program)
            .env("BOXWOOD_TEST_NODE", &programs)
            // What Python compiles would lie about in the source tree.
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
    .context("MCP clients are not served")
}
