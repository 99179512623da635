//! The small server, called directly, in a box of Boxwood, and behind other gateways.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::super::baseline::PYTHON;
use super::super::baseline::server::Server;
use super::super::clients::pipe::Pipe;
use super::super::daemon::{Daemon, free_address};
use super::client::{INITIALIZE, INITIALIZED, call};
use crate::run::{target_dir, workspace_root};
use crate::{node_modules, test};

/// A directory with the server in it, like a user's project.
pub(super) struct Project {
    directory: TempDir,
}

impl Project {
    pub(super) fn make() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let from = workspace_root().join("tests/mcp/small_server.py");
        fs::copy(&from, directory.path().join("server.py"))
            .with_context(|| format!("`{}` could not be copied", from.display()))?;
        Ok(Self { directory })
    }

    pub(super) fn script(&self) -> PathBuf {
        self.directory.path().join("server.py")
    }

    /// A daemon that may mount it.
    pub(super) fn daemon(&self, binary: &Path) -> Result<Daemon> {
        Daemon::start_on(binary, "native", |command| {
            command.env("BOXWOOD_MOUNTS__ALLOWED_ROOTS", self.directory.path());
            Ok(())
        })
    }
}

/// Adds servers of these names and waits until all of them are connected.
pub(super) fn host(daemon: &Daemon, project: &Project, names: &[String]) -> Result<()> {
    let script = project.script();
    let servers: serde_json::Map<_, _> = names
        .iter()
        .map(|name| {
            let server = serde_json::json!({ "command": "python3", "args": [script] });
            (name.clone(), server)
        })
        .collect();
    let body = serde_json::json!({ "document": { "mcpServers": servers } }).to_string();
    let mut connection = daemon.connect()?;
    connection.call("POST", "/v1/mcp/import", &body, 200)?;
    let deadline = Instant::now() + Duration::from_mins(5);
    loop {
        let answer = connection.call("GET", "/v1/mcp/servers", "", 200)?;
        let list: serde_json::Value = serde_json::from_str(&answer)?;
        let servers = list["servers"].as_array().context("there is no list")?;
        let mut waiting = 0_usize;
        for server in servers {
            let runtime = &server["runtime"];
            match runtime["status"].as_str() {
                Some("connected") => {}
                Some("error") => bail!("{} failed: {}", server["name"], runtime["error_message"]),
                _ => waiting += 1,
            }
        }
        if waiting == 0 && servers.len() >= names.len() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{waiting} servers did not connect"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The server at the other end of two pipes.
pub(super) struct Direct {
    pipe: Pipe,
    next_id: u64,
}

impl Direct {
    pub(super) fn start(script: &Path) -> Result<Self> {
        let mut pipe = Pipe::start(Command::new(PYTHON).arg(script).stderr(Stdio::null()))?;
        let answer = pipe.request(INITIALIZE)?;
        ensure!(
            answer.contains("serverInfo"),
            "`initialize` was answered with {answer}"
        );
        pipe.send(INITIALIZED)?;
        Ok(Self { pipe, next_id: 1 })
    }

    pub(super) fn echo(&mut self) -> Result<()> {
        let (message, word) = call(self.next_id);
        self.next_id += 1;
        let answer = self.pipe.request(&message)?;
        ensure!(
            answer.contains(&word),
            "an answer without `{word}`: {answer}"
        );
        Ok(())
    }
}

/// supergateway in front of the server, both on the host.
pub(super) fn supergateway(script: &Path) -> Result<Server> {
    let programs = node_modules::ensure(
        &target_dir().join("mcp/node"),
        &workspace_root().join("tests/mcp/node"),
    )?;
    let address = free_address()?;
    let mut command = Command::new(programs.join("supergateway"));
    // The pinned Node before any other.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::iter::once(programs).chain(std::env::split_paths(&path));
    command
        .env("PATH", std::env::join_paths(directories)?)
        .args(["--stdio", &format!("{PYTHON} {}", script.display())])
        .args(["--outputTransport", "streamableHttp", "--stateful"])
        .args(["--logLevel", "none"])
        .args(["--port", &address.port().to_string()]);
    Server::start(command, address)
}

/// The same with mcp-proxy.
pub(super) fn mcp_proxy(script: &Path) -> Result<Server> {
    let address = free_address()?;
    let mut command = Command::new(test::mcp_proxy()?.join("mcp-proxy"));
    command
        .args(["--port", &address.port().to_string()])
        .args(["--log-level", "ERROR", "--", PYTHON])
        .arg(script);
    Server::start(command, address)
}
