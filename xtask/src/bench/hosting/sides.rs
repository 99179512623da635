//! The small server, asked directly, in a box of ours, and behind other people's gateways.
//!
//! Comes in: where the server's file is. Goes out: sides that answer, each gone on drop.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::super::daemon::{Daemon, free_address};
use super::client::{INITIALIZE, INITIALIZED, call};
use crate::run::{target_dir, workspace_root};
use crate::{node_modules, test};

/// The same on every side: the one that boxes see.
const PYTHON: &str = "/usr/bin/python3";
const START: Duration = Duration::from_mins(1);

/// A directory of its own with the server in it, as a person has one.
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
pub(super) struct Pipe {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl Pipe {
    pub(super) fn start(script: &Path) -> Result<Self> {
        let mut child = Command::new(PYTHON)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("`{PYTHON}` could not be started"))?;
        let stdin = child.stdin.take().context("the server has no stdin")?;
        let stdout = child.stdout.take().context("the server has no stdout")?;
        let mut pipe = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            next_id: 1,
        };
        let greeting = pipe.ask(INITIALIZE)?;
        ensure!(greeting.contains("serverInfo"), "no greeting: {greeting}");
        pipe.stdin
            .write_all(format!("{INITIALIZED}\n").as_bytes())?;
        Ok(pipe)
    }

    pub(super) fn echo(&mut self) -> Result<()> {
        let (message, word) = call(self.next_id);
        self.next_id += 1;
        let answer = self.ask(&message)?;
        ensure!(
            answer.contains(&word),
            "an answer without `{word}`: {answer}"
        );
        Ok(())
    }

    fn ask(&mut self, message: &str) -> Result<String> {
        self.stdin.write_all(format!("{message}\n").as_bytes())?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Somebody else's gateway in front of the server, both on the host.
pub(super) struct Gateway {
    child: Child,
    address: SocketAddr,
}

impl Gateway {
    pub(super) fn supergateway(script: &Path) -> Result<Self> {
        let programs = node_modules::ensure(
            &target_dir().join("mcp/node"),
            &workspace_root().join("tests/mcp/node"),
        )?;
        let address = free_address()?;
        let mut command = Command::new(programs.join("supergateway"));
        // The pinned Node before any other.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = std::iter::once(programs).chain(std::env::split_paths(&path));
        command
            .env("PATH", std::env::join_paths(places)?)
            .args(["--stdio", &format!("{PYTHON} {}", script.display())])
            .args(["--outputTransport", "streamableHttp", "--stateful"])
            .args(["--logLevel", "none"])
            .args(["--port", &address.port().to_string()]);
        Self::start(command, address)
    }

    pub(super) fn mcp_proxy(script: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(test::mcp_proxy()?.join("mcp-proxy"));
        command
            .args(["--port", &address.port().to_string()])
            .args(["--log-level", "ERROR", "--", PYTHON])
            .arg(script);
        Self::start(command, address)
    }

    fn start(mut command: Command, address: SocketAddr) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What it starts goes with it.
            .process_group(0)
            .spawn()
            .context("a gateway could not be started")?;
        let mut gateway = Self { child, address };
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = gateway.child.try_wait()? {
                bail!("a gateway ended at once: {status}");
            }
            ensure!(Instant::now() < deadline, "a gateway does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(gateway)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Gone already: then there is nobody to tell.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
