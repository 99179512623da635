//! The official MCP clients, the official conformance suite and published servers on a real daemon.
//!
//! Runs the suite in `tests/mcp`, with the package versions that are pinned there.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::form;
use super::pytest::pytest;
use crate::run::{build_boxwood, cargo, check, output, target_dir, workspace_root};
use crate::{node_modules, venv};

/// The Inspector refuses older ones.
const NODE: &str = "v22.";
const PROGRAMS: [&str; 3] = ["conformance", "mcp-inspector", "supergateway"];
/// Examples of this workspace: the server that the official suite expects, and a client with the Rust library.
const EXAMPLES: [&str; 2] = ["conformance_server", "rmcp_client"];

/// With this variable, and in the long form, the suite measures other gateways too.
const WRITE_NUMBERS: &str = "BOXWOOD_TEST_WRITE";

pub(super) fn run() -> Result<()> {
    let program = build_boxwood()?;
    let examples = examples()?;
    let tools = Tools::install()?;
    let version = output(Command::new(tools.node_programs.join("node")).arg("--version"))?;
    ensure!(
        version.starts_with(NODE),
        "the suite needs Node {NODE}x and has {version}"
    );
    for name in PROGRAMS {
        let path = tools.node_programs.join(name);
        ensure!(path.exists(), "`{}` is missing", path.display());
    }
    let mut pytest = pytest(&tools.python, &tests(), &program);
    pytest
        .env("BOXWOOD_TEST_NODE", &tools.node_programs)
        .env("BOXWOOD_TEST_EXAMPLES", &examples);
    if form::is_long() || std::env::var_os(WRITE_NUMBERS).is_some() {
        pytest.env("BOXWOOD_TEST_MCP_PROXY", mcp_proxy()?);
    }
    check(&mut pytest).context("the suite of MCP clients failed")
}

/// What the suite needs from package registries.
struct Tools {
    /// The Python with the official client.
    python: PathBuf,
    /// The directory of the programs from npm.
    node_programs: PathBuf,
}

impl Tools {
    /// Both registries at the same time: most of it is waiting for them.
    fn install() -> Result<Self> {
        let directory = target_dir().join("mcp");
        let node = thread::spawn({
            let directory = directory.join("node");
            move || node_modules::ensure(&directory, &tests().join("node"))
        });
        let python = venv::ensure(&directory.join("venv"), &tests().join("requirements.txt"));
        let node_programs = node
            .join()
            .map_err(|_| anyhow!("the installation of Node packages panicked"))??;
        Ok(Self {
            python: python?,
            node_programs,
        })
    }
}

fn tests() -> PathBuf {
    workspace_root().join("tests/mcp")
}

/// Builds the examples and returns their directory.
fn examples() -> Result<PathBuf> {
    let mut build = cargo();
    // As the tiers before this one build, so that little is built again.
    build.args(["build", "--workspace", "--all-features", "--quiet"]);
    for name in EXAMPLES {
        build.args(["--example", name]);
    }
    check(&mut build)?;
    let directory = target_dir().join("debug/examples");
    for name in EXAMPLES {
        let path = directory.join(name);
        ensure!(path.is_file(), "the build left no `{}`", path.display());
    }
    Ok(directory)
}

/// The directory of `mcp-proxy`, with which the gateway is compared.
pub(crate) fn mcp_proxy() -> Result<PathBuf> {
    let python = venv::ensure(
        &target_dir().join("mcp/mcp-proxy"),
        &tests().join("requirements-mcp-proxy.txt"),
    )?;
    let programs = python
        .parent()
        .context("the path of Python has no directory")?;
    Ok(programs.to_owned())
}
