//! The official MCP clients, the official conformance suite and published servers on a real daemon.
//!
//! Comes in: the suite under `tests/mcp`, and the pins beside it. Goes out: success when pytest passed.
//! Never here: what is asked of the server.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::pytest::pytest;
use crate::run::{build_boxwood, cargo, check, output, target_dir, workspace_root};
use crate::{node_modules, venv};

/// The Inspector refuses older ones.
const NODE: &str = "v22.";
const PROGRAMS: [&str; 3] = ["conformance", "mcp-inspector", "supergateway"];
/// Of ours, for the suite alone: a server that the official suite knows, and the Rust library's client.
const EXAMPLES: [&str; 2] = ["conformance_server", "rmcp_client"];

pub(super) fn run() -> Result<()> {
    let program = build_boxwood()?;

    let examples = examples()?;

    let tests = workspace_root().join("tests/mcp");
    let tools = target_dir().join("mcp");
    let python = venv::ensure(&tools.join("venv"), &tests.join("requirements.txt"))?;
    let proxy = mcp_proxy()?;
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
        pytest(&python, &tests, &program)
            .env("BOXWOOD_TEST_NODE", &programs)
            .env("BOXWOOD_TEST_EXAMPLES", &examples)
            .env("BOXWOOD_TEST_MCP_PROXY", &proxy),
    )
    .context("MCP clients are not served")
}

/// The directory of our own programs, built now.
fn examples() -> Result<PathBuf> {
    let mut build = cargo();
    // As the tiers before this one build, so that little is built again.
    build.args(["build", "--workspace", "--all-features", "--quiet"]);
    for name in EXAMPLES {
        build.args(["--example", name]);
    }
    check(&mut build)?;
    let place = target_dir().join("debug/examples");
    for name in EXAMPLES {
        let path = place.join(name);
        ensure!(path.is_file(), "the build left no `{}`", path.display());
    }
    Ok(place)
}

/// The directory of `mcp-proxy`, which the gateway is measured beside.
pub(crate) fn mcp_proxy() -> Result<PathBuf> {
    let python = venv::ensure(
        &target_dir().join("mcp/mcp-proxy"),
        &workspace_root().join("tests/mcp/requirements-mcp-proxy.txt"),
    )?;
    let programs = python
        .parent()
        .context("a program lies in some directory")?;
    Ok(programs.to_owned())
}
